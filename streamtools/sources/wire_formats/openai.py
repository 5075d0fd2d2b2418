"""Reads the chat completion chunks of OpenAI and compatible servers. Sans-IO.

Only the common outer shape is typed: a chunk with choices, and a choice with a delta. Inner fields are checked on use.
So only a malformed field is lost, and the text of the chunk is kept. A text delta costs one msgspec decode and one
event.

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

All other data becomes `raw` events: for example later choices, audio, images and citations. An unknown delta field is
reported once per stream. Log probabilities and obfuscation are dropped.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from streamtools.events import ReasoningDelta, SourceError, SourceEvent, SourceUsage, TextDelta, Usage
from streamtools.json_values import DECODE_ERRORS, fits, whole
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import UNREADABLE, Frame, FrameAdapter, SSEDecoder
from streamtools.sources.provider_terms import Fault, bounded, finish_reason, read_usage, string
from streamtools.sources.wire_formats.chat_calls import ChatCalls

_CUT_REASONS = ("length", "content_filter", "error", "cancelled")
"""After these finish reasons, the last call may be incomplete."""

_HELPER_EVENTS = frozenset(
    (
        *("content.delta", "content.done", "refusal.delta", "refusal.done"),
        *("logprobs.content.delta", "logprobs.content.done", "logprobs.refusal.delta", "logprobs.refusal.done"),
        *("tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"),
    )
)
"""The events that OpenAI's SDK helper `chat.completions.stream()` derives from its `chunk` events."""

_REASONING_FIELDS = ("reasoning_content", "reasoning")
_SPLIT_FIELDS = ("text", "summary")  # fields of `reasoning_details` whose text arrives in pieces
_DETAIL_TYPES = ("reasoning.text", "reasoning.summary", "reasoning.encrypted")


class _Delta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    role: Any = None
    channel: Any = None  # Groq sets it on reasoning deltas
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None
    images: Any = None
    annotations: Any = None
    extra_content: Any = None
    executed_tools: Any = None


class _Choice(msgspec.Struct, gc=False):
    index: Any = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    text: Any = None
    finish_reason: Any = None
    native_finish_reason: Any = None


class _CompletionChunk(msgspec.Struct, gc=False):
    id: Any = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    citations: Any = None
    x_groq: Any = None


_DELTA_FIELDS = frozenset(_Delta.__struct_fields__)
_CHOICE_FIELDS = ("index", "text", "finish_reason", "native_finish_reason")
_CHUNK_FIELDS = ("id", "model", "usage", "error", "citations", "x_groq")
_decode = msgspec.json.Decoder(_CompletionChunk).decode


