"""Conversations over a websocket of hypercorn, on both event loops."""

from __future__ import annotations

import json
import logging
from socket import SHUT_RDWR
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.sync.client import connect

from streamtools import ToolStream
from streamtools.events import ProviderCompleted, TextDelta
from streamtools.outputs import asgi
from tests.sdks.test_http2 import served
from tests.support.stories import Script

pytestmark = pytest.mark.sdk


def talk(url: str, leaves: str) -> None:
    """Stop a run by its id, ask again, and leave."""
    with connect(url, proxy=None) as client:

        def say(conversation: str, **frame: Any) -> None:
            client.send(json.dumps({"conversation": conversation, **frame}))

        def hear(kind: str) -> dict[str, Any]:
            while (frame := json.loads(client.recv(20))).get("type") != kind:
                pass
            return dict(frame)

        for name in "ab":
            say(name, text=name, hold=True)
            run_id = hear("start")["run_id"]
            hear("text")
        say("b", cancel=True, run_id=run_id)
        say("b", text="again", hold=False)
        for reason in ("cancelled", "finished"):
            done = hear("done")
            assert ("b", reason) == (done["conversation"], done["reason"])
        say("b", cancel=True, run_id=run_id)
        if leaves == "by a break":
            client.socket.shutdown(SHUT_RDWR)  # close() alone waits for the receiving thread


@pytest.mark.parametrize("leaves", ["normally", "by a break"])
async def test_conversations_are_stopped_separately(
    leaves: str, anyio_backend_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop ends the run that it names. A client that leaves stops the others, and the server logs nothing."""
    sources: dict[str, Script] = {}
    ends, over = anyio.Event(), anyio.Event()

    async def converse(websocket: WebSocket) -> None:
        def answer(message: dict[str, Any], session: asgi.Session) -> ToolStream:
            rest = [] if message["hold"] else [[ProviderCompleted(finish_reason="stop")]]
            sources[message["text"]] = Script([TextDelta(message["text"])], *rest, hold=message["hold"])
            return ToolStream(sources[message["text"]])

        await asgi.serve_websocket(websocket, answer, max_conversations=4)
        over.set()

    with anyio.fail_after(20), caplog.at_level(logging.WARNING):
        async with served(Starlette(routes=[WebSocketRoute("/", converse)]), ends, anyio_backend_name) as url:
            await run_sync(talk, url.replace("http", "ws"), leaves)
            await over.wait()
            ends.set()
    assert [1, 1, 1] == [source.closed for source in sources.values()]
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]
