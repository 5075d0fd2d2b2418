"""One rule for arguments, whichever way a call came: an object, or a string that holds one; nothing is `{}`.

Never does something else become `{}`: a tool must not run with arguments that the model did not write.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools import StreamMachine, parse
from streamtools.errors import Code, ToolInputError
from streamtools.events import Call, Error, NativeToolCall, ProviderCompleted
from streamtools.tools import ToolRegistry, tool

pytestmark = pytest.mark.anyio

ARGUMENTS = {"city": "Bern"}
TEXT = json.dumps(ARGUMENTS)


@tool(parameters={})
def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


MATRIX: list[Any] = [
    pytest.param(ARGUMENTS, ARGUMENTS, id="map"),
    pytest.param({}, {}, id="empty map"),
    pytest.param(TEXT, ARGUMENTS, id="string"),
    pytest.param("", {}, id="empty string"),
    pytest.param(None, {}, id="null"),
    pytest.param("{}", {}, id="string of an empty map"),
    pytest.param([ARGUMENTS], Code.INVALID_ARGUMENTS, id="list"),
    pytest.param([], Code.INVALID_ARGUMENTS, id="empty list"),
    pytest.param(3, Code.INVALID_ARGUMENTS, id="number"),
    pytest.param(0, Code.INVALID_ARGUMENTS, id="zero"),
    pytest.param(True, Code.INVALID_ARGUMENTS, id="boolean"),
    pytest.param(json.dumps(TEXT), Code.INVALID_ARGUMENTS, id="double-encoded"),
    pytest.param("null", Code.INVALID_ARGUMENTS, id="string of null"),
    pytest.param("[]", Code.INVALID_ARGUMENTS, id="string of a list"),
    pytest.param("3", Code.INVALID_ARGUMENTS, id="string of a number"),
    pytest.param("Bern", Code.INVALID_ARGUMENTS, id="text"),
]
"""What a model may write as arguments, and what they are."""

MARKERS = {
    "hash_marker": '###:{"toolName":"echo","parameters":%s}',
    "tilde_fence": '~~~tool_call\n{"name":"echo","arguments":%s}\n~~~',
    "hermes_json": '<tool_call>\n{"name": "echo", "arguments": %s}\n</tool_call>',
}


def outcome_of(calls: list[Any], errors: list[Any]) -> Any:
    """Return the arguments of the one call, or the code of the one error."""
    (only,) = [*calls, *errors]
    return only.code if isinstance(only, Error) else only.arguments


@pytest.mark.parametrize(("written", "expected"), MATRIX)
@pytest.mark.parametrize("dialect", MARKERS)
def test_calls_in_text(dialect: str, written: Any, expected: Any) -> None:
    """The two dialects of the seeds, and the one that most models write."""
    result = parse([MARKERS[dialect] % json.dumps(written)], dialects=[dialect])
    assert expected == outcome_of(result.calls, result.errors)
    assert "" == result.content


@pytest.mark.parametrize(("written", "expected"), MATRIX)
def test_native_calls(written: Any, expected: Any) -> None:
    """As an adapter hands them to the machine."""
    machine = StreamMachine()
    events = [
        *machine.feed(NativeToolCall(key="0", id="c", name="echo", arguments=written)),
        *machine.feed(ProviderCompleted(finish_reason="tool_calls")),
        *machine.close(),
    ]
    calls = [event.call for event in events if isinstance(event, Call)]
    assert expected == outcome_of(calls, [event for event in events if isinstance(event, Error)])


@pytest.mark.parametrize(("written", "expected"), MATRIX)
@pytest.mark.parametrize("provider", ["openai", "anthropic", "responses"])
async def test_calls_of_finished_answers(provider: str, written: Any, expected: Any) -> None:
    """Each call has its outcome, and only a good one runs."""
    function = {"name": "echo", "arguments": written}
    response = {
        "openai": {"choices": [{"message": {"tool_calls": [{"id": "c", "type": "function", "function": function}]}}]},
        "anthropic": {"content": [{"type": "tool_use", "id": "c", "name": "echo", "input": written}]},
        "responses": {"output": [{"type": "function_call", "call_id": "c", **function}]},
    }[provider]
    (outcome,) = await ToolRegistry(echo).process_tool_calls(response)
    assert expected == (outcome.result if outcome.error is None else outcome.error)


@pytest.mark.parametrize(("written", "expected"), MATRIX)
async def test_calls_by_hand(written: Any, expected: Any) -> None:
    """`execute` goes by the same rule."""
    registry = ToolRegistry(echo)
    if isinstance(expected, Code):
        with pytest.raises(ToolInputError, match="the arguments of 'echo' do not fit"):
            await registry.execute("echo", written)
    else:
        assert expected == await registry.execute("echo", written)
