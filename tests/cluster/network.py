"""A relay between a worker and Redis. A test makes it stall, drop one direction, or cut its connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

import anyio
from anyio.abc import ByteStream, SocketStream

Direction = Literal["to", "from"]


class Relay:
    """Passes bytes in both directions, unless a fault is active."""

    def __init__(self, redis_port: int) -> None:
        self.port = 0
        self._redis_port = redis_port
        self._swallows: set[Direction] = set()
        self._stalls = 0  # number of active stalls
        self._open = anyio.Event()
        self._open.set()
        self._connections: set[anyio.CancelScope] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Relay]:
        """Listen on a free port."""
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as group,
        ):
            self.port = listener.extra(anyio.abc.SocketAttribute.local_port)
            group.start_soon(listener.serve, self._pass)
            yield self
            group.cancel_scope.cancel()

    def cut(self) -> None:
        """Cut all connections."""
        for scope in self._connections:
            scope.cancel()

    @asynccontextmanager
    async def stalled(self) -> AsyncIterator[None]:
        """Buffer all bytes during the block, and pass them afterwards."""
        self._stalls += 1
        if self._stalls == 1:
            self._open = anyio.Event()
        try:
            yield
        finally:
            self._stalls -= 1
            if not self._stalls:
                self._open.set()

    @asynccontextmanager
    async def swallowing(self, direction: Direction) -> AsyncIterator[None]:
        """Drop the bytes of one direction during the block, then cut the connections."""
        self._swallows.add(direction)
        try:
            yield
        finally:
            self._swallows.discard(direction)
            self.cut()

    async def _pass(self, client: SocketStream) -> None:
        with anyio.CancelScope() as scope:
            self._connections.add(scope)
            try:
                async with client:
                    server = await anyio.connect_tcp("127.0.0.1", self._redis_port)
                    async with server, anyio.create_task_group() as group:
                        group.start_soon(self._pump, client, server, "to", group.cancel_scope)
                        group.start_soon(self._pump, server, client, "from", group.cancel_scope)
            except OSError:
                pass
            finally:
                self._connections.discard(scope)

    async def _pump(self, source: ByteStream, sink: ByteStream, direction: Direction, both: anyio.CancelScope) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                data = await source.receive()
                await self._open.wait()
                if direction not in self._swallows:
                    await sink.send(data)
        both.cancel()
