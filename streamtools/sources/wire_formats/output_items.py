"""Stores the output items of a streamed response and assigns events to them. Some items are calls. Sans-IO.

An item has an id and an index. A call also has a call id. Servers may omit any of these three. Some servers send a new
item id with every event, and some send the same index for all items. So the item of an event is found in three steps.
First, it is the item with the same item id or call id. If there is none, it is the item with the same index. If the
index is also unknown, it is the newest open item of the same kind, unless that item and the event both have an item id,
or both have an index. Ids may collide. So an item with the same item id or call id does not match if its other id and
its index differ.

Function calls and calls of custom tools are reported as calls. The free text of a custom call becomes the JSON argument
`input`. A call is complete when its item is done. A call with whole arguments is also complete when the response ends,
unless the response failed. A call with the status "incomplete", "failed" or "cancelled" is truncated. A piece of the
wrong type makes a call faulty.

If a text answer follows the custom calls of a response, the provider has run these calls. They are then reported as run
by the provider. Calls of hosted tools are reported when they are done. Their items hold the results, and are forwarded
unchanged.
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
from streamtools.json_values import Rejected, fits, well_formed
from streamtools.limits import Limits
from streamtools.sources.adapter import OpenCall
from streamtools.sources.provider_terms import escaped, integer, string

TEXTS = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
"""Maps the type of a part with text to the JSON field that holds the text."""

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
"""Maps the item type of a call for the client to the JSON field that holds its arguments."""

HOSTED = {
    "web_search_call": "action",
    "file_search_call": "queries",
    "code_interpreter_call": "code",
    "image_generation_call": "prompt",
    "mcp_call": "arguments",
    "x_search_call": "input",
}
"""Maps the item type of a call that the provider runs to the JSON field that holds its arguments."""
_IN_JSON = ("mcp_call", "x_search_call")  # hosted calls whose arguments are JSON text

_CUT = ["incomplete", "failed", "cancelled"]  # a list, because `in` also works for a status that is not hashable
_ENDED = ["completed", *_CUT]


@dataclass(slots=True, eq=False)
class OutputItem(OpenCall):
    """An output item: a message, reasoning, a call or any other type. `key` is unique in the response."""

    kind: str = ""
    item_id: str | None = None
    index: int | None = None
    done: bool = False
    # Fields of text and reasoning.
    received: StringIO = field(default_factory=StringIO)  # the text of the open part, or the arguments of a call
    earlier_parts: list[str] = field(default_factory=list)  # the texts of the finished parts
    part: object = None  # the summary index and content index of the open part of reasoning
    cited: bool = False  # an annotation of the item has arrived
    # Fields of calls.
    begun: bool = False  # the start of the call was reported
    streamed: bool = False  # the arguments arrived in deltas
    whole: bool = False  # whole arguments arrived before the item was done
    cut: bool = False  # the status in the first event of the item is in `_CUT`
    fingerprint: str | None = None  # of a finished call: its kind, name and arguments, from `_fingerprint`

    @property
    def text(self) -> str:
        """The text that has arrived for all parts."""
        return "".join(self.earlier_parts) + self.received.getvalue()

    def forget(self) -> None:
        """Mark the item as done, and drop the data that is no longer needed."""
        self.done = True
        self.received = StringIO()
        self.earlier_parts.clear()
        self.given = None


class OutputItems:
    """The items of one response, in order. In the methods for calls, `data` is the JSON object of the item."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: list[OutputItem] = []
        self._by_name: dict[str, OutputItem] = {}  # items by their item id and by their call id
        self._by_index: dict[int, OutputItem] = {}
        self._newest: dict[str, OutputItem] = {}  # the newest item of each kind
        self._open: set[str] = set()  # the keys of open calls
        self._done: dict[tuple[str, str], OutputItem] = {}  # finished calls; the key is an id and the fingerprint
        self._custom: list[SourceEvent] = []  # events that report finished custom calls as run by the provider

    def add(self, kind: str, item_id: Any, index: Any) -> OutputItem:
        """Add and return a new item. An invalid id or index is ignored."""
        item = OutputItem(str(len(self._all) + 1), kind=kind, item_id=string(item_id), index=integer(index))
        self._all.append(item)
        self._newest[kind] = item
        if item.item_id is not None:
            self._by_name[item.item_id] = item
        if item.index is not None:
            self._by_index[item.index] = item
        return item

    def get(self, kind: str, item_id: Any, index: Any, id: Any = None) -> OutputItem:
        """Return the item of an event. Adds a new item if there is none. `id` is the call id."""
        return self.find(kind, item_id, index, id) or self.add(kind, item_id, index)

    def find(self, kind: str, item_id: Any, index: Any, id: Any = None, *, named: bool = False) -> OutputItem | None:
        """Return the item of an event, or None. With `named`, the item id or the call id must match."""
        item_id, index, id = string(item_id), integer(index), string(id)
        for name in (item_id, id):
            item = self._by_name.get(name) if name is not None else None
            if item is None or item.kind != kind:
                continue
            if differ(index, item.index):
                # Of two items with one id, the index decides. If the other id also differs, this is not the item.
                other = self._by_index.get(index)
                if other is not None and other.kind == kind and name in (other.item_id, other.id):
                    return other
                if differ(id, item.id) or (name == id and differ(item_id, item.item_id)):
                    continue
            return item
        found = None if index is None else self._by_index.get(index)
        if found is None:
            # The newest open item matches unless it and the event both have an item id, or both have an index.
            found = self._newest.get(kind)
            if found is None or found.done or (found.item_id and item_id) or not (found.index is None or index is None):
                return None
        return None if named or found.kind != kind or differ(id, found.id) else found

    # Methods for calls.

    def find_call(self, data: dict[str, Any], index: Any, final: bool = False) -> OutputItem | None:
        """Return the known call that `data` describes, or None. The call may be done.

        With `final`, `data` is from the terminal event. Its ids and indexes may differ from those of earlier events.
        """
        kind, item_id, id = data["type"], string(data.get("id")), string(data.get("call_id"))
        fingerprint = _fingerprint(kind, data.get("name"), data.get(CALLS[kind]))
        for name in (item_id, id):
            if name is not None and (item := self._done.get((name, fingerprint))) is not None:
                return item
        found = self.find(kind, item_id, index, id)
        if found is None or not found.done or found.fingerprint == fingerprint:
            return found
        if data.get(CALLS[kind]) in (None, "") and found.name == (string(data.get("name")) or found.name):
            return found
        # The known call is done and has other content. Only ids and indexes show whether `data` describes it.
        shared = (item_id is not None and item_id == found.item_id) or (id is not None and id == found.id)
        clash = differ(item_id, found.item_id) or differ(id, found.id)
        if final and integer(index) == found.index:
            return found if shared or not clash else None
        return found if shared and not clash and not differ(integer(index), found.index) else None

    def match(self, output: list[Any]) -> dict[int, OutputItem]:
        """Return the known calls that appear in `output`, by their index in it. `output` is from the terminal event.

        A known call matches an entry of `output` if its id, index or fingerprint is equal. Otherwise, a call that is
        still open matches an entry of its kind and name; a call without a name matches any entry of its kind. Each
        known call matches only one entry, unless it is done and several entries have its id.
        """
        calls = {at: item for at, item in enumerate(output) if isinstance(item, dict) and kind_of(item) in CALLS}
        found: dict[int, OutputItem] = {}
        known: set[str] = set()
        for index, data in calls.items():
            item = self.find_call(data, index, final=True)
            if item is not None and (item.done or item.key not in known):
                found[index] = item
                known.add(item.key)
        unmatched: dict[tuple[Any, ...], list[OutputItem]] = {}
        for item in reversed(self._all):
            if item.kind in CALLS and item.key not in known:
                key = (True, item.fingerprint) if item.done else (False, item.kind, item.name)
                unmatched.setdefault(key, []).append(item)
        for index, data in calls.items():
            kind, name = data["type"], string(data.get("name"))
            fingerprint = _fingerprint(kind, name, data.get(CALLS[kind]))
            for key in ((True, fingerprint), (False, kind, name), (False, kind, None)) if index not in found else ():
                if candidates := unmatched.get(key):
                    found[index] = candidates.pop()
                    break
        return found

    def begin(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append the start of a call. `data` may already hold its arguments."""
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
            item.given = None  # the first event held only the beginning of the arguments
        if item.received.tell() <= self._limits.call:
            item.received.write(piece)
        events.append(ToolCallDelta(item.key, piece))

    def mark_faulty(self, item: OutputItem, events: list[SourceEvent]) -> None:
        """Mark a call as faulty, because a piece of its arguments is not a string."""
        if not item.done:
            self._announce(item, {}, events)
            item.fault = Code.INVALID_ARGUMENTS

    def complete_arguments(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Record whole arguments that arrive before the item of the call is done."""
        if not item.done:
            self._announce(item, data, events)
            self._record_arguments(item, data)
            item.whole = not item.done

    def finish(self, item: OutputItem, data: dict[str, Any], status: str, events: list[SourceEvent]) -> None:
        """Append the end of a call. If the call may be incomplete, append only its arguments.

        `status` is the status of the response, or empty if `data` is from the event that ends the item.
        """
        self._record_arguments(item, data)
        item.own = _fields_to_repeat(item.kind, data, self._limits.depth)
        state = data.get("status")
        if state in _CUT:
            item.fault = item.fault or Code.TRUNCATED
        if state in _ENDED or item.fault or item.whole or status in ("", "completed"):
            self._record_name(item, data)
            self._end(item, events)
            return
        self._announce(item, data, events)
        if not item.streamed and isinstance(item.given, str):
            events.append(ToolCallDelta(item.key, item.given))

    def finish_rest(self, events: list[SourceEvent]) -> None:
        """Append the ends of calls whose items were never done, if the calls are whole, faulty or cut off."""
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
            arguments = None  # `FrameAdapter._pass_item` reports that the item is nested too deeply
        elif arguments is not None and not isinstance(arguments, dict) and item.kind not in _IN_JSON:
            arguments = {field: arguments}
        name = string(data.get("name")) or item.kind.removesuffix("_call")
        events.append(NativeToolCall(name, arguments, item.key, string(data.get("id")), provider_executed=True))

    def _record_name(self, item: OutputItem, data: dict[str, Any]) -> None:
        """Record the call id and the name of a call if they were missing."""
        item.name = item.name or string(data.get("name"))
        if item.id is None and (known := string(data.get("call_id"))) is not None:
            item.id = known
            self._by_name.setdefault(known, item)

    def _announce(self, item: OutputItem, data: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append the start of a call. For a call that has begun, append its id and name if one of them is new."""
        known = item.id, item.name
        self._record_name(item, data)
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
        """Record whole arguments. Ignores an empty string, because the arguments may arrive in another event."""
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
            self.write(item, item.pair_joiner.close(), events)
            if item.kind == "custom_tool_call":
                if item.streamed:
                    events.append(ToolCallDelta(item.key, '"}'))
                elif given is None:
                    given = {"input": ""}
        item.end(given, events)
        if item.kind == "custom_tool_call" and item.id is not None and item.fault is None:
            self._custom.append(NativeToolCall(item.name, None, item.key, item.id, provider_executed=True))

    def report_custom_as_executed(self, events: list[SourceEvent]) -> None:
        """Report the custom calls as run by the provider, because a text answer follows them."""
        events += self._custom
        self._custom.clear()

    def _remember(self, item: OutputItem) -> None:
        """Record the fingerprint of a finished call, so that a repetition of the call is recognized."""
        given = item.given
        is_json = given is None and item.streamed
        if is_json:
            given = item.received.getvalue() + ('"}' if item.kind == "custom_tool_call" else "")
        elif item.kind == "custom_tool_call" and isinstance(given, dict):
            given = given.get("input") if item.fault is None else given
        item.fingerprint = _fingerprint(item.kind, item.name, given, is_json)
        for name in (item.item_id, item.id):
            if name is not None:
                self._done.setdefault((name, item.fingerprint), item)


def kind_of(data: dict[str, Any]) -> str:
    """Return the type of an item. xAI reports its hosted search as a custom call, which becomes `x_search_call`."""
    kind, id = string(data.get("type")) or "", string(data.get("call_id")) or ""
    return "x_search_call" if kind == "custom_tool_call" and id.startswith("xs_call") else kind


def _fields_to_repeat(kind: str, data: dict[str, Any], depth: int) -> dict[str, Any] | None:
    """Return the fields of a call that the next request must repeat, or None.

    The item id is not among them. The server accepts it only with the reasoning item, which may be missing.
    """
    known = ("type", "id", "call_id", "name", "arguments", "input", "status")
    repeated = {name: value for name, value in data.items() if name not in known and value is not None}
    repeated |= {"type": kind} if kind == "custom_tool_call" else {}
    return {"responses": repeated} if repeated and fits(repeated, depth) else None


def differ(one: object, other: object) -> bool:
    """Return whether two values differ. Returns False if one of them is None."""
    return one is not None and other is not None and one != other


def text_of(parts: Iterable[dict[str, Any]], separator: str = "") -> str:
    """Return the text of an item's parts, joined with `separator`."""
    texts = (part.get(TEXTS[kind]) for part in parts if isinstance(kind := part.get("type"), str) and kind in TEXTS)
    return well_formed(separator.join(text for text in texts if isinstance(text, str) and text))


def _fingerprint(kind: str, name: Any, value: Any, is_json: bool = False) -> str:
    """Return a string that is equal for two calls with the same kind, name and arguments, in any JSON formatting.

    With `is_json`, `value` is JSON text even for a custom call.
    """
    if kind == "custom_tool_call" and not is_json and (value is None or isinstance(value, str)):
        value = {"input": string(value) or ""}
    try:
        value = read_arguments(value).value
        return json.dumps([kind, string(name), value], sort_keys=True)
    except (Rejected, RecursionError):
        return f"{kind} {string(name)} {value if isinstance(value, str) else type(value)}"
