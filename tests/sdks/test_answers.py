"""Finished answers as objects of the SDKs: their calls run, and the history that follows has the SDKs' own types."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from streamtools import ToolStream, sources
from streamtools.events import Error, Executed
from streamtools.tools import ToolRegistry

pytestmark = pytest.mark.sdk


def weather(city: str) -> dict[str, str]:
    return {"city": city}


REGISTRY = ToolRegistry(weather)
BERN = '{"city": "Bern"}'


def openai_chat() -> tuple[Any, Any]:
    from openai.types.chat import ChatCompletion, ChatCompletionMessageParam

    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id, name, arguments in (("a", "weather", BERN), ("b", "weather", "{"), ("c", "nobody", ""))
    ]
    message = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": calls}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message, "logprobs": None}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return ChatCompletion.model_validate(answer), ChatCompletionMessageParam


def openai_responses() -> tuple[Any, Any]:
    from openai.types.responses import Response, ResponseInputItemParam

    items = [
        {"type": "reasoning", "id": "r", "summary": []},
        *(
            {"type": "function_call", "id": f"f{id}", "call_id": id, "name": name, "arguments": arguments}
            for id, name, arguments in (("a", "weather", BERN), ("b", "weather", "{"), ("c", "nobody", ""))
        ),
    ]
    answer = {"id": "x", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": items}
    settings = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return Response.model_validate(answer | settings), ResponseInputItemParam


def anthropic() -> tuple[Any, Any]:
    from anthropic.types import Message, MessageParam

    calls: Any = (("a", "weather", {"city": "Bern"}), ("b", "weather", {}), ("c", "nobody", {}))
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        *({"type": "tool_use", "id": id, "name": name, "input": given} for id, name, given in calls),
    ]
    answer = {"id": "x", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    ending = {"stop_reason": "tool_use", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return Message.model_validate(answer | ending), MessageParam


@pytest.mark.parametrize("answered", [openai_chat, openai_responses, anthropic], ids=lambda each: each.__name__)
async def test_a_finished_answer_becomes_a_valid_history(answered: Any) -> None:
    """A valid call runs, an invalid one and one of an unknown tool do not. The messages type-check."""
    answer, kind = answered()
    async with ToolStream(sources.finished_response(answer), tools=REGISTRY) as stream:
        events = [event async for event in stream]
    assert ["a"] == [event.call.id for event in events if isinstance(event, Executed)]
    assert ["b", "c"] == sorted(str(event.call_id) for event in events if isinstance(event, Error))
    adapter = TypeAdapter(kind)
    format: Any = {"openai_chat": "openai", "openai_responses": "responses"}.get(answered.__name__, "anthropic")
    messages = stream.result.messages(format)
    for each in messages:
        adapter.validate_python(each)
    assert all(outcome.call.id in str(messages) for outcome in stream.result.outcomes)
