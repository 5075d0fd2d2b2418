"""The gateway in front of any client: an ASGI application with tools for a model that writes its calls into the text.

    POST /v1/chat/completions, /v1/responses, /v1/messages
    POST /v1/messages/count_tokens      where the upstream can count
    POST /v1/embeddings, /v1/completions, /v1/audio/…; GET /v1/models, /v1/models/{id}      as they are
    GET  /health                        open to all
    GET  /metrics, /                    for Prometheus, and for people

Needs the extra `web`.
"""

from __future__ import annotations

import re
import secrets
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, TypeVar, Unpack
from urllib.parse import quote

import httpx
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamtools.gateway.addresses import CLIENTS, JSON, UNREAD, as_bytes, headers_for, holds_text, path_below
from streamtools.gateway.client_requests import Client
from streamtools.gateway.counters import STYLE, Counters
from streamtools.gateway.delivery import LEAST, Delivery, Passing, Route, attended, below, read_whole, without_key
from streamtools.gateway.exchange import Exchange
from streamtools.gateway.rewrite import Rewrite
from streamtools.gateway.settings import RewriteOptions
from streamtools.gateway.upstream_requests import Upstream, UpstreamRequest
from streamtools.outputs.whole_answers import write_fault
from streamtools.recording import RecordingTransport
from streamtools.recording.file_writer import Target
from streamtools.serving.guard import Guard, digest, is_here
from streamtools.serving.requests import read_body
from streamtools.serving.shutdown import RETRY_AFTER, Shutdown, shutdown_signal
from streamtools.stream.long_work import one_at_a_time

__all__ = ["app"]

MAX_BODY = 32 * 1024 * 1024
"""Bytes of a request's body, which may hold images."""

