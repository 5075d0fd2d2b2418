"""A reader of one run, which comes and goes without any effect on the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Self

import anyio
import anyio.lowlevel

from streamtools import observing
from streamtools.events import Done, UIEvent
from streamtools.serving.journal import Journal
from streamtools.serving.memory_log import MemoryReader
from streamtools.stream.reading import YIELD_EVERY, close


class Attachment:
    """An asynchronous iterator of the events of a run, and a context manager that detaches from it.

    It ends after `done`. Nothing that a reader does affects the run: neither `break`, nor an exception, nor slow
    reading, nor garbage collection. A cancelled read takes nothing. `position` is the `seq` of the last event that was
    read; another attachment may continue after it. Raises what the log raises, and `RunNotFound` for a run that is no
    longer kept.
    """

    def __init__(self, journal: Journal, after: int, on_detach: Callable[[Attachment], None]) -> None:
        if not isinstance(after, int):
            raise TypeError(f"`after` must be the seq of an event, got {after!r}.")
        self.position = after
        self.shared_frames = journal.shared_frames
        self._journal = journal
        self._on_detach = on_detach
        self._waiting: set[anyio.CancelScope] = set()  # reads of this attachment
        self._events: AsyncIterator[UIEvent] | None = None
        self._memory: MemoryReader | None = None  # instead of `_events`, for a log in memory
        self._taken = 0
        self._detached = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.detach()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        self._taken += 1
        if not self._taken % YIELD_EVERY:
            await anyio.lowlevel.checkpoint()
        try:
            event = await (self._next() if self._memory is None else anext(self._memory))
        except StopAsyncIteration:  # detached, forgotten before `done`, or no event after this position
            await self._end()
            raise
        if type(event) is Done:
            await self._end()
        self.position = event.seq
        return event

    def take_ready(self) -> Sequence[UIEvent]:
        """Return some of the events that are available in memory, never `done`."""
        events = () if self._memory is None else self._memory.take_ready()
        if events:
            self.position = events[-1].seq
        return events

    async def detach(self) -> None:
        """End this attachment and the reads that wait in it. The run continues."""
        self._detach()
        if not self._waiting:
            await self._close_events()
        for scope in self._waiting:  # a cancelled read closes the iterator of the log
            scope.cancel()

    aclose = detach

    def __del__(self) -> None:
        if not getattr(self, "_detached", True):
            self._detach()

    def _detach(self) -> None:
        if not self._detached:
            self._detached = True
            observing.count("readers", -1)
            if self._memory is not None:
                self._memory.close()
                self._memory = None
            self._on_detach(self)

    async def _next(self) -> UIEvent:
        """Return the next event of a log. After a cancellation, the next read starts from the same position."""
        journal = self._journal
        while not self._detached:
            if end := journal.unlogged_end(self.position):
                return end[0]
            with anyio.CancelScope() as scope:
                self._waiting.add(scope)
                journal.waiting_reads.add(scope)
                try:
                    if journal.readable.is_set():
                        return await self._read()
                    await journal.readable.wait()
                finally:
                    self._waiting.discard(scope)
                    journal.waiting_reads.discard(scope)
        raise StopAsyncIteration

    async def _read(self) -> UIEvent:
        journal = self._journal
        if self._events is None:
            self._events = journal.log.read(journal.key, self.position)
            if journal.in_memory and isinstance(self._events, MemoryReader):
                self._memory, self._events = self._events, None
                return await anext(self._memory)
        try:
            return await anext(self._events)
        except (Exception, anyio.get_cancelled_exc_class()):
            await self._close_events()
            raise

    async def _end(self) -> None:
        await self._close_events()
        self._detach()

    async def _close_events(self) -> None:
        events, self._events = self._events, None
        await close(events, complaint="log_not_closed")
