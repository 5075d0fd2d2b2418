"""The laws of the package from the bytes of the upstream to the bytes of the client."""

from __future__ import annotations

import json
import random
import time
from itertools import pairwise
from typing import Any

import pytest

from streamtools.parsing.dialects import DIALECTS
from tests.support.gateway import CLIENTS, Collected, answer, begin, collect, request, stream, whole

PROSE = "Let me see.\n\n"
ARGUMENTS = {"city": "Zürich – 東京 🏔", "days": 3}
NAME = "get_weather"


def asked(client: str, *, streamed: bool = True) -> Any:
    """Return a request whose tool has a parameter that is not text."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    body = request(client, streamed=streamed, tools=[NAME])
    (tool,) = body["tools"]
    tool.get("function", tool)["input_schema" if client == "anthropic" else "parameters"] = schema
    return body


def cuts(body: bytes, seed: int) -> list[bytes]:
    """Return a body in pieces of one to hundreds of bytes."""
    chance = random.Random(seed)
    places = sorted({0, len(body), *(chance.randrange(len(body)) for _ in range(chance.choice((3, 40, 400))))})
    return [body[begin:end] for begin, end in pairwise(places)]


some_and_all = pytest.mark.parametrize(
    "ids", [list(DIALECTS)[::7], pytest.param(list(DIALECTS), marks=pytest.mark.deep)], ids=["some", "all"]
)


@some_and_all
def test_cuts_do_not_change_the_answer(ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamed answers and others are equal, and no character of a call is text."""
    monkeypatch.setattr(time, "time", lambda: 7)
    for number, id in enumerate(ids):
        dialect = DIALECTS[id]
        client = CLIENTS[number % 3]
        call = dialect.write_call(NAME, ARGUMENTS)
        alone = "A call is the whole answer" in dialect.instructions()
        text = ("" if alone else PROSE) + call
        options: dict[str, Any] = {"mode": "text" if dialect.teachable else "native", "dialects": [id]}
        deltas = [text[at : at + 4] for at in range(0, len(text), 4)]
        told = stream(deltas)
        body = answer(begin(client, asked(client), **options), told)
        for seed in range(3):
            assert answer(begin(client, asked(client), **options), cuts(told, seed)) == body, (id, seed)
        seen = collect(client, body)
        assert (seen.text.strip(), seen.finish) == ("" if alone else PROSE.strip(), "tool_calls"), id
        assert [(name, given["city"]) for _, name, given in seen.calls] == [(NAME, ARGUMENTS["city"])], id
        for other in (stream(list(text)), stream([text])):
            assert collect(client, answer(begin(client, asked(client), **options), other)) == seen, id
        body = answer(begin(client, asked(client, streamed=False), **options), whole(text))
        assert collect(client, body) == seen, id


@some_and_all
def test_arguments_results_and_descriptions_are_neutralized(ids: list[str]) -> None:
    """Clients get arguments unchanged. Thoughts, descriptions and texts in results are neutralized."""
    for number, id in enumerate(ids):
        planted = DIALECTS[id].write_call(NAME, ARGUMENTS)
        client = CLIENTS[number % 3]
        body = asked(client)
        tool = body["tools"][0]
        tool.get("function", tool)["description"] = planted
        given, page = {"city": planted, planted: 1}, json.dumps({"page": planted})
        if client == "anthropic":
            use = {"type": "tool_use", "id": "c1", "name": NAME, "input": given}
            result = {"type": "tool_result", "tool_use_id": "c1", "content": page}
            body["messages"] += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        elif client == "openai":
            call = {"id": "c1", "type": "function", "function": {"name": NAME, "arguments": json.dumps(given)}}
            said = {"role": "assistant", "content": None, "reasoning_content": planted, "tool_calls": [call]}
            body["messages"] += [said, {"role": "tool", "tool_call_id": "c1", "content": page}]
        else:
            call = {"type": "function_call", "call_id": "c1", "name": NAME, "arguments": json.dumps(given)}
            body["input"] += [call, {"type": "function_call_output", "call_id": "c1", "output": page}]
        options: dict[str, Any] = {"mode": "native", "dialects": [id]}
        exchange = begin(client, body, **options)
        assert exchange.request is not None
        told = json.loads(exchange.request.body)
        (call,) = (each for message in told["messages"] for each in message.get("tool_calls", ()))
        read = json.loads(call["function"]["arguments"])
        thoughts = [message.get("reasoning_content") or "" for message in told["messages"]]
        pages = [json.loads(each["content"])["page"] for each in told["messages"] if each["role"] == "tool"]
        assert pages
        for said in (*read, *pages, *map(str, read.values()), told["tools"][0]["function"]["description"], *thoughts):
            assert collect(client, answer(begin(client, body, **options), stream([said]))).calls == [], (id, said)


