"""The shutdown of a server: no answer starts any more, and running ones have a time to finish.

A server waits for its responses, which may take minutes here. Neither ASGI nor a framework notifies the responses,
because the lifespan shuts down only after all of them have ended. So this module handles the signals as well, and calls
each handler that was there previous.
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
"""Seconds after which a refused client may try again: another process may serve it immediately, and the successor of a
single process has to start."""


class Shutdown:
    """Whether the server is about to end. `begin` announces it, and `shutdown_signal` calls it for signals.

    Nothing new starts from then on, and running answers have `drain` seconds to finish. Raises ValueError if `drain` is
    not a number of seconds.
    """

    def __init__(self, drain: float = 0.0) -> None:
        if isinstance(drain, bool) or not isinstance(drain, int | float) or not 0 <= drain < math.inf:
            raise ValueError(f"`drain` must be a number of seconds, got {drain!r}.")
        self.drain = drain
        self._begun = anyio.Event()
        self._ended = anyio.Event()
        self._deadline = math.inf

    @property
    def begun(self) -> bool:
        """Whether the server is about to end, and nothing new starts."""
        return self._begun.is_set()

    @property
    def over(self) -> bool:
        """Whether the drain is over, and running answers have to end now."""
        return self._ended.is_set() or (self.begun and anyio.current_time() >= self._deadline)

    def begin(self) -> None:
        """Start the drain. Call it in the thread of the event loop."""
        if not self.begun:
            self._deadline = anyio.current_time() + self.drain
            self._begun.set()

    def end(self) -> None:
        """End the drain. Call it in the thread of the event loop."""
        self.begin()
        self._ended.set()

    async def wait(self) -> None:
        """Wait for the start of the drain."""
        await self._begun.wait()

    async def wait_over(self) -> None:
        """Wait for the end of the drain."""
        await self._begun.wait()
        with anyio.CancelScope(deadline=self._deadline):
            await self._ended.wait()


class shutdown_signal:  # noqa: N801  # used like a function
    """In an application's lifespan: yields a `Shutdown` that begins with one of `signals`. A second one ends its drain.

    `drain` is in seconds, and must be less than the time after which the process is killed. It is 0 by default, because
    that time is unknown. The handlers that were there, above all the server's, are called as previous, and restored at
    the end. Outside the main thread, where Python has no signals, only `begin()` begins it.
    """

    def __init__(self, signals: Iterable[int] = (signal.SIGTERM, signal.SIGINT), *, drain: float = 0.0) -> None:
        self._signals = tuple(signals)
        self._previous: dict[int, Any] = {}
        self._shutdown = Shutdown(drain)
        self._group: TaskGroup

    async def __aenter__(self) -> Shutdown:
        # A handler may not use the event loop. A socket wakes asyncio and trio.
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._listen)
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                self._previous[number] = signal.getsignal(number)
                signal.signal(number, self._handle)
        return self._shutdown

    async def __aexit__(self, *raised: object) -> None:
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, previous)
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)
        self._receiver.close()
        self._sender.close()

    async def _listen(self) -> None:
        for act in (self._shutdown.begin, self._shutdown.end):
            await anyio.wait_readable(self._receiver)
            self._receiver.recv(1)
            act()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        with suppress(OSError):  # the buffer is full of signals, or the receiver is closed
            self._sender.send(b"\0")
        previous: Callable[[int, FrameType | None], Any] | int | None = self._previous[number]
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
