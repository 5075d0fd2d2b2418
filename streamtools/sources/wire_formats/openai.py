"""OpenAI's chat completion chunks, also of compatible servers. Sans-IO.

Only the common shape is typed: a chunk with choices, a choice with a delta. Leaves are checked where they are used, so
that an odd field of one server costs that field and not the text beside it. A delta of text costs one msgspec decode
and one event.

The variants that are read:

- Reasoning arrives as `reasoning_content` (DeepSeek, xAI, Alibaba, vLLM), as `reasoning` (OpenRouter, Groq, newer
  vLLM), or as parts of a content list (Mistral). `reasoning_details` (OpenRouter) repeat the text of `reasoning` and
  add signatures and encrypted blocks. The end of the turn reports these fields for the next request.
- Usage arrives on the last content chunk (DeepSeek, Mistral), on a chunk without choices (OpenAI), or on every chunk
  (vLLM).
- Errors arrive as a top-level `error` of a chunk before `[DONE]` (OpenRouter), as `event: error` without `[DONE]`
  (Groq), or as an object with the type "error" (vLLM).
- A `finish_reason` may be sent twice, or be an empty string until the last chunk.
- A refusal is text: it is the answer.

`chat_calls.py` assigns the pieces of tool calls. Calls are complete if a finish reason says that the model came to an
end. After any other reason, or without one, the last call may be incomplete.

Everything else passes as `raw`: choices after the first, audio, images, annotations, citations, tools that Groq's
Compound has run, and unknown fields of a delta, once each. Log probabilities and obfuscation are dropped.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from streamtools.events import ReasoningDelta, SourceError, SourceEvent, SourceUsage, TextDelta, Usage
from streamtools.json_values import fits, whole
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import REFUSED, UNREADABLE, FrameAdapter
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.provider_terms import Fault, bounded, finish_reason, read_usage, string
from streamtools.sources.wire_formats.chat_calls import ChatCalls

_CUT = ("length", "content_filter", "error", "cancelled")
"""After these finish reasons, the last call may be incomplete."""

_HELPER = frozenset(
    (
        *("content.delta", "content.done", "refusal.delta", "refusal.done"),
        *("logprobs.content.delta", "logprobs.content.done", "logprobs.refusal.delta", "logprobs.refusal.done"),
        *("tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"),
    )
)
"""Events that the helper of OpenAI's SDK (`chat.completions.stream()`) derives from its `chunk` events."""

_FIELDS = ("reasoning_content", "reasoning")
_GROWING = ("text", "summary")  # members of details that arrive in pieces
_DETAILS = ("reasoning.text", "reasoning.summary", "reasoning.encrypted")


class _Delta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    role: Any = None
    channel: Any = None  # Groq marks reasoning so
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


_KNOWN = frozenset(_Delta.__struct_fields__)
_OF_CHOICES = ("index", "text", "finish_reason", "native_finish_reason")
_OF_CHUNKS = ("id", "model", "usage", "error", "citations", "x_groq")
_decode = msgspec.json.Decoder(_CompletionChunk).decode


