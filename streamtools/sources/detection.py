"""Which provider's stream this is, by its first event, and whose a finished response, by its keys. Sans-IO.

Each format shows itself in the first event that says anything (`format_of`). Comments, pings and events without data
say nothing and are waited over; what arrives meanwhile is kept, and read by the adapter that is chosen as if it had
been there from the start.

A finished response, which a provider sends without streaming, is shaped into the events that its provider would have
streamed, and its adapter reads those; only its calls, which `take_apart` finds for `ToolRegistry.process_tool_calls`
too, are read one by one, so that one that is no call hides none of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from streamtools.events import SourceError, SourceEvent
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Adapter, FrameAdapter, decode
from streamtools.sources.event_formats import format_of
from streamtools.sources.frames import Frame, Framed, LineDecoder, SSEDecoder
from streamtools.sources.sdk_objects import as_frame

_ENOUGH = 64 * 1024
"""Bytes, or objects, that are looked at; what then has shown nothing is read as the format that most servers speak."""

_BY_FIRST = {b"[": "gemini", b"\0": "bedrock"}
"""Formats that the first byte shows: one array of chunks, and the length of a binary message."""


def _reads(module: str, name: str) -> Callable[[Limits], FrameAdapter]:
    """Return what makes an adapter. Its module is imported for the first one: a process reads few of the formats."""

    def make(limits: Limits) -> FrameAdapter:
        adapter: FrameAdapter = getattr(import_module(f"streamtools.sources.wire_formats.{module}"), name)(limits)
        return adapter

    return make


ADAPTERS: dict[str, Callable[[Limits], FrameAdapter]] = {
    "openai": _reads("openai", "ChatCompletions"),
    "responses": _reads("responses", "Responses"),
    "anthropic": _reads("anthropic", "Anthropic"),
    "gemini": _reads("gemini", "Gemini"),
    "ollama": _reads("ollama", "Ollama"),
    "ai_sdk": _reads("ai_sdk", "AISDKMessages"),
    "latitude": _reads("latitude", "Latitude"),
    "bedrock": _reads("bedrock", "Bedrock"),
    "cohere": _reads("cohere", "Cohere"),
}
"""The adapters of byte streams, by the name under which a recording asks for them."""


class Undecided(Adapter):
    """Chooses one of the adapters, and is that one from then on. `content_type` is what the response declares."""

    reads_documents = True

    def __init__(self, content_type: str = "", limits: Limits = DEFAULT_LIMITS) -> None:
        self.content_type = content_type
        self._limits = limits
        self._chosen: Adapter | None = None
        self._waiting: list[object] = []
        self._seen = 0
        self._frames: SSEDecoder | LineDecoder | None = None
        self._lines = False  # there were lines of JSON, though none that shows whose
        media = content_type.partition(";")[0].strip().lower()
        if "ndjson" in media or "jsonl" in media:
            self._choose("ollama")
        elif media == "application/vnd.amazon.eventstream":
            self._choose("bedrock")

    @property
    def ended(self) -> bool:
        return self._chosen is not None and self._chosen.ended

    @property
    def format(self) -> str | None:  # type: ignore[override]  # of others it is known from the start
        """That of the adapter that was chosen."""
        return None if self._chosen is None else self._chosen.format

    def take(self, item: object) -> list[SourceEvent]:
        if self._chosen is not None:
            return self._chosen.take(item)
        self._waiting.append(item)
        begun = item.lstrip()[:1] if self._frames is None and isinstance(item, bytes | bytearray) else b""
        name = _BY_FIRST.get(bytes(begun)) or self._recognise(self._look_at(item))
        return [] if name is None and self._seen < _ENOUGH else self._choose(name)[1]

    def close(self, cause: str | None = None) -> list[SourceEvent]:
        chosen, events = self._choose(self._recognise([] if self._frames is None else self._frames.close()))
        return events + chosen.close(cause)

    def fail(self, error: SourceError) -> list[SourceEvent]:
        chosen, events = self._choose(None)
        return events + chosen.fail(error)

    def _choose(self, name: str | None) -> tuple[Adapter, list[SourceEvent]]:
        """Return the adapter that is or was chosen, and what it makes of what has waited.

        A stream that has shown no `name` is an error, most likely, in the framing that it came in.
        """
        if self._chosen is not None:
            return self._chosen, []
        if name is None:
            name = "openai"
            if isinstance(self._frames, LineDecoder):
                name = "ollama" if self._lines else "gemini"  # whose errors stand on many lines
        self._chosen = chosen = ADAPTERS[name](self._limits)
        chosen.content_type = self.content_type
        waiting, self._waiting = self._waiting, []
        return chosen, [event for item in waiting for event in chosen.take(item)]

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
        return next((name for frame in frames if isinstance(frame, Frame) and (name := self._name(frame))), None)

    def _name(self, frame: Frame) -> str | None:
        try:
            value: Any = decode(frame.data)
        except ValueError:
            value = None
        self._lines = self._lines or isinstance(value, dict)
        return format_of(frame.event, value)
