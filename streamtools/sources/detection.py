"""Finds adapters by name, or by the first event of a stream. Sans-IO.

Comments, pings and events without data do not show the format of a stream. Data is buffered until an event shows the
format, up to a limit. The chosen adapter then reads the buffered data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from typing import Any

from streamtools.events import SourceError, SourceEvent
from streamtools.json_values import decode
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Adapter, Frame, FrameAdapter, Framed, LineDecoder, SSEDecoder, as_frame
from streamtools.sources.event_formats import format_of

_MAX_SEARCHED = 64 * 1024
"""The maximum number of bytes or objects that are searched for a format. Then a default format is used."""


def _load(module: str, name: str, limits: Limits) -> FrameAdapter:
    """Import `module` and create its adapter. A process imports only the formats it reads."""
    adapter: FrameAdapter = getattr(import_module(f"streamtools.sources.wire_formats.{module}"), name)(limits)
    return adapter


ADAPTERS: dict[str, Callable[[Limits], FrameAdapter]] = {
    "openai": partial(_load, "openai", "ChatCompletions"),
    "responses": partial(_load, "responses", "Responses"),
    "anthropic": partial(_load, "anthropic", "Anthropic"),
    "gemini": partial(_load, "gemini", "Gemini"),
    "ollama": partial(_load, "ollama", "Ollama"),
    "ai_sdk": partial(_load, "ai_sdk", "AISDKMessages"),
    "latitude": partial(_load, "latitude", "Latitude"),
    "bedrock": partial(_load, "bedrock", "Bedrock"),
    "cohere": partial(_load, "cohere", "Cohere"),
}
"""Functions that create the adapters of byte streams, by format name. Recordings contain these names."""


class Undecided(Adapter):
    """Detects the format of a stream and passes its data to the adapter of this format.

    `content_type` is the `Content-Type` of the response, or an empty string.
    """

    def __init__(self, content_type: str = "", limits: Limits = DEFAULT_LIMITS) -> None:
        self.content_type = content_type
        self._limits = limits
        self._chosen: Adapter | None = None
        self._waiting: list[object] = []  # the items that arrived before the choice
        self._seen = 0  # the number of bytes or objects in these items
        self._frames: SSEDecoder | LineDecoder | None = None  # None until bytes have arrived
        self._has_objects = False  # a JSON object has arrived

    @property
    def ended(self) -> bool:
        return self._chosen is not None and self._chosen.ended

    @property
    def format(self) -> str | None:  # type: ignore[override]  # a class attribute in other adapters
        """The format of the chosen adapter."""
        return None if self._chosen is None else self._chosen.format

    def take(self, item: object) -> list[SourceEvent]:
        if self._chosen is not None:
            return self._chosen.take(item)
        self._waiting.append(item)
        media = self.content_type.lower()
        name: str | None
        if "ndjson" in media or "jsonl" in media:
            name = "ollama"
        elif "amazon.eventstream" in media or (
            self._frames is None and isinstance(item, bytes | bytearray) and item.startswith(b"\0")
        ):  # NUL is the first byte of the length of a binary message
            name = "bedrock"
        else:
            name = self._detect(self._read_frames(item))
        return [] if name is None and self._seen < _MAX_SEARCHED else self._choose(name)[1]

    def close(self, cause: str | SourceError | None = None) -> list[SourceEvent]:
        chosen, events = self._choose(self._detect([] if self._frames is None else self._frames.close()))
        return events + chosen.close(cause)

    def _choose(self, name: str | None) -> tuple[Adapter, list[SourceEvent]]:
        """Choose the adapter, unless it was chosen before. Returns the adapter and the events of the buffered items.

        `name` is None if the format was not recognized. The stream is then probably an error, and the framing decides
        which adapter reads it.
        """
        if self._chosen is not None:
            return self._chosen, []
        if name is None:
            name = "openai"
            if isinstance(self._frames, LineDecoder):
                name = "ollama" if self._has_objects else "gemini"  # errors of Gemini span several lines
        self._chosen = chosen = ADAPTERS[name](self._limits)
        chosen.content_type = self.content_type
        waiting, self._waiting = self._waiting, []
        return chosen, [event for item in waiting for event in chosen.take(item)]

    def _read_frames(self, item: object) -> list[Framed]:
        """Return the frames that `item` completes. They are used only to detect the format."""
        if not isinstance(item, bytes | bytearray | memoryview):
            self._seen += 1
            frame = as_frame(item)
            return [] if frame is None else [frame]
        chunk = bytes(item)
        self._seen += len(chunk)
        if self._frames is None:
            if not chunk.strip():
                return []
            is_ndjson = chunk.lstrip().startswith(b"{")  # no server-sent event begins with a brace
            self._frames = LineDecoder(self._limits.frame) if is_ndjson else SSEDecoder(self._limits.frame)
        return self._frames.feed(chunk)

    def _detect(self, frames: Iterable[Framed]) -> str | None:
        """Return the name of the first format that a frame shows, or None."""
        return next((name for frame in frames if isinstance(frame, Frame) and (name := self._format_in(frame))), None)

    def _format_in(self, frame: Frame) -> str | None:
        try:
            value: Any = decode(frame.data)
        except ValueError:
            if frame.data.startswith(b"[DONE]"):  # the stream has no event
                return "openai"
            value = None
        self._has_objects = self._has_objects or isinstance(value, dict)
        return format_of(frame.event, value)
