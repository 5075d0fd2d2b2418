"""HTTP transports that record what a client receives, and that answer it from recordings instead of the network.

    transport = RecordingTransport(httpx.AsyncHTTPTransport(), "chat.jsonl")  # and later ReplayTransport("chat.jsonl")
    async with httpx.AsyncClient(transport=transport) as client:
        ...

They are transports of asynchronous clients and of blocking ones, of httpx and of httpx2, which have the same names.
Neither is imported here: who asks has imported it. What is read off requests, responses and errors is read in the same
way off those of either; responses, streams and exceptions are made of the library that the request comes from.
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
from streamtools.recording.exchanges import FIELDS, Exchange, Match, exchanges_of, explain, matcher, title
from streamtools.recording.file_reader import OpenRecording
from streamtools.recording.file_writer import Target
from streamtools.recording.format import Request, Response
from streamtools.recording.playback import Playback, PlaybackOptions, ReplayBytes, unreached
from streamtools.recording.recorder import ExchangeFile, RecordedBytes, RecordOptions, items_of
from streamtools.recording.redact import describe_request
from streamtools.recording.scrubbing import Secret

_Made = TypeVar("_Made")

_Transport: Any = object  # to a type checker it fits clients of httpx and of httpx2, whichever is there


class Transport(_Transport):  # type: ignore[misc] # see above
    """A transport for clients of either library, blocking or not, in front of `_inner`, if there is one.

    Entering, leaving and closing it does the same with `_inner`, and `_release` lets go what is held beside it.
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
        return at_once(self._handle(request, blocking=True))

    async def _pass_on(self, method: str, *args: Any) -> None:
        """Have the transport behind this one do the same; unless it is entered, let go what is held."""
        try:
            if self._inner is not None and isawaitable(done := getattr(self._inner, method)(*args)):
                await done
        finally:
            if "enter" not in method:
                self._release()

    async def aclose(self) -> None:
        """Close the transport behind this one, and what was opened here."""
        await self._pass_on("aclose")

    def close(self) -> None:
        """Do as `aclose`, where the transport behind this one is blocking."""
        at_once(self._pass_on("close"))

    async def __aenter__(self) -> Self:
        await self._pass_on("__aenter__")
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self._pass_on("__aexit__", *raised)

    def __enter__(self) -> Self:
        at_once(self._pass_on("__enter__"))
        return self

    def __exit__(self, *raised: Any) -> None:
        at_once(self._pass_on("__exit__", *raised))


def at_once(work: Coroutine[Any, Any, _Made]) -> _Made:
    """Return what a coroutine returns that waits for nothing: one that makes calls which block."""
    try:
        work.send(None)
    except StopIteration as end:
        made: _Made = end.value
        return made
    raise AssertionError("what blocks has waited in another way")


def library_of(request: object) -> ModuleType:
    """Return the library of an HTTP request; raise TypeError for what is none."""
    for kind in type(request).__mro__:
        library = sys.modules.get(kind.__module__.partition(".")[0])
        if library is not None and hasattr(library, "AsyncByteStream"):
            return library
    raise TypeError(f"{type(request)!r} is no request of httpx or httpx2")


@functools.cache
def of_library(body: type, library: ModuleType) -> type:
    """Return the class of bodies for one library: its clients insist on streams of its own classes."""
    return type("Body", (body, library.AsyncByteStream, library.SyncByteStream), {})


