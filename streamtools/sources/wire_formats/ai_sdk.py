"""The AI SDK's UI message stream (v1) as a source: the stream of a chat backend to its own front end. Sans-IO.

The other backend has run the model and most of its tools. Several turns are one stream, which `finish` ends. A turn
ends with `finish-step`, but only the next part gives the reason: `finish` has the reason of the last turn, and before a
`start-step` the reason was one that continues. So the end of a turn waits for either.

Later events show who runs a call. If output, refusal or invalid input follows in the same turn, or the call has the
mark `providerExecuted`, the other backend has run it, and it passes with its result. A call that is left at the end is
ours. A call that needs an approval, and a call in a turn after which the other backend continued, are reported but
cannot be run here. `[DONE]` means nothing, because `finish` completes a stream. Results, files, sources and `data-…`
pass unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.events import ChainCompleted, NativeToolCall, ProviderCompleted, SourceEvent, ToolCallStart, Usage
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import FrameAdapter
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.provider_terms import bounded, finish_reason, read_usage, text_in, text_under

_OF_A_TURN = frozenset(("start-step", "text-delta", "reasoning-delta", "tool-input-start", "tool-input-available"))
"""Parts that begin a turn if none is open."""
_NOTHING = frozenset(("start-step", "tool-input-delta", "text-start", "reasoning-start"))
"""Parts that others repeat: the input of a call also arrives as a whole."""
_SIGNATURES = ("signature", "thoughtSignature", "redactedData")
_FIELDS = frozenset(
    (
        *("type", "id", "delta", "inputTextDelta", "toolCallId", "toolName", "input", "errorText", "citations"),
        *("reason", "finishReason", "providerExecuted", "providerMetadata", "messageMetadata"),
    )
)
_DELTAS = ("text-delta", "reasoning-delta", "tool-input-delta")


class BufferedCalls:
    """The calls of one turn of another backend, buffered until it is known who runs them.

    If the other backend ran a tool, the result follows its call in the same turn. A call without a result at the end of
    the turn is ours. Arguments arrive as a whole, so earlier pieces are not kept. Calls over the limit of a turn are
    reported immediately and cannot be run here. `answerable` says whether the other backend takes results. Calls are
    identified by its ids.
    """

    def __init__(self, limits: Limits, *, answerable: bool = True) -> None:
        self._limit = limits.calls
        self._answerable = answerable
        self._begun: dict[str, str | None] = {}  # names of calls without arguments yet
        self._whole: dict[str, NativeToolCall] = {}
        self._nameless = 0  # calls without an id
        self._left: set[str] = set()  # ids of the run that cannot be run here
        self.answered: set[str] = set()
        """Ids of the turn's calls that the other backend has run."""
        self.reported: set[str] = set()
        """Ids of all calls of the run that were reported or run by the other backend."""

    def begin(self, id: str, name: str | None, events: list[SourceEvent]) -> None:
        """Buffer a call of which only the name is known. A call over the limit is reported immediately."""
        if id not in self._whole:
            self._begun[id] = name
            if len(self._begun) > self._limit:
                self.release(events, early=True)

    def complete(
        self, id: str | None, name: str | None, arguments: Any, events: list[SourceEvent], signature: str | None = None
    ) -> None:
        """Buffer a complete call."""
        self._nameless += id is None
        key = f"call {self._nameless}" if id is None else id
        self._begun.pop(key, None)
        if key not in self.answered:
            answerable = self._answerable and key not in self._left
            self._whole[key] = NativeToolCall(key, name, arguments, id, signature=signature, answerable=answerable)
            if len(self._whole) > self._limit:
                self.release(events, early=True)

    def pop_answered(self, id: str) -> NativeToolCall | None:
        """Return a buffered call that the other backend has run or answered, or None."""
        self._begun.pop(id, None)
        self.answered.add(id)
        self.reported.add(id)
        call = self._whole.pop(id, None)
        return None if call is None else msgspec.structs.replace(call, provider_executed=True, answerable=True)

    def leave(self, id: str) -> None:
        """Record that only the other backend may run a call. The call may arrive later."""
        self._left.add(id)
        if id in self._whole:
            self._whole[id] = msgspec.structs.replace(self._whole[id], answerable=False)

    def drop(self) -> None:
        """Drop the buffered calls, because the turn was taken back."""
        self._begun.clear()
        self._whole.clear()

    def release(self, events: list[SourceEvent], *, answerable: bool = True, early: bool = False) -> None:
        """Append the buffered calls. An incomplete call only begins.

        With `early`, the turn continues and the calls are not ours: they may still be answered.
        """
        if early:
            self._left.update(self._whole)
        else:
            self.answered.clear()
        for call in self._whole.values():
            events.append(call if answerable and not early else msgspec.structs.replace(call, answerable=False))
        events += [ToolCallStart(id, id, name) for id, name in self._begun.items()]
        self.reported.update(self._whole, self._begun)
        self.drop()


