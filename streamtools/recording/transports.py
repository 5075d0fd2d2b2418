"""Records streams while they are read, and answers the requests of a client from recordings.

`record` records one stream. The HTTP transports of this module record the responses for a client, or replay them:

    transport = RecordingTransport(httpx.AsyncHTTPTransport(), "chat.jsonl")  # and later ReplayTransport("chat.jsonl")
    async with httpx.AsyncClient(transport=transport) as client:
        ...

Each read is recorded as one chunk. The recording has the same bytes in the same chunks, but keys are overwritten.

The transports work with the asynchronous and blocking clients of httpx and httpx2, whose classes have the same names.
This module imports neither library. It creates responses, streams and exceptions with the library that created the
request.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from time import perf_counter
from types import ModuleType
from typing import Any, Self, TypedDict, TypeVar, Unpack

from streamtools.errors import Checked, RecordingError, UnrecordedRequest, check_word
from streamtools.logs import Logger
from streamtools.recording.files import (
    DETECT,
    OpenExchange,
    RecordedExchange,
    RecordingTarget,
    RecordingWriter,
    create_private_file,
    load_exchanges,
)
from streamtools.recording.format import EndKind, ExchangeHead, RecordedRequest, RecordedResponse
from streamtools.recording.matching import FIELDS, Match, describe, explain, make_matcher
from streamtools.recording.playback import Playback, PlaybackOptions, ReplayBytes, unreached_fault
from streamtools.recording.redaction import (
    credentials_in,
    describe_request,
    encode_secrets,
    keep_headers,
    redact_request,
    with_body,
)

log = Logger(__name__)


class RecordOptions(TypedDict, total=False):
    """The options for recording, as keywords."""

    source: str
    """The wire format of the responses. By default, it is detected during a replay."""
    redact: Iterable[str]
    """Secrets to overwrite, in addition to keys of known formats and the credentials of each request."""
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


class RecordedBytes(AsyncIterator[bytes], Iterator[bytes]):
    """Iterates over the chunks `pieces` and records each chunk. Closing it closes the objects in `resources`."""

    def __init__(
        self, pieces: AsyncIterator[bytes] | Iterator[bytes], exchange: ExchangeRecorder, resources: Sequence[Any]
    ) -> None:
        self._pieces: Any = pieces
        self._exchange = exchange
        self._resources = resources

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
        self._exchange.end(error)


class RecordedStream(RecordedBytes):
    """The result of `record`. It has the status and headers of the response, if there is one."""

    def __init__(self, stream: Any, file: ExchangeFile) -> None:
        candidates = (stream, getattr(stream, "response", None))
        response: Any = next((each for each in candidates if hasattr(each, "aiter_bytes")), None)
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


def _begin_exchange(file: ExchangeFile, response: Any) -> ExchangeRecorder:
    """Start to record an exchange. Its head holds the request, status and headers of `response` if they are known."""
    request, content = None, b""
    # httpx raises RuntimeError for a response without a request, and for the content of a streamed request.
    with contextlib.suppress(AttributeError, RuntimeError):
        request = response.request
        content = bytes(request.content)
    exchange = file.begin(request, content)
    status, headers = getattr(response, "status_code", None), getattr(response, "headers", None)
    exchange.set_response(
        status if isinstance(status, int) else None, header_items(headers) if headers is not None else []
    )
    return exchange


@dataclass(eq=False, repr=False)  # no repr, because a repr would show the secrets
class ExchangeFile:
    """A file of exchanges in the order of their requests. Thread-safe.

    The oldest open exchange is written while it is read. Later exchanges are buffered until the oldest exchange has
    ended. If `target` is a path, the file is overwritten. A file object is not closed. If a write raises OSError, the
    recording stops and `write_error` is the error, but the streams continue. If the file is closed before a stream, the
    next read of the stream raises ValueError.

    Raises OSError for a path that cannot be opened, and ValueError for an invalid secret.
    """

    target: RecordingTarget
    source: str = DETECT
    redact: Iterable[str] = ()
    record_body: bool = False

    def __post_init__(self) -> None:
        self.redact = list(self.redact)
        encode_secrets(self.redact)  # raises for an invalid secret, before the file is emptied
        self.write_error: OSError | None = None
        self.lock = threading.RLock()
        self._owns_file = isinstance(self.target, str | os.PathLike)
        self._file = create_private_file(self.target) if isinstance(self.target, str | os.PathLike) else self.target
        self._unwritten: deque[ExchangeRecorder] = deque()

    def begin(self, request: Any, content: bytes) -> ExchangeRecorder:
        """Start to record an exchange. Credentials of the request are overwritten. None means an unknown request."""
        recorded, secrets = None, [*self.redact]
        if request is not None:
            url, headers = str(request.url), header_items(request.headers)
            recorded = describe_request(request.method, url, headers, content, record_body=self.record_body)
            secrets += credentials_in(headers, url)
        with self.lock:
            exchange = ExchangeRecorder(self, recorded, secrets)
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
                log.warning("recording_stopped", error=type(error).__name__, reason=error.strerror)
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

    def __init__(self, file: ExchangeFile, request: RecordedRequest | None, secrets: list[str]) -> None:
        self._file = file
        self._request = request
        self.secrets = secrets
        self._sent_at = perf_counter()
        self._recorded = datetime.now(UTC).isoformat(timespec="seconds")
        self._lines = io.BytesIO()
        self._writer: RecordingWriter | None = None
        self.ended = False

    def set_response(self, status: int | None, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Write the head of the exchange. With `status=None`, it contains no response.

        Credentials in `headers`, such as cookies, become secrets that are overwritten in the body.
        """
        with self._file.lock:
            self.secrets += credentials_in(headers)
            response = None
            if status is not None:
                response = RecordedResponse(status=status, headers=keep_headers(headers))
            self._open_writer(response)
            self._file.flush()

    def chunk(self, data: bytes) -> None:
        """Write the bytes of one read.

        Bytes that a client reads after `end` are ignored.
        """
        with self._file.lock:
            if not self.ended:
                assert self._writer is not None
                self._writer.chunk(data, self._now())
                self._file.flush()

    def end(self, error: BaseException | None) -> None:
        """Write the end line. Further calls do nothing.

        `error` is the exception of the last read. None means that the client closed the response. This end is
        recorded as `left`. A cancellation is also recorded as `left`.
        """
        kind: EndKind = "left"
        if isinstance(error, StopIteration | StopAsyncIteration):
            kind = "end"
        elif isinstance(error, Exception):
            kind = "timeout" if is_timeout(error) else "reset"
        name = type(error).__name__ if kind in ("timeout", "reset") else ""
        with self._file.lock:
            if not self.ended:
                self.ended = True
                writer = self._writer or self._open_writer(None)
                writer.end(kind, self._now(), name)
                self._file.flush()

    def take_lines(self) -> bytes:
        """Return the lines that were written since the last call."""
        lines = self._lines.getvalue()
        self._lines.truncate(self._lines.seek(0))
        return lines

    def _open_writer(self, response: RecordedResponse | None) -> RecordingWriter:
        file = self._file
        head = ExchangeHead(source=file.source, recorded=self._recorded, request=self._request, response=response)
        self._writer = RecordingWriter(self._lines, head, redact=self.secrets)
        return self._writer

    def _now(self) -> float:
        return (perf_counter() - self._sent_at) * 1000


