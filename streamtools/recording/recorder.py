"""Record what a provider streams while it is read: one stream of bytes, or the exchanges of a client.

Each read is one chunk. The recording holds the same bytes, cut in the same places, but keys in a response are
overwritten in it.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self, TypedDict, Unpack

import anyio.lowlevel

from streamtools.recording.exchanges import DETECT
from streamtools.recording.file_writer import RecordingWriter, Target, open_anew
from streamtools.recording.format import EndKind, Head, Request, Response
from streamtools.recording.redact import credentials_of_headers, describe_response, read_request
from streamtools.recording.scrubbing import Scrubber, Secret

Edit = Callable[[Head], Head]
"""Takes the head of an exchange before it is written, and returns the head to write."""


class RecordOptions(TypedDict, total=False):
    """How exchanges are recorded; see `RecordingTransport`."""

    source: str
    redact: Iterable[Secret]
    edit: Edit | None
    clock: Callable[[], float]
    keep_unreadable: bool


def record(stream: Any, target: Target, **options: Unpack[RecordOptions]) -> RecordedStream:
    """Return `stream` once more, with the same bytes in the same pieces, which are recorded as they are read.

    `stream` is a response of httpx or httpx2, or whatever has `aiter_bytes()` or such a `response`, or an iterable of
    bytes, asynchronous or not. What comes back can be iterated over in the same way, is a source of `ToolStream`, and
    has `aiter_bytes()` itself. The parameters are those of `RecordingTransport`; times count from this call. Closed
    before its end, by `aclose` or by its `with` block, it is recorded as one that was left.
    """
    return RecordedStream(stream, ExchangeFile(target, **options))


class RecordedBytes:
    """The bytes of `pieces`, an iterator, asynchronous or not, each of which `exchange` records as it is read.

    Closed before its end, with what is `opened`, it was left.
    """

    def __init__(self, pieces: AsyncIterator[bytes] | Iterator[bytes], exchange: Entry, opened: Sequence[Any]) -> None:
        self._pieces = pieces
        self._exchange = exchange
        self._opened = opened

    def __iter__(self) -> Self:
        return self

    __aiter__ = __iter__

    async def __anext__(self) -> bytes:
        if isinstance(self._pieces, Iterator):
            await anyio.lowlevel.checkpoint()
            try:
                return next(self)
            except StopIteration:
                raise StopAsyncIteration from None
        try:
            return self._take(await anext(self._pieces))
        except Exception as error:
            self._over(error)
            raise

    def __next__(self) -> bytes:
        if not isinstance(self._pieces, Iterator):
            raise TypeError("this stream is asynchronous: iterate over it with `async for`")
        try:
            return self._take(next(self._pieces))
        except Exception as error:
            self._over(error)
            raise

    async def aclose(self) -> None:
        """Close the stream and the file. May be repeated."""
        try:
            for each in self._opened:
                if hasattr(each, "aclose"):
                    await each.aclose()
                elif isinstance(self._pieces, Iterator) and hasattr(each, "close"):
                    each.close()
        finally:
            self._over()

    def close(self) -> None:
        """Close a stream that is not asynchronous, and the file. May be repeated."""
        try:
            for each in self._opened:
                if isinstance(self._pieces, Iterator) and hasattr(each, "close"):
                    each.close()
        finally:
            self._over()

    def _take(self, data: bytes) -> bytes:
        self._exchange.chunk(bytes(memoryview(data)))  # which refuses what is not bytes
        return data

    def _over(self, error: Exception | None = None) -> None:
        """Write how the stream ends that raises this, or is closed."""
        if error is None:
            self._exchange.end("left")
        elif isinstance(error, StopIteration | StopAsyncIteration):
            self._exchange.end("end")
        else:
            self._exchange.fail(error)


class RecordedStream(RecordedBytes):
    """What `record` returns: an iterator of bytes, asynchronous or not, with the status and headers of a response."""

    def __init__(self, origin: Any, file: ExchangeFile) -> None:
        response = _response(origin)
        self.status_code: int | None = getattr(response, "status_code", None)
        self.headers: Any = getattr(response, "headers", None)
        self._file = file
        origin = response if response is not None else origin
        pieces = _iterator(origin)
        super().__init__(pieces, _begin(file, response), [pieces, origin])

    @property
    def fault(self) -> OSError | None:
        """Why the recording breaks off, if it does: a file that cannot be written stops no stream."""
        return self._file.fault

    def aiter_bytes(self) -> Self:
        """Return the bytes, for the only reader that there may be."""
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _over(self, error: Exception | None = None) -> None:
        super()._over(error)
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
    return aiter(pieces) if isinstance(pieces, AsyncIterable) else iter(pieces)


def _begin(file: ExchangeFile, response: Any) -> Entry:
    try:
        request = response.request
        asked = str(request.method), str(request.url), items_of(request.headers)
    except (AttributeError, RuntimeError):  # of httpx, where a response was made by hand
        exchange = file.begin(None)
    else:
        content = b""
        with contextlib.suppress(AttributeError, RuntimeError):  # of httpx, where the body was a stream
            content = bytes(request.content)
        exchange = file.ask(*asked, content)
    status, headers = getattr(response, "status_code", None), getattr(response, "headers", None)
    exchange.answered(status if isinstance(status, int) else None, items_of(headers) if headers is not None else [])
    return exchange


@dataclass(eq=False, repr=False)  # which would show what is redacted
class ExchangeFile:
    """Several exchanges in one file, in the order of their requests. Threads may write at the same time.

    The first that has not ended is written while it goes on; those begun later are kept in memory until their turn.
    A path is written anew, a file object is left open.
    A file that cannot be written stops the recording and nothing else: `fault` is then the error.

    Raises OSError for a path that cannot be opened, ValueError for a secret that cannot be looked for.
    """

    target: Target
    source: str = DETECT
    redact: Iterable[Secret] = ()
    edit: Edit | None = None
    clock: Callable[[], float] = time.perf_counter
    keep_unreadable: bool = False

    def __post_init__(self) -> None:
        self.redact = list(self.redact)
        Scrubber(self.redact)  # which refuses what it cannot look for, before a file is emptied
        self.fault: OSError | None = None
        self.lock = threading.RLock()
        self._owned = isinstance(self.target, str | os.PathLike)
        self._file = open_anew(self.target) if isinstance(self.target, str | os.PathLike) else self.target
        self._running: deque[Entry] = deque()

    def ask(self, method: str, url: str, headers: Sequence[tuple[str, str]], content: bytes) -> Entry:
        """Return an exchange that begins now with this request, whose credentials are overwritten in it, too."""
        return self.begin(*read_request(method, url, headers, content, self.redact, self.keep_unreadable))

    def begin(self, request: Request | None, credentials: Iterable[str] = ()) -> Entry:
        """Return an exchange that begins now. `credentials` are overwritten in it, too."""
        with self.lock:
            exchange = Entry(self, request, [*self.redact, *credentials])
            self._running.append(exchange)
            return exchange

    def write(self) -> None:
        """Write what is new of the first exchange, and go on to the next if it has ended."""
        while self._running:
            exchange = self._running[0]
            try:
                if self.fault is None and (lines := exchange.take()):
                    self._file.write(lines)
                    self._file.flush()
            except OSError as error:
                self.fault = error
            if not exchange.ended:
                return
            self._running.popleft()

    def close(self) -> None:
        """Close the file if it was opened here. May be repeated."""
        if self._owned:
            self._file.close()


class Entry:
    """One exchange as the lines of a recording. Times count from when it was made."""

    def __init__(self, exchanges: ExchangeFile, request: Request | None, secrets: list[Secret]) -> None:
        self._exchanges = exchanges
        self._request = request
        self.secrets = secrets
        self._sent = exchanges.clock()
        self._recorded = datetime.now(UTC).isoformat(timespec="seconds")
        self._lines = io.BytesIO()
        self._writer: RecordingWriter | None = None
        self.ended = False

    def answered(self, status: int | None, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Write the head, with that of the response, whose cookies are overwritten, too."""
        with self._exchanges.lock:
            self.secrets += credentials_of_headers(headers)
            self._begin(None if status is None else describe_response(status, headers, redact=self.secrets))
            self._exchanges.write()

    def chunk(self, data: bytes) -> None:
        """Write what one read gave. What an HTTP client still has of a response that was closed is none of it."""
        with self._exchanges.lock:
            if not self.ended:
                assert self._writer is not None
                self._writer.chunk(data, self._now())
                self._exchanges.write()

    def end(self, kind: EndKind, error: str = "") -> None:
        """Write how it ended, once."""
        with self._exchanges.lock:
            if not self.ended:
                self.ended = True
                writer = self._writer or self._begin(None)
                writer.end(kind, self._now(), error)
                self._exchanges.write()

    def fail(self, error: BaseException) -> None:
        """Write the end with the name of this exception; a reader that is cancelled has left."""
        if isinstance(error, Exception):
            self.end("timeout" if is_timeout(error) else "reset", type(error).__name__)
        else:
            self.end("left")

    def take(self) -> bytes:
        """Return the lines that have not been taken."""
        lines = self._lines.getvalue()
        self._lines.truncate(self._lines.seek(0))
        return lines

    def _begin(self, response: Response | None) -> RecordingWriter:
        exchanges = self._exchanges
        head = Head(source=exchanges.source, recorded=self._recorded, request=self._request, response=response)
        if exchanges.edit is not None:
            head = exchanges.edit(head)
        self._writer = RecordingWriter(
            self._lines, head, redact=self.secrets, keep_unreadable=exchanges.keep_unreadable
        )
        return self._writer

    def _now(self) -> float:
        return max(0.0, (self._exchanges.clock() - self._sent) * 1000)


def is_timeout(error: BaseException) -> bool:
    """Tell whether an exception of Python, or of httpx, httpx2 or httpcore, says that time ran out."""
    return isinstance(error, TimeoutError) or any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__)


def items_of(headers: Any) -> list[tuple[str, str]]:
    """Return headers as pairs, repeated ones too where that can be had."""
    return list(headers.multi_items() if hasattr(headers, "multi_items") else headers.items())
