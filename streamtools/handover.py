"""From the task that drives a run to whoever iterates over its events.

Events are handed out before anything else is waited for, so that their order is that of their numbers and a run that is
cancelled loses none. What may go on without end, the stream itself and the progress of tools, waits for room
afterwards: so a slow consumer slows the provider. A read that is cancelled disturbs nothing but itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Self

import anyio

from streamtools.errors import ClosedError
from streamtools.events import Progress, UIEvent
from streamtools.parsing.dialects import Dialect
from streamtools.result import Collector, TurnResult

BUFFERED = 1024  # events that wait for a slow consumer before the provider has to


class Handover:
    """The iterator of a run's events, and its result so far. Who drives the run inherits from it.

    What is at fault on our caller's side (`_fault`) is raised to whoever iterates, behind the last event.
    """

    def __init__(self, dialects: tuple[Dialect, ...]) -> None:
        self._collector = Collector(dialects)
        self._ready: deque[UIEvent] = deque()
        self._news: anyio.Semaphore | None = None  # for those who wait for events; one for all time, as they wait often
        self._waiting = 0  # how many they are
        self._told = 0  # and for how many of them there are news that they have not taken
        self._room: anyio.Event | None = None  # for us when there are too many
        self._over = False
        self._fault: Exception | None = None

    @property
    def result(self) -> TurnResult:
        """What the run has come to so far; complete behind the `async with`."""
        return self._collector.read()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        while not self._ready:
            if self._over:
                self._raise_fault()
                raise StopAsyncIteration
            if self._news is None:
                raise ClosedError("a stream is read inside `async with stream as events:`")
            self._waiting += 1
            try:
                await self._news.acquire()
                self._told -= 1
            finally:
                self._waiting -= 1
        event = self._ready.popleft()
        if self._room is not None and len(self._ready) <= BUFFERED // 2:
            self._room.set()
            self._room = None
        return event

    def _open(self) -> None:
        """Let it be read, from inside an event loop."""
        self._news = anyio.Semaphore(0, fast_acquire=True)

    def _end(self) -> None:
        """Take note that there will be no more events."""
        self._over = True
        self._tell()

    def _raise_fault(self) -> None:
        """Raise what our caller gave us and is at fault, once."""
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault

    async def _send(self, event: UIEvent) -> None:
        self._hand_out((event,))
        if isinstance(event, Progress):
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        while len(self._ready) >= BUFFERED:
            if self._room is None:
                self._room = anyio.Event()
            await self._room.wait()

    def _hand_out(self, events: Sequence[UIEvent]) -> None:
        if events:
            self._collector.add(events)
            self._ready.extend(events)
            if self._waiting > self._told:
                self._tell()

    def _tell(self) -> None:
        """Wake all who wait and have not been told. News that somebody was told and does not take, because he has been
        cancelled meanwhile, wake another one for nothing, once.
        """
        assert self._news is not None
        while self._told < self._waiting:
            self._told += 1
            self._news.release()
