"""Answer the requests of an HTTP client from recordings, instead of asking the network.

    transport = ReplayTransport("recordings/weather.jsonl")
    async with httpx.AsyncClient(transport=transport) as client:
        ...
    transport.check()

It is the transport of an asynchronous client and of a blocking one, of httpx and of httpx2: a response, its stream and
its exceptions are made of the library that the request comes from.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

import anyio

from streamtools.errors import RecordingError, UnrecordedRequest
from streamtools.recording.clients import items_of
from streamtools.recording.exchanges import Exchange, exchanges_of
from streamtools.recording.faults import unreached
from streamtools.recording.format import Request
from streamtools.recording.library import library_of
from streamtools.recording.matching import FIELDS, Match, matcher, nearest, title
from streamtools.recording.playback import Playback, PlaybackOptions
from streamtools.recording.redact import describe_request
from streamtools.recording.replay import ReplayBytes
from streamtools.recording.response import RecordedResponse
from streamtools.recording.scrubbing import Secret

if TYPE_CHECKING:
    _Transport: Any = object  # to a type checker it fits clients of httpx and of httpx2, whichever is there
else:
    _Transport = object

_TOLD = 5  # differences that a message lists


class ReplayTransport(_Transport):  # type: ignore[misc] # see above
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

    HTTP clients and SDKs may turn what goes wrong here into errors of their own, so `check` tells it at the end.
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
        """The exchanges that nobody has asked for, in their order."""
        return [exchange for exchange in self._exchanges if exchange not in self._played]

    @property
    def missed(self) -> list[str]:
        """The words for each fault that was put in and whose place nobody has come to. Raises `RecordingError`."""
        return [told for exchange, played in self._spoilt if (told := _missed(exchange, played))]

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

    async def handle_async_request(self, request: Any) -> Any:
        """Return the recorded response; raise `UnrecordedRequest`, or what was raised instead of a response."""
        exchange, recorded = self._play(request, await request.aread())
        recorded.bytes.begin(anyio.current_time())
        if exchange.unanswered:
            await recorded.read()
        return recorded.response(blocking=False)

    def handle_request(self, request: Any) -> Any:
        """Do as `handle_async_request`, for a blocking client."""
        exchange, recorded = self._play(request, request.read())
        recorded.bytes.begin(time.monotonic())
        if exchange.unanswered:
            recorded.read_blocking()
        return recorded.response(blocking=True)

    async def aclose(self) -> None:
        """Close the files of responses that nobody has closed."""
        self.close()

    def close(self) -> None:
        """Do as `aclose` does."""
        while self._open:
            self._open.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()

    def _play(self, request: Any, content: bytes) -> tuple[Exchange, RecordedResponse]:
        """Return the exchange that answers the request, and its response."""
        headers = items_of(request.headers)
        asked = describe_request(request.method, str(request.url), headers, content, redact=self._redact)
        with self._lock:
            exchange = self._choose(asked)
        options: PlaybackOptions = {"read_timeout": request.extensions.get("timeout", {}).get("read"), **self._options}
        if self._vary is not None:
            options = {**options, **self._vary(exchange)}
        if exchange.unanswered:
            patience = options.get("read_timeout") if exchange.unanswered == "left" else None
            options = {"speed": options.get("speed", 0), "clock": options.get("clock"), "read_timeout": patience}
        opened = exchange.open()
        try:
            recorded = RecordedResponse(library_of(request), opened, self.faults.append, options)
        except BaseException:
            opened.close()
            raise
        if Playback(**options).faulty:
            self._spoilt.append((exchange, recorded.bytes))
        self._open = {*(each for each in self._open if not each.closed), recorded.bytes}
        return exchange, recorded

    def _choose(self, asked: Request) -> Exchange:
        candidates: list[Exchange] = [*self.unplayed, *(reversed(self._played) if self._repeat else ())]
        for exchange in candidates:
            if exchange.request is None or self._matches(asked, exchange.request):
                self._played.append(exchange)
                return exchange
        fault = UnrecordedRequest(self._explain(asked))
        self.faults.append(fault)
        raise fault

    def _explain(self, asked: Request) -> str:
        """Return the words for a request that is not recorded: which one is the nearest, and how it differs."""
        candidates = [*self.unplayed, *self._played]
        found = nearest(asked, [each.request for each in candidates])
        said = f"{title(asked)} is not recorded in {self._where}"
        if found is None:
            return f"{said}, of whose {len(self._exchanges)} exchanges none is left"
        exchange, different = candidates[found.position], found.differences
        played = " (which has been played)" if exchange in self._played else ""
        if not different:
            again = "once more" if played else "but `match` refuses it"
            return f"{said} {again}: the same is {exchange}{played}"
        lines = [f"    {each}" for each in different[:_TOLD]]
        if len(different) > _TOLD:
            lines.append(f"    and {len(different) - _TOLD} more")
        return "\n".join([f"{said}; the nearest is {exchange}{played}:", *lines])


def _missed(exchange: Exchange, played: ReplayBytes) -> str | None:
    """Return the words for a fault that did not come; a reader that leaves before a stall has not missed it."""
    if (missed := played.missed()) is None:
        return None
    fault, place = missed
    with exchange.open() as opened:
        size = sum(len(chunk.data) for chunk in opened)
    if place > size:
        return unreached(str(exchange), fault, place, size)
    return None if fault == "stall_after" else f"{exchange}: {fault}={place} was not reached: the reader left before"
