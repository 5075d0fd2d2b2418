"""Reads Ollama's `/api/chat`, which sends one JSON object per line. Sans-IO.

Each call arrives complete, and its arguments are an object. A call may have no id, and its `index` is unreliable.
Therefore, its position in the stream identifies the call. The line with `done: true` ends the stream. A stream without
this line was cut off. The finish reason is "stop" even if the turn has calls. An error is a separate line, which may
also follow valid lines.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.events import NativeToolCall, SourceEvent
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Frame, FrameAdapter, LineDecoder
from streamtools.sources.provider_terms import bounded, read_fault, read_usage, text_in


class Ollama(FrameAdapter):
    """Converts the lines of a chat into source events."""

    name = "ollama"
    format = "ollama"
    endpoint = "/api/chat"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(LineDecoder(limits.frame), limits)

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if (value := self._decode_object(frame, events)) is None:
            return
        message, done, error = value.get("message"), value.get("done"), value.get("error")
        if isinstance(message, dict):
            self._read_message(message, events)
        elif message is not None or "response" in value or not (done or error):
            self._pass_not_understood(frame, value, events)
        if error:
            fault = read_fault(error)
            if url := text_in(value, "signin_url"):
                fault = msgspec.structs.replace(fault, message=bounded(f"{fault.message}; sign in at {url}"))
            self._fail(fault, events)
        elif done is True:
            if message is None and (wrong_format := self._wrong_format_error(events)) is not None:
                self._fail(wrong_format, events)
                return
            reason = value.get("done_reason")
            self._finish(reason if isinstance(reason, str) else None, value, events)

    def _read_message(self, message: dict[str, Any], events: list[SourceEvent]) -> None:
        content, calls = message.get("content"), message.get("tool_calls")
        self._add_reasoning(message.get("thinking"), events)
        self._add_text(content, events)
        if content is not None and not isinstance(content, str):
            self._pass_raw(content, events)
        if message.get("images"):
            self._pass_raw({"images": message["images"]}, events)
        for call in calls if isinstance(calls, list) else (calls,):
            if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
                name, id = text_in(function, "name"), text_in(call, "id")
                events.append(NativeToolCall(name, function.get("arguments"), self._new_key(), id))
            elif call is not None:
                self._pass_raw({"tool_calls": [call]}, events)

    def _finish(self, reason: str | None, counts: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append the end of the turn.

        If `reason` is None, the normalized reason is "stop". If the client has disconnected, Ollama sends an empty
        string, and the normalized reason is "other".
        """
        self._flush(events)
        self._name_response(None, counts.get("model"))
        is_disconnected = reason is not None and not bounded(reason, 100)
        self._complete_response(reason, read_usage(counts), events, finish="other" if is_disconnected else None)
