"""The events of one run on Redis, on both sides of it: what its owner has yet to write, and what readers follow.

The owner writes into a `Tail`, which keeps the last seconds of what is written already: a server that comes back
without them gets them again. Readers of a run in one process share a `Feed`, which holds what has come last. Whoever is
further behind reads the stream by itself, so that nobody's slowness takes memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, Self

import anyio

from streamtools import observing
from streamtools.errors import RunNotFound
from streamtools.events import Done, UIEvent, read_ui_event
from streamtools.events.event import weigh
from streamtools.serving.event_log import resync

WINDOW = 512  # events of a run that the readers of a process share,
WINDOW_BYTES = 1 << 22  # and bytes, or the last event
_BATCH = 64  # events of a run that are appended together
_BYTES = 1 << 22  # and as many bytes, unless one event is larger
_KEPT = 5.0  # seconds that what has been written is kept, in case the server forgets it
_LOOK = 0.02  # seconds between two looks at whether a run is held
_MOST = 10_000  # events that may wait while the server is away,
_MOST_BYTES = 1 << 24  # and bytes


class Agreed(NamedTuple):
    """What all processes agree on; see `RedisStore`."""

    prefix: str
    lease: float
    keep: float
    length: int
    patience: float


class Tail:
    """What the owner of a run has to write, and the token under which it does."""

    def __init__(self, key: str, run_id: str, owner: str, epoch: int, worker: str, place: str) -> None:
        self.key = key
        self.run_id = run_id
        self.owner = owner
        self.epoch = epoch
        self.place = place
        """The key under which its token stands."""
        self.written = 0
        """The seq of the last event that the server has."""
        self.final: tuple[int, bytes, bytes] | None = None
        """The seq of `done`, `done`, and what the run has come to."""
        self.settled = anyio.Event()
        """All is written, or nothing more will be."""
        self.ended: float | None = None
        """When the server had all of it."""
        self.is_fenced = False
        self.may_gap = False
        self.is_doubtful = False
        """Whether the server seems to have lost something of it."""
        self.will_end = False
        """Whether its run is driven here, and comes to an end."""
        self.on_loss: Callable[[], object] = lambda: None
        """Ends the run: it cannot be written any more."""
        self.on_read: Callable[[], object] = lambda: None
        """Called now and again while another process says that it is read there."""
        self.held = 0.0
        """Until when it is surely held, whatever has stopped this process since."""
        self.renew: Callable[[], Awaitable[object]]
        """Renews its lease, or finds that it is another's."""
        self._moved = anyio.Event()
        self._worker = worker
        self._pending: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._kept: deque[tuple[float, int, bytes]] = deque()
        self._kept_size = 0

    @property
    def token(self) -> str:
        """Under which it is written."""
        return f"{self.epoch}:{self._worker}"

    async def is_lost(self) -> bool:
        """Whether the run is another's. Where it is not sure to be held any more, that is waited for."""
        while not self.is_fenced and (self.is_doubtful or anyio.current_time() >= self.held):
            with suppress(Exception):  # the server is away, which ends, or ends the run
                await self.renew()
            await anyio.sleep(_LOOK)
        return self.is_fenced

    @property
    def is_full(self) -> bool:
        """Whether so much waits that the run cannot go on."""
        return len(self._pending) > _MOST or self._size > _MOST_BYTES

    @property
    def is_at_end(self) -> bool:
        return self.final is not None and not self._pending and self.ended is None and not self.is_fenced

    @property
    def is_dirty(self) -> bool:
        return bool(self._pending) or self.is_at_end or self.is_doubtful

    def add(self, seq: int, data: bytes) -> None:
        if not self.is_fenced:
            self._pending.append((seq, data))
            self._size += len(data)

    def batch(self) -> list[tuple[int, bytes]]:
        found, size = list[tuple[int, bytes]](), 0
        for each in self._pending:
            size += len(each[1])
            if found and (size > _BYTES or len(found) == _BATCH):
                break
            found.append(each)
        return found

    def settle(self, last: int) -> None:
        """Note that the server has all events up to this one."""
        now = anyio.current_time()
        while self._pending and self._pending[0][0] <= last:
            seq, data = self._pending.popleft()
            self._size -= len(data)
            self._kept.append((now, seq, data))
            self._kept_size += len(data)
        self.written = last
        self.may_gap = False
        self._moved.set()
        self.forget()

    def end(self) -> None:
        """Note that the server has the end as well."""
        self.ended = anyio.current_time()
        self.settled.set()

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to be written, not even again."""
        return self.ended is not None and self.ended < anyio.current_time() - _KEPT

    async def wait_for(self, seq: int) -> None:
        """Wait until the server has the event of this number, or the run is another's."""
        while self.written < seq and not self.is_fenced:
            self._moved = anyio.Event()
            await self._moved.wait()

    def forget(self) -> None:
        """Drop what is older than a server forgets."""
        before = anyio.current_time() - _KEPT
        while self._kept and (self._kept[0][0] < before or len(self._kept) > _MOST or self._kept_size > _MOST_BYTES):
            self._kept_size -= len(self._kept.popleft()[2])

    def rewind(self, last: int, epoch: int) -> None:
        """Write again what the server has lost, which has nothing behind `last`, under a new epoch."""
        self.ended = None
        while self._pending and self._pending[0][0] <= last:
            self._size -= len(self._pending.popleft()[1])
        again = [(seq, data) for _, seq, data in self._kept if seq > last]
        self._kept.clear()
        self._kept_size = 0
        self._pending.extendleft(reversed(again))
        self._size += sum(len(data) for _, data in again)
        self.written, self.epoch = last, epoch
        first = self._pending[0][0] if self._pending else self.final[0] if self.final else last + 1
        self.may_gap = first > last + 1

    def fence(self) -> None:
        """Note that the run is another's: nothing more is written, and it ends here."""
        self.is_fenced = True
        observing.count("fenced_appends")
        self._pending.clear()
        self._kept.clear()
        self._size = self._kept_size = 0
        self.settled.set()
        self._moved.set()
        self.on_loss()


