"""A `RedisClient` over plain sockets, as a trio application could implement it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from streamtools.tools.redis_client import RedisConnection, Word


class RespClient:
    """Opens a connection for each command."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def execute(self, *args: Word) -> Any:
        """See `RedisConnection`."""
        async with self.connection() as connection:
            return await connection.execute(*args)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[RedisConnection]:
        """See `RedisClient`."""
        async with await anyio.connect_tcp("127.0.0.1", self._port) as stream:
            yield _Connection(stream)


class _Connection:
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._replies = BufferedByteReceiveStream(stream)

    async def execute(self, *args: Word) -> Any:
        """See `RedisConnection`."""
        words = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        await self._stream.send(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
        return await self._read()

    async def _read(self) -> Any:
        line = await self._replies.receive_until(b"\r\n", 1 << 16)
        kind, rest = line[:1], line[1:]
        match kind:
            case b"-":
                raise RuntimeError(rest.decode())
            case b":":
                return int(rest)
            case b"$":
                return None if rest == b"-1" else (await self._replies.receive_exactly(int(rest) + 2))[:-2]
            case b"*":
                return None if rest == b"-1" else [await self._read() for _ in range(int(rest))]
        return rest
