"""When the pieces of a replay are there: the waiting, on a real clock or on a virtual one."""

from __future__ import annotations

import math
import time

import anyio
import anyio.lowlevel

from streamtools.recording.playback import Playback

_TURNS = 4
"""How often others get their turn before a virtual clock moves on. A task that waits for the bytes needs two, because
trio shuffles those that are ready; one that waits for that task as many again."""


class Pace:
    """Waits until things are due. A reader that has to wait too long gets a TimeoutError, and nothing after it."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback
        self._start: float | None = None
        self._closed: anyio.Event | None = None

    def begin(self, now: float) -> None:
        """Count from here on, in the time of `playback.clock` or else from `now`, unless it is begun already."""
        if self._start is None:
            self._start = now if self._playback.clock is None else self._playback.clock()

    def close(self) -> None:
        """Let go whoever waits for what never comes."""
        if self._closed is not None:
            self._closed.set()

    async def wait(self, due: float) -> None:
        """Wait until `due` seconds after the beginning, which may be never; raise TimeoutError."""
        clock = self._playback.clock
        if clock is not None:
            for _ in range(_TURNS):
                await anyio.lowlevel.checkpoint()
        delay, late = self._delay(due, anyio.current_time())
        if delay == math.inf:
            self._closed = anyio.Event()
            await self._closed.wait()
            raise anyio.ClosedResourceError
        if clock is not None:
            clock.advance(delay)
        elif delay > 0:
            await anyio.sleep(delay)
        if late:
            raise TimeoutError("nothing came in time")

    def wait_blocking(self, due: float) -> None:
        """Do as `wait`, and block the thread. Raises RuntimeError instead of waiting for ever."""
        clock = self._playback.clock
        delay, late = self._delay(due, time.monotonic())
        if delay == math.inf:
            raise RuntimeError("nothing more comes, and this reader has no read timeout: it would wait for ever")
        if clock is not None:
            clock.advance(delay)
        elif delay > 0:
            time.sleep(delay)
        if late:
            raise TimeoutError("nothing came in time")

    def _delay(self, due: float, now: float) -> tuple[float, bool]:
        """Return the seconds to wait from `now`, and whether the reader's time is up then."""
        self.begin(now)
        assert self._start is not None
        if self._playback.clock is not None:
            now = self._playback.clock()
        delay, patience = self._start + due - now, self._playback.read_timeout
        return (delay, False) if patience is None or delay <= patience else (patience, True)
