"""Bodies of responses, for transports that answer without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx


class Pieces(httpx.AsyncByteStream, httpx.SyncByteStream):
    """A body of these pieces. Exceptions among them are raised."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    async def aclose(self) -> None:
        self.closed = True
