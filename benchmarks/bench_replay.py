"""Measures the replay of recordings at speed 0, from the lines of a file to the bytes of the response.

    python benchmarks/bench_replay.py

The figure is nanoseconds for each byte of the response, less is better: 5 ns are 200 MB/s, which the table also shows.
Half of the chunks end in the middle of a character, and all contain quotes that JSON escapes. `open_exchange` decodes
each byte from JSON, encodes it as UTF-8 and hashes it. The table also shows the cost of only these three operations.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import AsyncIterable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
import httpx
import msgspec

from benchmarks.measure import Result, Work, interleave, main, timed
from streamtools.recording import ExchangeHead, RecordedRequest, ReplayBytes, ReplayTransport
from streamtools.recording.files import open_exchange
from streamtools.recording.format import Chunk, RecordedResponse, StreamEnd, encode_chunk, encode_end, encode_head
from streamtools.recording.playback import Cut

FRAME = 'data: {"id":"c1","choices":[{"index":0,"delta":{"content":" naïve"},"finish_reason":null}]}\n\n'.encode()
SIZES = (256, 4096, 16384)
URL = "http://localhost/v1/chat/completions"
TARGET = 5.0


def write(path: Path, size: int, total: int) -> int:
    """Write a recording of `total` bytes in chunks of `size`. Returns its size in bytes."""
    data = FRAME * (size // len(FRAME) + 2)
    digest, count = hashlib.sha256(), 0
    with path.open("wb") as file:
        request = RecordedRequest(method="GET", url=URL)
        file.write(encode_head(ExchangeHead(source="openai", request=request, response=RecordedResponse(status=200))))
        while count < total:
            chunk = data[count % len(FRAME) :][:size]
            file.write(encode_chunk(Chunk(count / 1000, chunk)))
            digest.update(chunk)
            count += size
        file.write(encode_end(StreamEnd("end", count / 1000), size=count, digest=digest.hexdigest()))
    return count


async def count(pieces: AsyncIterable[bytes]) -> int:
    """Return the number of bytes."""
    size = 0
    async for piece in pieces:
        size += len(piece)
    return size


async def play(path: Path, cut: Cut) -> int:
    """Read a replay."""
    return await count(ReplayBytes(open_exchange(path), cut=cut))


async def fetch(path: Path) -> int:
    """Read a replay with an HTTP client."""
    client = httpx.AsyncClient(transport=ReplayTransport(path))
    async with client, client.stream("GET", URL) as response:
        return await count(response.aiter_bytes())


class Line(msgspec.Struct):
    """The text of a chunk."""

    text: str = ""


def decode(path: Path) -> None:
    """Decode each line in the cheapest way."""
    digest, read = hashlib.sha256(), msgspec.json.Decoder(Line).decode
    with path.open("rb") as file:
        for line in file:
            digest.update(read(line).text.encode())


@dataclass(frozen=True)
class Throughput:
    """Nanoseconds for each byte of a replay, with those of decoding alone."""

    section: str
    name: str
    path: Path
    size: int
    replay: Callable[[Path], Coroutine[Any, Any, int]]
    target: float | None = None

    @property
    def subject(self) -> Work:
        async def clocked() -> float:
            started = process_time()
            await self.replay(self.path)
            return process_time() - started

        return partial(anyio.run, clocked)

    def check(self) -> None:
        """Raise AssertionError if a byte is missing."""
        assert anyio.run(self.replay, self.path) == self.size, "bytes"

    def measure(self, repeats: int) -> Result:
        subject, beside = (min(each) for each in interleave([self.subject, timed(partial(decode, self.path))], repeats))
        nanoseconds = subject / self.size * 1e9
        details = {"MB/s": 1000 / nanoseconds, "beside, MB/s": self.size / beside / 1e6}
        return Result(self.section, self.name, nanoseconds, "ns a byte", self.target, details)


def cases(smoke: bool) -> Iterator[Throughput]:
    """Yield all rows."""
    total = 100_000 if smoke else 10_000_000
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder, f"{size}.jsonl")
            count = write(path, size, total)
            section = f"chunks of {size} bytes"
            target = TARGET if size == max(SIZES) else None
            yield Throughput(section, "ReplayBytes", path, count, partial(play, cut="recorded"), target)
            yield Throughput(section, "ReplayBytes, cut into frames", path, count, partial(play, cut="frame"))
            yield Throughput(section, "ReplayTransport and a client of httpx", path, count, partial(fetch))


if __name__ == "__main__":
    main("replay", cases)
