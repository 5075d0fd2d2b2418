"""`HTTPModel`, the base class of all models that are called over HTTP.

A model object holds no connection and no state between requests. It looks up the key for each request, and sends the
key in a header to the host of `base_url`. No log, error message or `repr` contains the key.

`send` sends one request, with retries and timeouts, and always closes the response. A failed request is sent again only
if no byte of a successful answer has arrived, because the reader may have seen the bytes. After the timeout
`first_byte`, the request is not sent again, because the provider may still be working on it. Redirects are not
followed, so only the host of the configured URL gets the key.

This module measures the timeouts of reads itself, because HTTP clients apply the same limit to every read. A model may
think for minutes before the first byte. After the first byte, a silence of minutes means a dead connection.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

import anyio
import msgspec

from streamtools.conversation.models.model import Ask, Body, check_body_fields, merge, schema_fields
from streamtools.conversation.models.prefill_fields import PREFILLS, known_prefill, prefill_of
from streamtools.errors import Checked, check_kind, check_methods, check_number
from streamtools.events import SourceError
from streamtools.history import Origin, ReasoningField, SendReasoning
from streamtools.logs import Logger
from streamtools.sources import Source, adapter, events
from streamtools.sources.adapter import interrupted
from streamtools.sources.provider_terms import name_of, names_of, shown_url
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

_ADVICE = "check that the server runs, the host and the port of the URL, and that http or https is right"
NOT_ACCEPTED = "the provider's answer has a content encoding that the request does not accept"
"""The error for a response in a content encoding that the request's `Accept-Encoding` does not list.

HTTP clients decode every encoding that they know, and decode each network chunk completely. With Brotli, Zstandard, or
gzip inside gzip, a chunk of 64 KiB can expand to gigabytes."""


@dataclass(frozen=True, kw_only=True)
class Timeouts(Checked):
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
            limits = timeout, timeout
        elif hasattr(timeout, "connect") and hasattr(timeout, "read"):  # a timeout of httpx or httpx2
            limits = timeout.connect, timeout.read
        else:
            raise TypeError(f"`timeout` must be a Timeouts, a number of seconds, or None, got {timeout!r}.")
        connect, read = (math.inf if limit is None else limit for limit in limits)
        return cls(connect=connect, first_byte=read, between_bytes=read)

    def __post_init__(self) -> None:
        for limit in fields(self):
            check_number(limit.name, getattr(self, limit.name))


class HTTPClient(Protocol):
    """An asynchronous HTTP client with the `stream` of httpx and httpx2."""

    @property
    def stream(self) -> Callable[..., Any]:
        """Returns an asynchronous context manager of a response with `status_code`, `headers` and `aiter_bytes`."""


@dataclass(frozen=True)
class ModelRequest:
    """A request to a provider, with the format of its answer and the limits for sending it."""

    url: str = field(repr=False)  # the URL and the headers may contain a password or a key
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)
    format: str
    timeouts: Timeouts
    retries: int


class ModelResponse:
    """A provider's response, from which a `Source` reads.

    `read_first` reads the first bytes before the source exists. `aiter_bytes` applies a timeout to each later read.
    """

    def __init__(self, response: Any, between_bytes: float) -> None:
        self.status_code: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.url = getattr(response, "url", None)
        self.extensions: Mapping[str, Any] = getattr(response, "extensions", {})
        self.stream = getattr(response, "stream", None)
        self._transport = Transport(response, may_be_read=True)  # mock transports read their responses
        self._between_bytes = between_bytes
        self._first_bytes: bytes | None = None

    async def read_first(self) -> None:
        self._first_bytes = await anext(self._transport, None)

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the decoded bytes of the body. Raises TimeoutError if none arrive in the time `between_bytes`."""
        if self._first_bytes is not None:
            yield self._first_bytes
        while True:
            with anyio.fail_after(self._between_bytes):
                chunk = await anext(self._transport, None)
            if chunk is None:
                return
            yield chunk

    async def aclose(self) -> None:
        """Close the response. May be called more than once."""
        await self._transport.aclose()


class Attempt(NamedTuple):
    """The result of one attempt to send a request."""

    answer: ModelResponse | SourceError
    may_retry: bool = False
    retry_after: float | None = None
    """The wait that the provider requests before another attempt, in seconds. None if it requests no wait."""


