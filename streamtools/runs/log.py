"""What runs have said, kept for those who come later or come back.

A reader knows one number, the `seq` of the event that it read last, which is its position, and needs nothing else to go
on: not the connection, not the process that it came from. So a log is two verbs, and each log of more than one process
(Redis Streams, a table) has them too.

In memory, a run is a list of events. A reader is an index into it: it is registered nowhere, so that leaving needs no
farewell. Those who have read everything wait on one event together, which the next `append` sets; the appends that
follow before a reader is back to wait cost no wake.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from operator import attrgetter
from typing import Protocol, Self
from urllib.parse import quote

import anyio

from streamtools.errors import Code, RunNotFound
from streamtools.events import Done, UIEvent, Warning

_seq_of = attrgetter("seq")


def log_key(owner: str, run_id: str) -> str:
    """Return the key under which a log keeps a run: another for each owner, whatever characters the two hold.

    >>> log_key("ann@example.org", "run_1")
    'ann%40example.org/run_1'
    """
    return "/".join(quote(name, safe="", errors="surrogatepass") for name in (owner, run_id))


def resync(seq: int) -> Warning:
    """Return what a reader gets in the place of the events up to `seq`."""
    return Warning(Code.RESYNC, "events before the next one are kept no more", seq=seq)


class EventLog(Protocol):
    """Where runs keep what they say. A `key` names an owner and a run (`log_key`), and its events come in order.

    A log bounds itself: how many events of a run it keeps, and for how long. What `append` raises, or ten seconds of
    its silence, does not end the run: the event is missing in the log, and readers get `warning(resync)` in its place.
    """

    async def append(self, key: str, event: UIEvent, /) -> int:
        """Keep an event, and return its `seq`. An event that is there already is left as it is."""
        ...

    def read(self, key: str, /, after: int = 0) -> AsyncIterator[UIEvent]:
        """Return an iterator of what is kept behind `after`, a `seq`, and then of what comes, to `done`.

        If events behind `after` are kept no more, or the run never came so far, it yields one `warning(resync)`
        whose `seq` is that of the last event that was dropped (0 if none was), and goes on with all that is kept.
        Raises `RunNotFound` for a key under which nothing is kept, here or when the first event is asked for.
        An asynchronous generator will do: a read that is cancelled is begun again behind the last event that came.
        """
        ...


class MemoryEventLog:
    """An event log in the memory of this process; for the event loop that it is used in, and not for other threads.

    Of each run the last `max_events` are kept, or up to an eighth fewer, and of these as many as `max_bytes` of JSON
    hold, or an eighth less (None: no such bound); the very last is kept, however large it is. A run that has ended is
    forgotten `max_age` seconds later, and earlier if `max_ended` runs have ended after it (None: no such bound). Both
    are looked at when the log is used, and nothing runs in between. A run that goes on is kept. Raises ValueError for
    wrong bounds.
    """

    def __init__(
        self,
        *,
        max_events: int = 50_000,
        max_bytes: int | None = None,
        max_age: float | None = 600.0,
        max_ended: int | None = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not max_events >= 1:
            raise ValueError(f"max_events is at least 1, not {max_events!r}")
        if not (max_bytes is None or max_bytes >= 1):
            raise ValueError(f"max_bytes is at least 1, or None, not {max_bytes!r}")
        if not (max_age is None or max_age >= 0):
            raise ValueError(f"max_age is a number of seconds, or None, not {max_age!r}")
        if not (max_ended is None or max_ended >= 0):
            raise ValueError(f"max_ended is at least 0, or None, not {max_ended!r}")
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._max_ended = max_ended
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._ended: dict[str, float] = {}  # when each has ended, in this order

    def __len__(self) -> int:
        """How many runs are kept."""
        self._forget_old()
        return len(self._kept)

    async def append(self, key: str, event: UIEvent, /) -> int:
        """Keep an event, unless its `seq` is not higher than the last: it is there, or was. Return that `seq`.

        Raises ValueError for an event without a `seq`; where bytes are counted, what `to_json` raises.
        """
        if event.seq < 1:
            raise ValueError(f"an event of a run has a number, from 1, as its seq, and not {event.seq}")
        size = 0 if self._max_bytes is None else len(event.to_json().encode())
        kept = self._kept.get(key)
        if kept is None:
            self._forget_old()
            kept = self._kept[key] = _Kept()
            kept.dropped = event.seq - 1  # what was before the first is not here
        seq = event.seq
        if seq <= kept.last:
            return seq
        kept.last = seq
        kept.events.append(event)
        if len(kept.events) > self._max_events:
            kept.drop(len(kept.events) - self._max_events + self._max_events // 8)
        if self._max_bytes is not None:
            kept.weigh(size, self._max_bytes)
        if type(event) is Done:
            kept.ended = True
            self._ended[key] = self._clock()
            self._forget_old()
        if kept.news is not None:
            kept.tell()
        return seq

    def read(self, key: str, /, after: int = 0) -> MemoryReader:
        """Return an iterator of what is kept behind `after` and then of what comes, as `EventLog.read` says."""
        self._forget_old()
        kept = self._kept.get(key)
        if kept is None:
            raise RunNotFound("nothing is kept of this run")
        return MemoryReader(kept, after)

    def forget(self, key: str) -> None:
        """Keep nothing of a run any more. Those who read it come to the end of what it has said until now."""
        kept = self._kept.pop(key, None)
        self._ended.pop(key, None)
        if kept is not None:
            kept.ended = True
            kept.tell()

    def _forget_old(self) -> None:
        """Forget what ended too long ago, and what is too much. Each run is looked at once, when it goes."""
        while self._ended:
            key, ended = next(iter(self._ended.items()))
            too_many = self._max_ended is not None and len(self._ended) > self._max_ended
            if not (too_many or self._is_old(ended)):
                break
            del self._ended[key], self._kept[key]

    def _is_old(self, ended: float) -> bool:
        return self._max_age is not None and self._clock() - ended >= self._max_age


class _Kept:
    """What is kept of one run."""

    __slots__ = ("dropped", "ended", "events", "first", "last", "news", "size", "sizes")

    def __init__(self) -> None:
        self.events: list[UIEvent] = []
        self.sizes: list[int] = []  # bytes of each, where they are counted
        self.size = 0  # of all of them
        self.first = 0  # how many events have been dropped
        self.dropped = 0  # the seq of the last of them
        self.last = 0  # the seq of the last
        self.ended = False
        self.news: anyio.Event | None = None  # for those who have read everything

    def weigh(self, size: int, most: int) -> None:
        """Count the bytes of the last event, and drop the oldest if all are more than `most`."""
        self.sizes.append(size)
        self.size += size
        if self.size > most:
            many, left = 0, self.size
            while left > most - most // 8 and many < len(self.sizes) - 1:
                left -= self.sizes[many]
                many += 1
            self.drop(many)

    def drop(self, many: int) -> None:
        """Drop the oldest events, an eighth more than is too many: then it is rarely done."""
        if many:
            self.dropped = self.events[many - 1].seq
            self.size -= sum(self.sizes[:many])
            del self.events[:many], self.sizes[:many]
            self.first += many

    def tell(self) -> None:
        if self.news is not None:
            self.news.set()
            self.news = None


class MemoryReader:
    """Reads one run of a `MemoryEventLog`. A read that is cancelled has taken nothing; several tasks share the events.

    It may be dropped at any time; `aclose()` ends it for those who wait in it.
    """

    __slots__ = ("_index", "_kept", "_left", "_waiting")

    def __init__(self, kept: _Kept, after: int) -> None:
        self._kept = kept
        self._left = False
        self._waiting = 0  # how many wait in it
        self._index = -1  # of the next event, among all that there were; one that is kept no more makes a resync
        if kept.dropped <= after <= kept.last:
            self._index = kept.first + bisect_right(kept.events, after, key=_seq_of)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        while (event := self.take()) is None:
            if self._left or self._kept.ended:
                raise StopAsyncIteration
            if self._kept.news is None:
                self._kept.news = anyio.Event()
            self._waiting += 1
            try:
                await self._kept.news.wait()
            finally:
                self._waiting -= 1
        return event

    def take(self) -> UIEvent | None:
        """Return the next event if it is there, without waiting for it."""
        kept = self._kept
        place = self._index - kept.first
        if place >= len(kept.events) or self._left:
            return None
        if place < 0:
            self._index = kept.first
            return resync(kept.dropped)
        self._index += 1
        return kept.events[place]

    async def aclose(self) -> None:
        """End the reading, also for those who wait in it."""
        self.close()

    def close(self) -> None:
        """End the reading at once."""
        self._left = True
        if self._waiting:
            self._kept.tell()
