"""The way to a Redis or Valkey server: one method that asks, and one that gives a connection of its own to wait on.

Nothing else of a client is used, so any will do: redis-py on asyncio, coredis on trio, or one of the user's. Replies
are taken as the server sent them, text as bytes, because each library has another reading of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

Word: TypeAlias = "str | bytes | int"
"""A word of a command."""

_AT_ONCE = 16  # connections that commands share


class RedisConnection(Protocol):
    """Sends commands to a server."""

    async def execute(self, *args: Word) -> Any:
        """Return the reply to one command as the server sent it, text as bytes.

        Raises what the library raises, for errors of the server and of the network.
        """


@runtime_checkable
class RedisClient(RedisConnection, Protocol):
    """What a store and a ledger need of a client. `execute` may be called from any task, and may be cancelled."""

    def connection(self) -> AbstractAsyncContextManager[RedisConnection]:
        """Return a connection that nobody else uses, for as long as it is entered: for a command that blocks, and for
        commands that have to go one behind the other on one connection.
        """


@asynccontextmanager
async def open_client(given: object, *, timeout: float = 5.0) -> AsyncIterator[RedisClient]:
    """Enter to get a client for a URL (`redis://…`, `rediss://…`, `unix://…`), or for a client of a user's.

    That is a `redis.asyncio.Redis` on asyncio, a `coredis.Redis` on trio or asyncio, or a `RedisClient`, which is given
    back as it is. Nothing is sent yet. A command that takes longer than `timeout` seconds raises TimeoutError, but for
    those on a `connection`. Raises ImportError that names the extra, and TypeError for what is none of these.
    """
    if isinstance(given, RedisClient):
        yield given
        return
    library = type(given).__module__.partition(".")[0]
    if isinstance(given, str):
        library = "coredis" if anyio.get_cancelled_exc_class().__module__.startswith("trio") else "redis"
    try:
        if library == "redis":
            from redis.asyncio import Redis

            client: _RedisPy | _Coredis = _RedisPy(_pool_of(Redis, given), timeout)
        elif library == "coredis":
            from coredis import Redis as Coredis

            client = _Coredis(_pool_of(Coredis, given), timeout)
        else:
            raise TypeError(f"a URL or a client of Redis is expected, and {type(given)!r} is neither")
    except ImportError as error:
        raise ImportError(f"{library} is needed to talk to Redis here: pip install 'streamtools[redis]'") from error
    async with client:
        yield client


def _pool_of(kind: Any, given: object) -> Any:
    if isinstance(given, str):
        return kind.from_url(given).connection_pool
    if not isinstance(given, kind):
        raise TypeError(f"the client is a {kind.__module__}.{kind.__name__}, not {type(given)!r}")
    return given.connection_pool


class _RedisPy:
    """redis-py's asyncio client. A connection on which a command was cut off is closed: its reply may still come."""

    def __init__(self, pool: Any, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._idle: list[_RedisPyConnection] = []
        self._free = anyio.Semaphore(_AT_ONCE, fast_acquire=True)

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *of_error: object) -> None:
        with anyio.CancelScope(shield=True):
            while self._idle:
                await self._idle.pop().close()

    async def execute(self, *args: Word) -> Any:
        async with asyncio.timeout(self._timeout), self._free:  # a third of what `anyio.fail_after` costs
            connection = self._idle.pop() if self._idle else _RedisPyConnection(self._pool.make_connection())
            try:
                return await connection.execute(*args)
            finally:
                if connection.is_open:
                    self._idle.append(connection)
                else:  # the server has gone, as a rule, and the others with it
                    idle, self._idle = self._idle, []
                    with anyio.CancelScope(shield=True):
                        for each in idle:
                            await each.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[RedisConnection]:
        connection = _RedisPyConnection(self._pool.make_connection())
        try:
            yield connection
        finally:
            await connection.close()


class _RedisPyConnection:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.is_open = False

    async def execute(self, *args: Word) -> Any:
        from redis.exceptions import ResponseError

        self.is_open = False
        try:
            if not self._connection.is_connected:
                await self._connection.connect()
                self._connection.socket_timeout = None  # or each command is sent by a task of its own, to bound that
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


class _Coredis:
    """coredis, which sends all commands over one connection. Its pool loses the place of a connection that breaks while
    it is in use, and hangs when it has lost all, so connections are made and kept here.
    """

    def __init__(self, pool: Any, timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout
        self._tasks: TaskGroup = anyio.create_task_group()
        self._shared: Any = None
        self._opening = anyio.Lock()

    async def __aenter__(self) -> None:
        await self._tasks.__aenter__()

    async def __aexit__(self, *of_error: Any) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def execute(self, *args: Word) -> Any:
        connection = None
        try:
            with anyio.fail_after(self._timeout):
                async with self._opening:
                    if self._shared is None or not self._shared.usable:
                        self._shared = await self._open()
                    connection = self._shared
                return await _request(connection, args)
        except TimeoutError:
            if connection is not None:
                connection.invalidate()
            raise

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[RedisConnection]:
        with anyio.fail_after(self._timeout):
            connection = await self._open()
        try:
            yield _CoredisConnection(connection)
        finally:
            connection.invalidate()

    async def _open(self) -> Any:
        connection = self._pool.connection_class(self._pool.location, **self._pool.connection_kwargs)
        await self._tasks.start(self._run, connection)
        return connection

    async def _run(self, connection: Any, *, task_status: TaskStatus[None]) -> None:
        started = False

        class Status:
            def started(self, value: None = None) -> None:
                nonlocal started
                started = True
                task_status.started()

        try:
            await connection.run(task_status=Status())
        except Exception:
            if not started:  # and whoever opens it is told
                raise
        finally:
            for each in vars(connection).values():  # its buffers, which it leaves open, and which say so
                if isinstance(each, MemoryObjectSendStream | MemoryObjectReceiveStream):
                    each.close()


class _CoredisConnection:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def execute(self, *args: Word) -> Any:
        return await _request(self._connection, args)


async def _request(connection: Any, args: tuple[Word, ...]) -> Any:
    command, *rest = args
    name = command if isinstance(command, bytes) else str(command).encode()
    return await connection.create_request(name, *rest, decode=False)
