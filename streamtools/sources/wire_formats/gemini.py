"""Reads Gemini's `streamGenerateContent?alt=sse`, from Google's API and from Vertex. Sans-IO.

`interactions.py` reads the events of the Interactions API.

Peculiarities of the format:

- The finish reason is STOP even if the turn has calls. Some servers send STOP with every chunk. A later reason other
  than STOP replaces it. STOP may also arrive before code that Google runs. The answer then continues after the result
  of the code. The format has no terminator.
- Without `alt=sse`, the chunks are the elements of one JSON array, and the array arrives in pieces.
- Usually, one part holds a whole call. Vertex can also stream a call in pieces: first its name, then values with paths
  (`partial_args.py`). The last piece is the first piece without `willContinue`. If a new call begins before that piece,
  the earlier call was cut off.
- Errors in mid-stream are bare JSON without `data:`. A response to a blocked prompt has no candidates.
- Every chunk repeats the usage of the response up to then. The adapter reports it once, at the end.
"""

from __future__ import annotations

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
from streamtools.sources.adapter import UNREADABLE, Frame
from streamtools.sources.provider_terms import object_in, read_usage, text_in
from streamtools.sources.wire_formats.interactions import Interactions
from streamtools.sources.wire_formats.partial_args import CallOfValues

_FORMAT = "gemini"
_KNOWN = {"candidates", "usageMetadata", "promptFeedback", "modelVersion", "responseId", "createTime", "modelStatus"}
_PLAIN = {"text", "thought", "thoughtSignature"}
_AS_SENT = str.maketrans("-_", "+/")  # the API sends signatures in standard base64; the SDK uses URL-safe base64
_EXECUTED = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
_METADATA = ("groundingMetadata", "citationMetadata", "urlContextMetadata")
_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"


class Gemini(Interactions):
    """Converts chunks of generated content, or events of the Interactions API, into source events."""

    name = "gemini"
    format = _FORMAT
    reads_documents = True

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(limits)
        self._reason: str | None = None
        self._blocked: str | None = None  # why the prompt was blocked
        self._tokens: dict[str, Any] = {}  # the latest value of each field of the usage
        self._call: CallOfValues | None = None
        self._calls = 0

    @property
    def ended(self) -> bool:
        return self._over or (self._reason or self._blocked or self._status) is not None

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if frame.data.startswith(b"[DONE]"):  # Gemini never sends it, but a proxy may add it
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
        elif isinstance(value, dict) and not _KNOWN.isdisjoint(value):
            self._read_chunk(value, events)
        else:
            self._pass_not_understood(frame, value, events)

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
        executed = ""
        for part in parts if isinstance(parts, list) else (parts,):
            if isinstance(part, dict):
                executed = next((name for name in _EXECUTED if part.get(name)), executed)
                self._read_part(part, events)
            elif part is not None:
                self._pass_raw(part, events)
        for name in _METADATA:
            if candidate.get(name):
                self._pass_raw({name: candidate[name]}, events)
        reason = candidate.get("finishReason")
        if candidate.get("finishMessage"):
            self._pass_raw({"finishReason": reason, "finishMessage": candidate["finishMessage"]}, events)
        if executed and self._reason == "STOP":  # it ended the text before the executed code; the model continues
            self._reason = None
        if reason and isinstance(reason, str | int) and (reason, executed) != ("STOP", "executableCode"):
            self._finish(str(reason))

    def _read_part(self, part: dict[str, Any], events: list[SourceEvent]) -> None:
        text, call, signature = part.get("text"), part.get("functionCall"), text_in(part, "thoughtSignature")
        if signature:
            signature = signature.translate(_AS_SENT)
        rest = {name: value for name, value in part.items() if name not in _PLAIN and value is not None}
        if isinstance(call, dict):
            self._read_call(call, signature, events)
        elif isinstance(text, str) or (signature and not rest):
            (self._think if part.get("thought") else self._read_text)(text, events, signature)
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
        self._say(text, events)
        events += [SourceRaw({"thoughtSignature": signature}, _FORMAT, "text")] if signature else []

    def _read_call(self, piece: dict[str, Any], signature: str | None, events: list[SourceEvent]) -> None:
        """Append the events of a whole call or of a piece of a call.

        No other call comes between the pieces of a call. Only the first piece has a name.
        """
        name, id, values = text_in(piece, "name"), text_in(piece, "id"), piece.get("partialArgs")
        goes_on, given = bool(piece.get("willContinue")), piece.get("args")
        call = self._call
        if call is None or name is not None:
            if not goes_on and values in (None, []):
                self._call = None
                if name is not None or id is not None or given is not None:
                    self._calls += 1
                    events.append(NativeToolCall(str(self._calls), name, given, id, signature=signature))
                return
            self._calls += 1
            call = self._call = CallOfValues(str(self._calls), name, self._limits)
            events.append(ToolCallStart(call.key, id, name))
        elif id is not None and call.id is None:
            events.append(ToolCallStart(call.key, id))
        call.id = call.id or id
        call.signature = call.signature or signature
        call.given = call.given if given is None else given
        text = ""
        if isinstance(values, list):
            text = "".join(map(call.arguments.write, values))
        elif values is not None:
            call.fault = Code.INVALID_ARGUMENTS
            self._pass_raw({"functionCall": piece}, events)
        if not goes_on:
            text += call.arguments.close()
        if text:
            events.append(ToolCallDelta(call.key, text))
        if not goes_on:
            call.end(call.arguments.value if call.given is None else call.given, events)
            self._call = None

    def _add_executed(
        self, name: str | None, arguments: Any, id: Any, signature: str | None, part: Any, events: list[SourceEvent]
    ) -> None:
        """Append a call that Google has run. Another part holds its result, which is forwarded unchanged."""
        self._calls += 1
        id = id if isinstance(id, str) else None
        own = {_FORMAT: part} if fits(part, self._limits.depth) else None
        self._pass_call(NativeToolCall(str(self._calls), name, arguments, id, True, signature, own=own), events)

    def _finish(self, reason: str) -> None:
        if self._reason in (None, "STOP") and reason != _UNSPECIFIED:
            self._reason = reason

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
