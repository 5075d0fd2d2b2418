"""Reads of a provider's response in time slots. Time passes only while a read waits for its slot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from streamtools import ToolStream, sources
from streamtools.events import Text
from streamtools.sources import read_pace
from streamtools.sources.read_pace import ReadPace
from tests.support.loopback import Loopback

SLOT = 1 / 30


class Network:
    """A connection that records when it is read."""

    def __init__(self, clock: Clock, size: int = 100) -> None:
        self.times = list[float]()
        self._clock = clock
        self._size = size

    async def receive(self) -> bytes:
        """Return some bytes."""
        self.times.append(self._clock.now)
        return bytes(self._size)


class Clock:
    """A clock on which a sleep takes no real time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.01
        patch.setattr(read_pace, "monotonic", lambda: self.now)
        patch.setattr(read_pace, "sleep", self._sleep)

    async def _sleep(self, delay: float) -> None:
        self.now += delay
        await anyio.lowlevel.checkpoint()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the test."""
    return Clock(monkeypatch)


def response(network: object, version: bytes = b"HTTP/1.1", tls: bool = False) -> Any:
    """Return a response of httpx."""
    stream = SimpleNamespace(transport_stream=network, receive=None) if tls else network
    return SimpleNamespace(extensions={"http_version": version, "network_stream": SimpleNamespace(_stream=stream)})


@pytest.mark.parametrize("tls", [False, True])
async def test_one_read_in_each_slot(clock: Clock, tls: bool) -> None:
    """Without TLS, and below it. The fastest reader decides."""
    network, pace = Network(clock), ReadPace()
    pace.open(response(network, tls=tls), network.receive)
    pace.set_rate(1, 30)
    pace.set_rate(2, 10)
    for _ in range(10):
        await network.receive()
    slots = [int(time / SLOT + 1e-3) for time in network.times]
    assert [*range(slots[0], slots[0] + 10)] == slots


@pytest.mark.parametrize(
    "how", ["no rate", "one reader without a rate", "a low rate", "HTTP/2", "closed", "large reads"]
)
async def test_reads_that_do_not_wait(clock: Clock, how: str) -> None:
    """The connection is restored after the response, because another response may use it."""
    network, pace = Network(clock, 100_000 if how == "large reads" else 100), ReadPace()
    pace.open(response(network, b"HTTP/2" if how == "HTTP/2" else b"HTTP/1.1"), network.receive)
    if how != "no rate":
        pace.set_rate(1, 30)
    if how == "one reader without a rate":
        pace.set_rate(2, None)
    if how == "a low rate":
        pace.set_rate(2, 1)
    if how == "closed":
        pace.close()
    for _ in range(5):
        await network.receive()

    assert 1 == len({*network.times})
    if how == "one reader without a rate":
        pace.remove(2)
        await network.receive()
        await network.receive()
        assert network.times[-1] > 1000.01
    pace.close()
    assert "receive" not in vars(network)


async def test_httpx_aiohttp(clock: Clock) -> None:
    """Its response does not show the stream of the connection, so the reads of the response wait, and the transport."""
    network, pace, changes = Network(clock), ReadPace(), list[tuple[str, float]]()
    transport = SimpleNamespace(
        pause_reading=lambda: changes.append(("pause", clock.now)),
        resume_reading=lambda: changes.append(("resume", clock.now)),
    )
    answer = SimpleNamespace(connection=SimpleNamespace(transport=transport))
    body = SimpleNamespace(_stream=SimpleNamespace(_aiohttp_response=answer))
    read = pace.open(SimpleNamespace(extensions={"http_version": b"HTTP/1.1"}, stream=body), network.receive)
    pace.set_rate(1, 30)
    for _ in range(3):
        await read()
    answer.connection = None  # the last bytes have arrived
    await read()
    pace.close()
    await read()

    assert 4 == len({int(time / SLOT + 1e-3) for time in network.times})
    assert ["pause", "resume"] * 3 == [change for change, _ in changes]
    assert [time for change, time in changes if change == "resume"] == network.times[:3]


async def test_a_response_of_httpx(clock: Clock) -> None:
    """The whole text arrives, and the next response on the connection is read without waiting."""
    chunk = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
    end = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    gate = anyio.Event()
    async with (
        Loopback([chunk, gate, *[chunk] * 9, end]) as server,
        httpx.AsyncClient() as client,
        client.stream("POST", server.url) as answer,
    ):
        network = answer.extensions["network_stream"]._stream
        texts = list[str]()
        async with ToolStream(sources.openai(answer)) as events:
            events._pace.set_rate(0, 30)
            async for event in events:
                if isinstance(event, Text):
                    texts.append(event.text)
                    gate.set()

    assert "a" * 10 == "".join(texts)
    assert clock.now > 1000.01
    assert not {"receive", "receive_some"} & vars(network).keys()
