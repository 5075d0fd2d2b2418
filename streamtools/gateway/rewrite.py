"""The rewrite: a client's request into one for the upstream, and the upstream's answer into the client's. Sans-IO.

The door of the package shows how it is used.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamtools.gateway.answer import OnEvent
from streamtools.gateway.client_requests import Client
from streamtools.gateway.exchange import Exchange
from streamtools.gateway.failover_exchange import FailoverExchange
from streamtools.gateway.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Rewrite(Settings):
    """What holds for all requests.

    `mode` says how models are made to call tools: `"text"` teaches them the first of the `dialects` (where none is
    named, what models of that name write, or `tilde_fence`; all of `"auto"` is read), with examples if `few_shot`;
    `"native"` sends the upstream the tools and reads no text, unless `dialects` are named: then the calls that leak in
    those; `"auto"` does so in the dialects that a model of that name is known to write, unless the host or the history
    shows that it makes native calls. A malformed call reaches the client as text, or as an error (`on_malformed`),
    after the model has been asked `ask_again` times to write it anew: then calls leave when they are complete.
    `upstream` is what is spoken there: chat completions, Ollama's own form, or, where dialects are read, the template
    of `"llama.cpp"` or `"vllm"` without the parser behind it. `text_rules` hold for the text of every answer, also
    where nothing else is rewritten, and a `text_judge` approves it before it is sent. `fallbacks` are asked where the
    upstream fails. `new_id` (of calls), `new_answer_id` (where the upstream gives none) and `now` (seconds since 1970)
    make answers repeat. Raises ValueError for a value that is not allowed.
    """

    def begin(self, client: Client, body: bytes, *, host: str | None = None, watch: OnEvent | None = None) -> Exchange:
        """Return the exchange of one request in a client's format; `host` is the upstream's. Never raises.

        `watch` is called with the events of the answer, other than those of text, before the client sees them.
        """
        if self.text_judge is not None:
            from streamtools.gateway.judged_exchange import JudgedExchange  # loaded when it is used

            return JudgedExchange(self, client, body, host, watch)
        kind = FailoverExchange if self.fallbacks else Exchange
        return kind(self, client, body, host, watch)
