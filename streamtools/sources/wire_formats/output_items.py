"""The output items of a streamed response and the calls among them. Sans-IO.

An item has an id, an index, and, if it is a call, the call's id. Servers leave out each of them. Some give an item a
new id with each event, and some the same index to all items. So an event belongs to the item with its id, or else to
the item with its index. If one of the two has neither, it belongs to the newest open item of its kind. Ids collide,
too: an item that matches one id, but differs in the other id and the index, is another item.

Function calls are calls. So are calls of custom tools: their free text becomes the argument `input`, written as JSON. A
call is complete when its item is done, or, in a response that ends well, when its arguments have arrived as a whole. A
call with the status "incomplete" is truncated, and a piece of the wrong type makes a call faulty. If the model's answer
follows calls of custom tools, the provider has run them, and they are taken back. Calls of hosted tools are reported
when they are done. Their results are in the item, which passes unchanged.
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
from streamtools.sources.pieces import OpenCall
from streamtools.sources.provider_terms import escaped, string

TEXTS = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
"""The parts of items with text, and the member that holds it."""

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""The item types of calls for the client, and the member that holds the model's arguments."""

HOSTED = {
    "web_search_call": "action",
    "file_search_call": "queries",
    "code_interpreter_call": "code",
    "image_generation_call": "prompt",
    "mcp_call": "arguments",
    "x_search_call": "input",
}
"""The item types of calls that the provider runs itself, and the member that holds the arguments."""
_IN_JSON = ("mcp_call", "x_search_call")  # their arguments are JSON text

_CUT = ["incomplete", "failed", "cancelled"]  # lists, because a status may be of any type
_ENDED = ["completed", *_CUT]


@dataclass(slots=True, eq=False)
class OutputItem(OpenCall):
    """An output item, which may be a call. `key` is unique in the response."""

    kind: str = ""
    item_id: str | None = None
    index: int | None = None
    done: bool = False
    # Text and reasoning.
    received: StringIO = field(default_factory=StringIO)  # text of the open part, or arguments of a call
    earlier_parts: list[str] = field(default_factory=list)  # the earlier parts
    part: object = None  # the open part
    cited: bool = False
    # Calls.
    begun: bool = False
    streamed: bool = False  # arguments arrived in deltas
    whole: bool = False  # arguments arrived as a whole
    cut: bool = False  # it began with a status of `_CUT`
    content: str | None = None  # its content, once it is done

    @property
    def text(self) -> str:
        """The text that has arrived."""
        return "".join(self.earlier_parts) + self.received.getvalue()

    def forget(self) -> None:
        """Drop the data that a finished item does not need."""
        self.done = True
        self.received = StringIO()
        self.earlier_parts.clear()
        self.given = None


