"""The drain: during a shutdown, running answers may finish, and no other starts."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import websockets
from anyio.streams.text import TextReceiveStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from streamtools import ToolStream
from streamtools.errors import Draining
from streamtools.events import ProviderCompleted, TextDelta
from streamtools.outputs import asgi
from streamtools.runs import Run, Runs
from tests.serving.test_asgi_server import END, chunk
from tests.serving.test_asgi_websockets import conversing, hear, say, talking
from tests.support.loopback import Loopback
from tests.support.loops import ONE_LOOP
from tests.support.serving import Exchange, Served, read_frames
from tests.support.stories import Script

LONG = 3600.0  # seconds of a drain that is not waited for
STOP = [ProviderCompleted(finish_reason="stop")]


def held() -> tuple[ToolStream, anyio.Event]:
    """Return a stream that waits for the event after its first text, and the event."""
    goes_on = anyio.Event()
    return ToolStream(Script([TextDelta("a")], goes_on, [TextDelta("b")], STOP)), goes_on


async def reason(run: Run) -> Any:
    """Return the reason with which a run ended."""
    return (await run.wait()).reason


# Runs.


@pytest.mark.parametrize("by", ["leaving", "signal"])
@pytest.mark.parametrize("ends", ["itself", "the second signal"])
async def test_runs_may_finish(by: str, ends: str) -> None:
    """Running ones finish, also without readers, and none starts; or the drain ends first."""
    shutdown = asgi.Shutdown(LONG)
    runs = Runs(shutdown=shutdown) if by == "signal" else Runs(drain=LONG)
    async with anyio.create_task_group() as group, runs:
        stream, goes_on = held()
        run = await runs.start(stream, owner="ann")
        if by == "signal":
            shutdown.begin()
        else:
            group.start_soon(runs.aclose)
        await anyio.wait_all_tasks_blocked()
        source = Script(STOP)
        with pytest.raises(Draining, match="shutting down"):
            await runs.start(ToolStream(source), owner="ann")
        assert (1, 1, False) == (source.closed, runs.running, run.ended)
        assert run is await runs.find(run.id, owner="ann")
        if ends == "itself":
            goes_on.set()
        elif by == "signal":
            shutdown.end()
        else:
            group.cancel_scope.cancel()
    assert ("finished" if ends == "itself" else "cancelled") == await reason(run)


async def test_runs_are_cancelled_after_the_drain() -> None:
    """Unfinished runs are cancelled."""
    async with Runs(drain=0.01) as runs:
        run = await runs.start(held()[0], owner="ann")
    assert "cancelled" == await reason(run)


async def test_an_exception_ends_runs_without_a_drain() -> None:
    """An exception in the block ends the runs without a drain."""
    started = list[Run]()

    async def fail() -> None:
        async with Runs(drain=LONG) as runs:
            started.append(await runs.start(held()[0], owner="ann"))
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert "cancelled" == await reason(started[0])


@pytest.mark.parametrize("drain", [-1, math.nan, "20", True])
def test_invalid_drains(drain: Any) -> None:
    """It raises, and so do two drains."""
    for make in (asgi.Shutdown, lambda drain: Runs(drain=drain), lambda drain: asgi.shutdown_signal(drain=drain)):
        with pytest.raises(ValueError, match="drain must be a number of at least 0"):
            make(drain)
    with pytest.raises(ValueError, match="Pass `drain` or `shutdown`, not both"):
        Runs(drain=1, shutdown=asgi.Shutdown(1))


# Responses.


async def exchanged(response: asgi.EventStreamResponse, during: Callable[[Exchange], Any] | None = None) -> Exchange:
    """Run a response, and act after its first text."""
    exchange = Exchange()
    async with anyio.create_task_group() as group:
        group.start_soon(response, exchange.scope, exchange.receive, exchange.send)
        if during is not None:
            await exchange.has_sent(3)
            assert b'"text"' in b"".join(exchange.chunks)
            during(exchange)
    return exchange


@pytest.mark.parametrize(("ends", "told"), [("itself", "finished"), ("the drain", "cancelled")])
async def test_a_response_may_finish(ends: str, told: str) -> None:
    """It continues to its end or to the end of the drain."""
    shutdown = asgi.Shutdown(LONG)
    stream, goes_on = held()

    def begin(exchange: Exchange) -> None:
        shutdown.begin()
        assert (True, False) == (shutdown.begun, shutdown.over)
        if ends == "itself":
            goes_on.set()
        else:
            shutdown.end()
            assert shutdown.over

    exchange = await exchanged(asgi.event_stream_response(stream, shutdown=shutdown), begin)
    assert (200, told) == (exchange.status, read_frames(exchange.chunks)[-1]["reason"])


async def test_no_stream_starts_after_the_shutdown_has_begun() -> None:
    """A stream is not started: 503 with `Retry-After`, also after `begin`."""
    shutdown = asgi.Shutdown(LONG)
    shutdown.begin()
    source = Script(STOP)
    exchange = await exchanged(asgi.event_stream_response(ToolStream(source), shutdown=shutdown))
    assert (503, "5") == (exchange.status, exchange.headers["retry-after"])
    assert (0, 1) == (source.read, source.closed)


async def test_a_run_is_read_in_the_drain() -> None:
    """A client that lost its connection gets the rest."""
    shutdown = asgi.Shutdown(LONG)
    async with Runs(shutdown=shutdown) as runs:
        stream, goes_on = held()
        run = await runs.start(stream, owner="ann")
        shutdown.begin()
        response = asgi.event_stream_response(run, shutdown=shutdown)
        exchange = await exchanged(response, lambda _: goes_on.set())
    assert (200, "finished") == (exchange.status, read_frames(exchange.chunks)[-1]["reason"])


@ONE_LOOP
@pytest.mark.parametrize("full", [True, False])
async def test_refused_runs_get_503(full: bool) -> None:
    """With the exception handlers, the response is 503 with `Retry-After`."""
    shutdown = asgi.Shutdown(LONG)
    runs = Runs(shutdown=shutdown, max_running=1)

    async def begin(request: Request) -> Response:
        run = await runs.start(held()[0], owner="ann")
        return asgi.event_stream_response(run, shutdown=shutdown)

    app = Starlette(routes=[Route("/", begin)], exception_handlers=asgi.exception_handlers)
    async with runs:
        if full:
            await runs.start(held()[0], owner="ann")
        else:
            shutdown.begin()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            answer = await client.get("/")
        assert (503, "5") == (answer.status_code, answer.headers["retry-after"])
        shutdown.end()


# Websockets.


@ONE_LOOP
async def test_an_open_websocket() -> None:
    """The current answer finishes, other messages are refused with `retry_after`, then 1001."""
    shutdown = asgi.Shutdown(LONG)
    stream, goes_on = held()
    asked = list[Any]()

    def handler(message: dict[str, Any], session: asgi.Session) -> ToolStream:
        asked.append(message)
        return stream

    async with talking(conversing(handler, shutdown=shutdown)) as client:
        await say(client, {"is": "first"})
        await say(client, {"waits": True})
        await hear(client, "text")
        shutdown.begin()
        await say(client, {"comes": True})
        refused = [each["error"] for each in await hear(client, "error")]
        goes_on.set()
        rest = [json.loads(each) async for each in client]
    refused += [each["error"] for each in rest if "error" in each]
    assert [("ending", 5)] * 2 == [(each["code"], each["retry_after"]) for each in refused]
    assert "finished" == next(each["reason"] for each in rest if each.get("type") == "done")
    assert ([{"is": "first"}], 1001) == (asked, client.close_code)


@ONE_LOOP
@pytest.mark.parametrize("both_ways", [True, False])
@pytest.mark.parametrize("accepted", [True, False])
async def test_a_websocket_after_the_shutdown_has_begun(both_ways: bool, accepted: bool) -> None:
    """It gets 403 before it is accepted, 1001 afterwards."""
    shutdown = asgi.Shutdown(LONG)
    shutdown.begin()
    source = Script(STOP)

    async def endpoint(websocket: WebSocket) -> None:
        if accepted:
            await websocket.accept()
        if both_ways:
            await asgi.serve_websocket(websocket, lambda message, session: None, shutdown=shutdown)
        else:
            await asgi.send_events(websocket, ToolStream(source), shutdown=shutdown)

    async with Served(Starlette(routes=[WebSocketRoute("/", endpoint)])) as server, AsyncExitStack() as stack:
        if not accepted:
            refused = stack.enter_context(pytest.raises(websockets.InvalidStatus))
        async with websockets.connect(server.websocket_url, proxy=None) as client:
            await client.wait_closed()
            assert 1001 == client.close_code
    if not accepted:
        assert 403 == refused.value.response.status_code
    assert (0, not both_ways) == (source.read, bool(source.closed))


@ONE_LOOP
async def test_runs_end_before_a_websocket() -> None:
    """Also without a `shutdown` for the websocket: the message is answered, and the connection stays valid."""
    runs = Runs(drain=LONG)

    async def handler(message: dict[str, Any], session: asgi.Session) -> Run:
        return await runs.start(held()[0], owner="ann")

    async with runs:
        pass
    async with talking(conversing(handler)) as client:
        await say(client, {})
        assert ["ending"] == [each["error"]["code"] for each in await hear(client, "error")]


# A real server.

PROGRAM = """
import sys
from contextlib import asynccontextmanager

