"""Records a provider's stream while it is read: one stream with `record`, or all exchanges of an HTTP client.

Each read is recorded as one chunk. The recording has the same bytes in the same chunks, but keys are overwritten.
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

from streamtools.recording.format import EndKind, ExchangeHead, RecordedRequest, RecordedResponse
from streamtools.recording.reader import DETECT
from streamtools.recording.redaction import credentials_in, describe_request, describe_response
from streamtools.recording.scrubbing import Secret, encode_secrets
from streamtools.recording.writer import RecordingTarget, RecordingWriter, create_private_file

Edit = Callable[[ExchangeHead], ExchangeHead]
"""A function that receives the head of an exchange, and returns the head to write."""


class RecordOptions(TypedDict, total=False):
    """The options for recording, as keywords."""

    source: str
    """The wire format of the responses. By default, it is detected during a replay."""
    redact: Iterable[Secret]
    """Secrets to overwrite, in addition to keys of known formats and the credentials of each request."""
    edit: Edit | None
    clock: Callable[[], float]
    """A function that returns the time in seconds."""
    record_body: bool
    """True if request bodies are recorded. The default is False."""


def record(stream: Any, target: RecordingTarget, **options: Unpack[RecordOptions]) -> RecordedStream:
    """Return a stream with the same chunks as `stream`. Reading it records the chunks.

    `stream` is a response of httpx or httpx2, another object with `aiter_bytes()`, or an asynchronous iterable of
    bytes. It may also be an object whose attribute `response` has `aiter_bytes()`, such as the stream of an SDK. Pass
    the result to `streamtools.sources`; it has `aiter_bytes()`, too. `RecordOptions` describes the options. The
    recorded times start at this call. If the result is closed before its end, the recording ends with `left`.
    """
    return RecordedStream(stream, ExchangeFile(target, **options))


class RecordedBytes:
    """Iterates over the chunks `pieces` and records each chunk. Closing it closes the objects in `resources`."""

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
        self._exchange.chunk(bytes(memoryview(data)))  # raises TypeError if the chunk is not bytes
        return data

    def _end(self, error: Exception | None = None) -> None:
        """Record the end of the stream. `error` is the exception of the read. None means that the stream was closed."""
        if error is None:
            self._exchange.end("left")
        elif isinstance(error, StopIteration | StopAsyncIteration):
            self._exchange.end("end")
        else:
            self._exchange.fail(error)


class RecordedStream(RecordedBytes):
    """The result of `record`. It has the status and headers of the response, if there is one."""

    def __init__(self, stream: Any, file: ExchangeFile) -> None:
        response = _response_of(stream)
        self.status_code: int | None = getattr(response, "status_code", None)
        self.headers: Any = getattr(response, "headers", None)
        self._file = file
        stream = response if response is not None else stream
        pieces = aiter(stream if response is None else response.aiter_bytes())
        super().__init__(pieces, _begin_exchange(file, response), [pieces, stream])

    @property
    def write_error(self) -> OSError | None:
        """The error that stopped the recording. None if the file could be written. The stream continues in any case."""
        return self._file.write_error

    def aiter_bytes(self) -> Self:
        """Return the iterator of the bytes, which is this object. Only one reader can use it."""
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def _end(self, error: Exception | None = None) -> None:
        super()._end(error)
        self._file.close()


def _response_of(stream: Any) -> Any:
    """Return `stream` or its attribute `response`, if that has `aiter_bytes()`. Returns None otherwise."""
    for candidate in (stream, getattr(stream, "response", None)):
        if callable(getattr(candidate, "aiter_bytes", None)):
            return candidate
    return None


def _begin_exchange(file: ExchangeFile, response: Any) -> ExchangeRecorder:
    """Start to record an exchange. Its head holds the request, status and headers of `response` that are known."""
    try:
        request = response.request
        start = str(request.method), str(request.url), header_items(request.headers)
    except (AttributeError, RuntimeError):  # httpx raises RuntimeError for a response without a request
        exchange = file.begin(None)
    else:
        content = b""
        with contextlib.suppress(AttributeError, RuntimeError):  # httpx raises RuntimeError for a streamed body
            content = bytes(request.content)
        exchange = file.begin_request(*start, content)
    status, headers = getattr(response, "status_code", None), getattr(response, "headers", None)
    exchange.set_response(
        status if isinstance(status, int) else None, header_items(headers) if headers is not None else []
    )
    return exchange


@dataclass(eq=False, repr=False)  # without a repr, because it would show the secrets
class ExchangeFile:
    """A file of exchanges in the order of their requests. Thread-safe.

    The oldest open exchange is written while it is read. Later exchanges are buffered until it has ended. If `target`
    is a path, the file is overwritten. A file object is not closed. If the file cannot be written, the recording stops
    and `write_error` is the error, but the streams continue.

    Raises OSError for a path that cannot be opened, and ValueError for an invalid secret.
    """

    target: RecordingTarget
    source: str = DETECT
    redact: Iterable[Secret] = ()
    edit: Edit | None = None
    clock: Callable[[], float] = time.perf_counter
    record_body: bool = False

    def __post_init__(self) -> None:
        self.redact = list(self.redact)
        encode_secrets(self.redact)  # raises for an invalid secret, before the file is emptied
        self.write_error: OSError | None = None
        self.lock = threading.RLock()
        self._owns_file = isinstance(self.target, str | os.PathLike)
        self._file = create_private_file(self.target) if isinstance(self.target, str | os.PathLike) else self.target
        self._unwritten: deque[ExchangeRecorder] = deque()

    def begin_request(
        self, method: str, url: str, headers: Sequence[tuple[str, str]], content: bytes
    ) -> ExchangeRecorder:
        """Start to record an exchange with this request. The credentials of the request are overwritten."""
        request = describe_request(method, url, headers, content, redact=self.redact, record_body=self.record_body)
        return self.begin(request, credentials_in(headers, url))

    def begin(self, request: RecordedRequest | None, credentials: Iterable[str] = ()) -> ExchangeRecorder:
        """Start to record an exchange. `request` is redacted, or None if unknown. `credentials` are overwritten."""
        with self.lock:
            exchange = ExchangeRecorder(self, request, [*self.redact, *credentials])
            self._unwritten.append(exchange)
            return exchange

    def flush(self) -> None:
        """Write the new lines of the oldest exchange. If it has ended, continue with the next exchange."""
        while self._unwritten:
            exchange = self._unwritten[0]
            try:
                if self.write_error is None and (lines := exchange.take_lines()):
                    self._file.write(lines)
                    self._file.flush()
            except OSError as error:
                self.write_error = error
            if not exchange.ended:
                return
            self._unwritten.popleft()

    def close(self) -> None:
        """If the target is a path, close the file. Can be repeated."""
        if self._owns_file:
            self._file.close()


class ExchangeRecorder:
    """Converts one exchange to lines of a recording. The recorded times start when this object is created."""

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
        """Write the head. In the body, the credentials in `headers`, such as cookies, are then also overwritten.

        With `status=None`, the head contains no response.
        """
        with self._file.lock:
            self.secrets += credentials_in(headers)
            self._open_writer(None if status is None else describe_response(status, headers, redact=self.secrets))
            self._file.flush()

    def chunk(self, data: bytes) -> None:
        """Write the bytes of one read.

        After `end`, bytes are ignored, because a client may read a closed response to its end.
        """
        with self._file.lock:
            if not self.ended:
                assert self._writer is not None
                self._writer.chunk(data, self._now())
                self._file.flush()

    def end(self, kind: EndKind, error: str = "") -> None:
        """Write the end line. Further calls do nothing."""
        with self._file.lock:
            if not self.ended:
                self.ended = True
                writer = self._writer or self._open_writer(None)
                writer.end(kind, self._now(), error)
                self._file.flush()

    def fail(self, error: BaseException) -> None:
        """Write the end line for an exception. A cancellation is recorded as `left`."""
        if isinstance(error, Exception):
            self.end("timeout" if is_timeout(error) else "reset", type(error).__name__)
        else:
            self.end("left")

    def take_lines(self) -> bytes:
        """Return the lines that were written since the last call."""
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
    """Return True for a timeout exception of Python, httpx, httpx2 or httpcore."""
    return isinstance(error, TimeoutError) or any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__)


def header_items(headers: Any) -> list[tuple[str, str]]:
    """Return headers as pairs of name and value. Repeated headers are returned if the object keeps them."""
    return list(headers.multi_items() if hasattr(headers, "multi_items") else headers.items())
