"""HTTP transports that record the responses for a client, or answer its requests from recordings.

    transport = RecordingTransport(httpx.AsyncHTTPTransport(), "chat.jsonl")  # and later ReplayTransport("chat.jsonl")
    async with httpx.AsyncClient(transport=transport) as client:
        ...

They work with the asynchronous and blocking clients of httpx and httpx2, whose classes have the same names. This module
imports neither library. It creates responses, streams and exceptions with the library that created the request.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from threading import Lock
from types import ModuleType
from typing import Any, Self, TypeVar, Unpack

import anyio

from streamtools.errors import RecordingError, UnrecordedRequest
from streamtools.recording.format import RecordedResponse
from streamtools.recording.matching import FIELDS, Match, SentRequest, describe, explain, make_matcher
from streamtools.recording.playback import Playback, PlaybackOptions, ReplayBytes, unreached_fault
from streamtools.recording.reader import OpenExchange, RecordedExchange, load_exchanges
from streamtools.recording.recorder import ExchangeFile, RecordedBytes, RecordOptions, header_items
from streamtools.recording.redaction import describe_request
from streamtools.recording.scrubbing import Secret
from streamtools.recording.writer import RecordingTarget

_Result = TypeVar("_Result")

_AnyBase: Any = object  # `Any`, so that type checkers accept a subclass for clients of httpx and of httpx2


class ClientTransport(_AnyBase):  # type: ignore[misc] # see above
    """A base class of transports for asynchronous and blocking clients of httpx and httpx2.

    Subclasses implement `_handle`. Closing this transport also closes `_inner`, unless that is None.
    """

    _inner: Any = None

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        raise NotImplementedError

    async def _close(self, *, blocking: bool) -> None:
        if self._inner is not None and blocking:
            self._inner.close()
        elif self._inner is not None:
            await self._inner.aclose()

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
    """Run a coroutine that never waits, and return its result. In blocking mode, all its calls block instead."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _Result = end.value
        return result
    raise AssertionError("the coroutine has awaited something")


def library_of(request: object) -> ModuleType:
    """Return the module httpx or httpx2, whose class the request has. Raises TypeError for another object."""
    for kind in type(request).__mro__:
        library = sys.modules.get(kind.__module__.partition(".")[0])
        if library is not None and hasattr(library, "AsyncByteStream"):
            return library
    raise TypeError(f"expected a request of httpx or httpx2, got {type(request)!r}")


@functools.cache
def stream_class(body: type, library: ModuleType) -> type:
    """Return a subclass of `body` that is also a stream class of `library`. The clients of `library` require this."""
    return type("Body", (body, library.AsyncByteStream, library.SyncByteStream), {})


class RecordingTransport(ClientTransport):
    """Sends requests through the transport `inner`, and records all exchanges in one file, in the order of requests.

    `target` is a path, which is overwritten, or a file object, which is not closed. `source` is the wire format of the
    responses. By default, the format is detected during a replay. Keys of known formats, the credentials of each
    request, and the secrets in `redact` are overwritten. Request bodies are recorded only with `record_body=True`.
    `edit` is called with each head and returns the head to write. `clock` returns the time in seconds. A request that
    gets no response is also recorded.

    If the file cannot be written, the recording stops, and `write_error` holds the error. The client still gets its
    responses.
    """

    def __init__(self, inner: Any, target: RecordingTarget, **options: Unpack[RecordOptions]) -> None:
        """Open the target. Raises OSError for a path that cannot be opened, and ValueError for an invalid secret."""
        self._inner = inner
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
        exchange = self._file.begin_request(request.method, str(request.url), header_items(request.headers), content)
        try:
            handle = self._inner.handle_request if blocking else self._inner.handle_async_request
            response = handle(request) if blocking else await handle(request)
        except BaseException as error:
            exchange.fail(error)
            raise
        response.request = request
        headers = header_items(response.headers)
        exchange.set_response(response.status_code, headers)
        if "content-encoding" in response.headers:  # the client gets decoded bytes, as they are recorded
            headers = [item for item in headers if item[0].lower() not in ("content-encoding", "content-length")]
        library = library_of(request)
        pieces = response.iter_bytes() if blocking else response.aiter_bytes()
        body = stream_class(RecordedBytes, library)(pieces, exchange, [response])
        return library.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


