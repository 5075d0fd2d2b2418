"""Sending one request: attempts, how long the provider may be silent, and a response that is closed whatever happens.

A request is sent again only as long as nothing of an answer has come, because behind the first byte somebody may have
seen it; and not where time ran out, because the provider may still be at work on it. Redirects are not followed: a key
goes to the host that it was meant for.

The times are bounded here and not by the HTTP client, which has one bound for each read: a model may think for minutes
before its first byte, and a silence of that length behind it is a dead connection. A bound stands around a single read,
and nothing yields inside of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, fields
from email.utils import parsedate_to_datetime
from functools import cache
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread
import msgspec

from streamtools import observing
from streamtools.errors import StreamToolsError
from streamtools.events import SourceError
from streamtools.logs import Logger
from streamtools.sources import Source, adapter, events
from streamtools.sources.adapter import interrupted
from streamtools.sources.provider_terms import name_of, shown_url
from streamtools.sources.transport import Transport

if TYPE_CHECKING:
    from ssl import SSLContext

    from tenacity import RetryCallState


log = Logger(__name__)

CLOSING = 10.0
"""Seconds that a response may take to close."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Seconds until the connection stands, until the first byte of an answer, and between its bytes; `math.inf` waits.

    The first byte takes long where a model is loaded, or thinks before it speaks.
    """

    connect: float = 10.0
    first_byte: float = 600.0
    between_bytes: float = 120.0

    @classmethod
    def of(cls, given: Any) -> Timeouts:
        """Return what was passed as `timeout`: one of these, of httpx, seconds for each step, or None, to wait."""
        if isinstance(given, Timeouts):
            return given
        if given is None or (isinstance(given, int | float) and not isinstance(given, bool)):
            seconds = math.inf if given is None else given
            return cls(connect=seconds, first_byte=seconds, between_bytes=seconds)
        if hasattr(given, "connect") and hasattr(given, "read"):  # of httpx and httpx2
            read = math.inf if given.read is None else given.read
            connect = math.inf if given.connect is None else given.connect
            return cls(connect=connect, first_byte=read, between_bytes=read)
        raise TypeError(f"timeout is a Timeouts, a number of seconds, or None, not {given!r}")

    def __post_init__(self) -> None:
        for each in fields(self):
            if not getattr(self, each.name) > 0:
                raise ValueError(f"{each.name} is a time above 0 seconds, not {getattr(self, each.name)!r}")


class NothingCame(StreamToolsError, TimeoutError):
    """The answer stopped for longer than `Timeouts.between_bytes`, which are so many `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing came for {seconds:g} s")
        self.seconds = seconds


class Response:
    """A provider's response as a source reads it: the first bytes may have been read already, later ones are timed."""

    def __init__(self, opened: AbstractAsyncContextManager[Any], response: Any, between: float) -> None:
        self.status_code: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.url = getattr(response, "url", None)
        self._opened = opened
        self._origin = Transport(response)
        self._between = between
        self._first: bytes | None = None
        self._closed = False

    async def begin(self) -> None:
        """Read the first bytes."""
        self._first = await anext(self._origin, None)

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the body, decoded."""
        if self._first is not None:
            yield self._first
        while True:
            chunk = None
            with anyio.move_on_after(self._between) as scope:
                chunk = await anext(self._origin, None)
            if scope.cancelled_caught:
                raise NothingCame(self._between)
            if chunk is None:
                return
            yield chunk

    async def aclose(self) -> None:
        """Close the response, at once; may be called more than once."""
        if self._closed:
            return
        self._closed = True
        with anyio.move_on_after(CLOSING, shield=True):
            await self._origin.aclose()
            await self._opened.__aexit__(None, None, None)


BACKOFF = 0.5
"""Seconds before the second attempt, where the provider names no time; they double with each, and vary by as much."""
LONGEST_BACKOFF = 8.0
LONGEST_WAIT = 60.0
"""Seconds that a provider may ask us to wait; where it asks for more, its error is the answer."""

_AGAIN = (408, 409, 429)
_NOT_KNOWN = (400, 404)
"""What providers answer to a request that goes on with a response that they do not know, or no longer."""

NOT_ASKED = "the provider's answer is packed in a way that was not asked for"
"""A client unpacks whatever it can, each network chunk at once: with Brotli, Zstandard, or gzip in gzip, one of 64 KiB
becomes gigabytes."""


class Client(Protocol):
    """What is needed of an HTTP client: `stream` as httpx and httpx2 have it."""

    @property
    def stream(self) -> Callable[..., Any]:
        """What returns an asynchronous context manager of a response with `status_code`, `headers`, `aiter_bytes`."""


class Attempt(NamedTuple):
    """What came of sending the request once."""

    answer: Response | SourceError
    again: bool = False
    """Whether it may be sent again."""
    wait: float | None = None
    """Seconds that the provider asks us to wait before."""


@dataclass(frozen=True)
class Request:
    """What is sent, and how its answer is read."""

    url: str = field(repr=False)  # may hold a password, or a key, as do the headers
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    format: str
    timeouts: Timeouts
    retries: int
    whole: Callable[[], Request] | None = field(default=None, repr=False)
    """What is sent in its place where the provider does not know the response that it names."""


class Sending:
    """One request, sent on entry; yields the source of its answer, and closes the response on exit.

    Without a `client` one is made, and closed too.
    """

    def __init__(self, request: Request, client: Client | None) -> None:
        self._request = request
        self._client = client
        self._own: Any = None
        self._response: Response | None = None
        self._source: Source | None = None

    async def __aenter__(self) -> Source:
        try:
            if self._client is None:
                self._client = self._own = _new_client()
            answer = await self._send()
            self._source = (
                events([answer]) if isinstance(answer, SourceError) else Source(answer, adapter(self._request.format))
            )
        except BaseException:
            await self._close()
            raise
        return self._source

    async def __aexit__(self, *raised: object) -> None:
        await self._close()

    async def _send(self) -> Response | SourceError:
        from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_exponential, wait_random

        backoff = wait_exponential(multiplier=BACKOFF, max=LONGEST_BACKOFF) + wait_random(max=BACKOFF)

        def wait(state: RetryCallState) -> float:
            asked = _attempt_of(state).wait
            return backoff(state) if asked is None else asked

        retrying = AsyncRetrying(
            sleep=anyio.sleep,
            stop=stop_after_attempt(1 + self._request.retries),
            wait=wait,
            retry=retry_if_result(lambda attempt: attempt.again),
            before_sleep=self._give_up,
            retry_error_callback=_attempt_of,
        )
        attempt: Attempt = await retrying(self._attempt)
        whole = self._request.whole
        if whole is not None and isinstance(attempt.answer, Response) and attempt.answer.status_code in _NOT_KNOWN:
            log.info("whole_history_sent", status=attempt.answer.status_code)
            await self._drop()
            self._request = await anyio.to_thread.run_sync(whole)  # which may take long to write
            return await self._send()
        return attempt.answer

    async def _attempt(self) -> Attempt:
        request, timeouts = self._request, self._request.timeouts
        assert self._client is not None
        opened = self._client.stream(
            "POST",
            request.url,
            headers=request.headers,
            content=request.content,
            follow_redirects=False,
            timeout=(None if math.isinf(timeouts.connect) else timeouts.connect, None, None, None),
        )
        if not hasattr(opened, "__aenter__"):
            raise TypeError(f"{type(self._client)!r} is no asynchronous HTTP client")
        with anyio.move_on_after(timeouts.first_byte):
            try:
                raw = await opened.__aenter__()
                try:
                    response = self._response = Response(opened, raw, timeouts.between_bytes)
                except BaseException:  # no response that anybody can read
                    await opened.__aexit__(None, None, None)
                    raise
                if 300 <= response.status_code < 400 and "location" in response.headers:
                    return Attempt(await self._redirected(response))
                if not _is_packed_as_asked(response.headers, request.headers):
                    await self._drop()
                    return Attempt(SourceError(NOT_ASKED, status=response.status_code, url=shown_url(request.url)))
                if not 200 <= response.status_code < 300:
                    return _refused(response)
                await response.begin()
            except Exception as error:
                kinds = {kind.__name__ for kind in type(error).__mro__}
                if not isinstance(error, OSError) and "RequestError" not in kinds:
                    raise
                failed = SourceError("the provider could not be reached", cause=name_of(error))
                if self._response is not None:
                    failed = interrupted(name_of(error))
                    await self._drop()
                failed = msgspec.structs.replace(failed, url=shown_url(request.url))
                return Attempt(failed, not kinds & {"LocalProtocolError", "UnsupportedProtocol", "DecodingError"})
            return Attempt(response)
        await self._drop()
        message = f"the provider did not answer within {timeouts.first_byte:g} s"
        return Attempt(SourceError(message, cause="first_byte", url=shown_url(request.url)))

    async def _redirected(self, response: Response) -> SourceError:
        await self._drop()
        try:
            target = urlsplit(urljoin(self._request.url, response.headers["location"]))
            host = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
        except ValueError:
            host = ""
        shown = host if host and host.isprintable() and len(host) < 300 else "elsewhere"
        message, url = f"the provider redirects to {shown}; nothing was sent there", shown_url(self._request.url)
        return SourceError(message, status=response.status_code, url=url)

    async def _give_up(self, state: RetryCallState) -> None:
        """Close what an attempt has left, before the next."""
        answer = _attempt_of(state).answer
        status = answer.status_code if isinstance(answer, Response) else None
        log.info("request_sent_again", attempt=state.attempt_number, status=status, wait=round(state.upcoming_sleep, 3))
        if (observed := observing.observed()) is not None:
            observed.sent_again()
        await self._drop()

    async def _drop(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    async def _close(self) -> None:
        with anyio.move_on_after(CLOSING, shield=True):
            if self._source is not None:
                await self._source.aclose()
            await self._drop()
            if self._own is not None:
                await self._own.aclose()


def _new_client() -> Any:
    import httpx  # here, because many have clients of their own

    return httpx.AsyncClient(verify=_certificates())


@cache
def _certificates() -> SSLContext:
    """Return what servers' certificates are checked by. To read it takes 25 ms, and every client of httpx reads it."""
    import httpx

    return httpx.create_ssl_context()


def _attempt_of(state: RetryCallState) -> Attempt:
    assert state.outcome is not None
    attempt: Attempt = state.outcome.result()
    return attempt


def _refused(response: Response) -> Attempt:
    """Return what a response is whose status is an error: sent again, if the status may be another the next time."""
    wait = _retry_after(response.headers)
    again = response.status_code in _AGAIN or response.status_code >= 500
    advice = response.headers.get("x-should-retry")  # of OpenAI and Anthropic, who know better
    if advice in ("true", "false"):
        again = advice == "true"
    return Attempt(response, again and (wait is None or wait <= LONGEST_WAIT), wait)


def _is_packed_as_asked(headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
    asked = next((value for name, value in sent.items() if name.lower() == "accept-encoding"), "")
    names = [each.strip().lower() for each in headers.get("content-encoding", "").split(",")]
    packed = [each for each in names if each not in ("", "identity")]
    return not packed or (len(packed) == 1 and packed[0] in re.split(r"[\s,;]+", asked.lower()))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a provider asks us to wait, or None if it does not tell."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = float(value) * unit
        except ValueError:
            continue
        if seconds >= 0 and math.isfinite(seconds):
            return seconds
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time())
    except (ValueError, OverflowError):
        return None