@asynccontextmanager
async def send(request: ModelRequest, client: HTTPClient | None) -> AsyncIterator[Source]:
    """Send a request on entry, and close the response on exit.

    Yields the source of the answer. If the request fails, this source contains only an error event. If `client` is
    None, this function also creates an HTTP client, and closes it on exit.
    """
    own_client: Any = _new_client() if client is None else None
    opened = AsyncExitStack()  # closes the response
    source: Source | None = None
    try:
        answer = await _send_with_retries(request, own_client if client is None else client, opened)
        source = events([answer]) if isinstance(answer, SourceError) else Source(answer, adapter(request.format))
        yield source
    finally:
        with anyio.move_on_after(CLOSING_TIMEOUT, shield=True):
            if source is not None:
                await source.aclose()
            with anyio.move_on_after(CLOSING_TIMEOUT, shield=True):  # also if closing the source took too long
                await opened.aclose()
            if own_client is not None:
                await own_client.aclose()


async def _send_with_retries(
    request: ModelRequest, client: HTTPClient, opened: AsyncExitStack
) -> ModelResponse | SourceError:
    """Send a request. `opened` closes the response; that of a failed attempt is closed before the next attempt."""
    number, backoff = 1, BACKOFF
    while True:
        answer, may_retry, retry_after = await _attempt(request, client, opened, number)
        if not may_retry or number > request.retries:
            return answer
        wait = backoff + random.uniform(0, BACKOFF) if retry_after is None else retry_after  # noqa: S311
        status = answer.status_code if isinstance(answer, ModelResponse) else None
        log.info("request_sent_again", attempt=number, status=status, wait=round(wait, 3))
        with anyio.move_on_after(CLOSING_TIMEOUT, shield=True):
            await opened.aclose()
        await anyio.sleep(wait)
        number, backoff = number + 1, min(2 * backoff, LONGEST_BACKOFF)


async def _attempt(request: ModelRequest, client: HTTPClient, opened: AsyncExitStack, number: int) -> Attempt:
    """Send the request once, and wait for the first byte of the answer."""
    timeouts, shown = request.timeouts, shown_url(request.url)
    streamed = client.stream(
        "POST",
        request.url,
        headers=request.headers,
        content=request.content,
        follow_redirects=False,
        timeout=(None if math.isinf(timeouts.connect) else timeouts.connect, None, None, None),
    )
    response: ModelResponse | None = None
    with anyio.move_on_after(timeouts.first_byte):
        try:
            response = ModelResponse(await opened.enter_async_context(streamed), timeouts.between_bytes)
            opened.push_async_callback(response.aclose)
            if 300 <= response.status_code < 400 and "location" in response.headers:
                return Attempt(_redirected(request, response))
            if not _is_encoded_as_accepted(response.headers, request.headers):
                return Attempt(SourceError(NOT_ACCEPTED, status=response.status_code, url=shown))
            if not 200 <= response.status_code < 300:
                return _refused(response)
            await response.read_first()
        except Exception as error:
            kinds = {kind.__name__ for kind in type(error).__mro__}
            # httpx-aiohttp raises the `ClientError` of aiohttp for a malformed response.
            if not (isinstance(error, OSError) or kinds & {"RequestError", "ClientError"}):
                raise
            if response is not None:
                failed = msgspec.structs.replace(interrupted(name_of(error)), url=shown)
            else:
                failed = SourceError("the provider could not be reached", cause=names_of(error), url=shown)
                counted = f"{number} of {request.retries + 1}"
                advice = "no answer in time: raise `timeout` of the model" if "ReadTimeout" in kinds else _ADVICE
                log.warning("provider_not_reached", attempt=counted, cause=failed.cause, url=shown, advice=advice)
            return Attempt(failed, not kinds & {"LocalProtocolError", "UnsupportedProtocol", "DecodingError"})
        return Attempt(response)
    message = f"the provider did not answer within {timeouts.first_byte:g} s"
    return Attempt(SourceError(message, cause="first_byte", url=shown))


def _redirected(request: ModelRequest, response: ModelResponse) -> SourceError:
    """Return the error for a redirect, which is not followed. Its message names only the host of the target."""
    scheme, slashes, rest = response.headers["location"].partition("//")
    host = (shown_url(f"://{rest}") or "").partition("/")[0]
    shown = scheme + slashes + host if host and scheme in ("http:", "https:", "") else "another address"
    message = f"the provider redirects to {shown}; nothing was sent there: set base_url to the final address"
    return SourceError(message, status=response.status_code, url=shown_url(request.url))


def _new_client() -> Any:
    import httpx  # importing it takes longer than the rest of the package, and many applications pass their own client

    return httpx.AsyncClient(verify=_ssl_context())


