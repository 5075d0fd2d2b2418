"""Finished responses: their calls run, each has one outcome, and the history continues in the provider's format."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from streamtools import extract_tool_calls
from streamtools.calls import ToolCall
from streamtools.errors import Code, UnreadableSource
from streamtools.sources.provider_terms import finish_reason
from streamtools.tools import ToolRegistry, ToolResult
from streamtools.tools.context import ToolContext
from streamtools.tools.finished_responses import extend_messages, read_finished
from tests.support.cases import cases, together
from tests.support.loops import other_loop_deep

__all__ = ["other_loop_deep"]  # a fixture

pytestmark = pytest.mark.anyio

RAN: list[str] = []


def weather(city: str) -> dict[str, str]:
    """Tell the weather."""
    RAN.append(city)
    return {"city": city}


def broken(city: str) -> None:
    raise ValueError("s3cret")


def last(context: ToolContext) -> ToolResult:
    return ToolResult(model=str(context.state), stop=True)


REGISTRY = ToolRegistry(weather, broken, last)


@pytest.fixture(autouse=True)
def nothing_has_run() -> None:
    RAN.clear()


def chat_call(name: str, arguments: Any, id: Any = None) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def chat(*calls: Any, finish: str = "tool_calls", **message: Any) -> dict[str, Any]:
    told = {"role": "assistant", "content": None, "refusal": None, "annotations": [], **message}
    return {"choices": [{"index": 0, "finish_reason": finish, "message": {**told, "tool_calls": list(calls) or None}}]}


BERN = '{"city": "Bern"}'
TWO = chat(
    chat_call("weather", BERN, "a"), chat_call("nobody", "{}", "b"), content="Let me see.", reasoning_content="hm"
)


async def test_a_chat_completion_continues() -> None:
    """First the model's message, without members of the response only. Then a `tool` message for each call."""
    history = [{"role": "user", "content": "?"}]
    before, response = copy.deepcopy(history), copy.deepcopy(TWO)
    outcomes = await REGISTRY.process_tool_calls(TWO)
    assert [None, Code.UNKNOWN_TOOL] == [outcome.error for outcome in outcomes]
    extended = REGISTRY.extend_messages(history, TWO, outcomes)
    assert extended == [
        *history,
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "hm",
            "tool_calls": [chat_call("weather", BERN, "a"), chat_call("nobody", "{}", "b")],
        },
        {"role": "tool", "tool_call_id": "a", "content": '{"city":"Bern"}'},
        {"role": "tool", "tool_call_id": "b", "content": outcomes[1].text},
    ]
    assert "there are weather, broken, last" in outcomes[1].text
    assert (before, response) == (history, TWO)


@together(
    ("call", "code", "text"),
    [
        (chat_call("weather", '{"city": '), Code.INVALID_ARGUMENTS, "a string that is not JSON"),
        (chat_call("weather", "[1]"), Code.INVALID_ARGUMENTS, "a string that holds an array"),
        (chat_call("weather", '{"city": NaN}'), Code.NOT_A_NUMBER, "NaN is not JSON"),
        (chat_call("weather", "{}"), Code.TOOL_INPUT, "city: Field required"),
        (chat_call("broken", BERN), Code.TOOL_FAILED, "tool 'broken' failed"),
        (chat_call("", "{}"), Code.MISSING_TOOL_NAME, "the call has no tool name"),
        ({"id": "x", "type": "function"}, Code.MISSING_TOOL_NAME, "the call has no tool name"),
        ({"id": "x", "type": "custom", "custom": {"name": "weather", "input": "Bern"}}, Code.TOOL_INPUT, "Extra"),
    ],
)
async def test_a_malformed_call_harms_no_other(call: dict[str, Any], code: Code, text: str) -> None:
    """The others run. The model gets the error, and invalid arguments become `{}`."""
    response = chat(call, chat_call("weather", BERN, "good"))
    bad, good = outcomes = await REGISTRY.process_tool_calls(response)
    assert code is bad.error
    assert text in bad.text
    assert {"city": "Bern"} == good.result
    _, first, _ = messages = extend_messages([], response, outcomes)
    written = messages[0]["tool_calls"][0]
    assert first["tool_call_id"] == written["id"] == bad.call.id
    assert isinstance(json.loads(written.get("function", {}).get("arguments", "{}")), dict)


async def test_ids_are_unique() -> None:
    """Calls without an id, or with the same one, get generated ids, in the history too."""
    calls = [
        chat_call("weather", json.dumps({"city": each}), id) for each, id in zip("abc", [None, "x", "x"], strict=True)
    ]
    response = chat(*calls)
    outcomes = await REGISTRY.process_tool_calls(response)
    assert ["call_0", "x", "x_2"] == [outcome.call.id for outcome in outcomes]
    assert ["a", "b", "c"] == [outcome.result["city"] for outcome in outcomes]
    message, *results = extend_messages([], response, outcomes)
    ids = [each["id"] for each in message["tool_calls"]]
    assert ids == [each["tool_call_id"] for each in results] == ["call_0", "x", "x_2"]


def anthropic(*blocks: Any, stop: str = "tool_use") -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": list(blocks), "stop_reason": stop, "model": "m"}


