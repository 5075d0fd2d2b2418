"""The end of a server with open streams, by a signal or by a timeout."""

from __future__ import annotations

import signal
import threading
from functools import partial
from types import FrameType

import anyio
import anyio.to_thread
import pytest

from streamtools.outputs.asgi import Shutdown, shutdown_signal
from tests.serving.test_asgi_server import app, chunk, read_until, visiting
from tests.support.loopback import Loopback
from tests.support.serving import Served


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_server_that_cancels_its_tasks() -> None:
    """The server cancels its tasks, and the provider is closed."""
    async with (
        Loopback([chunk("a")], hold=True) as provider,
        Served(app(provider), timeout_graceful_shutdown=0) as server,
        visiting(server) as stream,
    ):
        await read_until(stream, b"event: text")
        server.server.should_exit = True
        with anyio.fail_after(10):
            await provider.disconnected.wait()


async def raised(number: signal.Signals, shutdown: Shutdown) -> None:
    """Send this process a signal, and wait for the shutdown."""
    signal.raise_signal(number)
    with anyio.fail_after(10):
        await shutdown.wait()


async def test_earlier_handlers_are_called() -> None:
    """They are restored afterwards. Several signals count as one."""
    heard = list[int]()

    def note(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGUSR1, note)
    try:
        async with shutdown_signal([signal.SIGUSR1]) as shutdown:
            assert not shutdown.begun
            await raised(signal.SIGUSR1, shutdown)
            for _ in range(1000):
                signal.raise_signal(signal.SIGUSR1)
        assert note is signal.getsignal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [signal.SIGUSR1] * 1001 == heard


async def test_a_later_handler_is_kept() -> None:
    """Only our own handler is replaced."""
    before = signal.getsignal(signal.SIGUSR1)
    try:
        async with shutdown_signal([signal.SIGUSR1]) as shutdown:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            shutdown.begin()
        assert signal.SIG_IGN is signal.getsignal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_a_signal_without_a_handler() -> None:
    """Its default action follows: here, nothing."""
    assert signal.SIG_DFL is signal.getsignal(signal.SIGURG)
    async with shutdown_signal([signal.SIGURG]) as shutdown:
        await raised(signal.SIGURG, shutdown)
    assert signal.SIG_DFL is signal.getsignal(signal.SIGURG)


async def test_outside_of_the_main_thread(anyio_backend: str) -> None:
    """Only `begin` begins the shutdown."""

    async def use() -> bool:
        async with shutdown_signal() as shutdown:
            shutdown.begin()
            await shutdown.wait()
        return threading.current_thread() is not threading.main_thread()

    assert await anyio.to_thread.run_sync(partial(anyio.run, use, backend=anyio_backend))
