"""Gives tools to models that write calls as text, for clients of chat completions, Responses and Anthropic's Messages.

`ToolCallTransport` is an HTTP transport for Python SDKs. `app` is a server for clients in any language, and requires
the extra `web`. Both use `Rewrite`, which does no I/O. A custom server can use it, too:

    rewrite = Rewrite(mode="text")  # once

    client = client_of(method, path)  # if None, forward the request if `rewrite.may_forward(method, path)`
    exchange = rewrite.begin(client, body, host=upstream_host)
    while (request := exchange.request) is not None:
        url = upstream_url + path_for(path, request.endpoint)
        response = await post(url, request.body, headers_for(client, headers))
        exchange.begin(response.status, response.headers)
        async for chunk in response:  # of the decoded body
            await send(exchange.feed(chunk))
        await send(exchange.close())  # or close("transport") if the body is incomplete

`exchange.head` has the status and headers for the client. It is set when a streamed or unchanged answer begins. For
other answers, it is set when the last `close` returns. Send the bytes of `feed` and `close` after the head. If the
gateway refuses the client's request, `request` is None and `head` is set from the start. Then `close` returns the body.

While the upstream is silent, send `KEEP_ALIVE` of `outputs.sse` to keep the client's connection open. With
`begin(…, watch=function)`, `function` is called with the events of the answer, except `text` events. No input of the
client or the upstream makes an exchange raise.
"""

from typing import TYPE_CHECKING

from streamtools.gateway.client_requests import Client
from streamtools.gateway.exchange import Exchange, Rewrite
from streamtools.gateway.http import ResponseHead, client_of, headers_for, path_for
from streamtools.gateway.settings import FallbackUpstream
from streamtools.gateway.tool_call_transport import ToolCallTransport
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.loading import load_later

if TYPE_CHECKING:
    from streamtools.gateway.service import app

__all__ = [
    "Client", "Exchange", "FallbackUpstream", "ResponseHead", "Rewrite", "ToolCallTransport", "UpstreamRequest", "app",
    "client_of", "headers_for", "path_for",
]  # fmt: skip

load_later(globals(), {"app": "service"}, app="starlette")
