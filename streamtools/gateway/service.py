"""Provides the gateway as an ASGI application, for clients in any language.

The gateway forwards requests to an upstream whose model writes its calls as text, and returns native calls. Its paths:

    POST /v1/chat/completions, /v1/responses, /v1/messages      requests and answers are converted
    POST /v1/embeddings, /v1/completions, /v1/audio/speech      forwarded unchanged
    GET  /v1/models, /v1/models/{id}                            forwarded unchanged
    GET  /health                                                needs no key
    GET  /metrics                                               metrics for Prometheus

Requires the extra `web`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy
from threading import Lock
from typing import Any, TypeAlias, TypeVar, Unpack
from urllib.parse import quote

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamtools.errors import check_names, check_number
from streamtools.events import UIEvent
from streamtools.gateway import http
from streamtools.gateway.client_requests import Client
from streamtools.gateway.delivery import SHORTEST_SECRET, Delivery, Route, url_below, without_key
from streamtools.gateway.exchange import PassThrough, Rewrite
from streamtools.gateway.metrics import Metrics
from streamtools.gateway.settings import RewriteOptions, check_address
from streamtools.outputs.non_streaming import error_body
from streamtools.recording import RecordingTransport
from streamtools.recording.files import RecordingTarget
from streamtools.serving.guard import Guard, is_local
from streamtools.serving.requests import read_body
from streamtools.serving.shutdown import RETRY_AFTER, Shutdown, shutdown_signal

__all__ = ["app"]

MAX_BODY = 32 * 1024 * 1024
"""The maximum size of a request's body, in bytes. A body may contain images."""

UNCHANGED = ("/v1/embeddings", "/v1/completions", "/v1/audio/speech")
"""Paths of POST requests that are forwarded unchanged, with unchanged answers."""

_RETRY_LATER = {"retry-after": str(RETRY_AFTER)}
_Read = TypeVar("_Read")
_Answer: TypeAlias = Callable[[Request, Send], Awaitable[int]]
_REWRITTEN: dict[str, Client] = {f"/v1{path.removeprefix('/v1')}": client for path, client in http.CLIENTS.items()}
_MODELS = "/v1/models"
_MODEL = re.compile(rf"{_MODELS}/(?!(?:.*[/\\])?\.{{1,2}}(?:[/\\;]|\Z)).+")
"""The path of one model. The name of the model must not have a segment `.` or `..`.

Upstreams that decode `%2F` before they resolve the path would resolve such a name to another path."""
_ORIGIN = re.compile(r"https?://[^/*\s]+")
_PASSED_HEADERS = {
    "accept", "authorization", "user-agent", "x-api-key", "x-request-id", "idempotency-key", "traceparent",
}  # fmt: skip
"""Headers of the client that are forwarded to the upstream. So are headers that begin with `openai-`."""


def app(
    upstream: str,
    *,
    rewrite: Rewrite | None = None,
    key: str | None = None,
    client_key: str | None = None,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    record: RecordingTarget | None = None,
    max_body: int = MAX_BODY,
    max_running: int = 256,
    timeout: float = 600.0,
    longest: float = 3600.0,
    keep_alive: float | None = 15.0,
    send_timeout: float = 60.0,
    max_rate: float | None = None,
    drain: float = 0.0,
    **options: Unpack[RewriteOptions],
) -> ASGIApp:
    """Return an ASGI application that forwards requests to `upstream`, such as `http://127.0.0.1:8080/v1`.

    Settings of the rewriting:

    - `options` are the parameters of `Rewrite`. With `rewrite`, an existing `Rewrite` is used instead.

    Access:

    - `key` is sent to the upstream instead of the client's key. If `key` or the key of a fallback is set without
      `client_key`, only clients on this machine are served.
    - `client_key` is the key that clients must send to the gateway. It is never forwarded.
    - `hosts` are the host names under which clients reach the gateway. `localhost` and IP addresses are always
      included. Requests with any other `Host` header are refused.
    - `origins` are the origins of web pages on other sites that may send requests.

    Limits:

    - `max_body` is the maximum size of a request's body, in bytes.
    - `max_running` is the maximum number of requests that are answered at the same time.
    - `timeout` is the maximum time in which the upstream sends no bytes, in seconds.
    - `longest` is the maximum time for a whole answer, in seconds.
    - `keep_alive`: after that many seconds without data, a comment is sent to the client. None means never.
    - `send_timeout`: a client that accepts no data for that many seconds is treated as disconnected.
    - `max_rate`: after the first text, the upstream is read that many times a second, at least 10. None means that each
      token is sent without delay.
    - `drain` is the time in which running answers may complete when the server shuts down, in seconds.

    `record` is the path of a file in which the upstream's answers are recorded, without keys and without the bodies of
    requests. Raises ValueError for a value that is not allowed, and OSError for a recording that cannot be written.
    """
    check_names("app()", options, [*RewriteOptions.__annotations__, *(app.__kwdefaults__ or ())])
    rewrite = rewrite or Rewrite(**options)
    check_address("upstream", upstream, key=key, client_key=client_key)
    if wrong := next((origin for origin in origins if not _ORIGIN.fullmatch(origin)), None):
        raise ValueError(f"`origins` must be origins of pages, such as https://example.org, got {wrong!r}.")
    limits = max_body, max_running, timeout, longest, keep_alive, send_timeout, max_rate, drain
    inner: ASGIApp = _Gateway(rewrite, httpx.URL(upstream), key, client_key, record, *limits)
    if origins:
        inner = CORSMiddleware(inner, allow_origins=[*origins], allow_methods=["GET", "POST"], allow_headers=["*"])
    return Guard(
        inner,
        policy="default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        max_body=max_body,
        hosts=hosts,
        origins=origins,
        refusal=partial(_refuse, "openai"),
    )


