"""One exchange of a gateway: the upstream is asked, and the client is sent what that makes of its answer.

The client is sent its status as soon as that is certain. One that leaves, or takes nothing for too long, ends the
request to the upstream; one that is slow slows the reading.

A piece of the upstream's body that had to be waited for is sent at once. HTTP clients hand out what one read of the
network has brought in many pieces, and those behind the first go together, as soon as nothing more is there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from types import coroutine
from typing import Any, NamedTuple, TypeVar

import anyio
import httpx
from anyio.abc import TaskGroup
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Send

from streamtools.gateway.addresses import JSON, ONCE, as_bytes, as_text, is_packed_twice, path_for
from streamtools.gateway.exchange import Exchange
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.outputs.encoder import EVENT_STREAM, KEEP_ALIVE
from streamtools.outputs.whole_answers import write_fault
from streamtools.serving.connection import Outlet, attend
from streamtools.serving.shutdown import RETRY_AFTER, Shutdown
from streamtools.stream.long_work import in_thread, in_thread_if

GONE = 499
"""The status under which a request is counted whose client did not wait for an answer."""

_T = TypeVar("_T")

_OURS = {
    *("accept-ch", "activate-storage-access", "alt-svc", "authorization", "clear-site-data", "critical-ch", "date"),
    *("document-policy", "link", "location", "nel", "origin-agent-cluster", "refresh", "report-to"),
    *("reporting-endpoints", "server", "service-worker-allowed", "set-cookie", "set-login", "sourcemap"),
    *("speculation-rules", "strict-transport-security", "timing-allow-origin", "use-as-dictionary"),
    *("www-authenticate", "x-accel-expires", "x-accel-limit-rate", "x-accel-redirect", "x-lighttpd-send-file"),
    "x-sendfile",
}
"""Headers of the upstream that would say something about this server, to a browser or to a proxy before it."""

_TOGETHER = 16384  # bytes of pieces that may wait for those behind them

LEAST = 16
"""Characters of a key that is overwritten. Shorter ones are often words, where a server of one's own needs no key."""


class Passing(Exchange):
    """A request whose answer passes as it is, and about which nobody is asked."""

    def __init__(self, endpoint: str, body: bytes) -> None:
        self.request = UpstreamRequest(endpoint, body)
        self._untouched, self._held, self._parts = True, bytearray(), []


class Route(NamedTuple):
    """How the upstream is asked: `url` says where an endpoint is."""

    client: httpx.AsyncClient
    url: Callable[[str], httpx.URL]
    headers: list[tuple[bytes, bytes]]
    longest: float
    method: str = "POST"
    fallbacks: Sequence[Route] = ()


def below(upstream: httpx.URL, endpoint: str) -> httpx.URL:
    path = path_for(f"{upstream.path.rstrip('/')}/chat/completions", endpoint)
    return upstream.copy_with(raw_path=path.encode())


async def read_whole(route: Route, endpoint: str, body: bytes, most: int) -> bytes:
    """Return what the upstream answers to be read here: `most` bytes at most, with status 200. Raises HTTPException."""
    held = bytearray()
    try:
        with anyio.fail_after(route.longest):
            asked: dict[str, Any] = {"content": body, "headers": route.headers, "follow_redirects": False}
            async with route.client.stream("POST", route.url(endpoint), **asked) as response:
                status = response.status_code
                if status != 200:
                    raise HTTPException(status if status >= 400 else 502, f"the upstream has no {endpoint} for this")
                if is_packed_twice(as_text(response.headers.raw)):
                    raise HTTPException(502, "the upstream has packed its answer twice")
                async for piece in response.aiter_bytes():
                    held += piece
                    if len(held) > most:
                        raise HTTPException(502, "the upstream's answer is too long")
    except (httpx.RequestError, TimeoutError) as error:
        raise HTTPException(502, f"the upstream does not answer: {type(error).__name__}") from None
    return bytes(held)


