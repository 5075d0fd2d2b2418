"""The output items of a response that is being streamed, and the calls among them, into source events. Sans-IO.

An item has an id, an index, and if it is a call the call's id; servers leave out each of them, some give an item a new
id with each event, and some the same index to all. So an item is the one with the id that an event names, else the one
with its index, and where one of the two sides has neither, the newest of its kind that is still open. Ids collide too:
an item that one of its two ids names, and whose other id and index are another's, is another.

Function calls are calls, and so are those of custom tools, whose free text becomes the argument `input` and is written
as JSON on the way. A call is complete when its item is done, or, in a response that ends well, when its arguments have
come whole; one that says that it is incomplete is truncated, and one with a piece of the wrong type is at fault.
Where the model's answer stands behind calls of custom tools, the provider has run them, and they are taken back.
What hosted tools are asked is reported when they are done; their results stand in the item, which passes as it came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from streamtools.calls import read_arguments
from streamtools.errors import Code
from streamtools.events import NativeToolCall, SourceEvent, ToolCallDelta
from streamtools.json_values import Rejected, fits, whole
from streamtools.limits import Limits
from streamtools.sources.open_call import OpenCall
from streamtools.sources.provider_terms import escaped, string

TEXTS = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
"""The parts of items that hold text, and where."""

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The client's calls, by the type of their items, and where each has what the model wrote."""

HOSTED = {
    "web_search_call": "action",
    "file_search_call": "queries",
    "code_interpreter_call": "code",
    "image_generation_call": "prompt",
    "mcp_call": "arguments",
    "x_search_call": "input",
}
"""The calls that the provider runs itself, likewise."""
_IN_JSON = ("mcp_call", "x_search_call")  # those that have their arguments as text

_CUT = ["incomplete", "failed", "cancelled"]  # lists, because a status may be anything
_ENDED = ["completed", *_CUT]


@dataclass(slots=True, eq=False)
class OutputItem(OpenCall):
    """What is known of an output item, call or not. `key` is one for each item of the response."""

    kind: str = ""
    item_id: str | None = None
    index: int | None = None
    done: bool = False
    # of text and reasoning
    heard: StringIO = field(default_factory=StringIO)  # what has come of the open part; of a call, its arguments
    settled: list[str] = field(default_factory=list)  # the parts before it
    part: object = None  # which one is open
    cited: bool = False
    # of calls
    begun: bool = False
    streamed: bool = False  # arguments have come in deltas
    whole: bool = False  # they have come whole
    cut: bool = False  # it began as one that is not complete
    content: str | None = None  # what it said, once it is done

    @property
    def text(self) -> str:
        """What has come of its text."""
        return "".join(self.settled) + self.heard.getvalue()

    def forget(self) -> None:
        """Let go of what is no longer needed once an item is done."""
        self.done = True
        self.heard = StringIO()
        self.settled.clear()
        self.given = None


