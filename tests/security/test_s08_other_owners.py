"""S8: no other user can read a run, with any id, position or path.

The tests use HTTP and a websocket as `docs/serving.md` does. The owner comes from the login of the application, never
from data that a client sends.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
import websockets
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from streamtools import ToolStream
from streamtools.errors import RunNotFound
from streamtools.events import ProviderCompleted
from streamtools.outputs.asgi import EventStreamResponse, serve_websocket
from streamtools.runs import Run, Runs
from tests.support.serving import Served
from tests.support.stories import Script, texts

pytestmark = pytest.mark.asyncio_only

SECRET = "the launch code is 0000"
POSITIONS = ["0", "1", "-1", "9" * 5000, "1e3", "\u0661", "1\u2028", "*", "None", "' OR 1=1", "../1"]


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Served, Run]]:
    """Serve runs to the user in the header `User`, with one finished run of Ann."""
    async with Runs() as runs:

        async def events(request: Request) -> Response:
            try:
                run = await runs.find(request.path_params["run_id"], owner=request.headers["user"])
            except RunNotFound as error:
                return JSONResponse({"error": str(error)}, 404)
            return EventStreamResponse(run)

        async def socket(websocket: Any) -> None:
            await serve_websocket(websocket, lambda *_: None, runs=runs, owner=websocket.headers["user"])

        routes = [Route("/runs/{run_id:path}", events), WebSocketRoute("/socket", socket)]
        stream = ToolStream(Script([*texts(SECRET), ProviderCompleted(finish_reason="stop")]))
        run = await runs.start(stream, owner="ann")
        await run.wait()
        async with Served(Starlette(routes=routes)) as server:
            with anyio.fail_after(30):
                yield server, run


async def test_http_shows_no_run_of_another_user() -> None:
    """From any position, the response equals the one for a run that does not exist."""
    async with serving() as (server, run), httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
        own = await client.get(f"/runs/{run.id}", headers={"user": "ann"})
        assert SECRET in own.text
        for run_id in (run.id, f"ann/{run.id}", f"../ann/{run.id}", run.id.upper(), run.id + "\0", ""):
            for position in POSITIONS:
                headers = {b"user": b"bob", b"last-event-id": position.encode()}
                told = await client.get(f"/runs/{quote(run_id, safe='')}", headers=headers, params={"after": position})
                never = await client.get("/runs/run_never", headers={"user": "bob"})
                assert (404, 404) == (told.status_code, never.status_code)
                assert SECRET not in told.text
                assert never.json()["error"].replace("'run_never'", "") == (
                    told.json()["error"].replace(repr(run_id[:64]), "")
                )


async def test_a_websocket_shows_no_run_of_another_user() -> None:
    """The run is not sent, cancelled or answered. The code equals the one for a run that does not exist."""
    async with serving() as (server, run):
        url, headers = f"{server.websocket_url}/socket", {"user": "bob"}
        async with websockets.connect(url, additional_headers=headers, proxy=None) as client:
            for frame in (
                {"resume": 0, "run_id": run.id},
                {"resume": 3, "run_id": f"ann/{run.id}"},
                {"resume": 0, "run_id": "run_never"},
                {"resume": 10**18, "run_id": run.id},
            ):
                await client.send(json.dumps(frame))
                answer = await client.recv()
                assert SECRET not in str(answer)
                assert "run_not_found" == json.loads(answer)["error"]["code"]
