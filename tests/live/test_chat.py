"""A real model holds a conversation: it is asked, calls its tool in text, and answers with what the tool said."""

from __future__ import annotations

import pytest

from streamtools import chat
from streamtools.conversation import RequestOptions
from streamtools.conversation.models import OpenAIChat
from streamtools.conversation.prompts import Example
from streamtools.events import Call, Done, Executed, FollowUp, Text
from streamtools.testing.laws import assert_in_order

pytestmark = [pytest.mark.live, pytest.mark.anyio]

EXAMPLES = [
    Example("What is the weather in Rome?", "get_weather", {"city": "Rome"}, "31 °C", "It is 31 °C in Rome."),
    Example("How warm is it in Oslo?", "get_weather", {"city": "Oslo"}, "9 °C", "It is 9 °C in Oslo."),
    Example("Is it hot in Cairo?", "get_weather", {"city": "Cairo"}, "38 °C", "It is 38 °C in Cairo."),
]


async def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"{len(city) + 12} °C"


@pytest.mark.parametrize("dialect", ["tilde_fence", "hash_marker", "hermes_json"])
async def test_a_question_a_call_and_an_answer(server: str, dialect: str) -> None:
    """The model writes the call as it was taught; its answer to the follow-up holds the figure that the tool gave."""
    model = OpenAIChat("any", base_url=f"{server}/v1", api_key="", native_tool_calls=False, stream_options=None)
    options = {"temperature": 0, "seed": 7, "max_tokens": 80, "stop": ["<|im_end|>"], "cache_prompt": False}
    question = {"role": "user", "content": "What is the weather in Paris?"}
    told = []
    async with chat(
        model,
        [question],
        tools=[get_weather],
        dialects=[dialect],
        request=RequestOptions(body=options, few_shot=EXAMPLES),
        max_steps=3,
    ) as events:
        async for event in events:
            told.append(event)

    assert_in_order(told)
    calls = [event.call for event in told if isinstance(event, Call)]
    assert [("get_weather", {"city": "Paris"}, dialect)] == [
        (call.name, call.arguments, call.dialect) for call in calls
    ]
    assert ["17 °C"] == [event.result for event in told if isinstance(event, Executed)]
    asked = next(at for at, event in enumerate(told) if isinstance(event, FollowUp))
    answer = "".join(event.text for event in told[asked:] if isinstance(event, Text))
    assert "17" in answer
    assert isinstance(told[-1], Done)
    assert "finished" == told[-1].reason
