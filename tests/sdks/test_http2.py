"""Streams, disconnects and drains over HTTP/2, with hypercorn."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamtools import ToolStream
from streamtools.events import ProviderCompleted, TextDelta
from streamtools.outputs import asgi
from streamtools.runs import Runs
from tests.support.stories import Script

pytestmark = pytest.mark.sdk


@asynccontextmanager
async def served(app: Any, ends: anyio.Event, backend: str) -> AsyncIterator[str]:
    """Serve an application until `ends` is set."""
    from hypercorn import Config

    if backend == "trio":
        from hypercorn.trio import serve
    else:
        from hypercorn.asyncio import serve

    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    config = Config()
    config.bind, config.graceful_timeout = [f"fd://{listening.detach()}"], 20
    async with anyio.create_task_group() as group:

        async def run() -> None:
            await serve(app, config, shutdown_trigger=ends.wait)

        group.start_soon(run)
        yield url
        ends.set()


@pytest.mark.parametrize(
    ("anyio_backend", "ends_by"),
    [
        *(("asyncio", "itself"), ("asyncio", "the server"), ("trio", "itself"), ("trio", "the server")),
        ("asyncio", "its client"),  # not on trio, which warns of what httpx leaves behind then
    ],
)
async def test_a_stream_over_http_2(anyio_backend_name: str, ends_by: str) -> None:
    """Text arrives without delay. A disconnect closes the stream. A server shutdown lets it finish."""
    goes_on, ends, shutdown = anyio.Event(), anyio.Event(), asgi.Shutdown(20)
    source = Script([TextDelta("a")], goes_on, [TextDelta("b")], [ProviderCompleted(finish_reason="stop")])

    async def answer(request: Request) -> Response:
        return asgi.event_stream_response(ToolStream(source), shutdown=shutdown)

    told = b""
    async with served(Starlette(routes=[Route("/", answer)]), ends, anyio_backend_name) as url:
        async with (
            httpx.AsyncClient(http1=False, http2=True, trust_env=False) as client,
            client.stream("GET", url) as response,
        ):
            assert ("HTTP/2", 200) == (response.http_version, response.status_code)
            with suppress(httpx.RemoteProtocolError, httpx.ReadTimeout):  # a server that ends may not end its streams
                async for piece in response.aiter_raw():
                    told += piece
                    if b'"text":"a"' in told and not goes_on.is_set():
                        if ends_by == "its client":
                            break
                        if ends_by == "the server":
                            shutdown.begin()
                            ends.set()
                        goes_on.set()
        with anyio.fail_after(20):
            while not source.closed:
                await anyio.lowlevel.checkpoint()
    assert (b'"reason":"finished"' in told) is (ends_by != "its client")


async def test_a_drain_of_runs(anyio_backend_name: str) -> None:
    """The end of the lifespan waits for them, within hypercorn's timeout."""
    goes_on, ends, begun = anyio.Event(), anyio.Event(), anyio.Event()
    source = Script([TextDelta("a")], goes_on, [ProviderCompleted(finish_reason="stop")])
    reasons: list[Any] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with Runs(drain=20) as runs:
            run = await runs.start(ToolStream(source), owner="ann")
            begun.set()
            yield
            goes_on.set()
        reasons.append((await run.wait()).reason)

    async with served(Starlette(lifespan=lifespan), ends, anyio_backend_name):
        await begun.wait()
    assert ["finished"] == reasons