class ReplayTransport(ClientTransport):
    """Answers each request with the first recorded exchange that matches it and has not been played.

    `where` is a recording with one or more exchanges, a raw capture, or a directory. Of a directory, the `*.jsonl`
    files are read in name order. `match` is a list of the fields "method", "url" and "body" that must be equal. It may
    also be a function `(sent, recorded) -> bool` of two requests. If a body was not recorded, its size is compared. An
    exchange without a recorded request matches any request. `redact` holds the secrets that were passed to the
    recorder. A request without a match raises `UnrecordedRequest`. With `repeat=True`, the matching exchange that was
    played last is played again if no new exchange matches.

    The response has the recorded status, headers and chunks. If the recorded connection broke or timed out, the replay
    raises the recorded exception after the same bytes. Without a recorded exception, it raises `httpx.ReadError` or
    `httpx.ReadTimeout`. If the recorded client closed the response, no more bytes arrive after that point. The new
    client waits until it closes the response or its timeout expires.

    `options` are the options of `Playback` and apply to every exchange. `vary(exchange)` returns options that replace
    them for one exchange. `read_timeout` defaults to the read timeout of the request.

    HTTP clients and SDKs may hide the errors of this transport. So call `check` at the end of a test, which raises them
    again. Raises RecordingError for recordings that cannot be read, and ValueError for invalid options.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        match: Match = FIELDS,
        repeat: bool = False,
        redact: Iterable[Secret] = (),
        vary: Callable[[RecordedExchange], PlaybackOptions] | None = None,
        **options: Unpack[PlaybackOptions],
    ) -> None:
        self._where = os.fspath(where)
        self._matches = make_matcher(match)
        self._repeat = repeat
        self._vary = vary
        self._options = options
        Playback(**options)
        self._redact = list(redact)
        self._exchanges = load_exchanges(where, self._redact)
        self._played: list[RecordedExchange] = []
        self._lock = Lock()  # several threads may use one blocking client
        self._open_bodies: set[ReplayBytes] = set()
        self._with_faults: list[tuple[RecordedExchange, ReplayBytes]] = []
        self.errors: list[RecordingError] = []
        """The errors of requests without a recording, and of recordings that could not be read to their end."""

    @property
    def unplayed(self) -> list[RecordedExchange]:
        """The exchanges that have not been played, in recorded order."""
        return [exchange for exchange in self._exchanges if exchange not in self._played]

    @property
    def missed(self) -> list[str]:
        """One message for each injected fault that was not reached. Raises RecordingError for an invalid recording."""
        messages: list[str] = []
        for exchange, body in self._with_faults:
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
        body.begin(time.monotonic() if blocking else anyio.current_time())
        if exchange.unanswered and blocking:
            next(body)
        elif exchange.unanswered:
            await anext(body)
        return body.response()

    async def _close(self, *, blocking: bool) -> None:
        while self._open_bodies:
            self._open_bodies.pop().close()

    def _play(self, request: Any, content: bytes) -> tuple[RecordedExchange, _ReplayedBody]:
        sent = request.method, str(request.url), header_items(request.headers), content
        with_body = describe_request(*sent, redact=self._redact, record_body=True)
        with_size = describe_request(*sent, redact=self._redact)
        with self._lock:
            exchange = self._choose(SentRequest(with_body, with_size))
        varied: PlaybackOptions = {} if self._vary is None else self._vary(exchange)
        timeout = request.extensions.get("timeout", {}).get("read")
        options: PlaybackOptions = {"read_timeout": timeout, **self._options, **varied}
        if exchange.unanswered:  # without a response, there are no bytes to cut
            timeout = options.get("read_timeout") if exchange.unanswered == "left" else None
            options = {"speed": options.get("speed", 0), "clock": options.get("clock"), "read_timeout": timeout}
        opened = exchange.open()
        try:
            library = library_of(request)
            body: _ReplayedBody = stream_class(_ReplayedBody, library)(opened, library, self.errors, options)
        except BaseException:
            opened.close()
            raise
        if body.playback.fault is not None:
            self._with_faults.append((exchange, body))
        self._open_bodies = {*(other for other in self._open_bodies if not other.closed), body}
        return exchange, body

    def _choose(self, sent: SentRequest) -> RecordedExchange:
        candidates: list[RecordedExchange] = [*self.unplayed, *(reversed(self._played) if self._repeat else ())]
        for exchange in candidates:
            if exchange.request is None or self._matches(sent.in_form_of(exchange.request), exchange.request):
                self._played.append(exchange)
                return exchange
        explanation = explain(sent, self.unplayed, self._played)
        explanation = explanation or f": all of its {len(self._exchanges)} exchanges have been played"
        error = UnrecordedRequest(f"{describe(sent.with_body)} is not recorded in {self._where}{explanation}")
        self.errors.append(error)
        raise error


class _ReplayedBody(ReplayBytes):
    """The body of an open exchange for a client of `library`. It raises the exceptions of this library."""

    def __init__(
        self, opened: OpenExchange, library: ModuleType, errors: list[RecordingError], options: PlaybackOptions
    ) -> None:
        super().__init__(opened, waits_after_reader_left=True, **options)
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
