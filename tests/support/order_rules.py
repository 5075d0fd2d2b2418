"""The rules of providers for the order of messages with tool calls, from their documentation and their error messages.

OpenAI: a message with `tool_calls` is followed directly by one `tool` message for each id. There are no other `tool`
messages. A user message may be empty. Anthropic: `tool_use` blocks are answered at the beginning of the next user
message, all of them and nothing else. Ids are unique in the history. No text is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

Message = dict[str, Any]


def check_openai(messages: Sequence[Message]) -> None:
    """Raise AssertionError for messages that OpenAI would refuse."""
    open_ids: list[str] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            assert message["tool_call_id"] in open_ids, f"no call for {message}"
            assert isinstance(content, str), message
            open_ids.remove(message["tool_call_id"])
            continue
        assert not open_ids, f"{open_ids} have no answer before {message}"
        calls = message.get("tool_calls")
        assert calls is None or (role == "assistant" and calls), message
        assert calls or (isinstance(content, str) and (content or role == "user")), message
        for call in calls or ():
            assert call["type"] == "function", call
            assert _NAME.fullmatch(call["function"]["name"]), call
            assert isinstance(json.loads(call["function"]["arguments"]), dict), call
            assert call["id"] not in open_ids, f"{call['id']} comes twice"
            open_ids.append(call["id"])
    assert not open_ids, f"{open_ids} have no answer"


def to_anthropic(messages: Sequence[Message]) -> list[Message]:
    """Convert OpenAI's messages to Anthropic's format. Adjacent messages of one role are joined."""
    joined: list[Message] = []
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks: list[Message] = []
        if message["role"] == "tool":
            blocks.append(
                {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            )
        elif message["content"] is not None:
            blocks.append({"type": "text", "text": message["content"]})
        for call in message.get("tool_calls", ()):
            function = call["function"]
            arguments = json.loads(function["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
        if joined and joined[-1]["role"] == role:
            joined[-1]["content"] += blocks
        else:
            joined.append({"role": role, "content": blocks})
    return joined


def check_anthropic(messages: Sequence[Message]) -> None:
    """Raise AssertionError for messages that Anthropic would refuse."""
    asked: list[str] = []
    seen: set[str] = set()
    assert not messages or messages[0]["role"] == "user", "a history begins with the user"
    for message in messages:
        blocks = message["content"]
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(asked), f"{asked} were asked for, and {results} are answered"
        assert kinds[: len(results)] == ["tool_result"] * len(results), f"results stand first: {kinds}"
        assert all(block["text"].strip() for block in blocks if block["type"] == "text"), "a text is empty"
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len({*asked}) == len(asked), f"ids come twice: {asked}"
        assert not seen & {*asked}, f"ids come again: {asked}"
        assert all(isinstance(block["input"], dict) for block in blocks if block["type"] == "tool_use"), blocks
        seen.update(asked)
    assert not asked, f"{asked} have no answer"
