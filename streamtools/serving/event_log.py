"""The events of runs, kept for readers that come later or come back.

The position of a reader is the `seq` of the event that it read last. It needs nothing else to go on, neither a
connection nor a process. So a log has two methods, which a log for several processes (Redis Streams, a table) can offer
too.

In memory, a run is a list of events, and a reader is an index into it that is registered nowhere. Readers that have
read everything wait for news, of which the next `append` tells all of them; further appends before a reader waits again
wake nobody.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Protocol, Self
from urllib.parse import quote

import anyio

from streamtools.errors import Code, RunNotFound
from streamtools.events import Done, Text, UIEvent, Warning
from streamtools.events.event import BATCH_BYTES, EMPTY_EVENT, LARGE, batch_length, size_of, weigh

_TEXTS = 32  # texts that are counted together, up to a large one
_TAKEN = 64  # events that a reader takes together at most
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


class Ended:
    """Keys of runs in the order in which they ended; `most` of them are kept, for `age` seconds; None is no bound."""

    def __init__(self, most: float | None, age: float | None, clock: Callable[[], float]) -> None:
        self._most = math.inf if most is None else most
        self._age = math.inf if age is None else age
        self._clock = clock
        self._times: dict[str, float] = {}

    def add(self, key: str) -> None:
        self._times[key] = self._clock()

    def discard(self, key: str) -> None:
        self._times.pop(key, None)

    def pop_old(self) -> Iterator[str]:
        """Yield those that are kept no more. Each is looked at once, when it goes."""
        while self._times:
            key, ended = next(iter(self._times.items()))
            if len(self._times) <= self._most and self._clock() - ended < self._age:
                break
            del self._times[key]
            yield key


class MemoryEventLog:
    """An event log in the memory of this process; for the event loop that it is used in, and not for other threads.

    Of each run the last `max_events` are kept, or up to an eighth fewer, and of these as many as hold `max_bytes`, or
    an eighth less (None: no such bound); the very last is kept, however large it is. An event holds the characters of
    its text, or else of its JSON, as many bytes each as they take in memory, and 64 for itself; up to 32 texts of 4,096
    characters are counted, and dropped, together. A run that has ended is forgotten `max_age` seconds later, and
    earlier if `max_ended` runs have ended after it (None: no such bound). Both are looked at when the log is used, and
    nothing runs in between. A run that goes on is kept. Raises ValueError for wrong bounds.
    """

    def __init__(
        self,
        *,
        max_events: int = 50_000,
        max_bytes: int | None = 16 * 1024 * 1024,
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
        self._kept: dict[str, _Kept] = {}
        self._ended = Ended(max_ended, max_age, clock)

    def __len__(self) -> int:
        """How many runs are kept."""
        self._forget_old()
        return len(self._kept)

    async def append(self, key: str, event: UIEvent, /) -> int:
        """Keep an event, unless its `seq` is not higher than the last: it is there, or was. Return that `seq`.

        Raises ValueError for an event without a `seq`.
        """
        self.extend(key, (event,))
        return event.seq

    def extend(self, key: str, events: Sequence[UIEvent]) -> None:
        """Keep several events, as `append` does, and wake those who wait for them once."""
        try:
            kept = self._kept[key]
        except KeyError:
            kept = self._begin(key, events[0])
        for event in events:
            seq = event.seq
            if seq <= kept.last:
                continue
            kept.last = seq
            kept.events.append(event)
            if seq >= kept.count_at or type(event) is not Text or len(event.text) > LARGE:
                kept.count(self._max_events, self._max_bytes)
                if type(event) is Done:
                    kept.ended = True
                    self._ended.add(key)
                    self._forget_old()
        if kept.has_waiting:
            kept.wake()

    def _begin(self, key: str, event: UIEvent) -> _Kept:
        if event.seq < 1:
            raise ValueError(f"an event of a run has a number, from 1, as its seq, and not {event.seq}")
        self._forget_old()
        kept = self._kept[key] = _Kept()
        kept.dropped = event.seq - 1  # what was before the first is not here
        return kept

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
        self._ended.discard(key)
        if kept is not None:
            kept.ended = True
            kept.wake()

    def _forget_old(self) -> None:
        for key in self._ended.pop_old():
            del self._kept[key]


class _Kept:
    __slots__ = (
        *("_futures", "_is_known", "_loop", "_news", "count_at", "counted", "dropped", "ended", "events", "first"),
        *("has_waiting", "last", "size", "sizes"),
    )

    def __init__(self) -> None:
        self.events: list[UIEvent] = []
        self.counted = 0  # of how many, among all that there were, the bytes are known
        self.size = 0  # and what those of them hold that are kept
        self.sizes: list[tuple[int, int]] = []  # how many, among all, had been counted when, and what was new
        self.count_at = 0  # the seq at which they are counted, at the latest: each is higher than the one before
        self.first = 0  # how many events have been dropped
        self.dropped = 0  # the seq of the last of them
        self.last = 0  # the seq of the last
        self.ended = False
        self.has_waiting = False  # somebody has read everything
        self._news: anyio.Event | None = None  # for him
        self._futures: list[asyncio.Future[None]] = []  # in its place on asyncio, where an event costs twice as much
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_known = False  # whether there is one

    def count(self, most: int, most_bytes: int | None) -> None:
        """Count what is new, and drop the oldest events if there are too many, or they hold too much."""
        texts = self.events[self.counted - self.first :]
        self.counted += len(texts)
        new = EMPTY_EVENT * len(texts)
        if type(texts[-1]) is not Text:  # which is counted at once, so that those before it are texts
            new += weigh(texts.pop()) - EMPTY_EVENT
        new += size_of("".join([each.text for each in texts]))  # type: ignore[union-attr]
        self.size += new
        self.sizes.append((self.counted, new))
        if most_bytes is not None and self.size > most_bytes:
            self.drop(self._find_rest(most_bytes - most_bytes // 8))
        if len(self.events) > most:
            self.drop(len(self.events) - most + most // 8)
        self.count_at = self.last + min(most + 1 - len(self.events), _TEXTS)

    def _find_rest(self, most_bytes: int) -> int:
        """Return behind how many events the others hold at most so much, or are only one."""
        left = self.size
        for count, size in self.sizes:
            left -= size
            if left <= most_bytes:
                return min(count - self.first, len(self.events) - 1)
        return len(self.events) - 1

    def drop(self, many: int) -> None:
        """Drop the oldest events, an eighth more than is too many: then it is rarely done."""
        if many:
            self.dropped = self.events[many - 1].seq
            del self.events[:many]
            self.first += many
            gone = bisect_right(self.sizes, self.first, key=itemgetter(0))
            self.size -= sum(size for _, size in self.sizes[:gone])
            del self.sizes[:gone]

    async def wait(self) -> None:
        """Wait until something new is there, or what is read is closed."""
        self.has_waiting = True
        if not self._is_known:
            with suppress(RuntimeError):  # there is none
                task = asyncio.current_task()  # and none where trio is a guest of asyncio's
                self._loop = None if task is None else task.get_loop()
            self._is_known = True
        if self._loop is None:
            if self._news is None:
                self._news = anyio.Event()
            await self._news.wait()
            return
        future = self._loop.create_future()
        self._futures.append(future)
        try:
            await future
        except BaseException:
            if future in self._futures:
                self._futures.remove(future)
            raise

    def wake(self) -> None:
        self.has_waiting = False
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)
        if self._news is not None:
            self._news.set()
            self._news = None


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
            self._waiting += 1
            try:
                await self._kept.wait()
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

    def take_ready(self) -> Sequence[UIEvent]:
        """Return events that are there, without waiting; not all, if they are many, and never `done`."""
        kept = self._kept
        place = self._index - kept.first
        if place < 0 or place >= len(kept.events) or self._left:
            return ()
        events = kept.events[place : place + _TAKEN]
        if kept.size > BATCH_BYTES:
            del events[batch_length(events) :]
        if type(events[-1]) is Done:
            events.pop()
        self._index += len(events)
        return events

    async def read_ready(self) -> Sequence[UIEvent]:
        """Return what `take_ready` does, and wait until there is something; nothing if something else comes next."""
        kept = self._kept
        while self._index == kept.first + len(kept.events) and not (self._left or kept.ended):
            self._waiting += 1
            try:
                await kept.wait()
            finally:
                self._waiting -= 1
        return self.take_ready()

    async def aclose(self) -> None:
        """End the reading, also for those who wait in it."""
        self.close()

    def close(self) -> None:
        """Do so at once."""
        self._left = True
        if self._waiting:
            self._kept.wake()
