"""Several upstreams behind one gateway: failures before an answer begins, and in mid-stream."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import rules
from streamtools.conversation.failover_rules import CONTINUE_PROMPT
from streamtools.gateway import Exchange, FallbackUpstream, Rewrite, ToolCallTransport
from streamtools.gateway.service import app
from tests.support.chat_chunks import DONE, chunk, sse
from tests.support.gateway import CLIENTS, HEADERS, begin, collect, request, stream, whole
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.serving import Served

TEXT = "The capital of France is Paris. It lies on the Seine, and many people visit it each year."
CALL = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n~~~\n'
SECOND = FallbackUpstream(url="http://127.0.0.1:2/v1", model="second")
PREFILLED = FallbackUpstream(url="http://127.0.0.1:2/v1", prefill="vllm")


def give(exchange: Exchange, status: int, body: bytes, *, cause: str | None = None) -> bytes:
    """Return the client's bytes for one answer of an upstream."""
    declared = HEADERS if body.startswith(b"data") else [("content-type", "application/json")]
    exchange.begin(status, declared)
    return exchange.feed(body) + exchange.close(cause)


def asked(exchange: Exchange) -> Any:
    assert exchange.request is not None
    return json.loads(exchange.request.body)


def cut(text: str) -> bytes:
    """Return the stream of an answer that breaks off."""
    return stream([text[at : at + 5] for at in range(0, len(text), 5)], None, done=False)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streamed", [True, False])
def test_failures_before_an_answer_begins(client: str, streamed: bool) -> None:
    """The next upstream gets the same request with its own model name. The client sees one answer and no failure."""
    good = stream([TEXT]) if streamed else whole(TEXT)
    for status in (408, 429, 500, 503):
        exchange = begin(client, request(client, streamed=streamed), fallbacks=[SECOND])
        first = asked(exchange)
        assert give(exchange, status, b'{"error": {"message": "busy"}}') == b""
        assert exchange.request is not None
        assert exchange.request.at == 1
        assert asked(exchange) == {**first, "model": "second"}
        got = collect(client, give(exchange, 200, good))
        assert got.text == TEXT
        assert got.error is None
        assert exchange.head is not None
        assert exchange.head.status == 200

    exchange = begin(client, request(client, streamed=streamed), fallbacks=[SECOND])
    refused = give(exchange, 400, b'{"error": {"message": "no"}}')
    assert exchange.request is None
    assert collect(client, refused).error == "no"

    exchange = begin(client, request(client, streamed=streamed), fallbacks=[SECOND])
    give(exchange, 503, b"")
    assert b"again" in give(exchange, 503, b'{"error": {"message": "again"}}')
    assert exchange.request is None


@pytest.mark.parametrize("client", CLIENTS)
def test_every_cut_of_an_answer(client: str) -> None:
    """The client gets the text once and complete, after a prefill, an instruction or a restart."""
    for at in range(0, len(TEXT) + 1, 7):
        shown, rest = TEXT[:at], TEXT[at:]
        for upstream, answers in ((PREFILLED, [shown[len(shown.rstrip()) :] + rest]), (SECOND, [rest, shown + rest])):
            for answer in answers:
                exchange = begin(client, request(client, tools=()), mode="native", fallbacks=[upstream])
                sent = give(exchange, 200, cut(shown), cause="transport")
                body = asked(exchange)
                if upstream is PREFILLED and shown:
                    assert body["messages"][-1] == {"role": "assistant", "content": shown.rstrip()}
                    assert body["continue_final_message"] is True
                elif shown:
                    assert [each["role"] for each in body["messages"][-2:]] == ["assistant", "user"]
                    assert body["messages"][-1]["content"] == CONTINUE_PROMPT
                else:
                    assert body["messages"][-1]["role"] == "user"
                sent += give(exchange, 200, stream([answer[i : i + 4] for i in range(0, len(answer), 4)]))
                got = collect(client, sent)
                assert got.error is None
                assert len(shown) < 16 or got.text == TEXT
                assert got.text.endswith(rest)
                assert got.text.startswith(shown)


def native(arguments: str, index: int = 0) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}


@pytest.mark.parametrize("client", CLIENTS)
def test_native_calls_are_discarded(client: str) -> None:
    """Complete or not, they belong to the failed model."""
    frames = [{"content": "I look. "}, native('{"city": "Bern"}'), native('{"ci', 1)]
    exchange = begin(client, request(client), mode="native", fallbacks=[SECOND])
    sent = give(exchange, 200, b"".join(map(chunk, frames)) + sse({"error": {"message": "overloaded", "code": 503}}))
    got = collect(client, sent + give(exchange, 200, chunk(native('{"city": "Basel"}'), "tool_calls") + DONE))
    assert got.text.strip() == "I look."
    assert [arguments for _, _, arguments in got.calls] == [{"city": "Basel"}]
    assert got.error is None


def test_a_rule_applies_across_the_break() -> None:
    """A match that the break divides is removed completely."""
    secret = "AKIAIOSFODNN7EXAMPLE"
    for at in range(1, len(secret)):
        exchange = begin("openai", request("openai"), fallbacks=[PREFILLED], text_rules=[rules.keys()])
        sent = give(exchange, 200, cut("The key is " + secret[:at]), cause="transport")
        written = asked(exchange)["messages"][-1]["content"]
        rest = ("The key is " + secret + " today.")[len(written) :]
        sent += give(exchange, 200, stream([rest]))
        assert secret[:8] not in collect("openai", sent).text
        assert collect("openai", sent).text.endswith("today.")


