"""Finished responses run like streams: their calls run once, and the history continues in the provider's format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools import ToolStream, sources
from streamtools.errors import Code, UnreadableSource
from streamtools.events import Error
from streamtools.sources.provider_terms import finish_reason
from streamtools.stream.result import TurnResult
from streamtools.tools import ToolRegistry
from tests.support.cases import cases, together

pytestmark = pytest.mark.trio_deep

BERN = '{"city": "Bern"}'
OLLAMA = {"id": "a", "function": {"name": "weather", "arguments": {"city": "Bern"}}}
BLOCK = {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Bern"}}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s1"}


def weather(city: str) -> dict[str, str]:
    return {"city": city}


def broken(city: str) -> None:
    raise ValueError("s3cret")


REGISTRY = ToolRegistry(weather, broken)


def chat_call(name: str, arguments: Any, id: Any = None) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat(*calls: Any, finish: Any = "tool_calls") -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    return {"choices": [{"index": 0, "finish_reason": finish, "message": message}]}


async def run(response: Any) -> tuple[TurnResult, list[Code]]:
    """Run the calls of a response. Returns the result and the codes of the errors."""
    async with ToolStream(sources.finished_response(response), tools=REGISTRY) as stream:
        events = [event async for event in stream]
    return stream.result, [event.code for event in events if isinstance(event, Error)]


RESULT = '{"city":"Bern"}'
CONTINUED: dict[str, tuple[Any, list[Any]]] = {
    "openai": (
        chat(chat_call("weather", BERN, "a")),
        [
            {"role": "assistant", "content": None, "tool_calls": [chat_call("weather", '{"city":"Bern"}', "a")]},
            {"role": "tool", "tool_call_id": "a", "content": RESULT},
        ],
    ),
    "anthropic": (
        {"type": "message", "role": "assistant", "content": [THINKING, BLOCK], "stop_reason": "tool_use"},
        [
            {"role": "assistant", "content": [THINKING, BLOCK]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": RESULT}]},
        ],
    ),
    "ollama": (
        {"message": {"role": "assistant", "tool_calls": [OLLAMA]}},
        [
            {"role": "assistant", "content": "", "tool_calls": [OLLAMA]},
            {"role": "tool", "tool_name": "weather", "tool_call_id": "a", "content": RESULT},
        ],
    ),
}


@together("format", CONTINUED)
async def test_the_history_continues_in_the_format_of_the_provider(format: Any) -> None:
    """The response is sent back, with its signed reasoning, before the results."""
    response, messages = CONTINUED[format]
    result, errors = await run(response)
    assert [] == errors
    assert messages == result.messages(format)


@together(
    ("call", "code"),
    [
        (chat_call("weather", '{"city": ', "x"), Code.TRUNCATED),
        (chat_call("weather", "[1]", "x"), Code.INVALID_ARGUMENTS),
        (chat_call("weather", "{}", "x"), Code.TOOL_INPUT),
        (chat_call("broken", BERN, "x"), Code.TOOL_FAILED),
        (chat_call("nobody", "{}", "x"), Code.UNKNOWN_TOOL),
        (chat_call("", "{}", "x"), Code.MISSING_TOOL_NAME),
    ],
)
async def test_a_malformed_call_harms_no_other(call: dict[str, Any], code: Code) -> None:
    """The other call runs. Each call that the history has is followed by its result."""
    result, errors = await run(chat(call, chat_call("weather", BERN, "good")))
    assert [code] == errors
    assert [RESULT] == [outcome.text for outcome in result.outcomes if outcome.error is None]
    asked, *results = result.messages("openai")
    assert [call["id"] for call in asked["tool_calls"]] == [each["tool_call_id"] for each in results]


ENDINGS: list[Any] = [
    *("stop", "STOP", "end_turn", "stop_sequence", "completed", "tool_calls", "tool-calls", "tool_use"),
    *("function_call", "error", "failed", "cancelled", "abort", "length", "max_tokens", "model_length"),
    *("max_output_tokens", "MAX_TOKENS", "safety", "SAFETY", "refusal", "content_filter", "pause_turn"),
    *("incomplete", "malformed_function_call", "load", "new word"),
]


async def test_calls_run_after_the_same_endings_as_in_a_stream() -> None:
    """In the words of every provider. No call of an answer that was cut runs."""
    with cases() as case:
        for ending in ENDINGS:
            for response in (
                chat(chat_call("weather", BERN, "a"), finish=ending),
                {"message": chat(chat_call("weather", BERN))["choices"][0]["message"], "done_reason": ending},
                {"content": [BLOCK], "stop_reason": ending},
            ):
                with case(ending, json.dumps(response)):
                    result, _ = await run(response)
                    assert (finish_reason(ending) in ("stop", "tool_calls")) == bool(result.outcomes)


@together("response", [3, b"bytes", b""])
async def test_other_objects_are_refused(response: Any) -> None:
    """With the same error as an unreadable source."""
    with pytest.raises(UnreadableSource, match="expected a finished response"):
        sources.finished_response(response)
