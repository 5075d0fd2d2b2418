"""Drives one exchange over HTTP: sends its requests to the upstream, and its bytes to the client.

The client gets the status and headers as soon as they are certain. If the client disconnects or accepts no bytes for
too long, the request to the upstream is cancelled. A slow client slows down the reading from the upstream.

httpx may split the bytes of one network read into several chunks. One task reads these chunks. A second task sends them
together while the first task waits for the network. Separate sending would double the CPU time for an answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import anyio
import httpx
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Send

from streamtools.gateway.exchange import Exchange, PassThrough
from streamtools.gateway.http import IDEMPOTENCY_KEY, JSON, decode_headers, encode_headers, is_encoded_twice
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.outputs.non_streaming import error_body
from streamtools.outputs.sse import EVENT_STREAM, KEEP_ALIVE
from streamtools.serving.response_writer import ResponseWriter, wait_for_disconnect
from streamtools.serving.shutdown import Shutdown
from streamtools.sources.read_pace import ReadPace
from streamtools.stream.long_work import in_thread, in_thread_if

CLIENT_LEFT = 499
"""The status that the metrics count for a client that disconnected before a response was sent."""

_ABOUT_UPSTREAM = {
    "accept-ch", "activate-storage-access", "alt-svc", "authorization", "clear-site-data", "critical-ch", "date",
    "document-policy", "link", "location", "nel", "origin-agent-cluster", "refresh", "report-to",
    "reporting-endpoints", "server", "service-worker-allowed", "set-cookie", "set-login", "sourcemap",
    "speculation-rules", "strict-transport-security", "timing-allow-origin", "use-as-dictionary",
    "www-authenticate", "x-accel-expires", "x-accel-limit-rate", "x-accel-redirect", "x-lighttpd-send-file",
    "x-sendfile",
}  # fmt: skip
"""Headers of the upstream that are not forwarded, because a browser or a proxy would apply them to this server."""

_MAX_JOINED_BYTES = 16384  # if more bytes wait, the reading task sends them immediately
_PAUSE_S = 0.002
"""If more seconds have passed since the previous chunk, a chunk is sent immediately, because no other chunk waits.
Sending it in a second task would cost 9 % more instructions for each delta (`bench_backends --profile`)."""

SHORTEST_SECRET = 16
"""The minimum length of a key that is overwritten in answers, in characters.

