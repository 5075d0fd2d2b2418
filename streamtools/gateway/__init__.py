"""Gives tools to a model that writes its calls as text. Works with any SDK and any client.

`ToolCallTransport` is an HTTP transport for Python SDKs. `app` is a server for clients in any language, and requires
the extra `web`. Both use `Rewrite`, which does no I/O. A custom driver can use it as follows:

    rewrite = Rewrite(mode="text")                     # create it once
    exchange = rewrite.begin(client, body, host=…)     # client is client_of(method, path), if that is not None
    while (request := exchange.request) is not None:
        …POST request.body to path_for(path, request.endpoint), with headers_for(client, headers)…
        exchange.begin(status, headers)                # the status and headers of the upstream's response
        …exchange.feed(chunk)…                         # for each chunk of the decoded body; returns the client's bytes
        …exchange.close(cause)…                        # also returns bytes; cause is a word if the body is incomplete
    exchange.head                                      # ResponseHead(status, headers) for the client

If `client_of` returns None, forward the request unchanged. Check `head` after each step. It is None until the status is
certain. It is set when a streamed answer begins, and otherwise when the last `close` returns. If the gateway refuses
the client's request, `request` is None, `head` is set from the start, and `close()` returns the body.

While the upstream is silent, send `KEEP_ALIVE` of `outputs.sse` to keep the client's connection open. With
`begin(…, watch=function)`, `function` is called with the events of the answer, except its text. No input of the client
or the upstream makes an exchange raise.
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

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__, __dir__ = load_later(__name__, {"app": "service"})  # needs the extra `web`