def is_timeout(error: BaseException) -> bool:
    """Return True for a timeout exception of Python, httpx, httpx2 or httpcore."""
    return isinstance(error, TimeoutError) or any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__)


def header_items(headers: Any) -> list[tuple[str, str]]:
    """Return headers as pairs of name and value. Repeated headers are returned if the object keeps them."""
    return list(headers.multi_items() if hasattr(headers, "multi_items") else headers.items())


# HTTP transports.

_Result = TypeVar("_Result")

_AnyBase: Any = object  # `Any`, so that type checkers accept the transports in clients of both libraries


class ClientTransport(Checked, _AnyBase):  # type: ignore[misc] # see above
    """A base class of transports for asynchronous and blocking clients of httpx and httpx2.

    Subclasses implement `_handle`. `inner` sends requests. If it is None, `_send` uses the default transport of the
    client's library. Closing this transport also closes the inner transport.
    """

    def __init__(self, inner: Any = None) -> None:
        self._inner = inner
        self._default: dict[bool, Any] = {}  # the default transport for blocking clients (True) and for others (False)

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        raise NotImplementedError

    async def _send(self, request: Any, *, blocking: bool) -> Any:
        """Send a request through the inner transport, and return its response.

        Raises TypeError if the transport belongs to another library than the client, or if only one of the two is
        asynchronous.
        """
        library, inner = library_of(request), self._inner
        needed, method = "AsyncHTTPTransport", "handle_async_request"
        if blocking:
            needed, method = "HTTPTransport", "handle_request"
        if inner is None:
            inner = self._default[blocking] = self._default.get(blocking) or getattr(library, needed)()
        if (other := library_of(inner)) not in (None, library):
            raise TypeError(
                f"The client belongs to {library.__name__}, but the transport inside {type(self).__name__} to "
                f"{other.__name__}. Pass {library.__name__}.{needed}()."
            )
        if not hasattr(inner, method):
            raise TypeError(f"{type(inner).__name__} has no {method}(). This client needs a {needed}.")
        response = getattr(inner, method)(request)
        return response if blocking else await response

    async def _close(self, *, blocking: bool) -> None:
        inner = self._inner or self._default.get(blocking)
        if inner is not None and blocking:
            inner.close()
        elif inner is not None:
            await inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        """Return the response to the request of an asynchronous client."""
        return await self._handle(request, blocking=False)

    def handle_request(self, request: Any) -> Any:
        """Return the response to the request of a blocking client."""
        return run_without_waiting(self._handle(request, blocking=True))

    async def aclose(self) -> None:
        """Close the transport of an asynchronous client."""
        await self._close(blocking=False)

    def close(self) -> None:
        """Close the transport of a blocking client."""
        run_without_waiting(self._close(blocking=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self.close()


def run_without_waiting(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine that never waits, because all its calls are blocking, and return its result."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _Result = end.value
        return result
    raise AssertionError("the coroutine has awaited something")


def library_of(value: object) -> Any:
    """Return the module (httpx or httpx2) that defines the class of `value`. Returns None for any other object."""
    modules = (sys.modules.get(kind.__module__.partition(".")[0]) for kind in type(value).__mro__)
    return next((module for module in modules if hasattr(module, "AsyncByteStream")), None)


@functools.cache
def stream_class(body: type, library: ModuleType) -> type:
    """Return a subclass of `body` that is also a stream class of `library`. The clients of `library` require this."""
    return type("Body", (body, library.AsyncByteStream, library.SyncByteStream), {})


class RecordingTransport(ClientTransport):
    """Sends requests through the transport `inner`, and records all exchanges in one file, in the order of requests.

    If `inner` is None, the default transport of the client's library is used.

    `target` is a path, which is overwritten, or a file object, which is not closed. `source` is the wire format of the
    responses. By default, the format is detected during a replay. Keys of known formats, the credentials of each
    request, and the secrets in `redact` are overwritten. Request bodies are recorded only with `record_body=True`.
    A request that gets no response is also recorded.

    If a write to the file raises OSError, the recording stops, and `write_error` holds the error. The client still gets
    its responses. Close the responses before the transport: reading a response after that may raise ValueError.
    """

    def __init__(self, inner: Any, target: RecordingTarget, **options: Unpack[RecordOptions]) -> None:
        """Open the target. Raises OSError for a path that cannot be opened, and ValueError for an invalid secret."""
        super().__init__(inner)
        self._file = ExchangeFile(target, **options)

    @property
    def write_error(self) -> OSError | None:
        """The error that stopped the recording. None if the file could be written."""
        return self._file.write_error

    async def _close(self, *, blocking: bool) -> None:
        try:
            await super()._close(blocking=blocking)
        finally:
            self._file.close()

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        content = request.read() if blocking else await request.aread()
        exchange = self._file.begin(request, content)
        try:
            response = await self._send(request, blocking=blocking)
        except BaseException as error:
            exchange.end(error)
            raise
        response.request = request
        headers = header_items(response.headers)
        exchange.set_response(response.status_code, headers)
        if "content-encoding" in response.headers:  # the decoded bytes are recorded, and the client gets them, too
            headers = [item for item in headers if item[0].lower() not in ("content-encoding", "content-length")]
        library = library_of(request)
        pieces = response.iter_bytes() if blocking else response.aiter_bytes()
        body = stream_class(RecordedBytes, library)(pieces, exchange, [response])
        return library.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


class ReplayTransport(ClientTransport):
    """Answers each request with the first unplayed exchange that matches the request.

    `path` is a recording with one or more exchanges, or a raw capture. `match` lists the fields that must be equal:
    any of "method", "url" and "body". It may also be a function `(sent, recorded) -> bool` of two requests. If a body
    was not recorded, its size is compared. An exchange without a recorded request matches any request. `redact` holds
    the secrets that were passed to the recorder. A request without a match raises `UnrecordedRequest`. With
    `repeat=True`, the matching exchange that was played last is played again if no new exchange matches.

    The response has the recorded status, headers and chunks. If the recorded connection broke or timed out, the replay
    raises an exception after the same bytes: the recorded exception if it is a transport error of the client's library,
    otherwise the library's `ReadError` or `ReadTimeout`. If the recorded client closed the response, no more bytes
    arrive after that point. A client that continues to read then waits until its timeout expires.

    `options` are the options of `Playback`, and apply to every exchange that has a response. To an exchange without a
    response, only `speed` and `read_timeout` apply. `read_timeout` defaults to the read timeout of the request. With
    `exchange`, the number of an exchange, only its response is cut or has the fault.

    HTTP clients and SDKs may hide the errors of this transport. So call `check` at the end of a test. It raises the
    first of these errors again. The constructor raises RecordingError for recordings that cannot be read, and
    ValueError for invalid options.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        match: Match = FIELDS,
        repeat: bool = False,
        redact: Iterable[str] = (),
        exchange: int | None = None,
        **options: Unpack[PlaybackOptions],
    ) -> None:
        self._path = os.fspath(path)
        self._matches = make_matcher(match)
        self._repeat = repeat
        self._options = options
        Playback(**options)
        self._redact = list(redact)
        self._exchanges = load_exchanges(path, self._redact)
        check_word("exchange", exchange, (None, *(each.number for each in self._exchanges)))
        self._exchange = exchange
        self._played: list[RecordedExchange] = []
        self._lock = Lock()  # several threads may use one blocking client
        # The bodies that are still open, and the bodies with an injected fault.
        self._bodies: list[tuple[RecordedExchange, ReplayBytes]] = []
        self.errors: list[RecordingError] = []
        """The errors of requests without a recording, and of recordings that could not be read to their end."""
        self.advice = ""
        """The last line of the message for a request that is not recorded."""

    @property
    def unplayed(self) -> list[RecordedExchange]:
        """The exchanges that have not been played, in recorded order."""
        return [exchange for exchange in self._exchanges if exchange not in self._played]

    @property
    def missed(self) -> list[str]:
        """One message for each injected fault that was not reached. Raises RecordingError for an invalid recording.

        A stall is not reported if the reader closed the response before it.
        """
        messages: list[str] = []
        for exchange, body in self._bodies:
            if (missed := body.missed()) is None:
                continue
            fault, offset = missed
            with exchange.open() as opened:
                size = sum(len(chunk.data) for chunk in opened)
            if offset > size:
                messages.append(unreached_fault(str(exchange), fault, offset, size))
            elif fault != "stall_after":  # a stall does not affect a reader that stopped before it
                messages.append(f"{exchange}: {fault}={offset} was not reached: the reader closed the response earlier")
        return messages

    def check(self) -> None:
        """Raise the first error in `errors`, if there is one.

        Otherwise raise RecordingError if an injected fault was not reached, or if an exchange was not requested.
        """
        if self.errors:
            raise self.errors[0]
        if missed := self.missed:
            raise RecordingError(missed[0])
        if unplayed := self.unplayed:
            names = "; ".join(f"{exchange}, {describe(exchange.request)}" for exchange in unplayed)
            raise RecordingError(f"recorded but not requested: {names}")

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        exchange, body = self._play(request, request.read() if blocking else await request.aread())
        if exchange.unanswered and blocking:
            next(body)
        elif exchange.unanswered:
            await anext(body)
        return body.response()

    async def _close(self, *, blocking: bool) -> None:
        for _, body in self._bodies:
            body.close()

    def _play(self, request: Any, content: bytes) -> tuple[RecordedExchange, _ReplayedBody]:
        url, headers = str(request.url), header_items(request.headers)
        secrets = encode_secrets([*self._redact, *credentials_in(headers, url)])
        sent = redact_request(with_body(describe_request(request.method, url, headers, content), content), secrets)
        with self._lock:
            exchange = self._choose(sent)
        timeout = request.extensions.get("timeout", {}).get("read")
        options: PlaybackOptions = {"read_timeout": timeout, **self._options}
        if exchange.unanswered or self._exchange not in (None, exchange.number):
            # Options that change the bytes of a response do not apply.
            timeout = options.get("read_timeout") if exchange.unanswered in (None, "left") else None
            options = {"speed": options.get("speed", 0), "read_timeout": timeout}
        opened = exchange.open()
        try:
            library = library_of(request)
            body: _ReplayedBody = stream_class(_ReplayedBody, library)(opened, library, self.errors, options)
        except BaseException:
            opened.close()
            raise
        kept = [each for each in self._bodies if not each[1].closed or each[1].playback.fault is not None]
        self._bodies = [*kept, (exchange, body)]
        return exchange, body

    def _choose(self, sent: RecordedRequest) -> RecordedExchange:
        candidates: list[RecordedExchange] = [*self.unplayed, *(reversed(self._played) if self._repeat else ())]
        for exchange in candidates:
            if exchange.request is None or self._matches(sent, exchange.request):
                self._played.append(exchange)
                return exchange
        explanation = explain(sent, self.unplayed, self._played)
        explanation = explanation or f": all of its {len(self._exchanges)} exchanges have been played"
        message = f"{describe(sent)} is not recorded in {self._path}{explanation}\n{self.advice}"
        error = UnrecordedRequest(message.strip())
        self.errors.append(error)
        raise error


class _ReplayedBody(ReplayBytes):
    """The body of an open exchange for a client of `library`. It raises the exceptions of this library."""

    _waits_after_reader_left = True

    def __init__(
        self, opened: OpenExchange, library: ModuleType, errors: list[RecordingError], options: PlaybackOptions
    ) -> None:
        super().__init__(opened, **options)
        self._library = library
        self._errors = errors

    def response(self) -> Any:
        """Return the response, with this object as its unread body. Raises RecordingError for an invalid head."""
        head = self.recording.head.response or RecordedResponse(status=200)
        # The recorded bytes are not compressed, but the head of a hand-written recording may have this header.
        headers = {name: value for name, value in head.headers.items() if name.lower() != "content-encoding"}
        try:
            return self._library.Response(head.status, headers=headers, stream=self)
        except UnicodeEncodeError as error:
            self.close()
            problem = RecordingError(f"{self.recording.name} has an invalid header: {error}")
            raise self._translate(problem) from None

    async def __anext__(self) -> bytes:
        try:
            return await super().__anext__()
        except (OSError, RecordingError) as error:
            raise self._translate(error) from None

    def __next__(self) -> bytes:
        try:
            return super().__next__()
        except (OSError, RecordingError) as error:
            raise self._translate(error) from None

    def _translate(self, error: OSError | RecordingError) -> Exception:
        """Convert an error to the recorded exception of the library, or to its ReadTimeout or ReadError.

        A RecordingError is added to the `errors` of the transport and returned unchanged.
        """
        if isinstance(error, RecordingError):
            self._errors.append(error)
            return error
        is_timeout = isinstance(error, TimeoutError)
        library, end = self._library, None if self.playback.fault else self.recording.end
        kind: Any = getattr(library, end.error, None) if end is not None else None
        is_transport_error = isinstance(kind, type) and issubclass(kind, library.TransportError)
        if not is_transport_error or issubclass(kind, library.TimeoutException) is not is_timeout:
            kind = library.ReadTimeout if is_timeout else library.ReadError
        translated: Exception = kind(str(error))
        return translated