async def attended(work: Callable[[], Awaitable[_T]], receive: Receive, shutdown: Shutdown | None) -> _T:
    """Return what `work` does, which ends when its client leaves: HTTPException is raised then, with `GONE`."""
    scope, made = anyio.CancelScope(), list[_T]()

    async def do() -> None:
        with scope:
            made.append(await work())

    async def listen(group: TaskGroup) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def stop() -> None:
        scope.cancel()

    fault = await attend(do, listen=listen, watch=anyio.sleep_forever, leave=lambda: None, shutdown=shutdown, stop=stop)
    if fault is not None:
        raise fault
    if not made and scope.cancel_called:
        raise HTTPException(503, "the server is about to end", {"retry-after": str(RETRY_AFTER)})
    if not made:
        raise HTTPException(GONE, "the client has gone")
    return made[0]


class Delivery:
    """Sends one answer; `untouched` is one whose bytes pass as they are, and which can only break where those do."""

    def __init__(self, exchange: Exchange, route: Route, *, untouched: bool) -> None:
        self.status = GONE
        """The status that the client was told."""
        self.first: float | None = None
        """The clock when the first bytes left; None before."""
        self._exchange = exchange
        self._route = route
        self._untouched = untouched
        self._scope = anyio.CancelScope()
        self._why = HTTPException(504, "the answer takes too long")
        self._begun = self._broken = self._started = self._streams = self._sending = False
        self._outlet: Outlet
        self._waiting: list[bytes] = []  # pieces that are sent together
        self._held = 0  # and their bytes
        self._more = anyio.Event()  # there are some

    async def run(
        self, receive: Receive, send: Send, shutdown: Shutdown | None, *, keep_alive: float | None, send_timeout: float
    ) -> None:
        """Ask and send, until all is sent or the client has gone. Raises what is nobody's fault but ours."""
        outlet = Outlet(send, keep_alive=keep_alive, send_timeout=send_timeout)
        self._outlet = outlet

        async def listen(group: TaskGroup) -> None:
            group.start_soon(self._send_together)
            while (await receive())["type"] != "http.disconnect":
                pass

        async def fill() -> None:
            if self._streams:
                await outlet.put({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

        fault = await attend(
            self._deliver,
            listen=listen,
            watch=lambda: outlet.watch(fill),
            leave=lambda: None,
            shutdown=shutdown,
            stop=self._stop,
        )
        if fault is not None:
            raise fault

    async def _stop(self) -> None:
        self._why = HTTPException(503, "the server is about to end")
        self._scope.cancel()

    async def _deliver(self) -> None:
        exchange = self._exchange
        with suppress(OSError, ClientDisconnect):  # the client has gone, as servers since version 2.4 of ASGI tell
            self._scope.deadline = anyio.current_time() + self._route.longest
            with self._scope:
                while exchange.request is not None and not self._broken:
                    await self._ask(exchange.request)
            if self._scope.cancelled_caught and not self._sending:
                exchange.give_up()
                ends = await in_thread(partial(self._end, self._why))
                while exchange.request is not None:  # which is not asked again
                    self._begun = False
                    ends += self._end(self._why)
                if not self._broken:
                    await self._send(ends, more=False)

    async def _ask(self, request: UpstreamRequest) -> None:
        """Ask the upstream once, and send what comes of it."""
        first, exchange = self._route, self._exchange
        self._route = first._replace(headers=[each for each in first.headers if each[0] != ONCE.encode()])
        route = first.fallbacks[request.at - 1] if request.at else first
        self._begun = False
        fault: HTTPException | None = None
        asked: dict[str, Any] = {"headers": route.headers, "follow_redirects": False}
        if route.method == "POST":
            asked["content"] = request.body
        try:
            async with route.client.stream(route.method, route.url(request.endpoint), **asked) as response:
                headers = as_text(response.headers.raw)
                if 300 <= response.status_code < 400:
                    fault = HTTPException(502, "the upstream redirects, which is not followed")
                elif is_packed_twice(headers):
                    fault = HTTPException(502, "the upstream has packed its answer twice")
                else:
                    kept = [each for each in headers if each[0] not in _OURS and each[0][:15] != "access-control-"]
                    exchange.begin(response.status_code, kept)
                    self._begun = True
                    await self._send(b"")
                    plain = "content-encoding" not in response.headers
                    await self._read(response.aiter_raw() if plain else response.aiter_bytes())
        except httpx.TimeoutException:
            fault = HTTPException(504, "the upstream does not answer in time")
        except httpx.RequestError as error:
            fault = HTTPException(502, f"the upstream cannot be reached: {type(error).__name__}")
        ends = await in_thread_if(exchange.is_long, partial(self._end, fault))
        while exchange.asks:
            ends += await exchange.settle() + await in_thread_if(exchange.is_long, exchange.close)
        if not self._broken:
            await self._send(ends, more=exchange.request is not None)

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        exchange, waiting = self._exchange, self._waiting
        feed = exchange.feed
        with suppress(StopAsyncIteration):
            while not exchange.over:
                chunk, was_there = await _next(chunks)
                piece = feed(chunk)
                if exchange.judged:
                    piece += await exchange.settle()
                if not piece:
                    continue
                if self.first is None:
                    await self._send(piece)
                    continue
                waiting.append(piece)
                self._held += len(piece)
                if not was_there or self._held > _TOGETHER:
                    await self._put(self._together)
                elif len(waiting) == 1:
                    self._more.set()

    async def _send_together(self) -> None:
        """Send the pieces that wait whenever the reading does."""
        with suppress(OSError, ClientDisconnect):  # which who reads is told as well
            while True:
                await self._more.wait()
                self._more = anyio.Event()
                await self._outlet.put(self._together)

    def _together(self, *, more: bool = True) -> Message | None:
        if more and not self._waiting:
            return None
        body = b"".join(self._waiting)
        self._waiting.clear()
        self._held = 0
        return {"type": "http.response.body", "body": body, "more_body": more}

    def _end(self, fault: HTTPException | None) -> bytes:
        """Return the end of what the upstream said, or what is said instead."""
        exchange = self._exchange
        if self._begun or fault is None:
            self._broken = self._untouched and fault is not None
            return exchange.close("transport" if fault is not None else None)
        exchange.begin(fault.status_code, [("content-type", JSON)])
        return exchange.feed(write_fault("openai", fault.status_code, fault.detail)) + exchange.close()

    async def _put(self, message: Any) -> None:
        """Send a message; if the time is over meanwhile, nothing can follow."""
        self._sending = True
        await self._outlet.put(message)
        self._sending = False

    async def _send(self, piece: bytes, *, more: bool = True) -> None:
        if self._started:
            if piece or not more:
                self._waiting.append(piece)
                await self._put(partial(self._together, more=more))
                if piece and self.first is None:
                    self.first = monotonic()
            return
        head = self._exchange.head
        if head is None:
            return
        headers = as_bytes(head.headers)
        if not more:
            headers.append((b"content-length", b"%d" % len(piece)))
        await self._put({"type": "http.response.start", "status": head.status, "headers": headers})
        self._started, self.status = True, head.status
        self._streams = more and not self._untouched and (b"content-type", EVENT_STREAM.encode()) in headers
        await self._send(piece, more=more)


@coroutine
def _next(chunks: AsyncIterator[bytes]) -> Generator[Any, Any, tuple[bytes, bool]]:
    """Return the next chunk, and whether it was there already."""
    step = anext(chunks).__await__()
    try:
        waits = next(step)
    except StopIteration as found:
        return found.value, True
    try:
        while True:
            try:
                given = yield waits
            except BaseException as error:
                waits = step.throw(error)
            else:
                waits = step.send(given)
    except StopIteration as found:
        return found.value, False


def without_key(send: Send, key: bytes) -> Send:
    """Return a `send` of ASGI that overwrites a key by as many `*`: an upstream may repeat what it was sent.

    Of a body is held back what may be the beginning of the key, until more has come.
    """
    hidden = b"*" * len(key)
    held = b""

    def send_without(message: Message) -> Awaitable[None]:  # no coroutine: each piece of a stream passes here
        nonlocal held
        if message["type"] == "http.response.start":
            headers = [(name, value.replace(key, hidden)) for name, value in message["headers"]]
            return send({**message, "headers": headers})
        piece = (held + message["body"]).replace(key, hidden)
        more = message.get("more_body", False)
        ends = (size for size in range(min(len(key) - 1, len(piece)), 0, -1) if piece.endswith(key[:size]))
        kept = next(ends, 0) if more and piece[-1:] in key else 0  # a frame ends with a line
        piece, held = piece[: len(piece) - kept], piece[len(piece) - kept :]
        return send({**message, "body": piece})

    return send_without
