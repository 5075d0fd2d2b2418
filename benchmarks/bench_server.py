"""Measures a response to many browsers relative to a bare Starlette response.

    python benchmarks/bench_server.py

Two processes use the loopback interface: uvicorn, and a client with 500 open connections. The client parses the bodies
and checks that all events arrive in order. The reference is a bare `StreamingResponse`, whose generator yields the same
prepared bytes with one chunk for each event. It handles neither silence nor slow clients. streamtools sends all pending
events in one chunk. Processor times are those of the server.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Comparison, Result, main
from benchmarks.served import make_chunks

STREAMS = 500
EVENTS = 100
TARGET = 1 / 0.6

ROWS = [
    ("events that are there, encoded", "events", TARGET),
    ("a ToolStream over its source", "stream", None),
    ("a run, read from its log", "run", None),
]


class Served:
    """A server in another process."""

    def __init__(self, streams: int, events: int) -> None:
        command = [sys.executable, "-m", "benchmarks.served", str(streams), str(events)]
        root = Path(__file__).resolve().parents[1]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        self._streams = streams
        self._expected = make_chunks(events)

    def work(self, page: str) -> float:
        """Let all clients read the page at the same time. Returns the processor time of the server in seconds."""
        return asyncio.run(self._work(page))

    def check(self, page: str) -> None:
        """Raise AssertionError unless each client gets all events in order."""
        for chunks in asyncio.run(self._read_all(page)):
            assert _plain(b"".join(chunks)) == _plain(b"".join(self._expected)), chunks[:5]

    def close(self) -> None:
        """End the server."""
        self._process.communicate()

    async def _work(self, page: str) -> float:
        before = await self._read("time")
        for chunks in await self._read_all(page):
            assert b"".join(chunks).count(b"\n\n") == len(self._expected), len(chunks)
        after = await self._read("time")
        return float(b"".join(after)) - float(b"".join(before))

    async def _read_all(self, page: str) -> list[list[bytes]]:
        return await asyncio.gather(*(self._read(page) for _ in range(self._streams)))

    async def _read(self, page: str) -> list[bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"GET /{page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        return list(_chunks(body)) if b"\ntransfer-encoding: chunked" in head.lower() else [body]


def _chunks(body: bytes) -> Iterator[bytes]:
    """Yield the chunks of a chunked body."""
    while body:
        length, _, rest = body.partition(b"\r\n")
        size = int(length, 16)
        if size:
            yield rest[:size]
        body = rest[size + 2 :]


def _plain(chunk: bytes) -> bytes:
    """Return a body without the id of its run."""
    head, start, rest = chunk.partition(b'"run_id":"')
    return head + start + rest[rest.index(b'"') :] if start else chunk


class _Row(Comparison):
    """A comparison that also reports events a second."""

    def measure(self, repeats: int) -> Result:
        result = super().measure(repeats)
        ours, bare = result.details["ns"], result.details["beside"]
        details = {"events/s": 1e9 / ours, "bare": 1e9 / bare, "share": bare / ours}
        return Result(self.section, self.name, result.value, self.unit, self.target, {**details, **result.details})


def cases(small: bool) -> Iterator[_Row]:
    """Yield the rows."""
    streams, events = (20, 10) if small else (STREAMS, EVENTS)
    server = Served(streams, events)
    try:
        server.check("bare")
        for name, page, target in ROWS:
            yield _Row(
                f"{streams} streams of {events + 4} events",
                name,
                streams * (events + 4),
                partial(server.work, page),
                partial(server.work, "bare"),
                partial(server.check, page),
                target,
                "× bare",
            )
    finally:
        server.close()


if __name__ == "__main__":
    main("server", cases)
