"""Record any stream of bytes on the way to whoever reads it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import anyio.lowlevel

from streamtools.recording.captures import DETECT
from streamtools.recording.clients import items_of
from streamtools.recording.credentials import find_credentials
from streamtools.recording.exchange_file import Edit, Entry, ExchangeFile, Target
from streamtools.recording.format import Request, Response
from streamtools.recording.redact import describe_request, describe_response
from streamtools.recording.scrubbing import Secret


def record(
    stream: Any,
    target: Target,
    *,
    source: str = DETECT,
    redact: Iterable[Secret] = (),
    edit: Edit | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RecordedStream:
    """Return `stream` once more, with the same bytes in the same pieces, which are recorded as they are read.

    `stream` is a response of httpx or httpx2, or whatever has `aiter_bytes()` or such a `response`, or an iterable of
    bytes, asynchronous or not. What comes back can be iterated over in the same way, is a source of `ToolStream`, and
    has `aiter_bytes()` itself. The parameters are those of `RecordingTransport`; times count from this call. Closed
    before its end, by `aclose` or by its `with` block, it is recorded as one that was left.
    """
    return RecordedStream(stream, ExchangeFile(target, source=source, redact=redact, edit=edit, clock=clock))


class RecordedStream:
    """What `record` returns: an iterator of bytes, asynchronous or not, with the status and headers of a response."""

    def __init__(self, origin: Any, file: ExchangeFile) -> None:
        response = _response(origin)
        self.status_code: int | None = getattr(response, "status_code", None)
        self.headers: Any = getattr(response, "headers", None)
        self._file = file
        self._origin = response if response is not None else origin
        self._iterator = _iterator(self._origin)
        self._exchange = _begin(file, response)
        self._closed = False

    @property
    def fault(self) -> OSError | None:
        """Why the recording breaks off, if it does: a file that cannot be written stops no stream."""
        return self._file.fault

    def aiter_bytes(self) -> Self:
        """Return the bytes, for the only reader that there may be."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if isinstance(self._iterator, Iterator):
            await anyio.lowlevel.checkpoint()
            try:
                return next(self)
            except StopIteration:
                raise StopAsyncIteration from None
        try:
            return self._take(await anext(self._iterator))
        except StopAsyncIteration:
            self._end()
            raise
        except Exception as error:
            self._exchange.fail(error)
            self._file.close()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if not isinstance(self._iterator, Iterator):
            raise TypeError("this stream is asynchronous: iterate over it with `async for`")
        try:
            return self._take(next(self._iterator))
        except StopIteration:
            self._end()
            raise
        except Exception as error:
            self._exchange.fail(error)
            self._file.close()
            raise

    async def aclose(self) -> None:
        """Close the stream and the file. May be repeated."""
        try:
            for closing in (self._iterator, self._origin):
                if hasattr(closing, "aclose"):
                    await closing.aclose()
                elif isinstance(self._iterator, Iterator) and hasattr(closing, "close"):
                    closing.close()
        finally:
            self._leave()

    def close(self) -> None:
        """Close a stream that is not asynchronous, and the file. May be repeated."""
        try:
            for closing in (self._iterator, self._origin):
                if isinstance(self._iterator, Iterator) and hasattr(closing, "close"):
                    closing.close()
        finally:
            self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, data: bytes) -> bytes:
        self._exchange.chunk(bytes(memoryview(data)))  # which refuses what is not bytes
        return data

    def _end(self) -> None:
        self._exchange.end("end")
        self._file.close()

    def _leave(self) -> None:
        self._exchange.end("left")
        self._file.close()


def _response(origin: Any) -> Any:
    """Return the response that `origin` is or has, None if it is an iterable."""
    for candidate in (origin, getattr(origin, "response", None)):
        if callable(getattr(candidate, "aiter_bytes", None)) or callable(getattr(candidate, "iter_bytes", None)):
            return candidate
    return None


def _iterator(origin: Any) -> AsyncIterator[bytes] | Iterator[bytes]:
    stream = getattr(origin, "stream", None)  # of httpx, whose responses have the methods of both kinds
    blocking = isinstance(stream, Iterable) and not isinstance(stream, AsyncIterable)
    pieces: Any = origin
    if callable(getattr(origin, "aiter_bytes", None)) and not blocking:
        pieces = origin.aiter_bytes()
    elif callable(getattr(origin, "iter_bytes", None)):
        pieces = origin.iter_bytes()
    elif isinstance(origin, bytes | bytearray | memoryview):
        pieces = (bytes(origin),)
    iterator: AsyncIterator[bytes] | Iterator[bytes]
    iterator = aiter(pieces) if isinstance(pieces, AsyncIterable) else iter(pieces)
    return iterator


def _begin(file: ExchangeFile, response: Any) -> Entry:
    """Begin the exchange with what the response tells of itself and of its request."""
    asked, credentials = _request(response, file.redact)
    exchange = file.begin(asked, credentials)
    status, headers = getattr(response, "status_code", None), getattr(response, "headers", None)
    answer: Response | None = None
    if isinstance(status, int):
        pairs = items_of(headers) if headers is not None else []
        answer = describe_response(status, pairs, redact=exchange.secrets)
    exchange.answered(answer)
    return exchange


def _request(response: Any, redact: Iterable[Secret]) -> tuple[Request | None, list[str]]:
    try:
        request = response.request
        url, headers = str(request.url), items_of(request.headers)
        method = str(request.method)
    except (AttributeError, RuntimeError):  # of httpx, where a response was made by hand
        return None, []
    content = b""
    with contextlib.suppress(AttributeError, RuntimeError):  # of httpx, where the body was a stream
        content = bytes(request.content)
    return (
        describe_request(method, url, headers, content, redact=redact),
        find_credentials(url, headers, content),
    )
