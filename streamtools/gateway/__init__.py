"""Give tools to a model that writes its calls into the text, under any SDK and in front of any client.

`ToolCallTransport` works under an SDK. `app` serves clients in any language, and needs the extra `web`. Both use one
sans-IO rewrite:

    rewrite = Rewrite(mode="text")                     # once; see its parameters
    exchange = rewrite.begin(client, body, host=…)     # client: client_of(method, path), None for other requests
    while (request := exchange.request) is not None:   # request.body (JSON), request.endpoint: see path_for
        …send it, with headers_for(client, headers)…
        exchange.begin(status, headers)
        …exchange.feed(chunk) for each chunk of the decoded body: bytes for the client…
        …exchange.close(cause)…                        # cause: a word, if the upstream's body broke off
    exchange.head                                      # ResponseHead(status, headers): None until it is certain

Check `head` after each step. It is set when the last `close` has returned, or earlier when a streamed answer begins. A
refused request has no `request`: `head` is set from the start, and `close()` returns the body. While the model is asked
again, `KEEP_ALIVE` of `outputs.sse` keeps the connection open. `begin(…, watch=function)` reports the events of the
answer except its text. An exchange raises nothing, whatever client and upstream send.
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
