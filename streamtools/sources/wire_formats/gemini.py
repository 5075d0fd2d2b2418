"""Reads Gemini's `streamGenerateContent?alt=sse`, from Google's API and from Vertex, and its Interactions API. Sans-IO.

`streamGenerateContent` sends chunks of generated content. They have these peculiarities:

- The finish reason is STOP even if the turn has calls. Some servers send STOP with every chunk. A later reason replaces
  STOP. STOP may also arrive before code that Google runs. The answer then continues after the result of the code. The
  format has no terminator.
- Without `alt=sse`, the response is one JSON array, which is refused.
- Usually, one part holds a whole call. Vertex can also stream a call in pieces: first its name, then values with paths
  (`partial_args.py`). All pieces but the last have `willContinue`. If a new call begins before the last piece, the
  earlier call was cut off.
- Errors in mid-stream are bare JSON without `data:`. A response to a blocked prompt has no candidates.
- Every chunk repeats the usage of the response up to then. The adapter reports the usage once, at the end.

The Interactions API sends events with an `event_type`. A response consists of steps. Each step starts, grows by deltas
and stops. A step is a thought, model output, a function call, or the work of a tool that Google runs. A delta holds the
index of its step. Steps of Google's tools are forwarded whole, and each image as a separate step, because the next
request must contain them. `interaction.completed` is the terminator. Its status is the finish reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamtools.errors import Code
from streamtools.events import (
    FinishReason,
    NativeToolCall,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    ToolCallDelta,
    ToolCallStart,
)
from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import UNREADABLE, Frame, FrameAdapter, GrowingItem, OpenCall, SSEDecoder, end_doubtful
from streamtools.sources.provider_terms import names, object_in, read_usage, text_in
from streamtools.sources.wire_formats.partial_args import PartialArgs

_FORMAT = "gemini"
_CHUNK_KEYS = names("candidates usageMetadata promptFeedback modelVersion responseId createTime modelStatus")
_TEXT_FIELDS = names("text thought thoughtSignature")
# The API sends signatures in standard base64. The SDK converts them to URL-safe base64.
_STANDARD_BASE64 = str.maketrans("-_", "+/")
_EXECUTION_FIELDS = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_METADATA_FIELDS = ("groundingMetadata", "citationMetadata", "urlContextMetadata")
_IGNORED = ("interaction.created", "interaction.status_update")
_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"


class Gemini(FrameAdapter):
    """Converts chunks of generated content, or events of the Interactions API, into source events."""

    name = "gemini"
    format = _FORMAT
    endpoint = "/v1beta/…"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._blocked: str | None = None  # why the prompt was blocked
        self._tokens: dict[str, Any] = {}  # the latest value of each field of the usage
        self._call: OpenCall | None = None  # the call that is arriving in pieces
        self._arguments = PartialArgs(limits)  # the arguments of this call
        # Fields of an interaction.
        self._status: str | None = None  # the status of the completed interaction
        self._steps: dict[str | None, OpenCall] = {}  # open function calls, by the index of their step
        self._hosted: dict[str | None, GrowingItem] = {}  # open steps of Google's tools, by index
        self._room = limits.text  # the number of bytes that these steps may still store

    @property
    def ended(self) -> bool:
        return self._over or (self._reason or self._blocked or self._status) is not None

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if frame.data.startswith(b"[DONE]"):  # Gemini does not send this, but a proxy may add it
            if self.ended:
                self._end(events)
            return
        value = self._decode(frame, events)
        if value is UNREADABLE:
            return
        first = value[0] if isinstance(value, list) and value else value
        if isinstance(first, dict) and first.get("error") and "event_type" not in first:
            self._read_chunk(first, events)
            self._report(first, events)
        elif isinstance(value, dict) and isinstance(value.get("event_type"), str):
            self._read_interaction(value, len(frame.data), events)
        elif frame.event == "error":
            self._report(value, events)
        elif isinstance(value, dict) and not _CHUNK_KEYS.isdisjoint(value):
            self._read_chunk(value, events)
        else:
            self._pass_not_understood(frame, value, events)

    # Methods for generated content.

    def _read_chunk(self, chunk: dict[str, Any], events: list[SourceEvent]) -> None:
        self._name_response(chunk.get("responseId"), chunk.get("modelVersion"))
        candidates = chunk.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict) and not candidate.get("index"):  # only the first answer is read
                self._read_candidate(candidate, events)
            else:
                self._pass_raw({"candidates": [candidate]}, events)
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._blocked = self._blocked or str(feedback["blockReason"])
            self._pass_raw({"promptFeedback": feedback}, events)
        self._tokens |= object_in(chunk, "usageMetadata")

    def _read_candidate(self, candidate: dict[str, Any], events: list[SourceEvent]) -> None:
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else content
        executed = ""  # the field of the last part about code or a tool that Google runs
        for part in parts if isinstance(parts, list) else (parts,):
            if isinstance(part, dict):
                executed = next((name for name in _EXECUTION_FIELDS if part.get(name)), executed)
                self._read_part(part, events)
            elif part is not None:
                self._pass_raw(part, events)
        for name in _METADATA_FIELDS:
            if candidate.get(name):
                self._pass_raw({name: candidate[name]}, events)
        reason = candidate.get("finishReason")
        if candidate.get("finishMessage"):
            self._pass_raw({"finishReason": reason, "finishMessage": candidate["finishMessage"]}, events)
        if executed and self._reason == "STOP":  # this STOP ended only the text before the executed code
            self._reason = None
        # STOP together with executable code does not end the answer. A finish reason replaces only STOP.
        is_reason = isinstance(reason, str | int) and reason and reason != _UNSPECIFIED
        if is_reason and (reason, executed) != ("STOP", "executableCode") and self._reason in (None, "STOP"):
            self._reason = str(reason)

    def _read_part(self, part: dict[str, Any], events: list[SourceEvent]) -> None:
        text, call, signature = part.get("text"), part.get("functionCall"), text_in(part, "thoughtSignature")
        if signature:
            signature = signature.translate(_STANDARD_BASE64)
        rest = {name: value for name, value in part.items() if name not in _TEXT_FIELDS and value is not None}
        if isinstance(call, dict):
            self._read_call(call, signature, events)
        elif isinstance(text, str) or (signature and not rest):
            (self._add_reasoning if part.get("thought") else self._read_text)(text, events, signature)
            if rest:
                self._pass_raw(rest, events)
        elif isinstance(code := part.get("executableCode"), dict):
            self._add_executed("code_execution", code, code.get("id"), signature, part, events)
        elif isinstance(tool := part.get("toolCall"), dict):
            self._add_executed(text_in(tool, "toolType"), tool.get("args"), tool.get("id"), signature, part, events)
        elif rest or text:
            self._pass_item(part, events)

    def _read_text(self, text: Any, events: list[SourceEvent], signature: str | None) -> None:
        """Append the events of a text part. Empty `raw` data separates a signed part from the text before it."""
        events += [SourceRaw({}, _FORMAT, "text")] if signature else []
        self._add_text(text, events)
        events += [SourceRaw({"thoughtSignature": signature}, _FORMAT, "text")] if signature else []

    def _read_call(self, piece: dict[str, Any], signature: str | None, events: list[SourceEvent]) -> None:
        """Append the events of a whole call or of a piece of a call.

        No other call comes between the pieces of a call. Only the first piece has a name.
        """
        name, id, values = text_in(piece, "name"), text_in(piece, "id"), piece.get("partialArgs")
        continues, given = bool(piece.get("willContinue")), piece.get("args")
        call = self._call
        if call is None or name is not None:
            if not continues and values in (None, []):
                self._call = None
                if name is not None or id is not None or given is not None:
                    events.append(NativeToolCall(name, given, self._new_key(), id, signature=signature))
                return
            call = self._call = OpenCall(self._new_key(), name=name)
            self._arguments = PartialArgs(self._limits)
            events.append(ToolCallStart(call.key, id, name))
        elif id is not None and call.id is None:
            events.append(ToolCallStart(call.key, id))
        call.id = call.id or id
        call.signature = call.signature or signature
        call.given = call.given if given is None else given
        text = ""
        if isinstance(values, list):
            text = "".join(map(self._arguments.write, values))
        elif values is not None:
            call.fault = Code.INVALID_ARGUMENTS
            self._pass_raw({"functionCall": piece}, events)
        if self._arguments.is_invalid:
            call.fault = Code.INVALID_ARGUMENTS
        if not continues:
            text += self._arguments.close()
        if text:
            events.append(ToolCallDelta(call.key, text))
        if not continues:
            call.end(call.given, events)
            self._call = None

    def _add_executed(
        self, name: str | None, arguments: Any, id: Any, signature: str | None, part: Any, events: list[SourceEvent]
    ) -> None:
        """Append a call that Google has run. Another part holds its result. That part is forwarded unchanged."""
        id = id if isinstance(id, str) else None
        own = {_FORMAT: part} if fits(part, self._limits.depth) else None
        call = NativeToolCall(name, arguments, self._new_key(), id, True, signature, own=own)
        self._pass(call, arguments, events)

    # Methods for interactions.

    def _read_interaction(self, value: dict[str, Any], size: int, events: list[SourceEvent]) -> None:
        """Append the source events of `value`, an event of an interaction. `size` is its size in bytes."""
        self.format = "interactions"
        kind, interaction, step = value.get("event_type"), object_in(value, "interaction"), value.get("step")
        index = None if value.get("index") is None else str(value["index"])
        self._usage = read_usage(interaction.get("usage", value.get("usage"))) or self._usage
        self._name_response(interaction.get("id"), interaction.get("model"))
        if kind == "error" or (kind == "interaction.completed" and interaction.get("status") == "failed"):
            self._report(value.get("error") or interaction.get("error"), events)
        elif kind == "interaction.completed":
            self._status = self._status or text_in(interaction, "status") or "completed"
            for index in [*self._hosted]:
                self._end_hosted(index, events)
            self._end(events)
        elif kind == "step.start" and isinstance(step, dict):
            self._start_step(index, step, value, size, events)
        elif kind == "step.delta":
            self._add_to_step(index, object_in(value, "delta"), value, size, events)
        elif kind == "step.stop":
            if (call := self._steps.pop(index, None)) is not None:
                call.close(events, self._limits)
            self._end_hosted(index, events)
        elif kind not in _IGNORED:
            self._pass_raw(value, events)

    def _start_step(
        self, index: str | None, step: dict[str, Any], value: Any, size: int, events: list[SourceEvent]
    ) -> None:
        signature, given = text_in(step, "signature"), step.get("arguments")
        self._end_hosted(index, events)
        match step.get("type"):
            case "function_call":
                given = None if given in ("", {}) else given  # Google sends {} if the arguments arrive in deltas
                call = OpenCall(self._new_key(), text_in(step, "id"), text_in(step, "name"), given, signature)
                self._open_call(self._steps, index, call, events)
            case "thought":
                self._add_reasoning("".join(_texts(step.get("summary"))), events, signature)
            case "model_output":
                content = step.get("content")
                for part in content if isinstance(content, list) else (content,):
                    if isinstance(part, dict) and part.get("type") == "image" and (part.get("data") or part.get("uri")):
                        self._pass_item({"type": "model_output", "content": [part]}, events)
                    for text in _texts(part):
                        self._add_text(text, events)
            case str() if size <= self._room and len(self._hosted) < self._limits.calls:
                self._room -= size
                self._hosted[index] = GrowingItem(step)
            case _:
                self._pass_raw(value, events)

    def _add_to_step(
        self, index: str | None, delta: dict[str, Any], value: Any, size: int, events: list[SourceEvent]
    ) -> None:
        call, signature, arguments = self._steps.get(index), text_in(delta, "signature"), delta.get("arguments")
        hosted = self._hosted.get(index)
        match delta.get("type"):
            case "text" if isinstance(delta.get("text"), str):
                self._add_text(delta["text"], events)
            case "thought_summary":
                self._add_reasoning("".join(_texts(delta.get("content"))), events)
            case "thought_signature" if call is not None:
                call.signature = signature
            case "thought_signature":
                self._add_reasoning("", events, signature)
            case "arguments_delta" if call is not None and isinstance(arguments, str):
                call.add(arguments, events)
            case "image" if delta.get("data") or delta.get("uri"):
                self._pass_item({"type": "model_output", "content": [delta]}, events)
            case kind if hosted is not None and kind == hosted.data["type"] and size <= self._room:
                self._room -= size
                hosted.add(delta)
            case other:
                if arguments is not None or not isinstance(other, str):
                    end_doubtful(self._steps, index, events)
                if hosted is not None and other == hosted.data["type"]:  # the step would exceed the limit
                    self._pass_raw(self._hosted.pop(index).whole(), events)
                self._pass_raw(value, events)

    def _end_hosted(self, index: str | None, events: list[SourceEvent]) -> None:
        if (hosted := self._hosted.pop(index, None)) is not None:
            self._pass_item(hosted.whole(), events)

    # Methods for the end of the stream.

    def _end(self, events: list[SourceEvent]) -> None:
        self._flush(events)
        if not self.ended:
            return
        reason = self._status or self._reason
        finish: FinishReason | None = None if reason else "content_filter"
        self._complete_response(reason or self._blocked or "", self._usage, events, finish=finish)

    def _flush(self, events: list[SourceEvent]) -> None:
        super()._flush(events)
        self._usage = read_usage(self._tokens) or self._usage
        if self._usage is not None:
            events.append(SourceUsage(self._usage))


def _texts(content: Any) -> Iterator[str]:
    """Yield the text of each content part. `content` is one part or a list of parts."""
    for part in content if isinstance(content, list) else (content,):
        if isinstance(part, dict) and (text := text_in(part, "text")):
            yield text
