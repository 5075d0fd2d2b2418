"""The interface for reading event logs, and an event log in memory.

An event log keeps the events of runs for readers that arrive later or reconnect. To continue, a reader needs only the
`seq` of the last event that it read. It can continue over another connection or in another process.

In memory, the log keeps a list of events for each run, and a reader keeps an index into this list. Readers that have
read all events wait, and the next `add` wakes all of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Sequence
from operator import attrgetter
from typing import Protocol
from urllib.parse import quote, unquote

import anyio

from streamtools.errors import ChecksArguments, Code, RunNotFound, check_kind, check_number
from streamtools.events import BATCH_BYTES, Done, UIEvent, Warning, batch_length, weigh

_MAX_BATCH = 64  # maximum number of events that a reader takes in one call
_seq_of = attrgetter("seq")


def log_key(owner: str, run_id: str) -> str:
    """Return the key of the run `run_id` of the user `owner` in a log. No two runs have the same key.

    Raises TypeError if `owner` or `run_id` is not a string.

    >>> log_key("ann@example.org", "run_1")
    'ann%40example.org/run_1'
    """
    check_kind("`owner`", owner, str)
    check_kind("the id of a run or a conversation", run_id, str)
    return "/".join(quote(name, safe="", errors="surrogatepass") for name in (owner, run_id))


def split_key(key: str) -> tuple[str, str]:
    """Return the owner and the id of the run with this `log_key`."""
    owner, _, run_id = key.partition("/")
    return unquote(owner, errors="surrogatepass"), unquote(run_id, errors="surrogatepass")


def resync(seq: int) -> Warning:
    """Return the warning that replaces missing events. `seq` is the seq of the last missing event.

    `seq` is 0 if no event is missing: the reader asked for events that do not exist yet.
    """
    lost = "The events before the next one are no longer available."
    return Warning(Code.RESYNC, lost if seq else "The run has no such events. All its events follow.", seq=seq)


class ReadableLog(Protocol):
    """The part of an event log that readers use."""

    def read(self, key: str, /, after: int = 0) -> AsyncIterator[UIEvent]:
        """Return an iterator over the stored events with `seq` above `after`, then over new events, up to `done`.

        The iterator first yields `warning(resync)` if events after `after` were dropped, or if the run never had an
        event with this `seq`. The warning has the `seq` of the last dropped event, or 0 if no event was dropped. All
        stored events follow. For an unknown key, `read` or the first step of the iterator raises `RunNotFound`. The
        iterator may be an asynchronous generator. After a cancelled read, callers make a new iterator.
        """
        ...


class MemoryEventLog(ChecksArguments):
    """An event log in the memory of this process. Only one event loop may use it.

    For each run it keeps at most `max_events` events with a total size of at most `max_bytes` bytes. With
    `max_bytes=None`, the size has no limit. When a run exceeds a limit, the log drops its oldest events until the run
    is an eighth below the limit. The last event is kept even if it alone exceeds the limit. The size of an event is 64
    bytes plus the size of its text in memory. For an event without text, the size of its JSON is used. A run is kept
    until `Runs` calls `forget`. Raises ValueError for a number that is out of range.
    """

    def __init__(self, *, max_events: int = 50_000, max_bytes: int | None = 16 * 1024 * 1024) -> None:
        for name, value in {"max_events": max_events, "max_bytes": max_bytes}.items():
            check_number(name, value, 1, optional=name == "max_bytes")
        self._max_events = max_events
        self._max_bytes = math.inf if max_bytes is None else max_bytes
        self._runs: dict[str, _RunEvents] = {}

    def __len__(self) -> int:
        """The number of runs that are kept."""
        return len(self._runs)

    def add(self, key: str, event: UIEvent) -> None:
        """Store an event if its `seq` is above the last `seq` of the run.

        Raises ValueError if the first event of a run has no `seq`. A later event without a `seq` is not stored.
        """
        run = self._runs.get(key)
        if run is None:
            if event.seq < 1:
                raise ValueError(f"An event of a run must have a seq from 1 on, got {event.seq}.")
            run = self._runs[key] = _RunEvents(event.seq)
        if event.seq > run.last_seq:
            run.events.append(event)
            run.last_seq = event.seq
            run.size += weigh(event)
            if len(run.events) > self._max_events or run.size > self._max_bytes:
                run.shrink(self._max_events, self._max_bytes)
            if type(event) is Done:
                run.ended = True
            run.waiting.wake()

    def read(self, key: str, /, after: int = 0) -> MemoryReader:
        """Return an iterator over the events after `after`; see `ReadableLog.read`. Raises `RunNotFound`."""
        run = self._runs.get(key)
        if run is None:
            raise RunNotFound("This run does not exist, or is no longer kept.")
        return MemoryReader(run, after)

    def forget(self, key: str) -> None:
        """Remove a run from the log. Its current readers still read all stored events, and then end."""
        run = self._runs.pop(key, None)
        if run is not None:
            run.ended = True
            run.waiting.wake()


class WaitingReaders:
    """Lets the readers of one run wait for its next event."""

    def __init__(self) -> None:
        self._woken: anyio.Event | None = None  # None if no reader waits

    def wait(self) -> Awaitable[None]:
        """Wait until `wake` is called."""
        self._woken = self._woken or anyio.Event()
        return self._woken.wait()

    def wake(self) -> None:
        """Wake all waiting readers."""
        if self._woken is not None:
            self._woken.set()
            self._woken = None


class _RunEvents:
    """The stored events of one run."""

    def __init__(self, first_seq: int) -> None:
        self.events: list[UIEvent] = []
        self.size = 0  # the size of `events`, in bytes
        self.dropped_count = 0  # the number of dropped events, and so the index of `events[0]` among all events
        self.last_dropped_seq = first_seq - 1  # the seq of the last dropped event
        self.last_seq = 0  # the seq of the last event
        self.ended = False  # whether no more events follow: `done` was stored, or the run was forgotten
        self.waiting = WaitingReaders()

    def shrink(self, max_events: int, max_bytes: float) -> None:
        """Drop the oldest events until the run is an eighth below each exceeded limit, so that this happens rarely."""
        count = max(0, len(self.events) - max_events + max_events // 8) if len(self.events) > max_events else 0
        size = self.size - sum(weigh(event) for event in self.events[:count])
        if size > max_bytes:
            while size > max_bytes - max_bytes // 8 and count < len(self.events) - 1:
                size -= weigh(self.events[count])
                count += 1
        if count:
            self.last_dropped_seq = self.events[count - 1].seq
            self.dropped_count += count
            self.size = size
            del self.events[:count]


class MemoryReader(AsyncIterator[UIEvent]):
    """Reads one run of a `MemoryEventLog`. Several tasks may share a reader.

    If a read is cancelled, no event is lost: the next read returns the same event.
    """

    def __init__(self, run: _RunEvents, after: int) -> None:
        self._run = run
        self._closed = False
        # The index of the next event among all events of the run, including dropped events. If the next event was
        # dropped, or the index is -1, the reader first returns a resync.
        self._index = -1
        place = bisect_right(run.events, after, key=_seq_of)
        if after == (run.events[place - 1].seq if place else run.last_dropped_seq):
            self._index = run.dropped_count + place

    async def __anext__(self) -> UIEvent:
        while (event := self.take()) is None:
            if self._closed or self._run.ended:
                raise StopAsyncIteration
            await self._run.waiting.wait()
        return event

    def take(self) -> UIEvent | None:
        """Return the next event, or None if it has not been stored yet."""
        run = self._run
        place = self._index - run.dropped_count
        if place >= len(run.events) or self._closed:
            return None
        if place < 0:
            self._index = run.dropped_count
            return resync(run.last_dropped_seq)
        self._index += 1
        return run.events[place]

    def take_ready(self) -> Sequence[UIEvent]:
        """Return the next stored events, up to a limit. `done` is never among them."""
        run = self._run
        place = self._index - run.dropped_count
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
        """Close the reader. Tasks that wait for its next event stop waiting."""
        self._closed = True
        self._run.waiting.wake()
