"""One model, one prompt, three formats: what the interface is told is the same."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from streamtools import ToolStream, coalesce, sources
from streamtools.events import Call, Done, Executed, Text, UIEvent
from streamtools.testing.laws import assert_in_order
from tests.recording.make_recordings import SCENARIOS, Scenario

pytestmark = [pytest.mark.live, pytest.mark.anyio]

_PATHS = {"openai": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
_TURN_ENDS = ["<|im_end|>"]  # what a base model writes as text where a chat model would stop

CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tilde-call": [("get_weather", {"city": "Paris"})],
    "hash-call": [("add", {"a": 17.5, "b": 24})],
    "two-calls": [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})],
    "no-call": [],
}
"""What a model that follows the worked examples answers to the last question."""


def get_weather(city: str) -> str:
    return f"Sunny in {city}."


def add(a: float, b: float) -> float:
    return a + b


def request(name: str, scenario: Scenario) -> dict[str, Any]:
    """Return the body of the request for a scenario, in the words of one provider."""
    turns = [turn for shot in scenario.shots for turn in zip(("user", "assistant"), shot, strict=True)]
    messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in turns]
    messages.append({"role": "user", "content": scenario.question})
    body: dict[str, Any] = {"model": "any", "stream": True, "temperature": 0, "seed": 7}
    body["cache_prompt"] = False  # llama.cpp: with a warm cache it rounds otherwise, and may answer otherwise
    match name:
        case "openai":
            return body | {"messages": messages, "max_tokens": scenario.max_tokens, "stop": _TURN_ENDS}
        case "anthropic":
            return body | {"messages": messages, "max_tokens": scenario.max_tokens, "stop_sequences": _TURN_ENDS}
    items = [_item(**message) for message in messages]
    return body | {"input": items, "max_output_tokens": scenario.max_tokens, "stop": _TURN_ENDS}


def _item(role: str, content: str) -> dict[str, Any]:
    if role == "user":
        return {"role": role, "content": content}
    part = {"type": "output_text", "text": content, "annotations": []}
    return {"type": "message", "role": role, "status": "completed", "content": [part]}


async def told(server: str, name: str, scenario: Scenario) -> list[UIEvent]:
    """Return what the interface is told of an answer, apart from what each provider counts in its own way."""
    async with (
        httpx.AsyncClient(base_url=server, timeout=300, trust_env=False) as client,
        client.stream("POST", _PATHS[name], json=request(name, scenario)) as response,
        ToolStream(getattr(sources, name)(response), tools=[get_weather, add]) as stream,
    ):
        events = [event async for event in stream]
    assert_in_order(events)
    done = events[-1]
    assert isinstance(done, Done)
    assert ("finished", "stop") == (done.reason, done.finish_reason)
    own = ("usage", "raw", "done", "step-start", "step-end")
    return coalesce([event for event in events if event.type not in own])


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a model takes its time
@pytest.mark.parametrize("name", CALLS)
async def test_the_same_answer_in_three_formats(server: str, name: str) -> None:
    """Text, calls and their results, event by event."""
    chat, *others = [await told(server, each, SCENARIOS[name]) for each in _PATHS]
    assert [chat, chat] == others
    assert any(isinstance(event, Text) for event in chat)
    assert CALLS[name] == [(event.call.name, event.call.arguments) for event in chat if isinstance(event, Call)]
    assert len(CALLS[name]) == sum(isinstance(event, Executed) for event in chat)
