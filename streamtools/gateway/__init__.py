"""Under every SDK and in front of every client: tools for models that write their calls into the text.

`ToolCallTransport` goes under an SDK, and `app`, which needs the extra `web`, stands in front of clients in any
language. Both are rims of one sans-IO rewrite:

    rewrite = Rewrite(mode="text")                     # once; see its parameters
    exchange = rewrite.begin(client, body, host=…)     # client: client_of(method, path), None for what is none of ours
    while (request := exchange.request) is not None:   # request.body (JSON), request.endpoint: see path_for
        …send it, with headers_for(client, headers)…
        exchange.begin(status, headers)
        …exchange.feed(chunk) for each chunk of the decoded body: bytes for the client…
        …exchange.close(cause)…                        # cause: a word, where the upstream's body broke off
    exchange.head                                      # Head(status, headers): None until it is certain

`head` is known, at the latest, when the last `close` has returned, and where the answer is streamed, when the model has
begun to answer: look after each step. A request that is refused has no `request`: `head` is known at once, and
`close()` returns the body. While the model is asked again, what holds the connection is `KEEP_ALIVE` of
`outputs.encoder`. `begin(…, watch=function)` is told the events of the answer other than text. An exchange raises
nothing, whatever client and upstream send.
"""

from typing import TYPE_CHECKING

from streamtools.gateway.addresses import Head, client_of, headers_for, path_for
from streamtools.gateway.client_requests import Client
from streamtools.gateway.exchange import Exchange
from streamtools.gateway.rewrite import Rewrite
from streamtools.gateway.settings import FallbackUpstream
from streamtools.gateway.tool_call_transport import ToolCallTransport
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.loading import load_later

if TYPE_CHECKING:
    from streamtools.gateway.service import app

__all__ = [
    "Client", "Exchange", "FallbackUpstream", "Head", "Rewrite", "ToolCallTransport", "UpstreamRequest", "app",
    "client_of", "headers_for", "path_for",
]  # fmt: skip

if not TYPE_CHECKING:  # to a type checker it would say that every name is there
    __getattr__, __dir__ = load_later(__name__, {"app": "service"})  # which needs the extra `web`
