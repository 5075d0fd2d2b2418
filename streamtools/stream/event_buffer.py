"""The buffer between the task that drives a run and the readers of its events.

`put` never waits, so events keep their order and a cancelled run loses none. The writer then calls `wait_for_room`: a
slow consumer slows the provider. A cancelled read takes no event and ends no other read.

The buffer is bounded in events and in bytes. Events that are read are not subtracted from the bytes. When the bytes
seem to reach the limit, they are counted again after half of the events have been read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import anyio

from streamtools.errors import ClosedError
from streamtools.events import Text, UIEvent
from streamtools.events.event import BATCH_BYTES, batch_length, weigh

MAX_EVENTS = 1024
"""Events that wait for a slow consumer before the provider has to wait."""
MAX_BYTES = 4 * 1024 * 1024
"""Bytes of these events. The events of one network chunk may exceed it."""
SMALL_TEXT = 64
"""Characters of a single text that is not counted; `MAX_EVENTS` of these take 0.3 MiB."""


class EventBuffer:
    """A bounded queue of events: one writer, any number of readers. It is opened inside an event loop."""

    def __init__(self) -> None:
        self.is_closed = False
        """Whether the last event has been put."""
        self._events: deque[UIEvent] = deque()
        self._bytes = 0
        self._readable: anyio.Semaphore | None = None  # released once for each reader that is woken
        self._waiting = 0  # readers that wait
        self._woken = 0  # waiting readers that were woken and have not run yet
        self._room: anyio.Event | None = None  # set when the writer may continue
        self._resume_at = 0  # number of events at which the writer may continue
        self._error: Exception | None = None

    def open(self) -> None:
        """Allow reading."""
        self._readable = anyio.Semaphore(0, fast_acquire=True)

    async def get(self) -> UIEvent:
        """Wait for the next event. After the last one, raises the error of `close` once, then StopAsyncIteration."""
        while not self._events:
            if self.is_closed:
                self.raise_error()
                raise StopAsyncIteration
            if self._readable is None:
                raise ClosedError("enter the stream before you read it: `async with stream as events:`")
            self._waiting += 1
            try:
                await self._readable.acquire()
                self._woken -= 1
            finally:
                self._waiting -= 1
        event = self._events.popleft()
        if self._room is not None or not self._events:
            self._give_room()
        return event

    def take_ready(self) -> Sequence[UIEvent]:
        """Return the events that `get` would not wait for, up to a limit of bytes."""
        events = self._events
        count = batch_length(events) if self._bytes > BATCH_BYTES else len(events)
        taken = [events.popleft() for _ in range(count)]
        self._give_room()
        return taken

    def put(self, events: Sequence[UIEvent]) -> bool:
        """Add events without waiting. Return whether the writer has to call `wait_for_room`."""
        if not events:
            return False
        buffered = self._events
        buffered += events
        if self._waiting > self._woken:
            self._wake()
        if len(events) > 1 or type(event := events[0]) is not Text or len(event.text) > SMALL_TEXT:
            self._bytes += sum(map(weigh, events))
        return self._bytes >= MAX_BYTES or len(buffered) >= MAX_EVENTS

    async def wait_for_room(self) -> None:
        """If the buffer is full, wait until half of its events have been read."""
        while self._bytes >= MAX_BYTES or len(self._events) >= MAX_EVENTS:
            self._resume_at = len(self._events) // 2
            self._room = self._room or anyio.Event()
            await self._room.wait()

    def close(self) -> None:
        """Add no more events, and wake all readers."""
        self.is_closed = True
        self._wake()

    def fail(self, error: Exception) -> None:
        """Raise `error` to a reader after the last event, once."""
        self._error = error

    def raise_error(self) -> None:
        """Raise the error of `fail` if no reader has got it."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _give_room(self) -> None:
        """Count the bytes again if the writer may continue, and wake it."""
        if self._room is not None and len(self._events) <= self._resume_at:
            self._bytes = sum(map(weigh, self._events))
            self._room.set()
            self._room = None
        elif not self._events:
            self._bytes = 0

    def _wake(self) -> None:
        """Wake all waiting readers that have not been woken. A reader that is cancelled after that wakes one too many
        at most once.
        """
        if self._readable is None:
            return
        while self._woken < self._waiting:
            self._woken += 1
            self._readable.release()
