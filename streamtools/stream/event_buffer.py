"""A buffer between the task that drives a run (the writer) and the readers of its events.

`put` never waits, so events keep their order, and a cancelled run loses no event. After `put`, the writer calls
`wait_for_room`. If readers are slow, the writer waits there, so the source is read more slowly. Cancelling a read
removes no event from the buffer and does not affect other readers.

The buffer has a limit of events and a limit of bytes. Reading an event does not reduce the byte count. The count begins
again when the buffer is empty. At a limit, the writer waits until half of the events have been read. Then the bytes of
the remaining events are counted. If they still reach the limit, the writer waits again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import anyio

from streamtools.errors import ClosedError
from streamtools.events import BATCH_BYTES, UIEvent, batch_length, weigh

MAX_EVENTS = 1024
"""The number of buffered events at which the writer must wait."""
MAX_BYTES = 4 * 1024 * 1024
"""The size of the buffered events, in bytes, at which the writer must wait. One call of `put` may exceed it."""
SMALL_TEXT = 64
"""The length in characters up to which a `Text` event is small. The `size` that the writer passes to `put` may omit
small texts, because `MAX_EVENTS` of them take only 0.4 MiB."""


class EventBuffer:
    """A bounded queue of events with one writer and any number of readers. Call `open` inside an event loop."""

    def __init__(self) -> None:
        self.is_closed = False
        """True after `close`: no more events are added."""
        self.is_exhausted = False
        """True after a reader has reached the end."""
        self._events: deque[UIEvent] = deque()
        self._bytes = 0
        self._is_open = False
        self._readable: anyio.Event | None = None  # set when the readers may continue; None if no reader waits
        self._room: anyio.Event | None = None  # set when the writer may continue; None if the writer does not wait
        self._resume_at = 0  # the writer continues when at most this many events are buffered
        self._error: Exception | None = None
        self._write: Callable[[UIEvent], object] | None = None  # set by `forward`

    def open(self) -> None:
        """Allow `get` to wait for events. Call this inside an event loop."""
        self._is_open = True

    async def get(self) -> UIEvent:
        """Wait for the next event, and return it.

        After the last event, the first call raises the error that was passed to `fail`, if there is one. Each later
        call raises StopAsyncIteration. Raises `ClosedError` if the buffer is not open.
        """
        while not self._events:
            if self.is_closed:
                self.is_exhausted = True
                self.raise_error()
                raise StopAsyncIteration
            if not self._is_open:
                raise ClosedError("enter the stream before you read it: `async with stream as events:`")
            self._readable = self._readable or anyio.Event()
            await self._readable.wait()
        event = self._events.popleft()
        if self._room is not None:
            self._give_room()
        return event

    def take_ready(self) -> Sequence[UIEvent]:
        """Remove and return buffered events without waiting: up to `BATCH_BYTES`, plus small texts."""
        events = self._events
        if self._bytes <= BATCH_BYTES:
            taken = list(events)
            events.clear()
        else:
            taken = [events.popleft() for _ in range(batch_length(events))]
        if self._room is not None:
            self._give_room()
        return taken

    def put(self, events: Sequence[UIEvent], size: int) -> bool:
        """Add events of `size` bytes without waiting, and wake all waiting readers. Return True if the buffer is full.

        The writer must then call `wait_for_room`.
        """
        if self._write is not None:
            for event in events:
                self._write(event)
            events, size = (), 0
        self._bytes = self._bytes + size if self._events else size
        self._events += events
        if self._readable is not None and (events or self.is_closed):
            self._readable.set()
            self._readable = None
        return self._bytes >= MAX_BYTES or len(self._events) >= MAX_EVENTS

    def forward(self, write: Callable[[UIEvent], object]) -> None:
        """Pass all events to `write` instead of buffering them. Readers then receive no events and wait for the end."""
        while self._events:
            write(self._events.popleft())
        self._write = write

    async def wait_for_room(self) -> None:
        """While the buffer is full, wait until half of its events have been read."""
        while self._events and (self._bytes >= MAX_BYTES or len(self._events) >= MAX_EVENTS):
            self._resume_at = len(self._events) // 2
            self._room = self._room or anyio.Event()
            await self._room.wait()

    def close(self) -> None:
        """Add no more events, and wake all waiting readers."""
        self.is_closed = True
        self.put((), 0)

    def fail(self, error: Exception) -> None:
        """Set the error that is raised to one reader after the last event."""
        self._error = error

    def raise_error(self) -> None:
        """Raise the error that was passed to `fail`, if it was not raised before."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _give_room(self) -> None:
        """If the writer waits and there is room, count the bytes again and wake the writer."""
        if self._room is not None and len(self._events) <= self._resume_at:
            self._bytes = sum(map(weigh, self._events))
            self._room.set()
            self._room = None
