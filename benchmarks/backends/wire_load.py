"""A provider and the browsers of its clients, in one process and on bare sockets. They load and check a backend.

The provider answers each request with chunks of chat completions, one write for each chunk, at a given pace. Each delta
contains its number and the time at which it was sent. The client checks only that all deltas arrive in order, and how
late. Both are asyncio protocols without streams, because they must be faster than the servers.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_DELTA = re.compile(rb"w([0-9]{5})\.([0-9]{12});")
# Between two chunks of a body. A server that forwards reads unchanged may begin a chunk in the middle of a delta.
_BETWEEN_CHUNKS = re.compile(rb"\r\n[1-9A-Fa-f][0-9A-Fa-f]*\r\n")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_TAIL = 4096  # bytes of a body that are kept: a delta may come in two pieces, and the end is looked at


def _frame(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    told = {**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
    return b"data: %b\n\n" % json.dumps(told).encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_BEGIN = _chunk(_frame({"role": "assistant", "content": ""}))
_BEFORE, _, _AFTER = _chunk(_frame({"content": " w00000.000000000000;"})).partition(b"00000.000000000000")
_END = _chunk(_frame({}, "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n"
_TOOLS = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}]


def _now() -> int:
    """Return the time in microseconds, in at most twelve digits."""
    return time.monotonic_ns() // 1000 % 10**12


@dataclass
class Pace:
    """How a provider speaks: so many deltas, with so many seconds before each; None is as fast as the socket takes it.

    With `silent`, nothing comes behind the last, not even an end; with `held`, nothing behind the first until the
    provider goes on.
    """

    deltas: int
    pause: float | None
    silent: bool = False
    held: bool = False


class _Answering(asyncio.Protocol):
    """One connection of the provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._loop = asyncio.get_running_loop()
        self._asked = b""
        self._number = 0
        self._next = 0.0
        self._pace = provider.pace
        self._timer: asyncio.Handle | None = None
        self._full = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._asked += data
        head, ends, body = self._asked.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *([0-9]+)", head, re.IGNORECASE)
        if not ends or (length is not None and len(body) < int(length[1])):
            return
        self._asked = b""
        self._pace = self._provider.pace
        self._number = 0
        self._transport.write(_HEAD + _BEGIN)
        if self._pace.held:
            self._provider.held.append(self.begin)
            self._next = self._loop.time() - (self._pace.pause or 0)
            self._say()
        else:
            self.begin()

    def begin(self) -> None:
        """Begin to send an answer."""
        self._next = self._loop.time() + (self._pace.pause or 0) * self._provider.phase()
        self._wait()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._pace.pause is None and self._timer is None:
            self._wait()

    def _wait(self) -> None:
        if self._pace.pause is None:
            self._timer = self._loop.call_soon(self._say)
        else:
            self._next += self._pace.pause
            self._timer = self._loop.call_at(self._next, self._say)

    def _say(self) -> None:
        self._timer = None
        if self._number < self._pace.deltas:
            delta = b"%b%05d.%012d%b" % (_BEFORE, self._number, _now(), _AFTER)
            self._transport.write(delta)
            self._provider.written += len(delta)
            self._number += 1
            if (self._pace.pause is not None or not self._full) and not (self._pace.held and self._number == 1):
                self._wait()
        else:
            self._provider.ended += 1
            if not self._pace.silent:
                self._transport.write(_END)


class Provider:
    """The API of a model. `pace` applies to answers that begin from now on."""

    def __init__(self) -> None:
        self.pace = Pace(0, None)
        self.held: list[Callable[[], None]] = []
        self.written = 0
        """Bytes of the deltas of all streams."""
        self.ended = 0
        """Streams that have said all of their deltas."""
        self.url = ""
        self._begun = 0

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Answering(self), "127.0.0.1", 0, backlog=4096)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    def go_on(self) -> None:
        """Continue all held answers."""
        held, self.held = self.held, []
        for begin in held:
            begin()

    def phase(self) -> float:
        """Return a part of a pause, so that answers do not send at the same time."""
        self._begun += 1
        return self._begun * 0.618 % 1


@dataclass
class Seen:
    """The data that one client received."""

    came: int = 0
    wrong: int = 0
    late: list[int] = field(default_factory=list)
    """How late each delta was, in microseconds."""
    first: int = 0
    """The microseconds from the request to the first delta."""
    tail: bytes = b""
    size: int = 0
    """The bytes of the response, with its head."""


class _Reading(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, request: bytes, deltas: int, stalled: bool) -> None:
        self.seen = Seen()
        self._deltas = deltas
        self._stalled = stalled
        self.whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._asked_at = _now()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        seen = self.seen
        seen.size += len(data)
        data = _BETWEEN_CHUNKS.sub(b"", seen.tail + data)
        now = _now()
        last = 0
        for found in _DELTA.finditer(data):
            if int(found[1]) != seen.came:
                seen.wrong += 1
            seen.came += 1
            seen.late.append(now - int(found[2]))
            last = found.end()
        if seen.came and not self.begun.done():
            seen.first = now - self._asked_at
            self.begun.set_result(None)
            if self._stalled:
                self._transport.pause_reading()
        if seen.came == self._deltas and not self.whole.done():
            self.whole.set_result(None)
        seen.tail = data[max(last, len(data) - _TAIL) :]
        if data.endswith(b"\r\n0\r\n\r\n"):
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.begun.done():
            self.begun.set_result(None)
        if not self.whole.done():
            self.whole.set_result(None)
        if not self.over.done():
            self.over.set_result(self.seen)


def request(path: str) -> bytes:
    """Return the request of a client."""
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Say it."}]}
    body = json.dumps({**asked, "tools": _TOOLS} if "/v1/" in path else asked).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk-1\r\ncontent-type: application/json\r\n"
    )
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def open_all(
    port: int, paths: Iterable[str], *, together: int = 50, deltas: int = 0, stalled: bool = False
) -> list[_Reading]:
    """Open a connection for each path, some at a time, and return them.

    Each is `whole` when so many deltas have come, or it has been lost; `stalled` ones read only until one has come.
    """
    waiting = list(paths)
    opened: list[_Reading] = []
    for start in range(0, len(waiting), together):
        opened += await asyncio.gather(
            *(_open(port, path, deltas, stalled) for path in waiting[start : start + together])
        )
    return opened


async def _open(port: int, path: str, deltas: int, stalled: bool) -> _Reading:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(lambda: _Reading(request(path), deltas, stalled), "127.0.0.1", port)
    return protocol


async def ask(port: int, path: str) -> bytes:
    """Return the body of a GET request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    told = (await reader.read(-1)).partition(b"\r\n\r\n")[2]
    writer.close()
    await writer.wait_closed()
    return told