class Look(NamedTuple):
    """How a run stands; `token` is empty where there is none, and `since` is the last seq before its owner.

    `written` is the number of the owner who has written the event that was asked about, or 0 where that is not there.
    """

    first: int
    last: int
    token: str
    since: int
    is_over: bool
    written: int


class Feed:
    """What has come last of a run that is read in this process."""

    def __init__(self, key: str, name: bytes, look: Look) -> None:
        self.key = key
        self.name = name
        """What its stream is called."""
        self.last = look.last
        """The seq up to which the server has been read."""
        self.written = look.written  # by which owner that is
        self.readers = 0
        self.turns = 0
        """How often the server has come back with less than was read."""
        self.fault: Exception | None = None
        self._events: deque[tuple[int, UIEvent]] = deque()
        self._size = 0
        self._news: anyio.Event | None = None

    def add(self, events: list[tuple[int, UIEvent]], written: int) -> None:
        """Take what the server has sent, the last of it by this owner."""
        for each in events:
            self._events.append(each)
            self._size += weigh(each[1])
            while len(self._events) > WINDOW or (self._size > WINDOW_BYTES and len(self._events) > 1):
                self._size -= weigh(self._events.popleft()[1])
        self.last, self.written = events[-1][0], written
        self.wake()

    def after(self, position: int) -> list[tuple[int, UIEvent]] | None:
        """Return what has come behind a position; None if that is here no more."""
        if not self._events or not self._events[0][0] - 1 <= position < self.last:
            return None
        behind = position + 1 - self._events[0][0]  # where no number is missing
        if behind < len(self._events) and self._events[behind][0] == position + 1:
            return [self._events[place] for place in range(behind, min(behind + 16, len(self._events)))]
        return [each for each in self._events if each[0] > position] or None

    def check(self, look: Look) -> None:
        """Compare it with the server, which has come back: what was read may be gone there, or told otherwise.

        `look` is about the last event here. If that is still by the same owner, so is all before it.
        """
        if not self.last or look.written == self.written or look.first > self.last:
            return
        owner = int(look.token.partition(":")[0] or 0)
        is_next = owner == self.written + 1  # or else there may have been less between them than `since` says
        self.last = look.last if owner == self.written else min(look.since, look.last) if is_next else 0
        self._events.clear()
        self._size = 0
        self.turns += 1
        self.wake()

    async def wait(self) -> None:
        if self._news is None:
            self._news = anyio.Event()
        await self._news.wait()

    def wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def fail(self, fault: Exception) -> None:
        self.fault = fault
        self.wake()


