"""Writes one run into its event log, whatever becomes of the log, and reads it there.

A reader reads the log from its position, which is the `seq` of the event that it read last.

If the log fails, the run goes on: its tools are running, and a run without readers is nothing unusual. Events that
could not be written are missing in the log, which one `warning(resync)` before the next event says; if the log does
not recover before the end, the readers in this process get that warning and `done` from here.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Self

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from streamtools import observing
from streamtools.events import Done, Start, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.outputs.native_frames import SharedFrames
from streamtools.serving.event_log import EventLog, MemoryEventLog, MemoryReader, log_key, resync
from streamtools.stream.reading import YIELD_EVERY, close
from streamtools.stream.result import TurnResult
from streamtools.tools.at_most_once import DrivenRun

log = Logger(__name__)

_PATIENCE = 10.0  # seconds that a log may take over one event; one that took longer is left alone for as long


class Journal:
    """Writes one run into its log, and holds what its readers need beside the log."""

    def __init__(self, events: EventLog, owner: str, run_id: str) -> None:
        self.log = events
        self.key = log_key(owner, run_id)
        self.last = 0  # the seq of the last event of the run
        self.logged = 0  # and of the last in the log
        self.done: Done | None = None
        self.begun = anyio.Event()  # there is something to read
        self.waiting: set[anyio.CancelScope] = set()  # the scopes of reads that wait for the log
        self.driven: DrivenRun | None = None  # the run as one that another process may take over
        self.shared_frames = SharedFrames()
        self.in_memory = type(events) is MemoryEventLog  # the log neither fails nor waits
        self._run_id = run_id
        self._is_closed = False
        self._missing = 0  # the seq of the last event that should be in the log and is not
        self._retry_at = -math.inf  # when the log may be tried again

    async def write(self, event: UIEvent) -> bool:
        """Take note of what the run says, and return whether it is its end.

        The first is a `start` that names it, and each `seq` is one more.
        """
        if event.seq != self.last + 1 or not self.last:
            event = await self._adjust(event)
        self.last = event.seq
        if type(event) is Done:
            self.done = event
        if self.in_memory:
            await self.log.append(self.key, event)
            if not self.logged:
                self.begun.set()
            self.logged = self.last
        else:
            await self._try(event)
        return type(event) is Done

    async def settle(self) -> TurnResult | None:
        """Wait until all is in the log; return what the run has come to, where another process has ended it."""
        return None

    def close(self) -> None:
        """Note that the run is over. Readers who wait for a `done` that could not be written wait no longer."""
        self.begun.set()
        if self._missing:
            for scope in self.waiting:
                scope.cancel()
        self._is_closed = True

    def lost_end(self, after: int) -> list[UIEvent]:
        """Return what a reader behind `after` gets that the log will never have: nothing, as a rule."""
        if self.done is None or not (self._is_closed and self._missing and self.logged <= after < self.done.seq):
            return []
        is_gap = max(after, self.logged) < self.done.seq - 1
        return [*([resync(self.done.seq - 1)] if is_gap else []), self.done]

    async def _adjust(self, event: UIEvent) -> UIEvent:
        if not self.last:
            if isinstance(event, Start):
                return replace(event, run_id=self._run_id, seq=1)
            await self.write(Start(self._run_id, seq=1))
        return replace(event, seq=self.last + 1)

    async def _try(self, event: UIEvent) -> None:
        if anyio.current_time() < self._retry_at and type(event) is not Done:
            self._missing = event.seq
            return
        try:
            with anyio.fail_after(_PATIENCE, shield=True):  # half a write would be read as a whole one, or as none
                if self._missing:
                    await self.log.append(self.key, resync(self._missing))
                await self.log.append(self.key, event)
        except Exception as error:
            if not self._missing:
                log.warning("events_not_logged", run_id=self._run_id, **loggable(error))
            self._missing = event.seq
            if isinstance(error, TimeoutError):
                self._retry_at = anyio.current_time() + _PATIENCE
        else:
            self._missing = 0
            self.logged = event.seq
            self.begun.set()


class Attachment:
    """An asynchronous iterator of the events of a run, and a context manager that detaches from it at its end.

    It ends behind `done`. Nothing that a reader does affects the run: neither `break`, nor an exception, nor slow
    reading, nor dropping it. A cancelled read has taken nothing. `position` is the `seq` of the last event that was
    read, behind which another attachment may go on. It raises what the log raises, and `RunNotFound` where the events
    are kept no more.
    """

    def __init__(self, journal: Journal, after: int, on_leave: Callable[[Attachment], None]) -> None:
        if not isinstance(after, int):
            raise TypeError(f"after is the seq of an event, and not {after!r}")
        self.position = after
        self.shared_frames = journal.shared_frames
        self._journal = journal
        self._on_leave = on_leave
        self._scopes: set[anyio.CancelScope] = set()  # the scopes of reads that wait
        self._events: AsyncIterator[UIEvent] | None = None
        self._memory: MemoryReader | None = None  # in place of `_events`, for a log in memory
        self._taken = 0
        self._has_left = False

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
        memory = self._memory
        event = None if memory is None else memory.take()
        try:
            if event is None:
                event = await (self._next() if memory is None else anext(memory))
        except StopAsyncIteration:  # forgotten before its `done`, or none is behind this position, or detached
            await self._end()
            raise
        if type(event) is Done:
            await self._end()
        self.position = event.seq
        return event

    def take_ready(self) -> Sequence[UIEvent]:
        """Return events that a read would not wait for, as far as that can be told; never `done`."""
        events = () if self._memory is None else self._memory.take_ready()
        self.position = events[-1].seq if events else self.position
        return events

    async def read_ready(self) -> Sequence[UIEvent]:
        """Return events, and wait for the first; nothing where the next one has to be asked for by itself."""
        events = () if self._memory is None else await self._memory.read_ready()
        self.position = events[-1].seq if events else self.position
        return events

    async def detach(self) -> None:
        """End this attachment; the run goes on. Reads that wait in it end as well."""
        self._leave()
        if not self._scopes:
            await self._close()
        for scope in self._scopes:  # a cancelled read closes the iterator of the log
            scope.cancel()

    aclose = detach

    def __del__(self) -> None:
        if not getattr(self, "_has_left", True):
            self._leave()

    def _leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            observing.count("readers", -1)
            if self._memory is not None:
                self._memory.close()
                self._memory = None
            self._on_leave(self)

    async def _next(self) -> UIEvent:
        """Return the next event. After a cancellation, the next read begins anew from the same position."""
        journal = self._journal
        while not self._has_left:
            if end := journal.lost_end(self.position):
                return end[0]
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                journal.waiting.add(scope)
                try:
                    if journal.begun.is_set():
                        return await self._read()
                    await journal.begun.wait()
                finally:
                    self._scopes.discard(scope)
                    journal.waiting.discard(scope)
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
            await self._close()
            raise

    async def _end(self) -> None:
        await self._close()
        self._leave()

    async def _close(self) -> None:
        events, self._events = self._events, None
        await close(events, complaint="log_not_closed")
