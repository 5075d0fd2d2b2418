"""Native calls: what an adapter tells of them, piece by piece, into calls and their events. Sans-IO.

An adapter says which piece belongs to which call (its `key`) and where the provider ended one. Here the pieces become
a call by the same rule as any other (`streamtools.calls`), with the same order of events. A call is complete when
its provider has said so; where a turn ends without that, one whose JSON object has closed is complete too, because
nothing could continue it, and any other is truncated. Which of a turn's calls count is not decided here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from streamtools.calls import NATIVE, ToolCall, read_arguments
from streamtools.errors import Code
from streamtools.events import (
    Call,
    CallDelta,
    CallStart,
    Error,
    NativeToolCall,
    Raw,
    Thinking,
    ToolCallDelta,
    ToolCallStart,
    UIEvent,
    Warning,
)
from streamtools.json_values import Rejected, compact
from streamtools.parsing.options import Options

_FAULTS = {
    Code.UNRECOGNISED_TOOL_CALL: "a call is an object, and this is none",
    Code.MISSING_TOOL_NAME: "the call names no tool",
    Code.CONFLICTING_FIELDS: "the call holds two different names, or arguments",
    Code.INVALID_ARGUMENTS: "the arguments are no JSON object",
    Code.TRUNCATED: "the call was cut off",
}
_LONGEST_ID = 200  # characters of a provider's id that is used as ours; a longer one is only kept
_string = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|(\\?\Z))', re.DOTALL)  # group 1: it is left open


class _Draft:
    """A call that has begun and not ended."""

    __slots__ = ("dropped", "fault", "id", "name", "pieces", "provider_id", "size")

    def __init__(self, id: str, provider_id: str | None) -> None:
        self.id = id
        self.provider_id = provider_id
        self.name: str | None = None
        self.pieces: list[str] = []
        self.size = 0
        self.fault: Rejected | None = None  # why it cannot become a call
        self.dropped: int | None = None  # characters that were dropped since it was reported, which it then has been


class NativeCalls:
    """The native calls of one turn after the other; every method returns the events that it makes certain.

    `calls` holds the complete ones of the turn, in the order in which they ended; `seen` is how many have begun, also
    those that ended malformed, and `unanswerable` holds the ids of those whose provider takes no result from us.
    `emulated` says that the model was asked for them, and has told none by itself.
    """

    def __init__(self, options: Options, number: Callable[[], int]) -> None:
        self._options = options
        self._number = number
        self.adopted: set[str] = set()  # ids of calls of the run that stood in a text
        self._ids: dict[str, int] = {}  # of the run, and how often each has come: some providers number each turn anew
        self.begin_turn()

    def reserve(self, ids: Iterable[str]) -> None:
        """Take note of ids that calls of this run have already."""
        self._ids |= dict.fromkeys(ids, 1)

    def begin_turn(self) -> None:
        """Forget the last turn."""
        self.calls: list[ToolCall] = []
        self.seen = 0
        self.unanswerable: set[str] = set()
        self.emulated = False
        self._open: dict[str, _Draft] = {}
        self._ended: set[str] = set()
        self._bad: set[str] = set()  # provider ids of calls that ended as errors

    def start(self, event: ToolCallStart) -> list[UIEvent]:
        """Take note that a call begins, or what more is known of it."""
        if event.key in self._ended:
            return [self._pass(event)]
        events: list[UIEvent] = []
        draft = self._open.get(event.key) or self._begin(event.key, event.id, events)
        if event.id:
            draft.provider_id = draft.provider_id or event.id
        if event.name:
            self._name(draft, event.name, events)
        return events

    def add(self, event: ToolCallDelta) -> list[UIEvent]:
        """Take a piece of a call's arguments."""
        if event.key in self._ended:
            return [self._pass(event)]
        events: list[UIEvent] = []
        draft = self._open.get(event.key) or self._begin(event.key, None, events)
        self._add(draft, event.text, events)
        return events

    def finish(self, event: NativeToolCall) -> list[UIEvent]:
        """End a call as its provider ends it."""
        if event.key in self._ended or (event.provider_executed and event.key not in self._open):
            return [self._pass(event)]
        events: list[UIEvent] = []
        draft = self._open.get(event.key) or self._begin(event.key, event.id, events)
        draft.provider_id = event.id or draft.provider_id
        if event.name:
            self._name(draft, event.name, events)
        given = self._compare(draft, event.arguments, events)
        if event.provider_executed:
            draft.fault = Rejected(Code.SUPERSEDED, "the provider runs this tool itself")
        if event.fault is not None:
            draft.fault = Rejected(event.fault, _FAULTS.get(event.fault, "the call could not be read"))
        self.emulated = self.emulated or event.emulated
        if not event.answerable:
            self.unanswerable.add(draft.id)
        self._end(event.key, given, event.signature, events)
        return events

    def reconcile(self, told: Iterable[NativeToolCall]) -> list[UIEvent]:
        """Take the calls of a completed turn: those that have been seen already, by id or else by what they say, are
        not seen twice, those that are open end, and the others are new.
        """
        events: list[UIEvent] = []
        left = list(self.calls)
        opened = {draft.provider_id: key for key, draft in self._open.items() if draft.provider_id}
        for number, event in enumerate(told):
            seen = next((call for call in left if _is_same(call, event)), None)
            if seen is not None:
                left.remove(seen)
            elif not event.id or event.id not in self._bad:
                key = opened.pop(event.id or "", None) or f"completed {number}"
                events += self.finish(msgspec.structs.replace(event, key=key))
        return events

    def adopt(self, events: Iterable[UIEvent]) -> list[UIEvent]:
        """Return `events`, which tell complete calls that were found in a text, as those of native ones."""
        adopted: list[UIEvent] = []
        for event in events:
            if isinstance(event, Call):
                call = msgspec.structs.replace(event.call, dialect=NATIVE, raw="")
                self.calls.append(call)
                self.adopted.add(call.id)
                self.seen += 1
                event = Call(call, seq=event.seq)
            adopted.append(event)
        return adopted

    def give_up(self) -> list[UIEvent]:
        """End what is open, because the provider could not read it, and it has been found in what the model wrote."""
        events: list[UIEvent] = []
        for key, draft in list(self._open.items()):
            draft.fault = Rejected(Code.SUPERSEDED, "the provider could not read the call; what the model wrote counts")
            self._end(key, "", None, events)
        return events

    def lose(self) -> None:
        """Take note that a part of the stream is missing: what is open cannot be trusted any more, but for calls whose
        JSON object has closed, of which no piece can be missing.
        """
        for draft in self._open.values():
            text = "".join(draft.pieces).lstrip()
            if not text.startswith("{") or is_cut(text):
                draft.fault = draft.fault or Rejected(Code.TRUNCATED, "a part of the stream is missing from the call")

    def close(self) -> list[UIEvent]:
        """End what is open, because the turn ends."""
        events: list[UIEvent] = []
        for key, draft in list(self._open.items()):
            text = "".join(draft.pieces)
            if not text.strip() or is_cut(text):
                draft.fault = draft.fault or Rejected(Code.TRUNCATED, "the call was cut off")
            self._end(key, text, None, events)
        return events

    # One call.

    def _begin(self, key: str, provider_id: str | None, events: list[UIEvent]) -> _Draft:
        draft = self._open[key] = _Draft(self._make_id(provider_id), provider_id)
        self.seen += 1
        if self.seen > self._options.limits.calls:
            most = self._options.limits.calls
            draft.fault = Rejected(Code.TOO_MANY_CALLS, f"the turn holds more than {most} calls")
        events.append(Thinking(True, draft.id, seq=self._number()))
        return draft

    def _make_id(self, provider_id: str | None) -> str:
        if not provider_id or len(provider_id) > _LONGEST_ID:
            return self._options.new_id()
        made, times = provider_id, self._ids.get(provider_id, 0)
        while made in self._ids:
            times += 1
            made = f"{provider_id}_{times}"
        self._ids[made] = 1
        self._ids[provider_id] = times or 1
        return made

    def _name(self, draft: _Draft, name: str, events: list[UIEvent]) -> None:
        if draft.name is None:
            draft.name = name
            if name.strip() and draft.dropped is None:
                events.append(CallStart(draft.id, name, seq=self._number()))
                self._tell("".join(draft.pieces), draft, events)
        elif draft.name != name:
            draft.fault = draft.fault or Rejected(Code.CONFLICTING_FIELDS, "the call holds two different tool names")

    def _add(self, draft: _Draft, text: str, events: list[UIEvent]) -> None:
        if draft.dropped is not None:
            draft.dropped += len(text)
            return
        draft.size += len(text)
        limit = self._options.limits.call
        if draft.size > limit:
            self._tell_fault(draft, Rejected(Code.TOO_LARGE, f"the call is longer than {limit} characters"), events)
            draft.dropped = draft.size - limit
            draft.pieces.clear()
            return
        draft.pieces.append(text)
        if draft.name is not None:
            self._tell(text, draft, events)

    def _tell(self, text: str, draft: _Draft, events: list[UIEvent]) -> None:
        if text and self._options.call_deltas and draft.name is not None and draft.name.strip():
            events.append(CallDelta(draft.id, text, seq=self._number()))

    def _compare(self, draft: _Draft, given: Any, events: list[UIEvent]) -> str:
        """Return the arguments as JSON text: what the provider tells at the end, and else what its deltas held."""
        told = "".join(draft.pieces)
        if given is None or given == "" or draft.dropped is not None:
            return told
        try:
            text = given if isinstance(given, str) else _write(given)
        except Rejected as fault:
            draft.fault = draft.fault or fault
            return told
        if not told:
            self._add(draft, text, events)
        elif text != told and _meaning(text) != _meaning(told):
            message = "the arguments at the end of a call differ from those that were streamed; the end counts"
            events.append(Warning(Code.ARGUMENTS_MISMATCH, message, seq=self._number()))
            if text.startswith(told):
                self._add(draft, text[len(told) :], events)
        return text

    def _end(self, key: str, text: str, signature: str | None, events: list[UIEvent]) -> None:
        draft = self._open.pop(key)
        self._ended.add(key)
        if draft.dropped is not None:
            message = f"{draft.dropped} characters of a call over the limit were skipped"
            events.append(Warning(Code.SKIPPED, message, count=draft.dropped, seq=self._number()))
            return
        try:
            call = self._read(draft, text, signature)
        except Rejected as fault:
            self._tell_fault(draft, fault, events)
            return
        self.calls.append(call)
        events.append(Call(call, seq=self._number()))
        events.append(Thinking(False, draft.id, seq=self._number()))

    def _read(self, draft: _Draft, text: str, signature: str | None) -> ToolCall:
        """Return the call that a draft has become; raise `Rejected`."""
        if draft.fault is not None:
            raise draft.fault
        if draft.name is None or not draft.name.strip():
            raise Rejected(Code.MISSING_TOOL_NAME, "the call names no tool")
        if is_cut(text):
            raise Rejected(Code.TRUNCATED, "the arguments break off")
        strict, limits = self._options.strict, self._options.limits
        decoded = read_arguments(text, strict=strict, limits=limits)
        return ToolCall(
            id=draft.id,
            name=draft.name,
            arguments=decoded.value,
            dialect=NATIVE,
            repaired=decoded.repaired,
            provider_id=draft.provider_id,
            signature=signature,
        )

    def _tell_fault(self, draft: _Draft, fault: Rejected, events: list[UIEvent]) -> None:
        if draft.provider_id:
            self._bad.add(draft.provider_id)
        raw = "".join(draft.pieces)
        events.append(Error(fault.code, fault.message, call_id=draft.id, raw=raw, dialect=NATIVE, seq=self._number()))
        events.append(Thinking(False, draft.id, seq=self._number()))

    def _pass(self, event: ToolCallStart | ToolCallDelta | NativeToolCall) -> Raw:
        """Return what is none of our business, so that nothing is lost: a server's call, or more of an ended one."""
        return Raw(msgspec.to_builtins(event), seq=self._number())


def is_cut(text: str) -> bool:
    """Return whether a string or a bracket is left open, so that the rest of the JSON is missing."""
    rest = _string.sub(lambda found: "" if found[1] is None else "{", text)
    return rest.count("{") + rest.count("[") > rest.count("}") + rest.count("]")


def _is_same(call: ToolCall, event: NativeToolCall) -> bool:
    if call.provider_id and event.id:
        return call.provider_id == event.id
    return call.name == event.name and _meaning(call.arguments) == _meaning(event.arguments)


def _meaning(arguments: Any) -> str:
    """Return what is equal for two spellings of the same arguments, as text or as an object."""
    try:
        return json.dumps(read_arguments(arguments).value, sort_keys=True)
    except (Rejected, RecursionError):
        return str(arguments) if isinstance(arguments, str) else ""


def _write(value: Any) -> str:
    """Return `value` as JSON text, to be read by the same rule as any other; raise `Rejected`."""
    try:
        return compact(value)
    except RecursionError:
        raise Rejected(Code.TOO_DEEP, "the arguments nest too deep") from None