def test_an_answer_that_a_rule_ended_is_complete() -> None:
    """A later break of the connection does not matter."""
    exchange = begin("openai", request("openai"), fallbacks=[SECOND], text_rules=[rules.stop("END")])
    sent = give(exchange, 200, cut("Half. END of"), cause="transport")
    assert exchange.request is None
    assert collect("openai", sent).error is None


def test_an_answer_that_is_not_streamed() -> None:
    """No part of the failed answer remains."""
    for body, cause in ((whole(TEXT)[:60], "transport"), (b"<html>", None), (b'{"error": {"message": "busy"}}', None)):
        exchange = begin("openai", request("openai", streamed=False), fallbacks=[SECOND])
        assert give(exchange, 200, body, cause=cause) == b""
        assert collect("openai", give(exchange, 200, whole(TEXT))).text == TEXT


def test_the_failure_of_the_last_upstream_is_reported() -> None:
    """An upstream that keeps failing is asked last."""
    rewrite = Rewrite(fallbacks=[SECOND])
    for _ in range(5):
        exchange = rewrite.begin("openai", json.dumps(request("openai")).encode())
        give(exchange, 502, b"")
        assert b"stream" in give(exchange, 200, cut("Half"), cause="transport")
        assert exchange.request is None
    rewrite.circuits.record(1, failed=False)
    exchange = rewrite.begin("openai", json.dumps(request("openai")).encode())
    assert exchange.request is not None
    assert exchange.request.at == 1


def test_invalid_upstreams() -> None:
    for wrong in ({"url": "ftp://a"}, {"url": "http://user@a/v1"}, {"url": "http://a/v1", "prefill": "anthropic"}):
        with pytest.raises(ValueError, match=r"`url` must|`key` is|prefill"):
            FallbackUpstream(**wrong)  # type: ignore[arg-type]
    assert "secret" not in repr(FallbackUpstream(url="http://a/v1", key="secret"))


# Over the network.

GONE = "http://127.0.0.1:9/v1"
"""An address without a server."""
KEY = "sk-of-the-second-1234"


async def test_under_an_sdk() -> None:
    """A refused connection, an error status, and a break. The client's key is sent only to the first upstream."""
    answers = Loopback([stream([TEXT])]), Loopback([cut(TEXT[:30])], drop=True)
    async with Provider(*answers) as first, Provider(*[Loopback([stream([TEXT[30:]])])] * 2) as second:
        others = [FallbackUpstream(url=f"{second.url}v1", key=KEY)]
        for url, text in ((f"{first.url}v1", TEXT), (f"{first.url}v1", TEXT), (GONE, TEXT[30:])):
            transport = ToolCallTransport(mode="native", fallbacks=others)
            async with httpx.AsyncClient(transport=transport) as http:
                asked = request("openai", tools=())
                headers = {"authorization": "Bearer mine", "cookie": "c=1"}
                response = await http.post(f"{url}/chat/completions", json=asked, headers=headers)
            assert collect("openai", response.content).text == text
        assert [head["authorization"] for head in second.heads] == [f"Bearer {KEY}"] * 2
        assert all("cookie" not in head and head["host"] in second.url for head in second.heads)
        assert [head["authorization"] for head in first.heads] == ["Bearer mine"] * 2
    async with httpx.AsyncClient(transport=ToolCallTransport(fallbacks=[FallbackUpstream(url=GONE)])) as http:
        with pytest.raises(httpx.ConnectError):
            await http.post(f"{GONE}/chat/completions", json=request("openai"))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_in_front_of_clients() -> None:
    """In each client's format, after a break in mid-answer. A key that the second upstream repeats is overwritten."""
    answers = [Loopback([cut(TEXT[:30])], drop=True)] * len(CLIENTS)
    rests = [Loopback([stream([f"{TEXT[30:]} {KEY}"])])] * (len(CLIENTS) + 1)
    async with Provider(*answers) as first, Provider(*rests) as second:
        others = [FallbackUpstream(url=f"{second.url}v1", key=KEY, model="big")]
        async with (
            Served(app(f"{first.url}v1", fallbacks=others)) as server,
            Served(app(GONE, fallbacks=others)) as alone,
            httpx.AsyncClient(trust_env=False) as http,
        ):
            for client, path in (("openai", "chat/completions"), ("responses", "responses"), ("anthropic", "messages")):
                response = await http.post(f"{server.url}/v1/{path}", json=request(client))
                assert collect(client, response.content).text == f"{TEXT} {'*' * len(KEY)}"
            response = await http.post(f"{alone.url}/v1/chat/completions", json=request("openai"))
            assert response.status_code == 200
        assert [body["model"] for body in second.bodies] == ["big"] * 4
        assert [head["authorization"] for head in second.heads] == [f"Bearer {KEY}"] * 4


@pytest.mark.parametrize("client", CLIENTS)
@given(at=st.integers(0, len(CALL) + 2), again=st.booleans())
def test_an_open_call_is_discarded(client: str, at: int, again: bool) -> None:
    """At any cut, the client gets the calls of the last answer once."""
    exchange = begin(client, request(client), fallbacks=[SECOND])
    sent = give(exchange, 200, cut("I look.\n" + (CALL + "  ")[:at]), cause="transport")
    assert b"Bern" not in sent
    kept = CALL.rstrip() in "".join(
        each["content"] for each in asked(exchange)["messages"] if each["role"] == "assistant"
    )
    sent += give(exchange, 200, stream([] if kept and not again else ["\n" + CALL.replace("Bern", "Basel")]))
    got = collect(client, sent)

    assert got.error is None
    assert got.text.strip() == "I look."
    cities = [arguments["city"] for _, _, arguments in got.calls]
    assert cities == ["Bern"] * kept + ["Basel"] * (again or not kept)
    assert len({id for id, _, _ in got.calls}) == len(got.calls)
