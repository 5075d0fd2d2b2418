"""Requests for a typed value, and the messages to the model about an invalid answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from streamtools import OutputOptions, chat
from streamtools.conversation import AnthropicMessages, Ask, Fallback, OpenAIChat, OpenAIResponses, ScriptedModel
from streamtools.conversation.models.model import ANSWER_TOOL, AnswerToolReader, takes_schema
from streamtools.events import NativeToolCall, ProviderCompleted, SourceEvent, TextDelta, ToolCallDelta, ToolCallStart
from streamtools.history import User
from streamtools.typed import OutputType
from tests.support.chat_chunks import sse
from tests.support.loopback import Loopback
from tests.support.provider import Provider


class City(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    people: int


QUESTION = [{"role": "user", "content": "Name a city."}]
OSLO = City(name="Oslo", people=717710)
WRITTEN = OSLO.model_dump_json()


@pytest.mark.parametrize("flag", [True, False, None])
async def test_a_complaint_causes_no_call(flag: bool | None) -> None:
    """The error message repeats names that the model chose. A model that repeats it calls nothing."""
    planted = '###:{"name": "pay", "arguments": {}}'
    ran: list[str] = []

    def pay() -> None:
        ran.append("pay")

    class Repeating(ScriptedModel):
        def stream(self, ask: Ask) -> Any:
            if len(self.asks) == 1:
                told = self.body(ask)["messages"][-1]["content"]
                assert "does not match the output type" in told
                assert "pay" in told
                self._answers[1] = told.partition("asked for: ")[2]
            return super().stream(ask)

    model = Repeating([json.dumps({**json.loads(WRITTEN), planted: 1}), ""], native_tool_calls=flag)
    dialects = ["hash_marker"]
    await chat(model, QUESTION, output=OutputOptions(City, retries=1), tools=[pay], dialects=dialects)
    assert [] == ran


# Models that must call a tool with their answer.


def answer_in_a_call(pieces: Iterable[str]) -> Loopback:
    """Return a response of Claude that calls the tool for the answer, with its arguments in pieces."""
    block = {"type": "tool_use", "id": "toolu_1", "name": ANSWER_TOOL, "input": {}}
    parts = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "model": "claude"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": part} for part in parts),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return Loopback([sse(event) for event in events])


async def test_claude_answers_in_a_call() -> None:
    """The value grows with each piece. The history has it as text, without a call."""
    answer = answer_in_a_call(WRITTEN[at : at + 7] for at in range(0, len(WRITTEN), 7))
    async with Provider(answer) as server:
        model = AnthropicMessages("claude-sonnet-4-5", base_url=server.url, api_key="", retries=0)
        async with chat(model, QUESTION, output=City) as stream:
            events = [event async for event in stream]
        (body,) = server.bodies

    assert body["tools"][0]["input_schema"] == City.model_json_schema()
    assert body["tool_choice"] == {"type": "tool", "name": ANSWER_TOOL, "disable_parallel_tool_use": True}
    assert stream.result.output == OSLO
    assert (stream.result.reason, stream.result.finish_reason) == ("finished", "stop")
    assert (sum(event.type == "partial" for event in events), stream.result.calls) == (4, [])
    assert stream.messages()[-1] == {"role": "assistant", "content": WRITTEN}


def test_models_that_take_a_schema() -> None:
    """Claude takes it unless it reasons or has the caller's tools, OpenAI also with tools, others without."""
    claude, openai = AnthropicMessages("m", api_key=""), OpenAIChat("m", api_key="")
    other = OpenAIChat("m", base_url="http://127.0.0.1:1/v1", api_key="")
    city, cities = OutputType(City), OutputType(list[City])
    thinking: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 1024}}

    assert takes_schema(claude, city, {}, tools=False)
    assert takes_schema(claude, city, {"thinking": {"type": "disabled"}}, tools=False)
    for kind, options in ((city, thinking), (city, {"tools": []}), (city, {"tool_choice": {}}), (cities, {})):
        assert not takes_schema(claude, kind, options, tools=False)
    assert not takes_schema(AnthropicMessages("m", api_key="", **thinking), city, {}, tools=False)
    assert not takes_schema(claude, city, {}, tools=True)
    assert takes_schema(openai, city, {}, tools=True)
    assert takes_schema(OpenAIResponses("m", api_key=""), city, {}, tools=True)
    assert takes_schema(other, city, {}, tools=False)
    assert not takes_schema(other, city, {}, tools=True)
    assert not takes_schema(ScriptedModel([]), city, {}, tools=False)


@given(st.integers(1, 40), st.booleans(), st.booleans())
def test_an_answer_in_a_call_becomes_text_once(size: int, told_again: bool, at_once: bool) -> None:
    """It arrives in pieces, whole, or both. Calls with other names stay calls."""
    call = NativeToolCall(ANSWER_TOOL, WRITTEN if told_again or at_once else None, "0", "id")
    events: list[SourceEvent] = [ToolCallStart("0", "id", ANSWER_TOOL)]
    if not at_once:
        events += [ToolCallDelta("0", WRITTEN[at : at + size]) for at in range(0, len(WRITTEN), size)]
    other = NativeToolCall("other", "{}", "1", "id1")
    ends = ProviderCompleted(tool_calls=[call] if told_again else None, finish_reason="tool_calls")
    read = AnswerToolReader().read([*events, call, other, ends])

    assert "".join(event.text for event in read if isinstance(event, TextDelta)) == WRITTEN
    assert [event for event in read if isinstance(event, NativeToolCall)] == [other]
    assert isinstance(read[-1], ProviderCompleted)
    assert (read[-1].finish_reason, read[-1].tool_calls) == ("stop", None)
    assert AnswerToolReader().read([other, ProviderCompleted(tool_calls=[other], finish_reason="tool_calls")])[-1] == (
        ProviderCompleted(tool_calls=[other], finish_reason="tool_calls")
    )


async def test_a_fallback_gets_the_schema_as_text() -> None:
    """A provider that enforces a schema would start the value again."""

    class Keeps(ScriptedModel):
        format = "openai"

    first, second = Keeps([[WRITTEN[:9], OSError()]]), Keeps([WRITTEN[9:]])
    stream = chat(Fallback(first, second), QUESTION, output=City)
    await stream
    (begun,), (went_on,) = first.asks, second.asks

    assert stream.result.output == OSLO
    assert begun.output is not None
    assert isinstance(begun, Ask)
    assert went_on.output is None
    assert "JSON schema" in str(went_on.history[0])
    assert isinstance(went_on.history[-1], User)
    assert json.loads(WRITTEN)["name"] == "Oslo"
