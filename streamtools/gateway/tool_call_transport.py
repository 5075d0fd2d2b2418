"""A transport under any SDK: tools for a model that writes its calls into the text, without a change elsewhere.

    client = openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=ToolCallTransport(mode="text")), …)

It is a transport of asynchronous clients and of blocking ones, of httpx and of httpx2; neither is imported here, since
who asks has imported it. Requests that ask for no answer of a model pass as they are, and so does whatever else the
SDK relies on: statuses, headers, timeouts, and what the network raises before an answer has begun. A stream that breaks
off ends with an error in the client's form. Where rules or a judge are set, what is not rewritten passes only if it is
known to bring no text of a model.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from types import ModuleType
from typing import Any, Self, Unpack

from streamtools.gateway.addresses import (
    JSON,
    ONCE,
    UNREAD,
    Headers,
    as_bytes,
    as_text,
    client_of,
    headers_for,
    holds_text,
    is_packed_twice,
    path_for,
)
from streamtools.gateway.exchange import Exchange
from streamtools.gateway.rewrite import Rewrite
from streamtools.gateway.settings import RewriteOptions
from streamtools.gateway.upstream_requests import Upstream, UpstreamRequest
from streamtools.outputs.whole_answers import write_fault
from streamtools.recording.transports import Transport, at_once, library_of, of_library
from streamtools.sources.source import unwind
from streamtools.stream.long_work import in_thread_if

_PACKED = "the upstream has packed its answer twice"
_ASYNC = ("AsyncHTTPTransport", "handle_async_request")


class ToolCallTransport(Transport):
    """Asks `inner`, and makes native calls of those in the text of its answers.

    `inner` is a transport of the client's own library; None is that library's usual one, made when the first request
    shows which it is. The other parameters are those of `Rewrite`; `rewrite` is one that is made already. An SDK of
    Responses or of Anthropic's Messages asks the same upstream, at the path of its chat completions. Raises ValueError
    for a value that is not allowed; TypeError, at the first request, for an `inner` of another library.
    """

    def __init__(
        self,
        inner: Any = None,
        *,
        upstream: Upstream = "openai",
        rewrite: Rewrite | None = None,
        **options: Unpack[RewriteOptions],
    ) -> None:
        self._inner = inner
        self._rewrite = rewrite or Rewrite(upstream=upstream, **options)

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        """Return the response of the upstream, as the client of `request` would have it from a model with tools."""
        library = library_of(request)
        inner = self._transport(library, blocking)
        client = client_of(request.method, request.url.path)
        if client is None:
            return self._refusal(library, request) or await _come(inner(request))
        content = request.read() if blocking else await request.aread()
        exchange = self._rewrite.begin(client, content, host=request.url.host)
        if exchange.request is None:
            return _response(library, exchange, exchange.close(), {})
        if exchange.request.body is content:
            return await _come(inner(request))

        headers = headers_for(client, as_text(request.headers.raw))

        async def ask(wanted: UpstreamRequest) -> Any:
            asked = self._request(library, request, headers, wanted)
            headers[:] = [each for each in headers if each[0] != ONCE]
            try:
                response = await _come(inner(asked))
                if is_packed_twice(as_text(response.headers.raw)):
                    await _close(response, blocking)
                    raise library.RemoteProtocolError(_PACKED, request=asked)
            except library.TransportError:
                if not exchange.may_fail:
                    raise
                response = library.Response(502)
            response.request = asked
            exchange.begin(response.status_code, as_text(response.headers.raw))
            return response

        first = await ask(exchange.request)
        body: _Body = of_library(_Body, library)(exchange, first, ask, library.TransportError, blocking)
        try:
            while exchange.head is None and (piece := next(body, b"") if blocking else await anext(body, b"")):
                body.ahead.append(piece)
        except BaseException:
            await body.leave()
            raise
        return _response(library, exchange, b"".join(body.ahead) if body.ended else body, first.extensions)

    def _refusal(self, library: ModuleType, request: Any) -> Any:
        """Return the response to a request whose answer would pass by the rules and the judge, which someone wants."""
        path = request.url.path
        if not (self._rewrite.text_rules or self._rewrite.text_judge) or not holds_text(path):
            return None
        body = write_fault("anthropic" if "/v1/messages" in path else "openai", 400, UNREAD)
        return library.Response(400, headers=[("content-type", JSON)], content=body)

    def _request(self, library: ModuleType, request: Any, headers: Headers, wanted: UpstreamRequest) -> Any:
        url = request.url
        if wanted.at:
            upstream = self._rewrite.fallbacks[wanted.at - 1]
            url, headers = library.URL(upstream.url + "/chat/completions"), upstream.headers(headers)
        url = url.copy_with(path=path_for(url.path, wanted.endpoint))
        more: dict[str, Any] = {"content": wanted.body, "extensions": request.extensions}
        return library.Request("POST", url, headers=as_bytes(headers), **more)

    def _transport(self, library: ModuleType, blocking: bool) -> Any:
        """Return what asks the transport behind this one. Raises TypeError for one of another library, or kind."""
        usual, method = ("HTTPTransport", "handle_request") if blocking else _ASYNC
        if self._inner is None:
            self._inner = getattr(library, usual)()
        homes = {kind.__module__.partition(".")[0] for kind in type(self._inner).__mro__}
        others = [name for name in homes - {library.__name__} if hasattr(sys.modules.get(name), "AsyncByteStream")]
        if others and library.__name__ not in homes:
            raise TypeError(
                f"the client is one of {library.__name__}, and the transport inside of ToolCallTransport one of "
                f"{others[0]}; give it {library.__name__}.{usual}(), or none"
            )
        if not hasattr(self._inner, method):
            raise TypeError(f"{type(self._inner).__name__} has no {method}(): this client wants a {usual}")
        return getattr(self._inner, method)


def _pieces_of(response: Any, blocking: bool) -> Any:
    """Return what iterates over the decoded body of a response: its own method, or faster where nothing is encoded.

    A transport of the user's may have read it already, to look at it or to keep it.
    """
    if "content-encoding" in response.headers or response.is_stream_consumed:
        return response.iter_bytes() if blocking else response.aiter_bytes()
    return iter(response.stream) if blocking else aiter(response.stream)


def _response(library: ModuleType, exchange: Exchange, body: Any, extensions: dict[str, Any]) -> Any:
    assert exchange.head is not None
    status, headers = exchange.head
    given = {"content": body} if isinstance(body, bytes) else {"stream": body}
    return library.Response(status, headers=as_bytes(headers), extensions=extensions, **given)


async def _come(returned: Any) -> Any:
    """Return what a transport has returned, or what comes of waiting for that."""
    return await returned if isawaitable(returned) else returned


async def _close(response: Any, blocking: bool) -> None:
    if blocking:
        response.close()
    else:
        await response.aclose()


@dataclass(eq=False, repr=False)
class _Body:
    """The client's body while the upstream's is read; where the model is asked again, one behind the other.

    A client that is `blocking` runs the same coroutines, in which nothing waits then.
    """

    _exchange: Exchange
    _response: Any
    _ask: Callable[[UpstreamRequest], Awaitable[Any]]
    _broken: type[Exception]
    _blocking: bool

    def __post_init__(self) -> None:
        self._pieces: Any = _pieces_of(self._response, self._blocking)
        self.ahead: list[bytes] = []  # read before the client was told the status

    @property
    def ended(self) -> bool:
        return self._pieces is None

    def __iter__(self) -> Self:
        return self

    __aiter__ = __iter__

    async def __anext__(self) -> bytes:
        if self.ahead and self._exchange.head is not None:
            return self.ahead.pop(0)
        while (pieces := self._pieces) is not None:
            try:
                piece = self._exchange.feed(await anext(pieces))
            except (StopAsyncIteration, self._broken) as error:
                piece = await self._end_by(error)
            if self._exchange.judged and self._pieces is pieces:
                piece += await self._judge(pieces)
            if piece:
                return piece
        raise StopAsyncIteration

    def __next__(self) -> bytes:
        if self.ahead and self._exchange.head is not None:
            return self.ahead.pop(0)
        while (pieces := self._pieces) is not None:
            try:
                piece = self._exchange.feed(next(pieces))
            except (StopIteration, self._broken) as error:
                piece = at_once(self._end_by(error))
            if self._exchange.judged and self._pieces is pieces:
                piece += at_once(self._judge(pieces))
            if piece:
                return piece
        raise StopIteration

    async def _end_by(self, error: Exception) -> bytes:
        if isinstance(error, StopIteration | StopAsyncIteration):
            return await self._end()
        if self._exchange.head is None and not self._exchange.may_fail:  # the client may ask once more
            raise error
        return await self._end("transport")

    async def _judge(self, pieces: Any) -> bytes:
        """Return what may leave, and the end of the answer where that is all."""
        piece = await self._exchange.settle(blocking=self._blocking)
        if self._exchange.over:
            piece += await self._end()
            if not self._blocking:
                await unwind(pieces)
        return piece

    async def _end(self, cause: str | None = None) -> bytes:
        """Return the end of an answer, behind which the model may be asked again."""
        exchange = self._exchange
        is_long = not self._blocking  # which matters where others wait meanwhile
        piece = await in_thread_if(is_long and exchange.is_long, partial(exchange.close, cause))
        while exchange.asks:
            piece += await exchange.settle(blocking=self._blocking)
            piece += await in_thread_if(is_long and exchange.is_long, exchange.close)
        self._pieces = None
        await _close(self._response, self._blocking)
        if exchange.request is not None:
            try:
                self._response = await self._ask(exchange.request)
            except self._broken:
                if exchange.head is None:
                    raise
                exchange.begin(502, ())
                return piece + exchange.close()
            self._pieces = _pieces_of(self._response, self._blocking)
        return piece

    async def leave(self) -> None:
        pieces, self._pieces = self._pieces, None
        await _close(self._response, self._blocking)
        if pieces is not None and not self._blocking:
            await unwind(pieces)

    aclose = leave

    def close(self) -> None:
        """Do so for a client that blocks."""
        at_once(self.leave())
