"""The application for the browsers: a stream as a response, and runs that are read again from a position."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.soaking.house import KEPT, House
from benchmarks.soaking.plans import Plan, make_plan
from streamtools import ToolStream
from streamtools.errors import RunNotFound
from streamtools.outputs.asgi import event_stream_response

_OWNER = "browser"


@dataclass
class _Asked:
    """A run that a browser has requested."""

    id: str = ""
    ended: float | None = None

    def is_over(self) -> bool:
        """Return whether the run ended longer ago than the required storage time."""
        return self.ended is not None and time.monotonic() - self.ended >= KEPT


def application(house: House) -> Starlette:
    """Return the application."""
    asked: dict[int, _Asked] = {}

    @asynccontextmanager
    async def answer(plan: Plan) -> AsyncIterator[ToolStream]:
        try:
            async with house.answer(plan, Counter(), asks=False) as events:
                yield events
        finally:
            if plan.seed in asked:
                asked[plan.seed].ended = time.monotonic()
        if events.result.reason is None:
            house.tally.blame(f"{plan.seed}: a response without an end: {events.result}")

    async def stream(request: Request) -> Response:
        return event_stream_response(answer(make_plan(request.path_params["seed"])))

    async def run(request: Request) -> Response:
        seed: int = request.path_params["seed"]
        try:
            run = await house.runs.find(asked[seed].id if seed in asked else "", owner=_OWNER)
        except RunNotFound:
            if request.headers.get("last-event-id"):
                # A browser comes back at once. Where the event loop is late by seconds at each step of that, because
                # others use the machine, it may be heard when the run is kept no longer: then nothing else is right.
                if not asked[seed].is_over():
                    house.tally.blame(f"{seed}: the run of a browser was not found")
                return Response(status_code=404)
            asked[seed] = _Asked()
            run = await house.runs.start(answer(make_plan(seed)), owner=_OWNER)
            asked[seed].id = run.id
            while len(asked) > 10_000:
                del asked[next(iter(asked))]
        return event_stream_response(run)

    return Starlette(routes=[Route("/stream/{seed:int}", stream), Route("/run/{seed:int}", run)])


class _Server(uvicorn.Server):
    """Ignores signals, and reports when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.port: int = 0
        self.listens = anyio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

    async def startup(self, sockets: Any = None) -> None:
        """Start."""
        await super().startup(sockets)
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.listens.set()


@asynccontextmanager
async def serving(house: House) -> AsyncIterator[int]:
    """Serve the application. Yields the port."""
    config = uvicorn.Config(
        application(house), host="127.0.0.1", port=0, lifespan="off", log_config=None, access_log=False, backlog=2048
    )
    server = _Server(config)
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        await server.listens.wait()
        yield server.port
        server.should_exit = True
