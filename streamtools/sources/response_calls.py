"""The calls among the items of a response, into source events. Sans-IO.

Function calls are calls, and so are those of custom tools, whose free text becomes the argument `input` and is written
as JSON on the way. A call is complete when its item is done, or, in a response that ends well, when its arguments have
been told whole; one that says that it is incomplete is truncated, and one with a piece of the wrong type is at fault.
What hosted tools are asked is told when they are done; their results stand in the item, which passes as it came.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from streamtools.calls import read_arguments
from streamtools.errors import Code
from streamtools.events import NativeToolCall, SourceEvent, ToolCallDelta, ToolCallStart
from streamtools.json_values import Rejected, fits
from streamtools.limits import Limits
from streamtools.sources.output_items import Item, Items, differ, place
from streamtools.sources.words import string

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The client's calls, by the type of their items, and where each has what the model wrote."""

_CUT = ["incomplete", "failed", "cancelled"]  # lists, because a status may be anything
_ENDED = ["completed", *_CUT]

HOSTED = {
    "web_search_call": "action",
    "file_search_call": "queries",
    "code_interpreter_call": "code",
    "image_generation_call": "prompt",
    "mcp_call": "arguments",
}
"""The calls that the provider runs itself, likewise."""


class ResponseCalls:
    """The calls of one response. `told` is always what an event says of a call: its item, or what stands for that."""

    def __init__(self, items: Items, limits: Limits) -> None:
        self._items = items
        self._limits = limits
        self._told: dict[tuple[str, str], Item] = {}  # what is done, by one of its ids and its content

    def find(self, told: dict[str, Any], index: Any, final: bool = False) -> Item | None:
        """Return the call that `told` is, if it has come before; it may be done.

        `final` is what the end of the response tells, whose items may have other ids and places than before.
        """
        kind, id, call_id = told["type"], string(told.get("id")), string(told.get("call_id"))
        content = _content(kind, told.get("name"), told.get(CALLS[kind]))
        for name in (id, call_id):
            if name is not None and (item := self._told.get((name, content))) is not None:
                return item
        found = self._items.find(kind, id, index, call_id)
        if found is None or not found.done or found.content == content:
            return found
        if told.get(CALLS[kind]) in (None, "") and found.name == (string(told.get("name")) or found.name):
            return found
        shared = (id is not None and id == found.id) or (call_id is not None and call_id == found.call_id)
        clash = differ(id, found.id) or differ(call_id, found.call_id)
        if final and place(index) == found.index:
            return found if shared or not clash else None
        return found if shared and not clash and not differ(place(index), found.index) else None

    def match(self, output: list[Any]) -> dict[int, Item]:
        """Return which places of the final output hold calls that have come before: by an id or a place, by what they
        say, or because one is still open. Each of those without an id in common stands for one of them only.
        """
        calls = {index: each for index, each in enumerate(output) if isinstance(each, dict) and _is_call(each)}
        found: dict[int, Item] = {}
        known: set[str] = set()
        for index, each in calls.items():
            item = self.find(each, index, final=True)
            if item is not None and (item.done or item.key not in known):
                found[index] = item
                known.add(item.key)
        left: dict[tuple[Any, ...], list[Item]] = {}
        for item in reversed(self._items.all):
            if item.kind in CALLS and item.key not in known:
                left.setdefault((True, item.content) if item.done else (False, item.kind, item.name), []).append(item)
        for index, each in calls.items():
            kind, name = each["type"], string(each.get("name"))
            content = _content(kind, name, each.get(CALLS[kind]))
            for key in ((True, content), (False, kind, name), (False, kind, None)) if index not in found else ():
                if waiting := left.get(key):
                    found[index] = waiting.pop()
                    break
        return found

    def begin(self, item: Item, told: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append that a call begins, which may tell its arguments already."""
        self._announce(item, told, events)
        item.cut = told.get("status") in _CUT
        self._take(item, told)

    def add(self, item: Item, delta: str, events: list[SourceEvent]) -> None:
        """Append a piece of a call's arguments, which may be cut in mid-character."""
        self._write(item, item.pairs.join(delta), events)

    def spoil(self, item: Item, events: list[SourceEvent]) -> None:
        """Take note that a piece of a call's arguments is no text, so that nobody knows what it was to be."""
        if not item.done:
            self._announce(item, {}, events)
            item.fault = Code.INVALID_ARGUMENTS

    def settle(self, item: Item, told: dict[str, Any], events: list[SourceEvent]) -> None:
        """Take note of arguments that are told whole, before their item is done."""
        if not item.done:
            self._announce(item, told, events)
            self._take(item, told)
            item.told = True

    def finish(self, item: Item, told: dict[str, Any], status: str, events: list[SourceEvent]) -> None:
        """End a call, unless it is told to be cut off, or only stands in a response that is.

        `status` is that of the response, or empty where the item itself is done.
        """
        self._take(item, told)
        state = told.get("status")
        if state in _CUT:
            item.fault = item.fault or Code.TRUNCATED
        if state in _ENDED or item.fault or item.told or status in ("", "completed"):
            self._items.name_call(item, told.get("call_id"), told.get("name"))
            self._end(item, events)
            return
        self._announce(item, told, events)
        if not item.streamed and isinstance(item.given, str):
            events.append(ToolCallDelta(item.key, item.given))

    def finish_told(self, events: list[SourceEvent]) -> None:
        """End the calls whose arguments have been told whole and whose items never were done, and those at fault."""
        for item in self._items.all:
            if not item.done and (item.told or item.fault or item.cut):
                item.fault = item.fault or (Code.TRUNCATED if item.cut else None)
                self._end(item, events)
                item.forget()

    def tell_hosted(self, item: Item, told: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append what a tool of the provider was asked."""
        field = HOSTED[item.kind]
        arguments = told.get(field)
        if not fits(arguments, self._limits.depth):
            arguments = None  # the item says so itself
        elif arguments is not None and not isinstance(arguments, dict) and item.kind != "mcp_call":
            arguments = {field: arguments}
        name = string(told.get("name")) or item.kind.removesuffix("_call")
        events.append(NativeToolCall(item.key, name, arguments, string(told.get("id")), provider_executed=True))

    def _remember(self, item: Item) -> None:
        """Keep what a call says that is done, so that it is known again."""
        given = item.given
        written = given is None and item.streamed
        if written:
            given = item.heard.getvalue() + ('"}' if item.kind == "custom_tool_call" else "")
        elif item.kind == "custom_tool_call" and isinstance(given, dict):
            given = given.get("input") if item.fault is None else given
        item.content = _content(item.kind, item.name, given, written)
        for name in (item.id, item.call_id):
            if name is not None:
                self._told.setdefault((name, item.content), item)

    def _take(self, item: Item, told: dict[str, Any]) -> None:
        """Take the arguments that are told whole; an empty text may mean that they come elsewhere."""
        value = told.get(CALLS[item.kind])
        if value is None or value == "":
            return
        if isinstance(value, str):
            text = string(value)
            item.given = {"input": text} if item.kind == "custom_tool_call" else text
            return
        item.given = value
        if item.kind == "custom_tool_call" or not isinstance(value, dict):
            item.fault = Code.INVALID_ARGUMENTS

    def _announce(self, item: Item, told: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append that a call begins, or what more is known of it now."""
        known = item.call_id, item.name
        self._items.name_call(item, told.get("call_id"), told.get("name"))
        if not item.begun or known != (item.call_id, item.name):
            item.begun = True
            events.append(ToolCallStart(item.key, item.call_id, item.name))

    def _write(self, item: Item, piece: str, events: list[SourceEvent]) -> None:
        if not piece:
            return
        if item.kind == "custom_tool_call":
            piece = _escape(piece) if item.streamed else '{"input":"' + _escape(piece)
        if not item.streamed:
            self._announce(item, {}, events)
            item.streamed = True
            item.given = None  # what it was added with is only its beginning
        if item.heard.tell() <= self._limits.call:
            item.heard.write(piece)
        events.append(ToolCallDelta(item.key, piece))

    def _end(self, item: Item, events: list[SourceEvent]) -> None:
        given = item.given
        self._remember(item)
        if not fits(given, self._limits.depth):
            given, item.fault = None, Code.TOO_DEEP
        if item.fault is not None:
            events.append(NativeToolCall(item.key, item.name, given, item.call_id, fault=item.fault))
            return
        self._write(item, item.pairs.close(), events)
        if item.kind == "custom_tool_call":
            if item.streamed:
                events.append(ToolCallDelta(item.key, '"}'))
            elif given is None:
                given = {"input": ""}
        events.append(NativeToolCall(item.key, item.name, given, item.call_id))


def _is_call(told: dict[str, Any]) -> bool:
    return told.get("type") in list(CALLS)


def _content(kind: str, name: Any, value: Any, written: bool = False) -> str:
    """Return what is equal for two spellings of the same call; `written` is JSON also of what is free text."""
    if kind == "custom_tool_call" and not written and (value is None or isinstance(value, str)):
        value = {"input": string(value) or ""}
    try:
        value = read_arguments(value).value
        return json.dumps([kind, string(name), value], sort_keys=True)
    except (Rejected, RecursionError):
        return f"{kind} {string(name)} {value if isinstance(value, str) else type(value)}"


def _escape(text: str) -> str:
    """Return `text` as it stands inside a JSON string."""
    return msgspec.json.encode(text).decode()[1:-1]
