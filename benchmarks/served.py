"""The server of `bench_server`: the same bytes in the same chunks, from streamtools and from a bare response.

    python -m benchmarks.served STREAMS EVENTS

Each event arrives on its own, so that the event loop turns once for each, as with a provider. The answers to a round of
requests begin together, when the last of them is there, so that they are all open at the same time.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from streamtools import ToolStream, outputs
from streamtools.events import Done, ProviderCompleted, SourceEvent, Start, StepEnd, StepStart, Text, TextDelta, UIEvent
from streamtools.outputs.asgi import event_stream_response
from streamtools.runs import Runs

PIECE = "word "


def make_events(many: int) -> list[UIEvent]:
    """Return the events of a run with `many` pieces of text."""
    texts = [Text(f"{PIECE}{number:07} ", seq=number + 3) for number in range(many)]
    end: list[UIEvent] = [StepEnd(1, "stop", seq=many + 3), Done("finished", "stop", None, [], seq=many + 4)]
    return [Start("run", seq=1), StepStart(1, seq=2), *texts, *end]


def make_chunks(many: int) -> list[bytes]:
    """Return the chunks of these events."""
    return [*map(outputs.native().encode, make_events(many))]


def make_batches(many: int) -> list[list[SourceEvent]]:
    """Return the provider's batches for the same run."""
    deltas: list[list[SourceEvent]] = [[TextDelta(f"{PIECE}{number:07} ")] for number in range(many)]
    return [*deltas, [ProviderCompleted(finish_reason="stop")]]


class Provider:
    """A source whose deltas arrive one by one. Like the reference's chunks, they are created before."""

    def __init__(self, batches: list[list[SourceEvent]]) -> None:
        self._next = iter(batches).__next__

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[SourceEvent]:
        await asyncio.sleep(0)
        try:
            return self._next()
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Close nothing."""


def application(streams: int, many: int) -> Starlette:
    """Return the application."""
    events, chunks, batches = make_events(many), make_chunks(many), make_batches(many)
    headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
    waiting = 0
    together = asyncio.Event()

    async def gather() -> None:
        nonlocal waiting, together
        waiting += 1
        own = together
        if waiting == streams:
            waiting, together = 0, asyncio.Event()
            own.set()
        await own.wait()

    async def give_chunks() -> AsyncIterator[bytes]:
        for chunk in chunks:
            await asyncio.sleep(0)
            yield chunk

    async def give_events() -> AsyncIterator[UIEvent]:
        for event in events:
            await asyncio.sleep(0)
            yield event

    async def bare(request: Request) -> Response:
        await gather()
        return StreamingResponse(give_chunks(), media_type="text/event-stream", headers=headers)

    async def encoded(request: Request) -> Response:
        await gather()
        return event_stream_response(give_events())

    async def stream(request: Request) -> Response:
        await gather()
        return event_stream_response(ToolStream(Provider(batches), run_id="run"))

    async def run(request: Request) -> Response:
        await gather()
        started = await request.app.state.runs.start(ToolStream(Provider(batches)), owner="benchmark")
        return event_stream_response(started)

    async def time(request: Request) -> Response:
        return Response(str(process_time()))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with Runs() as app.state.runs:
            yield

    pages = {"bare": bare, "events": encoded, "stream": stream, "run": run, "time": time}
    return Starlette(routes=[Route(f"/{name}", page) for name, page in pages.items()], lifespan=lifespan)


class Server(uvicorn.Server):
    """Prints its port, and ends when its standard input ends."""

    async def startup(self, sockets: Any = None) -> None:
        """Start."""
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)
        asyncio.get_running_loop().add_reader(sys.stdin, lambda: setattr(self, "should_exit", True))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    app = application(int(sys.argv[1]), int(sys.argv[2]))
    Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, backlog=2048)).run()
