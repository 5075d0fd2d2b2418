"""Responses and sources in memory, which report a point at each read and when they are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Self

import anyio
import anyio.lowlevel

from streamtools.events import SourceEvent
from tests.torture.rack import Rack


class Wire:
    """A response with these chunks. With `generator`, nested asynchronous generators yield them, as in HTTP clients."""

    status_code = 200

    def __init__(self, rack: Rack, *chunks: bytes, generator: bool = False) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self.closings = 0
        self.given = False  # whether its terminator was read
        self._rack = rack
        self._chunks = list(chunks)
        self._generator = generator
        rack.wires.append(self)

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Return an iterator over the chunks."""
        return self._outer() if self._generator else _Bytes(self)

    async def read(self) -> bytes:
        """Return the next chunk. Raises StopAsyncIteration after the last one."""
        self._rack.hit("source")
        await anyio.lowlevel.checkpoint()
        self._rack.hit("source")
        if self.closings:
            raise OSError("the response is closed")
        if not self._chunks:
            self.given = True
            raise StopAsyncIteration
        chunk = self._chunks.pop(0)
        self.given = self.given or b'"finish_reason":"' in chunk
        return chunk

    async def _inner(self) -> AsyncIterator[bytes]:
        async for chunk in _Bytes(self):
            yield chunk

    async def _outer(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner():
            yield chunk

    async def aclose(self) -> None:
        """Close the response, in a separate step."""
        self.closings += 1
        self._rack.hit("close")
        await anyio.lowlevel.checkpoint()


class _Bytes:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        return await self._wire.read()


class OwnSource:
    """A source of the application: batches of events, which may raise any exception."""

    def __init__(self, rack: Rack, *batches: Sequence[SourceEvent]) -> None:
        self.closings = 0
        self.given = not batches
        self._rack = rack
        self._batches = list(batches)
        rack.wires.append(self)  # type: ignore[arg-type]  # it has the attributes that are checked

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[SourceEvent]:
        self._rack.hit("fault")
        await anyio.lowlevel.checkpoint()
        self._rack.hit("fault")
        if not self._batches:
            self.given = True
            raise StopAsyncIteration
        batch = self._batches.pop(0)
        self.given = not self._batches
        return batch

    async def aclose(self) -> None:
        """Close the source."""
        self.closings += 1
        self._rack.hit("close")
        await anyio.lowlevel.checkpoint()
