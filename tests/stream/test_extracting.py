"""The calls of finished responses: all shapes give the same calls, and a malformed call hides no valid one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from streamtools import ToolCall, ToolRegistry, extract_tool_calls, tool
from streamtools.errors import Code, UnreadableSource
from tests.support.cases import together

ARGUMENTS = {"city": "Paris"}
TEXT = json.dumps(ARGUMENTS)
OPENAI = {"id": "x", "type": "function", "function": {"name": "weather", "arguments": TEXT}}
ANTHROPIC = {"type": "tool_use", "id": "x", "name": "weather", "input": ARGUMENTS}
RESPONSES = {"type": "function_call", "id": "fc", "call_id": "x", "name": "weather", "arguments": TEXT}
OLLAMA = {"id": "x", "function": {"name": "weather", "arguments": ARGUMENTS}}
GEMINI = {"functionCall": {"id": "x", "name": "weather", "args": ARGUMENTS}}
HEAD = {"id": "msg", "type": "message", "role": "assistant", "usage": {"input_tokens": 1, "output_tokens": 2}}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
TEXT_CALL = '{"name":"weather","arguments":{"city":"Paris"}}'


def message(*calls: Any, content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def chat(*calls: Any, content: Any = None, finish: str | None = "tool_calls") -> dict[str, Any]:
    choice = {"index": 0, "message": message(*calls, content=content), "finish_reason": finish}
    return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 1}}


class Function(BaseModel):
    name: str
    arguments: str


class Call(BaseModel):
    """A call as an object of an SDK."""

    id: str
    function: Function
    type: str = "function"


SHAPES: dict[str, Any] = {
    "OpenAI's response": chat(OPENAI),
    "OpenAI's response, which says stop": chat(OPENAI, finish="stop"),
    "OpenAI's response, which says nothing": chat(OPENAI, finish=None),
    "OpenAI's message": message(OPENAI),
    "OpenAI's message, with text": message(OPENAI, content="Let me see."),
    "OpenAI's message, with text in parts": message(OPENAI, content=[{"type": "text", "text": "Let me see."}]),
    "OpenAI's list of calls": [OPENAI],
    "one call of OpenAI's": OPENAI,
    "a call without a type": {"id": "x", "function": OPENAI["function"]},
    "objects of an SDK": [Call.model_validate(OPENAI)],
    "a dict that holds objects of an SDK": message(Call.model_validate(OPENAI)),
    "Anthropic's response": HEAD | {"content": [THINKING, {"type": "text"}, ANTHROPIC], "stop_reason": "tool_use"},
    "Anthropic's message": {"role": "assistant", "content": [ANTHROPIC]},
    "Anthropic's list of blocks": [{"type": "text", "text": "Hi."}, ANTHROPIC],
    "Anthropic's list of calls": [ANTHROPIC],
    "OpenAI's Responses": {"object": "response", "status": "completed", "output": [{"type": "reasoning"}, RESPONSES]},
    "items of OpenAI's Responses": [RESPONSES],
    "calls that were read already": [{"id": "x", "name": "weather", "arguments": ARGUMENTS}],
    "calls of ours": [ToolCall(id="x", name="weather", arguments=ARGUMENTS, dialect="native")],
    "Ollama's response": {"message": message(OLLAMA, content=""), "done": True, "done_reason": "stop"},
    "Gemini's response": {"candidates": [{"content": {"parts": [GEMINI]}, "finishReason": "STOP"}]},
}


@together("response", SHAPES.values(), ids=SHAPES)
def test_a_call_is_found_in_every_shape_of_a_response(response: Any) -> None:
    calls, errors = extract_tool_calls(response)

    assert [("x", "weather", ARGUMENTS, "native")] == [
        (call.id, call.name, call.arguments, call.dialect) for call in calls
    ]
    assert not errors


def test_a_function_call_of_the_old_format_has_no_provider_id() -> None:
    (call,), _ = extract_tool_calls({"content": None, "function_call": OPENAI["function"]})

    assert ("weather", ARGUMENTS, None) == (call.name, call.arguments, call.provider_id)


@pytest.mark.parametrize(
    "response", [5, b"{}", object(), iter(())], ids=["a number", "bytes", "an object", "an iterator"]
)
def test_another_object_than_a_response_is_refused(response: Any) -> None:
    with pytest.raises(UnreadableSource, match="expected a finished response"):
        extract_tool_calls(response)


BAD: dict[str, tuple[Any, Code]] = {
    "a number": (5, Code.UNRECOGNISED_TOOL_CALL),
    "null": (None, Code.UNRECOGNISED_TOOL_CALL),
    "a text": ("weather", Code.UNRECOGNISED_TOOL_CALL),
    "no name": ({"id": "y", "function": {"arguments": "{}"}}, Code.MISSING_TOOL_NAME),
    "a name that is none": ({"id": "y", "function": {"name": 5}}, Code.MISSING_TOOL_NAME),
    "two names": ({"name": "a", "function": {"name": "b"}}, Code.CONFLICTING_FIELDS),
    "no JSON": ({"function": {"name": "a", "arguments": "{a}"}}, Code.INVALID_ARGUMENTS),
    "JSON that is cut": ({"function": {"name": "a", "arguments": '{"a":'}}, Code.TRUNCATED),
    "a list": ({"function": {"name": "a", "arguments": [1]}}, Code.INVALID_ARGUMENTS),
}


@together(("bad", "code"), BAD.values(), ids=BAD)
def test_a_malformed_call_hides_no_valid_call(bad: Any, code: Code) -> None:
    """The malformed call is an error with its code."""
    for response in (chat(OPENAI, bad), message(bad, OPENAI), [bad, ANTHROPIC]):
        calls, errors = extract_tool_calls(response)
        assert ["x"] == [call.id for call in calls]
        assert [code] == [error.code for error in errors]
        assert errors[0].raw


def weather(city: str) -> str:
    """Tell the weather."""
    return city


DECLARED: dict[str, Any] = {
    "a function": weather,
    "a list of functions": [weather],
    "a tool": tool(weather),
    "a registry": ToolRegistry(weather),
    "a definition": {"name": "weather"},
    "functions and definitions": [{"name": "other"}, {"type": "web_search"}, weather],
}


@pytest.mark.parametrize("tools", DECLARED.values(), ids=DECLARED)
def test_tools_may_be_functions_or_definitions(tools: Any) -> None:
    """With them, calls are recognized by the names of the tools."""
    ((call,), _) = extract_tool_calls(TEXT_CALL, dialects=("raw_json",), tools=tools)

    assert ("weather", ARGUMENTS) == (call.name, call.arguments)


@pytest.mark.parametrize("tools", ["weather", ["weather"], 3, {"weather": {}}])
def test_objects_that_declare_no_tools_are_refused(tools: Any) -> None:
    """Otherwise, calls would be read as text."""
    with pytest.raises(TypeError, match="declares no tool"):
        extract_tool_calls(TEXT_CALL, dialects=("raw_json",), tools=tools)