THINKING = {"type": "thinking", "thinking": "hm", "signature": "s1"}


def tool_use(id: str, name: str, input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


async def test_an_anthropic_message_continues() -> None:
    """Its blocks are sent back unchanged, including thinking. One user message holds all results."""
    response = anthropic(THINKING, tool_use("t1", "weather", {"city": "Bern"}), tool_use("t2", "broken", {"city": "x"}))
    outcomes = await REGISTRY.process_tool_calls(response)
    assert extend_messages([], response, outcomes) == [
        {"role": "assistant", "content": response["content"]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": '{"city":"Bern"}'},
                {"type": "tool_result", "tool_use_id": "t2", "content": "tool 'broken' failed", "is_error": True},
            ],
        },
    ]


async def test_a_response_continues() -> None:
    """Its items are sent back unchanged, including reasoning. Each call has its output."""
    items = [
        {"type": "reasoning", "id": "r1", "summary": []},
        {"type": "function_call", "id": "f1", "call_id": "c1", "name": "weather", "arguments": BERN},
        {"type": "custom_tool_call", "id": "f2", "call_id": "c2", "name": "weather", "input": "Bern"},
    ]
    response = {"object": "response", "status": "completed", "output": items}
    outcomes = await REGISTRY.process_tool_calls(response)
    assert extend_messages([], response, outcomes) == [
        *items,
        {"type": "function_call_output", "call_id": "c1", "output": '{"city":"Bern"}'},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": outcomes[1].text},
    ]


async def test_a_response_of_ollama_continues() -> None:
    """Its arguments are objects, and its results name the tool."""
    message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Bern"}}}],
    }
    response = {"model": "m", "message": message, "done": True, "done_reason": "stop"}
    outcomes = await REGISTRY.process_tool_calls(response)
    assistant, result = extend_messages([], response, outcomes)
    assert {"city": "Bern"} == assistant["tool_calls"][0]["function"]["arguments"]
    assert result == {"role": "tool", "tool_name": "weather", "content": '{"city":"Bern"}'}