class RecordingTransport(Transport):
    """Asks `inner`, and writes each exchange into one recording, in the order of the requests.

    `target` is a path, which is written anew, or a file object, which is left open. `source` is the adapter that reads
    the responses; without it, it is detected when they are replayed. `redact` are secrets beside keys of known formats
    and the credentials of each request, which are overwritten in any case; `edit` takes each head before it is written
    and returns what is. A request that never got a response is an exchange too, and ends as its response would have. A
    file that cannot be written stops the recording and no response: `fault` is then the error. `clock` gives seconds. A
    request's body that cannot be looked through, such as an image, is left out, unless `keep_unreadable`.
    """

    def __init__(self, inner: Any, target: Target, **options: Unpack[RecordOptions]) -> None:
        """Raises OSError for a path that cannot be opened, ValueError for a secret that cannot be looked for."""
        self._inner = inner
        self._file = ExchangeFile(target, **options)

    @property
    def fault(self) -> OSError | None:
        """Why the recording breaks off, if it does."""
        return self._file.fault

    def _release(self) -> None:
        self._file.close()

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        """Return the response, decoded, which is recorded while it is read."""
        content = request.read() if blocking else await request.aread()
        exchange = self._file.ask(request.method, str(request.url), items_of(request.headers), content)
        try:
            handle = self._inner.handle_request if blocking else self._inner.handle_async_request
            response = handle(request) if blocking else await handle(request)
        except BaseException as error:
            exchange.fail(error)
            raise
        response.request = request
        headers = items_of(response.headers)
        exchange.answered(response.status_code, headers)
        if "content-encoding" in response.headers:  # is undone
            headers = [each for each in headers if each[0].lower() not in ("content-encoding", "content-length")]
        library = library_of(request)
        pieces = response.iter_bytes() if blocking else response.aiter_bytes()
        body = of_library(RecordedBytes, library)(pieces, exchange, [response])
        return library.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