class TurnsAdapter(FrameAdapter):
    """An adapter of another backend's runs, which have several turns and tools of their own."""

    def __init__(self, limits: Limits, *, answerable: bool = True) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._calls = BufferedCalls(limits, answerable=answerable)
        self._open = False  # a turn has begun and is not complete
        self._usage: Usage | None = None

    def _report_answered(self, id: Any, events: list[SourceEvent]) -> None:
        """Append a call that the other backend has answered. The answer passes after it."""
        if isinstance(id, str) and (call := self._calls.pop_answered(id)) is not None:
            self._pass_call(call, events)

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
        self._flush(events, answerable=answerable)
        raw = None if reason is None else bounded(reason, 100)
        events.append(ProviderCompleted(text, calls, finish_reason(raw), raw, usage, ends_run=False))
        self._open = False

    def _flush(self, events: list[SourceEvent], *, answerable: bool = True) -> None:
        """Append buffered parts. Complete calls are reported, even without an end of the turn."""
        super()._flush(events)
        self._calls.release(events, answerable=answerable)


class AISDKMessages(TurnsAdapter):
    """Parts of a UI message over SSE into source events. Each step completes a turn, and `finish` ends the run."""

    name = "ai_sdk"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(limits)
        self._stepped = False  # the turn has ended, and its reason follows

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if (part := self._decode_object(frame, events)) is None:
            return
        kind = part["type"] if isinstance(part.get("type"), str) else ""
        if kind in _DELTAS:
            self._pass_fields(part, _FIELDS, events)
        if not self._act(kind, part, events):
            self._pass(frame, events)

    def _act(self, kind: str, part: dict[str, Any], events: list[SourceEvent]) -> bool:
        """Append the events of a part, and return whether they cover all of it."""
        if kind in _OF_A_TURN:
            if self._stepped:  # the turn before ended well, because the other backend continued
                self._complete(None, events, last=False)
            self._open = True
        id, delta = part.get("toolCallId"), part.get("delta")
        id = id if isinstance(id, str) else None
        name, signature = text_in(part, "toolName"), text_under(part.get("providerMetadata"), *_SIGNATURES)
        match kind:
            case "text-delta":
                self._say(delta, events)
                return isinstance(delta, str)
            case "reasoning-delta" | "reasoning-end":
                self._think(delta if kind == "reasoning-delta" else "", events, signature)
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
                    self._calls.leave(id)
                return False
            case "reset-step":
                self._calls.drop()
                return False
            case "finish-step":
                self._stepped = self._open
            case "finish" | "abort":
                self._finish(kind, part, events)
            case "error":
                self._report(part.get("errorText"), events)
            case "start" | "message-metadata":
                return self._note(part.get("messageMetadata"))
            case "text-end":
                return not part.get("citations")
            case _:
                return kind in _NOTHING
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
            if not self._note(metadata):
                self._pass_raw({"type": "finish", "messageMetadata": metadata}, events)
        self._complete(reason if isinstance(reason, str) else None, events)
        events.append(ChainCompleted())
        self._over = True

    def _note(self, metadata: Any) -> bool:
        """Record the usage in message metadata, where backends put it. Returns whether nothing else is in it."""
        if isinstance(metadata, dict):
            self._usage = read_usage(metadata.get("usage", metadata.get("totalUsage"))) or self._usage
        return not metadata

    def _complete(self, reason: str | None, events: list[SourceEvent], *, last: bool = True) -> None:
        self._end_turn(reason, self._usage if last else None, events, answerable=last)
        self._stepped = False
