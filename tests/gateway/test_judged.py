"""A judge in the transport and the gateway: text that it has not approved is never sent to a client."""

from __future__ import annotations

import itertools
import json
from typing import Any

import anyio
import httpx
import pytest

from streamtools import TextJudge, rules
from streamtools.gateway import Exchange, FallbackUpstream, Rewrite, ToolCallTransport
from streamtools.gateway.service import app
from streamtools.recording.transports import run_without_waiting
from tests.support.gateway import CLIENTS, HEADERS, Collected, begin, collect, request, stream, whole
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.serving import Served

CALL = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n~~~\n'
TEXT = "Of course. First, wire the money. Then wait.\n"
WEATHER = [("call_text_1", "get_weather", {"city": "Bern"})]
PATHS = {"openai": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}

pytestmark = pytest.mark.anyio
WITH_UVICORN = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def fine(text: str, before: str) -> bool:
    """A judge that answers immediately."""
    return "money" not in text


async def slowly(text: str, before: str) -> bool:
    """A judge that answers after a network request."""
    await anyio.lowlevel.checkpoint()
    return "money" not in text


def settle(exchange: Exchange) -> bytes:
    assert exchange.judge is not None
    sent: bytes = run_without_waiting(exchange.judge.decide(blocking=True))
    return sent


def give(exchange: Exchange, body: bytes, size: int, *, cause: str | None = None) -> bytes:
    """Return the client's bytes. The judge is called as for a blocking client."""
    exchange.begin(200, HEADERS if body.startswith(b"data") else [("content-type", "application/json")])
    sent = b""
    for at in range(0, len(body), size):
        if exchange.complete:
            break
        sent += exchange.feed(body[at : at + size]) + settle(exchange)
    sent += exchange.close(cause)
    while exchange.judge is not None and exchange.judge.pieces:
        sent += settle(exchange) + exchange.close()
    return sent


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_refused_text_and_calls_are_not_sent(client: str, streamed: bool, size: int) -> None:
    judge = TextJudge(fine)
    for text, calls, finish in (
        (f"It rains. So what?\n{CALL}", WEATHER, "tool_calls"),
        (f"{CALL}It rains.", WEATHER, "tool_calls"),
        (f"{TEXT}{CALL}", [], "content_filter"),
        (f"{CALL}{TEXT}", [], "content_filter"),
        ("It rains", [], "stop"),
    ):
        made = stream([text[at : at + 3] for at in range(0, len(text), 3)]) if streamed else whole(text)
        exchange = begin(client, request(client, streamed=streamed), text_judge=judge)
        body = give(exchange, made, size)
        seen = collect(client, body)
        assert b"money" not in body
        assert b"Then" not in body
        shown = text.replace(CALL, "").removesuffix("First, wire the money. Then wait.\n").strip()
        assert (seen.text.strip(), seen.calls, seen.error) == (shown, calls, None), (text, body)
        assert finish != "content_filter" or seen.finish in ("content_filter", "length", None, "refusal"), seen.finish
        assert finish == "content_filter" or seen.finish == finish


def test_unchanged_and_broken_answers_are_judged() -> None:
    exchange = begin("openai", request("openai", tools=[]), mode="native", text_judge=TextJudge(fine))
    assert collect("openai", give(exchange, stream([TEXT]), 9)).text.strip() == "Of course."
    exchange = begin("openai", request("openai"), text_judge=TextJudge(fine))
    seen = collect("openai", give(exchange, stream(["It rains. And"], None, done=False), 9, cause="reset"))
    assert (seen.text, seen.error is not None) == ("It rains. And", True)
    exchange = begin("openai", request("openai"), text_judge=TextJudge(fine))
    exchange.begin(429, [("content-type", "application/json")])
    assert b"busy" in exchange.feed(b'{"error": {"message": "busy"}}') + exchange.close()
    exchange = begin("openai", request("openai"), text_judge=TextJudge(fine))
    exchange.begin(200, HEADERS)
    exchange.feed(stream(["It rains. And"], None, done=False))
    assert exchange.judge is not None
    exchange.judge.give_up()  # the time is up
    seen = collect("openai", exchange.close("transport"))
    assert (seen.text, seen.error is not None) == ("", True)


def test_an_open_piece_is_judged_after_a_while() -> None:
    asked: list[str] = []

    def ask(text: str, before: str) -> bool:
        asked.append(text)
        return True

    exchange = begin("openai", request("openai"), text_judge=TextJudge(ask, wait=1e-9))
    exchange.begin(200, HEADERS)
    sent = [exchange.feed(each) + settle(exchange) for each in stream(["It ", "rains"]).splitlines(keepends=True)]
    assert asked == ["It ", "rains"]
    assert any(b"rains" in each for each in sent)


