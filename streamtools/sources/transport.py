"""The transport of a stream: a response, an event source or an iterable, read piece by piece.

No HTTP client is imported. A response is an object with `aiter_bytes()`. An event source has such a response, and the
response is read, because the decoders of the libraries lose and invent events (`frames.py` does neither). `aiter_raw`
is not used: it yields the bytes that gzip made of the stream.

A stream of an SDK (`AsyncStream` of openai, anthropic and others) is an event source, too. As long as nothing of its
response was consumed, its bytes are read: they hold what the SDK drops, cost less, and break off in ways that differ. A
stream that was read from, or a synchronous one, is an iterable of objects. So is the result of `aiter(stream)`, for
callers whose instrumentation must see each object. A synchronous iterable of the network blocks the event loop.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from http import HTTPStatus
from typing import Any

import anyio.lowlevel
import msgspec

from streamtools.errors import UnreadableSource
from streamtools.events import SourceError
from streamtools.logs import Logger
from streamtools.sources.adapter import decode
from streamtools.sources.provider_terms import read_fault, url_of

log = Logger(__name__)

BODY = 1024 * 1024
"""Bytes of an error's body that are read. They include the model's text if the provider could not read a call in it."""

_MAX_HEAD = 64 * 1024  # bytes of white space before the first byte of a response
_MAX_BUFFERED = 10_000  # chunks that an HTTP client may have buffered

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_NO_STREAM = "the response is one JSON document and not a stream"
_ASK_FOR_ONE = _NO_STREAM + "; was the request sent with `stream: true`?"


class Transport:
    """The object that the caller passed. `anext` reads it piece by piece, and `aclose` closes it at any time."""

    def __init__(self, origin: object) -> None:
        self._iterator: AsyncIterator[Any] | Iterator[Any]
        self._response, self._in_bytes = _response(origin)
        if self._in_bytes:
            self._iterator = aiter(self._response.aiter_bytes())
        elif isinstance(origin, AsyncIterable):
            self._iterator = aiter(origin)
        elif isinstance(origin, bytes | bytearray | memoryview | str):  # iterable, but not as pieces of a stream
            self._iterator = iter((origin,))
        elif isinstance(origin, Iterable) and not (isinstance(origin, Mapping) or hasattr(origin, "model_dump")):
            self._iterator = iter(origin)
        else:
            raise UnreadableSource(_advice(origin))
        self._started = False
        self._first: bytes | None = None  # read ahead to see what it is
        self._body = bytearray()

    @property
    def ends_when_cancelled(self) -> bool:
        """Whether a cancelled read is the last read: it ends an asynchronous generator silently."""
        return isinstance(self._iterator, AsyncGenerator)

    @property
    def content_type(self) -> str:
        """The declared media type with its parameters, or an empty string."""
        headers = getattr(self._response, "headers", None)
        declared = headers.get("content-type") if isinstance(headers, Mapping) else None
        return declared.strip() if isinstance(declared, str) else ""

    @property
    def read(self) -> Callable[[], Awaitable[Any]]:
        """The function that reads each piece after the first one, without a call of ours between."""
        return self._iterator.__anext__ if isinstance(self._iterator, AsyncIterator) else self.__anext__

    @property
    def url(self) -> str | None:
        """The host and path of the response, if it has them."""
        return url_of(self._response)

    @property
    def host(self) -> str | None:
        """The host of the response, if it has one."""
        shown = self.url
        return shown.partition("/")[0].partition(":")[0] or None if shown else None

    async def __anext__(self) -> Any:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        self._started = True
        if isinstance(self._iterator, AsyncIterator):
            return await anext(self._iterator)
        await anyio.lowlevel.checkpoint()
        try:
            return next(self._iterator)
        except StopIteration:
            raise StopAsyncIteration from None

    async def refusal(self, *, documents: bool = False) -> SourceError | None:
        """Return the error if the response is an error or a document and no stream. Reads nothing of a stream.

        With `documents`, a JSON array is a stream, whose elements are its events.
        """
        if not self._in_bytes:
            return None
        status = getattr(self._response, "status_code", None)
        failed = isinstance(status, int) and not 200 <= status < 300
        if not failed:
            status = None
            head = await self._read_first_byte() if _is_json(self.content_type) else b"data"
            if head not in (b"{", b"[") or (documents and head == b"["):
                return None
        with contextlib.suppress(Exception):  # a part of the body is useful, too
            while len(self._body) < BODY:
                self._body += await anext(self)
        try:
            value = decode(bytes(self._body[:BODY]))
        except ValueError:
            value = None
        fault = read_fault(value)
        if failed:
            error = fault._replace(status=status).event(_PHRASES.get(status or 0, f"HTTP status {status}"))
        else:
            error = fault.event(_ASK_FOR_ONE if isinstance(value, dict) and "choices" in value else _NO_STREAM)
        return msgspec.structs.replace(error, url=url_of(self._response))

    async def aclose(self) -> None:
        """Close the iterator and the response, even in mid-read. Their exceptions are dropped."""
        iterator, response = self._iterator, self._response
        with contextlib.suppress(Exception):
            if hasattr(response, "aclose"):
                await response.aclose()
        if response is not None and self._started and isinstance(iterator, AsyncIterator):
            await unwind(iterator)
        with contextlib.suppress(Exception):
            if isinstance(iterator, AsyncIterator):
                if hasattr(iterator, "aclose"):
                    await iterator.aclose()
            elif hasattr(iterator, "close"):
                iterator.close()
        with contextlib.suppress(Exception):
            if response is not None and not isinstance(iterator, AsyncIterator):
                response.close()

    async def _read_first_byte(self) -> bytes:
        """Return the first byte of a response that is declared as JSON. Some servers declare event streams so."""
        head = b""
        try:
            while not head.strip() and len(head) < _MAX_HEAD:
                head += await anext(self)
        except StopAsyncIteration:
            return b"{"  # an empty response is no stream
        finally:
            self._first = head
        return head.lstrip()[:1]


def _advice(origin: object) -> str:
    """Return the message for an object that cannot be read."""
    what = f"{type(origin)!r} has no `aiter_bytes()` and is no iterable of a stream's pieces"
    if inspect.isawaitable(origin):
        if inspect.iscoroutine(origin):
            origin.close()  # or Python would warn that it was not awaited
        return f"{what}: await it first"
    if hasattr(origin, "__aenter__"):
        return f"{what}: enter it first, and pass what that gives: `async with … as response:`"
    if isinstance(origin, Mapping) or hasattr(origin, "model_dump"):
        return f"{type(origin)!r} is a whole answer and no stream: ask for one with `stream=True`"
    return what


async def unwind(iterator: AsyncIterator[Any]) -> None:
    """Read the iterator of a closed response to its end, so that its inner generators end, too.

    HTTP clients nest asynchronous generators, and `aclose` ends the outermost one only. trio warns if the garbage
    collector ends the others. The reads run in a cancelled scope, so that they wait for nothing.
    """
    with anyio.CancelScope() as scope, contextlib.suppress(Exception):
        scope.cancel()
        for _ in range(_MAX_BUFFERED):
            await anext(iterator)


def _response(origin: object) -> tuple[Any, bool]:
    """Return the response that `origin` is or has, or None, and whether to read its bytes."""
    for candidate in (origin, getattr(origin, "response", None)):
        if callable(getattr(candidate, "aiter_bytes", None)):
            objects = candidate is not origin and isinstance(origin, AsyncIterable | Iterable)
            stream = getattr(candidate, "stream", None)  # of httpx, for its synchronous client too
            synchronous = isinstance(stream, Iterable) and not isinstance(stream, AsyncIterable)
            if objects and (synchronous or getattr(candidate, "is_stream_consumed", False) is True):
                return candidate, False
            if synchronous:
                raise UnreadableSource("this response is synchronous; a source reads those of an asynchronous client")
            if getattr(candidate, "is_stream_consumed", False) is True:
                log.warning("response_read_before", advice="ask with `client.stream(…)`: nothing is seen until the end")
            return candidate, True
    return None, False


def _is_json(declared: str) -> bool:
    """Return whether a response is declared as one JSON document. NDJSON and similar types are streams."""
    media = declared.partition(";")[0].strip().lower()
    return media in ("application/json", "text/json", "application/problem+json")
