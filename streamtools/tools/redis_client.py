"""Defines `RedisClient`, the interface that `RedisStore` and `RedisLedger` need for a Redis or Valkey server.

On asyncio, a URL or a client of redis-py can be used. Any other client must implement `RedisClient`, and so must every
client on trio. Replies are returned without conversion, so text is bytes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import anyio

Word: TypeAlias = "str | bytes | int"
"""One word of a Redis command: its name or an argument."""

_MAX_CONNECTIONS = 16  # the limit of commands at a time; each uses its own connection. `connection` is not limited


class RedisConnection(Protocol):
    """Sends commands to a Redis server."""

    async def execute(self, *args: Word) -> Any:
        """Send one command and return the reply of the server without conversion, so text is bytes.

        Raises the errors of the client library if the server reports an error or the network fails.
        """


@runtime_checkable
class RedisClient(RedisConnection, Protocol):
    """A Redis client for a store or a ledger. Any task may call `execute`, and the task may be cancelled."""

    def connection(self) -> AbstractAsyncContextManager[RedisConnection]:
        """Return a separate connection, for commands that block and for commands that must be sent in order."""


def check_url(server: object) -> None:
    """Raise ValueError for a text that is not the URL of a Redis server."""
    if isinstance(server, str) and not server.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError(f"write the URL of the Redis server, such as 'redis://localhost:6379', got {server!r}")


@asynccontextmanager
async def open_client(url_or_client: object, *, timeout: float = 5.0) -> AsyncIterator[RedisClient]:
    """Yield a client for a URL (`redis://…`, `rediss://…`, `unix://…`) or for a `redis.asyncio.Redis`.

    A `RedisClient` is yielded unchanged. This function sends no command. A command that takes longer than `timeout`
    seconds raises TimeoutError. Commands on a separate `connection` have no timeout. Raises RuntimeError if the event
    loop is not asyncio, ImportError if redis-py is not installed, and TypeError for any other object.
    """
    if isinstance(url_or_client, RedisClient):
        yield url_or_client
        return
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        raise RuntimeError(
            "redis-py runs on asyncio only. On trio, pass an object that implements "
            "streamtools.tools.redis_client.RedisClient, or use a store without Redis."
        )
    try:
        from redis.asyncio import Redis  # an optional dependency
    except ImportError as error:
        raise ImportError("Redis needs the extra `redis`: pip install 'streamtools[redis]'") from error
    client = Redis.from_url(url_or_client) if isinstance(url_or_client, str) else url_or_client
    if not isinstance(client, Redis):
        raise TypeError(f"Expected a URL, a redis.asyncio.Redis or a RedisClient, got {type(client)!r}.")
    connections = _Connections(client.connection_pool, timeout)
    try:
        yield connections
    finally:
        await connections.close()


class _Connections:
    """Implements `RedisClient` with connections of redis-py."""

    def __init__(self, pool: Any, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._idle: list[_Connection] = []
        self._closed = False
        self._free = anyio.Semaphore(_MAX_CONNECTIONS, fast_acquire=True)

    async def execute(self, *args: Word) -> Any:
        async with asyncio.timeout(self._timeout), self._free:  # three times as fast as `anyio.fail_after`
            connection = self._idle.pop() if self._idle else self._connect()
            try:
                return await connection.execute(*args)
            finally:
                if connection.is_open:
                    self._idle.append(connection)
                if self._closed or not connection.is_open:  # if the server is gone, idle connections are useless
                    await self._close_idle()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[RedisConnection]:
        connection = self._connect()
        try:
            yield connection
        finally:
            await connection.close()

    def _connect(self) -> _Connection:
        return _Connection(self._pool.make_connection())

    async def close(self) -> None:
        """Close the idle connections, and from now on each other connection after its command."""
        self._closed = True
        await self._close_idle()

    async def _close_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()


class _Connection:
    """One connection of redis-py.

    It is closed if a command is cancelled, because the late reply would be read as the reply to the next command.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.is_open = False

    async def execute(self, *args: Word) -> Any:
        from redis.exceptions import ResponseError

        self.is_open = False
        try:
            if not self._connection.is_connected:
                await self._connection.connect()
                self._connection.socket_timeout = None  # with a timeout, redis-py would start a task per command
            await self._connection.send_command(*args, check_health=False)
            reply = await self._connection.read_response(disable_decoding=True, timeout=math.inf)
        except ResponseError:
            self.is_open = True
            raise
        except BaseException:
            await self.close()
            raise
        self.is_open = True
        return reply

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._connection.disconnect(nowait=True)
