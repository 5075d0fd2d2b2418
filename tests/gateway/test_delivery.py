"""How pieces of an answer are sent: immediately after a wait, and together if they arrived together."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from streamtools.gateway import delivery
from streamtools.gateway.delivery import Delivery, Route
from streamtools.gateway.exchange import PassThrough

LONG = b"x" * 10_000
BURSTS = [[b"a"], [b"b"], [b"c", b"d", b"e"], [b"f", LONG, LONG, b"g"], [b"h", b"i"]]
SENT = [[b"a"], [b"b"], [b"cde"], [b"f" + 2 * LONG, b"g"], [b"hi"]]


class Upstream(httpx.AsyncByteStream):
    """Sends a burst of pieces after all pieces of the last burst have arrived."""

    def __init__(self, bursts: list[list[bytes]]) -> None:
        self.bursts = bursts
        self.arrived = b""
        self._news = anyio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        told = b""
        for burst in self.bursts:
            await anyio.lowlevel.checkpoint()
            while self.arrived != told:
                self._news = anyio.Event()
                await self._news.wait()
            for piece in burst:
                told += piece
                yield piece

    def take(self, piece: bytes) -> None:
        """Record a piece that the client received."""
        self.arrived += piece
        self._news.set()


async def deliver(upstream: Upstream) -> list[dict[str, Any]]:
    """Return the messages in which the gateway sends the upstream's body."""
    messages = list[dict[str, Any]]()

    async def receive() -> Any:
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        await anyio.lowlevel.checkpoint()
        messages.append(message)
        upstream.take(message.get("body", b""))

    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=upstream))
    async with httpx.AsyncClient(transport=transport) as client:
        route = Route(client, lambda endpoint: httpx.URL("http://localhost/"), [], 20.0)
        exchange = Delivery(PassThrough("openai", "", b""), route)
        with anyio.fail_after(20):
            await exchange.run(receive, send, None, keep_alive=None, send_timeout=10.0)
    return messages


async def test_the_chunks_of_one_read_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next burst comes after the last one has arrived, so no piece waits for a later one.

    No pause counts, because a slow machine may pause within a burst.
    """
    monkeypatch.setattr(delivery, "_PAUSE_S", math.inf)
    start, *bodies = await deliver(Upstream(BURSTS))
    assert start["type"] == "http.response.start"
    assert [each["body"] for each in bodies] == [piece for burst in SENT for piece in burst]
    assert [each["more_body"] for each in bodies] == [True] * (len(bodies) - 1) + [False]
