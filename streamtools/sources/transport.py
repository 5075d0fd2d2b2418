"""Reads the object that a caller passes as a stream: an HTTP response, an event source, an SDK stream or an iterable.

No HTTP client is imported. An object with `aiter_bytes()` is a response. An event source has a `response` attribute.
Its response is read directly, because the SSE decoders of HTTP libraries lose and invent events. `aiter_raw` is not
used, because it yields compressed bytes.

A stream of an SDK (`AsyncStream` of openai, anthropic and others) also has a `response`. If no byte of that response
was consumed, its bytes are read. They contain fields that the SDK drops, they cost less to read, and they show how a
connection broke off. Otherwise, or if the stream is synchronous, the objects of the stream are read. If instrumentation
must see each object, pass `aiter(stream)`, which has no `response`. A synchronous iterable that reads from the network
blocks the event loop.
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
from streamtools.json_values import decode
from streamtools.logs import Logger
from streamtools.sources.provider_terms import read_fault, url_of

log = Logger(__name__)

MAX_BODY = 1024 * 1024
"""When this many bytes of the body of an error response have been read, the rest is not read.

Some providers put the whole text of the model into this body, if they cannot parse a call in it.
"""

_MAX_HEAD = 64 * 1024  # the maximum number of bytes of white space before the first byte of a response
_MAX_BUFFERED = 10_000  # the maximum number of chunks that an HTTP client may have buffered

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_NO_STREAM = "the response is one JSON document and not a stream"
_ADVICE = {"choices": "; was the request sent with `stream: true`?", "candidates": "; add `alt=sse` to the URL"}
"""Maps a key of a whole response to advice for the caller."""


class Transport:
    """Reads the object that the caller passed. `anext` returns its next piece, and `aclose` closes it at any time."""

    def __init__(self, origin: object, *, may_be_read: bool = False) -> None:
        """With `may_be_read`, no warning is logged for a response that was read to its end."""
        self._iterator: AsyncIterator[Any] | Iterator[Any]
        self.response, self._in_bytes = _response(origin, may_be_read)
        if self._in_bytes:
            self._iterator = aiter(self.response.aiter_bytes())
        elif isinstance(origin, AsyncIterable):
            self._iterator = aiter(origin)
        elif isinstance(origin, bytes | bytearray | memoryview | str):  # one piece, although it is iterable
            self._iterator = iter((origin,))
        elif isinstance(origin, Iterable) and not (isinstance(origin, Mapping) or hasattr(origin, "model_dump")):
            self._iterator = iter(origin)
        else:
            raise UnreadableSource(_advice(origin))
        self._started = False
        self._first: bytes | None = None  # the first chunk, if it was read ahead to detect a JSON document
        self._body = bytearray()

    @property
    def ends_when_cancelled(self) -> bool:
        """Whether the cancellation of a read ends the stream. It does if an asynchronous generator yields the data."""
        return isinstance(self._iterator, AsyncGenerator)

    @property
    def content_type(self) -> str:
        """The `Content-Type` of the response with its parameters, or an empty string."""
        headers = getattr(self.response, "headers", None)
        declared = headers.get("content-type") if isinstance(headers, Mapping) else None
        return declared.strip() if isinstance(declared, str) else ""

    @property
    def read(self) -> Callable[[], Awaitable[Any]]:
        """The function that reads each piece after the first. An asynchronous iterator provides it as `__anext__`."""
        return self._iterator.__anext__ if isinstance(self._iterator, AsyncIterator) else self.__anext__

    @property
    def url(self) -> str | None:
        """The host and path of the response's URL, or None."""
        return url_of(self.response)

    @property
    def host(self) -> str | None:
        """The host of the response's URL, or None."""
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

    async def refusal(self, endpoint: str) -> SourceError | None:
        """Return an error if the response is an HTTP error, or if its type and its first byte show one JSON document.

        Returns None for a stream. After that, all bytes of the stream can still be read. `endpoint` is the usual path
        of requests.
        """
        if not self._in_bytes:
            return None
        status = getattr(self.response, "status_code", None)
        failed = isinstance(status, int) and not 200 <= status < 300
        if not (failed or (_is_json(self.content_type) and await self._read_first_byte() in (b"{", b"["))):
            return None
        with contextlib.suppress(Exception):  # an incomplete body is also useful
            while len(self._body) < MAX_BODY:
                self._body += await anext(self)
        try:
            value = decode(bytes(self._body[:MAX_BODY]))
        except ValueError:
            value = None
        if failed:
            error = read_fault(value, _PHRASES.get(status or 0, f"HTTP status {status}"))
            if error.message in ("Not Found", "File Not Found", "Method Not Allowed"):
                error = msgspec.structs.replace(error, message=f"{error.message}; {check_url(endpoint)}")
        else:
            whole = value[0] if isinstance(value, list) and value else value  # Gemini sends one array
            advice = (text for key, text in _ADVICE.items() if isinstance(whole, dict) and key in whole)
            error = read_fault(value, _NO_STREAM + next(advice, ""))
            status = error.status
        return msgspec.structs.replace(error, status=status, url=url_of(self.response))

    async def aclose(self) -> None:
        """Close the iterator and the response, even during a read. Exceptions that they raise are suppressed."""
        iterator, response = self._iterator, self.response
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
        """Return the first byte after white space. It shows whether a response declared as JSON is an event stream."""
        head = b""
        try:
            while not head.strip() and len(head) < _MAX_HEAD:
                head += await anext(self)
        except StopAsyncIteration:
            return b"{"  # an empty response is handled as a JSON document
        finally:
            self._first = head
        return head.lstrip()[:1]


