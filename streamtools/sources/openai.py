"""OpenAI's chat completion chunks, and what "OpenAI compatible" servers make of them.

Only the shape that all of them share is typed: a chunk with choices, a choice with a delta. The leaves are read as
whatever was sent and checked where they are used, so that one odd field of one server costs that field and not the
text beside it. One msgspec decode and one event is what a delta of text costs.

The dialects that are read: reasoning as `reasoning_content` (DeepSeek, xAI, Alibaba, vLLM), as `reasoning` (OpenRouter,
Groq, newer vLLM) and as parts of a content list (Mistral); usage on the last content chunk (DeepSeek, Mistral), on a
chunk without choices (OpenAI) or on every chunk (vLLM); errors as a top-level `error` of an ordinary chunk followed by
`[DONE]` (OpenRouter), as an `event: error` without one (Groq), or as an object that calls itself an error (vLLM); a
`finish_reason` that comes twice, or is an empty string until the last chunk. A refusal is text: it is the answer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.calls import DEFAULT_LIMITS, Limits
from streamtools.events import ProviderCompleted, ReasoningDelta, SourceEvent, SourceUsage, TextDelta, Usage
from streamtools.sources.adapter import REFUSED, UNREADABLE, FrameAdapter
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.pairs import Pairs
from streamtools.sources.words import bounded, finish_reason, read_fault, read_usage

_USAGE = {
    "input": ("prompt_tokens",),
    "output": ("completion_tokens",),
    "total": ("total_tokens",),
    "cache_read": ("prompt_tokens_details.cached_tokens",),
    "cache_write": ("prompt_tokens_details.cache_write_tokens",),
    "reasoning": ("completion_tokens_details.reasoning_tokens",),
}


class _Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct, gc=False):
    index: Any = 0
    delta: _Delta | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class OpenAIChat(FrameAdapter):
    """Chat completion chunks over SSE into source events. The first finish reason counts, and the last usage."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._text = Pairs()
        self._thought = Pairs()
        self._careful = False  # deltas may hold halves of surrogate pairs
        self._reason: str | None = None
        self._usage: Usage | None = None

    @property
    def ended(self) -> bool:
        return self._over or self._reason is not None

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        try:
            chunk = _decode(frame.data)
        except REFUSED:
            self._read_slowly(frame, events)
            return
        if self._read_chunk(chunk, events) and (value := self._decode(frame, events)) is not UNREADABLE:
            self._read_unknown(frame, value, events)

    def _read_chunk(self, chunk: _Chunk, events: list[SourceEvent]) -> bool:
        """Append what `chunk` says, and return whether it says more, or other things, than is understood here."""
        more = not chunk.choices
        for choice in chunk.choices or ():
            delta = choice.delta
            if choice.index:  # of several answers the first is read; null and missing are 0
                more = True
                continue
            if delta is not None:
                if thought := delta.reasoning_content or delta.reasoning:  # some send both, and both are the same
                    if self._careful or type(thought) is not str:
                        self._add_thought(thought, events)
                    else:
                        events.append(ReasoningDelta(thought))
                if content := delta.content or delta.refusal:
                    if self._careful or type(content) is not str:
                        self._add_content(content, events)
                    else:
                        events.append(TextDelta(content))
                if delta.tool_calls or delta.function_call:
                    more = True  # native calls: passed on as they came
            elif not choice.finish_reason:
                more = True
            if choice.finish_reason and self._reason is None:
                self._reason = str(choice.finish_reason)
        if chunk.usage and (usage := read_usage(chunk.usage, _USAGE)):
            more = more and bool(chunk.choices)
            if usage != self._usage:
                self._usage = usage
                events.append(SourceUsage(usage))
        if self._careful:
            self._careful = bool(self._text.half or self._thought.half)
        if chunk.error:
            self._flush(events)
            self._fail(read_fault(chunk.error), events)
            return False
        return more

    def _read_slowly(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Read a frame that is no JSON of a chunk, or that msgspec refuses for a string which is no UTF-8 text."""
        if frame.data.startswith(b"[DONE]"):
            self._end(events, done=True)
            self._over = True
            return
        value = self._decode(frame, events)
        if value is UNREADABLE:
            return
        try:
            chunk = msgspec.convert(value, _Chunk)
        except msgspec.ValidationError:
            self._read_unknown(frame, value, events)
            return
        self._careful = True
        if self._read_chunk(chunk, events):
            self._read_unknown(frame, value, events)

    def _read_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error in one of its rarer shapes, or else the value as it came."""
        told = (
            isinstance(value, dict) and "choices" not in value and "error" in (value.get("object"), value.get("type"))
        )
        first = value[0] if isinstance(value, list) and value else None
        if told or frame.event == "error" or (isinstance(first, dict) and first.get("error")):
            self._flush(events)
            self._fail(read_fault(value), events)
        else:
            self._pass_raw(value, events)

    def _add_content(self, content: Any, events: list[SourceEvent]) -> None:
        """Append the text of a delta that may be cut in mid-character, or come in parts."""
        for part in content if isinstance(content, list) else (content,):
            if isinstance(part, dict) and part.get("thinking"):
                self._add_thought(part["thinking"], events)
                continue
            text = part.get("text") if isinstance(part, dict) else part
            if not isinstance(text, str):
                self._pass_raw(part, events)
            elif text := self._text.join(text):
                events.append(TextDelta(text))

    def _add_thought(self, thought: Any, events: list[SourceEvent]) -> None:
        for part in thought if isinstance(thought, list) else (thought,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str) and (text := self._thought.join(text) if self._careful else text):
                events.append(ReasoningDelta(text))

    def _end(self, events: list[SourceEvent], *, done: bool = False) -> None:
        self._flush(events)
        if done or self._reason is not None:
            raw = None if self._reason is None else bounded(self._reason, 100)
            events.append(ProviderCompleted(finish_reason=finish_reason(raw), raw_finish_reason=raw, usage=self._usage))

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append what waited for the other half of a character."""
        if thought := self._thought.close():
            events.append(ReasoningDelta(thought))
        if text := self._text.close():
            events.append(TextDelta(text))