import httpx
import uvicorn
from fastapi import FastAPI

from streamtools import ToolStream, sources
from streamtools.outputs import asgi
from streamtools.runs import Runs


@asynccontextmanager
async def lifespan(app):
    async with asgi.shutdown_signal(drain=float(sys.argv[2])) as app.state.shutdown:
        async with Runs(shutdown=app.state.shutdown) as app.state.runs:
            yield
        print(*[run.result.reason for run in app.state.started], flush=True)


@asynccontextmanager
async def ask():
    async with httpx.AsyncClient(trust_env=False) as client, client.stream("POST", sys.argv[1]) as response:
        async with ToolStream(sources.openai(response)) as events:
            yield events


app = FastAPI(lifespan=lifespan, exception_handlers=asgi.exception_handlers)
app.state.started = []


@app.get("/stream")
async def stream():
    return asgi.event_stream_response(ask(), shutdown=app.state.shutdown)


@app.get("/run")
async def run():
    run = await app.state.runs.start(ask(), owner="ann")
    app.state.started.append(run)
    return asgi.event_stream_response(run, shutdown=app.state.shutdown)


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

    def handle_exit(self, sig, frame):
        super().handle_exit(sig, frame)
        print("heard", flush=True)


Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=90)).run()
"""


@ONE_LOOP
@pytest.mark.parametrize(
    ("ends", "number", "drain"),
    [
        ("itself", signal.SIGTERM, 60),
        ("the second signal", signal.SIGTERM, 60),
        ("the signal", signal.SIGTERM, 0),
        ("the signal", signal.SIGINT, 0),
    ],
)
async def test_uvicorn(ends: str, number: signal.Signals, drain: int) -> None:
    """After a signal, running answers finish, with and without a reader. A second signal or no drain ends them.

    Then they report `cancelled`, and their provider is closed.
    """
    goes_on = anyio.Event()
    async with Loopback([chunk("a"), goes_on, END]) as provider:
        command = [sys.executable, "-c", PROGRAM, provider.url, str(drain)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        async with await anyio.open_process(command, env=environment, stderr=subprocess.DEVNULL) as server:
            assert server.stdout is not None
            says = TextReceiveStream(server.stdout)
            address = f"http://127.0.0.1:{int(await says.receive())}"
            async with AsyncExitStack() as stack, httpx.AsyncClient(trust_env=False, timeout=30) as client:
                body = {"/stream": b"", "/run": b""}
                reading = {}
                for path in body:
                    response = await stack.enter_async_context(client.stream("GET", address + path))
                    reading[path] = response.aiter_raw()
                    while b"event: text" not in body[path]:
                        body[path] += await anext(reading[path])
                async with client.stream("GET", address + "/run") as left:  # without a reader when the signal arrives
                    assert await anext(left.aiter_raw())
                server.send_signal(number)
                said = await says.receive()
                while "heard" not in said:
                    said += await says.receive()
                if ends == "itself":
                    goes_on.set()
                elif ends == "the second signal":
                    server.send_signal(number)
                for path, pieces in reading.items():
                    async for piece in pieces:
                        body[path] += piece
            told = "".join([said, *[text async for text in says]]).split()
            await server.wait()
        if ends != "itself":
            goes_on.set()
            with anyio.fail_after(10):
                await provider.disconnected.wait()
    reason = "finished" if ends == "itself" else "cancelled"
    assert [reason] * 2 == [read_frames(each)[-1]["reason"] for each in body.values()]
    assert [reason] * 2 == [each for each in told if "heard" not in each]


async def test_a_signal_after_the_end() -> None:
    """A handler that wraps ours still calls it after the end. Nothing is raised."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        async with asgi.shutdown_signal([signal.SIGUSR1]):
            ours: Any = signal.getsignal(signal.SIGUSR1)
            signal.signal(signal.SIGUSR1, lambda number, frame: ours(number, frame))
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [signal.SIGUSR1] == heard


async def test_the_second_signal_ends_the_drain() -> None:
    """Signals that were ignored before are ignored again afterwards."""
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        async with asgi.shutdown_signal([signal.SIGUSR1], drain=LONG) as shutdown:
            signal.raise_signal(signal.SIGUSR1)
            await shutdown.wait()
            assert not shutdown.over
            signal.raise_signal(signal.SIGUSR1)
            await shutdown.wait_over()
            assert shutdown.over
    finally:
        signal.signal(signal.SIGUSR1, before)
