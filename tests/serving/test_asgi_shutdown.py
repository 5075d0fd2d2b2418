"""The end of a server with open streams, by a signal or by a timeout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import FrameType

import anyio
import anyio.to_thread
import httpx
import pytest
from anyio.streams.text import TextReceiveStream

from streamtools.outputs.asgi import Shutdown, shutdown_signal
from tests.serving.test_asgi_server import app, chunk, read_until, visiting
from tests.support.loopback import Loopback
from tests.support.serving import Served, read_frames

pytestmark = pytest.mark.anyio

PROGRAM = """
import sys
from contextlib import asynccontextmanager

import httpx
import uvicorn
from fastapi import FastAPI

from streamtools import ToolStream, sources
from streamtools.outputs import asgi


@asynccontextmanager
async def lifespan(app):
    async with asgi.shutdown_signal() as app.state.shutdown:
        yield
    print("closed", flush=True)


@asynccontextmanager
async def ask():
    async with httpx.AsyncClient(trust_env=False) as client, client.stream("POST", sys.argv[1]) as response:
        async with ToolStream(sources.openai(response)) as events:
            yield events


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def answer():
    return asgi.event_stream_response(ask(), shutdown=app.state.shutdown)


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


Server(uvicorn.Config(app, port=0, log_level="error")).run()
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_server_with_open_streams(number: signal.Signals) -> None:
    """Its streams report `cancelled`, their provider is closed, and the server exits normally."""
    async with Loopback([chunk("a")], hold=True) as provider:
        command = [sys.executable, "-c", PROGRAM, provider.url]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        async with await anyio.open_process(command, env=environment, stderr=subprocess.DEVNULL) as server:
            assert server.stdout is not None
            says = TextReceiveStream(server.stdout)
            address = f"http://127.0.0.1:{int(await says.receive())}"
            body = b""
            async with httpx.AsyncClient(trust_env=False) as client, client.stream("GET", address) as response:
                async for piece in response.aiter_raw():
                    body += piece
                    if b"event: text" in piece:
                        server.send_signal(number)
            with anyio.fail_after(10):
                await provider.disconnected.wait()
            assert "closed" in "".join([text async for text in says])
            await server.wait()
    assert {"type": "done", "reason": "cancelled"}.items() <= read_frames(body)[-1].items()


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
