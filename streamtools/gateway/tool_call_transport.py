"""A transport under any SDK: tools for a model that writes its calls into the text, without a change elsewhere.

    client = openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=ToolCallTransport(mode="text")), …)

It is a transport of asynchronous clients and of blocking ones, of httpx and of httpx2; neither is imported here, since
who asks has imported it. Requests that ask for no answer of a model pass as they are, and so does whatever else the
SDK relies on: statuses, headers, timeouts, and what the network raises before an answer has begun. A stream that breaks
off ends with an error in the client's form. Where rules or a judge are set, what is not rewritten passes only if it is
known to bring no text of a model.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Self

from streamtools.conversation.prompts import Example
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
from streamtools.gateway.fallbacks import FallbackUpstream
from streamtools.gateway.plan import Modes
from streamtools.gateway.rewrite import Rewrite
from streamtools.gateway.upstream_requests import Upstream, UpstreamRequest
from streamtools.outputs.whole_answers import write_fault
from streamtools.parsing.dialects import Dialects
from streamtools.recording.transports import Transport, library_of, of_library
from streamtools.rules.rule import Rule
from streamtools.sources.source import unwind
from streamtools.stream.long_work import in_thread_if

if TYPE_CHECKING:
    from streamtools.stream.judging import TextJudge

_PACKED = "the upstream has packed its answer twice"


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
        mode: Modes = "text",
        dialects: Dialects = None,
        few_shot: bool | Sequence[Example] = False,
        on_malformed: Literal["text", "error"] = "error",
        ask_again: int = 0,
        upstream: Upstream = "openai",
        text_rules: Sequence[Rule] = (),
        text_judge: TextJudge | None = None,
        fallbacks: Sequence[FallbackUpstream] = (),
        rewrite: Rewrite | None = None,
    ) -> None:
        self._inner = inner
        self._rewrite = rewrite or Rewrite(
            mode=mode,
            dialects=dialects,
            few_shot=few_shot,
            on_malformed=on_malformed,
            ask_again=ask_again,
            upstream=upstream,
            text_rules=text_rules,
            text_judge=text_judge,
            fallbacks=fallbacks,
        )

    async def handle_async_request(self, request: Any) -> Any:
        """Return the response of the upstream, as the client of `request` would have it from a model with tools."""
        library = library_of(request)
        inner = self._transport(library, "AsyncHTTPTransport", "handle_async_request")
        client = client_of(request.method, request.url.path)
        if client is None:
            return self._refusal(library, request) or await inner.handle_async_request(request)
        content = await request.aread()
        exchange = self._rewrite.begin(client, content, host=request.url.host)
        if exchange.request is None:
            return _response(library, exchange, exchange.close(), {})
        if exchange.request.body is content:
            return await inner.handle_async_request(request)

        headers = headers_for(client, as_text(request.headers.raw))

        async def ask(wanted: UpstreamRequest) -> Any:
            asked = self._request(library, request, headers, wanted)
            headers[:] = [each for each in headers if each[0] != ONCE]
            try:
                response = await inner.handle_async_request(asked)
                if is_packed_twice(as_text(response.headers.raw)):
                    await response.aclose()
                    raise library.RemoteProtocolError(_PACKED, request=asked)
            except library.TransportError:
                if not exchange.may_fail:
                    raise
                response = library.Response(502)
            response.request = asked
            exchange.begin(response.status_code, as_text(response.headers.raw))
            return response

        first = await ask(exchange.request)
        body: _AsyncBody = of_library(_AsyncBody, library)(exchange, first, ask, library.TransportError)
        try:
            while exchange.head is None and (piece := await anext(body, None)) is not None:
                body.ahead.append(piece)
        except BaseException:
            await body.aclose()
            raise
        return _response(library, exchange, b"".join(body.ahead) if body.ended else body, first.extensions)

    def handle_request(self, request: Any) -> Any:
        """Do as `handle_async_request`, for a blocking client."""
        library = library_of(request)
        inner = self._transport(library, "HTTPTransport", "handle_request")
        client = client_of(request.method, request.url.path)
        if client is None:
            return self._refusal(library, request) or inner.handle_request(request)
        content = request.read()
        exchange = self._rewrite.begin(client, content, host=request.url.host)
        if exchange.request is None:
            return _response(library, exchange, exchange.close(), {})
        if exchange.request.body is content:
            return inner.handle_request(request)

        headers = headers_for(client, as_text(request.headers.raw))

        def ask(wanted: UpstreamRequest) -> Any:
            asked = self._request(library, request, headers, wanted)
            headers[:] = [each for each in headers if each[0] != ONCE]
            try:
                response = inner.handle_request(asked)
                if is_packed_twice(as_text(response.headers.raw)):
                    response.close()
                    raise library.RemoteProtocolError(_PACKED, request=asked)
            except library.TransportError:
                if not exchange.may_fail:
                    raise
                response = library.Response(502)
            response.request = asked
            exchange.begin(response.status_code, as_text(response.headers.raw))
            return response

        first = ask(exchange.request)
        body: _Body = of_library(_Body, library)(exchange, first, ask, library.TransportError)
        try:
            while exchange.head is None and (piece := next(body.rest, None)) is not None:
                body.ahead.append(piece)
        except BaseException:
            body.close()
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

    def _release(self) -> None:
        """Hold nothing."""

    def _transport(self, library: ModuleType, usual: str, method: str) -> Any:
        """Return the transport behind this one. Raises TypeError for one of another library, or of another kind."""
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
        return self._inner


def _pieces_of(response: Any, decoded: str) -> Any:
    """Return what iterates over the decoded body of a response: its own method, or faster where nothing is encoded.

    A transport of the user's may have read it already, to look at it or to keep it.
    """
    if "content-encoding" in response.headers or response.is_stream_consumed:
        return getattr(response, decoded)()
    return aiter(response.stream) if decoded == "aiter_bytes" else iter(response.stream)


def _response(library: ModuleType, exchange: Exchange, body: Any, extensions: dict[str, Any]) -> Any:
    assert exchange.head is not None
    status, headers = exchange.head
    given = {"content": body} if isinstance(body, bytes) else {"stream": body}
    return library.Response(status, headers=as_bytes(headers), extensions=extensions, **given)


class _AsyncBody:
    """The client's body while the upstream's is read; where the model is asked again, one behind the other."""

    def __init__(
        self,
        exchange: Exchange,
        response: Any,
        ask: Callable[[UpstreamRequest], Awaitable[Any]],
        broken: type[Exception],
    ) -> None:
        self._exchange = exchange
        self._ask = ask
        self._broken = broken
        self._response = response
        self._pieces: AsyncIterator[bytes] | None = _pieces_of(response, "aiter_bytes")
        self.ahead: list[bytes] = []  # read before the client was told the status

    @property
    def ended(self) -> bool:
        """Whether all has been read."""
        return self._pieces is None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self.ahead and self._exchange.head is not None:
            return self.ahead.pop(0)
        exchange = self._exchange
        while self._pieces is not None:
            try:
                piece = exchange.feed(await anext(self._pieces))
                if exchange.judged:
                    piece += await exchange.settle()
                    if exchange.over:
                        pieces = self._pieces
                        piece += await self._end()
                        await unwind(pieces)
            except StopAsyncIteration:
                piece = await self._end()
            except self._broken:
                if self._exchange.head is None and not self._exchange.may_fail:  # the client may ask once more
                    raise
                piece = await self._end("transport")
            if piece:
                return piece
        raise StopAsyncIteration

    async def _end(self, cause: str | None = None) -> bytes:
        """Return the end of an answer, behind which the model may be asked again."""
        exchange = self._exchange
        piece = await in_thread_if(exchange.is_long, partial(exchange.close, cause))
        while exchange.asks:
            piece += await exchange.settle() + await in_thread_if(exchange.is_long, exchange.close)
        self._pieces = None
        await self._response.aclose()
        if exchange.request is not None:
            try:
                self._response = await self._ask(exchange.request)
            except self._broken:
                if exchange.head is None:
                    raise
                exchange.begin(502, ())
                return piece + exchange.close()
            self._pieces = _pieces_of(self._response, "aiter_bytes")
        return piece

    async def aclose(self) -> None:
        """Leave the answer."""
        pieces, self._pieces = self._pieces, None
        await self._response.aclose()
        if pieces is not None:
            await unwind(pieces)


class _Body:
    """The same for a blocking client."""

    def __init__(
        self, exchange: Exchange, response: Any, ask: Callable[[UpstreamRequest], Any], broken: type[Exception]
    ) -> None:
        self._exchange = exchange
        self._ask = ask
        self._broken = broken
        self._response = response
        self._pieces: Iterator[bytes] | None = _pieces_of(response, "iter_bytes")
        self.ahead: list[bytes] = []
        self.rest = self._read()

    @property
    def ended(self) -> bool:
        """Whether all has been read."""
        return self._pieces is None

    def __iter__(self) -> Iterator[bytes]:
        return itertools.chain(self.ahead, self.rest)

    def _read(self) -> Iterator[bytes]:
        exchange = self._exchange
        feed, judged = exchange.feed, exchange.judged
        while (pieces := self._pieces) is not None:
            try:
                piece = feed(next(pieces))
                if judged:
                    piece += exchange.settle_now()
                    if exchange.over:
                        piece += self._end()
            except StopIteration:
                piece = self._end()
            except self._broken:
                if self._exchange.head is None and not self._exchange.may_fail:
                    raise
                piece = self._end("transport")
            if piece:
                yield piece

    def _end(self, cause: str | None = None) -> bytes:
        exchange = self._exchange
        piece = exchange.close(cause)
        while exchange.asks:
            piece += exchange.settle_now() + exchange.close()
        self._pieces = None
        self._response.close()
        if exchange.request is not None:
            try:
                self._response = self._ask(exchange.request)
            except self._broken:
                if exchange.head is None:
                    raise
                exchange.begin(502, ())
                return piece + exchange.close()
            self._pieces = _pieces_of(self._response, "iter_bytes")
        return piece

    def close(self) -> None:
        """Leave the answer."""
        self._pieces = None
        self._response.close()
