"""Builds native tool calls from the source events of an adapter, and returns the UI events of these calls. Sans-IO.

A native call is a call in the provider's API for tool calls, as opposed to a call in text. The adapter reports pieces
of calls, and the end of each call. Each of these source events has a `key`, which names its call. Arguments are read by
the rules of `streamtools.calls`, as for calls in text. `CallEvents` creates the events of both kinds of calls.

A call is complete when its provider reports its end. At the end of the turn, a call is also complete if its JSON
object is closed, because no piece can follow. Any other call is truncated. `Turn.choose_calls` chooses which calls of a
turn are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from streamtools.calls import NATIVE, ToolCall, read_arguments
from streamtools.errors import Code
from streamtools.events import Call, Error, NativeToolCall, Raw, ToolCallDelta, ToolCallStart, UIEvent, Warning
from streamtools.json_values import Rejected, compact
from streamtools.parsing.call_events import CallDraft, CallEvents
from streamtools.parsing.options import Options

_FAULT_MESSAGES = {
    Code.UNRECOGNISED_TOOL_CALL: "the call is not a JSON object",
    Code.MISSING_TOOL_NAME: "the call has no tool name",
    Code.CONFLICTING_FIELDS: "the call has two different names, or two different arguments",
    Code.INVALID_ARGUMENTS: "the arguments are not a JSON object",
    Code.TRUNCATED: "the call was cut off",
    Code.TOO_MANY_CALLS: "the turn holds too many calls",
}
_EXECUTED = "the provider runs this tool itself"
_MAX_ID_LENGTH = 200  # characters: a longer provider id is replaced
# A JSON string such as "a\"b", or an unclosed string at the end of the text. Group 1 is None if the string is closed.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|(\\?\Z))', re.DOTALL)


class NativeCalls:
    """Reads the native calls of a run, turn by turn. The methods that read source events return UI events.

    `calls` holds the complete calls of the turn in the order in which they ended. `unanswerable` holds the ids of calls
    whose results must not be sent to the provider. `emulated` is True if the calls come from a separate request that
    only chooses a tool, and False if the model made them in its answer. `salvaged` holds the ids of calls that were
    found in a text that the provider could not parse.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._call_events = CallEvents(options)
        # These are dicts, because an empty set is three times as large and most runs make no call.
        self.salvaged: dict[str, None] = {}
        # How often each id was used in the run. Some providers number the calls of each turn from 1.
        self._ids: dict[str, int] = {}
        self.open: dict[str, CallDraft] = {}
        """Maps the `key` of each call that has begun and not ended to its draft."""
        self._unchecked: dict[str, None] = {}  # the keys of the open calls that `mark_gap` has not checked
        self.begin_turn()

    @property
    def count(self) -> int:
        """The number of calls that have begun in this turn. Counts malformed calls, but not calls that the provider
        executed."""
        return self._call_events.calls_begun

    def reserve(self, ids: Iterable[str]) -> None:
        """Register ids that are in use, so that no new call of this run gets one of them."""
        self._ids |= dict.fromkeys(ids, 1)

    def begin_turn(self) -> None:
        """Reset for a new turn."""
        self._call_events.begin()
        self.calls = self._call_events.calls
        self.unanswerable: dict[str, None] = {}
        self.emulated = False
        self.open.clear()
        self._unchecked.clear()
        self.ended: dict[str, None] = {}  # the keys of the calls that have ended in this turn
        self._rejected: dict[str, None] = {}  # the provider ids of calls that ended as errors

    def start(self, event: ToolCallStart) -> list[UIEvent]:
        """Begin a call, or add the id or name of a call that has begun."""
        if event.key in self.ended:
            return [self._to_raw(event)]
        self._call_events.events = events = list[UIEvent]()
        call = self.open.get(event.key) or self._begin(event.key, event.id)
        if event.id:
            call.provider_id = call.provider_id or event.id
        if event.name:
            self._set_name(call, event.name)
        return events

    def add(self, event: ToolCallDelta) -> list[UIEvent]:
        """Add a piece of a call's arguments."""
        if event.key in self.ended:
            return [self._to_raw(event)]
        self._call_events.events = events = list[UIEvent]()
        self._append(self.open.get(event.key) or self._begin(event.key, None), event.text)
        return events

    def reject_executed(self, event: NativeToolCall) -> list[UIEvent]:
        """Reject a complete call, as superseded, because its provider has executed the tool.

        If no complete call has the provider id of `event`, returns `event` as a `raw` event.
        """
        call = next((call for call in self.calls if event.id is not None and call.provider_id == event.id), None)
        if call is None:
            return [self._to_raw(event)]
        self.calls.remove(call)
        self._call_events.calls_begun -= 1
        return [Error(Code.SUPERSEDED, _EXECUTED, call_id=call.id, call=call)]

    def finish(self, event: NativeToolCall) -> list[UIEvent]:
        """End a call with the data that the provider sends at its end, such as all arguments."""
        if event.key in self.ended or (event.provider_executed and event.key not in self.open):
            return [self._to_raw(event)]
        self._call_events.events = events = list[UIEvent]()
        key = event.key or f"keyless {len(self.ended)}"
        call = self.open.get(key) or self._begin(key, event.id)
        call.provider_id = event.id or call.provider_id
        if event.name and event.name != call.name:
            self._set_name(call, event.name)
        arguments = "".join(call.pieces)
        if event.arguments not in (None, "") and call.dropped is None:
            arguments = self._complete_arguments(call, arguments, event.arguments)
        if event.provider_executed:
            call.fault = Rejected(Code.SUPERSEDED, _EXECUTED)
        if event.fault is not None:
            call.fault = Rejected(event.fault, _FAULT_MESSAGES.get(event.fault, "the call could not be read"))
        self.emulated = self.emulated or event.emulated
        if not event.answerable:
            self.unanswerable[call.id] = None
        self._end(key, arguments, event.signature, event.own)
        return events

    def reconcile(self, completed: Iterable[NativeToolCall]) -> list[UIEvent]:
        """Add the calls of the provider's completed turn that the stream did not contain.

        A completed call matches a streamed call with the same provider id. If one of the two calls has no id, the name
        and the arguments must be equal. An open call ends if its provider id matches a completed call. Any other
        completed call becomes a new call, unless a call with its id was malformed.
        """
        events: list[UIEvent] = []
        unmatched = [(call, _canonical(call.arguments)) for call in self.calls]
        opened = {call.provider_id: key for key, call in self.open.items() if call.provider_id}
        for number, event in enumerate(completed):
            arguments = _canonical(event.arguments)
            seen = next((known for known in unmatched if _is_same(*known, event, arguments)), None)
            if seen is not None:
                unmatched.remove(seen)
            elif not event.id or event.id not in self._rejected:
                key = opened.pop(event.id or "", None) or f"completed {number}"
                events += self.finish(msgspec.structs.replace(event, key=key))
        return events

    def adopt(self, events: Iterable[UIEvent]) -> list[UIEvent]:
        """Add the calls in `events` as native calls. They were found in text. Returns the changed events.

        Each `Error` in `events` is counted as a malformed call.
        """
        adopted: list[UIEvent] = []
        for event in events:
            if isinstance(event, Call):
                call = msgspec.structs.replace(event.call, dialect=NATIVE, raw="")
                self.calls.append(call)
                self.salvaged[call.id] = None
                event = Call(call)
            self._call_events.calls_begun += isinstance(event, Call | Error)
            adopted.append(event)
        return adopted

    def mark_gap(self) -> None:
        """Mark the open calls as damaged, because a part of the stream is missing.

        A call whose JSON object is closed is complete, so it is not marked. Each call is checked only once, because any
        text after a closed object makes the call invalid.
        """
        for call in map(self.open.__getitem__, self._unchecked):
            text = "".join(call.pieces)
            if call.fault is None and (not text.lstrip().startswith("{") or is_cut(text)):
                call.fault = Rejected(Code.TRUNCATED, "a part of the stream is missing from the call")
        self._unchecked.clear()

    def close(self, fault: Rejected | None = None) -> list[UIEvent]:
        """End all open calls, with `fault` if it is given. Otherwise, a call whose object is open is truncated."""
        self._call_events.events = events = list[UIEvent]()
        for key, call in list(self.open.items()):
            text = "".join(call.pieces)
            if fault is not None:
                call.fault = fault
            elif not text.strip() or is_cut(text):
                call.fault = call.fault or Rejected(Code.TRUNCATED, "the call was cut off")
            self._end(key, text, None)
        return events

    # Methods that change one call.

    def _begin(self, key: str, provider_id: str | None) -> CallDraft:
        limits = self._options.limits
        if not provider_id or len(provider_id) > _MAX_ID_LENGTH:
            id = self._options.new_id()
        else:
            id, times = provider_id, self._ids.get(provider_id, 0)  # the second call with the id "a" gets "a_2"
            while id in self._ids:
                times += 1
                id = f"{provider_id}_{times}"
            self._ids[id] = 1
            self._ids[provider_id] = times or 1
        self.open[key] = call = self._call_events.begin_call(0, id, provider_id)
        call.room = limits.call
        if self._call_events.calls_begun > limits.calls:
            call.fault = Rejected(Code.TOO_MANY_CALLS, f"the turn holds more than {limits.calls} calls")
        else:
            self._unchecked[key] = None
        return call

    def _set_name(self, call: CallDraft, name: str) -> None:
        if call.name is None:
            call.name = name
            if name.strip() and call.dropped is None:
                if self._call_events.call_deltas and (written := "".join(call.pieces)):
                    call.waiting.append(written)
                self._call_events.start_call(call, name)
        elif call.name != name:
            call.fault = call.fault or Rejected(Code.CONFLICTING_FIELDS, "the call holds two different tool names")

    def _append(self, call: CallDraft, text: str) -> None:
        if call.dropped is not None:
            call.dropped += len(text)
            return
        call.room -= len(text)
        if call.room < 0:
            limit = self._options.limits.call
            self._reject(call, Rejected(Code.TOO_LARGE, f"the call is longer than {limit} characters"))
            call.dropped = -call.room
            call.room = -1
            call.pieces.clear()
            return
        call.pieces.append(text)
        if call.started and self._call_events.call_deltas:
            self._call_events.report_arguments(call, text)

    def _complete_arguments(self, call: CallDraft, streamed: str, given: Any) -> str:
        """Return the arguments as JSON text. `given` holds the arguments that the provider sent at the end of the call.

        `streamed` is the text of the deltas. If both exist and their values differ, `given` is used, and a warning is
        added.
        """
        try:
            text = given if isinstance(given, str) else compact(given)
        except RecursionError:
            call.fault = call.fault or Rejected(Code.TOO_DEEP, "the arguments nest too deep")
            return streamed
        if not streamed:
            self._append(call, text)
        elif text != streamed and _canonical(text) != _canonical(streamed):
            message = "the streamed arguments of a call differ from those at its end; the latter are used"
            self._call_events.add(Warning, Code.ARGUMENTS_MISMATCH, message)
            if text.startswith(streamed):
                self._append(call, text[len(streamed) :])
        return text

    def _end(self, key: str, text: str, signature: str | None, own: dict[str, Any] | None = None) -> None:
        call = self.open.pop(key)
        self._unchecked.pop(key, None)
        self.ended[key] = None
        if call.dropped is not None:
            message = f"{call.dropped} characters of a call over the limit were skipped"
            self._call_events.add(Warning, Code.SKIPPED, message, count=call.dropped)
            return
        try:
            if call.fault is not None:
                raise call.fault
            if call.name is None or not call.name.strip():
                raise Rejected(Code.MISSING_TOOL_NAME, "the call has no tool name")
            if is_cut(text):
                raise Rejected(Code.TRUNCATED, "the arguments break off")
            decoded = read_arguments(text, limits=self._options.limits)
        except Rejected as fault:
            self._reject(call, fault)
            return
        result = ToolCall(
            id=call.id,
            name=call.name,
            arguments=decoded.value,
            dialect=NATIVE,
            repaired=decoded.repaired,
            provider_id=call.provider_id,
            signature=signature,
            own=own,
        )
        self._call_events.complete_call(call, result)

    def _reject(self, call: CallDraft, fault: Rejected) -> None:
        if call.provider_id:
            self._rejected[call.provider_id] = None
        self._call_events.reject_call(call, fault, "".join(call.pieces), NATIVE)

    def _to_raw(self, event: ToolCallStart | ToolCallDelta | NativeToolCall) -> Raw:
        """Return a `raw` event for an event whose call has ended or is executed by the provider."""
        data = msgspec.to_builtins(event)
        own = data.pop("own", None)
        if own and isinstance(event, NativeToolCall) and event.provider_executed:
            ((format, item),) = own.items()
            return Raw(data, 0, format, item=item)
        return Raw(data)


def is_cut(text: str) -> bool:
    """Return True if the JSON in `text` breaks off: one of its strings, objects or arrays is not closed."""
    parts = _STRING.split(text)  # in turn: text outside of strings, and group 1 of the next string
    rest, has_open_string = "".join(parts[::2]), len(parts) > 1 and parts[-2] is not None
    return rest.count("{") + rest.count("[") + has_open_string > rest.count("}") + rest.count("]")


def _is_same(call: ToolCall, streamed: str, event: NativeToolCall, given: str) -> bool:
    """Return True if `event` completes the streamed `call`. `streamed` and `given` are their normalized arguments."""
    if call.provider_id and event.id:
        return call.provider_id == event.id
    return call.name == event.name and streamed == given


def _canonical(arguments: Any) -> str:
    """Return normalized JSON text, which is equal for equal arguments. Malformed text is returned unchanged."""
    try:
        return json.dumps(read_arguments(arguments).value, sort_keys=True)
    except (Rejected, RecursionError):
        return str(arguments) if isinstance(arguments, str) else ""