@together(
    ("response", "messages"),
    [
        (chat(content="Hello", finish="stop"), [{"role": "assistant", "content": "Hello"}]),
        ({"choices": []}, []),
        ([], []),
        ({"choices": [None]}, []),
        ({"choices": [{"message": "x", "finish_reason": []}]}, []),
        ({"output": ["x"]}, []),
        ("Hello", [{"role": "assistant", "content": "Hello"}]),
        ("", []),
        (
            anthropic({"type": "text", "text": "Hi"}),
            [{"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}],
        ),
        (anthropic(stop="end_turn"), []),
        ({"output": [{"type": "message"}]}, [{"type": "message"}]),
    ],
)
async def test_a_response_without_calls_continues(response: Any, messages: list[Any]) -> None:
    """No tool runs."""
    outcomes = await REGISTRY.process_tool_calls(response)
    assert [] == outcomes
    assert messages == extend_messages([], response, outcomes)


SAME: dict[str, Any] = {
    "a text for a call": chat("x"),
    "a text for the calls": {"role": "assistant", "tool_calls": "x"},
    "one call for the calls": {"role": "assistant", "tool_calls": chat_call("weather", BERN)},
    "a text for a block": anthropic("x"),
    "a call without a type among blocks": anthropic({"name": "weather", "input": {"city": "Bern"}}),
    "a list of blocks": [{"type": "text", "text": "Hi."}, tool_use("t", "weather", {"city": "Bern"})],
    "a list of items": [{"type": "function_call", "call_id": "c", "name": "weather", "arguments": BERN}],
    "a list of calls": [chat_call("weather", BERN, "a"), {"name": "weather", "args": {"city": "Bern"}}, 1, None],
    "a call after an entry that is none": [{"type": "image"}, chat_call("weather", BERN)],
    "calls of ours and others": [
        ToolCall(id="c", name="weather", arguments={"city": "Bern"}, dialect="native"),
        chat_call("weather", BERN, 7),
    ],
    "one call": chat_call("weather", BERN, "a"),
    "one call, plainly": {"name": "weather", "arguments": BERN},
    "text in parts beside calls": chat(chat_call("weather", BERN), content=[{"type": "text", "text": "Hi."}]),
    "such a message": {"content": [{"type": "text", "text": "Hi."}], "tool_calls": [chat_call("weather", BERN)]},
    "the call of old": {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": BERN}},
    "a call of old that is none": chat(function_call="x"),
    "a function that is a name": chat({"function": "weather", "arguments": {"city": "Bern"}}),
    "arguments beside the function": chat({"function": {"name": "weather"}, "arguments": {"city": "Bern"}}),
    "two names": chat({"name": "a", "function": {"name": "b"}}),
    "forty calls": chat(*[chat_call("weather", BERN)] * 40),
    "Ollama's, and a text": {"message": {"role": "assistant", "tool_calls": [{"name": "weather", "args": {}}, "x"]}},
}


@together("response", SAME.values(), ids=SAME)
async def test_the_same_calls_are_found_as_by_extract_tool_calls(response: Any) -> None:
    """By name and arguments. Malformed ones have the same codes, and each gets its result."""
    calls, errors = extract_tool_calls(response)
    asked = read_finished(response).calls
    assert [(each.name, each.arguments) for each in calls] == [
        (call.name, call.arguments) for call, rejected, _ in asked if rejected is None
    ]
    assert [each.code for each in errors] == [rejected.code for _, rejected, _ in asked if rejected is not None]
    assert asked
    outcomes = await REGISTRY.process_tool_calls(response)
    history = json.dumps(extend_messages([], response, outcomes))
    names = [call.name or "unknown" for call, _, _ in asked]
    assert all(json.dumps(name) in history for name in names)
    assert all(outcome.call.id in history for outcome in outcomes) or "message" in response


async def test_an_entry_that_is_no_call_becomes_one() -> None:
    """So that its result has a call before it, in a form that providers accept."""
    for response, key in ((chat("x"), "tool_calls"), (anthropic("x"), "content")):
        outcomes = await REGISTRY.process_tool_calls(response)
        assert [Code.UNRECOGNISED_TOOL_CALL] == [outcome.error for outcome in outcomes]
        (written,) = extend_messages([], response, outcomes)[0][key]
        called = written.get("function", written)
        assert ("call_0", "unknown") == (written["id"], called["name"])
        assert called.get("arguments", called.get("input")) in ("{}", {})


async def test_fail_fast_runs_nothing_after_a_failure() -> None:
    """Calls run sequentially. Those that did not run have an outcome too."""
    calls = [chat_call(name, json.dumps({"city": name}), name[0]) for name in ("weather", "broken", "weather")]
    calls[2]["id"] = "z"
    outcomes = await REGISTRY.process_tool_calls(chat(*calls), fail_fast=True)
    assert [None, Code.TOOL_FAILED, Code.TOOL_CANCELLED] == [outcome.error for outcome in outcomes]
    assert ["weather"] == RAN
    fine = await REGISTRY.process_tool_calls(chat(*calls[::2]), fail_fast=True)
    assert [None, None] == [outcome.error for outcome in fine]
    bad_first = chat(chat_call("weather", "[", "a"), chat_call("weather", BERN, "b"))
    outcomes = await REGISTRY.process_tool_calls(bad_first, fail_fast=True)
    assert [Code.INVALID_ARGUMENTS, Code.TOOL_CANCELLED] == [outcome.error for outcome in outcomes]


@together("response", [None, 3, b"bytes", b"", {}, {"foo": 1}, {"candidates": []}, {"promptFeedback": {}}])
async def test_other_objects_are_refused(response: Any) -> None:
    """With the same error as an unreadable source."""
    with pytest.raises(UnreadableSource, match=r"(expected a finished response|Gemini's responses cannot)"):
        read_finished(response)


async def test_each_call_needs_one_outcome() -> None:
    """Providers refuse a call without a result, or with two."""
    outcomes = await REGISTRY.process_tool_calls(TWO)
    for wrong in ([], outcomes[:1], [*outcomes, outcomes[0]]):
        with pytest.raises(ValueError, match="each call must have one outcome"):
            extend_messages([], TWO, wrong)


# Found by attack: endings, numbers and shapes.

ENDINGS: list[Any] = [
    *("stop", "STOP", "end_turn", "stop_sequence", "completed", "tool_calls", "tool-calls", "tool_use"),
    *("function_call", None, "", "error", "failed", "cancelled", "abort", "length", "max_tokens", "model_length"),
    *("max_output_tokens", "MAX_TOKENS", "safety", "SAFETY", "refusal", "content_filter", "pause_turn", "in_progress"),
    *("queued", "incomplete", "malformed_function_call", "load", "new word"),
]
ITEM = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": BERN}


async def test_calls_run_after_the_same_endings_as_in_a_stream() -> None:
    """In the words of every provider. After an unknown ending none runs."""
    with cases() as case:
        for ending in ENDINGS:
            with case(ending):
                expected = None if finish_reason(ending) in ("stop", "tool_calls") else Code.TRUNCATED
                message = {"role": "assistant", "tool_calls": [chat_call("weather", BERN, "a")]}
                for response in (
                    {"choices": [{"message": message, "finish_reason": ending}]},
                    {"message": message, "done_reason": ending},
                    {"message": message, "finish_reason": ending},
                    {"content": [tool_use("a", "weather", {"city": "Bern"})], "stop_reason": ending},
                    {"output": [ITEM], "status": ending},
                    {"output": [{**ITEM, "status": ending}], "status": "completed"},
                    [{**ITEM, "status": ending}],
                ):
                    outcomes = await REGISTRY.process_tool_calls(response)
                    assert [expected] == [outcome.error for outcome in outcomes]
                    assert extend_messages([], response, outcomes)


async def test_a_thousand_calls_do_not_all_run() -> None:
    """Only as many as a turn may have. Each of the others has an outcome."""
    outcomes = await REGISTRY.process_tool_calls(chat(*[chat_call("weather", BERN)] * 1000))
    assert [None] * 32 + [Code.TOO_MANY_CALLS] * 968 == [outcome.error for outcome in outcomes]
