"""Reads the AI SDK's UI message stream (v1), which a chat backend usually sends to its front end. Sans-IO.

In this module, "the backend" is the remote server that sends the stream. It calls the model and runs most of the tools.
One stream holds several turns, and a `finish` part ends the stream. A `finish-step` part ends a turn, but does not say
why. The adapter therefore reports the end of the turn later: when `finish` arrives with the finish reason, or when
another turn begins. In the second case, the finish reason is "stop".

The parts after a call show who runs it. The backend has run a call if the call has `providerExecuted`, or if its
result, its denial or an input error follows in the same turn. Such calls are reported with `provider_executed`, and
their results are forwarded. If a call still has no result when the last turn ends, this process may run it. Calls that
it cannot run are reported with `answerable=False`: calls that need an approval, calls of a turn after which the backend
started another turn, and complete calls that were buffered when a turn exceeded the limit of calls.

`[DONE]` is ignored, because `finish` already ends the stream. Results, files, sources and `data-…` parts are forwarded
unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.events import ChainCompleted, NativeToolCall, ProviderCompleted, SourceEvent, ToolCallStart, Usage
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Frame, FrameAdapter, SSEDecoder
from streamtools.sources.provider_terms import bounded, finish_reason, names, read_usage, text_in, text_under

_TURN_PARTS = names("start-step text-delta reasoning-delta tool-input-start tool-input-available")
"""Parts that begin a turn if no turn is open."""
_IGNORED = names("start-step tool-input-delta text-start reasoning-start")
"""Parts that are ignored. For example, the pieces of a call's input: `tool-input-available` holds the whole input."""
_SIGNATURES = ("signature", "thoughtSignature", "redactedData")  # fields of `providerMetadata`


class BufferedCalls:
    """Buffers the calls of one turn until it is known whether the remote backend has run them.

    If the backend ran a tool, the result follows the call in the same turn. If a call has no result at the end of the
    turn, this process may run it. Only whole arguments are stored, not their pieces. The limit applies separately to
    the complete calls in the buffer, and to the calls whose arguments have not arrived. If one of these numbers exceeds
    the limit, all buffered calls are reported immediately, the complete ones with `answerable=False`.

    If the backend accepts no results, pass `answerable=False`. Every call that the backend has not run is then reported
    with `answerable=False`. The key of a call is the id that the backend sent, or for example "call 1" if it sent none.
    """

    def __init__(self, limits: Limits, *, answerable: bool = True) -> None:
        self._limit = limits.calls
        self._answerable = answerable
        self._begun: dict[str, str | None] = {}  # the names, by id, of calls whose arguments have not arrived
        self._whole: dict[str, NativeToolCall] = {}  # complete calls, by id
        self._without_id = 0  # the number of calls without an id
        self._unanswerable: set[str] = set()  # ids of the run's calls that only the backend can run
        self.answered: set[str] = set()
        """Ids of the turn's calls that the backend has run."""
        self.reported: set[str] = set()
        """Ids of all calls of the run that were reported, or that the backend has run."""

    def begin(self, id: str, name: str | None, events: list[SourceEvent]) -> None:
        """Buffer a call whose arguments have not arrived. Reports the buffered calls if too many lack arguments."""
        if id not in self._whole:
            self._begun[id] = name
            if len(self._begun) > self._limit:
                self.release(events, early=True)

    def complete(
        self, id: str | None, name: str | None, arguments: Any, events: list[SourceEvent], signature: str | None = None
    ) -> None:
        """Buffer a complete call that the backend has not run. Reports the buffered calls if too many are complete."""
        self._without_id += id is None
        key = f"call {self._without_id}" if id is None else id
        self._begun.pop(key, None)
        if key not in self.answered:
            answerable = self._answerable and key not in self._unanswerable
            self._whole[key] = NativeToolCall(name, arguments, key, id, signature=signature, answerable=answerable)
            if len(self._whole) > self._limit:
                self.release(events, early=True)

    def pop_answered(self, id: str) -> NativeToolCall | None:
        """Record that the backend has run a call. Returns the call if it was buffered, else None."""
        self._begun.pop(id, None)
        self.answered.add(id)
        self.reported.add(id)
        call = self._whole.pop(id, None)
        return None if call is None else msgspec.structs.replace(call, provider_executed=True, answerable=True)

    def mark_unanswerable(self, id: str) -> None:
        """Record that only the backend may run a call. The call itself may arrive later."""
        self._unanswerable.add(id)
        if id in self._whole:
            self._whole[id] = msgspec.structs.replace(self._whole[id], answerable=False)

    def drop(self) -> None:
        """Drop the buffered calls."""
        self._begun.clear()
        self._whole.clear()

    def release(self, events: list[SourceEvent], *, answerable: bool = True, early: bool = False) -> None:
        """Append the buffered calls. If the arguments of a call have not arrived, append only its start.

        With `answerable=False` or `early`, the calls are reported with `answerable=False`. `early` means that the turn
        continues, so that the backend may still run them.
        """
        if early:
            self._unanswerable.update(self._whole)
        else:
            self.answered.clear()
        for call in self._whole.values():
            events.append(call if answerable and not early else msgspec.structs.replace(call, answerable=False))
        events += [ToolCallStart(id, id, name) for id, name in self._begun.items()]
        self.reported.update(self._whole, self._begun)
        self.drop()


