"""Streams that record each event when they deliver it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Self

from streamtools import ToolStream
from streamtools.conversation import Chat
from streamtools.events import UIEvent


class Noting(ToolStream):
    """Records each event when it is delivered to a consumer."""

    taken: list[UIEvent]
    entered = False

    async def __aenter__(self) -> Self:
        self.entered = True
        return await super().__aenter__()

    async def __anext__(self) -> UIEvent:
        event = await super().__anext__()
        self.taken.append(event)
        return event

    def _take_ready(self) -> Sequence[UIEvent]:
        events = super()._take_ready()
        self.taken += events
        return events


class NotedStream(Noting):
    """A stream that records its events."""


class NotedChat(Noting, Chat):
    """A chat that records its events."""


@dataclass
class Tracked:
    """A stream of the run, and all events that it delivered."""

    stream: ToolStream
    events: list[UIEvent]
    reader: AsyncIterator[UIEvent]
    """An iterator over the stream, which adds to `events`."""
    unread: Exception | None = None  # the exception of reading the remaining events

    @property
    def entered(self) -> bool:
        """Whether the stream was entered."""
        return getattr(self.stream, "entered", True)
