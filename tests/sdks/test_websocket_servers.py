"""Conversations over a websocket of hypercorn, with a client on the same event loop."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.uri import parse_uri

from streamtools import ToolStream
from streamtools.events import ProviderCompleted, TextDelta
from streamtools.outputs import asgi
from tests.sdks.test_http2 import served
from tests.support.stories import Script

pytestmark = [pytest.mark.sdk, pytest.mark.anyio]


class Client:
    """A websocket client on either event loop."""

    def __init__(self, stream: anyio.abc.SocketStream, url: str) -> None:
        self._stream = stream
        self._protocol = ClientProtocol(parse_uri(url))
        self._frames: list[dict[str, Any]] = []

    async def __aenter__(self) -> Self:
        self._protocol.send_request(self._protocol.connect())
        await self._flush()
        await self._receive()
        return self

    async def __aexit__(self, *args: object) -> None:
        await self._stream.aclose()

    async def say(self, frame: dict[str, Any]) -> None:
        """Send a frame."""
        self._protocol.send_text(json.dumps(frame).encode())
        await self._flush()

    async def hear(self, kind: str) -> dict[str, Any]:
        """Return the next event of a type."""
        while True:
            for event in self._protocol.events_received():
                if isinstance(event, Frame) and event.data:
                    self._frames.append(json.loads(bytes(event.data)))
            while self._frames:
                if (frame := self._frames.pop(0)).get("type") == kind:
                    return frame
            await self._receive()

    async def _flush(self) -> None:
        await self._stream.send(b"".join(self._protocol.data_to_send()))

    async def _receive(self) -> None:
        self._protocol.receive_data(await self._stream.receive())


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    """Connect to a server."""
    host, port = url.removeprefix("http://").split(":")
    async with Client(await anyio.connect_tcp(host, int(port)), url.replace("http", "ws")) as client:
        yield client


async def test_conversations_are_stopped_separately(anyio_backend_name: str, caplog: pytest.LogCaptureFixture) -> None:
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
            async with connected(url) as client:
                for name in "ab":
                    await client.say({"conversation": name, "text": name, "hold": True})
                    start = await client.hear("start")
                    await client.hear("text")
                await client.say({"conversation": "b", "cancel": True, "run_id": start["run_id"]})
                await client.say({"conversation": "b", "text": "again", "hold": False})
                assert ("b", "cancelled") == ((done := await client.hear("done"))["conversation"], done["reason"])
                assert ("b", "finished") == ((done := await client.hear("done"))["conversation"], done["reason"])
                await client.say({"conversation": "b", "cancel": True, "run_id": start["run_id"]})
                assert 0 == sources["a"].closed
            await over.wait()
            ends.set()
    assert 1 == sources["a"].closed
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]
