"""Histories of Bedrock's Converse API and of Cohere."""

from __future__ import annotations

from typing import Any

from streamtools.history import Assistant, Origin, read_messages, write_messages

CALL = {"toolUse": {"toolUseId": "tooluse_1", "name": "f", "input": {"a": 1}}}
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "s"}}}
RESULT = {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "x"}]}}
HOSTED = {"toolUse": {"toolUseId": "t", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def test_messages_of_converse_are_converted() -> None:
    """Other providers get texts, images, calls and results, without reasoning and unknown blocks."""
    history = [user({"text": "Hi"}), said(THOUGHT, {"text": "a"}, HOSTED, CALL), user(RESULT)]
    written = write_messages(read_messages(history), "openai", provider=Origin(host="api.openai.com"))
    function = {"name": "f", "arguments": '{"a":1}'}
    assert [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": "a",
            "tool_calls": [{"id": "tooluse_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "tooluse_1", "content": "x"},
    ] == written


def test_json_results_of_converse_become_text() -> None:
    """For Converse, a result without text gets a placeholder."""
    value = {"toolResult": {"toolUseId": "tooluse_1", "content": [{"json": {"a": [1]}}]}}
    empty = {"toolResult": {"toolUseId": "tooluse_1", "content": []}}
    history = read_messages([said(CALL), user(value)])
    assert '{"a":[1]}' == write_messages(history, "openai")[1]["content"]
    assert user(value) == write_messages(history, "bedrock")[1]
    (_, written) = write_messages(read_messages([said(CALL), user(empty)]), "bedrock")
    assert [{"text": "(nothing)"}] == written["content"][0]["toolResult"]["content"]


FUNCTION = {"id": "f_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
PLAN: list[dict[str, Any]] = [
    {"role": "assistant", "tool_plan": "I look.", "tool_calls": [FUNCTION]},
    {"role": "tool", "tool_call_id": "f_1", "content": "x"},
]


def test_reasoning_of_cohere_stays_with_cohere() -> None:
    """Other providers do not get its plan, and Cohere does not get their reasoning."""
    read = read_messages(PLAN)
    assert "I look." not in str(write_messages(read, "openai"))
    theirs = [Assistant("a", thoughts=read[0].thoughts, origin=Origin("anthropic"))]  # type: ignore[union-attr]
    assert [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}] == write_messages(theirs, "cohere")
