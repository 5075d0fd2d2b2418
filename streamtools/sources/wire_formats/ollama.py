"""Ollama's `/api/chat`: one JSON object a line, in its native shape.

A line of plain text or thinking is decoded into a shape that allows nothing else of a message; whatever does not fit is
read as it is. Calls are whole and their arguments are objects; ids may be missing, and `index` is not to be relied on,
so a call is known by its place. `done: true` ends the stream, and a stream without it was cut off. The reason stays
"stop" where tools are called. An error is a line of its own, with a response that had begun well.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.events import NativeToolCall, SourceEvent, TextDelta
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import REFUSED, UNREADABLE, FrameAdapter
from streamtools.sources.frames import Frame, LineDecoder
from streamtools.sources.provider_terms import bounded, finish_reason, read_fault, read_usage, text_in

_USAGE = {"input": ("prompt_eval_count",), "output": ("eval_count",)}


class _Message(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    role: Any = None
    content: str = ""
    thinking: str = ""
    tool_calls: None = None
    images: None = None


class _Line(msgspec.Struct, gc=False):
    message: _Message
    model: Any = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: Any = None
    eval_count: Any = None
    error: None = None


_FIELDS = frozenset(_Message.__struct_fields__)
_decode = msgspec.json.Decoder(_Line).decode


class Ollama(FrameAdapter):
    """Lines of a chat into source events."""

    name = "ollama"
    format = "ollama"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(LineDecoder(limits.frame), limits)
        self._calls = 0

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        try:
            line = _decode(frame.data)
        except REFUSED:
            if (value := self._decode(frame, events)) is not UNREADABLE:
                self._read_slowly(frame, value, events)
            return
        message = line.message
        if message.thinking:
            self._think(message.thinking, events)
        if message.content:
            events.append(TextDelta(self._text.join(message.content) if self._text.half else message.content))
        if line.done:
            self._finish(line.done_reason, msgspec.to_builtins(line), events)

    def _read_slowly(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Read a line that is more, or something else, than text."""
        if not isinstance(value, dict):
            self._pass_strange(frame, value, events)
            return
        message = value.get("message")
        if isinstance(message, dict):
            self._read_message(message, events)
        elif message is not None or "response" in value or not (value.get("done") or value.get("error")):
            self._pass_strange(frame, value, events)
        if value.get("error"):
            fault = read_fault(value["error"])
            if where := text_in(value, "signin_url"):
                fault = fault._replace(message=bounded(f"{fault.message}; sign in at {where}"))
            self._fail(fault, events)
        elif value.get("done") is True:
            if message is None and (foreign := self._foreign(events)) is not None:
                self._fail(foreign, events)
                return
            reason = value.get("done_reason")
            self._finish(reason if isinstance(reason, str) else None, value, events)

    def _read_message(self, message: dict[str, Any], events: list[SourceEvent]) -> None:
        content, calls = message.get("content"), message.get("tool_calls")
        self._think(message.get("thinking"), events)
        self._say(content, events)
        if content is not None and not isinstance(content, str):
            self._pass_raw(content, events)
        if message.get("images"):
            self._pass_raw({"images": message["images"]}, events)
        self._pass_fields({key: message[key] for key in message if key not in _FIELDS}, events)
        for call in calls if isinstance(calls, list) else (calls,):
            if isinstance(call, dict) and isinstance(function := call.get("function"), dict):
                self._calls += 1
                name, id = text_in(function, "name"), text_in(call, "id")
                events.append(NativeToolCall(str(self._calls), name, function.get("arguments"), id))
            elif call is not None:
                self._pass_raw({"tool_calls": [call]}, events)

    def _finish(self, reason: str | None, counts: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append the end. A reason that is left out is none; one that is empty says that the client had gone."""
        self._flush(events)
        raw = None if reason is None else bounded(reason, 100)
        normalised = "other" if raw == "" else finish_reason(raw)
        usage = read_usage(counts, _USAGE)
        self._name_response(None, counts.get("model"))
        self._complete_response(normalised, raw, usage, events)
        self._over = True
