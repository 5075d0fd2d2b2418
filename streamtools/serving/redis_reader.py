"""Reads the events of a run on Redis.

The readers of one process share a `Feed`, which holds the last events of the run. A reader that needs older events
fetches these from the log on the server. So no events are kept in memory for slow readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

from streamtools.errors import RunNotFound
from streamtools.events import Done, UIEvent
from streamtools.serving.event_log import resync
from streamtools.serving.redis_process import Feed, RedisProcess
from streamtools.serving.redis_protocol import RunState


class RedisReader:
    """An asynchronous iterator of the events of one run after the seq `after`. `EventLog.read` describes it.

    If a read is cancelled, no event is lost: the next read returns the same event. `before_done` is a function that is
    awaited before `done` is returned.
    """

    def __init__(
        self, process: RedisProcess, key: str, after: int, before_done: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        self._process = process
        self._key = key
        self._before_done = before_done
        self._position = after
        self._feed: Feed | None = None
        self._losses = 0  # the value of `feed.losses` that this reader has handled
        self._ready: deque[UIEvent] = deque()  # the next events
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
        if type(self._ready[0]) is Done and self._before_done is not None:
            await self._before_done()
            if not self._ready:  # another task has read `done` meanwhile
                raise StopAsyncIteration
        event = self._ready.popleft()
        self._position = event.seq
        if type(event) is Done:
            await self.aclose()
        return event

    async def _open(self) -> None:
        state = await self._process.server.run_state(self._key)
        if not state.epoch:
            raise RunNotFound("This run does not exist, or is no longer kept.")
        is_at_end = state.is_over and self._position == state.last
        if not is_at_end:
            feed = await self._process.follow(self._key, state)
            if self._feed is not None:  # another task has opened this reader meanwhile
                self._process.leave(feed)
                return
            self._feed, self._losses = feed, feed.losses
        self._opened = True
        if is_at_end:
            self._is_over = True
        elif not state.first - 1 <= self._position <= state.last:
            self._resync(state)

    def _resync(self, state: RunState) -> None:
        """Continue with a resync warning and then the first event in the log."""
        self._ready.clear()
        self._ready.append(resync(max(state.first - 1, 0)))

    async def _fill(self) -> None:
        """Add the next events to `_ready`, or wait for an event. May return without an event."""
        feed, position = self._feed, self._position
        assert feed is not None
        if feed.error is not None:
            raise feed.error
        if feed.losses != self._losses:
            state = await self._process.server.run_state(self._key)
            self._losses = feed.losses
            if position > feed.last or not state.epoch:
                self._resync(state)
            return
        events = feed.after(position)
        if events is None and position < feed.last:
            events = await self._process.fetch(self._key, position)
            if not events and not (await self._process.server.run_state(self._key)).epoch:
                self._is_over = True  # the run was deleted
                return
        if self._ready or position != self._position:  # another task has read from this reader meanwhile
            return
        if events:
            if events[0].seq > position + 1:  # the events between were dropped or never written
                self._ready.append(resync(events[0].seq - 1))
            self._ready += events
        elif position >= feed.last:
            await feed.waiting.wait()

    async def aclose(self) -> None:
        """Close the reader. Tasks that wait for its next event stop waiting."""
        self._leave()

    def _leave(self) -> None:
        feed, self._feed = self._feed, None
        self._is_over = self._opened = True
        if feed is not None:
            self._process.leave(feed)
            feed.waiting.wake()

    def __del__(self) -> None:
        self._leave()
