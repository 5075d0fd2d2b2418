"""Provides an HTTP transport for SDKs. It gives tools to a model that writes its calls as text.

    client = openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=ToolCallTransport(mode="text")), …)

The transport works with asynchronous and blocking clients of httpx and httpx2. It uses the library of the client, so it
imports neither library itself.

Requests to other endpoints than Chat Completions, Responses and Messages are forwarded unchanged. Text rules cannot
check the answer to such a request. So with text rules, the request is refused if its answer may contain text of a
model. With a vault, only GET requests are forwarded.

The SDK gets the error statuses, timeouts and early network errors of the upstream unchanged. If the connection breaks
after the client's response has begun, the response ends with an error in the client's format.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Unpack

from streamtools.errors import check_names
from streamtools.gateway import http
from streamtools.gateway.exchange import Exchange, PassThrough, Rewrite
from streamtools.gateway.settings import RewriteOptions
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.outputs.non_streaming import error_body
from streamtools.recording.transports import ClientTransport, library_of, run_without_waiting, stream_class
from streamtools.sources.transport import unwind
from streamtools.stream.long_work import in_thread_if


class ToolCallTransport(ClientTransport):
    """Sends requests through `inner`, and converts calls in the text of answers to native calls.

    `inner` is a transport of the library to which the client belongs. If it is None, the library's default transport is
    used. The other parameters are those of `Rewrite`. With `rewrite`, an existing `Rewrite` is used instead of these
    parameters. Requests in the formats of Responses and of Anthropic's Messages are sent to the upstream's path for
    chat completions. Raises ValueError for a value that is not allowed. A request raises TypeError if `inner` belongs
    to another library.
    """

    def __init__(self, inner: Any = None, *, rewrite: Rewrite | None = None, **options: Unpack[RewriteOptions]) -> None:
        super().__init__(inner)
        check_names("ToolCallTransport()", options, ("inner", "rewrite", *RewriteOptions.__annotations__))
        self._rewrite = rewrite or Rewrite(**options)

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        """Return the response to a client's request."""
        library = library_of(request)
        client_format = http.client_of(request.method, request.url.path)
        if client_format is None:
            return self._refusal(library, request) or await self._send(request, blocking=blocking)
        content = request.read() if blocking else await request.aread()
        exchange = self._rewrite.begin(client_format, content, host=request.url.host)
        if exchange.request is None:
            return _response(library, exchange, exchange.close(), {})
        if isinstance(exchange, PassThrough):
            return await self._send(request, blocking=blocking)

        headers = http.headers_for(client_format, http.decode_headers(request.headers.raw))

        async def ask(rewritten: UpstreamRequest) -> Any:
            """Send a request of the exchange to the upstream. Call `exchange.begin`, and return the response."""
            asked = self._upstream_request(library, request, headers, rewritten)
            # Later requests are different, so they must not have the same idempotency key.
            headers[:] = [header for header in headers if header[0] != http.IDEMPOTENCY_KEY]
            try:
                response = await self._send(asked, blocking=blocking)
                if http.is_encoded_twice(http.decode_headers(response.headers.raw)):
                    await _close(response, blocking)
                    message = "the upstream applied several content encodings to its answer"
                    raise library.RemoteProtocolError(message, request=asked)
            except library.TransportError:
                if not exchange.has_fallback:
                    raise
                response = library.Response(502)
            response.request = asked
            exchange.begin(response.status_code, http.decode_headers(response.headers.raw))
            return response

        first = await ask(exchange.request)
        body: _ClientBody = stream_class(_ClientBody, library)(exchange, first, ask, library.TransportError, blocking)
        try:
            while exchange.head is None and (piece := await anext(body, b"")):
                body.ahead.append(piece)
        except BaseException:
            await body.leave()
            raise
        return _response(library, exchange, b"".join(body.ahead) if body.ended else body, first.extensions)

    def _refusal(self, library: ModuleType, request: Any) -> Any:
        """Return an error response if `Rewrite.may_forward` does not allow the request, else None."""
        path = request.url.path
        if self._rewrite.may_forward(request.method, path):
            return None
        body = error_body("anthropic" if "/v1/messages" in path else "openai", 400, http.UNREAD)
        return library.Response(400, headers=[("content-type", http.JSON)], content=body)

    def _upstream_request(
        self, library: ModuleType, request: Any, headers: http.Headers, rewritten: UpstreamRequest
    ) -> Any:
        """Return `rewritten` as a request of the HTTP library, with the client's `headers` and the upstream's URL."""
        url = request.url
        if rewritten.at:
            upstream = self._rewrite.fallbacks[rewritten.at - 1]
            url, headers = library.URL(upstream.url + "/chat/completions"), upstream.headers(headers)
        url = url.copy_with(path=http.path_for(url.path, rewritten.endpoint))
        more: dict[str, Any] = {"content": rewritten.body, "extensions": request.extensions}
        return library.Request("POST", url, headers=http.encode_headers(headers), **more)