A shorter key is not a secret. For a server that checks no keys, users often write a common word as the key."""


class Route(NamedTuple):
    """How requests are sent to an upstream.

    `url` returns the URL for an endpoint, such as `chat/completions`. `max_answer_time` is the time limit for a whole
    answer, in seconds. `fallbacks` are the routes to the upstreams that replace this one if it fails.
    """

    client: httpx.AsyncClient
    url: Callable[[str], httpx.URL]
    headers: list[tuple[bytes, bytes]]
    max_answer_time: float
    method: str = "POST"
    fallbacks: Sequence[Route] = ()


def url_below(upstream: httpx.URL, endpoint: str) -> httpx.URL:
    """Return the URL of an endpoint, such as `chat/completions`, below the base URL `upstream`."""
    return upstream.copy_with(raw_path=f"{upstream.path.rstrip('/')}/{endpoint}".encode())


class Delivery:
    """Delivers one exchange to its client. After the first bytes, the upstream is read `max_rate` times a second."""

    def __init__(self, exchange: Exchange, route: Route, *, max_rate: float | None = None) -> None:
        self.status = CLIENT_LEFT
        """The status that the client got, or `CLIENT_LEFT` if it got none."""
        self._exchange = exchange
        self._route = route
        self._max_rate = max_rate
        self._unchanged = isinstance(exchange, PassThrough)  # an unchanged answer cannot end with an added error
        self._deadline = anyio.CancelScope()
        self._deadline_fault = HTTPException(504, "the answer takes too long")
        # `_begun`: whether the exchange has received the head of the current response. `_broken`: whether the client's
        # connection must be cut, as the answer cannot be completed. `_sending`: whether the reading task is sending.
        # `_body_sent`: whether bytes of the body were sent.
        self._begun = self._broken = self._head_sent = self._body_sent = self._streams = self._sending = False
        self._writer: ResponseWriter
        self._pieces: list[bytes] = []  # the bytes that wait to be sent together
        self._size = 0  # the number of bytes in `_pieces`
        self._has_pieces = anyio.Event()

    async def run(
        self, receive: Receive, send: Send, shutdown: Shutdown | None, *, keep_alive: float | None, send_timeout: float
    ) -> None:
        """Deliver the answer until it is complete or the client disconnects.

        `keep_alive` is the interval of keep-alive comments in a stream, and `send_timeout` limits the time for sending
        one message, both in seconds. Failures of the upstream or the client raise nothing. Other errors are raised.
        """
        self._writer = writer = ResponseWriter(send, keep_alive=keep_alive, send_timeout=send_timeout)

        async def send_keep_alive() -> None:
            if self._streams:
                await writer.send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})

        listen = partial(wait_for_disconnect, self._send_joined, receive)
        fault = await writer.deliver(
            self._deliver, listen=listen, heartbeat=send_keep_alive, shutdown=shutdown, on_shutdown=self._stop
        )
        if fault is not None:
            raise fault

    async def _stop(self) -> None:
        """End the answer with an error, because the server shuts down."""
        self._deadline_fault = HTTPException(503, "the server is shutting down")
        self._deadline.cancel()

    async def _deliver(self) -> None:
        """Send the requests of the exchange in order. If the deadline passes, end the answer with an error."""
        exchange = self._exchange
        self._deadline.deadline = anyio.current_time() + self._route.max_answer_time
        with self._deadline:
            if exchange.request is None:  # the gateway refuses the client's request
                await self._send(exchange.close(), more=False)
            while exchange.request is not None and not self._broken:
                await self._request_answer(exchange.request)
        if self._deadline.cancelled_caught and not self._sending:
            rest = await in_thread(partial(self._end, self._deadline_fault))
            while exchange.request is not None:  # the deadline has passed, so the request is not sent
                self._begun = False
                rest += self._end(self._deadline_fault)
            if not self._broken:
                await self._send(rest, more=False)

    async def _request_answer(self, request: UpstreamRequest) -> None:
        """Send one request to the upstream, read its response, and send the resulting bytes to the client."""
        primary, exchange = self._route, self._exchange
        # The next request must not have the same idempotency key.
        self._route = primary._replace(headers=[(k, v) for k, v in primary.headers if k != IDEMPOTENCY_KEY.encode()])
        route = primary.fallbacks[request.at - 1] if request.at else primary
        self._begun = False
        fault: HTTPException | None = None
        options: dict[str, Any] = {"headers": route.headers, "content": request.body, "follow_redirects": False}
        try:
            async with route.client.stream(route.method, route.url(request.endpoint), **options) as response:
                headers = decode_headers(response.headers.raw)
                if 300 <= response.status_code < 400:
                    fault = HTTPException(502, "the upstream redirects to another address; redirects are not followed")
                elif is_encoded_twice(headers):
                    fault = HTTPException(502, "the upstream applied several content encodings to its answer")
                else:
                    exchange.begin(response.status_code, [header for header in headers if _may_forward(header[0])])
                    self._begun = True
                    await self._send(b"")
                    is_plain = "content-encoding" not in response.headers
                    pace = ReadPace()
                    chunks = response.aiter_raw() if is_plain else response.aiter_bytes()
                    pace.open(response, chunks.__anext__)
                    try:
                        await self._read(chunks, pace)
                    finally:
                        pace.close()
        except httpx.TimeoutException:
            fault = HTTPException(504, "the upstream does not answer in time")
        except httpx.RequestError as error:
            fault = HTTPException(502, f"the upstream cannot be reached: {type(error).__name__}")
        rest = await in_thread_if(exchange.is_long(), partial(self._end, fault))
        if not self._broken:
            await self._send(rest, more=exchange.request is not None)

    async def _read(self, chunks: AsyncIterator[bytes], pace: ReadPace) -> None:
        """Read the upstream's response, at the `pace` after the first bytes.

        The first bytes, and bytes after a pause, are sent immediately. Other bytes wait for `_send_joined` or until
        they exceed `_MAX_JOINED_BYTES`. With a `max_rate`, each read follows a pause, so all bytes wait.
        """
        exchange, pieces = self._exchange, self._pieces
        received_at = monotonic()
        async for chunk in chunks:
            now = monotonic()
            waited, received_at = now - received_at > _PAUSE_S, now
            piece = exchange.feed(chunk)
            if piece and not self._body_sent:
                await self._send(piece)
                pace.set_rate(0, self._max_rate)
            elif piece:
                pieces.append(piece)
                self._size += len(piece)
                if (waited and self._max_rate is None) or self._size > _MAX_JOINED_BYTES:
                    await self._send_message(self._joined_message)
                elif len(pieces) == 1:
                    self._has_pieces.set()

    async def _send_joined(self) -> None:
        """Send the waiting pieces whenever the reading task waits for the network."""
        while True:
            await self._has_pieces.wait()
            self._has_pieces = anyio.Event()
            await self._writer.send(self._joined_message)

    def _joined_message(self, *, more: bool = True) -> Message | None:
        """Return a message with the waiting pieces, or None if no piece waits.

        If `more` is False, the message ends the body, and is also returned if no piece waits.
        """
        if more and not self._pieces:
            return None
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return {"type": "http.response.body", "body": body, "more_body": more}

    def _end(self, fault: HTTPException | None) -> bytes:
        """End the upstream's response. Returns the last bytes for the client.

        If `fault` is set and the exchange received no head, the bytes are an error response for the fault.
        """
        exchange = self._exchange
        if self._begun or fault is None:
            self._broken = self._unchanged and fault is not None
            return exchange.close("transport" if fault is not None else None)
        exchange.begin(fault.status_code, [("content-type", JSON)])
        return exchange.feed(error_body("openai", fault.status_code, fault.detail)) + exchange.close()

    async def _send_message(self, message: Any) -> None:
        """Send a message. If the deadline passes during the sending, no further message can be sent."""
        self._sending = True
        await self._writer.send(message)
        self._sending = False

    async def _send(self, piece: bytes, *, more: bool = True) -> None:
        """Send `piece`. The head is sent before the first piece. Sends nothing while the head is not certain.

        If `more` is False, the body ends.
        """
        if self._head_sent:
            if piece or not more:
                self._pieces.append(piece)
                await self._send_message(partial(self._joined_message, more=more))
                self._body_sent = self._body_sent or bool(piece)
            return
        head = self._exchange.head
        if head is None:
            return
        headers = encode_headers(head.headers)
        if not more:
            headers.append((b"content-length", b"%d" % len(piece)))
        await self._send_message({"type": "http.response.start", "status": head.status, "headers": headers})
        self._head_sent, self.status = True, head.status
        self._streams = more and not self._unchanged and (b"content-type", EVENT_STREAM.encode()) in headers
        await self._send(piece, more=more)


def _may_forward(header: str) -> bool:
    """Return whether a header of the upstream may be forwarded to the client."""
    return header not in _ABOUT_UPSTREAM and not header.startswith("access-control-")


def without_key(send: Send, key: bytes) -> Send:
    """Return an ASGI `send` that overwrites `key` with `*`, because an upstream may repeat the key in its answer.

    If a part of a body ends with the beginning of the key, this end is buffered until the next part arrives.
    """
    hidden = b"*" * len(key)
    pending = b""

    def send_without(message: Message) -> Awaitable[None]:  # a coroutine would be slower
        nonlocal pending
        if message["type"] == "http.response.start":
            headers = [(name, value.replace(key, hidden)) for name, value in message["headers"]]
            return send({**message, "headers": headers})
        piece = (pending + message["body"]).replace(key, hidden)
        more = message.get("more_body", False)
        ends = (size for size in range(min(len(key) - 1, len(piece)), 0, -1) if piece.endswith(key[:size]))
        kept = next(ends, 0) if more and piece[-1:] in key else 0  # most pieces end with a line feed; no key has one
        piece, pending = piece[: len(piece) - kept], piece[len(piece) - kept :]
        return send({**message, "body": piece})

    return send_without
