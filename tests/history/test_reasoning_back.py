"""Reasoning of chat completions in later requests: in which messages, and in which field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamtools.history import Assistant, Message, Origin, SendReasoning, Step, read_messages, write_messages
from streamtools.history.parts import steps_to_history

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "x"}


def user(text: str = "?") -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(content: str | None = None, *, calls: bool = False, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **({"tool_calls": [CALL]} if calls else {}), **fields}


THREE_TURNS = [
    user(),
    said(calls=True, reasoning_content="1"),
    RESULT,
    said("a", reasoning_content="2"),
    user(),
    said("b", reasoning_content="3"),
    user(),
    said(calls=True, reasoning_content="4"),
    RESULT,
]


def reasoning(messages: list[dict[str, Any]], field: str = "reasoning_content", **how: Any) -> list[Any]:
    """Return the reasoning of each assistant message."""
    written = write_messages(read_messages(messages), "openai", **how)
    return [message.get(field) for message in written if message["role"] == "assistant"]


@pytest.mark.parametrize(
    ("send", "expected"),
    [
        ("with_calls", ["1", "2", None, "4"]),
        ("always", ["1", "2", "3", "4"]),
        ("since_user", [None, None, None, "4"]),
        ("never", [None, None, None, None]),
    ],
)
def test_send_reasoning_selects_exchanges(send: SendReasoning, expected: list[str | None]) -> None:
    """The default is exchanges with calls, with all their messages."""
    assert expected == reasoning(THREE_TURNS, send_reasoning=send)
    with pytest.raises(ValueError, match="send_reasoning must be one of 'with_calls'"):
        reasoning(THREE_TURNS, send_reasoning=send.upper())


def test_exchanges_with_calls_keep_reasoning() -> None:
    """They keep it after any number of exchanges."""
    for more in range(3):
        assert ["1", "2"] == reasoning([*THREE_TURNS[:4], *[user()] * more])


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_a_message_without_reasoning_gets_an_empty_field(field: str) -> None:
    """This holds in exchanges with calls. The field is the one that the server used."""
    messages = [
        *(user(), said(calls=True, **{field: "1"}), RESULT, said("a")),
        *(user(), said("b"), user(), said(calls=True)),
    ]
    assert ["1", "", None, ""] == reasoning([*messages, RESULT], field)
    assert [None, None] == reasoning([user(), said(calls=True), RESULT, said("a")], field)


def test_another_host_gets_no_reasoning() -> None:
    """It could refuse the field, or take it for its own."""
    history: list[Message] = read_messages(THREE_TURNS)
    origin = Origin("openai", "api.deepseek.com")
    steps = [Step(replace(each, origin=origin)) for each in history if isinstance(each, Assistant)]
    told = steps_to_history(steps)
    for host, expected in (("api.deepseek.com", "1"), (None, "1"), ("api.openai.com", None)):
        (first, *_) = write_messages(told, "openai", unanswered="cancelled", provider=Origin(host=host))
        assert expected == first.get("reasoning_content")


def test_a_known_host_gets_its_field() -> None:
    """Reasoning from a front end is sent back. For a turn of another provider, the field is empty."""
    step = {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": {}, "output": "x"}
    parts = [{"type": "reasoning", "text": "1"}, step, {"type": "step-start"}, {"type": "text", "text": "a"}]
    messages: list[Any] = [{"id": "m", "role": "assistant", "parts": parts}, {"id": "n", "role": "user", "parts": []}]
    assert ["1", ""] == reasoning(messages, provider=Origin(host="api.deepseek.com"))
    assert ["1", ""] == reasoning(messages, "reasoning", provider=Origin(host="openrouter.ai"))
    assert [None, None] == reasoning(messages, provider=Origin(host="api.openai.com"))
    proxy = Origin(host="proxy.example.org")
    assert [None, None] == reasoning(messages, provider=proxy)
    assert ["1", ""] == reasoning(messages, provider=proxy, reasoning_field="reasoning_content")
    assert [None, None] == reasoning(messages, provider=Origin(host="api.openai.com"), reasoning_field="reasoning")
    thinking = {"type": "thinking", "thinking": "1", "signature": "s"}
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    other = [user(), {"role": "assistant", "content": [thinking, use]}, user()]
    assert [""] == reasoning(other, provider=Origin(host="api.deepseek.com"))


def test_reasoning_of_posted_chat_completions_is_sent() -> None:
    """It is handled like that of each front end."""
    read = read_messages(THREE_TURNS, client=True)
    for how in ({"provider": Origin(host="api.deepseek.com")}, {"reasoning_field": "reasoning_content"}):
        options: Any = how
        written = write_messages(read, "openai", **options)
        kept = write_messages(read_messages(THREE_TURNS), "openai")
        assert [each.get("reasoning_content") for each in kept] == [each.get("reasoning_content") for each in written]
