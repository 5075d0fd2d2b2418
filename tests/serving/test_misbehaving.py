"""Clients and servers that misbehave: slow ones, bombs, and browsers that reconnect."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator
from sys import getsizeof

import anyio
import anyio.lowlevel
import httpx
import pytest

from streamtools import ToolStream, chat, sources
from streamtools.conversation import OpenAIChat
from streamtools.conversation.models.http_model import NOT_ACCEPTED
from streamtools.errors import Code
from streamtools.events import LARGE, Warning, weigh
from streamtools.limits import Limits
from streamtools.outputs import asgi
from streamtools.runs import MemoryEventLog, Runs, log_key
from streamtools.stream.event_buffer import MAX_BYTES
from tests.serving.test_asgi_server import END, chunk
from tests.support.bounds import stored
from tests.support.loopback import Loopback
from tests.support.serving import Exchange

pytestmark = pytest.mark.asyncio_only


async def _endless(delta: str) -> AsyncIterator[str]:
    while True:
        yield delta
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("delta", ["x" * 2**20, "x" * 1000, "\U0001f600" * 2**18], ids=["1 MB", "1 KB", "emoji"])
async def test_clients_that_never_read_a_run(delta: str) -> None:
    """A run keeps its log and its result, and each client its next batch."""
    exchanges = [Exchange(stuck=2) for _ in range(6)]
    async with Runs() as runs, anyio.create_task_group() as group:
        run = await runs.start(ToolStream(sources.text(_endless(delta)), native_tool_calls=True), owner="ann")
        for exchange in exchanges:
            group.start_soon(asgi.event_stream_response(run), exchange.scope, exchange.receive, exchange.send)
        result = await run.wait()
        assert "stopped" == result.reason
        assert 2**24 <= len(result.text) <= 2**24 + len(delta) + 256 * 1000
        assert stored(run.result) <= 2 * len(result.text) + 2**16
        log = runs.log
        assert isinstance(log, MemoryEventLog)
        assert sum(map(weigh, log._runs[log_key("ann", run.id)].events)) <= 2**24 + 32 * (LARGE + 64)
        group.cancel_scope.cancel()


@pytest.mark.parametrize("delta", ["x" * 2**20, "x" * 1000, "\U0001f600" * 2**18], ids=["1 MB", "1 KB", "emoji"])
async def test_clients_that_never_read_a_stream(delta: str) -> None:
    """The provider waits when the buffer is full."""
    read = 0

    async def source() -> AsyncIterator[str]:
        nonlocal read
        async for each in _endless(delta):
            read += getsizeof(each)
            yield each

    exchange = Exchange(stuck=2)
    stream = ToolStream(sources.text(source()), native_tool_calls=True)
    async with anyio.create_task_group() as group:
        group.start_soon(asgi.event_stream_response(stream), exchange.scope, exchange.receive, exchange.send)
        before = -1
        while before < read:
            before = read
            await anyio.wait_all_tasks_blocked()
        assert read <= MAX_BYTES + 2**20 + 4 * getsizeof(delta)
        group.cancel_scope.cancel()


async def test_a_decompression_bomb() -> None:
    """An answer is decompressed in pieces."""
    packed = gzip.compress(b'data: "' + b"x" * (64 << 20) + b'"\n\n', 9) + gzip.compress(chunk("a") + END)
    assert len(packed) < 100_000
    pieces = [packed[at : at + 1024] for at in range(0, len(packed), 1024)]
    async with (
        Loopback(pieces, headers={"Content-Encoding": "gzip"}) as provider,
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", provider.url) as response,
        ToolStream(sources.openai(response, limits=Limits(frame=1 << 20))) as events,
    ):
        tracemalloc.start()
        told = [event async for event in events]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert [Code.SKIPPED] == [event.code for event in told if isinstance(event, Warning)]
    assert peak < 16 << 20


@pytest.mark.parametrize(
    ("packed", "is_read"), [("gzip", True), ("Identity", True), ("gzip, gzip", False), ("zstd", False), ("br", False)]
)
async def test_content_encodings_of_a_provider(packed: str, is_read: bool) -> None:
    """An unexpected content encoding is refused."""
    body = chunk("a") + END
    for _ in range(packed.count("gzip")):
        body = gzip.compress(body)
    async with Loopback([body], headers={"Content-Encoding": packed}) as provider:
        model = OpenAIChat("m", base_url=provider.url, api_key="", retries=0)
        async with chat(model, [{"role": "user", "content": "Hi"}]) as events:
            told = [event async for event in events]
    assert ["a"] * is_read == [event.text for event in told if event.type == "text"]
    assert [] == [event for event in told if event.type == "error"] if is_read else NOT_ACCEPTED in str(told)
