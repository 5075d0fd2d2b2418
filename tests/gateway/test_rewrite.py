"""The rewrite, scene by scene, in all formats of clients, streamed and not, with equal results."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamtools import rules
from streamtools.gateway import Exchange, Rewrite
from streamtools.limits import Limits
from tests.support.gateway import CLIENTS, HEADERS, Collected, answer, begin, collect, request, stream, whole
from tests.support.scenes import CALL, FORCED_BY, SCENES, normal


@pytest.mark.parametrize("client", CLIENTS)
def test_each_scene_streamed_and_not(client: str) -> None:
    for name, scene in SCENES.items():
        for streamed in (True, False):
            exchange = begin(client, scene.asked(client, streamed=streamed), **scene.options)
            seen = collect(client, answer(exchange, scene.answered(streamed=streamed)))
            assert exchange.head is not None, name
            assert exchange.head.status == (200 if streamed or not scene.seen.error else 502), name
            assert normal(seen, streamed=streamed) == scene.seen, (name, streamed)


@pytest.mark.parametrize("client", CLIENTS)
def test_rules_apply_to_every_answer(client: str) -> None:
    """Also to an answer that needs no other change."""
    found = [rules.email(), rules.stop("END")]
    for streamed, asked in itertools.product((True, False), ({}, {"tools": (), "mode": "native"})):
        body = request(client, streamed=streamed, **{key: each for key, each in asked.items() if key == "tools"})
        options = {key: each for key, each in asked.items() if key == "mode"}
        exchange = begin(client, body, text_rules=found, **options)
        text = "Write to bob@example.org. END bob@example.org"
        upstream = stream([text[at : at + 3] for at in range(0, len(text), 3)]) if streamed else whole(text)
        seen = collect(client, answer(exchange, upstream))
        assert Collected("Write to [email]. ", "", [], "stop") == seen, (streamed, asked)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_cut_call_is_no_call(client: str) -> None:
    """The answer ends with `length` if the upstream reports it, otherwise with an error."""
    text = 'So.\n~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Zü'
    for finish, streamed in (("length", True), ("length", False), ("stop", True), ("stop", False), (None, True)):
        exchange = begin(client, request(client, streamed=streamed))
        upstream = stream([text], finish, done=finish is not None) if streamed else whole(text, str(finish))
        seen = collect(client, answer(exchange, upstream))
        assert seen.finish == ("length" if finish == "length" else None), (finish, streamed)
        assert (seen.error is None) is (finish == "length"), (finish, streamed)
        assert exchange.head is not None
        assert exchange.head.status == (200 if streamed or finish == "length" else 502)


MALFORMED = {
    "no JSON": '{"name": "get_weather", "arguments": {"city": oops}}',
    "no JSON behind the arguments": '{"name": "get_weather", "arguments": {"city": "Bern"} oops}',
    "no number": '{"name": "get_weather", "arguments": {"city": NaN}}',
    "a number that is none": '{"name": "get_weather", "arguments": {"city": 1e999}}',
    "a key twice": '{"name": "get_weather", "arguments": {"city": "Bern", "city": "Rome"}}',
    "half a character": '{"name": "get_weather", "arguments": {"city": "\\ud800"}}',
    "two sets of arguments": '{"name": "get_weather", "arguments": {"city": "Bern"}, "parameters": {"city": "Rome"}}',
    "no name": "{oops}",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_malformed_call_ends_the_answer_with_an_error(client: str) -> None:
    """Some clients run a call as soon as its arguments are JSON, and accept NaN or duplicate keys."""
    for name, body in MALFORMED.items():
        text = f"~~~tool_call\n{body}\n~~~\n"
        for streamed in (True, False):
            made = stream([text]) if streamed else whole(text)
            exchange = begin(client, request(client, streamed=streamed))
            seen = collect(client, answer(exchange, made))
            assert (seen.error is not None, seen.finish) == (True, None), (name, streamed)
            assert all(isinstance(each[2], str) for each in seen.calls), (name, streamed)
            assert exchange.head is not None
            assert exchange.head.status == (200 if streamed else 502)
    twice = f"~~~tool_call\n{MALFORMED['a key twice']}\n~~~"
    told = answer(begin("openai", request("openai", streamed=False)), whole(twice))
    assert json.loads(told)["error"]["code"] == "duplicate_key"


def test_an_endless_answer_is_cut() -> None:
    """At most 16 times the maximum size of a frame is read."""
    for client in CLIENTS:
        exchange = begin(client, request(client), limits=Limits(frame=1000))
        exchange.begin(200, HEADERS)
        sent = [exchange.feed(stream(["word "], None, done=False)) for _ in range(100)]
        assert not any(sent[80:]), client
        seen = collect(client, b"".join([*sent, exchange.close()]))
        assert set(seen.text.split()) == {"word"}, client
        assert 20 < seen.text.count("word") < 80, client
        assert seen.error, client


def test_a_malformed_call_reaches_the_client() -> None:
    """Its arguments are a string, which no client reads as an object. Anthropic's format has no such call."""
    text = '~~~tool_call\n{"name": "get_weather", "arguments": oops}\n~~~\n'
    for client in CLIENTS:
        for streamed in (True, False):
            made = stream([text]) if streamed else whole(text)
            seen = collect(client, answer(begin(client, request(client, streamed=streamed)), made))
            if client == "anthropic":
                assert (seen.error is not None, seen.calls) == (True, [])
            else:
                assert (seen.finish, [type(each[2]) for each in seen.calls]) == ("tool_calls", [str]), client