class Link(Protocol):
    """What a reader needs of its process."""

    async def look(self, key: str) -> Look: ...
    async def fetch(self, key: str, after: int) -> list[tuple[int, UIEvent]]: ...
    async def follow(self, key: str, look: Look) -> Feed: ...
    def leave(self, feed: Feed) -> None: ...


class RedisReader:
    """Reads one run from a position, as `EventLog.read` says. A read that is cancelled has taken nothing.

    Before `done` is handed out, `before_end` is waited for.
    """

    def __init__(
        self, link: Link, key: str, after: int, before_end: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self._link = link
        self._key = key
        self._before_end = before_end
        self._position = after
        self._feed: Feed | None = None
        self._turns = 0
        self._ready: deque[tuple[int, UIEvent]] = deque()
        self._is_over = False
        self._opened = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        if not self._opened:
            await self._open()
        while not self._ready:
            if self._is_over:
                raise StopAsyncIteration
            await self._fill()
        if type(self._ready[0][1]) is Done and self._before_end is not None:
            await self._before_end()
            if not self._ready:  # another task has read it meanwhile
                raise StopAsyncIteration
        self._position, event = self._ready.popleft()
        if type(event) is Done:
            await self.aclose()
        return event

    async def _open(self) -> None:
        look = await self._link.look(self._key)
        if not look.token:
            raise RunNotFound("nothing is kept of this run")
        is_behind = look.is_over and self._position == look.last
        if not is_behind:
            feed = await self._link.follow(self._key, look)
            if self._feed is not None:  # another read of this reader has opened it
                self._link.leave(feed)
                return
            self._feed, self._turns = feed, feed.turns
        self._opened = True
        if is_behind:
            self._is_over = True
        elif not look.first - 1 <= self._position <= look.last:
            self._restart(look)

    def _restart(self, look: Look) -> None:
        before = max(look.first - 1, 0)
        self._ready.clear()
        self._ready.append((before, resync(before)))

    async def _fill(self) -> None:
        feed, position = self._feed, self._position
        assert feed is not None
        if feed.fault is not None:
            raise feed.fault
        if feed.turns != self._turns:
            look = await self._link.look(self._key)
            self._turns = feed.turns
            if position > feed.last or not look.token:
                self._restart(look)
            return
        found = feed.after(position)
        if found is None and position < feed.last:
            found = await self._link.fetch(self._key, position)
            if not found and not (await self._link.look(self._key)).token:
                self._is_over = True  # forgotten meanwhile
                return
        if self._ready or position != self._position:  # another task has read meanwhile
            return
        if found:
            if found[0][0] > position + 1:  # what is between is kept no more, or never came
                self._ready.append((found[0][0] - 1, resync(found[0][0] - 1)))
            self._ready += found
        elif position >= feed.last:
            await feed.wait()

    async def aclose(self) -> None:
        """End the reading, also for those who wait in it."""
        self._leave()

    def _leave(self) -> None:
        feed, self._feed = self._feed, None
        self._is_over = self._opened = True
        if feed is not None:
            self._link.leave(feed)
            feed.wake()

    def __del__(self) -> None:
        self._leave()


def read_entries(entries: Iterable[Any]) -> list[tuple[int, UIEvent]]:
    return [(int(id.partition(b"-")[0]), read_ui_event(data)) for id, (_, data) in entries]
