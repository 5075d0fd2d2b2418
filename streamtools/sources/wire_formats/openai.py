"""Reads the chat completion chunks of OpenAI and compatible servers. Sans-IO.

Each field is checked when it is used. So only a malformed field is lost, and the text of the chunk is kept. After a
piece of text, the next chunk is first decoded as another piece of text (`_TextChunk`), because this is faster.

These variants are supported:

- Reasoning arrives as `reasoning_content` (DeepSeek, xAI, Alibaba, vLLM), as `reasoning` (OpenRouter, Groq, newer
  vLLM), or as parts of a content list (Mistral). `reasoning_details` (OpenRouter) repeat the text of `reasoning` and
  add signatures and encrypted blocks. At the end of the turn, an event repeats the joined details, because the next
  request must contain them.
- Usage arrives on the last content chunk (DeepSeek, Mistral), on a chunk without choices (OpenAI), or on every chunk
  (vLLM).
- Errors arrive as the field `error` of a chunk before `[DONE]` (OpenRouter), as `event: error` without `[DONE]` (Groq),
  or as an object with the type "error" (vLLM).
- A `finish_reason` may be sent twice, or be an empty string until the last chunk.
- A refusal becomes text of the answer.

`chat_calls.py` assembles tool calls from their pieces. Calls are complete at the finish reason, unless it is one of
`_CUT_REASONS`. After such a reason, or without one, the last call may be incomplete.

Other choices, and delta fields such as audio and images, become `raw` events. Log probabilities and unknown fields are
dropped.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from streamtools.events import ReasoningDelta, SourceError, SourceEvent, TextDelta
from streamtools.json_values import DECODE_ERRORS, fits
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import UNREADABLE, Frame, FrameAdapter, GrowingItem, SSEDecoder
from streamtools.sources.provider_terms import bounded, finish_reason, object_in, objects, read_usage, string
from streamtools.sources.wire_formats.chat_calls import ChatCalls

_CUT_REASONS = ("length", "content_filter", "error", "cancelled")
"""After these finish reasons, the last call may be incomplete."""

_REASONING_FIELDS = ("reasoning_content", "reasoning")
_OTHER_FIELDS = ("audio", "images", "annotations", "extra_content", "executed_tools")
_DETAIL_TYPES = ("reasoning.text", "reasoning.summary", "reasoning.encrypted")


class _TextDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str
    role: str | None = None
    reasoning_content: None = None
    refusal: None = None
    tool_calls: None = None


class _TextChoice(msgspec.Struct, gc=False):
    delta: _TextDelta
    index: Literal[0] = 0
    message: None = None
    finish_reason: Literal["", None] = None


class _TextChunk(msgspec.Struct, gc=False):
    """A chunk that holds only a piece of the answer.

    Without this fast path, reading a chunk takes 1.8 times as long, and a `ToolStream` over a response 1.5 times.
    """

    choices: tuple[_TextChoice]
    usage: None = None
    error: None = None
    citations: None = None
    x_groq: None = None


_decode_text = msgspec.json.Decoder(_TextChunk).decode


class ChatCompletions(FrameAdapter):
    """Converts chat completion chunks from SSE into source events. Uses the first finish reason and the last usage."""

    name = "openai"
    format = "openai"
    endpoint = "/v1/chat/completions"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._expects_text = False  # the last chunk was a piece of text, so the next chunk probably is one too
        self._calls = ChatCalls(limits)
        self._reasoning_fields = _ReasoningFields(limits)
        self._citations: Any = None

    @property
    def ended(self) -> bool:
        return self._over or self._reason is not None

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if self._expects_text:
            try:
                text = _decode_text(frame.data).choices[0].delta.content
            except DECODE_ERRORS:
                pass
            else:
                self._add_text(text, events)
                return
        if frame.data.startswith(b"[DONE]"):
            self._end(events, done=True)
            return
        value = self._decode(frame, events)
        if value is UNREADABLE:
            return
        if self._read_chunk(value if isinstance(value, dict) else {}, events) and not self._over:
            self._report_or_pass(frame, value, events)
        has_names = self._response_id is not None and self._model is not None
        self._expects_text = has_names and bool(events) and type(events[-1]) is TextDelta

    def _read_chunk(self, chunk: dict[str, Any], events: list[SourceEvent]) -> bool:
        """Append the events of `chunk`. Returns whether the chunk also has data that must be passed on as `raw`."""
        self._name_response(chunk.get("id"), chunk.get("model"))  # Azure's first chunk has neither
        listed = chunk.get("choices")
        choices = objects(listed)
        self._understood = self._understood or listed is not None  # `choices` proves this format
        more = not choices or choices != listed
        for choice in choices:
            reason, delta = choice.get("finish_reason"), choice.get("delta")
            if choice.get("index"):  # only the choice with index 0 is read; null also means 0
                more = True
                continue
            if not isinstance(delta, dict):
                more = more or delta is not None
                delta = choice.get("message")  # it holds a whole answer
            if isinstance(delta, dict):
                more = self._read_delta(delta, events) or more
            elif choice.get("text"):
                self._add_content(choice["text"], events)  # the legacy completions endpoint
            elif delta is not None or not reason:
                more = True
            if reason:
                self._finish(reason, choice.get("native_finish_reason"))
        if any(chunk.get(name) for name in ("usage", "error", "citations", "x_groq")):
            more = self._read_chunk_fields(chunk, more, events)
        return more

    def _read_delta(self, delta: dict[str, Any], events: list[SourceEvent]) -> bool:
        """Append the events of `delta`. Returns whether the delta also has data that must be passed on as `raw`."""
        details, calls, old_call = (delta.get(name) for name in ("reasoning_details", "tool_calls", "function_call"))
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):  # if both are sent, they are equal
            self._add_thought(thought, events)
            self._reasoning_fields.note(events, *(name for name in _REASONING_FIELDS if delta.get(name)))
        if details:
            self._reasoning_fields.add(details)
            self._add_details(details, bool(thought), events)
        for name in ("content", "refusal"):
            if content := delta.get(name):
                self._add_content(content, events)
        if calls:
            for entry in self._calls.take(calls, events):
                self._pass_raw(entry, events)
        if old_call and not (calls and self._calls.has_tool_calls):  # otherwise `function_call` repeats `tool_calls`
            for entry in self._calls.take_function_call(old_call, events):
                self._pass_raw(entry, events)
        return not delta.keys().isdisjoint(_OTHER_FIELDS) and any(map(delta.get, _OTHER_FIELDS))

    def _read_chunk_fields(self, chunk: dict[str, Any], more: bool, events: list[SourceEvent]) -> bool:
        """Append usage and errors of a chunk. Return whether the chunk must also be passed on as `raw`.

        `more` says whether the other fields of the chunk have data for `raw`.
        """
        groq, citations = object_in(chunk, "x_groq"), chunk.get("citations")
        if usage := read_usage(chunk.get("usage") or groq.get("usage")):
            more = more and bool(chunk.get("choices"))
            self._report_usage(usage, events)
        if citations and (not fits(citations, self._limits.depth) or citations != self._citations):
            self._citations = citations  # Perplexity repeats the citations in each chunk
            more = True
        if fault := chunk.get("error") or groq.get("error"):
            self._report(fault, events)
        return more

    def _finish(self, reason: Any, native: Any) -> None:
        """Record the finish reason.

        OpenRouter may report a normal end for an answer that its provider truncated. Then the reason of the provider,
        `native`, is recorded instead.
        """
        if self._reason is None:
            self._reason = str(reason) if isinstance(reason, str | int) else "unknown"
        is_truncated = isinstance(native, str) and finish_reason(native) in ("length", "content_filter")
        if is_truncated and finish_reason(self._reason) in ("stop", "tool_calls"):
            self._reason = str(native)

    def _fail(self, fault: SourceError, events: list[SourceEvent]) -> None:
        is_truncated = self._reason is not None and finish_reason(self._reason) not in ("stop", "tool_calls")
        if is_truncated:  # the failed generation may be truncated, too
            fault = msgspec.structs.replace(fault, failed_generation=None)
        super()._fail(fault, events)

    def _add_content(self, content: Any, events: list[SourceEvent]) -> None:
        """Append the text of a delta. `content` may be a list of parts."""
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(part, dict) and part.get("thinking"):
                self._add_thought(part["thinking"], events)
                self._reasoning_fields.note(events, "content")
            elif isinstance(text, str):
                self._add_text(text, events)
            else:
                self._pass_raw(part, events)

    def _add_thought(self, thought: Any, events: list[SourceEvent]) -> None:
        for part in thought if isinstance(thought, list) else (thought,):
            self._add_reasoning(part.get("text") if isinstance(part, dict) else part, events)

    def _add_details(self, details: Any, repeated: bool, events: list[SourceEvent]) -> None:
        """Append the signatures and encrypted data of `reasoning_details`.

        Their text is also appended, unless `repeated` says that another field of the delta holds it.
        """
        for detail in details if isinstance(details, list) else (details,):
            known = detail if isinstance(detail, dict) else {}
            id, text, signature, data = (string(known.get(name)) for name in ("id", "text", "signature", "data"))
            text = known["text"] if text else known.get("summary")
            if not repeated:
                self._add_reasoning(text, events)
            for opaque, redacted in ((signature, False), (data, True)):
                if opaque:
                    events.append(ReasoningDelta("", opaque, id, redacted))
            if not ((isinstance(text, str) and text) or signature or data) and known.get("type") not in _DETAIL_TYPES:
                self._pass_raw(detail, events)

    def _end(self, events: list[SourceEvent], *, done: bool = False) -> None:
        if self._reason is None and (fault := self._wrong_format_error(events)) is not None:
            self._fail(fault, events)
            return
        self._flush(events)
        if self._reason is not None and finish_reason(bounded(self._reason, 100)) not in _CUT_REASONS:
            self._calls.complete(events)
        events += self._reasoning_fields.close()
        if done or self._reason is not None:
            self._complete_response(self._reason, self._usage, events)

    def _flush(self, events: list[SourceEvent]) -> None:
        super()._flush(events)
        self._calls.flush(events)


class _ReasoningFields:
    """Collects the reasoning fields of one turn for the next request.

    OpenRouter's details arrive in pieces. The pieces of one reasoning block are joined into one entry, with the
    signature or the encrypted data of the block.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reported: dict[str, None] = {}  # a set of the names that `note` has recorded
        self._entries: list[GrowingItem] = []
        self._characters_left = limits.text

    def note(self, events: list[SourceEvent], *names: str) -> None:
        """If the last event is reasoning, add the names of the message fields that held the reasoning to this event.

        The next request uses these fields.
        """
        new = dict.fromkeys(name for name in names if name not in self._reported)
        if new and events and isinstance(last := events[-1], ReasoningDelta):
            self._reported |= new
            events[-1] = msgspec.structs.replace(last, own={"openai": new})

    def add(self, details: Any) -> None:
        """Add the entries of one `reasoning_details` value."""
        for entry in details if isinstance(details, list) else (details,):
            if isinstance(entry, dict) and fits(entry, self._limits.depth):
                self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        self._characters_left -= sum(len(value) for value in entry.values() if isinstance(value, str))
        if self._characters_left < 0:
            return
        known = self._entries[-1].data if self._entries else None
        same = known is not None and all(known.get(name) == entry.get(name) for name in ("type", "index"))
        if known is None or not same or "data" in entry or (known.get("signature") and entry.get("text")):
            self._entries.append(GrowingItem({}))
        self._entries[-1].add(entry)

    def close(self) -> list[SourceEvent]:
        """Return an event with the joined details of the turn, if there are any and they do not exceed the limit."""
        entries = [entry.whole() for entry in self._entries]
        self._entries = []
        is_complete = entries and self._characters_left >= 0
        return [ReasoningDelta("", own={"openai": {"reasoning_details": entries}})] if is_complete else []
