"""A provider's response: how long it may be silent, and how it is closed.

The times are bounded here and not by the HTTP client, which has one bound for each read: a model may think for minutes
before its first byte, and a silence of that length behind it is a dead connection. A bound stands around a single read,
and nothing yields inside of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from typing import Any

import anyio

from streamtools.errors import StreamToolsError
from streamtools.sources.reading import Reading

CLOSING = 10.0
"""Seconds that a response may take to close."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Seconds until the connection stands, until the first byte of an answer, and between its bytes; `math.inf` waits.

    The first byte takes long where a model is loaded, or thinks before it speaks.
    """

    connect: float = 10.0
    first_byte: float = 600.0
    between_bytes: float = 120.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if not getattr(self, each.name) > 0:
                raise ValueError(f"{each.name} is a time above 0 seconds, not {getattr(self, each.name)!r}")


class NothingCame(StreamToolsError, TimeoutError):
    """The answer stopped for longer than `Timeouts.between_bytes`."""


class Response:
    """A provider's response as a source reads it: the first bytes may have been read already, later ones are timed."""

    def __init__(self, opened: AbstractAsyncContextManager[Any], response: Any, between: float) -> None:
        self.status_code: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.url = getattr(response, "url", None)
        self._opened = opened
        self._reading = Reading(response)
        self._between = between
        self._first: bytes | None = None
        self._closed = False

    async def begin(self) -> None:
        """Read the first bytes."""
        self._first = await anext(self._reading, None)

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the body, decoded."""
        if self._first is not None:
            yield self._first
        while True:
            chunk = None
            with anyio.move_on_after(self._between) as scope:
                chunk = await anext(self._reading, None)
            if scope.cancelled_caught:
                raise NothingCame(f"nothing came for {self._between:g} s")
            if chunk is None:
                return
            yield chunk

    async def aclose(self) -> None:
        """Close the response, at once; may be called more than once."""
        if self._closed:
            return
        self._closed = True
        with anyio.move_on_after(CLOSING, shield=True):
            await self._reading.aclose()
            await self._opened.__aexit__(None, None, None)


async def open_response(opened: AbstractAsyncContextManager[Any], between: float) -> Response:
    """Return the response that `opened` gives, to be closed by whoever gets it."""
    raw = await opened.__aenter__()
    try:
        return Response(opened, raw, between)
    except BaseException:  # no response that anybody can read
        await opened.__aexit__(None, None, None)
        raise