class OutputItems:
    """The items of one response, in order. For calls, `data` is the item of an event or its equivalent."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: list[OutputItem] = []
        self._by_name: dict[str, OutputItem] = {}  # by item id and by call id
        self._by_index: dict[int, OutputItem] = {}
        self._newest: dict[str, OutputItem] = {}  # by kind
        self._open: set[str] = set()  # keys of open calls
        self._done: dict[tuple[str, str], OutputItem] = {}  # finished calls, by each id with the content
        self._custom: list[SourceEvent] = []  # finished custom calls, marked as run by the provider

    def add(self, kind: str, item_id: Any, index: Any) -> OutputItem:
        """Return a new item. An invalid id or index counts as missing."""
        item = OutputItem(str(len(self._all) + 1), kind=kind, item_id=string(item_id), index=place(index))
        self._all.append(item)
        self._newest[kind] = item
        if item.item_id is not None:
            self._by_name[item.item_id] = item
        if item.index is not None:
            self._by_index[item.index] = item
        return item

    def get(self, kind: str, item_id: Any, index: Any, id: Any = None) -> OutputItem:
        """Return the item of an event, or a new item. `id` is the id of the call."""
        return self.find(kind, item_id, index, id) or self.add(kind, item_id, index)

    def find(self, kind: str, item_id: Any, index: Any, id: Any = None, *, named: bool = False) -> OutputItem | None:
        """Return the item of an event, or None. With `named`, one of the ids must match."""
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
        """Return the known call of `data`, done or not, or None.

        With `final`, the data is from the end of the response, where ids and indexes may differ from earlier ones.
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
        """Return the known calls in the final output, by index.

        A call matches by an id or index, by its content, or because it is still open. Without a common id, each call of
        the output matches one known call only.
        """
        calls = {at: item for at, item in enumerate(output) if isinstance(item, dict) and kind_of(item) in CALLS}
        found: dict[int, OutputItem] = {}
        known: set[str] = set()
        for index, data in calls.items():
            item = self.find_call(data, index, final=True)
            if item is not None and (item.done or item.key not in known):
                found[index] = item
                known.add(item.key)
        left: dict[tuple[Any, ...], list[OutputItem]] = {}
        for item in reversed(self._all):
            if item.kind in CALLS and item.key not in known:
                left.setdefault((True, item.content) if item.done else (False, item.kind, item.name), []).append(item)
        for index, data in calls.items():
            kind, name = data["type"], string(data.get("name"))
            content = _content(kind, name, data.get(CALLS[kind]))
            for key in ((True, content), (False, kind, name), (False, kind, None)) if index not in found else ():
                if waiting := left.get(key):
                    found[index] = waiting.pop()
                    break
        return found

    def begin(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append the start of a call. Its data may hold arguments already."""
        self._announce(item, data, events)
        if not item.done:
            item.cut = data.get("status") in _CUT
            self._record_arguments(item, data)

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
            item.given = None  # the first data held only the beginning
        if item.received.tell() <= self._limits.call:
            item.received.write(piece)
        events.append(ToolCallDelta(item.key, piece))

    def mark_faulty(self, item: OutputItem, events: list[SourceEvent]) -> None:
        """Mark a call as faulty, because a piece of its arguments is no text."""
        if not item.done:
            self._announce(item, {}, events)
            item.fault = Code.INVALID_ARGUMENTS

    def complete_arguments(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Record whole arguments that arrive before their item is done."""
        if not item.done:
            self._announce(item, data, events)
            self._record_arguments(item, data)
            item.whole = not item.done

    def finish(self, item: OutputItem, data: dict[str, Any], status: str, events: list[SourceEvent]) -> None:
        """End a call, unless the response was cut off and the call may be incomplete.

        `status` is the status of the response, or empty if the item itself is done.
        """
        self._record_arguments(item, data)
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
        """End the calls whose items were never done, if their arguments are whole or they are faulty."""
        for item in self._all:
            if not item.done and (item.whole or item.fault or item.cut):
                item.fault = item.fault or (Code.TRUNCATED if item.cut else None)
                self._end(item, events)
                item.forget()

    def add_hosted(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append a call of a hosted tool."""
        field = HOSTED[item.kind]
        arguments = data.get(field)
        if not fits(arguments, self._limits.depth):
            arguments = None  # the item reports the fault
        elif arguments is not None and not isinstance(arguments, dict) and item.kind not in _IN_JSON:
            arguments = {field: arguments}
        name = string(data.get("name")) or item.kind.removesuffix("_call")
        events.append(NativeToolCall(item.key, name, arguments, string(data.get("id")), provider_executed=True))

    def _name(self, item: OutputItem, data: dict[str, Any]) -> None:
        """Record the id and name of a call, if they are new."""
        item.name = item.name or string(data.get("name"))
        if item.id is None and (known := string(data.get("call_id"))) is not None:
            item.id = known
            self._by_name.setdefault(known, item)

    def _announce(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append the start of a call, or its id or name if they are new."""
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

    def _record_arguments(self, item: OutputItem, data: dict[str, Any]) -> None:
        """Record whole arguments. An empty text may mean that they arrive elsewhere."""
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
        """Append that the provider has run the custom calls itself, because an answer follows them."""
        events += self._custom
        self._custom.clear()

    def _remember(self, item: OutputItem) -> None:
        """Record the content of a finished call to recognize it later."""
        given = item.given
        written = given is None and item.streamed
        if written:
            given = item.received.getvalue() + ('"}' if item.kind == "custom_tool_call" else "")
        elif item.kind == "custom_tool_call" and isinstance(given, dict):
            given = given.get("input") if item.fault is None else given
        item.content = _content(item.kind, item.name, given, written)
        for name in (item.item_id, item.id):
            if name is not None:
                self._done.setdefault((name, item.content), item)


def kind_of(data: dict[str, Any]) -> str:
    """Return the type of an item. xAI writes its own search as a call of a custom tool."""
    kind, id = string(data.get("type")) or "", string(data.get("call_id")) or ""
    return "x_search_call" if kind == "custom_tool_call" and id.startswith("xs_call") else kind


def _beside(kind: str, data: dict[str, Any], depth: int) -> dict[str, Any] | None:
    """Return the data of a call for the next request, without the item's id: its reasoning may not be sent."""
    known = ("type", "id", "call_id", "name", "arguments", "input", "status")
    beside = {name: value for name, value in data.items() if name not in known and value is not None}
    beside |= {"type": kind} if kind == "custom_tool_call" else {}
    return {"responses": beside} if beside and fits(beside, depth) else None


def differ(one: object, other: object) -> bool:
    """Return whether both values are given and differ."""
    return one is not None and other is not None and one != other


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, or nothing for another value."""
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []


def text_of(parts: Iterable[dict[str, Any]], separator: str = "") -> str:
    """Return the text of an item's parts."""
    texts = (part.get(TEXTS[kind]) for part in parts if isinstance(kind := part.get("type"), str) and kind in TEXTS)
    return whole(separator.join(text for text in texts if isinstance(text, str) and text))


def place(index: Any) -> int | None:
    return index if isinstance(index, int) else None


def _content(kind: str, name: Any, value: Any, written: bool = False) -> str:
    """Return a text that is equal for all spellings of a call. `written` is JSON, also for free text."""
    if kind == "custom_tool_call" and not written and (value is None or isinstance(value, str)):
        value = {"input": string(value) or ""}
    try:
        value = read_arguments(value).value
        return json.dumps([kind, string(name), value], sort_keys=True)
    except (Rejected, RecursionError):
        return f"{kind} {string(name)} {value if isinstance(value, str) else type(value)}"
