"""Gemini's `streamGenerateContent?alt=sse`, from Google's API and from Vertex, and the Interactions API beside it.

Nearly every chunk is one candidate with parts of plain text. Those are decoded into a shape that allows nothing else,
and whatever does not fit is decoded again as it is and read with care: calls, signatures, files, hostile values, the
halves of a character. So the common chunk costs one decode and one event, and only one reader knows the rest.

Peculiar here: the finish reason is STOP for calls too; it may come with every chunk, and one that says more than STOP
counts then. There is no sentinel. A call is whole in one part; Vertex can stream it, as a name, then values with their
paths (`partial_args.py`), and it ends with the first piece that does not announce another. A new call before that ends
nothing: the one before was cut off. Errors in mid-stream are bare JSON without `data:`. A blocked prompt has no
candidates. The usage of every chunk is the sum so far, and is told once, at the end.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.errors import Code
from streamtools.events import (
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import REFUSED, UNREADABLE, FrameAdapter
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.interactions import Interactions, read_sums, text_in
from streamtools.sources.partial_args import PartialArgs
from streamtools.sources.words import Fault, bounded, finish_reason, read_fault

_COUNTS = {
    "input": ("promptTokenCount",),
    "output": ("candidatesTokenCount",),
    "total": ("totalTokenCount",),
    "cache_read": ("cachedContentTokenCount",),
}
_BESIDES = {
    "input": ("toolUsePromptTokenCount",),
    "output": ("thoughtsTokenCount",),
    "reasoning": ("thoughtsTokenCount",),
}
_KNOWN = {"candidates", "usageMetadata", "promptFeedback", "modelVersion", "responseId", "createTime", "modelStatus"}
_PLAIN = {"text", "thought", "thoughtSignature"}
_AS_SENT = str.maketrans("-_", "+/")  # signatures are bytes: base64 on the wire, and the SDK writes another alphabet
_METADATA = ("groundingMetadata", "citationMetadata", "urlContextMetadata")
_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"


class _Part(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    text: str
    thought: bool = False


class _Content(msgspec.Struct, gc=False):
    parts: list[_Part] = []


class _Candidate(msgspec.Struct, gc=False, rename="camel", forbid_unknown_fields=True):
    content: _Content | None = None
    finish_reason: str | None = None
    index: int = 0
    safety_ratings: msgspec.Raw = msgspec.Raw()
    avg_logprobs: msgspec.Raw = msgspec.Raw()
    token_count: msgspec.Raw = msgspec.Raw()


class _Counts(msgspec.Struct, gc=False, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    total_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Chunk(msgspec.Struct, gc=False, rename="camel"):
    candidates: tuple[_Candidate]
    usage_metadata: _Counts | None = None
    prompt_feedback: None = None
    error: None = None
    event_type: None = msgspec.field(default=None, name="event_type")


_NOTHING = _Counts()
_decode = msgspec.json.Decoder(_Chunk).decode


class _Call:
    """A call that is being streamed."""

    __slots__ = ("arguments", "fault", "given", "id", "key", "name", "signature")

    def __init__(self, key: str, limits: Limits) -> None:
        self.key = key
        self.id: str | None = None
        self.name: str | None = None
        self.given: Any = None
        self.signature: str | None = None
        self.fault: Code | None = None  # a piece could not be read, and without it the call says something else
        self.arguments = PartialArgs(limits)


class Gemini(FrameAdapter):
    """Chunks of generated content over SSE into source events, and events of interactions, which have a type."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._reason: str | None = None
        self._blocked: str | None = None  # why there is no answer to the prompt
        self._counts: _Counts | None = None
        self._usage: Usage | None = None
        self._call: _Call | None = None
        self._calls = 0
        self._steps = Interactions(self._text, self._thought)

    @property
    def ended(self) -> bool:
        return self._over or (self._reason or self._blocked or self._steps.status) is not None

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        try:
            chunk = _decode(frame.data)
        except REFUSED:
            self._read_slowly(frame, events)
            return
        candidate = chunk.candidates[0]
        if candidate.index:
            self._read_slowly(frame, events)
            return
        if candidate.content is not None:
            for part in candidate.content.parts:
                if part.thought:
                    self._think(part.text, None, events)
                elif part.text:
                    events.append(TextDelta(self._text.join(part.text) if self._text.half else part.text))
        if candidate.finish_reason:
            self._finish(candidate.finish_reason)
        if chunk.usage_metadata is not None and chunk.usage_metadata != _NOTHING:
            self._counts = chunk.usage_metadata

    def _read_slowly(self, frame: Frame, events: list[SourceEvent]) -> None:
        if frame.data.startswith(b"[DONE]"):  # not Google's; a proxy may add it
            return
        value = self._decode(frame, events)
        if value is UNREADABLE:
            return
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, dict) and first.get("error") and "event_type" not in first:
            self._read_chunk(first, events)
            self._fail(read_fault(first), events)
        elif isinstance(value, dict) and isinstance(value.get("event_type"), str):
            self._read_step(value, events)
        elif frame.event == "error":
            self._fail(read_fault(value), events)
        elif isinstance(value, dict) and not _KNOWN.isdisjoint(value):
            self._read_chunk(value, events)
        else:
            self._pass_raw(value, events)

    def _read_step(self, value: dict[str, Any], events: list[SourceEvent]) -> None:
        """Read an event of the Interactions API."""
        told: list[SourceEvent] = []
        fault = self._steps.read(value, told)
        for event in told:
            if isinstance(event, SourceRaw):
                self._pass_raw(event.data, events)
            else:
                events.append(event)
        if fault is not None:
            self._fail(fault, events)

    def _read_chunk(self, chunk: dict[str, Any], events: list[SourceEvent]) -> None:
        candidates = chunk.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict) and not candidate.get("index"):  # of several answers the first is read
                self._read_candidate(candidate, events)
            else:
                self._pass_raw({"candidates": [candidate]}, events)
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._blocked = self._blocked or str(feedback["blockReason"])
            self._pass_raw({"promptFeedback": feedback}, events)
        self._count()
        self._usage = read_sums(chunk.get("usageMetadata"), _COUNTS, _BESIDES) or self._usage

    def _read_candidate(self, candidate: dict[str, Any], events: list[SourceEvent]) -> None:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else content
        for part in parts if isinstance(parts, list) else (parts,):
            if isinstance(part, dict):
                self._read_part(part, events)
            elif part is not None:
                self._pass_raw(part, events)
        for name in _METADATA:
            if candidate.get(name):
                self._pass_raw({name: candidate[name]}, events)
        reason = candidate.get("finishReason")
        if candidate.get("finishMessage"):
            self._pass_raw({"finishReason": reason, "finishMessage": candidate["finishMessage"]}, events)
        if reason and isinstance(reason, str | int):
            self._finish(str(reason))

    def _read_part(self, part: dict[str, Any], events: list[SourceEvent]) -> None:
        text, call, signature = part.get("text"), part.get("functionCall"), text_in(part, "thoughtSignature")
        if signature:
            signature = signature.translate(_AS_SENT)
        rest = {name: value for name, value in part.items() if name not in _PLAIN and value is not None}
        if isinstance(call, dict):
            self._read_call(call, signature, events)
        elif isinstance(text, str) or (signature and not rest):
            text = text if isinstance(text, str) else ""
            if part.get("thought"):
                self._think(text, signature, events)
            else:
                if text and (text := self._text.join(text)):
                    events.append(TextDelta(text))
                if signature:
                    self._think("", signature, events)
            if rest:
                self._pass_raw(rest, events)
        elif isinstance(code := part.get("executableCode"), dict):
            self._tell_executed("code_execution", code, code.get("id"), signature, events)
        elif isinstance(tool := part.get("toolCall"), dict):
            self._tell_executed(text_in(tool, "toolType"), tool.get("args"), tool.get("id"), signature, events)
        elif rest or text:
            self._pass_raw(part, events)

    def _read_call(self, told: dict[str, Any], signature: str | None, events: list[SourceEvent]) -> None:
        """Read a call, or a piece of one: they follow one another, and only the first piece has a name."""
        name, id, pieces = text_in(told, "name"), text_in(told, "id"), told.get("partialArgs")
        goes_on, given = bool(told.get("willContinue")), told.get("args")
        call = self._call
        if call is None or name is not None:
            if not goes_on and pieces in (None, []):
                self._call = None
                if name is not None or id is not None or given is not None:
                    self._calls += 1
                    events.append(NativeToolCall(str(self._calls), name, given, id, signature=signature))
                return
            self._calls += 1
            call = self._call = _Call(str(self._calls), self._limits)
            call.name = name
            events.append(ToolCallStart(call.key, id, name))
        elif id is not None and call.id is None:
            events.append(ToolCallStart(call.key, id))
        call.id = call.id or id
        call.signature = call.signature or signature
        call.given = call.given if given is None else given
        if isinstance(pieces, list):
            text = "".join(map(call.arguments.write, pieces))
        else:
            text = ""
            if pieces is not None:
                call.fault = Code.INVALID_ARGUMENTS
                self._pass_raw({"functionCall": told}, events)
        if not goes_on:
            text += call.arguments.close()
        if text:
            events.append(ToolCallDelta(call.key, text))
        if not goes_on:
            arguments = call.arguments.value if call.given is None else call.given
            id, signature, fault = call.id, call.signature, call.fault
            events.append(NativeToolCall(call.key, call.name, arguments, id, signature=signature, fault=fault))
            self._call = None

    def _tell_executed(
        self, name: str | None, arguments: Any, id: Any, signature: str | None, events: list[SourceEvent]
    ) -> None:
        """Append a call that Google has run itself; its result comes as it is."""
        self._calls += 1
        self._pass_raw(arguments, events)
        if isinstance(events[-1], SourceRaw):  # it can be written as JSON again
            id = id if isinstance(id, str) else None
            events[-1] = NativeToolCall(str(self._calls), name, arguments, id, True, signature)

    def _think(self, text: str, signature: str | None, events: list[SourceEvent]) -> None:
        text = self._thought.join(text) if text else ""
        if text or signature:
            events.append(ReasoningDelta(text, signature))

    def _finish(self, reason: str) -> None:
        if self._reason in (None, "STOP") and reason != _UNSPECIFIED:
            self._reason = reason

    def _count(self) -> None:
        """Read what was counted last; to do so for each chunk would cost more than its text."""
        if self._counts is not None:
            self._usage = read_sums(msgspec.to_builtins(self._counts), _COUNTS, _BESIDES) or self._usage
            self._counts = None
        self._usage = self._steps.usage or self._usage

    def _end(self, events: list[SourceEvent]) -> None:
        self._flush(events)
        if not self.ended:
            return
        if self._steps.status is not None:
            raw, reason = self._steps.status, self._steps.reason
        elif self._reason is not None:
            raw, reason = self._reason, finish_reason(self._reason)
        else:
            raw, reason = self._blocked or "", "content_filter"
        events.append(ProviderCompleted(finish_reason=reason, raw_finish_reason=bounded(raw, 100), usage=self._usage))

    def _fail(self, fault: Fault, events: list[SourceEvent]) -> None:
        self._flush(events)
        super()._fail(fault, events)

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append what waited for the other half of a character, and what was counted."""
        self._flush_text(events)
        self._count()
        if self._usage is not None:
            events.append(SourceUsage(self._usage))
