"""Messages of all formats, read into one history."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from streamtools.calls import ToolCall
from streamtools.errors import InvalidMessages
from streamtools.history import (
    Assistant,
    CallResult,
    Message,
    Results,
    System,
    TextPart,
    Thought,
    User,
    read_messages,
    write_messages,
)
from streamtools.history.parts import fault_of
from tests.history.test_messages import answer, call
from tests.support.cases import together

ASKED = {"id": "w", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
TURN = {"role": "assistant", "content": None, "tool_calls": [ASKED]}
WEATHER = call("w", "weather", city="Oslo")


def test_items_of_responses_are_joined_to_turns() -> None:
    """An output or a user message ends a turn."""
    asked = {"type": "function_call", "id": "fc", "call_id": "w", "name": "weather", "arguments": '{"city":"Oslo"}'}
    read = read_messages(
        [
            {"role": "assistant", "content": "Before."},
            {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Let me see."}]},
            asked,
            {"type": "reasoning", "id": "r2", "encrypted_content": "s"},
            {"type": "function_call", "call_id": "t", "name": "time", "arguments": "{}"},
            {"type": "message", "role": "assistant", "content": "Wait."},
            {"type": "function_call_output", "call_id": "w", "output": [{"type": "output_text", "text": "grey"}]},
            {"type": "function_call_output", "call_id": "t", "output": "12:00"},
            {"type": "function_call", "call_id": "x", "name": "time"},
        ]
    )
    before, turn, *rest = read
    assert isinstance(turn, Assistant)
    assert [("Hm.", None, "r1"), ("", "s", "r2")] == [each[:3] for each in turn.thoughts]
    assert [Thought, TextPart, ToolCall, Thought, ToolCall, TextPart] == [type(each) for each in turn.parts]
    assert [("w", {"city": "Oslo"}), ("t", {})] == [(each.id, each.arguments) for each in turn.calls]
    assert "Let me see.\nWait." == turn.text
    assert Assistant("Before.") == before
    results, last = rest
    assert isinstance(results, Results)
    assert [("w", "weather", "grey"), ("t", "time", "12:00")] == [
        (each.call_id, each.name, each.text) for each in results.results
    ]
    assert Assistant("", (call("x", "time"),)) == last


@pytest.mark.parametrize("written", [json.dumps, lambda arguments: arguments], ids=["text", "object"])
def test_arguments_have_a_limit_of_depth(written: Callable[[Any], Any]) -> None:
    """It is the same in each format, and for calls of a model."""

    def nested(depth: int) -> list[dict[str, Any]]:
        arguments: Any = {"a": json.loads("[" * (depth - 1) + "]" * (depth - 1))}
        return [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}]

    def read(depth: int) -> list[Message]:
        (message,) = nested(depth)
        function = message["tool_calls"][0]["function"]
        function["arguments"] = written(function["arguments"])
        return read_messages([message])

    def calls(depth: int) -> list[tuple[bool, str | None]]:
        (turn,) = read(depth)
        assert isinstance(turn, Assistant)
        return [(bool(each.arguments), fault_of(each)) for each in turn.calls]

    assert [(True, None)] == calls(64)
    ((holds, fault),) = calls(65)
    assert not holds
    assert fault is not None


def test_arguments_have_a_limit_of_values() -> None:
    """It applies to each call and to all calls together, if arguments are JSON text."""

    def text(count: int) -> str:
        return json.dumps({"a": [[]] * count})  # a value and a comma each

    def chat(*texts: str) -> list[dict[str, Any]]:
        calls = [{"id": f"c{at}", "function": {"name": "f", "arguments": each}} for at, each in enumerate(texts)]
        return [{"role": "assistant", "tool_calls": calls}]

    def items(*texts: str) -> list[dict[str, Any]]:
        named = {"type": "function_call", "name": "f"}
        return [{**named, "call_id": f"c{at}", "arguments": each} for at, each in enumerate(texts)]

    def front_end(*texts: str) -> list[dict[str, Any]]:
        said = chat(*texts)[0]
        return [{"role": "assistant", "id": "a", "toolCalls": said["tool_calls"]}]

    for write in (chat, items, front_end):
        for sizes, read in (
            ((20_000, 20_000, 20_000, 5), [True, True, False, True]),  # the last call is short and fits
            ((50_100,), [False]),
            ((49_900,), [True]),
        ):
            history = read_messages(write(*map(text, sizes)))
            held = [call for each in history if isinstance(each, Assistant) for call in each.calls]
            assert read == [bool(call.arguments) for call in held], (write.__name__, sizes)
            assert read == [fault_of(call) is None for call in held]
            assert all(call.arguments or call.raw in map(text, sizes) for call in held)


@pytest.mark.parametrize("odd", [1e999, 5, True, ["s"], {"a": 1}])
def test_signatures_and_ids_must_be_strings(odd: object) -> None:
    """Other values are ignored."""
    block = {"type": "thinking", "thinking": "Hm.", "signature": odd}
    call = {"type": "tool_use", "id": odd, "name": "f", "input": {}}
    item = {"type": "reasoning", "id": odd, "encrypted_content": odd, "summary": []}
    (turn, reasoned) = read_messages([{"role": "assistant", "content": [block, call]}, item])
    assert isinstance(turn, Assistant)
    assert isinstance(reasoned, Assistant)
    assert ((Thought("Hm."),), None) == (turn.thoughts, turn.calls[0].provider_id)
    assert [("", None, None)] == [each[:3] for each in reasoned.thoughts]


def test_messages_of_a_history_are_accepted() -> None:
    """They may be mixed with messages of providers. Results of calls in text may be anywhere."""
    in_text = CallResult("hash_marker", "f", "1", "h")
    history: list[Message] = [
        System("Be brief."),
        User("?"),
        Assistant("", (WEATHER,)),
        Results((answer("w", "weather", "grey"), in_text)),
    ]
    assert history == read_messages(history)
    assert [Results((in_text,)), Assistant("", (WEATHER,)), *history[3:]] == read_messages(
        [Results((in_text,)), TURN, *history[3:]]
    )


class Posted(BaseModel):
    role: str = "assistant"
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


def test_pydantic_models_are_read_like_their_json() -> None:
    """A web framework has parsed them, or an SDK. Fields that are None are absent; null in arguments is not."""
    call = {"id": "w", "type": "function", "function": {"name": "f", "arguments": '{"a":null}'}}
    models = [Posted(role="user", content="?"), Posted(tool_calls=[call])]
    assert read_messages([{"role": "user", "content": "?"}, {"role": "assistant", "tool_calls": [call]}]) == (
        read_messages(models, client=False)
    )
    with pytest.raises(InvalidMessages, match=r"message 0: .*utf-8"):
        read_messages([Posted.model_construct(role="user", content=b"\xff")], client=True)


WRONG: dict[str, tuple[list[Any], str]] = {
    "no object": (["Hi."], "message 0: a message must be an object such as"),
    "no role": ([{"content": "Hi."}], "message 0: the message has no role, and an item must have a type"),
    "a type that is a list": ([{"type": []}], "message 0: the message has no role, and an item must have a type"),
    "another role": ([TURN, {"role": "robot"}], "message 1: the role must be system, developer"),
    "an answer without its call": (
        [Results((answer("w", "weather", ""),))],
        "message 0: the result of call 'w' must follow the turn that holds the call",
    ),
}


@pytest.mark.parametrize(("messages", "complaint"), WRONG.values(), ids=WRONG)
def test_an_invalid_message_is_an_error_with_its_index(messages: list[Any], complaint: str) -> None:
    with pytest.raises(ValueError, match="message ") as raised:
        read_messages(messages)
    assert str(raised.value).startswith(complaint)


def tool(id: str | None, content: str = "x", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content, **more}


LEFT: dict[str, list[Any]] = {
    "one without its call": [tool("w")],
    "one that names nothing": [{"role": "tool", "name": "time", "content": ""}],
    "one whose id is no text": [TURN, tool("w"), {"role": "tool", "tool_call_id": 5, "content": ""}],
    "a second one": [TURN, tool("w"), tool("w", "y")],
    "a second one after another turn": [TURN, tool("w"), {"role": "assistant", "content": "a"}, tool("w", "y")],
    "one of Anthropic's": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "w", "content": "x"}]}],
    "one of Converse's": [{"role": "user", "content": [{"toolResult": {"toolUseId": "w", "content": []}}]}],
    "one of Gemini's": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}],
    "one of Responses": [{"type": "function_call_output", "call_id": "w", "output": "x"}],
}


@together("messages", LEFT.values(), ids=LEFT)
def test_results_without_a_call_are_dropped(messages: list[Any]) -> None:
    """Providers refuse them."""
    kept = messages[:2] if messages[0] is TURN else []
    written = write_messages([User("?"), *read_messages(messages)], "openai")
    assert kept == [each for each in written[1:] if each.get("content") != "a"]


def test_late_results_are_moved_after_their_call() -> None:
    items: list[Any] = [
        {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"} for id in ("a", "b", "c")
    ]
    outputs = [{"type": "function_call_output", "call_id": id, "output": id} for id in ("a", "b", "c")]
    said = {"role": "user", "content": "?"}
    mixed = [items[0], items[1], outputs[1], items[2], said, outputs[0], outputs[2]]
    written = write_messages(read_messages(mixed), "responses")
    assert [*items[:2], *outputs[:2], items[2], outputs[2], said] == written
    assert written == write_messages(read_messages(written), "responses")