class ReplayTransport(Transport):
    """Answers each request with the first recorded exchange that matches it and has not been played.

    `where` is a recording, which may hold several exchanges, or a raw capture, or a directory, whose `*.jsonl` count in
    the order of their names. `match` names the fields that have to be equal, of "method", "url" and "body", or is a
    function `(asked, recorded) -> bool` of two requests; an exchange of which no request was kept matches any. Both are
    compared as they may be written down; `redact` are secrets, as they were given to the recorder. A request that none
    matches raises `UnrecordedRequest`. With `repeat`, the last played one that matches is played again when no other
    is left.

    Status, headers and chunks are the recorded ones; a connection that broke raises `httpx.ReadError` at its place, and
    a silence `httpx.ReadTimeout`, or what was recorded to be raised. Where the recorded client left, nothing more
    comes, until this one leaves too or its time is up. The other options are those of `Playback`, for every exchange;
    `vary(exchange)` may return others for one. Its `read_timeout` is that of the request.

    HTTP clients and SDKs may turn what goes wrong here into errors of their own, so `check` raises it at the end.
    Raises `RecordingError` for recordings that cannot be read, and ValueError for wrong options.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        match: Match = FIELDS,
        repeat: bool = False,
        redact: Iterable[Secret] = (),
        vary: Callable[[Exchange], PlaybackOptions] | None = None,
        **options: Unpack[PlaybackOptions],
    ) -> None:
        self._where = os.fspath(where)
        self._matches = matcher(match)
        self._repeat = repeat
        self._vary = vary
        self._options = options
        Playback(**options)
        self._redact = list(redact)
        self._exchanges = exchanges_of(where, self._redact)
        self._played: list[Exchange] = []
        self._lock = Lock()  # a blocking client may be used by several threads
        self._open: set[ReplayBytes] = set()
        self._spoilt: list[tuple[Exchange, ReplayBytes]] = []
        self.faults: list[RecordingError] = []
        """The requests that were not recorded, and what was found wrong with recordings when they were played."""

    @property
    def unplayed(self) -> list[Exchange]:
        """The exchanges that have not been asked for, in their order."""
        return [exchange for exchange in self._exchanges if exchange not in self._played]

    @property
    def missed(self) -> list[str]:
        """A message for each injected fault whose place was not reached. Raises `RecordingError`."""
        found: list[str] = []
        for exchange, played in self._spoilt:
            if (missed := played.missed()) is None:
                continue
            fault, place = missed
            with exchange.open() as opened:
                size = sum(len(chunk.data) for chunk in opened)
            if place > size:
                found.append(unreached(str(exchange), fault, place, size))
            elif fault != "stall_after":  # which a reader that leaves before has not missed
                found.append(f"{exchange}: {fault}={place} was not reached: the reader left before")
        return found

    def check(self) -> None:
        """Raise the first of `faults`, or else a `RecordingError` for what was recorded or put in, and did not come.

        That are faults whose place was not reached, because the response is shorter or the reader left before, and
        exchanges that were not played.
        """
        if self.faults:
            raise self.faults[0]
        if missed := self.missed:
            raise RecordingError(missed[0])
        if unplayed := self.unplayed:
            names = "; ".join(f"{each}, {title(each.request)}" for each in unplayed)
            raise RecordingError(f"recorded and not asked for: {names}")

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        """Return the recorded response; raise `UnrecordedRequest`, or what was raised instead of a response."""
        exchange, body = self._play(request, request.read() if blocking else await request.aread())
        body.begin(time.monotonic() if blocking else anyio.current_time())
        if exchange.unanswered and blocking:
            next(body)
        elif exchange.unanswered:
            await anext(body)
        return body.response()

    def _release(self) -> None:
        """Close the files of responses that are still open."""
        while self._open:
            self._open.pop().close()

    def _play(self, request: Any, content: bytes) -> tuple[Exchange, _RecordedBody]:
        headers = items_of(request.headers)
        url = str(request.url)
        asked = describe_request(request.method, url, headers, content, redact=self._redact, keep_unreadable=True)
        with self._lock:
            exchange = self._choose(asked)
        varied: PlaybackOptions = {} if self._vary is None else self._vary(exchange)
        timeout = request.extensions.get("timeout", {}).get("read")
        options: PlaybackOptions = {"read_timeout": timeout, **self._options, **varied}
        if exchange.unanswered:
            patience = options.get("read_timeout") if exchange.unanswered == "left" else None
            options = {"speed": options.get("speed", 0), "clock": options.get("clock"), "read_timeout": patience}
        opened = exchange.open()
        try:
            library = library_of(request)
            body: _RecordedBody = of_library(_RecordedBody, library)(opened, library, self.faults, options)
        except BaseException:
            opened.close()
            raise
        if body.playback.faulty:
            self._spoilt.append((exchange, body))
        self._open = {*(each for each in self._open if not each.closed), body}
        return exchange, body

    def _choose(self, asked: Request) -> Exchange:
        candidates: list[Exchange] = [*self.unplayed, *(reversed(self._played) if self._repeat else ())]
        for exchange in candidates:
            if exchange.request is None or self._matches(asked, exchange.request):
                self._played.append(exchange)
                return exchange
        found = explain(asked, self.unplayed, self._played)
        found = found or f", of whose {len(self._exchanges)} exchanges none is left"
        fault = UnrecordedRequest(f"{title(asked)} is not recorded in {self._where}{found}")
        self.faults.append(fault)
        raise fault


class _RecordedBody(ReplayBytes):
    """The body in `opened`, for a client of `library`, whose exceptions it raises; `faults` takes the recording's."""

    def __init__(
        self, opened: OpenRecording, library: ModuleType, faults: list[RecordingError], options: PlaybackOptions
    ) -> None:
        super().__init__(opened, waits=True, **options)
        self._library = library
        self._faults = faults

    def response(self) -> Any:
        """Return the response, whose body is still to be read; raise `RecordingError` for a head that is none."""
        head = self.recording.head.response or Response(status=200)
        # The bytes are kept decoded; a head that others wrote may say otherwise.
        headers = {name: value for name, value in head.headers.items() if name.lower() != "content-encoding"}
        try:
            return self._library.Response(head.status, headers=headers, stream=self)
        except UnicodeEncodeError as error:
            self.close()
            fault = RecordingError(f"{self.recording.name} has a header that is none: {error}")
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
        """Return the library's exception: the recorded one, or one that is of its kind."""
        if isinstance(error, RecordingError):
            self._faults.append(error)
            return error
        late = isinstance(error, TimeoutError)
        library, end = self._library, None if self.playback.ending else self.recording.end
        kind: Any = getattr(library, end.error, None) if end is not None else None
        fits = isinstance(kind, type) and issubclass(kind, library.TransportError)
        if not fits or issubclass(kind, library.TimeoutException) is not late:
            kind = library.ReadTimeout if late else library.ReadError
        made: Exception = kind(str(error))
        return made
