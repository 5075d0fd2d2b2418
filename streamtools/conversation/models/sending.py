"""Sends one request to a provider, with retries and timeouts, and always closes the response.

A failed request is sent again only if no byte of the answer has arrived, because the reader may have seen the bytes.
After the timeout `first_byte`, the request is not sent again, because the provider may still be working on it.
Redirects are not followed, so the key reaches no host except that of the configured URL.

This module measures the timeouts of reads itself, because HTTP clients apply the same limit to every read. A model may
think for minutes before the first byte. After the first byte, a silence of minutes means a dead connection.
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
from typing import Any, NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.to_thread
import msgspec
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt, wait_exponential, wait_random

from streamtools import observing
from streamtools.errors import StreamToolsError
from streamtools.events import SourceError
from streamtools.logs import Logger
from streamtools.sources import Source, adapter, events
from streamtools.sources.adapter import interrupted
from streamtools.sources.provider_terms import name_of, shown_url
from streamtools.sources.transport import Transport

log = Logger(__name__)

CLOSING_TIMEOUT = 10.0
"""The time limit for closing a response, in seconds."""

BACKOFF = 0.5
"""The wait before the second attempt, in seconds. It doubles with each attempt.

A random time of up to `BACKOFF` seconds is added to each wait."""
LONGEST_BACKOFF = 8.0
"""The longest wait before an attempt, in seconds. The random time is added to it."""
LONGEST_RETRY_AFTER = 60.0
"""The longest wait that a provider may request, in seconds. If it requests more, the request is not sent again."""

_RETRYABLE_STATUSES = (408, 409, 429)  # the statuses below 500 after which the request is sent again
_UNKNOWN_RESPONSE_STATUSES = (400, 404)
"""Statuses with which a provider may reject a request because it no longer has the earlier response named in it."""

NOT_ACCEPTED = "the provider's answer has a content encoding that was not accepted"
"""The error for a response in a content encoding that the request's `Accept-Encoding` does not list.

HTTP clients decode every encoding that they know, and decode each network chunk completely. With Brotli, Zstandard, or
gzip inside gzip, a chunk of 64 KiB can expand to gigabytes."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Time limits for a request, in seconds. `math.inf` means no limit.

    `connect` limits the time to connect. `first_byte` limits the time from the start of the request to the first byte
    of the answer. In this time, the provider may load the model, and the model may think. `between_bytes` limits the
    time between two reads that return bytes.
    """

    connect: float = 10.0
    first_byte: float = 600.0
    between_bytes: float = 120.0

    @classmethod
    def of(cls, timeout: Any) -> Timeouts:
        """Return `timeout` as `Timeouts`.

        `timeout` may be a `Timeouts`, a timeout of httpx, a number of seconds for each limit, or None for no limit.
        Raises TypeError for other values.
        """
        if isinstance(timeout, Timeouts):
            return timeout
        if timeout is None or (isinstance(timeout, int | float) and not isinstance(timeout, bool)):
            seconds = math.inf if timeout is None else timeout
            return cls(connect=seconds, first_byte=seconds, between_bytes=seconds)
        if hasattr(timeout, "connect") and hasattr(timeout, "read"):  # a timeout of httpx or httpx2
            read = math.inf if timeout.read is None else timeout.read
            connect = math.inf if timeout.connect is None else timeout.connect
            return cls(connect=connect, first_byte=read, between_bytes=read)
        raise TypeError(f"`timeout` must be a Timeouts, a number of seconds, or None, got {timeout!r}.")

    def __post_init__(self) -> None:
        for limit in fields(self):
            if not getattr(self, limit.name) > 0:
                raise ValueError(f"`{limit.name}` must be above 0 seconds, got {getattr(self, limit.name)!r}.")


class BetweenBytesTimeout(StreamToolsError, TimeoutError):
    """No byte of an answer arrived for `seconds`, the value of `Timeouts.between_bytes`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no data arrived for {seconds:g} s")
        self.seconds = seconds


class HTTPClient(Protocol):
    """An asynchronous HTTP client with the `stream` of httpx and httpx2."""

    @property
    def stream(self) -> Callable[..., Any]:
        """Returns an asynchronous context manager of a response with `status_code`, `headers` and `aiter_bytes`."""


