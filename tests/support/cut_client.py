"""A Redis client whose network a test can interrupt."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from streamtools.tools.redis_client import RedisClient, Word


class CutClient(RedisClient):
    """Forwards commands. While it is cut, new and waiting commands fail after a moment."""

    def __init__(self, inner: RedisClient) -> None:
        self._inner = inner
        self.is_cut = False
        self._scopes: set[anyio.CancelScope] = set()
        self.sent: list[str] = []
        """The sent commands, and the first words of the sent scripts."""

    def cut(self) -> None:
        """Interrupt the network."""
        self.is_cut = True
        for scope in self._scopes:
            scope.cancel()

    def restore(self) -> None:
        """Restore the network."""
        self.is_cut = False

    async def execute(self, *args: Word) -> Any:
        """See `RedisClient`."""
        return await self._send(self._inner.execute, *args)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
        """See `RedisClient`."""
        async with self._inner.connection() as execute:
            yield partial(self._send, execute)

    async def _send(self, execute: Callable[..., Awaitable[Any]], *args: Word) -> Any:
        self.sent.append(str(args[0]))
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                if self.is_cut:
                    await anyio.sleep(0.01)
                else:
                    return await execute(*args)
            finally:
                self._scopes.discard(scope)
        raise ConnectionError("the network swallows everything")