@pytest.mark.parametrize("streamed", [True, False])
async def test_under_an_sdk(streamed: bool) -> None:
    made = stream([TEXT[:30], TEXT[30:], CALL]) if streamed else whole(TEXT + CALL)
    answer = Loopback([made], declared="text/event-stream" if streamed else "application/json")
    for judge in (TextJudge(slowly), TextJudge(fine)):
        async with (
            Provider(answer) as upstream,
            httpx.AsyncClient(transport=ToolCallTransport(text_judge=judge), trust_env=False) as http,
        ):
            response = await http.post(f"{upstream.url}v1/chat/completions", json=request("openai", streamed=streamed))
        assert collect("openai", response.content) == Collected("Of course.", "", [], "content_filter")


@WITH_UVICORN
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("streamed", [True, False])
async def test_in_front_of_clients(client: str, streamed: bool) -> None:
    made = stream([TEXT[:30], TEXT[30:], CALL]) if streamed else whole(TEXT + CALL)
    good = stream(["It rains.\n", CALL]) if streamed else whole(f"It rains.\n{CALL}")
    declared = "text/event-stream" if streamed else "application/json"
    async with (
        Provider(Loopback([made], declared=declared), Loopback([good], declared=declared)) as upstream,
        Served(app(f"{upstream.url}v1", text_judge=TextJudge(slowly))) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False) as http,
    ):
        refused = await http.post(PATHS[client], json=request(client, streamed=streamed))
        approved = await http.post(PATHS[client], json=request(client, streamed=streamed))
    assert b"money" not in refused.content
    seen = collect(client, refused.content)
    assert (seen.text.strip(), seen.calls, seen.error) == ("Of course.", [], None)
    assert [name for _, name, _ in collect(client, approved.content).calls] == ["get_weather"]


@WITH_UVICORN
async def test_a_slow_judge_ends_the_answer() -> None:
    async def never(text: str, before: str) -> bool:
        await anyio.sleep_forever()
        return True

    async with (
        Provider(Loopback([stream(["It rains. "])])) as upstream,
        Served(app(f"{upstream.url}v1", text_judge=TextJudge(never, timeout=600), longest=0.05)) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False) as http,
    ):
        response = await http.post(PATHS["openai"], json=request("openai"))
    seen = collect("openai", response.content)
    assert (seen.text, seen.error is not None) == ("", True)


def test_options_that_cannot_be_judged() -> None:
    judge = TextJudge(fine)
    exchange = begin("openai", request("openai", n=2), text_judge=judge)
    assert exchange.head is not None
    assert (exchange.head.status, json.loads(exchange.close())["error"]["param"]) == (400, "n")
    other: dict[str, Any] = {"fallbacks": [FallbackUpstream(url="http://127.0.0.1:2/v1")]}
    by_rules: dict[str, Any] = {"text_rules": [rules.email()]}
    probable: Any = ({"logprobs": True}, {"logprobs": 1, "top_logprobs": 3})
    for options, asked in itertools.product(({"text_judge": judge}, by_rules, by_rules | other), probable):
        for mode in ("text", "native"):
            exchange = begin("openai", request("openai", **asked), mode=mode, **options)
            told = json.loads(exchange.close())["error"]
            assert (exchange.head and exchange.head.status, told["param"]) == (400, "logprobs"), (options, mode)
    assert begin("openai", request("openai", logprobs=False, top_logprobs=0), text_judge=judge).request is not None
    with pytest.raises(ValueError, match="cannot judge"):
        Rewrite(text_judge=judge, **other)
    with pytest.raises(ValueError, match="must be a TextJudge"):
        Rewrite(text_judge=fine)  # type: ignore[arg-type]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_unread_text_does_not_pass() -> None:
    """Requests whose answer may have unread text of a model are refused. Other requests are forwarded."""
    passes = ["/v1/embeddings", "/v1/moderations", "/v1/models"]
    refused = ["/v1/completions", "/v1/audio/transcriptions", "/v1/models/gemini:generateContent", "/v1/responses/r_1"]
    options: list[dict[str, Any]] = [{"text_rules": [rules.email()]}, {"text_judge": TextJudge(fine)}]
    for chosen in options:
        async with Provider(*[Loopback([b"{}"], declared="application/json") for _ in range(20)]) as upstream:
            transport = ToolCallTransport(**chosen)
            async with httpx.AsyncClient(base_url=upstream.url, transport=transport) as http:
                told = [(await http.post(path, json={})).status_code for path in (*passes, *refused)]
            gateway = httpx.ASGITransport(app(f"{upstream.url}v1", **chosen))
            async with httpx.AsyncClient(base_url="http://localhost", transport=gateway) as http:
                answers = [await http.post(path, json={}) for path in ("/v1/embeddings", "/v1/completions")]
        assert told == [200] * 3 + [400] * 4
        assert [answer.status_code for answer in answers] == [200, 400]
        assert "cannot check" in answers[1].json()["error"]["message"]
        assert len(upstream.requests) == 4
