"""Logs that keep the events of runs for readers that arrive later or reconnect: their interface, and the log in memory.

The position of a reader is the `seq` of the last event that it read. It needs nothing else to continue, neither a
connection nor a process. In memory, a run is a list of events, and a reader is an index into it. The log does not know
its readers. Readers that have read everything wait, and the next `append` wakes all of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from operator import attrgetter
from typing import Protocol, Self
from urllib.parse import quote

import anyio

from streamtools.errors import Code, RunNotFound
from streamtools.events import Done, UIEvent, Warning
from streamtools.events.event import BATCH_BYTES, batch_length, weigh

_MAX_BATCH = 64  # events that a reader takes at the same time
_seq_of = attrgetter("seq")


def log_key(owner: str, run_id: str) -> str:
    """Return the key of a run in a log. It differs for each pair of owner and run, whatever characters they contain.

    >>> log_key("ann@example.org", "run_1")
    'ann%40example.org/run_1'
    """
    return "/".join(quote(name, safe="", errors="surrogatepass") for name in (owner, run_id))


def resync(seq: int) -> Warning:
    """Return the warning that a reader gets instead of the events up to `seq`."""
    return Warning(Code.RESYNC, "The events before the next one are no longer available.", seq=seq)


class EventLog(Protocol):
    """Keeps the events of runs. A `key` identifies an owner and a run (`log_key`), and its events arrive in order.

    A log limits itself: how many events of a run it keeps, and for how long. An exception of `append`, or ten seconds
    without a return, does not end the run: the event is missing in the log, and readers get `warning(resync)` instead.
    """

    async def append(self, key: str, event: UIEvent, /) -> int:
        """Keep an event, and return its `seq`. An event that the log already has stays unchanged."""
        ...

    def read(self, key: str, /, after: int = 0) -> AsyncIterator[UIEvent]:
        """Return an iterator of the events after the `seq` `after`: those that are kept, then new ones, up to `done`.

        If events after `after` are no longer kept, or the run has not reached it, the iterator first yields
        `warning(resync)` with the `seq` of the last dropped event (0 if none was dropped), then all events that are
        kept. Raises `RunNotFound` for an unknown key, here or at the first event. An asynchronous generator is allowed:
        after a cancelled read, reading starts again after the last event that was received.
        """
        ...


class MemoryEventLog:
    """An event log in the memory of this process, for one event loop.

    Of each run it keeps the last `max_events` events, or up to an eighth fewer, as far as they fit into `max_bytes`
    (None: no limit). The very last event is always kept. An event counts 64 bytes, and those that its text, or
    otherwise its JSON, takes in memory. A run is kept until `forget`, which `Runs` calls. Raises ValueError for a limit
    that is out of range.
    """

    def __init__(self, *, max_events: int = 50_000, max_bytes: int | None = 16 * 1024 * 1024) -> None:
        for name, value in {"max_events": max_events, "max_bytes": max_bytes}.items():
            if value is not None and not value >= 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}.")
        self._max_events = max_events
        self._max_bytes = math.inf if max_bytes is None else max_bytes
        self._runs: dict[str, _RunEvents] = {}

    def __len__(self) -> int:
        """The number of runs that are kept."""
        return len(self._runs)

    async def append(self, key: str, event: UIEvent, /) -> int:
        """Keep an event, unless its `seq` is not higher than the last one. Returns that `seq`.

        Raises ValueError for an event without a `seq`.
        """
        run = self._runs.get(key)
        if run is None:
            if event.seq < 1:
                raise ValueError(f"An event of a run must have a seq from 1 on, got {event.seq}.")
            run = self._runs[key] = _RunEvents(event.seq)
        if event.seq > run.last:
            run.append(event)
            if len(run.events) > self._max_events or run.size > self._max_bytes:
                run.shrink(self._max_events, self._max_bytes)
            if type(event) is Done:
                run.ended = True
            run.waiting.wake()
        return event.seq

    def read(self, key: str, /, after: int = 0) -> MemoryReader:
        """Return an iterator of the events after `after`; see `EventLog.read`."""
        run = self._runs.get(key)
        if run is None:
            raise RunNotFound("This run is not kept, or not kept any more.")
        return MemoryReader(run, after)

    def forget(self, key: str) -> None:
        """Forget a run. Its readers reach the end of the events that it has."""
        run = self._runs.pop(key, None)
        if run is not None:
            run.ended = True
            run.waiting.wake()


class WaitingReaders:
    """The readers that wait for the next event of one run."""

    def __init__(self) -> None:
        self._semaphore = anyio.Semaphore(0, fast_acquire=True)  # released once for each reader that waits
        self._has_waiting = False

    async def wait(self) -> None:
        """Wait until `wake` is called."""
        self._has_waiting = True
        await self._semaphore.acquire()

    def wake(self) -> None:
        if self._has_waiting:
            self._has_waiting = False
            for _ in range(self._semaphore.statistics().tasks_waiting):
                self._semaphore.release()


class _RunEvents:
    """The events of one run that are kept."""

    def __init__(self, first_seq: int) -> None:
        self.events: list[UIEvent] = []
        self.sizes: list[int] = []
        self.size = 0  # the sum of the sizes
        self.first = 0  # the index of the first event that is kept, among all events of the run
        self.dropped = first_seq - 1  # the seq of the last event before it
        self.last = 0  # the seq of the last event
        self.ended = False
        self.waiting = WaitingReaders()

    def append(self, event: UIEvent) -> None:
        self.events.append(event)
        self.last = event.seq
        size = weigh(event)
        self.sizes.append(size)
        self.size += size

    def shrink(self, max_events: int, max_bytes: float) -> None:
        """Drop the oldest events. Drops an eighth more than necessary, so that it is rarely called."""
        count = max(0, len(self.events) - max_events + max_events // 8) if len(self.events) > max_events else 0
        size = self.size - sum(self.sizes[:count])
        if size > max_bytes:
            while size > max_bytes - max_bytes // 8 and count < len(self.events) - 1:
                size -= self.sizes[count]
                count += 1
        if count:
            self.dropped = self.events[count - 1].seq
            self.first += count
            self.size = size
            del self.events[:count], self.sizes[:count]


class MemoryReader:
    """Reads one run of a `MemoryEventLog`. A cancelled read takes nothing; several tasks may share a reader."""

    def __init__(self, run: _RunEvents, after: int) -> None:
        self._run = run
        self._closed = False
        self._index = -1  # of the next event, among all events of the run; of a dropped event, it causes a resync
        if run.dropped <= after <= run.last:
            self._index = run.first + bisect_right(run.events, after, key=_seq_of)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        while (event := self.take()) is None:
            if self._closed or self._run.ended:
                raise StopAsyncIteration
            await self._run.waiting.wait()
        return event

    def take(self) -> UIEvent | None:
        """Return the next event if it is available."""
        run = self._run
        place = self._index - run.first
        if place >= len(run.events) or self._closed:
            return None
        if place < 0:
            self._index = run.first
            return resync(run.dropped)
        self._index += 1
        return run.events[place]

    def take_ready(self) -> Sequence[UIEvent]:
        """Return some of the events that are available, never `done`."""
        run = self._run
        place = self._index - run.first
        if place < 0 or place >= len(run.events) or self._closed:
            return ()
        events = run.events[place : place + _MAX_BATCH]
        if run.size > BATCH_BYTES:
            del events[batch_length(events) :]
        if type(events[-1]) is Done:
            events.pop()
        self._index += len(events)
        return events

    async def aclose(self) -> None:
        """End the reading, also for tasks that wait in it."""
        self.close()

    def close(self) -> None:
        """End the reading at once."""
        self._closed = True
        self._run.waiting.wake()
