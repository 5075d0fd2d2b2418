"""Reading of a run on Redis: the readers of one process share a feed of its last events.

A reader that is further back than the feed reads the stream of the run itself, so that a slow reader costs no memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, Self

import anyio

from streamtools.errors import RunNotFound
from streamtools.events import Done, UIEvent, read_ui_event
from streamtools.events.event import weigh
from streamtools.serving.event_log import resync
from streamtools.serving.redis_server import RunState

WINDOW = 512
"""Events of a run that the readers of a process share."""
WINDOW_BYTES = 1 << 22
"""Bytes of these events, or one event."""
_MAX_READ = 16  # events that a reader takes at the same time


class Feed:
    """The last events of a run that is read in this process."""

    def __init__(self, key: str, stream: bytes, state: RunState) -> None:
        self.key = key
        self.stream = stream
        """The key of the stream on the server."""
        self.last = state.last
        """The seq of the last event that was read from the server."""
        self.written_by = state.written_by
        """The epoch of the owner that wrote that event."""
        self.readers = 0
        self.restarts = 0
        """How often the server came back with fewer events than were read."""
        self.error: Exception | None = None
        self._events: deque[tuple[int, UIEvent]] = deque()
        self._size = 0
        self._changed = anyio.Semaphore(0, fast_acquire=True)  # released once for each reader that waits
        self._has_waiting = False

    def add(self, events: list[tuple[int, UIEvent]], written_by: int) -> None:
        """Add the next events; `written_by` is the owner of the last one."""
        for entry in events:
            self._events.append(entry)
            self._size += weigh(entry[1])
            while len(self._events) > WINDOW or (self._size > WINDOW_BYTES and len(self._events) > 1):
                self._size -= weigh(self._events.popleft()[1])
        self.last, self.written_by = events[-1][0], written_by
        self.wake()

    def after(self, position: int) -> list[tuple[int, UIEvent]] | None:
        """Return the next events after a position; None if the feed does not have them."""
        if not self._events or not self._events[0][0] - 1 <= position < self.last:
            return None
        start = position + 1 - self._events[0][0]  # if there is no gap
        if start < len(self._events) and self._events[start][0] == position + 1:
            return [self._events[index] for index in range(start, min(start + _MAX_READ, len(self._events)))]
        return [entry for entry in self._events if entry[0] > position] or None

    def compare(self, state: RunState) -> None:
        """Compare the feed with a server that was away: it may have lost events, or have others in their place.

        `state` is about the last event of the feed. If its owner is the same, all events before it are the same.
        """
        if not self.last or state.written_by == self.written_by or state.first > self.last:
            return
        epoch = int(state.token.partition(":")[0] or 0)
        if epoch == self.written_by:
            self.last = state.last
        else:  # with another owner in between, `since` may be too high
            self.last = min(state.since, state.last) if epoch == self.written_by + 1 else 0
        self._events.clear()
        self._size = 0
        self.restarts += 1
        self.wake()

    async def wait(self) -> None:
        """Wait until the feed changes."""
        self._has_waiting = True
        await self._changed.acquire()

    def wake(self) -> None:
        if self._has_waiting:
            self._has_waiting = False
            for _ in range(self._changed.statistics().tasks_waiting):
                self._changed.release()

    def fail(self, error: Exception) -> None:
        """Make all readers raise `error`."""
        self.error = error
        self.wake()


class Feeds(Protocol):
    """The methods of a process that its readers need."""

    async def run_state(self, key: str) -> RunState: ...
    async def fetch(self, key: str, after: int) -> list[tuple[int, UIEvent]]: ...
    async def follow(self, key: str, state: RunState) -> Feed: ...
    def leave(self, feed: Feed) -> None: ...


class RedisReader:
    """Reads one run from a position; see `EventLog.read`. A cancelled read takes nothing.

    `before_done` is awaited before `done` is returned.
    """

    def __init__(
        self, feeds: Feeds, key: str, after: int, before_done: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self._feeds = feeds
        self._key = key
        self._before_done = before_done
        self._position = after
        self._feed: Feed | None = None
        self._restarts = 0  # of the feed, as far as this reader has handled them
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
        if type(self._ready[0][1]) is Done and self._before_done is not None:
            await self._before_done()
            if not self._ready:  # another task has read it
                raise StopAsyncIteration
        self._position, event = self._ready.popleft()
        if type(event) is Done:
            await self.aclose()
        return event

    async def _open(self) -> None:
        state = await self._feeds.run_state(self._key)
        if not state.token:
            raise RunNotFound("This run is not kept, or not kept any more.")
        is_at_end = state.is_over and self._position == state.last
        if not is_at_end:
            feed = await self._feeds.follow(self._key, state)
            if self._feed is not None:  # another task has opened the reader
                self._feeds.leave(feed)
                return
            self._feed, self._restarts = feed, feed.restarts
        self._opened = True
        if is_at_end:
            self._is_over = True
        elif not state.first - 1 <= self._position <= state.last:
            self._restart(state)

    def _restart(self, state: RunState) -> None:
        dropped = max(state.first - 1, 0)
        self._ready.clear()
        self._ready.append((dropped, resync(dropped)))

    async def _fill(self) -> None:
        feed, position = self._feed, self._position
        assert feed is not None
        if feed.error is not None:
            raise feed.error
        if feed.restarts != self._restarts:
            state = await self._feeds.run_state(self._key)
            self._restarts = feed.restarts
            if position > feed.last or not state.token:
                self._restart(state)
            return
        events = feed.after(position)
        if events is None and position < feed.last:
            events = await self._feeds.fetch(self._key, position)
            if not events and not (await self._feeds.run_state(self._key)).token:
                self._is_over = True  # the run was forgotten
                return
        if self._ready or position != self._position:  # another task has read
            return
        if events:
            seq = events[0][0]
            if seq > position + 1:  # the events in between were dropped or never written
                self._ready.append((seq - 1, resync(seq - 1)))
            self._ready += events
        elif position >= feed.last:
            await feed.wait()

    async def aclose(self) -> None:
        """End the reading, also for tasks that wait in it."""
        self._leave()

    def _leave(self) -> None:
        feed, self._feed = self._feed, None
        self._is_over = self._opened = True
        if feed is not None:
            self._feeds.leave(feed)
            feed.wake()

    def __del__(self) -> None:
        self._leave()


def read_entries(entries: Iterable[Any]) -> list[tuple[int, UIEvent]]:
    """Return the events of a Redis stream with their seqs."""
    return [(int(id.partition(b"-")[0]), read_ui_event(data)) for id, (_, data) in entries]
