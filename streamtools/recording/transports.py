"""HTTP transports that record the responses of a client, and that answer it from recordings.

    transport = RecordingTransport(httpx.AsyncHTTPTransport(), "chat.jsonl")  # and later ReplayTransport("chat.jsonl")
    async with httpx.AsyncClient(transport=transport) as client:
        ...

They work with asynchronous and blocking clients, of httpx and of httpx2, whose classes have the same names. Neither
library is imported here. Responses, streams and exceptions are made with the library of the request.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from inspect import isawaitable
from threading import Lock
from types import ModuleType
from typing import Any, Self, TypeVar, Unpack

import anyio

from streamtools.errors import RecordingError, UnrecordedRequest
from streamtools.recording.exchanges import RecordedExchange, exchanges_of
from streamtools.recording.format import RecordedResponse
from streamtools.recording.matching import FIELDS, Match, SentRequest, describe, explain, make_matcher
from streamtools.recording.playback import Playback, PlaybackOptions, ReplayBytes, unreached_fault
from streamtools.recording.reader import OpenRecording
from streamtools.recording.recorder import ExchangeFile, RecordedBytes, RecordOptions, header_items
from streamtools.recording.redaction import describe_request
from streamtools.recording.scrubbing import Secret
from streamtools.recording.writer import RecordingTarget

_Result = TypeVar("_Result")

_Transport: Any = object  # type checkers then accept it for clients of httpx and of httpx2


class Transport(_Transport):  # type: ignore[misc] # see above
    """A transport for asynchronous and blocking clients of either library.

    If it has an `_inner` transport, entering, leaving and closing it do the same with `_inner`. `_release` closes other
    resources.
    """

    _inner: Any = None

    def _release(self) -> None: ...

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        raise NotImplementedError

    async def handle_async_request(self, request: Any) -> Any:
        """Return the response to a request."""
        return await self._handle(request, blocking=False)

    def handle_request(self, request: Any) -> Any:
        """Return the response to the request of a blocking client."""
        return run_without_waiting(self._handle(request, blocking=True))

    async def _forward(self, method: str, *args: Any) -> None:
        """Call a method of the inner transport, and release other resources unless it is entered."""
        try:
            if self._inner is not None and isawaitable(result := getattr(self._inner, method)(*args)):
                await result
        finally:
            if "enter" not in method:
                self._release()

    async def aclose(self) -> None:
        """Close the transport."""
        await self._forward("aclose")

    def close(self) -> None:
        """Close the transport of a blocking client."""
        run_without_waiting(self._forward("close"))

    async def __aenter__(self) -> Self:
        await self._forward("__aenter__")
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._forward("__aexit__", *raised)

    def __enter__(self) -> Self:
        run_without_waiting(self._forward("__enter__"))
        return self

    def __exit__(self, *raised: Any) -> None:
        run_without_waiting(self._forward("__exit__", *raised))


def run_without_waiting(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return the result of a coroutine that awaits nothing, because all its calls block."""
    try:
        work.send(None)
    except StopIteration as end:
        result: _Result = end.value
        return result
    raise AssertionError("the coroutine has awaited something")


def library_of(request: object) -> ModuleType:
    """Return the library of an HTTP request. Raises TypeError for another object."""
    for kind in type(request).__mro__:
        library = sys.modules.get(kind.__module__.partition(".")[0])
        if library is not None and hasattr(library, "AsyncByteStream"):
            return library
    raise TypeError(f"expected a request of httpx or httpx2, got {type(request)!r}")


@functools.cache
def stream_class(body: type, library: ModuleType) -> type:
    """Return a subclass of `body` that is also a stream of the library. Its clients accept nothing else."""
    return type("Body", (body, library.AsyncByteStream, library.SyncByteStream), {})


class RecordingTransport(Transport):
    """Sends requests through `inner`, and records each exchange in one file, in the order of the requests.

    `target` is a path, which is overwritten, or a file object, which is left open. `source` is the wire format of the
    responses; by default it is detected when they are replayed. Keys of known formats, the credentials of each request
    and the secrets `redact` are overwritten. A request body is recorded only with `record_body`. `edit` takes each head
    and returns the head to write. `clock` returns seconds. A request without a response is recorded, too. A file that
    cannot be written stops the recording, not the responses: `fault` is then the error.
    """

    def __init__(self, inner: Any, target: RecordingTarget, **options: Unpack[RecordOptions]) -> None:
        """Raises OSError for a path that cannot be opened, ValueError for an invalid secret."""
        self._inner = inner
        self._file = ExchangeFile(target, **options)

    @property
    def fault(self) -> OSError | None:
        """Why the recording breaks off, if it does."""
        return self._file.fault

    def _release(self) -> None:
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
        if "content-encoding" in response.headers:  # the recorded bytes are decoded
            headers = [item for item in headers if item[0].lower() not in ("content-encoding", "content-length")]
        library = library_of(request)
        pieces = response.iter_bytes() if blocking else response.aiter_bytes()
        body = stream_class(RecordedBytes, library)(pieces, exchange, [response])
        return library.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