def check_url(endpoint: str) -> str:
    """Return advice for a wrong URL of a provider. `endpoint` is the usual path of requests, or empty."""
    return f"check the URL: its path is `{endpoint}` for most servers" if endpoint else "check the URL"


def _advice(origin: object) -> str:
    """Return an error message for an object that cannot be read, with advice for the caller."""
    problem = f"a source needs a response, a stream of an SDK or an iterable of chunks, got {type(origin).__name__}"
    if inspect.isawaitable(origin):
        if inspect.iscoroutine(origin):
            origin.close()  # prevents Python's warning that the coroutine was never awaited
        return f"{problem}: await it first"
    if hasattr(origin, "__aenter__"):
        return f"{problem}: enter it first, and pass the result: `async with … as response:`"
    if isinstance(origin, Mapping) or hasattr(origin, "model_dump"):
        return f"{type(origin).__name__} is a whole answer and not a stream: request a stream with `stream=True`"
    return problem


async def unwind(iterator: AsyncIterator[Any]) -> None:
    """Read the iterator of a closed response to its end, so that its inner generators also end.

    HTTP clients nest asynchronous generators, and `aclose` ends only the outermost generator. trio warns if the garbage
    collector ends the inner generators. The reads run in a cancelled scope, so that they never wait.
    """
    with anyio.CancelScope() as scope, contextlib.suppress(Exception):
        scope.cancel()
        for _ in range(_MAX_BUFFERED):
            await anext(iterator)


def _response(origin: object, may_be_read: bool) -> tuple[Any, bool]:
    """Return the response and whether to read its bytes.

    The response is `origin` or its `response` attribute, or None if neither has `aiter_bytes()`.
    """
    for candidate in (origin, getattr(origin, "response", None)):
        if callable(getattr(candidate, "aiter_bytes", None)):
            has_objects = candidate is not origin and isinstance(origin, AsyncIterable | Iterable)
            stream = getattr(candidate, "stream", None)  # httpx sets it for synchronous and asynchronous clients
            synchronous = isinstance(stream, Iterable) and not isinstance(stream, AsyncIterable)
            if has_objects and (synchronous or getattr(candidate, "is_stream_consumed", False) is True):
                return candidate, False
            if synchronous:
                raise UnreadableSource("this response is synchronous; pass the response of an asynchronous client")
            if getattr(candidate, "is_stream_consumed", False) is True and not may_be_read:
                log.warning("response_read_before", advice="use `client.stream(…)`: this response was read to its end")
            return candidate, True
    return None, False


def _is_json(declared: str) -> bool:
    """Return whether a `Content-Type` declares one JSON document. NDJSON and similar types are streams."""
    media = declared.partition(";")[0].strip().lower()
    return media in ("application/json", "text/json", "application/problem+json")