@some_and_all
def test_repeated_calls_in_messages_are_text(ids: list[str]) -> None:
    """A call in a result, in a user message or in an earlier answer is text if the model repeats it."""
    for number, id in enumerate(ids):
        dialect = DIALECTS[id]
        planted = dialect.write_call(NAME, ARGUMENTS)
        options: dict[str, Any] = {"mode": "text" if dialect.teachable else "native", "dialects": [id]}
        client = ("openai", "responses")[number % 2]
        body = asked(client)
        key = "messages" if client == "openai" else "input"
        body[key] = [{"role": "user", "content": planted}, {"role": "assistant", "content": f"So: {planted}"}]
        if client == "openai":
            call = {"id": "c1", "type": "function", "function": {"name": NAME, "arguments": "{}"}}
            body[key][1]["tool_calls"] = [call]
            body[key].append({"role": "tool", "tool_call_id": "c1", "content": planted})
        else:
            body[key].append({"type": "function_call", "call_id": "c1", "name": NAME, "arguments": "{}"})
            body[key].append({"type": "function_call_output", "call_id": "c1", "output": planted})
        exchange = begin(client, body, **options)
        assert exchange.request is not None
        read = [each for each in json.loads(exchange.request.body)["messages"] if each["role"] != "system"]
        own = dialect.write_call(NAME, {})
        for message in read:
            text = (message["content"] or "").replace(own, "")  # but for its own call
            if "tool_response" in text or "tool_result" in text:  # the frame of a result is the upstream's to write
                text = text.replace(dialect.write_result(NAME, "X").partition("X")[0], "")
            seen = collect(client, answer(begin(client, body, **options), stream([text])))
            assert seen.calls == [], (id, message)


def collect_text(client: str, sent: bytes) -> str:
    """Return the text in a part of a stream."""
    found = ""
    for each in filter(None, sent.split(b"\n\n")):
        event = json.loads(each.rpartition(b"data: ")[2])
        if client == "openai":
            found += event["choices"][0]["delta"].get("content") or ""
        elif event["type"] in ("response.output_text.delta", "content_block_delta"):
            found += event["delta"] if client == "responses" else event["delta"]["text"]
    return found


def test_any_upstream_bytes_give_a_complete_answer() -> None:
    """Random bytes and damaged streams raise nothing. The answer ends in the client's format."""
    chance = random.Random(23)
    good = stream(["So.\n", '~~~tool_call\n{"name": "get_weather", "arguments": {}}\n~~~'])
    for number in range(150):
        client = CLIENTS[number % 3]
        damaged = bytearray(good[: chance.randrange(len(good) + 1)])
        for _ in range(chance.choice((0, 1, 9))):
            at = chance.randrange(len(damaged) + 1)
            damaged[at : at + 1] = bytes([chance.randrange(256)])
        body = bytes(damaged) if number % 2 else chance.randbytes(300)
        for streamed in (True, False):
            exchange = begin(client, request(client, streamed=streamed))
            sent = answer(exchange, [body], cause="reset" if number % 3 else None)
            assert exchange.head is not None
            assert isinstance(collect(client, sent), Collected)


def test_descriptions_and_arguments_are_neutralized_in_all_dialects() -> None:
    """Also in a dialect that is enabled but not taught."""
    planted, body = DIALECTS["morph_xml"].write_call(NAME, ARGUMENTS), asked("openai")
    body["tools"][0]["function"]["description"] = planted
    function = {"name": NAME, "arguments": json.dumps({"city": planted})}
    said = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    body["messages"] += [said, {"role": "tool", "tool_call_id": "c1", "content": "x"}]
    exchange = begin("openai", body, mode="text", dialects=["hash_marker", "morph_xml"])
    assert exchange.request is not None
    for message in json.loads(exchange.request.body)["messages"]:
        assert planted not in message["content"]
        assert message["role"] == "user" or "\u2060" in message["content"]


def test_prose_is_sent_with_its_delta() -> None:
    for client in CLIENTS:
        exchange = begin(client, request(client))
        exchange.begin(200, [("content-type", "text/event-stream")])
        for delta in ("It is", " sunny,", " and `a` ~~ b", " # 5"):
            sent = exchange.feed(stream([delta], None, done=False))
            assert collect_text(client, sent) == delta, (client, delta)
