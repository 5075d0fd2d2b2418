"""Record a provider's stream while it is read: one stream with `record`, or all exchanges of an HTTP client.

Each read is one chunk. The recording has the same bytes with the same cuts, except that keys are overwritten.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self, TypedDict, Unpack

from streamtools.recording.exchanges import DETECT
from streamtools.recording.format import EndKind, ExchangeHead, RecordedRequest, RecordedResponse
from streamtools.recording.redaction import credentials_in, describe_request, describe_response
from streamtools.recording.scrubbing import Secret, know
from streamtools.recording.writer import RecordingTarget, RecordingWriter, create_private_file

Edit = Callable[[ExchangeHead], ExchangeHead]
"""Takes the head of an exchange, and returns the head to write."""


class RecordOptions(TypedDict, total=False):
    """How exchanges are recorded; see `RecordingTransport`."""

    source: str
    redact: Iterable[Secret]
    edit: Edit | None
    clock: Callable[[], float]
    record_body: bool


def record(stream: Any, target: RecordingTarget, **options: Unpack[RecordOptions]) -> RecordedStream:
    """Return a stream with the same bytes and cuts as `stream`, which are recorded while they are read.

    `stream` is a response of httpx or httpx2, an object with `aiter_bytes()` or with such a `response`, or an
    asynchronous iterable of bytes. The result has `aiter_bytes()`, too, and is a source of `ToolStream`. The options
    are those of `RecordingTransport`. Times count from this call. If the result is closed before its end, the recording
    ends with `left`.
    """
    return RecordedStream(stream, ExchangeFile(target, **options))


class RecordedBytes:
    """Iterates over `pieces`, and records each piece. Closing it closes the `resources`."""

    def __init__(
        self, pieces: AsyncIterator[bytes] | Iterator[bytes], exchange: ExchangeRecorder, resources: Sequence[Any]
    ) -> None:
        self._pieces: Any = pieces
        self._exchange = exchange
        self._resources = resources

    def __iter__(self) -> Self:
        return self

    __aiter__ = __iter__

    async def __anext__(self) -> bytes:
        try:
            return self._record(await anext(self._pieces))
        except Exception as error:
            self._end(error)
            raise

    def __next__(self) -> bytes:
        try:
            return self._record(next(self._pieces))
        except Exception as error:
            self._end(error)
            raise

    async def aclose(self) -> None:
        """Close the stream and the recording. Can be repeated."""
        try:
            for resource in self._resources:
                if hasattr(resource, "aclose"):
                    await resource.aclose()
        finally:
            self._end()

    def close(self) -> None:
        """Close a blocking response and the recording. Can be repeated."""
        try:
            for resource in self._resources:
                resource.close()
        finally:
            self._end()

    def _record(self, data: bytes) -> bytes:
        self._exchange.chunk(bytes(memoryview(data)))  # raises TypeError for anything but bytes
        return data

    def _end(self, error: Exception | None = None) -> None:
        """Record the end: the stream was closed, was complete, or raised `error`."""
        if error is None:
            self._exchange.end("left")
        elif isinstance(error, StopIteration | StopAsyncIteration):
            self._exchange.end("end")
        else:
            self._exchange.fail(error)


class RecordedStream(RecordedBytes):
    """The result of `record`, with the status and headers of a response."""

    def __init__(self, stream: Any, file: ExchangeFile) -> None:
        response = _response_of(stream)
        self.status_code: int | None = getattr(response, "status_code", None)
        self.headers: Any = getattr(response, "headers", None)
        self._file = file
        stream = response if response is not None else stream
        pieces = aiter(stream if response is None else response.aiter_bytes())
        super().__init__(pieces, _begin_exchange(file, response), [pieces, stream])

    @property
    def fault(self) -> OSError | None:
        """Why the recording breaks off, if it does. A file that cannot be written does not stop the stream."""
        return self._file.fault

    def aiter_bytes(self) -> Self:
        """Return the bytes. There can be only one reader."""
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def _end(self, error: Exception | None = None) -> None:
        super()._end(error)
        self._file.close()


def _response_of(stream: Any) -> Any:
    """Return the response that `stream` is or has, or None."""
    for candidate in (stream, getattr(stream, "response", None)):
        if callable(getattr(candidate, "aiter_bytes", None)):
            return candidate
    return None


def _begin_exchange(file: ExchangeFile, response: Any) -> ExchangeRecorder:
    try:
        request = response.request
        head = str(request.method), str(request.url), header_items(request.headers)
    except (AttributeError, RuntimeError):  # RuntimeError: httpx, for a response without a request
        exchange = file.begin(None)
    else:
        content = b""
        with contextlib.suppress(AttributeError, RuntimeError):  # RuntimeError: httpx, for a streamed body
            content = bytes(request.content)
        exchange = file.begin_request(*head, content)
    status, headers = getattr(response, "status_code", None), getattr(response, "headers", None)
    exchange.set_response(
        status if isinstance(status, int) else None, header_items(headers) if headers is not None else []
    )
    return exchange


@dataclass(eq=False, repr=False)  # a repr would show the secrets
class ExchangeFile:
    """A file of exchanges in the order of their requests. Thread-safe.

    The first exchange that has not ended is written while it continues. Later exchanges are buffered until then. A path
    is overwritten, a file object is left open. A file that cannot be written stops the recording, not the streams:
    `fault` is then the error. Raises OSError for a path that cannot be opened, ValueError for an invalid secret.
    """

    target: RecordingTarget
    source: str = DETECT
    redact: Iterable[Secret] = ()
    edit: Edit | None = None
    clock: Callable[[], float] = time.perf_counter
    record_body: bool = False

    def __post_init__(self) -> None:
        self.redact = list(self.redact)
        know(self.redact)  # raises for an invalid secret, before the file is emptied
        self.fault: OSError | None = None
        self.lock = threading.RLock()
        self._owns_file = isinstance(self.target, str | os.PathLike)
        self._file = create_private_file(self.target) if isinstance(self.target, str | os.PathLike) else self.target
        self._unwritten: deque[ExchangeRecorder] = deque()

    def begin_request(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], content: bytes
    ) -> ExchangeRecorder:
        """Return an exchange that begins now. The credentials of the request are overwritten in it."""
        request = describe_request(method, url, headers, content, redact=self.redact, record_body=self.record_body)
        return self.begin(request, credentials_in(headers, url))

    def begin(self, request: RecordedRequest | None, credentials: Iterable[str] = ()) -> ExchangeRecorder:
        """Return an exchange that begins now. `credentials` are overwritten in it."""
        with self.lock:
            exchange = ExchangeRecorder(self, request, [*self.redact, *credentials])
            self._unwritten.append(exchange)
            return exchange

    def flush(self) -> None:
        """Write the new lines of the first exchange. If it has ended, continue with the next."""
        while self._unwritten:
            exchange = self._unwritten[0]
            try:
                if self.fault is None and (lines := exchange.take_lines()):
                    self._file.write(lines)
                    self._file.flush()
            except OSError as error:
                self.fault = error
            if not exchange.ended:
                return
            self._unwritten.popleft()

    def close(self) -> None:
        """Close a file that was opened here. Can be repeated."""
        if self._owns_file:
            self._file.close()


class ExchangeRecorder:
    """One exchange, as the lines of a recording. Times count from its creation."""

    def __init__(self, file: ExchangeFile, request: RecordedRequest | None, secrets: list[Secret]) -> None:
        self._file = file
        self._request = request
        self.secrets = secrets
        self._sent_at = file.clock()
        self._recorded = datetime.now(UTC).isoformat(timespec="seconds")
        self._lines = io.BytesIO()
        self._writer: RecordingWriter | None = None
        self.ended = False

    def set_response(self, status: int | None, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Write the head. The cookies of the response are overwritten in its body, too."""
        with self._file.lock:
            self.secrets += credentials_in(headers)
            self._open_writer(None if status is None else describe_response(status, headers, redact=self.secrets))
            self._file.flush()

    def chunk(self, data: bytes) -> None:
        """Write the bytes of one read. After the end, nothing is written: an HTTP client may drain a closed
        response."""
        with self._file.lock:
            if not self.ended:
                assert self._writer is not None
                self._writer.chunk(data, self._now())
                self._file.flush()

    def end(self, kind: EndKind, error: str = "") -> None:
        """Write the end, once."""
        with self._file.lock:
            if not self.ended:
                self.ended = True
                writer = self._writer or self._open_writer(None)
                writer.end(kind, self._now(), error)
                self._file.flush()

    def fail(self, error: BaseException) -> None:
        """Write the end after an exception. A cancelled reader has left."""
        if isinstance(error, Exception):
            self.end("timeout" if is_timeout(error) else "reset", type(error).__name__)
        else:
            self.end("left")

    def take_lines(self) -> bytes:
        """Return the lines that have not been taken."""
        lines = self._lines.getvalue()
        self._lines.truncate(self._lines.seek(0))
        return lines

    def _open_writer(self, response: RecordedResponse | None) -> RecordingWriter:
        file = self._file
        head = ExchangeHead(source=file.source, recorded=self._recorded, request=self._request, response=response)
        if file.edit is not None:
            head = file.edit(head)
        self._writer = RecordingWriter(self._lines, head, redact=self.secrets)
        return self._writer

    def _now(self) -> float:
        return max(0.0, (self._file.clock() - self._sent_at) * 1000)


def is_timeout(error: BaseException) -> bool:
    """Return whether an exception of Python, httpx, httpx2 or httpcore is a timeout."""
    return isinstance(error, TimeoutError) or any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__)


def header_items(headers: Any) -> list[tuple[str, str]]:
    """Return headers as pairs, with repeated headers if the object keeps them."""
    return list(headers.multi_items() if hasattr(headers, "multi_items") else headers.items())
