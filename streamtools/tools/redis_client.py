"""Sends commands to a Redis or Valkey server, for `RedisStore` and `RedisLedger`, over connections of redis-py.

Replies are returned without conversion, so text is bytes.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeAlias

import anyio

from streamtools.errors import described
from streamtools.loading import require_packages

Word: TypeAlias = "str | bytes | int"
"""One word of a Redis command: its name or an argument."""


class Cipher(Protocol):
    """Encrypts the values of vaults, such as `cryptography.fernet.Fernet(key)`."""

    def encrypt(self, data: bytes, /) -> bytes: ...

    def decrypt(self, data: bytes, /) -> bytes: ...


class Unencrypted:
    """A cipher that changes nothing."""

    encrypt = decrypt = staticmethod(bytes)


# The limit of concurrent calls of `execute`: each needs a connection. The method `connection` has no limit.
_MAX_CONNECTIONS = 16
_TIMEOUT_S = 5.0


def check_url(server: object) -> None:
    """Check the URL or the client of a Redis server.

    Raises ValueError for a text that is not such a URL, TypeError for an object that is neither a text nor a Redis
    client, and ImportError if redis-py is not installed.
    """
    if isinstance(server, RedisClient):
        return
    with require_packages("the Redis client"):
        from redis.asyncio import Redis
    if not isinstance(server, str | Redis):
        module = f"{type(server).__module__}." if hasattr(server, "connection_pool") else ""
        expected = "the URL of a Redis server or a redis.asyncio.Redis"
        raise TypeError(f"Expected {expected}, got {module}{described(server)}.")
    if isinstance(server, str) and not server.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError(f"write the URL of the Redis server, such as 'redis://localhost:6379', got {server!r}")


@asynccontextmanager
async def open_client(url_or_client: object) -> AsyncIterator[RedisClient]:
    """Yield a client for a URL (`redis://…`, `rediss://…`, `unix://…`) or for a `redis.asyncio.Redis`.

    A `RedisClient` is yielded unchanged. This function sends no command. Raises RuntimeError if the event loop is not
    asyncio, and the exceptions of `check_url`.
    """
    if isinstance(url_or_client, RedisClient):
        yield url_or_client
        return
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        raise RuntimeError("redis-py runs on asyncio only. On trio, use a store without Redis.")
    from redis.asyncio import Redis

    client: Any = Redis.from_url(url_or_client) if isinstance(url_or_client, str) else url_or_client
    opened = RedisClient(client.connection_pool)
    try:
        yield opened
    finally:
        await opened.close()


class RedisClient:
    """Sends commands to one server. Any task may call `execute`, and the task may be cancelled.

    redis-py makes the connections, and closes a connection whose command is cancelled. Otherwise the late reply to this
    command would be read as the reply to the next one. The client of redis-py takes 70 µs for a short command, and this
    one 40 to 60 µs.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._idle: list[Any] = []
        self._closed = False
        self._free = anyio.Semaphore(_MAX_CONNECTIONS, fast_acquire=True)

    async def execute(self, *args: Word) -> Any:
        """Send one command and return the reply of the server without conversion, so text is bytes.

        Raises TimeoutError after five seconds, and the errors of redis-py if the server reports an error or the network
        fails.
        """
        async with asyncio.timeout(_TIMEOUT_S), self._free:  # three times as fast as `anyio.fail_after`
            connection = self._idle.pop() if self._idle else self._pool.make_connection()
            try:
                return await _execute(connection, *args)
            finally:
                self._idle.append(connection)
                if self._closed or not connection.is_connected:  # if the server is gone, idle connections are useless
                    await self._close_idle()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        """Yield an `execute` with a separate connection and no time limit, for commands that block."""
        connection = self._pool.make_connection()
        try:
            yield partial(_execute, connection)
        finally:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Close the idle connections. From now on, a connection in use is closed after its command."""
        self._closed = True
        await self._close_idle()

    async def _close_idle(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)


async def _execute(connection: Any, *args: Word) -> Any:
    if not connection.is_connected:
        await connection.connect()
        connection.socket_timeout = None  # with a timeout, redis-py would start a task per command
    await connection.send_command(*args, check_health=False)
    return await connection.read_response(disable_decoding=True, timeout=math.inf)