class OutputItems:
    """The items of one response, in the order in which they appeared.

    For calls, `data` is what an event says of one: its item, or what stands for that.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: list[OutputItem] = []
        self._by_name: dict[str, OutputItem] = {}  # by its id, and by its call's
        self._by_index: dict[int, OutputItem] = {}
        self._newest: dict[str, OutputItem] = {}  # of each kind
        self._open: set[str] = set()  # keys of calls that have begun and not ended
        self._done: dict[tuple[str, str], OutputItem] = {}  # calls that are done, by one of their ids and their content
        self._custom: list[SourceEvent] = []  # custom calls that are done, as if the provider had run them

    def add(self, kind: str, item_id: Any, index: Any) -> OutputItem:
        """Return a new item. What is no id, or no index, counts as not sent."""
        item = OutputItem(str(len(self._all) + 1), kind=kind, item_id=string(item_id), index=place(index))
        self._all.append(item)
        self._newest[kind] = item
        if item.item_id is not None:
            self._by_name[item.item_id] = item
        if item.index is not None:
            self._by_index[item.index] = item
        return item

    def get(self, kind: str, item_id: Any, index: Any, id: Any = None) -> OutputItem:
        """Return the item that is meant, which is a new one if none is known. `id` is that of its call."""
        return self.find(kind, item_id, index, id) or self.add(kind, item_id, index)

    def find(self, kind: str, item_id: Any, index: Any, id: Any = None, *, named: bool = False) -> OutputItem | None:
        """Return the item that is meant, if it is known; `named`, only if one of the ids is its."""
        item_id, index, id = string(item_id), place(index), string(id)
        for name in (item_id, id):
            item = self._by_name.get(name) if name is not None else None
            if item is None or item.kind != kind:
                continue
            if differ(index, item.index):
                other = self._by_index.get(index)
                if other is not None and other.kind == kind and name in (other.item_id, other.id):
                    return other
                if differ(id, item.id) or (name == id and differ(item_id, item.item_id)):
                    continue
            return item
        found = None if index is None else self._by_index.get(index)
        if found is None:
            found = self._newest.get(kind)
            if found is None or found.done or (found.item_id and item_id) or not (found.index is None or index is None):
                return None
        return None if named or found.kind != kind or differ(id, found.id) else found

    # Calls.

    def find_call(self, data: dict[str, Any], index: Any, final: bool = False) -> OutputItem | None:
        """Return the call that `data` is, if it has come before; it may be done.

        `final` is what the end of the response holds, whose items may have other ids and places than before.
        """
        kind, item_id, id = data["type"], string(data.get("id")), string(data.get("call_id"))
        content = _content(kind, data.get("name"), data.get(CALLS[kind]))
        for name in (item_id, id):
            if name is not None and (item := self._done.get((name, content))) is not None:
                return item
        found = self.find(kind, item_id, index, id)
        if found is None or not found.done or found.content == content:
            return found
        if data.get(CALLS[kind]) in (None, "") and found.name == (string(data.get("name")) or found.name):
            return found
        shared = (item_id is not None and item_id == found.item_id) or (id is not None and id == found.id)
        clash = differ(item_id, found.item_id) or differ(id, found.id)
        if final and place(index) == found.index:
            return found if shared or not clash else None
        return found if shared and not clash and not differ(place(index), found.index) else None

    def match(self, output: list[Any]) -> dict[int, OutputItem]:
        """Return which places of the final output hold calls that have come before: by an id or a place, by what they
        say, or because one is still open. Each of those without an id in common stands for one of them only.
        """
        calls = {at: each for at, each in enumerate(output) if isinstance(each, dict) and kind_of(each) in CALLS}
        found: dict[int, OutputItem] = {}
        known: set[str] = set()
        for index, each in calls.items():
            item = self.find_call(each, index, final=True)
            if item is not None and (item.done or item.key not in known):
                found[index] = item
                known.add(item.key)
        left: dict[tuple[Any, ...], list[OutputItem]] = {}
        for item in reversed(self._all):
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

    def begin(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append that a call begins, which may tell its arguments already."""
        self._announce(item, data, events)
        if not item.done:
            item.cut = data.get("status") in _CUT
            self._take(item, data)

    def write(self, item: OutputItem, piece: str, events: list[SourceEvent]) -> None:
        """Append a piece of a call's arguments."""
        if not piece:
            return
        if item.kind == "custom_tool_call":
            piece = escaped(piece) if item.streamed else '{"input":"' + escaped(piece)
        if not item.streamed:
            self._announce(item, {}, events)
            if item.fault is Code.TOO_MANY_CALLS:
                return
            item.streamed = True
            item.given = None  # what it was added with is only its beginning
        if item.heard.tell() <= self._limits.call:
            item.heard.write(piece)
        events.append(ToolCallDelta(item.key, piece))

    def spoil(self, item: OutputItem, events: list[SourceEvent]) -> None:
        """Take note that a piece of a call's arguments is no text, so that nobody knows what it was to be."""
        if not item.done:
            self._announce(item, {}, events)
            item.fault = Code.INVALID_ARGUMENTS

    def settle(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Take note of arguments that come whole, before their item is done."""
        if not item.done:
            self._announce(item, data, events)
            self._take(item, data)
            item.whole = not item.done

    def finish(self, item: OutputItem, data: dict[str, Any], status: str, events: list[SourceEvent]) -> None:
        """End a call, unless it says that it was cut off, or only stands in a response that is.

        `status` is that of the response, or empty where the item itself is done.
        """
        self._take(item, data)
        item.own = _beside(item.kind, data, self._limits.depth)
        state = data.get("status")
        if state in _CUT:
            item.fault = item.fault or Code.TRUNCATED
        if state in _ENDED or item.fault or item.whole or status in ("", "completed"):
            self._name(item, data)
            self._end(item, events)
            return
        self._announce(item, data, events)
        if not item.streamed and isinstance(item.given, str):
            events.append(ToolCallDelta(item.key, item.given))

    def finish_rest(self, events: list[SourceEvent]) -> None:
        """End the calls whose arguments have come whole and whose items never were done, and those at fault."""
        for item in self._all:
            if not item.done and (item.whole or item.fault or item.cut):
                item.fault = item.fault or (Code.TRUNCATED if item.cut else None)
                self._end(item, events)
                item.forget()

    def add_hosted(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append what a tool of the provider was asked."""
        field = HOSTED[item.kind]
        arguments = data.get(field)
        if not fits(arguments, self._limits.depth):
            arguments = None  # the item says so itself
        elif arguments is not None and not isinstance(arguments, dict) and item.kind not in _IN_JSON:
            arguments = {field: arguments}
        name = string(data.get("name")) or item.kind.removesuffix("_call")
        events.append(NativeToolCall(item.key, name, arguments, string(data.get("id")), provider_executed=True))

    def _name(self, item: OutputItem, data: dict[str, Any]) -> None:
        """Take note of a call's id and its tool, if they are given and were not before."""
        item.name = item.name or string(data.get("name"))
        if item.id is None and (known := string(data.get("call_id"))) is not None:
            item.id = known
            self._by_name.setdefault(known, item)

    def _announce(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append that a call begins, or what more is known of it now."""
        known = item.id, item.name
        self._name(item, data)
        if not item.begun and len(self._open) >= self._limits.calls:
            item.begun = True
            item.fault = Code.TOO_MANY_CALLS
            item.refuse(events)
            item.forget()
        elif not item.begun or known != (item.id, item.name):
            item.begun = True
            self._open.add(item.key)
            item.start(events)

    def _take(self, item: OutputItem, data: dict[str, Any]) -> None:
        """Take the arguments that come whole; an empty text may mean that they come elsewhere."""
        value = data.get(CALLS[item.kind])
        if value is None or value == "":
            return
        custom = item.kind == "custom_tool_call"
        if isinstance(value, str):
            item.given = {"input": string(value)} if custom else string(value)
            return
        item.given = value
        if custom or not isinstance(value, dict):
            item.fault = Code.INVALID_ARGUMENTS

    def _end(self, item: OutputItem, events: list[SourceEvent]) -> None:
        given = item.given
        self._open.discard(item.key)
        self._remember(item)
        if not fits(given, self._limits.depth):
            given, item.fault = None, Code.TOO_DEEP
        if item.fault is None:
            self.write(item, item.pairs.close(), events)
            if item.kind == "custom_tool_call":
                if item.streamed:
                    events.append(ToolCallDelta(item.key, '"}'))
                elif given is None:
                    given = {"input": ""}
        item.end(given, events)
        if item.kind == "custom_tool_call" and item.id is not None and item.fault is None:
            self._custom.append(NativeToolCall(item.key, item.name, None, item.id, provider_executed=True))

    def take_back(self, events: list[SourceEvent]) -> None:
        """Append that the provider has run the custom calls itself, which only the answer behind them shows."""
        events += self._custom
        self._custom.clear()

    def _remember(self, item: OutputItem) -> None:
        """Keep what a call says that is done, so that it is known again."""
        given = item.given
        written = given is None and item.streamed
        if written:
            given = item.heard.getvalue() + ('"}' if item.kind == "custom_tool_call" else "")
        elif item.kind == "custom_tool_call" and isinstance(given, dict):
            given = given.get("input") if item.fault is None else given
        item.content = _content(item.kind, item.name, given, written)
        for name in (item.item_id, item.id):
            if name is not None:
                self._done.setdefault((name, item.content), item)


def kind_of(data: dict[str, Any]) -> str:
    """Return the type of an item; xAI runs its own search, and writes it as a call of a custom tool."""
    kind, id = string(data.get("type")) or "", string(data.get("call_id")) or ""
    return "x_search_call" if kind == "custom_tool_call" and id.startswith("xs_call") else kind


def _beside(kind: str, data: dict[str, Any], depth: int) -> dict[str, Any] | None:
    """Return what goes back beside a call. Not its item's id: the reasoning that it belongs to may not go back."""
    known = ("type", "id", "call_id", "name", "arguments", "input", "status")
    beside = {name: value for name, value in data.items() if name not in known and value is not None}
    beside |= {"type": kind} if kind == "custom_tool_call" else {}
    return {"responses": beside} if beside and fits(beside, depth) else None


def differ(one: object, other: object) -> bool:
    """Return whether both are given, and not the same."""
    return one is not None and other is not None and one != other


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, and none of what is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(parts: Iterable[dict[str, Any]], separator: str = "") -> str:
    """Return what the parts of an item say."""
    texts = (part.get(TEXTS[kind]) for part in parts if isinstance(kind := part.get("type"), str) and kind in TEXTS)
    return whole(separator.join(text for text in texts if isinstance(text, str) and text))


def place(index: Any) -> int | None:
    return index if isinstance(index, int) else None


def _content(kind: str, name: Any, value: Any, written: bool = False) -> str:
    """Return what is equal for two spellings of the same call; `written` is JSON also of what is free text."""
    if kind == "custom_tool_call" and not written and (value is None or isinstance(value, str)):
        value = {"input": string(value) or ""}
    try:
        value = read_arguments(value).value
        return json.dumps([kind, string(name), value], sort_keys=True)
    except (Rejected, RecursionError):
        return f"{kind} {string(name)} {value if isinstance(value, str) else type(value)}"
