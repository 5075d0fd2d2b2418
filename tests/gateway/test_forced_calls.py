"""Forced calls, with servers that can force an answer to match a schema, and with others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamtools.gateway import Exchange, Rewrite
from tests.support.gateway import CLIENTS, Collected, answer, begin, collect, request, stream, whole
from tests.support.scenes import CALL, FORCED_BY

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
