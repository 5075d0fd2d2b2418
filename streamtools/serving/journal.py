"""The events of one run: a `Journal` writes them into the event log, and attachments read them.

If the log fails, the run continues, because its tools are running. Events that could not be written are missing in the
log, and one `warning(resync)` before the next event reports that. If the log does not recover before the end of the
run, the readers in this process get that warning and `done` from here.
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

_LOG_TIMEOUT_S = 10.0  # for one event; after a timeout, the log is not called for as long


class Journal:
    """Writes one run into its log, and holds the state that its readers share."""

    def __init__(self, events: EventLog, owner: str, run_id: str) -> None:
        self.log = events
        self.key = log_key(owner, run_id)
        self.last = 0  # the seq of the last event of the run
        self.logged = 0  # the seq of the last event in the log
        self.done: Done | None = None
        self.readable = anyio.Event()
        """Set when the log has an event of the run, or the run has ended."""
        self.waiting_reads: set[anyio.CancelScope] = set()
        self.driven: DrivenRun | None = None
        """The run, if another process may take it over."""
        self.shared_frames = SharedFrames()
        self.in_memory = type(events) is MemoryEventLog  # such a log neither fails nor waits
        self._run_id = run_id
        self._closed = False
        self._last_missing = 0  # the seq of the last event that should be in the log
        self._retry_at = -math.inf  # when the log may be called after a timeout

    async def write(self, event: UIEvent) -> bool:
        """Write an event. Returns whether it is the end of the run.

        The first event becomes a `start` with the id of the run, and each `seq` is one higher than the last.
        """
        if event.seq != self.last + 1 or not self.last:
            event = await self._number(event)
        self.last = event.seq
        if type(event) is Done:
            self.done = event
        await self._append(event)
        return type(event) is Done

    async def flush(self) -> TurnResult | None:
        """Wait until the log has all events. Returns the result of the run if another process has ended it."""
        return None

    def close(self) -> None:
        """Record the end of the run, so that readers do not wait for a `done` that could not be written."""
        self.readable.set()
        if self._last_missing:
            for scope in self.waiting_reads:
                scope.cancel()
        self._closed = True

    def unlogged_end(self, after: int) -> list[UIEvent]:
        """Return the events after `after` that end the run and that the log will never have: none, unless it failed."""
        if self.done is None or not (self._closed and self._last_missing and self.logged <= after < self.done.seq):
            return []
        has_gap = max(after, self.logged) < self.done.seq - 1
        return [*([resync(self.done.seq - 1)] if has_gap else []), self.done]

    async def _number(self, event: UIEvent) -> UIEvent:
        if not self.last:
            if isinstance(event, Start):
                return replace(event, run_id=self._run_id, seq=1)
            await self.write(Start(self._run_id, seq=1))
        return replace(event, seq=self.last + 1)

    async def _append(self, event: UIEvent) -> None:
        if self.in_memory:
            await self.log.append(self.key, event)
        elif anyio.current_time() < self._retry_at and type(event) is not Done:
            self._last_missing = event.seq
            return
        else:
            try:
                with anyio.fail_after(_LOG_TIMEOUT_S, shield=True):  # the log must not keep half of an event
                    if self._last_missing:
                        await self.log.append(self.key, resync(self._last_missing))
                    await self.log.append(self.key, event)
            except Exception as error:
                if not self._last_missing:
                    log.warning("events_not_logged", run_id=self._run_id, **loggable(error))
                self._last_missing = event.seq
                if isinstance(error, TimeoutError):
                    self._retry_at = anyio.current_time() + _LOG_TIMEOUT_S
                return
        self._last_missing = 0
        self.logged = event.seq
        self.readable.set()


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
