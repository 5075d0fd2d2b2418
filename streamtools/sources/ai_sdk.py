"""The AI SDK's UI message stream (v1) as a source: what another chat backend sends to its own front end.

The other side has run the model, and most of its tools; several turns are one stream, and `finish` ends it. A turn ends
with `finish-step`, but why it did is only told by what follows: `finish` has the reason of the last turn, and before a
`start-step` it was one of the reasons to go on. So the end of a turn waits for either.

Who runs a tool is told by events that come after the call (`held_calls.py`): a call whose output, refusal or faulty
input comes in the same turn is the other side's and passes as such, with its result. So is one that has the mark
`providerExecuted`. A call that is left at the end is ours. One that somebody is asked to approve, and one in a turn
that the other side did not wait after, are told, and nobody here may run them. `[DONE]` means nothing: a stream is
complete with its `finish`. Results, files, sources and `data-…` pass as they came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from streamtools.events import (
    ChainCompleted,
    ProviderCompleted,
    ReasoningDelta,
    SourceEvent,
    SourceRaw,
    TextDelta,
    Usage,
)
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import REFUSED, UNREADABLE, FrameAdapter, convert
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.held_calls import HeldCalls
from streamtools.sources.words import Fault, bounded, finish_reason, read_fault, read_usage

_USAGE = {
    "input": ("inputTokens", "promptTokens"),
    "output": ("outputTokens", "completionTokens"),
    "total": ("totalTokens",),
    "cache_read": ("cachedInputTokens", "inputTokenDetails.cacheReadTokens"),
    "cache_write": ("inputTokenDetails.cacheWriteTokens",),
    "reasoning": ("reasoningTokens", "outputTokenDetails.reasoningTokens"),
}
_SIGNATURES = ("signature", "thoughtSignature", "redactedData")


class _Part(msgspec.Struct, gc=False, rename="camel"):
    type: Any = None
    delta: Any = None
    tool_call_id: Any = None
    tool_name: Any = None
    input: Any = None
    error_text: Any = None
    citations: Any = None
    reason: Any = None
    finish_reason: Any = None
    provider_executed: Any = None
    provider_metadata: Any = None
    message_metadata: Any = None


_decode = msgspec.json.Decoder(_Part).decode


class AISDKMessages(FrameAdapter):
    """Parts of a UI message over SSE into source events; each step completes a turn, and `finish` ends the run."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._calls = HeldCalls(limits)
        self._open = False  # a turn has begun that is not completed
        self._stepped = False  # it has ended, and waits to be told why
        self._usage: Usage | None = None

    @property
    def ended(self) -> bool:
        return self._over

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        try:
            part = _decode(frame.data)
        except REFUSED:
            if frame.data.startswith(b"[DONE]"):
                return
            value = self._decode(frame, events)
            if value is UNREADABLE:
                return
            if not isinstance(value, dict):
                self._pass_unknown(frame, value, events)
                return
            part = convert(value, _Part)
        act = _MEANING.get(part.type) if isinstance(part.type, str) else None
        known = act is not None and act(self, part, events)
        if not known and (value := self._decode(frame, events)) is not UNREADABLE:
            self._pass_unknown(frame, value, events)

    def _pass_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error that is no part of a message, or else the value as it came."""
        told = isinstance(value, dict) and value.get("error") and not value.get("type")
        if told or frame.event == "error":
            self._fail(read_fault(value), events)
        else:
            self._pass_raw(value, events)

    # What the parts mean; each returns whether it says all that there is in the part.

    def _add_text(self, part: _Part, events: list[SourceEvent]) -> bool:
        self._begin(events)
        if not isinstance(part.delta, str):
            return False
        if part.delta and (text := self._text.join(part.delta)):
            events.append(TextDelta(text))
        return True

    def _add_thought(self, part: _Part, events: list[SourceEvent]) -> bool:
        self._begin(events)
        text = self._thought.join(part.delta) if isinstance(part.delta, str) and part.delta else ""
        signature = _signature(part.provider_metadata)
        if text or signature:
            events.append(ReasoningDelta(text, signature))
        return True

    def _begin_call(self, part: _Part, events: list[SourceEvent]) -> bool:
        self._begin(events)
        if not isinstance(part.tool_call_id, str):
            return False
        self._calls.begin(part.tool_call_id, _name(part), events)
        return True

    def _complete_call(self, part: _Part, events: list[SourceEvent]) -> bool:
        self._begin(events)
        id = part.tool_call_id if isinstance(part.tool_call_id, str) else None
        self._calls.complete(id, _name(part), part.input, events, _signature(part.provider_metadata))
        if part.provider_executed is True and id is not None:
            self._settle(id, events)
        return True

    def _settle_call(self, part: _Part, events: list[SourceEvent]) -> bool:
        """Tell that the other side has dealt with a call; how it did passes behind it."""
        if isinstance(part.tool_call_id, str):
            self._settle(part.tool_call_id, events)
        return False

    def _leave_call(self, part: _Part, events: list[SourceEvent]) -> bool:
        if isinstance(part.tool_call_id, str):
            self._calls.leave(part.tool_call_id)
        return False

    def _begin_step(self, part: _Part, events: list[SourceEvent]) -> bool:
        self._begin(events)
        return True

    def _end_step(self, part: _Part, events: list[SourceEvent]) -> bool:
        self._stepped = self._open
        return True

    def _take_back(self, part: _Part, events: list[SourceEvent]) -> bool:
        self._calls.drop()
        return False

    def _finish(self, part: _Part, events: list[SourceEvent]) -> bool:
        known = self._note(part, events)
        reason, metadata = part.finish_reason, part.message_metadata
        if not isinstance(reason, str) and isinstance(metadata, dict):
            reason = metadata.get("finishReason")
        if not known:
            self._pass_raw({"type": "finish", "messageMetadata": metadata}, events)
        self._complete(reason if isinstance(reason, str) else None, events)
        events.append(ChainCompleted())
        self._over = True
        return True

    def _abort(self, part: _Part, events: list[SourceEvent]) -> bool:
        if part.reason:
            self._pass_raw({"type": "abort", "reason": part.reason}, events)
        self._complete("abort", events)
        events.append(ChainCompleted())
        self._over = True
        return True

    def _report(self, part: _Part, events: list[SourceEvent]) -> bool:
        self._fail(read_fault(part.error_text), events)
        return True

    def _note(self, part: _Part, events: list[SourceEvent]) -> bool:
        """Take the usage out of what a backend tells of its message; there is no other place for it."""
        metadata = part.message_metadata
        if isinstance(metadata, dict):
            told = metadata.get("usage", metadata.get("totalUsage"))
            self._usage = read_usage(told, _USAGE) or self._usage
        return not metadata

    def _end_part(self, part: _Part, events: list[SourceEvent]) -> bool:
        if signature := _signature(part.provider_metadata):
            events.append(ReasoningDelta("", signature))
        return True

    def _end_text(self, part: _Part, events: list[SourceEvent]) -> bool:
        return not part.citations

    def _ignore(self, part: _Part, events: list[SourceEvent]) -> bool:
        return True

    # Turns.

    def _begin(self, events: list[SourceEvent]) -> None:
        """Take note of a turn; the one before it has ended well, since the other side went on."""
        if self._stepped:
            self._complete(None, events, last=False)
        self._open = True

    def _complete(self, reason: str | None, events: list[SourceEvent], *, last: bool = True) -> None:
        self._flush_text(events)
        self._calls.release(events, answerable=last)
        raw = None if reason is None else bounded(reason, 100)
        usage = self._usage if last else None
        events.append(
            ProviderCompleted(finish_reason=finish_reason(raw), raw_finish_reason=raw, usage=usage, ends_run=False)
        )
        self._open = self._stepped = False

    def _settle(self, id: str, events: list[SourceEvent]) -> None:
        call = self._calls.settle(id)
        if call is not None:
            self._pass_raw(call.arguments, events)
            if isinstance(events[-1], SourceRaw):  # it can be written as JSON again
                events[-1] = call

    def _fail(self, fault: Fault, events: list[SourceEvent]) -> None:
        self._flush(events)
        super()._fail(fault, events)

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append what was held back. Calls that are whole are told, and not earned."""
        self._flush_text(events)
        self._calls.release(events)


