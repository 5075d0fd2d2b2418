"""Announces the shutdown of a server to its responses: no new answer starts, and running answers have time to finish.

At a shutdown, a server waits until all responses have ended. A streamed response may take minutes. ASGI does not tell
the responses that the server shuts down: the shutdown event of the lifespan is sent only after all responses have
ended. So this module handles the signals itself, and then calls the previous handler of the signal.
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

from streamtools.errors import Checked, check_number

RETRY_AFTER = 5
"""Seconds after which a refused client should try again. By then, the next server process should be running."""


class Shutdown:
    """The state of a shutdown. `begin` starts the shutdown; `shutdown_signal` calls `begin` when a signal arrives.

    After `begin`, no new answer starts. Running answers have `drain` seconds to finish. Raises ValueError if `drain` is
    not a number of seconds.
    """

    def __init__(self, drain: float = 0.0) -> None:
        check_number("drain", drain, 0)
        self.drain = drain
        self._begun = anyio.Event()
        self._ended = anyio.Event()
        self._deadline = math.inf

    @property
    def begun(self) -> bool:
        """Whether the shutdown has begun. No new answer starts then."""
        return self._begun.is_set()

    @property
    def over(self) -> bool:
        """Whether the time for running answers is over. The answers must end now."""
        return self._ended.is_set() or (self.begun and anyio.current_time() >= self._deadline)

    def begin(self) -> None:
        """Begin the shutdown. Call it in the thread of the event loop."""
        if not self.begun:
            self._deadline = anyio.current_time() + self.drain
            self._begun.set()

    def end(self) -> None:
        """End the drain immediately. Call it in the thread of the event loop."""
        self.begin()
        self._ended.set()

    async def wait(self) -> None:
        """Wait until the shutdown begins."""
        await self._begun.wait()

    async def wait_over(self) -> None:
        """Wait until the shutdown has begun and the drain is over."""
        await self._begun.wait()
        if not self.over:
            with anyio.CancelScope(deadline=self._deadline):
                await self._ended.wait()


class shutdown_signal(Checked):  # noqa: N801  # used like a function
    """An asynchronous context manager for an application's lifespan. It returns a `Shutdown` that begins at a signal.

    The first of `signals` that arrives begins the shutdown, and the second ends the drain. `drain` is the number of
    seconds for running answers. It must be less than the time after which the process is killed. The default is 0,
    because this time is unknown. The previous signal handlers, usually those of the server, are still called. They are
    restored at the end. Outside the main thread, Python cannot handle signals, so the application must call `begin()`.
    """

    def __init__(self, signals: Iterable[int] = (signal.SIGTERM, signal.SIGINT), *, drain: float = 0.0) -> None:
        self._signals = tuple(signals)
        self._previous: dict[int, Any] = {}
        self._shutdown = Shutdown(drain)
        self._group: TaskGroup

    async def __aenter__(self) -> Shutdown:
        # A signal handler must not use the event loop. Writing to a socket wakes the loops of both asyncio and trio.
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
        with suppress(OSError):  # the buffer of the socket is full, or the receiver is closed
            self._sender.send(b"\0")
        previous: Callable[[int, FrameType | None], Any] | int | None = self._previous[number]
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