class ChatCompletions(FrameAdapter):
    """Converts chat completion chunks from SSE into source events. The first finish reason and the last usage count."""

    name = "openai"
    format = "openai"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._may_have_half_pairs = False  # whether deltas may hold halves of surrogate pairs
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._calls = ChatCalls(limits)
        self._reasoning_fields = _ReasoningFields(limits)
        # For each name in `_REASONING_FIELDS`: whether the last reasoning delta used it.
        self._last_fields: tuple[bool, ...] = ()
        self._citations: Any = None

    @property
    def ended(self) -> bool:
        return self._over or self._reason is not None

    def _read_sdk_object(self, item: object) -> list[SourceEvent]:
        kind = getattr(item, "type", None)
        if isinstance(kind, str) and kind in _HELPER_EVENTS:
            return []
        return super()._read_sdk_object(getattr(item, "chunk", None) or item if kind == "chunk" else item)

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        try:
            chunk = _decode(frame.data)
        except DECODE_ERRORS:
            self._read_slowly(frame, events)
            return
        if self._read_chunk(chunk, events):
            self._pass(frame, events)

    def _read_slowly(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Read a frame that msgspec cannot decode: JSON of another shape, or a string with invalid UTF-8."""
        if frame.data.startswith(b"[DONE]"):
            # Forget a non-SSE line after `[DONE]` in the same network chunk, so that it is not reported as an error.
            self._frames.ignored = b""
            self._end(events, done=True)
            self._over = True
            return
        value = self._decode(frame, events)
        if value is UNREADABLE:
            return
        chunk, delta_fields, has_wrong_types = _to_chunk(value)
        self._may_have_half_pairs = True
        more = self._read_chunk(chunk, events)
        if more or (has_wrong_types and not self._over):
            self._pass_unknown(frame, value, events)
        elif delta_fields and not self._over:
            self._pass_fields(delta_fields, _DELTA_FIELDS, events)

    def _read_chunk(self, chunk: _CompletionChunk, events: list[SourceEvent]) -> bool:
        """Append the events of `chunk`. Returns whether it also has data that must be passed on as `raw`."""
        if not (self._response_id and self._model):  # Azure's first chunk has neither
            self._name_response(chunk.id, chunk.model)
        more = not chunk.choices
        if chunk.choices is not None:
            self._understood = True  # a chunk with `choices` proves that the stream has this format
        for choice in chunk.choices or ():
            if choice.index:  # only the choice with index 0 is read; null means 0 too
                more = True
                continue
            delta = choice.delta or choice.message  # `message` holds a whole answer
            if delta is not None:
                if thought := delta.reasoning_content or delta.reasoning:  # if both are sent, they hold the same text
                    if self._may_have_half_pairs or type(thought) is not str:
                        self._add_thought(thought, events)
                    else:
                        events.append(ReasoningDelta(thought))
                    fields = bool(delta.reasoning_content), bool(delta.reasoning)
                    if fields != self._last_fields:
                        names = itertools.compress(_REASONING_FIELDS, fields)
                        if self._reasoning_fields.note(events, *names):
                            self._last_fields = fields
                if delta.reasoning_details:
                    self._reasoning_fields.add(delta.reasoning_details)
                    self._add_details(delta.reasoning_details, bool(thought), events)
                if content := delta.content:
                    if self._may_have_half_pairs or type(content) is not str:
                        self._add_content(content, events)
                    else:
                        events.append(TextDelta(content))
                if delta.refusal:
                    self._add_content(delta.refusal, events)
                if delta.tool_calls:
                    for left in self._calls.take(delta.tool_calls, events):
                        self._pass_raw(left, events)
                # If `tool_calls` has calls, `function_call` repeats them.
                if delta.function_call and not (delta.tool_calls and self._calls.any_new):
                    for left in self._calls.take_old(delta.function_call, events):
                        self._pass_raw(left, events)
                if delta.audio or delta.images or delta.annotations or delta.extra_content or delta.executed_tools:
                    more = True
            elif choice.text:
                self._add_content(choice.text, events)  # the legacy completions endpoint
            elif not choice.finish_reason:
                more = True
            if choice.finish_reason:
                self._finish(choice)
        if chunk.usage or chunk.error or chunk.citations or chunk.x_groq:
            more = self._read_chunk_fields(chunk, more, events)
        if self._may_have_half_pairs:
            self._may_have_half_pairs = bool(self._text.half or self._thought.half)
        return more and not self._over

    def _read_chunk_fields(self, chunk: _CompletionChunk, more: bool, events: list[SourceEvent]) -> bool:
        """Append usage and errors of a chunk.

        Returns `more`, updated: whether the chunk must also be passed on as `raw`.
        """
        groq = chunk.x_groq if isinstance(chunk.x_groq, dict) else {}
        if usage := read_usage(chunk.usage or groq.get("usage")):
            more = more and bool(chunk.choices)
            if usage != self._usage:
                self._usage = usage
                events.append(SourceUsage(usage))
        if chunk.citations and (not fits(chunk.citations, self._limits.depth) or chunk.citations != self._citations):
            self._citations = chunk.citations  # Perplexity repeats the citations in each chunk
            more = True
        if fault := chunk.error or groq.get("error"):
            self._report(fault, events)
        return more

    def _finish(self, choice: _Choice) -> None:
        """Record the finish reason.

        OpenRouter may report a normal end for an answer that its provider truncated. Then the provider's reason in
        `native_finish_reason` is recorded instead.
        """
        if self._reason is None:
            self._reason = str(choice.finish_reason) if isinstance(choice.finish_reason, str | int) else "unknown"
        native = choice.native_finish_reason
        hidden = isinstance(native, str) and finish_reason(native) in ("length", "content_filter")
        if hidden and finish_reason(self._reason) in ("stop", "tool_calls"):
            self._reason = str(native)

    def _fail(self, fault: Fault | SourceError, events: list[SourceEvent]) -> None:
        is_truncated = self._reason is not None and finish_reason(self._reason) not in ("stop", "tool_calls")
        if is_truncated and isinstance(fault, Fault):
            # Do not report the failed generation, because it may be truncated.
            fault = fault._replace(failed_generation=None)
        super()._fail(fault, events)

    def _pass_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error if the value has one of the less common error shapes. Otherwise append it as `raw`."""
        known = value if isinstance(value, dict) else {}
        named = "choices" not in known and "error" in (known.get("object"), known.get("type"))
        first = value[0] if isinstance(value, list) and value else None
        if named or frame.event == "error" or (isinstance(first, dict) and first.get("error")):
            self._report(value, events)
        else:
            self._pass_not_understood(frame, value, events)

    def _add_content(self, content: Any, events: list[SourceEvent]) -> None:
        """Append the text of a delta. `content` may be a list of parts."""
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(part, dict) and part.get("thinking"):
                self._add_thought(part["thinking"], events)
                self._reasoning_fields.note(events, "content")
            elif isinstance(text, str):
                self._say(text, events)
            else:
                self._pass_raw(part, events)

    def _add_thought(self, thought: Any, events: list[SourceEvent]) -> None:
        for part in thought if isinstance(thought, list) else (thought,):
            self._think(part.get("text") if isinstance(part, dict) else part, events)

    def _add_details(self, details: Any, repeated: bool, events: list[SourceEvent]) -> None:
        """Append the signatures and encrypted data of `reasoning_details`.

        Their text is appended too, unless `repeated` says that another field of the delta holds it.
        """
        for detail in details if isinstance(details, list) else (details,):
            known = detail if isinstance(detail, dict) else {}
            id, text, signature, data = (string(known.get(name)) for name in ("id", "text", "signature", "data"))
            text = known["text"] if text else known.get("summary")
            if not repeated:
                self._think(text, events)
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
        self._reported: dict[str, None] = {}
        self._entries: list[dict[str, Any]] = []
        self._pieces: dict[str, list[str]] = {}  # pieces of the last entry, by field name
        self._characters_left = limits.text

    def note(self, events: list[SourceEvent], *names: str) -> bool:
        """Record in the last event, if it is reasoning, which fields held it. The next request uses the same fields.

        Returns whether the last event is reasoning.
        """
        new = [name for name in names if name not in self._reported]
        if not (events and isinstance(last := events[-1], ReasoningDelta)):
            return False
        if new:
            self._reported |= dict.fromkeys(new)
            events[-1] = msgspec.structs.replace(last, own={"openai": dict.fromkeys(new)})
        return True

    def add(self, details: Any) -> None:
        """Add the entries of one `reasoning_details` value."""
        for entry in details if isinstance(details, list) else (details,):
            if isinstance(entry, dict) and fits(entry, self._limits.depth):
                self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        self._characters_left -= sum(len(value) for value in entry.values() if isinstance(value, str))
        if self._characters_left < 0:
            return
        last = self._entries[-1] if self._entries else None
        same = last is not None and all(last.get(name) == entry.get(name) for name in ("type", "index"))
        if last is None or not same or "data" in entry or (last.get("signature") and entry.get("text")):
            self._join_pieces()
            last = dict.fromkeys(entry)
            self._entries.append(last)
        for name, value in entry.items():
            if name in _SPLIT_FIELDS and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
                last.setdefault(name, None)
            elif value is not None or name not in last:
                last[name] = value

    def _join_pieces(self) -> None:
        for name, pieces in self._pieces.items():
            self._entries[-1][name] = whole("".join(pieces))
        self._pieces.clear()

    def close(self) -> list[SourceEvent]:
        """Return an event with the joined details of the turn; nothing if there are none, or they exceed the limit."""
        self._join_pieces()
        entries = [{name: value for name, value in entry.items() if value is not None} for entry in self._entries]
        self._entries = []
        is_complete = entries and self._characters_left >= 0
        return [ReasoningDelta("", own={"openai": {"reasoning_details": entries}})] if is_complete else []


def _to_chunk(value: Any) -> tuple[_CompletionChunk, dict[str, Any], bool]:
    """Convert `value` to a chunk. Also returns the delta of the first choice as a dict.

    The third value is True if `value`, `choices`, a choice or a delta has the wrong type.
    """
    known = value if isinstance(value, dict) else {}
    listed, delta_fields = known.get("choices"), dict[str, Any]()
    has_wrong_types = known is not value or not isinstance(listed, list | None)
    choices: list[_Choice] = []
    for entry in listed if isinstance(listed, list) else ():
        given = entry if isinstance(entry, dict) else {}
        choice = _Choice(**{name: given[name] for name in _CHOICE_FIELDS if name in given})
        for name in ("delta", "message"):
            if isinstance(delta := given.get(name), dict):
                setattr(choice, name, _Delta(**{key: delta[key] for key in delta if key in _DELTA_FIELDS}))
                delta_fields |= {} if choice.index else delta
            has_wrong_types = has_wrong_types or not isinstance(delta, dict | None)
        has_wrong_types = has_wrong_types or given is not entry
        choices += [choice] if given is entry else []
    chunk = _CompletionChunk(**{name: known[name] for name in _CHUNK_FIELDS if name in known})
    chunk.choices = choices if has_wrong_types or listed is not None else None
    return chunk, delta_fields, has_wrong_types