@dataclass(eq=False, repr=False)
class _Gateway:
    rewrite: Rewrite
    upstream: httpx.URL
    key: str | None
    client_key: str | None
    record: RecordingTarget | None
    max_body: int
    max_running: int
    timeout: float
    longest: float
    keep_alive: float | None
    send_timeout: float
    max_rate: float | None
    drain: float

    def __post_init__(self) -> None:
        check_number("max_rate", self.max_rate, 10, optional=True)
        keys = (self.key, *(fallback.key for fallback in self.rewrite.fallbacks))
        self._keys = [key for key in keys if key is not None]  # the keys of the upstreams; they are hidden in answers
        self._metrics = Metrics()
        self._recording = Lock()
        self._shutdown: Shutdown | None = None
        self._reading = 0  # requests whose bodies are being read
        transport: Any = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(max_connections=self.max_running, max_keepalive_connections=20)
        )
        if self.record is not None:
            transport = RecordingTransport(transport, self.record)
        timeouts = httpx.Timeout(self.timeout, connect=min(10.0, self.timeout))
        self._lifespan_app = Starlette(lifespan=self.lifespan)
        cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # a client's cookies must not reach other clients
        self._client = httpx.AsyncClient(transport=transport, timeout=timeouts, trust_env=False, cookies=cookies)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Keep the connections to the upstream open, and watch for the shutdown of the server."""
        async with self._client, shutdown_signal(drain=self.drain) as self._shutdown:
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._lifespan_app(scope, receive, send)
            return
        request = Request(scope, receive)
        method, path = scope["method"], http.mounted_path(scope)
        client_api = _REWRITTEN.get(path) if method == "POST" else None
        error_format: Client = "anthropic" if path.startswith("/v1/messages") else client_api or "openai"
        if (method, path) == ("GET", "/health"):
            await PlainTextResponse("ok\n")(scope, receive, send)
            return
        kind = path.removeprefix("/v1/")
        if refused := self._forbidden(request, error_format):
            await refused(scope, receive, send)
        elif (method, path) == ("GET", "/metrics"):
            text = PlainTextResponse(self._metrics.prometheus(), media_type="text/plain; version=0.0.4")
            await text(scope, receive, send)
        elif client_api is not None:
            await self._answer(kind, error_format, request, partial(self._answer_rewritten, client_api), send)
        elif method == "POST" and path in UNCHANGED:
            await self._answer(kind, error_format, request, partial(self._forward, kind), send)
        elif method == "GET" and (path == _MODELS or _MODEL.fullmatch(path)):
            name = path.removeprefix(_MODELS).removeprefix("/")
            endpoint = f"models/{quote(name, safe='')}" if name else "models"
            await self._answer("models", error_format, request, partial(self._forward, endpoint), send)
        else:
            message = f"the gateway has no {method} {path[:100]}; its documentation lists its paths"
            await _refuse(error_format, 404, message)(scope, receive, send)

    def _forbidden(self, request: Request, error_format: Client) -> Response | None:
        """Return an error response if the client is not authorized, else None."""
        if self.client_key is None:
            if not self._keys or is_local(request.client):
                return None
            return _refuse(error_format, 403, "the gateway adds a key to requests, so it serves only its own machine")
        given = [request.headers.get("x-api-key", "")]
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given.append(rest.strip())
        if any(secrets.compare_digest(key.encode(), self.client_key.encode()) for key in given):
            return None
        refused = _refuse(error_format, 401, "the request has no valid key of the gateway")
        refused.headers["www-authenticate"] = "Bearer"
        return refused

    async def _answer(self, kind: str, error_format: Client, request: Request, answer: _Answer, send: Send) -> None:
        """Call `answer` if the limits allow it, and count the request in the metrics under the endpoint `kind`.

        `error_format` is the format of error bodies.
        """
        metrics = self._metrics
        metrics.running += 1
        status = 500
        try:
            if self._shutdown is not None and self._shutdown.begun:
                raise HTTPException(503, "the server is shutting down", _RETRY_LATER)
            self._check_running()
            status = await answer(request, send)
        except HTTPException as error:
            status = error.status_code
            refused = _refuse(error_format, status, error.detail)
            refused.headers.update(error.headers or {})
            await refused(request.scope, request.receive, send)
        finally:
            metrics.running -= 1
            metrics.count("requests", kind, str(status))

    def _check_running(self) -> None:
        """Raise HTTPException if too many requests are being answered."""
        if self._metrics.running > self.max_running:
            raise HTTPException(503, "too many requests are being answered at the same time", _RETRY_LATER)

    async def _read(self, request: Request, read: Callable[[bytes], _Read], **options: Any) -> _Read:
        """Read the body of a request, and return the result of `read` for it.

        While the body is being read, the request does not count against `max_running`, so that slow clients cannot
        block other clients. At most four times `max_running` bodies may be read at the same time.
        """
        if self._reading >= 4 * self.max_running:
            raise HTTPException(503, "too many requests are being read at the same time", _RETRY_LATER)
        self._reading += 1
        self._metrics.running -= 1
        try:
            result = await read_body(request, read, max_body=self.max_body, **options)
        finally:
            self._reading -= 1
            self._metrics.running += 1
        self._check_running()
        return result

    async def _answer_rewritten(self, client_api: Client, request: Request, send: Send) -> int:
        """Rewrite a request that is in the format `client_api`, and then its answer. Returns the status."""
        begin = partial(self.rewrite.begin, client_api, host=self.upstream.host, watch=self._count_event)
        exchange = await self._read(request, begin)
        delivery = Delivery(exchange, self._route(request, client_api), max_rate=self.max_rate)
        return await self._deliver(delivery, request, send)

    def _count_event(self, event: UIEvent) -> None:
        """Count an event of an answer. May be called in any thread, because threads read long answers."""
        with self._recording:
            self._metrics.record(event)

    async def _forward(self, endpoint: str, request: Request, send: Send) -> int:
        """Forward a request and its answer unchanged. Returns the status.

        Raises HTTPException if `Rewrite.may_forward` does not allow it.
        """
        if not self.rewrite.may_forward(request.method, f"/{endpoint}"):
            raise HTTPException(400, http.UNREAD)
        body = await self._read(request, bytes, max_values=None) if request.method == "POST" else b""
        route = self._route(request, "openai")._replace(method=request.method)
        return await self._deliver(Delivery(PassThrough("openai", endpoint, body), route), request, send)

    async def _deliver(self, delivery: Delivery, request: Request, send: Send) -> int:
        for key in self._keys:
            if len(key) >= SHORTEST_SECRET:
                send = without_key(send, key.encode())
        await delivery.run(
            request.receive, send, self._shutdown, keep_alive=self.keep_alive, send_timeout=self.send_timeout
        )
        return delivery.status

    def _route(self, request: Request, client_api: Client) -> Route:
        """Return the route to the upstream and to its fallbacks, with the headers and keys for this request."""
        hides_client_key = self.key is not None or self.client_key is not None
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if (name in _PASSED_HEADERS or name.startswith("openai-"))
            and not (hides_client_key and name in ("authorization", "x-api-key"))
        ]
        headers = http.headers_for(client_api, headers, request.headers.get("content-type", http.JSON))
        if self.key is not None:
            headers.append(("authorization", f"Bearer {self.key}"))
        headers.append(("accept-encoding", "identity"))
        upstreams = [(self.upstream, headers)]
        upstreams += [(httpx.URL(each.url), each.headers(headers)) for each in self.rewrite.fallbacks]
        first, *others = (
            Route(self._client, partial(url_below, url), http.encode_headers(sent), self.longest)
            for url, sent in upstreams
        )
        return first._replace(fallbacks=others)


def _refuse(error_format: str, status: int, message: str) -> Response:
    return Response(error_body(error_format, status, message), status, media_type=http.JSON)