PASSED = ("/v1/embeddings", "/v1/completions", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations")
"""Paths whose requests and answers pass as they are."""

_LATER = {"retry-after": str(RETRY_AFTER)}
_Made = TypeVar("_Made")
_FORMS = PASSED[-2:]  # which take files
_ASKED: dict[str, Client] = {f"/v1{path.removeprefix('/v1')}": client for path, client in CLIENTS.items()}
_COUNT = "/v1/messages/count_tokens"
_KEPT = ("/v1/responses/", "/v1/conversations")
_MODELS = "/v1/models"
_MODEL = re.compile(rf"{_MODELS}/(?!(?:.*[/\\])?\.{{1,2}}(?:[/\\;]|\Z)).+")
"""A name that holds no segment of dots, which leads elsewhere at an upstream that decodes slashes first."""
_ORIGIN = re.compile(r"https?://[^/*\s]+")
_PASSED_HEADERS = {
    *("accept", "authorization", "user-agent", "x-api-key", "x-request-id", "idempotency-key", "traceparent"),
}
"""Headers of the client's that the upstream is sent, beside OpenAI's own."""


def app(
    upstream: str,
    *,
    api: Upstream = "openai",
    rewrite: Rewrite | None = None,
    key: str | None = None,
    client_key: str | None = None,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    record: Target | None = None,
    max_body: int = MAX_BODY,
    max_running: int = 256,
    timeout: float = 600.0,
    longest: float = 3600.0,
    keep_alive: float | None = 15.0,
    send_timeout: float = 60.0,
    drain: float = 0.0,
    **options: Unpack[RewriteOptions],
) -> ASGIApp:
    """Return an ASGI application that asks `upstream`, such as `http://127.0.0.1:8080/v1`, and its `fallbacks`.

    The `options` are parameters of `Rewrite`, in whose place a `rewrite` may be given; `api` is its `upstream`. `key`
    is sent upstream in place of the client's; `client_key` is what clients have to send then, unless all of them are on
    this machine, and is never passed on. `hosts` are the names under which the gateway is asked, beside `localhost` and
    addresses; `origins` the pages elsewhere that may ask. `record` is the path of a recording, without keys, of what
    the upstream is asked and answers. A body has `max_body` bytes at most, and `max_running` requests are answered at a
    time; `timeout` is the silence of the upstream in seconds, `longest` a whole answer, `keep_alive` and `send_timeout`
    those of `event_stream_response`, and `drain` what answers have left when the server ends. Raises ValueError for a
    value that is not allowed, OSError for a recording that cannot be written.
    """
    rewrite = rewrite or Rewrite(upstream=api, **options)
    url = httpx.URL(upstream)
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ValueError("upstream is a URL such as http://127.0.0.1:8080/v1, without a key or a query")
    if wrong := next((each for each in origins if not _ORIGIN.fullmatch(each)), None):
        raise ValueError(f"origins are those of pages, such as https://example.org, and not {wrong!r}")
    for name, value in (("key", key), ("client_key", client_key)):
        if value is not None and not (value and value.isascii() and value.isprintable() and " " not in value):
            raise ValueError(f"{name} is empty, or holds what no header takes")
    limits = max_body, max_running, timeout, longest, keep_alive, send_timeout, drain
    inner: ASGIApp = _Gateway(rewrite, url, key, client_key, record, *limits)
    if origins:
        inner = CORSMiddleware(inner, allow_origins=[*origins], allow_methods=["GET", "POST"], allow_headers=["*"])
    policy = (
        f"default-src 'none'; style-src {digest(STYLE)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Guard(
        inner,
        policy=policy,
        max_body=max_body,
        hosts=hosts,
        origins=origins,
        forms=_FORMS,
        refusal=partial(_refuse, "openai"),
    )


@dataclass(eq=False, repr=False)
class _Gateway:
    rewrite: Rewrite
    upstream: httpx.URL
    key: str | None
    client_key: str | None
    record: Target | None
    max_body: int
    max_running: int
    timeout: float
    longest: float
    keep_alive: float | None
    send_timeout: float
    drain: float

    def __post_init__(self) -> None:
        keys = (self.key, *(each.key for each in self.rewrite.fallbacks))
        self._keys = [each for each in keys if each is not None]  # of the upstream and its fallbacks
        self._counters = Counters()
        self._see = one_at_a_time(self._counters.see)  # long answers are read in threads
        self._shutdown: Shutdown | None = None
        self._reading = 0  # requests whose bodies come
        transport: Any = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(max_connections=self.max_running, max_keepalive_connections=20)
        )
        if self.record is not None:
            transport = RecordingTransport(transport, self.record)
        waits = httpx.Timeout(self.timeout, connect=min(10.0, self.timeout))
        self._others = Starlette(lifespan=self.lifespan)
        self._client = httpx.AsyncClient(transport=transport, timeout=waits, trust_env=False)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Hold the connections, and hear of the server's end."""
        async with self._client, shutdown_signal(drain=self.drain) as self._shutdown:
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._others(scope, receive, send)
            return
        request = Request(scope, receive)
        method, path = scope["method"], path_below(scope)
        client = _ASKED.get(path) if method == "POST" else None
        form: Client = "anthropic" if path.startswith("/v1/messages") else client or "openai"
        if (method, path) == ("GET", "/health"):
            await PlainTextResponse("ok\n")(scope, receive, send)
            return
        kind = path.removeprefix("/v1/")
        if refused := self._forbidden(request, form):
            await refused(scope, receive, send)
        elif (method, path) == ("GET", "/metrics"):
            text = PlainTextResponse(self._counters.metrics(), media_type="text/plain; version=0.0.4")
            await text(scope, receive, send)
        elif (method, path) == ("GET", "/"):
            await HTMLResponse(self._counters.page(str(self.upstream)))(scope, receive, send)
        elif client is not None:
            begin = partial(self.rewrite.begin, client, host=self.upstream.host, watch=self._see)
            await self._answer(kind, form, request, partial(self._begin, begin), send)
        elif (method, path) == ("POST", _COUNT):
            await self._answer(kind, form, request, self._count, send)
        elif method == "POST" and path in PASSED:
            await self._answer(kind, form, request, partial(self._pass, kind), send)
        elif method == "GET" and (path == _MODELS or _MODEL.fullmatch(path)):
            name = path.removeprefix(_MODELS).removeprefix("/")
            endpoint = f"models/{quote(name, safe='')}" if name else "models"
            await self._answer("models", form, request, partial(self._pass, endpoint), send)
        elif path.startswith(_KEPT):
            why = "nothing is kept between requests: send the items of the conversation in `input`, each time"
            await _refuse(form, 400, why)(scope, receive, send)
        else:
            why = f"the gateway has no {method} {path[:100]}; what it has is in its documentation"
            await _refuse(form, 404, why)(scope, receive, send)

    def _forbidden(self, request: Request, form: Client) -> Response | None:
        """Return the refusal of a client that has no right to ask."""
        if self.client_key is None:
            if not self._keys or is_here(request.client):
                return None
            return _refuse(form, 403, "this gateway has a key of its own, and answers this machine alone")
        given = [request.headers.get("x-api-key", "")]
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given.append(rest.strip())
        elif scheme.lower() == "basic":  # of a browser, for the status page; the user's name is any
            with suppress(ValueError):
                given.append(b64decode(rest, validate=True).decode().partition(":")[2])
        if any(secrets.compare_digest(each.encode(), self.client_key.encode()) for each in given):
            return None
        refused = _refuse(form, 401, "the key is not that of this gateway")
        refused.headers["www-authenticate"] = "Basic" if path_below(request.scope) in ("/", "/metrics") else "Bearer"
        return refused

    async def _answer(
        self, kind: str, form: Client, request: Request, answer: Callable[[Request, Send], Awaitable[int]], send: Send
    ) -> None:
        """Answer within the limits, and count it."""
        counters = self._counters
        counters.running += 1
        status = 500
        try:
            if self._shutdown is not None and self._shutdown.begun:
                raise HTTPException(503, "the server is about to end", _LATER)
            self._keep_place()
            status = await answer(request, send)
        except HTTPException as error:
            status = error.status_code
            refused = _refuse(form, status, error.detail)
            refused.headers.update(error.headers or {})
            await refused(request.scope, request.receive, send)
        finally:
            counters.running -= 1
            counters.requests[kind, status] += 1

    def _keep_place(self) -> None:
        """Raise HTTPException if there is none for a request that has taken one."""
        if self._counters.running > self.max_running:
            raise HTTPException(503, "too many requests are being answered at the same time", _LATER)

    async def _read(self, request: Request, read: Callable[[bytes], _Made], **options: Any) -> _Made:
        """Return what `read` makes of a body. While that comes, its request has no place among those that are answered:
        slow clients wait among themselves, four for each place.
        """
        if self._reading >= 4 * self.max_running:
            raise HTTPException(503, "too many requests are being read at the same time", _LATER)
        self._reading += 1
        self._counters.running -= 1
        try:
            made = await read_body(request, read, max_body=self.max_body, **options)
        finally:
            self._reading -= 1
            self._counters.running += 1
        self._keep_place()
        return made

    async def _begin(self, begin: Callable[[bytes], Exchange], request: Request, send: Send) -> int:
        def read(body: bytes) -> tuple[Exchange, bool]:
            exchange = begin(body)
            return exchange, exchange.request is not None and exchange.request.body is body

        started = monotonic()
        exchange, untouched = await self._read(request, read)
        if exchange.request is None:
            body = exchange.close()
            assert exchange.head is not None
            refused = Response(body, exchange.head.status, dict(exchange.head.headers))
            await refused(request.scope, request.receive, send)
            return exchange.head.status
        delivery = Delivery(exchange, self._route(request, exchange.client), untouched=untouched)
        status = await self._deliver(delivery, request, send)
        if delivery.first is not None:
            self._counters.first_token(delivery.first - started)
        return status

    async def _pass(self, endpoint: str, request: Request, send: Send) -> int:
        """Answer with what the upstream answers, if that is no text that rules and a judge are to read."""
        if (self.rewrite.text_rules or self.rewrite.text_judge) and holds_text(f"/{endpoint}"):
            raise HTTPException(400, UNREAD)
        body = await self._read(request, bytes, max_values=None) if request.method == "POST" else b""
        route = self._route(request, "openai")._replace(method=request.method)
        return await self._deliver(Delivery(Passing(endpoint, body), route, untouched=True), request, send)

    async def _deliver(self, delivery: Delivery, request: Request, send: Send) -> int:
        for key in self._keys:
            if len(key) >= LEAST:
                send = without_key(send, key.encode())
        await delivery.run(
            request.receive, send, self._shutdown, keep_alive=self.keep_alive, send_timeout=self.send_timeout
        )
        return delivery.status

    async def _count(self, request: Request, send: Send) -> int:
        """Count the tokens of what the model would be asked, where the upstream has its template and its tokens."""

        def read(body: bytes) -> Exchange:
            asked = msgspec.json.decode(body, type=dict[str, Any])
            return self.rewrite.begin(
                "anthropic", msgspec.json.encode({**asked, "max_tokens": 1}), host=self.upstream.host
            )

        exchange = await self._read(request, read)
        wanted = exchange.request
        if wanted is None:
            raise HTTPException(400, str(msgspec.json.decode(exchange.close())["error"]["message"]))
        if wanted.endpoint not in ("apply-template", "tokenize"):
            raise HTTPException(404, "the upstream has no tokens to count; see the option api")
        route = self._route(request, "anthropic")
        made = await attended(partial(self._tokens, route, wanted), request.receive, self._shutdown)
        if not isinstance(tokens := made.get("tokens"), list):
            raise HTTPException(404, "the upstream does not count tokens")
        body = msgspec.json.encode({"input_tokens": len(tokens)})
        await Response(body, media_type=JSON)(request.scope, request.receive, send)
        return 200

    async def _tokens(self, route: Route, wanted: UpstreamRequest) -> dict[str, Any]:
        made = await self._ask(route, wanted.endpoint, wanted.body)
        if wanted.endpoint == "apply-template":
            text = {"content": made.get("prompt"), "add_special": False, "parse_special": True}
            made = await self._ask(route, "tokenize", msgspec.json.encode(text))
        return made

    async def _ask(self, route: Route, endpoint: str, body: bytes) -> dict[str, Any]:
        body = await read_whole(route, endpoint, body, self.rewrite.limits.frame)
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except ValueError as error:
            raise HTTPException(502, f"the upstream does not count tokens: {type(error).__name__}") from None

    def _route(self, request: Request, client: Client) -> Route:
        """Return how the upstream is asked for a client, with whose key."""
        own = self.key is not None or self.client_key is not None
        headers = [
            (name, value)
            for name, value in request.headers.items()
            if (name in _PASSED_HEADERS or name.startswith("openai-"))
            and not (own and name in ("authorization", "x-api-key"))
        ]
        if request.headers.get("authorization", "")[:6].lower() == "basic ":
            headers = [each for each in headers if each[0] != "authorization"]
        kind = request.headers.get("content-type", JSON)
        headers = [each for each in headers_for(client, headers) if each[0] != "content-type"]
        if self.key is not None:
            headers.append(("authorization", f"Bearer {self.key}"))
        headers += [("content-type", kind), ("accept-encoding", "identity")]
        known = [(self.upstream, headers)]
        known += [(httpx.URL(each.url), each.headers(headers)) for each in self.rewrite.fallbacks]
        made = [Route(self._client, partial(below, url), as_bytes(each), self.longest) for url, each in known]
        return made[0]._replace(fallbacks=made[1:])


def _refuse(form: str, status: int, message: str) -> Response:
    return Response(write_fault(form, status, message), status, media_type=JSON)