def _name(part: _Part) -> str | None:
    return part.tool_name if isinstance(part.tool_name, str) and part.tool_name else None


def _signature(metadata: Any) -> str | None:
    """Return the signature of a block of reasoning, which each provider has in a dict of its own."""
    for told in metadata.values() if isinstance(metadata, dict) else ():
        for name in _SIGNATURES if isinstance(told, dict) else ():
            if isinstance(told.get(name), str) and told[name]:
                signature: str = told[name]
                return signature
    return None


_MEANING: dict[str, Callable[[AISDKMessages, _Part, list[SourceEvent]], bool]] = {
    "text-delta": AISDKMessages._add_text,
    "reasoning-delta": AISDKMessages._add_thought,
    "reasoning-end": AISDKMessages._end_part,
    "tool-input-start": AISDKMessages._begin_call,
    "tool-input-available": AISDKMessages._complete_call,
    "tool-input-error": AISDKMessages._settle_call,
    "tool-output-available": AISDKMessages._settle_call,
    "tool-output-error": AISDKMessages._settle_call,
    "tool-output-denied": AISDKMessages._settle_call,
    "tool-approval-request": AISDKMessages._leave_call,
    "start": AISDKMessages._note,
    "message-metadata": AISDKMessages._note,
    "start-step": AISDKMessages._begin_step,
    "finish-step": AISDKMessages._end_step,
    "reset-step": AISDKMessages._take_back,
    "finish": AISDKMessages._finish,
    "abort": AISDKMessages._abort,
    "error": AISDKMessages._report,
    "tool-input-delta": AISDKMessages._ignore,  # the input comes whole
    "text-start": AISDKMessages._ignore,
    "text-end": AISDKMessages._end_text,
    "reasoning-start": AISDKMessages._ignore,
}