class ReplayTransport(Transport):
    """Answers each request with the first recorded exchange that matches it and has not been played.

    `where` is a recording, which can hold several exchanges, a raw capture, or a directory of `*.jsonl` files, in name
    order. `match` is a list of fields that must be equal, of "method", "url" and "body", or a function `(sent,
    recorded) -> bool` of two requests. A body that was not recorded is compared by its size. An exchange without a
    recorded request matches any request. `redact` are the secrets that were passed to the recorder. A request without
    a match raises `UnrecordedRequest`. With `repeat`, the last played match is played again if no other is left.

    Status, headers and chunks are the recorded ones. A broken connection raises `httpx.ReadError` at its place, and a
    silence `httpx.ReadTimeout`, or the recorded exception. If the recorded client left, no more bytes arrive until this
    client leaves, too, or its timeout expires. All other options are those of `Playback`, for every exchange.
    `vary(exchange)` can return others for one. The read timeout is that of the request.

    HTTP clients and SDKs may hide errors that are raised here. So call `check` at the end: it raises them again. Raises
    RecordingError for recordings that cannot be read, and ValueError for invalid options.
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
        self._exchanges = exchanges_of(where, self._redact)
        self._played: list[RecordedExchange] = []
        self._lock = Lock()  # several threads can use a blocking client
        self._open_bodies: set[ReplayBytes] = set()
        self._with_faults: list[tuple[RecordedExchange, ReplayBytes]] = []
        self.faults: list[RecordingError] = []
        """Requests without a recording, and faults of recordings that were found while they were played."""

    @property
    def unplayed(self) -> list[RecordedExchange]:
        """The exchanges that have not been requested, in order."""
        return [exchange for exchange in self._exchanges if exchange not in self._played]

    @property
    def missed(self) -> list[str]:
        """A message for each injected fault that was not reached. Raises RecordingError."""
        messages: list[str] = []
        for exchange, body in self._with_faults:
            if (missed := body.missed()) is None:
                continue
            fault, place = missed
            with exchange.open() as opened:
                size = sum(len(chunk.data) for chunk in opened)
            if place > size:
                messages.append(unreached_fault(str(exchange), fault, place, size))
            elif fault != "stall_after":  # a reader that leaves earlier does not notice a stall
                messages.append(f"{exchange}: {fault}={place} was not reached: the reader left earlier")
        return messages

    def check(self) -> None:
        """Raise the first of `faults`, or a RecordingError for an injected fault or an exchange that was not used."""
        if self.faults:
            raise self.faults[0]
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

    def _release(self) -> None:
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
        if exchange.unanswered:
            timeout = options.get("read_timeout") if exchange.unanswered == "left" else None
            options = {"speed": options.get("speed", 0), "clock": options.get("clock"), "read_timeout": timeout}
        opened = exchange.open()
        try:
            library = library_of(request)
            body: _ReplayedBody = stream_class(_ReplayedBody, library)(opened, library, self.faults, options)
        except BaseException:
            opened.close()
            raise
        if body.playback.ending is not None:
            self._with_faults.append((exchange, body))
        self._open_bodies = {*(other for other in self._open_bodies if not other.closed), body}
        return exchange, body

    def _choose(self, sent: SentRequest) -> RecordedExchange:
        candidates: list[RecordedExchange] = [*self.unplayed, *(reversed(self._played) if self._repeat else ())]
        for exchange in candidates:
            if exchange.request is None or self._matches(sent.like(exchange.request), exchange.request):
                self._played.append(exchange)
                return exchange
        explanation = explain(sent, self.unplayed, self._played)
        explanation = explanation or f": all of its {len(self._exchanges)} exchanges have been played"
        fault = UnrecordedRequest(f"{describe(sent.with_body)} is not recorded in {self._where}{explanation}")
        self.faults.append(fault)
        raise fault


class _ReplayedBody(ReplayBytes):
    """The body of an opened exchange, for a client of `library`, whose exceptions it raises."""

    def __init__(
        self, opened: OpenRecording, library: ModuleType, faults: list[RecordingError], options: PlaybackOptions
    ) -> None:
        super().__init__(opened, waits_when_left=True, **options)
        self._library = library
        self._faults = faults

    def response(self) -> Any:
        """Return the response, whose body has not been read. Raises RecordingError for an invalid head."""
        head = self.recording.head.response or RecordedResponse(status=200)
        # The recorded bytes are decoded. The head of a hand-written recording may say otherwise.
        headers = {name: value for name, value in head.headers.items() if name.lower() != "content-encoding"}
        try:
            return self._library.Response(head.status, headers=headers, stream=self)
        except UnicodeEncodeError as error:
            self.close()
            fault = RecordingError(f"{self.recording.name} has an invalid header: {error}")
            raise self._translate(fault) from None

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
        """Return the recorded exception of the library, or one of the same kind."""
        if isinstance(error, RecordingError):
            self._faults.append(error)
            return error
        is_timeout = isinstance(error, TimeoutError)
        library, end = self._library, None if self.playback.ending else self.recording.end
        kind: Any = getattr(library, end.error, None) if end is not None else None
        is_transport_error = isinstance(kind, type) and issubclass(kind, library.TransportError)
        if not is_transport_error or issubclass(kind, library.TimeoutException) is not is_timeout:
            kind = library.ReadTimeout if is_timeout else library.ReadError
        translated: Exception = kind(str(error))
        return translated
