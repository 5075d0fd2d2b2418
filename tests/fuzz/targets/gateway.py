"""The gateway: bodies of clients and answers of upstreams, with any bytes.

No input raises an error. Upstream requests are JSON. Responses have the client's format and a status, and do not depend
on the network's cuts. The work is linear in the size of the input (`GRAMMARS`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

from streamtools.gateway import FallbackUpstream
from tests.fuzz.growth import LONG, MANY, NUMBER, Grammar
from tests.fuzz.target import Input, Target, pieces, seed
from tests.fuzz.targets.grammars import STREAMS
from tests.support.gateway import CLIENTS, answer, begin, collect, request, stream, whole

_OPTIONS = {
    "mode": ("text", "native", "auto"),
    "dialects": (None, ["tilde_fence"], ["hermes_json"]),
    "on_malformed": ("error", "text"),
    "api": ("openai", "ollama"),
}
_CALL = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n~~~'


def check_request(given: Input) -> Iterator[str]:
    """Read a request and answer it."""
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
    options = given.choose_all(_OPTIONS) | {"mode": "text"}
    bodies = []
    cut = sorted({0, len(given.body), *given.places(len(given.body))})
    pieces = [given.body[begin:end] for begin, end in pairwise(cut)]
    for each in ([given.body], pieces):
        exchange = begin(client, request(client, streamed=streamed), **options)
        bodies.append(answer(exchange, each))
        assert exchange.head is not None
        yield f"{client} {exchange.head.status}"
    one, other = (collect(client, body) for body in bodies)
    assert one == other


def check_failover(given: Input) -> Iterator[str]:
    """Let one upstream break off at any position, and another one continue."""
    client, how = given.choose(0, CLIENTS), given.choose(1, ("prefilled", "continues", "restarts"))
    prefilled = how == "prefilled"
    second = FallbackUpstream(url="http://127.0.0.1:2/v1", prefill="vllm" if prefilled else "")
    at, *cuts = given.places(len(given.body))
    begun = given.body[:at]
    streamed = given.choose(2, (True, False))
    told: list[Any] = []
    for each in ([begun], [begun[one:other] for one, other in pairwise(sorted({0, at, *cuts})) if other <= at]):
        exchange = begin(client, request(client, streamed=streamed), fallbacks=[second])
        follows = stream(["So.\n", _CALL]) if streamed else whole(_CALL)
        body = answer(exchange, each, follows, cause="transport")
        assert exchange.head is not None
        told.append(collect(client, body))
        assert len({id for id, _, _ in told[-1].calls}) == len(told[-1].calls)
    assert told[0] == told[1]

    text = given.text.encode(errors="replace").decode()
    shown, rest = text[: (at := given.places(len(text))[0])], text[at:]
    options: dict[str, Any] = {"mode": "native", "fallbacks": [second]}
    asked = request(client, tools=())
    if not shown.strip() or collect(client, answer(begin(client, asked, **options), stream([text]))).text != text:
        return  # there is no text to continue, or part of the input is not text
    continuation = text if how == "restarts" else shown[len(shown.rstrip()) :] + rest if prefilled else rest
    exchange = begin(client, asked, **options)
    got = collect(
        client, answer(exchange, stream([shown], None, done=False), stream([continuation]), cause="transport")
    )
    yield f"{client} {how}"
    assert got.error is None
    assert got.text.startswith(shown)
    assert got.text.endswith(rest)
    assert got.text == text or not prefilled


def _requests() -> list[bytes]:
    bodies = [(number, request(client)) for number, client in enumerate(CLIENTS)]
    return [seed(json.dumps(body), _5=number) for number, body in bodies]


def _answers() -> list[bytes]:
    made = [stream(["So.\n", _CALL], reasoning="Hm."), whole(_CALL), stream(["~~~tool_call\n{oops}\n~~~"], None)]
    return [seed(body, _5=number, _6=at == 1) for at, body in enumerate(made) for number in range(3)]


def _broken() -> list[bytes]:
    text = "The capital of France is Paris. It lies on the Seine, and many people visit it each year."
    bodies: list[bytes | str] = [
        stream(["So.\n", _CALL], reasoning="Hm."),
        stream([text]),
        text,
        f"  {text}\n\n{text}",
        "a " * 40,
    ]
    return [seed(body, _0=at, _1=how, _13=at, _14=how) for at, body in enumerate(bodies) for how in range(3)]


_WORDS = [
    *(b"tool_calls", b"tool_choice", b"allowed_tools", b"function_call_output", b"tool_result", b"input_schema"),
    b"[DONE]",
]
MAKE = {
    "gateway:request": lambda: Target("gateway:request", check_request, _requests, _WORDS),
    "gateway:failover": lambda: Target("gateway:failover", check_failover, _broken, _WORDS),
    "gateway:answer": lambda: Target("gateway:answer", check_answer, _answers, _WORDS),
}


# Growth.

_FUNCTION = {"name": f"t{NUMBER}", "description": "Do it.", "parameters": {}, "input_schema": {}}
_CALLED = {"id": f"c{NUMBER}", "type": "function", "function": {"name": "f", "arguments": '{"a": "~~~tool_call"}'}}
_ASKED: list[Any] = [
    {"tool": {"type": "function", "function": _FUNCTION, **_FUNCTION}},
    {"tool": {"type": "function", "function": {**_FUNCTION, "description": LONG}, **_FUNCTION}},
    {"allowed": {"type": "function", "name": f"t{NUMBER}"}},
    {"allowed": {"type": "function", "name": "t0"}},
    {"role": "user", "content": "~~~tool_call\n"},
    {"role": "user", "content": [MANY, {"type": "text", "text": "~~~tool_call\n"}]},
    {"role": "system", "content": "a"},
    {"role": "assistant", "content": "a", "tool_calls": [MANY, _CALLED]},
    {"role": "assistant", "content": "~~~tool_call\n"},
    {"role": "tool", "tool_call_id": f"c{NUMBER}", "content": "~~~tool_call\n"},
    {"role": "tool", "tool_call_id": "c0", "content": LONG},
]
_TOLD: list[Any] = [
    *STREAMS["openai"].frames[:4],
    *STREAMS["openai"].frames[-4:],
    {"choices": [{"index": NUMBER, "delta": {"content": "a"}}]},
    {"choices": [MANY, {"index": NUMBER, "delta": {"content": "a"}, "finish_reason": "stop"}]},
    {"choices": [MANY, {"index": 0, "delta": {"content": "a"}}], "citations": [MANY, "a"]},
    *({"choices": [{"index": 0, "delta": {kind: "a"}}]} for kind in ("content", "reasoning_content")),
    {"choices": [{"index": 0, "delta": {"content": " "}}]},
    {"choices": [{"index": 0, "delta": {"content": _CALL + "\n"}}]},
    {"choices": [{"index": 0, "delta": {"content": "~~~tool_call\n{oops}\n~~~\n"}}]},
    {"choices": [{"index": 0, "delta": {"content": '~~~tool_call\n{"name": "f", "arguments": {"a": "'}}]},
    {"choices": [{"index": 0, "delta": {"content": "~~~tool_result\n~~~\n" + "abc " * 50 + "\n"}}]},
    {"choices": [{"index": 0, "delta": {"content": LONG}}]},
]


def _grow(client: str, options: dict[str, Any], parts: list[Any]) -> None:
    tools, allowed = ([each[kind] for each in parts if kind in each] for kind in ("tool", "allowed"))
    said = [each for each in parts if "role" in each]
    body = {"model": "m", "max_tokens": 9, "tools": tools, "input" if client == "responses" else "messages": said}
    choice = {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": allowed}}
    begin(client, body | (choice if allowed else {"tool_choice": "required"} if options and tools else {}), **options)


def _grow_answer(client: str, more: dict[str, Any], parts: list[Any], **options: Any) -> None:
    body = "".join(each if isinstance(each, str) else f"data: {json.dumps(each)}\n\n" for each in parts).encode()
    exchange = begin(client, request(client, **more), **options)
    answer(exchange, pieces(body, 1000))


def _grow_whole(client: str, parts: list[Any]) -> None:
    """Read a whole answer for a client without streaming."""
    content = "".join(
        delta.get("content") or ""
        for each in parts
        if isinstance(each, dict)
        for choice in each.get("choices") or ()
        if isinstance(choice, dict) and isinstance(delta := choice.get("delta"), dict)
    )
    answer(begin(client, request(client, streamed=False)), whole(content))


GRAMMARS: dict[str, Grammar] = {
    "asked": Grammar(
        _ASKED,
        [
            *(partial(_grow, client, {}) for client in CLIENTS),
            partial(_grow, "responses", {"mode": "native"}),
            partial(_grow, "openai", {"api": "vllm"}),
            partial(_grow, "openai", {"mode": "native", "dialects": ["tilde_fence"], "api": "ollama"}),
        ],
        first=[{"role": "user", "content": "a"}],
    ),
    "answered": Grammar(
        _TOLD,
        [
            *(partial(_grow_answer, client, {}) for client in CLIENTS),
            *(partial(_grow_whole, client) for client in CLIENTS),
            partial(_grow_answer, "openai", {"tool_choice": "required"}, api="vllm"),
            partial(_grow_answer, "openai", {}, mode="native", dialects=["tilde_fence"]),
        ],
        last=[{"choices": [{"delta": {}, "finish_reason": "stop"}]}, "data: [DONE]\n\n"],
    ),
}
"""Of what a client asks for, and of what the upstream answers."""
