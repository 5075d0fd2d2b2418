"""The gateway: the bodies of clients, and what an upstream answers, each of any bytes.

Nothing raises. What goes up is JSON; what comes down is an answer in the client's form, with a status, and it is the
same however the network cuts what the upstream sends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.fuzz.target import Input, Target, seed
from tests.support.gateway import CLIENTS, answer, begin, collect, request, stream, whole

_OPTIONS = {
    "mode": ("text", "native", "auto"),
    "dialects": (None, ["tilde_fence"], ["hermes_json"]),
    "on_malformed": ("error", "text"),
    "upstream": ("openai", "ollama"),
}
_CALL = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n~~~'


def check_request(given: Input) -> Iterator[str]:
    """Read a client's request, and answer it."""
    client = given.choose(5, CLIENTS)
    exchange = begin(client, given.body, **given.choose_all(_OPTIONS))
    yield client
    if exchange.request is None:
        assert exchange.head is not None
        yield json.loads(exchange.close())["error"]["type"]
        return
    if exchange.request.body != given.body:  # which passes as it is where all is native
        json.loads(exchange.request.body)
    assert answer(exchange, stream([_CALL]))
    assert exchange.head is not None


def check_answer(given: Input) -> Iterator[str]:
    """Read an upstream's answer, streamed or not, whole and in pieces."""
    client = given.choose(5, CLIENTS)
    streamed = given.choose(6, (True, False))
    more: dict[str, Any] = {"n": 2, "logprobs": True} if client == "openai" and given.choose(7, (False, True)) else {}
    options = given.choose_all(_OPTIONS) | {"mode": "text", "ask_again": given.choose(8, (0, 1))}
    bodies = []
    cut = sorted({0, len(given.body), *given.places(len(given.body))})
    pieces = [given.body[begin:end] for begin, end in pairwise(cut)]
    for each in ([given.body], pieces):
        exchange = begin(client, request(client, streamed=streamed, **more), **options)
        bodies.append(answer(exchange, each, each))
        assert exchange.head is not None
        yield f"{client} {exchange.head.status}"
    if not more:  # ids may differ: that of the upstream counts if it has come with the first event
        one, other = (collect(client, body) for body in bodies)
        assert one == other


def _requests() -> list[bytes]:
    bodies = [(number, request(client)) for number, client in enumerate(CLIENTS)]
    return [seed(json.dumps(body), _5=number) for number, body in bodies]


def _answers() -> list[bytes]:
    made = [stream(["So.\n", _CALL], reasoning="Hm."), whole(_CALL), stream(["~~~tool_call\n{oops}\n~~~"], None)]
    return [seed(body, _5=number, _6=at == 1) for at, body in enumerate(made) for number in range(3)]


_WORDS = [
    b"tool_calls",
    b"tool_choice",
    b"allowed_tools",
    b"function_call_output",
    b"tool_result",
    b"input_schema",
    b"[DONE]",
]
MAKE = {
    "gateway:request": lambda: Target("gateway:request", check_request, _requests, _WORDS),
    "gateway:answer": lambda: Target("gateway:answer", check_answer, _answers, _WORDS),
}
