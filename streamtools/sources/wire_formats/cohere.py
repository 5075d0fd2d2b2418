"""Reads the streams of Cohere's chat API, version 2. Sans-IO.

Content, calls and citations have an index. Each of them starts, grows and ends. The data of a delta is in
`delta.message`, which has one field at a time. The plan that a model writes before its calls becomes reasoning.
Citations are forwarded unchanged. `message-end` holds the finish reason and the usage. A `[DONE]` after this event is
ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.events import SourceEvent
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Frame, FrameAdapter, OpenCall, SSEDecoder, end_doubtful
from streamtools.sources.provider_terms import bounded, object_in, read_fault, read_usage, text_in

_IGNORED = ("content-end", "citation-end", "ping")


class Cohere(FrameAdapter):
    """Converts the SSE events of a chat into source events. `message-end` ends the response."""

    name = "cohere"
    format = "cohere"
    endpoint = "/v2/chat"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._calls: dict[Any, OpenCall] = {}  # open calls, by index

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if (value := self._decode_object(frame, events)) is None:
            return
        kind = value["type"] if isinstance(value.get("type"), str) else frame.event
        if not self._convert(kind, value, events):
            self._report_or_pass(frame, value, events)

    def _convert(self, kind: str, value: dict[str, Any], events: list[SourceEvent]) -> bool:
        """Append the source events of an event. Returns False if the event is not understood."""
        delta = object_in(value, "delta")
        message = object_in(delta, "message")
        index = value["index"] if isinstance(value.get("index"), int) else None
        match kind:
            case "content-start" | "content-delta":
                content = message.get("content")
                if not isinstance(content, dict):
                    return False
                text, thought = content.get("text"), content.get("thinking")
                self._add_reasoning(thought, events)
                self._add_text(text, events)
                return isinstance(text, str) or isinstance(thought, str)
            case "tool-plan-delta":
                self._add_reasoning(message.get("tool_plan"), events)
                return isinstance(message.get("tool_plan"), str)
            case "tool-call-start" | "tool-call-delta":
                return self._start_or_extend_call(index, kind == "tool-call-start", message.get("tool_calls"), events)
            case "tool-call-end":
                if (call := self._calls.pop(index, None)) is not None:
                    call.close(events, self._limits)
            case "message-start":
                self._name_response(value.get("id"), None)
            case "message-end":
                self._finish(delta, events)
            case _:
                return kind in _IGNORED
        return True

    def _start_or_extend_call(self, index: int | None, starts: bool, entry: Any, events: list[SourceEvent]) -> bool:
        """Append the start or a piece of a call. Returns False if the event is not understood.

        `starts` is True for `tool-call-start`. `entry` is the value of `tool_calls`.
        """
        entry = entry[0] if isinstance(entry, list) and entry else entry
        function = object_in(entry, "function") if isinstance(entry, dict) else {}
        piece = function.get("arguments")
        if starts and isinstance(entry, dict):
            call = OpenCall(self._new_key(), text_in(entry, "id"), text_in(function, "name"))
            if not self._open_call(self._calls, index, call, events):
                return True
        if (open_call := self._calls.get(index)) is not None and isinstance(piece, str):
            open_call.add(piece, events)
            return True
        if piece is not None or not function:  # the lost piece may belong to an open call
            end_doubtful(self._calls, index, events)
        return starts and piece is None and isinstance(entry, dict)

    def _finish(self, delta: dict[str, Any], events: list[SourceEvent]) -> None:
        reason = text_in(delta, "finish_reason")
        usage = read_usage(delta.get("usage"))
        if (error := text_in(delta, "error")) is not None:
            self._report_usage(usage, events)
            cause = bounded(reason or "", 100) or None
            self._fail(msgspec.structs.replace(read_fault(error), cause=cause), events)
            return
        self._flush(events)
        self._complete_response(reason, usage, events)