class TurnsAdapter(FrameAdapter):
    """The base of adapters for runs of a remote backend. A run has several turns. The backend runs its own tools."""

    def __init__(self, limits: Limits, *, answerable: bool = True) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._calls = BufferedCalls(limits, answerable=answerable)
        self._in_turn = False  # a turn has begun and is not complete

    def _report_answered(self, id: Any, events: list[SourceEvent]) -> None:
        """Append a call that the backend has run, if it was buffered. The caller then forwards the result."""
        if isinstance(id, str) and (call := self._calls.pop_answered(id)) is not None:
            self._pass(call, call.arguments, events)

    def _end_turn(
        self,
        reason: str | None,
        usage: Usage | None,
        events: list[SourceEvent],
        *,
        text: str | None = None,
        calls: list[NativeToolCall] | None = None,
        answerable: bool = True,
    ) -> None:
        """Append the buffered text and calls, and the end of the turn. See `BufferedCalls.release` for `answerable`."""
        self._flush(events, answerable=answerable)
        raw = None if reason is None else bounded(reason, 100)
        events.append(ProviderCompleted(text, calls, finish_reason(raw), raw, usage, ends_run=False))
        self._in_turn = False

    def _flush(self, events: list[SourceEvent], *, answerable: bool = True) -> None:
        """Append buffered text and calls. Complete calls are reported even if the turn has no end."""
        super()._flush(events)
        self._calls.release(events, answerable=answerable)


class AISDKMessages(TurnsAdapter):
    """Converts the SSE parts of a UI message into source events. Each step is one turn, and `finish` ends the run."""

    name = "ai_sdk"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(limits)
        self._turn_end_pending = False  # `finish-step` has arrived, and the end of the turn is not yet reported

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if (part := self._decode_object(frame, events)) is None:
            return
        kind = part["type"] if isinstance(part.get("type"), str) else ""
        if not self._convert(kind, part, events):
            self._report_or_pass(frame, part, events)

    def _convert(self, kind: str, part: dict[str, Any], events: list[SourceEvent]) -> bool:
        """Append the events of a part. Returns False if the part must also be forwarded unchanged."""
        if kind in _TURN_PARTS:
            if self._turn_end_pending:  # the previous turn ended well, because the backend started another turn
                self._report_turn_end(None, events, last=False)
            self._in_turn = True
        id, delta = part.get("toolCallId"), part.get("delta")
        id = id if isinstance(id, str) else None
        name, signature = text_in(part, "toolName"), text_under(part.get("providerMetadata"), *_SIGNATURES)
        match kind:
            case "text-delta":
                self._add_text(delta, events)
                return isinstance(delta, str)
            case "reasoning-delta" | "reasoning-end":
                self._add_reasoning(delta if kind == "reasoning-delta" else "", events, signature)
            case "tool-input-start" if id is not None:
                self._calls.begin(id, name, events)
            case "tool-input-available":
                self._calls.complete(id, name, part.get("input"), events, signature)
                if part.get("providerExecuted") is True:
                    self._report_answered(id, events)
            case "tool-input-error" | "tool-output-available" | "tool-output-error" | "tool-output-denied":
                self._report_answered(id, events)
                return False
            case "tool-approval-request":
                if id is not None:
                    self._calls.mark_unanswerable(id)
                return False
            case "reset-step":
                self._calls.drop()
                return False
            case "finish-step":
                self._turn_end_pending = self._in_turn
            case "finish" | "abort":
                self._finish(kind, part, events)
            case "error":
                self._report(part.get("errorText"), events)
            case "start" | "message-metadata":
                return self._read_metadata(part.get("messageMetadata"))
            case "text-end":
                return not part.get("citations")
            case _:
                return kind in _IGNORED
        return True

    def _finish(self, kind: str, part: dict[str, Any], events: list[SourceEvent]) -> None:
        reason, metadata = part.get("finishReason"), part.get("messageMetadata")
        if kind == "abort":
            reason = "abort"
            if part.get("reason"):
                self._pass_raw({"type": "abort", "reason": part.get("reason")}, events)
        else:
            if not isinstance(reason, str) and isinstance(metadata, dict):
                reason = metadata.get("finishReason")
            if not self._read_metadata(metadata):
                self._pass_raw({"type": "finish", "messageMetadata": metadata}, events)
        self._report_turn_end(reason if isinstance(reason, str) else None, events)
        events.append(ChainCompleted())
        self._over = True

    def _read_metadata(self, metadata: Any) -> bool:
        """Record the usage that backends put into message metadata.

        Returns True if the metadata is empty. Otherwise returns False: the caller must also forward it.
        """
        if isinstance(metadata, dict):
            self._usage = read_usage(metadata.get("usage", metadata.get("totalUsage"))) or self._usage
        return not metadata

    def _report_turn_end(self, reason: str | None, events: list[SourceEvent], *, last: bool = True) -> None:
        """Append the end of a turn. With `last=False`, another turn follows it."""
        self._end_turn(reason, self._usage if last else None, events, answerable=last)
        self._turn_end_pending = False