@dataclass(frozen=True)
class ModelRequest:
    """A request to a provider, with the format of its answer and the limits for sending it."""

    url: str = field(repr=False)  # may contain a password or a key, like the headers
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    format: str
    timeouts: Timeouts
    retries: int
    with_whole_history: Callable[[], ModelRequest] | None = field(default=None, repr=False)
    """Returns the same request with the whole history. None if this request already contains the whole history.

    It is called if the provider no longer has the earlier response that this request names."""


class ModelResponse:
    """A provider's response, from which a `Source` reads.

    `read_first` reads the first bytes before the source exists. `aiter_bytes` applies a timeout to each later read.
    """

    def __init__(self, opened: AbstractAsyncContextManager[Any], response: Any, between_bytes: float) -> None:
        self.status_code: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.url = getattr(response, "url", None)
        self._opened = opened
        self._transport = Transport(response)
        self._between_bytes = between_bytes
        self._first_bytes: bytes | None = None
        self._closed = False

    async def read_first(self) -> None:
        self._first_bytes = await anext(self._transport, None)

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the decoded bytes of the body. Raises `BetweenBytesTimeout` after the timeout."""
        if self._first_bytes is not None:
            yield self._first_bytes
        while True:
            chunk = None
            with anyio.move_on_after(self._between_bytes) as scope:
                chunk = await anext(self._transport, None)
            if scope.cancelled_caught:
                raise BetweenBytesTimeout(self._between_bytes)
            if chunk is None:
                return
            yield chunk

    async def aclose(self) -> None:
        """Close the response. May be called more than once."""
        if self._closed:
            return
        self._closed = True
        with anyio.move_on_after(CLOSING_TIMEOUT, shield=True):
            await self._transport.aclose()
            await self._opened.__aexit__(None, None, None)


class Attempt(NamedTuple):
    """The result of one attempt to send a request."""

    answer: ModelResponse | SourceError
    may_retry: bool = False
    retry_after: float | None = None
    """The wait before another attempt that the provider requests, in seconds; None if it requests none."""


class Sending:
    """An asynchronous context manager that sends one request.

    On entry, it sends the request and returns the source of the answer. If the request fails, this source contains only
    an error event. On exit, it closes the response. If `client` is None, it also creates an HTTP client on entry and
    closes it on exit.
    """

    def __init__(self, request: ModelRequest, client: HTTPClient | None) -> None:
        self._request = request
        self._client = client
        self._own_client: Any = None
        self._response: ModelResponse | None = None
        self._source: Source | None = None

    async def __aenter__(self) -> Source:
        try:
            if self._client is None:
                self._client = self._own_client = _new_client()
            answer = await self._send()
            if isinstance(answer, SourceError):
                self._source = events([answer])
            else:
                self._source = Source(answer, adapter(self._request.format))
        except BaseException:
            await self._close()
            raise
        return self._source

    async def __aexit__(self, *raised: object) -> None:
        await self._close()

    async def _send(self) -> ModelResponse | SourceError:
        """Send the request, with retries. If the provider lacks the earlier response, also send the whole history."""
        retrying = AsyncRetrying(
            sleep=anyio.sleep,
            stop=stop_after_attempt(1 + self._request.retries),
            wait=_wait_before_retry,
            retry=retry_if_result(lambda attempt: attempt.may_retry),
            before_sleep=self._before_retry,
            retry_error_callback=_attempt_of,
        )
        attempt: Attempt = await retrying(self._attempt)
        answer, with_whole_history = attempt.answer, self._request.with_whole_history
        if (
            with_whole_history is not None
            and isinstance(answer, ModelResponse)
            and answer.status_code in _UNKNOWN_RESPONSE_STATUSES
        ):
            log.info("whole_history_sent", status=answer.status_code)
            await self._drop_response()
            self._request = await anyio.to_thread.run_sync(with_whole_history)  # a long history takes long to write
            return await self._send()
        return answer

    async def _attempt(self) -> Attempt:
        """Send the request once, and wait for the first byte of the answer."""
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
            raise TypeError(f"{type(self._client)!r} is not an asynchronous HTTP client")
        with anyio.move_on_after(timeouts.first_byte):
            try:
                raw = await opened.__aenter__()
                try:
                    response = self._response = ModelResponse(opened, raw, timeouts.between_bytes)
                except BaseException:  # the client returned an object that is not a valid response
                    await opened.__aexit__(None, None, None)
                    raise
                if 300 <= response.status_code < 400 and "location" in response.headers:
                    return Attempt(await self._redirected(response))
                if not _is_encoded_as_accepted(response.headers, request.headers):
                    await self._drop_response()
                    return Attempt(SourceError(NOT_ACCEPTED, status=response.status_code, url=shown_url(request.url)))
                if not 200 <= response.status_code < 300:
                    return _refused(response)
                await response.read_first()
            except Exception as error:
                kinds = {kind.__name__ for kind in type(error).__mro__}
                if not isinstance(error, OSError) and "RequestError" not in kinds:
                    raise
                failed = SourceError("the provider could not be reached", cause=name_of(error))
                if self._response is not None:
                    failed = interrupted(name_of(error))
                    await self._drop_response()
                failed = msgspec.structs.replace(failed, url=shown_url(request.url))
                return Attempt(failed, not kinds & {"LocalProtocolError", "UnsupportedProtocol", "DecodingError"})
            return Attempt(response)
        await self._drop_response()
        message = f"the provider did not answer within {timeouts.first_byte:g} s"
        return Attempt(SourceError(message, cause="first_byte", url=shown_url(request.url)))

    async def _redirected(self, response: ModelResponse) -> SourceError:
        """Return the error for a redirect, which is not followed. Its message names only the host of the target."""
        await self._drop_response()
        try:
            target = urlsplit(urljoin(self._request.url, response.headers["location"]))
            host = f"{target.scheme}://{target.netloc.rpartition('@')[2]}"
        except ValueError:
            host = ""
        shown = host if host and host.isprintable() and len(host) < 300 else "another address"
        message, url = f"the provider redirects to {shown}; nothing was sent there", shown_url(self._request.url)
        return SourceError(message, status=response.status_code, url=url)

    async def _before_retry(self, state: RetryCallState) -> None:
        """Close the response of a failed attempt."""
        answer = _attempt_of(state).answer
        status = answer.status_code if isinstance(answer, ModelResponse) else None
        log.info("request_sent_again", attempt=state.attempt_number, status=status, wait=round(state.upcoming_sleep, 3))
        if (observed := observing.observed_run()) is not None:
            observed.request_retried()
        await self._drop_response()

    async def _drop_response(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    async def _close(self) -> None:
        with anyio.move_on_after(CLOSING_TIMEOUT, shield=True):
            if self._source is not None:
                await self._source.aclose()
            await self._drop_response()
            if self._own_client is not None:
                await self._own_client.aclose()


def _new_client() -> Any:
    import httpx  # importing it takes longer than the rest of the package, and many applications pass their own client

    return httpx.AsyncClient(verify=_ssl_context())


@cache
def _ssl_context() -> Any:
    """Return the SSL context that all clients share. By default, each new httpx client spends 25 ms on its context."""
    import httpx

    return httpx.create_ssl_context()


def _attempt_of(state: RetryCallState) -> Attempt:
    assert state.outcome is not None
    attempt: Attempt = state.outcome.result()
    return attempt


def _wait_before_retry(state: RetryCallState) -> float:
    if (retry_after := _attempt_of(state).retry_after) is not None:
        return retry_after
    backoff = wait_exponential(multiplier=BACKOFF, max=LONGEST_BACKOFF) + wait_random(max=BACKOFF)
    return backoff(state)


def _refused(response: ModelResponse) -> Attempt:
    """Return the attempt for a response with an error status. It allows a retry if the error may be temporary."""
    retry_after = _retry_after(response.headers)
    may_retry = response.status_code in _RETRYABLE_STATUSES or response.status_code >= 500
    advice = response.headers.get("x-should-retry")  # OpenAI and Anthropic send it, and it overrides the status
    if advice in ("true", "false"):
        may_retry = advice == "true"
    return Attempt(response, may_retry and (retry_after or 0.0) <= LONGEST_RETRY_AFTER, retry_after)


def _is_encoded_as_accepted(headers: Mapping[str, str], sent: Mapping[str, str]) -> bool:
    accepted = next((value for name, value in sent.items() if name.lower() == "accept-encoding"), "")
    names = [name.strip().lower() for name in headers.get("content-encoding", "").split(",")]
    encodings = [name for name in names if name not in ("", "identity")]
    return not encodings or (len(encodings) == 1 and encodings[0] in re.split(r"[\s,;]+", accepted.lower()))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the wait that a provider requests, in seconds, or None if it requests none."""
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
