"""A recording of 100 MB is replayed in constant memory. Its chunks have 64 KiB, so this takes about two seconds."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import httpx
import pytest

from streamtools.recording import ExchangeHead, RecordedRequest, ReplayBytes, ReplayTransport
from streamtools.recording.files import open_exchange
from streamtools.recording.format import Chunk, RecordedResponse, StreamEnd, encode_chunk, encode_end, encode_head

pytestmark = pytest.mark.deep

CHUNK = (b'data: {"choices":[{"index":0,"delta":{"content":"a megabyte is a thousand times this"}}]}\n\n' * 720)[:65536]
COUNT = 100_000_000 // len(CHUNK) + 1
BOUND = 4 * 1024 * 1024
"""The maximum memory in bytes: a line of the file, its text, its bytes, and the buffers of a client."""

URL = "http://localhost/v1/chat/completions"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A recording of 100 MB. It is deleted after the tests."""
    path = tmp_path_factory.mktemp("large") / "large.jsonl"
    head = ExchangeHead(
        source="openai", request=RecordedRequest(method="GET", url=URL), response=RecordedResponse(status=200)
    )
    digest = hashlib.sha256()
    with path.open("wb") as file:  # without a writer, which would search for keys
        file.write(encode_head(head))
        for at in range(COUNT):
            digest.update(CHUNK)
            file.write(encode_chunk(Chunk(at, CHUNK)))
        file.write(encode_end(StreamEnd("end", COUNT), size=COUNT * len(CHUNK), digest=digest.hexdigest()))
    yield path
    path.unlink()


async def play_bytes(path: Path) -> int:
    """Return the number of bytes of a replay of the file."""
    return await count(ReplayBytes(open_exchange(path)))


async def play_cut(path: Path) -> int:
    """Return the number of bytes of a replay with other cuts and a fault."""
    offsets = range(10_000, COUNT * len(CHUNK), 100_000)
    return await count(ReplayBytes(open_exchange(path), cut=offsets, cut_after=COUNT * len(CHUNK)))


async def play_response(path: Path) -> int:
    """Return the number of bytes that an HTTP client reads."""
    client = httpx.AsyncClient(transport=ReplayTransport(path))
    async with client, client.stream("GET", URL) as response:
        return await count(response.aiter_bytes())


async def count(pieces: AsyncIterable[bytes]) -> int:
    """Return the number of bytes in a stream."""
    size = 0
    async for piece in pieces:
        size += len(piece)
    return size


@pytest.mark.parametrize("play", [play_bytes, play_cut, play_response])
def test_memory_does_not_grow_with_the_recording(large: Path, play: Callable[[Path], Awaitable[int]]) -> None:
    """A replay needs at most 4 MB."""
    tracemalloc.start()
    size = anyio.run(play, large)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert COUNT * len(CHUNK) == size > 100_000_000
    assert peak < BOUND
