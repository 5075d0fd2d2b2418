"""Which provider's stream this is, by its first event. Sans-IO.

Each format shows itself in the first event that says anything: by the event's name, by its `type`, or by a key that no
other format has at that place. Comments, pings and events without data say nothing and are waited over; what arrives
meanwhile is kept, and read by the adapter that is chosen as if it had been there from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamtools.events import SourceError, SourceEvent
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Adapter, decode
from streamtools.sources.frames import Frame, Framed, LineDecoder, SSEDecoder
from streamtools.sources.objects import as_frame

_ENOUGH = 64 * 1024
"""Bytes, or objects, that are looked at; what then has shown nothing is read as the format that most servers speak."""

_BY_NAME = {"latitude-event": "latitude", "provider-event": "latitude"}
_BY_TYPE = {
    **_BY_NAME,
    "event": "latitude",  # of a proxy, around one of Latitude's
    **dict.fromkeys(("message_start", "message_delta", "message_stop"), "anthropic"),
    **dict.fromkeys(("content_block_start", "content_block_delta", "content_block_stop"), "anthropic"),
    **dict.fromkeys(("start", "start-step", "text-start", "reasoning-start", "tool-input-start", "abort"), "ai_sdk"),
    **dict.fromkeys(("text-delta", "reasoning-delta", "tool-input-available", "finish"), "ai_sdk"),
}
_BY_KEY = {
    "choices": "openai",
    "candidates": "gemini",
    "promptFeedback": "gemini",
    "usageMetadata": "gemini",
    "event_type": "gemini",  # of its interactions
    "done": "ollama",
}


class Undecided(Adapter):
    """Chooses one of `adapters`, and is that one from then on. `content_type` is what the response declares, if any."""

    def __init__(
        self,
        adapters: Mapping[str, Callable[[Limits], Adapter]],
        content_type: str = "",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._adapters = adapters
        self._limits = limits
        self._chosen: Adapter | None = None
        self._waiting: list[object] = []
        self._seen = 0
        self._frames: SSEDecoder | LineDecoder | None = None
        self._lines = False  # there were lines of JSON, though none that shows whose
        media = content_type.partition(";")[0].strip().lower()
        if "ndjson" in media or "jsonl" in media:
            self._choose("ollama")

    @property
    def ended(self) -> bool:
        return self._chosen is not None and self._chosen.ended

    def take(self, item: object) -> list[SourceEvent]:
        if self._chosen is not None:
            return self._chosen.take(item)
        self._waiting.append(item)
        name = self._recognise(self._look_at(item))
        if name is None and self._seen < _ENOUGH:
            return []
        return self._choose(name or self._fallback)

    def close(self, cause: str | None = None) -> list[SourceEvent]:
        name = self._recognise([] if self._frames is None else self._frames.close())
        events = self._choose(name or self._fallback)
        return events + self._adapter.close(cause)

    def fail(self, error: SourceError) -> list[SourceEvent]:
        events = self._choose(self._fallback)
        return events + self._adapter.fail(error)

    @property
    def _adapter(self) -> Adapter:
        assert self._chosen is not None
        return self._chosen

    @property
    def _fallback(self) -> str:
        """The format of a stream that has shown nothing: an error, most likely, in the framing that it came in."""
        if not isinstance(self._frames, LineDecoder):
            return "openai"
        return "ollama" if self._lines else "gemini"  # whose errors stand on many lines

    def _choose(self, name: str) -> list[SourceEvent]:
        """Choose, unless that has been done, and return what the chosen one makes of what has waited."""
        if self._chosen is not None:
            return []
        self._chosen = chosen = self._adapters[name](self._limits)
        waiting, self._waiting = self._waiting, []
        return [event for item in waiting for event in chosen.take(item)]

    def _look_at(self, item: object) -> list[Framed]:
        """Return the frames that `item` completes."""
        if not isinstance(item, bytes | bytearray | memoryview):
            self._seen += 1
            frame = as_frame(item)
            return [] if frame is None else [frame]
        chunk = bytes(item)
        self._seen += len(chunk)
        if self._frames is None:
            if not chunk.strip():
                return []
            lines = chunk.lstrip().startswith(b"{")  # no line of server-sent events begins so
            self._frames = LineDecoder(self._limits.frame) if lines else SSEDecoder(self._limits.frame)
        return self._frames.feed(chunk)

    def _recognise(self, frames: Iterable[Framed]) -> str | None:
        """Return the name of the first of `frames` that shows one."""
        for frame in frames:
            if isinstance(frame, Frame) and (name := self._name(frame)):
                return name
        return None

    def _name(self, frame: Frame) -> str | None:
        if frame.event in _BY_NAME:
            return _BY_NAME[frame.event]
        try:
            value: Any = decode(frame.data)
        except ValueError:
            return None
        if not isinstance(value, dict):
            return None
        self._lines = True
        return _name(value)


def _name(value: dict[str, Any]) -> str | None:
    """Return the name of the format that an event is of, or None if it does not show it."""
    kind = value.get("type")
    if isinstance(kind, str):
        if kind.startswith("response."):
            return "responses"
        if kind in _BY_TYPE:
            return _BY_TYPE[kind]
    if isinstance(value.get("message"), dict):
        return "ollama"
    return next((name for key, name in _BY_KEY.items() if key in value), None)