class ChatCompletions(FrameAdapter):
    """Chat completion chunks over SSE into source events. The first finish reason counts, and the last usage."""

    name = "openai"
    format = "openai"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._careful = False  # deltas may hold halves of surrogate pairs
        self._reason: str | None = None
        self._usage: Usage | None = None
        self._calls = ChatCalls(limits)
        self._fields = _ReasoningFields(limits)
        self._came_in: tuple[bool, ...] = ()  # whether each of `_FIELDS` held the last piece of reasoning
        self._citations: Any = None

    @property
    def ended(self) -> bool:
        return self._over or self._reason is not None

    def _take_other(self, item: object) -> list[SourceEvent]:
        kind = getattr(item, "type", None)
        if isinstance(kind, str) and kind in _HELPER:
            return []
        return super()._take_other(getattr(item, "chunk", None) or item if kind == "chunk" else item)

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        try:
            chunk = _decode(frame.data)
        except REFUSED:
            self._read_slowly(frame, events)
            return
        if self._read_chunk(chunk, events):
            self._pass(frame, events)

    def _read_slowly(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Read a frame that msgspec refuses: no JSON of a chunk, or a string that is not valid UTF-8."""
        if frame.data.startswith(b"[DONE]"):
            self._frames.ignored = b""  # the line may follow `[DONE]` in the same network chunk
            self._end(events, done=True)
            self._over = True
            return
        value = self._decode(frame, events)
        if value is UNREADABLE:
            return
        chunk, news, strays = _shaped(value)
        self._careful = True
        more = self._read_chunk(chunk, events)
        if more or (strays and not self._over):
            self._pass_unknown(frame, value, events)
        elif news and not self._over:
            self._pass_fields(news, _KNOWN, events)

    def _read_chunk(self, chunk: _CompletionChunk, events: list[SourceEvent]) -> bool:
        """Append the events of `chunk`, and return whether it holds more than is understood here."""
        if not (self._response_id and self._model):  # Azure's first chunk names neither
            self._name_response(chunk.id, chunk.model)
        more = not chunk.choices
        if chunk.choices is not None:
            self._blank = False  # choices show this format
        for choice in chunk.choices or ():
            if choice.index:  # only the first answer is read; null and missing mean 0
                more = True
                continue
            delta = choice.delta or choice.message  # a message is a whole answer
            if delta is not None:
                if thought := delta.reasoning_content or delta.reasoning:  # if both are sent, they are equal
                    if self._careful or type(thought) is not str:
                        self._add_thought(thought, events)
                    else:
                        events.append(ReasoningDelta(thought))
                    fields = bool(delta.reasoning_content), bool(delta.reasoning)
                    if fields != self._came_in and self._fields.note(events, *itertools.compress(_FIELDS, fields)):
                        self._came_in = fields
                if delta.reasoning_details:
                    self._fields.add(delta.reasoning_details)
                    self._add_details(delta.reasoning_details, bool(thought), events)
                if content := delta.content:
                    if self._careful or type(content) is not str:
                        self._add_content(content, events)
                    else:
                        events.append(TextDelta(content))
                if delta.refusal:
                    self._add_content(delta.refusal, events)
                if delta.tool_calls:
                    for left in self._calls.take(delta.tool_calls, events):
                        self._pass_raw(left, events)
                if delta.function_call and not (delta.tool_calls and self._calls.any_new):  # else it repeats them
                    for left in self._calls.take_old(delta.function_call, events):
                        self._pass_raw(left, events)
                if delta.audio or delta.images or delta.annotations or delta.extra_content or delta.executed_tools:
                    more = True
            elif choice.text:
                self._add_content(choice.text, events)  # completions without chat
            elif not choice.finish_reason:
                more = True
            if choice.finish_reason:
                self._finish(choice)
        if chunk.usage or chunk.error or chunk.citations or chunk.x_groq:
            more = self._read_beside_choices(chunk, more, events)
        if self._careful:
            self._careful = bool(self._text.half or self._thought.half)
        return more and not self._over

    def _read_beside_choices(self, chunk: _CompletionChunk, more: bool, events: list[SourceEvent]) -> bool:
        """Append usage and errors. `more` and the result tell whether the chunk holds more than is understood."""
        groq = chunk.x_groq if isinstance(chunk.x_groq, dict) else {}
        if usage := read_usage(chunk.usage or groq.get("usage")):
            more = more and bool(chunk.choices)
            if usage != self._usage:
                self._usage = usage
                events.append(SourceUsage(usage))
        if chunk.citations and (not fits(chunk.citations, self._limits.depth) or chunk.citations != self._citations):
            self._citations = chunk.citations  # Perplexity repeats them in each chunk
            more = True
        if fault := chunk.error or groq.get("error"):
            self._report(fault, events)
        return more

    def _finish(self, choice: _Choice) -> None:
        """Record the reason. OpenRouter's reason may hide a cut, which its `native_finish_reason` shows."""
        if self._reason is None:
            self._reason = str(choice.finish_reason) if isinstance(choice.finish_reason, str | int) else "unknown"
        native = choice.native_finish_reason
        hidden = isinstance(native, str) and finish_reason(native) in ("length", "content_filter")
        if hidden and finish_reason(self._reason) in ("stop", "tool_calls"):
            self._reason = str(native)

    def _fail(self, fault: Fault | SourceError, events: list[SourceEvent]) -> None:
        cut = self._reason is not None and finish_reason(self._reason) not in ("stop", "tool_calls")
        if cut and isinstance(fault, Fault):  # the generation may be incomplete
            fault = fault._replace(failed_generation=None)
        super()._fail(fault, events)

    def _pass_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error in a rare shape, or else the value unchanged."""
        known = value if isinstance(value, dict) else {}
        named = "choices" not in known and "error" in (known.get("object"), known.get("type"))
        first = value[0] if isinstance(value, list) and value else None
        if named or frame.event == "error" or (isinstance(first, dict) and first.get("error")):
            self._report(value, events)
        else:
            self._pass_strange(frame, value, events)

    def _add_content(self, content: Any, events: list[SourceEvent]) -> None:
        """Append the text of a delta. It may be a list of parts."""
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(part, dict) and part.get("thinking"):
                self._add_thought(part["thinking"], events)
                self._fields.note(events, "content")
            elif isinstance(text, str):
                self._say(text, events)
            else:
                self._pass_raw(part, events)

    def _add_thought(self, thought: Any, events: list[SourceEvent]) -> None:
        for part in thought if isinstance(thought, list) else (thought,):
            self._think(part.get("text") if isinstance(part, dict) else part, events)

    def _add_details(self, details: Any, repeated: bool, events: list[SourceEvent]) -> None:
        """Append signatures and encrypted data of `reasoning_details`, and the text unless it is `repeated`."""
        for detail in details if isinstance(details, list) else (details,):
            known = detail if isinstance(detail, dict) else {}
            id, text, signature, data = (string(known.get(name)) for name in ("id", "text", "signature", "data"))
            text = known["text"] if text else known.get("summary")
            if not repeated:
                self._think(text, events)
            for held, redacted in ((signature, False), (data, True)):
                if held:
                    events.append(ReasoningDelta("", held, id, redacted))
            if not ((isinstance(text, str) and text) or signature or data) and known.get("type") not in _DETAILS:
                self._pass_raw(detail, events)

    def _end(self, events: list[SourceEvent], *, done: bool = False) -> None:
        if self._reason is None and (fault := self._foreign(events)) is not None:
            self._fail(fault, events)
            return
        self._flush(events)
        if self._reason is not None and finish_reason(bounded(self._reason, 100)) not in _CUT:
            self._calls.complete(events)
        events += self._fields.close()
        if done or self._reason is not None:
            self._complete_response(self._reason, self._usage, events)

    def _flush(self, events: list[SourceEvent]) -> None:
        super()._flush(events)
        self._calls.flush(events)


class _ReasoningFields:
    """Collects the reasoning fields of one turn for the next request.

    OpenRouter's details arrive in pieces. They are joined: one entry per block of reasoning, with its signature or its
    encrypted data.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: dict[str, None] = {}
        self._entries: list[dict[str, Any]] = []
        self._pieces: dict[str, list[str]] = {}  # of the last entry
        self._room = limits.text

    def note(self, events: list[SourceEvent], *names: str) -> bool:
        """Add new field names to the last event if it is reasoning. Returns whether it is."""
        new = [name for name in names if name not in self._seen]
        if not (events and isinstance(last := events[-1], ReasoningDelta)):
            return False
        if new:
            self._seen |= dict.fromkeys(new)
            events[-1] = msgspec.structs.replace(last, own={"openai": dict.fromkeys(new)})
        return True

    def add(self, details: Any) -> None:
        """Add a value of `reasoning_details`."""
        for entry in details if isinstance(details, list) else (details,):
            if isinstance(entry, dict) and fits(entry, self._limits.depth):
                self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        self._room -= sum(len(value) for value in entry.values() if isinstance(value, str))
        if self._room < 0:
            return
        last = self._entries[-1] if self._entries else None
        same = last is not None and all(last.get(name) == entry.get(name) for name in ("type", "index"))
        if last is None or not same or "data" in entry or (last.get("signature") and entry.get("text")):
            self._join_pieces()
            last = dict.fromkeys(entry)
            self._entries.append(last)
        for name, value in entry.items():
            if name in _GROWING and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
                last.setdefault(name, None)
            elif value is not None or name not in last:
                last[name] = value

    def _join_pieces(self) -> None:
        for name, pieces in self._pieces.items():
            self._entries[-1][name] = whole("".join(pieces))
        self._pieces.clear()

    def close(self) -> list[SourceEvent]:
        """Return an event with the details of the turn, if there are any."""
        self._join_pieces()
        entries = [{name: value for name, value in entry.items() if value is not None} for entry in self._entries]
        self._entries = []
        fits_in = entries and self._room >= 0
        return [ReasoningDelta("", own={"openai": {"reasoning_details": entries}})] if fits_in else []


def _shaped(value: Any) -> tuple[_CompletionChunk, dict[str, Any], bool]:
    """Return a decoded value as a chunk, with the fields of the deltas in the first choice.

    The third value tells whether an object, or a list of objects, has another type than expected.
    """
    known = value if isinstance(value, dict) else {}
    listed, news = known.get("choices"), dict[str, Any]()
    strays = known is not value or not isinstance(listed, list | None)
    choices: list[_Choice] = []
    for entry in listed if isinstance(listed, list) else ():
        given = entry if isinstance(entry, dict) else {}
        choice = _Choice(**{name: given[name] for name in _OF_CHOICES if name in given})
        for name in ("delta", "message"):
            if isinstance(delta := given.get(name), dict):
                setattr(choice, name, _Delta(**{key: delta[key] for key in delta if key in _KNOWN}))
                news |= {} if choice.index else delta
            strays = strays or not isinstance(delta, dict | None)
        strays = strays or given is not entry
        choices += [choice] if given is entry else []
    chunk = _CompletionChunk(**{name: known[name] for name in _OF_CHUNKS if name in known})
    chunk.choices = choices if strays or listed is not None else None
    return chunk, news, strays
