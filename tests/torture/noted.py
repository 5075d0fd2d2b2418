"""Streams that note what they hand out, at the moment at which they do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Self

from streamtools import ToolStream
from streamtools.conversation import Chat
from streamtools.events import UIEvent


class Noting(ToolStream):
    """Notes each event at the moment at which it is handed to somebody."""

    taken: list[UIEvent]
    entered = False

    async def __aenter__(self) -> Self:
        self.entered = True
        return await super().__aenter__()

    async def __anext__(self) -> UIEvent:
        event = await super().__anext__()
        self.taken.append(event)
        return event

    def take_ready(self) -> Sequence[UIEvent]:
        events = super().take_ready()
        self.taken += events
        return events


class NotedStream(Noting):
    """A stream that notes what it hands out."""


class NotedChat(Noting, Chat):
    """A chat that does."""


@dataclass
class Tracked:
    """A stream of the run, and all that it has said."""

    stream: ToolStream
    events: list[UIEvent]
    reader: AsyncIterator[UIEvent]
    """Whoever reads from it adds to the events."""
    unread: Exception | None = None  # what was raised to whoever read the rest

    @property
    def entered(self) -> bool:
        """Whether there was a run."""
        return getattr(self.stream, "entered", True)


class Reader:
    """Reads a stream that somebody else has made, and notes it."""

    def __init__(self, stream: ToolStream, events: list[UIEvent]) -> None:
        self._stream = stream
        self._events = events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        event = await anext(self._stream)
        self._events.append(event)
        return event

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