def _chunks_of(response: Any, blocking: bool) -> Any:
    """Return an iterator over the decoded body of a response.

    A body without a content encoding is read directly from the response's stream, unless a custom transport has already
    read it.
    """
    if "content-encoding" in response.headers or response.is_stream_consumed:
        return response.iter_bytes() if blocking else response.aiter_bytes()
    return iter(response.stream) if blocking else aiter(response.stream)


def _response(library: ModuleType, exchange: Exchange, body: Any, extensions: dict[str, Any]) -> Any:
    assert exchange.head is not None
    status, headers = exchange.head
    given = {"content": body} if isinstance(body, bytes) else {"stream": body}
    return library.Response(status, headers=http.encode_headers(headers), extensions=extensions, **given)


async def _close(response: Any, blocking: bool) -> None:
    if blocking:
        response.close()
    else:
        await response.aclose()


@dataclass(eq=False, repr=False)
class _ClientBody(AsyncIterator[bytes], Iterator[bytes]):
    """The body of the client's response, as an iterator of bytes. It reads the upstream's responses in order.

    For a blocking client, the same coroutines are used. They never suspend, because all of their I/O is blocking.
    """

    _exchange: Exchange
    _response: Any
    _ask: Callable[[UpstreamRequest], Awaitable[Any]]
    _broken: type[Exception]  # the exception of the HTTP library for a failure of the network
    _blocking: bool

    def __post_init__(self) -> None:
        self._chunks: Any = _chunks_of(self._response, self._blocking)
        self.ahead: list[bytes] = []
        """The bytes for the client that were made before the status was certain."""

    @property
    def ended(self) -> bool:
        return self._chunks is None

    def __next__(self) -> bytes:
        try:
            return run_without_waiting(self.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    async def __anext__(self) -> bytes:
        if self.ahead and self._exchange.head is not None:
            return self.ahead.pop(0)
        while (chunks := self._chunks) is not None:
            try:
                piece = self._exchange.feed(next(chunks) if self._blocking else await anext(chunks))
            except (StopIteration, StopAsyncIteration):
                piece = await self._end()
            except self._broken:
                if self._exchange.head is None and not self._exchange.has_fallback:  # the SDK may retry
                    raise
                piece = await self._end("transport")
            if piece:
                return piece
        raise StopAsyncIteration

    async def _end(self, cause: str | None = None) -> bytes:
        """End a response of the upstream, and send the exchange's next request if it has one.

        Returns bytes for the client.
        """
        exchange = self._exchange
        in_other_thread = not self._blocking and exchange.is_long()
        piece = await in_thread_if(in_other_thread, partial(exchange.close, cause))
        self._chunks = None
        await _close(self._response, self._blocking)
        if exchange.request is not None:
            try:
                self._response = await self._ask(exchange.request)
            except self._broken:
                if exchange.head is None:
                    raise
                exchange.begin(502, ())
                return piece + exchange.close()
            self._chunks = _chunks_of(self._response, self._blocking)
        return piece

    async def leave(self) -> None:
        """Stop reading, and close the current response of the upstream."""
        chunks, self._chunks = self._chunks, None
        await _close(self._response, self._blocking)
        if chunks is not None and not self._blocking:
            await unwind(chunks)

    aclose = leave

    def close(self) -> None:
        run_without_waiting(self.leave())
