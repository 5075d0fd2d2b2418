"""The shutdown of a server: no answer is begun any more, and those that go on have a time to finish before they end.

A server waits for its responses, which may last for minutes here. Neither ASGI nor a framework notifies them, because
the shutdown of the lifespan comes only when all of them have ended. So this module handles the signals as well, and
calls each handler that was there before.
"""

from __future__ import annotations

import math
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any

import anyio
from anyio.abc import TaskGroup

RETRY_AFTER = 5
"""Seconds after which a client that was turned away may come again: another process may serve it at once, and the next
of a single one has to start."""


class Shutdown:
    """Whether the server is about to end. `begin` says so; `shutdown_signal` makes one that begins with signals.

    From then on nothing new is begun, and what goes on has `drain` seconds to finish. Raises ValueError for a drain
    that is no number of seconds.
    """

    def __init__(self, drain: float = 0.0) -> None:
        if isinstance(drain, bool) or not isinstance(drain, int | float) or not 0 <= drain < math.inf:
            raise ValueError(f"drain is a number of seconds, not {drain!r}")
        self.drain = drain
        self._begun = anyio.Event()
        self._ended = anyio.Event()
        self._deadline = math.inf

    @property
    def begun(self) -> bool:
        """Whether the server is about to end, and nothing is begun any more."""
        return self._begun.is_set()

    @property
    def over(self) -> bool:
        """Whether what goes on is to end now."""
        return self._ended.is_set() or (self.begun and anyio.current_time() >= self._deadline)

    def begin(self) -> None:
        """Let nothing new begin, and the streams end after the drain. To be called in the event loop's thread."""
        if not self.begun:
            self._deadline = anyio.current_time() + self.drain
            self._begun.set()

    def end(self) -> None:
        """Let the streams end now. To be called in the event loop's thread."""
        self.begin()
        self._ended.set()

    async def wait(self) -> None:
        """Wait until the server is about to end."""
        await self._begun.wait()

    async def wait_over(self) -> None:
        """Wait until what goes on is to end."""
        await self._begun.wait()
        with anyio.CancelScope(deadline=self._deadline):
            await self._ended.wait()


class shutdown_signal:  # noqa: N801  # a context manager that is used like a function
    """In an application's lifespan: gives the `Shutdown` that begins with one of `signals`; a second ends its drain.

    `drain` is in seconds, and has to be less than the time after which the process is killed; 0 by default, because
    that time is not known here. The handlers that were there, the server's above all, are called as before, and put
    back in the end. Outside of the main thread, where Python has no signals, only `begin()` begins it.
    """

    def __init__(self, signals: Iterable[int] = (signal.SIGTERM, signal.SIGINT), *, drain: float = 0.0) -> None:
        self._signals = tuple(signals)
        self._before: dict[int, Any] = {}
        self._shutdown = Shutdown(drain)
        self._group: TaskGroup

    async def __aenter__(self) -> Shutdown:
        # A handler runs between any two instructions and may not use an event loop; a socket wakes asyncio and trio.
        self._hears, self._tells = socket.socketpair()
        self._hears.setblocking(False)
        self._tells.setblocking(False)
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._listen)
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                self._before[number] = signal.getsignal(number)
                signal.signal(number, self._handle)
        return self._shutdown

    async def __aexit__(self, *raised: object) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)
        self._hears.close()
        self._tells.close()

    async def _listen(self) -> None:
        for act in (self._shutdown.begin, self._shutdown.end):
            await anyio.wait_readable(self._hears)
            self._hears.recv(1)
            act()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # the buffer is full of signals that have not been read, or nobody reads any more
            self._tells.send(b"\0")
        before: Callable[[int, FrameType | None], Any] | int | None = self._before[number]
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
