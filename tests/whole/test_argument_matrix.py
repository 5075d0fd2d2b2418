"""One rule for the arguments of each call: an object, or a string with an object. Missing arguments are `{}`.

No other value becomes `{}`, because a tool must not run with arguments that the model did not write.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools import StreamMachine, ToolStream, parse, sources
from streamtools.errors import Code
from streamtools.events import Call, Error, Executed, NativeToolCall, ProviderCompleted
from streamtools.tools import tool
from tests.support.cases import cases

pytestmark = pytest.mark.trio_deep

ARGUMENTS = {"city": "Bern"}
TEXT = json.dumps(ARGUMENTS)


@tool(parameters={})
def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


MATRIX: dict[str, tuple[Any, Any]] = {
    "map": (ARGUMENTS, ARGUMENTS),
    "empty map": ({}, {}),
    "string": (TEXT, ARGUMENTS),
    "empty string": ("", {}),
    "null": (None, {}),
    "string of an empty map": ("{}", {}),
    "list": ([ARGUMENTS], Code.INVALID_ARGUMENTS),
    "empty list": ([], Code.INVALID_ARGUMENTS),
    "number": (3, Code.INVALID_ARGUMENTS),
    "zero": (0, Code.INVALID_ARGUMENTS),
    "boolean": (True, Code.INVALID_ARGUMENTS),
    "double-encoded": (json.dumps(TEXT), Code.INVALID_ARGUMENTS),
    "string of null": ("null", {}),
    "string of null with blanks": (" null ", {}),
    "string of a list": ("[]", Code.INVALID_ARGUMENTS),
    "string of a number": ("3", Code.INVALID_ARGUMENTS),
    "text": ("Bern", Code.INVALID_ARGUMENTS),
}
"""What a model may write as arguments, and what they are."""

MARKERS = {
    "hash_marker": '###:{"toolName":"echo","parameters":%s}',
    "tilde_fence": '~~~tool_call\n{"name":"echo","arguments":%s}\n~~~',
    "hermes_json": '<tool_call>\n{"name": "echo", "arguments": %s}\n</tool_call>',
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.echo:0<|tool_call_argument_begin|>%s"
    "<|tool_call_end|><|tool_calls_section_end|>",
}


def outcome_of(calls: list[Any], errors: list[Any]) -> Any:
    """Return the arguments of the one call, or the code of the one error."""
    (only,) = [*calls, *errors]
    return only.code if isinstance(only, Error) else only.arguments


@pytest.mark.parametrize("dialect", MARKERS)
def test_arguments_of_calls_in_text(dialect: str) -> None:
    with cases() as case:
        for name, (written, expected) in MATRIX.items():
            with case(name):
                result = parse([MARKERS[dialect] % json.dumps(written)], dialects=[dialect])
                assert expected == outcome_of(result.calls, result.errors)
                assert "" == result.content


def test_arguments_of_native_calls() -> None:
    with cases() as case:
        for name, (written, expected) in MATRIX.items():
            with case(name):
                machine = StreamMachine()
                events = [
                    *machine.feed(NativeToolCall(key="0", id="c", name="echo", arguments=written)),
                    *machine.feed(ProviderCompleted(finish_reason="tool_calls")),
                    *machine.close(),
                ]
                calls = [event.call for event in events if isinstance(event, Call)]
                assert expected == outcome_of(calls, [event for event in events if isinstance(event, Error)])


@pytest.mark.parametrize("provider", ["openai", "anthropic", "responses"])
async def test_arguments_of_calls_in_finished_responses(provider: str) -> None:
    """A valid call runs, and any other is an error."""
    with cases() as case:
        for name, (written, expected) in MATRIX.items():
            with case(name):
                function = {"name": "echo", "arguments": written}
                call = {"id": "c", "type": "function", "function": function}
                response = {
                    "openai": {"choices": [{"message": {"tool_calls": [call]}}]},
                    "anthropic": {"content": [{"type": "tool_use", "id": "c", "name": "echo", "input": written}]},
                    "responses": {"output": [{"type": "function_call", "call_id": "c", **function}]},
                }[provider]
                async with ToolStream(sources.finished_response(response), tools=echo) as stream:
                    events = [event async for event in stream]
                (end,) = [event for event in events if isinstance(event, Executed | Error)]
                assert expected == (end.result if isinstance(end, Executed) else end.code)