def test_a_call_ends_before_the_next_one_begins() -> None:
    """Clients read the beginning of a call as the end of the call before it."""
    call = '{"name": "get_weather", "arguments": {"city": "Bern"}}'
    told = stream(f"~~~tool_call\n[{call}, {call}]\n~~~")
    ends = {
        "openai": b'"index":1,"id"',
        "responses": b'"output_index":1,"item"',
        "anthropic": b'"index":1,"content_block"',
    }
    for client, second in ends.items():
        exchange = begin(client, request(client))
        exchange.begin(200, HEADERS)
        before, _, after = (exchange.feed(told) + exchange.close()).partition(second)
        seen = collect(client, before + second + after)
        assert [each[2] for each in seen.calls] == [{"city": "Bern"}] * 2, client
        assert b'city\\":\\"Bern' not in before + second + after, "they are as the model wrote them"
        first = {"openai": b'"index":0,"function"', "responses": b'"output_index":0', "anthropic": b'"index":0'}[client]
        assert first in before, client
        assert (first in after.partition(b"response.completed")[0]) is False, client


@pytest.mark.parametrize("client", CLIENTS)
def test_a_bare_404_mentions_the_url(client: str) -> None:
    """A wrong URL is the most common mistake of a setup. The upstream's own message has priority."""
    for said, message in (("", "/v1"), ('{"error": {"message": "no such model"}}', "no such model")):
        exchange = begin(client, request(client))
        exchange.begin(404, HEADERS)
        assert message in (exchange.feed(said.encode()) + exchange.close()).decode()
        assert exchange.head is not None
        assert exchange.head.status == 404


# Forced calls, with servers that can force an answer to match a schema, and with others.


CALLS = (
    '[{"name": "get_weather", "arguments": {"city": "Zürich"}}, {"name": "get_time", "arguments": {"city": "Bern"}}]'
)
ONE = '{"name": "get_weather", "arguments": {"city": "Zürich"}}'
WEATHER = ("call_text_1", "get_weather", {"city": "Zürich"})
TIME = ("call_text_2", "get_time", {"city": "Bern"})
REQUIRED: dict[str, Any] = {"openai": "required", "responses": "required", "anthropic": {"type": "any"}}
SERVERS = ("llama.cpp", "vllm", "ollama")


def told(exchange: Exchange) -> Any:
    assert exchange.request is not None
    return json.loads(exchange.request.body)


def schema_in(body: Any) -> Any:
    """Return the schema in a request for the upstream."""
    return body["response_format"]["json_schema"]["schema"]


def reply(text: str, *, streamed: bool) -> Any:
    """Return an answer of a server."""
    return stream([text[at : at + 3] for at in range(0, len(text), 3)]) if streamed else whole(text)


@pytest.mark.parametrize("client", CLIENTS)
def test_servers_get_the_schema_of_a_forced_call(client: str) -> None:
    """In any taught dialect: several calls, or one if a tool is named or parallel calls are off."""
    for server in SERVERS:
        for dialects in (None, ["hermes_json"]):
            for streamed in (True, False):
                for wish, text, calls in ((REQUIRED, CALLS, [WEATHER, TIME]), (FORCED_BY, f"\n {ONE}\n", [WEATHER])):
                    asked = request(client, streamed=streamed, tool_choice=wish[client])
                    exchange = begin(client, asked, api=server, dialects=dialects)
                    body = told(exchange)
                    schema = schema_in(body)
                    ones = schema["items"]["anyOf"] if wish is REQUIRED else [schema]
                    names = [each["properties"]["name"]["const"] for each in ones]
                    assert names == [name for _, name, _ in calls], (server, schema)
                    assert "and nothing else" in body["messages"][-1]["content"]
                    seen = collect(client, answer(exchange, reply(text, streamed=streamed)))
                    assert seen == Collected("", "", calls, "tool_calls"), (server, dialects, streamed)


def test_a_refused_schema_is_left_out() -> None:
    with capture_logs() as logs:
        rewrite = Rewrite(api="vllm")
        for streamed in (True, False, True):
            exchange = rewrite.begin(
                "openai", json.dumps(request("openai", streamed=streamed, tool_choice="required")).encode()
            )
            exchange.begin(400, [("content-type", "application/json")])
            exchange.feed(b'{"error": {"message": "no such grammar"}}')
            assert exchange.close() == b""
            assert "response_format" not in told(exchange)
            seen = collect("openai", answer(exchange, reply(CALL, streamed=streamed)))
            assert [each[1:] for each in seen.calls] == [WEATHER[1:]]
    assert [each["event"] for each in logs if each["event"] == "schema_not_used"] == ["schema_not_used"]
    exchange = rewrite.begin("openai", json.dumps(request("openai", tool_choice="required")).encode())
    assert json.loads(answer(exchange, b'{"error": {"message": "busy"}}', status=429))["error"]["message"] == "busy"


def test_bare_json_of_a_forced_call_is_read() -> None:
    """Text after it is text. The arguments of a call that is cut are not complete JSON."""
    calls = [WEATHER]
    for text, seen in (
        (f"{ONE} and more", Collected(" and more", "", calls, "tool_calls")),
        (f"```json\n{ONE}\n```", Collected("", "", calls, "tool_calls")),
        (json.dumps([json.loads(ONE)], indent=4), Collected("", "", calls, "tool_calls")),
        (f"{ONE}\n{json.dumps({'name': 'get_time', 'arguments': {'city': 'Bern'}})}",
         Collected("", "", [WEATHER, TIME], "tool_calls")),
    ):  # fmt: skip
        exchange = begin("openai", request("openai", tool_choice="required"), api="vllm")
        assert collect("openai", answer(exchange, reply(text, streamed=True))) == seen, text
    exchange = begin("openai", request("openai", tool_choice="required"), api="vllm")
    cut = collect("openai", answer(exchange, stream([ONE[:-4]], finish="length")))
    assert (cut.text, cut.finish, cut.calls[0][2]) == ("", "length", '{"city": "Züric')