@cache
def _ssl_context() -> Any:
    """Return the SSL context that all clients share. By default, each new httpx client spends 25 ms on its context."""
    import httpx

    return httpx.create_ssl_context()


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
    """Return the wait that a provider requests, in seconds. Returns None if it requests no wait, or names a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) * unit
            if seconds >= 0 and math.isfinite(seconds):
                return seconds
    return None


DEFAULT_TIMEOUTS = Timeouts()

_NATIVE_HOSTS = {
    "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "aiplatform.googleapis.com",
    "api.mistral.ai", "api.x.ai", "api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn", "api.cohere.ai",
    "api.cohere.com",
}  # fmt: skip
_NATIVE_HOST_ENDINGS = (".openai.azure.com", "-aiplatform.googleapis.com")

Key = str | Callable[[], str] | None


def calls_natively_at(host: str) -> bool:
    """Return whether `host` belongs to a company whose models all make native calls."""
    return host in _NATIVE_HOSTS or host.endswith(_NATIVE_HOST_ENDINGS)


class HTTPModel(Checked, ABC):
    """A model that is called over HTTP.

    - `base_url` is the base URL of the API, or the whole URL of the endpoint. The default is the provider's base URL.
    - `api_key` is the key, or a function that returns the key. If it is None, the key is read from the provider's
      environment variable for each request. With `""`, no key is sent. Without a key for the provider's own server, the
      constructor raises ValueError, unless `client` or `headers` are given, which may add a key.
    - `client` is an asynchronous client of httpx or httpx2, or any object with the same `stream` method. The model
      never closes `client`. If `client` is None, each request creates its own client.
    - `headers` are sent with each request. They replace headers of the same name that the model sets.
    - `native_tool_calls`: True if the server returns calls in its field for calls. Text is then never a call. False if
      it does not: a chat then teaches the model to write calls into its text. None if unknown: both are read. The
      default is True if `base_url` belongs to a company whose models all make native calls. Otherwise it is None.
    - `timeout` is a `Timeouts`, a timeout of httpx, a number of seconds for each limit, or None for no limits.
    - `retries` is the maximum number of times that a failed request is sent again. After a byte of a successful answer
      has arrived, the request is not sent again.
    - `send_reasoning` says which reasoning a request for chat completions includes: the reasoning of exchanges with
      calls (`"with_calls"`), of all exchanges (`"always"`), of the last exchange (`"since_user"`), or of none
      (`"never"`). An exchange is a user message and all messages up to the next user message.
    - `reasoning_field` is the name of the message field in which the host expects reasoning. It is needed for a history
      from a front end, and for a host whose field is not known.
    - `prefill` names a server that can continue the beginning of an answer: `"vllm"`, `"sglang"`, `"llama.cpp"` or
      another key of `PREFILLS`. The default follows from the URL and the format. With `""`, no prefill is sent.
    - `options` are merged into each body. An option of None removes the field from the body.
    """

    format: ClassVar[str]
    """The name of the format of messages and tool definitions, and usually of the adapter that reads answers."""
    _adapter: ClassVar[str] = ""  # the name of the adapter, if it differs from `format`
    _default_base_url: ClassVar[str]  # the provider's base URL
    _endpoint: ClassVar[str]  # the path of the endpoint below the base URL, with its query
    key_names: ClassVar[tuple[str, ...]]
    """Names of environment variables. The first variable that is set contains the key."""
    _key_header: ClassVar[str] = "Authorization"  # the header for the key; `Authorization` adds `Bearer` before the key
    _required_headers: ClassVar[Mapping[str, str]] = {}  # headers that the provider requires in every request

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: Key = None,
        client: HTTPClient | None = None,
        headers: Mapping[str, str] | None = None,
        native_tool_calls: bool | None = None,
        timeout: Timeouts | float | Any = DEFAULT_TIMEOUTS,
        retries: int = 2,
        send_reasoning: SendReasoning = "with_calls",
        reasoning_field: ReasoningField | None = None,
        prefill: str | None = None,
        **options: Any,
    ) -> None:
        """Create a model. Raises ValueError for a value that is not allowed, and TypeError for a wrong type.

        Also raises TypeError for a misspelled parameter, which would otherwise be sent to the provider as an option.
        """
        check_body_fields(type(self), options)
        check_kind("the name of the model", model, str)
        check_kind("base_url", base_url, str, optional=True)
        check_methods("client", client, "an HTTP client, such as httpx.AsyncClient()", "stream", optional=True)
        check_methods("headers", headers, 'a dict, such as {"X-Title": "app"}', "keys", optional=True)
        if hasattr(client, "__enter__"):
            raise TypeError(f"client must be asynchronous, such as httpx.AsyncClient(), got {client!r}")
        if prefill and (prefill not in PREFILLS or self.format not in ("openai", "anthropic")):
            raise ValueError(
                f"`prefill` must be '', or for OpenAI and Anthropic {', '.join(PREFILLS)}; got {prefill!r}"
            )
        check_number("retries", retries, 0)
        self.name = model
        self.url = _join_url(self._default_base_url if base_url is None else base_url, self._path())
        """The URL of requests."""
        if base_url and self._default_base_url.startswith(f"{base_url.rstrip('/')}/"):
            raise ValueError(f"`base_url` lacks a path: leave it out, or write base_url={self._default_base_url!r}")
        if self.url.endswith("/v1/api/chat"):
            raise ValueError("`base_url` must not end with /v1: leave /v1 out, or write OpenAIChat(base_url=...)")
        host = urlsplit(self.url).hostname or ""
        if native_tool_calls is None and calls_natively_at(host):
            native_tool_calls = True
        self.native_tool_calls = native_tool_calls
        self.send_reasoning = send_reasoning
        self.prefill = known_prefill(self.format, self.url) if prefill is None else prefill
        """The key in `PREFILLS` for the server; None or "" if no prefill is sent."""
        self.reasoning_field = reasoning_field
        self.source = self._adapter or self.format
        """The name of the adapter that reads the model's stream."""
        self.origin = Origin(self.format, host or None, model)
        """The origin of the model's turns. Parts of a history that only another origin accepts are not sent."""
        self.options = options
        self._key = api_key
        self._client = client
        self._given_headers = dict(headers or {})
        self._timeouts = Timeouts.of(timeout)
        self._retries = retries
        if not callable(api_key):
            check_kind("api_key", api_key, str, optional=True)
            self._find_key()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} at {shown_url(self.url)}>"

    @abstractmethod
    def body(self, ask: Ask) -> Body:
        """Return the body of the request. Has no side effects."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        An error status, a lost connection or a timeout is an error event of the source. Raises ValueError for a missing
        key and for a key that a header cannot contain, and TypeError for options that are not JSON. The HTTP client may
        raise other exceptions if it is misused.
        """
        return send(self._request(ask), self._client)

    def _request(self, ask: Ask) -> ModelRequest:
        body = self.body(ask)
        if ask.output is not None:
            body = merge(schema_fields(self.format, ask.output), body)
        if ask.prefill and (prefill := prefill_of(self, ask.options)) is not None:
            body = prefill.write(body, ask.prefill)
        try:
            content = msgspec.json.encode(body)
        except UnicodeEncodeError:  # a string contains half of a surrogate pair
            content = json.dumps(body).encode()
        except TypeError as error:
            names = ", ".join({**self.options, **ask.options})
            raise TypeError(f"one of the options {names} is not JSON: {error}") from None
        return ModelRequest(self.url, self._headers(), content, self.source, self._timeouts, self._retries)

    def _path(self) -> str:
        return self._endpoint

    def _find_key(self) -> str:
        """Return the API key, or "" if none is sent. Raises ValueError if the provider requires a key."""
        key = self._key() if callable(self._key) else self._key
        if key is None:
            key = next((found for name in self.key_names if (found := os.environ.get(name))), None)
        at_provider = self._default_base_url.startswith("https:") and self.url.startswith(self._default_base_url)
        # A client or headers of the application may add a key.
        if key is None and at_provider and self._client is None and not self._given_headers:
            names = " or ".join(self.key_names)
            advice = f'set {names}, or pass api_key ("" sends none); for another server, pass base_url'
            raise ValueError(f"{self!r} has no API key: {advice}")
        return (key or "").strip()  # a key from a file may end with a line feed

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate", **self._required_headers}
        key = self._find_key()
        if not key.isascii() or not key.isprintable():
            raise ValueError(f"the API key of {self!r} contains characters that a header cannot contain")
        if key:
            headers[self._key_header] = f"Bearer {key}" if self._key_header == "Authorization" else key
        given = {name.lower() for name in self._given_headers}
        return {name: value for name, value in headers.items() if name.lower() not in given} | self._given_headers


def _join_url(base: str, path: str) -> str:
    """Return the URL of the endpoint `path` below `base`. The query of `base` is kept, because Azure needs it."""
    import httpx  # importing it takes longer than the rest of the package, and only models need it

    try:
        parts = urlsplit(base)
        valid = parts.scheme in ("http", "https") and parts.port != 0 and base.isprintable() and httpx.URL(base).host
    except (httpx.InvalidURL, ValueError):  # httpx raises these, also for host names that DNS does not allow
        valid = False
    if not valid:  # the message does not contain the URL, which may include a secret
        rule = "must begin with http:// or https:// and a host, such as http://127.0.0.1:8000/v1"
        raise ValueError(f"`base_url` {rule}. For the provider's own server, leave it out.")
    path, _, query = path.partition("?")
    whole = parts.path.rstrip("/")
    if not whole.endswith(path):
        whole = (
            whole.removesuffix(f"/{path.split('/')[1]}") + path
        )  # the base URL may contain the first part of the path
    if query in parts.query.split("&"):
        query = ""
    return urlunsplit(parts._replace(path=whole, query="&".join(filter(None, [parts.query, query])), fragment=""))
