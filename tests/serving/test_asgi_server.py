"""Responses behind uvicorn, FastAPI and middlewares that buffer, with clients that leave."""

from __future__ import annotations

import asyncio
import gc
import itertools
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamtools import ToolStream, sources, tool
from streamtools.events import Text, UIEvent
from streamtools.outputs.asgi import event_stream_response
from tests.support.loopback import Loopback
from tests.support.options import grouped
from tests.support.serving import Served, read_frames

pytestmark = pytest.mark.asyncio_only


def chunk(text: str) -> bytes:
    """Return one chunk of a chat completion."""
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
STORY = ["start", "step-start", "text", "text", "text", "step-end", "done"]


@asynccontextmanager
async def asking(url: str, client: httpx.AsyncClient | None = None, **options: Any) -> AsyncIterator[ToolStream]:
    """Return the stream of a provider's answer."""
    async with (
        nullcontext(client) if client else httpx.AsyncClient(trust_env=False, timeout=30) as asked,
        asked.stream("POST", url) as response,
        ToolStream(sources.openai(response), **grouped(**options)) as events,
    ):
        yield events


def app(provider: Loopback, *middleware: Middleware, **options: Any) -> Starlette:
    """Return an application with one page: the answer of the provider."""

    async def answer(request: Request) -> Response:
        await request.body()
        return event_stream_response(asking(provider.url), **options)

    return Starlette(routes=[Route("/", answer, methods=["GET", "POST"])], middleware=middleware)


class Own(BaseHTTPMiddleware):
    """A middleware as applications write it."""

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """Add a header."""
        response = await call_next(request)
        response.headers["x-own"] = "1"
        return response


MIDDLEWARES = [[], [Middleware(GZipMiddleware)], [Middleware(Own)], [Middleware(Own), Middleware(GZipMiddleware)]]


@asynccontextmanager
async def visiting(server: Served, method: str = "GET") -> AsyncIterator[anyio.abc.SocketStream]:
    """Send a request over a bare connection, which is dropped at the end of the block."""
    stream = await anyio.connect_tcp("127.0.0.1", server.port)
    async with stream:
        await stream.send(
            f"{method} / HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\nContent-Length: 0\r\n\r\n".encode()
        )
        yield stream


async def read_until(stream: anyio.abc.SocketStream, what: bytes, times: int = 1) -> bytes:
    """Read until `what` has arrived so many times."""
    body = b""
    while body.count(what) < times:
        body += await stream.receive()
    return body


@pytest.mark.parametrize("middleware", MIDDLEWARES)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_all_events_arrive(middleware: list[Middleware], method: str) -> None:
    """With any middleware, they arrive uncompressed, and the connection can be reused."""
    async with (
        Loopback([chunk("a"), chunk("b"), chunk("c"), END]) as provider,
        Served(app(provider, *middleware)) as server,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        for _ in range(2):
            response = await client.request(method, server.url)
            assert STORY == [frame["type"] for frame in read_frames(response.content)]
            assert "content-encoding" not in response.headers


class Mute(Loopback):
    """A provider that never answers."""

    async def _serve(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await stream.receive()
            self.disconnected.set()


@pytest.mark.parametrize("provider", [Mute(), Loopback(hold=True)], ids=["mute", "silent"])
@pytest.mark.parametrize("middleware", MIDDLEWARES)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_silent_provider_delays_no_byte(provider: Loopback, middleware: list[Middleware], method: str) -> None:
    """The first byte is sent, and a disconnect is noticed, before the provider answers."""
    provider.disconnected = anyio.Event()
    async with provider, Served(app(provider, *middleware)) as server:
        with anyio.fail_after(10):  # before the first keep-alive
            async with visiting(server, method) as stream:
                head = await read_until(stream, b"\n\n")
                assert head.startswith(b"HTTP/1.1 200 OK")
            await provider.disconnected.wait()


@pytest.mark.parametrize("middleware", MIDDLEWARES)
async def test_comments_during_a_slow_tool(middleware: list[Middleware]) -> None:
    """Comments pass the middlewares. The tool ends after the client has seen two of them."""
    go_on = anyio.Event()

    @tool
    async def think() -> str:
        """Think."""
        await go_on.wait()
        return "42"

    call = chunk('###:{\\"name\\": \\"think\\"}')
    async with Loopback([call, END]) as provider:

        async def answer(request: Request) -> Response:
            return event_stream_response(asking(provider.url, tools=[think]), keep_alive=0.001)

        page = Starlette(routes=[Route("/", answer)], middleware=middleware)
        async with Served(page) as server, visiting(server) as stream:
            await read_until(stream, b"event: executing")
            await read_until(stream, b": keep-alive\n\n", 2)
            go_on.set()
            rest = await read_until(stream, b"event: done")
            assert b'"result":"42"' in rest


@pytest.mark.deep
async def test_connections_leave_no_resources(caplog: pytest.LogCaptureFixture) -> None:
    """After a thousand clients, there are as many tasks, files and bytes as after a few."""
    async with (
        Loopback([chunk("a")], hold=True) as provider,
        httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_connections=None)) as client,
    ):

        async def answer(request: Request) -> Response:
            return event_stream_response(asking(provider.url, client))

        with caplog.at_level("WARNING"):  # pytest would keep each record of a request
            await count_connections(provider, Starlette(routes=[Route("/", answer)]))


async def count_connections(provider: Loopback, page: Starlette) -> None:
    """Let clients come and go, and count the resources."""
    async with Served(page) as server:

        async def visit(times: int) -> tuple[int, int, int]:
            for _ in range(times // 20):
                async with anyio.create_task_group() as group:
                    for _ in range(20):
                        group.start_soon(visit_once)
            while len(asyncio.all_tasks()) > few:
                await anyio.lowlevel.checkpoint()
            provider.requests.clear()
            gc.collect()
            return len(asyncio.all_tasks()), count_files(), sys.getallocatedblocks()

        async def visit_once() -> None:
            async with visiting(server) as stream:
                await read_until(stream, b"event: text")

        few = len(asyncio.all_tasks())
        await visit(100)
        tasks, files, blocks = await visit(100)
        tasks_after, files_after, blocks_after = await visit(1000)
    assert (tasks, files) == (tasks_after, files_after)
    assert blocks_after - blocks < 1000


def count_files() -> int:
    """Return the number of open files and sockets."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_an_abrupt_disconnect_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The server notices it, and logs nothing."""

    async def events() -> AsyncIterator[UIEvent]:
        for seq in itertools.count(1):
            yield Text("x" * 200, seq=seq)

    async def answer(request: Request) -> Response:
        return event_stream_response(events())

    abruptly = struct.pack("ii", 1, 0)  # with a reset, and without a farewell
    async with Served(Starlette(routes=[Route("/", answer)])) as server:
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, abruptly)
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                client.setblocking(False)
                await anyio.wait_readable(client)
            with anyio.fail_after(20):
                while server.server.server_state.tasks:
                    await anyio.lowlevel.checkpoint()
    assert [] == [each.getMessage() for each in caplog.records if "socket.send" in each.getMessage()]
