"""The end of a server, told to the streams that are open.

A server that is asked to end waits for its responses, and a response of ours may last for minutes. Neither ASGI nor a
framework tells the responses: the lifespan's shutdown comes only when all of them are over. So we listen to the signals
ourselves, next to the server and not in its place: each handler that was there is still called.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

import anyio
from anyio.abc import TaskGroup


class Shutdown:
    """Whether the server is about to end. `begin` says so; `shutdown_signal` makes one that is told by signals."""

    def __init__(self) -> None:
        self._begun = anyio.Event()

    @property
    def begun(self) -> bool:
        """Whether the server is about to end."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Let the streams end. To be called in the event loop's thread."""
        self._begun.set()

    async def wait(self) -> None:
        """Wait until the server is about to end."""
        await self._begun.wait()


class shutdown_signal:  # noqa: N801  # a context manager that is used like a function
    """In an application's lifespan: gives the `Shutdown` that begins with one of `signals`.

    The handlers that were there, the server's above all, are called as before, and put back in the end. Outside of the
    main thread, where Python has no signals, only `begin()` begins it.
    """

    def __init__(self, signals: Iterable[int] = (signal.SIGTERM, signal.SIGINT)) -> None:
        self._signals = tuple(signals)
        self._before: dict[int, Any] = {}
        self._shutdown = Shutdown()
        self._group: TaskGroup

    async def __aenter__(self) -> Shutdown:
        # A handler runs between any two instructions and may not touch an event loop; a socket wakes either kind.
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(None, None, None)
        self._hears.close()
        self._tells.close()

    async def _listen(self) -> None:
        await anyio.wait_readable(self._hears)
        self._shutdown.begin()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        with suppress(BlockingIOError):  # so many signals that nobody has listened to
            self._tells.send(b"\0")
        before: Callable[[int, FrameType | None], Any] | int | None = self._before[number]
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
