"""A client for a body of chat completion chunks, which is stricter than OpenAI's clients.

It follows `openai` 3 for Python (`_streaming`, and the accumulation of `lib/streaming/chat`) and the schema of the API.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

Chunk = dict[str, Any]

_REASONS = ("stop", "length", "tool_calls", "content_filter")
_CALL = {"index", "id", "type", "function"}


class Message(NamedTuple):
    """The message that a client has at the end. `finish` is None if the body ended without a finish reason."""

    content: str
    reasoning: str
    calls: list[tuple[str, str, str]]
    finish: str | None
    usage: dict[str, Any] | None
    error: dict[str, Any] | None


def read_message(data: Sequence[str]) -> Message:
    """Return the message in the data of the events of a body. Raises AssertionError for invalid events."""
    content = reasoning = ""
    calls: list[list[str]] = []
    finish: str | None = None
    usage: dict[str, Any] | None = None
    heads = set()
    *chunks, last = data or [""]
    if last != "[DONE]":
        chunks = [each for each in data if each]
        if chunks and "error" in (error := json.loads(chunks[-1])):
            rest = read_message(chunks[:-1])
            assert rest.finish is None, "an error after the end"
            assert error["error"].keys() == {"message", "type", "code"}, error
            return rest._replace(error=error["error"])
    for at, each in enumerate(chunks):
        chunk: Chunk = json.loads(each)
        heads.add((chunk["id"], chunk["object"], chunk["created"], chunk["model"]))
        if not chunk["choices"]:
            assert (finish, usage) != (None, None), "usage follows the end"
            assert each == chunks[-1], "nothing follows the usage"
            usage = chunk["usage"]
            assert all(isinstance(usage[name], int) for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
            continue
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        assert finish is None, f"{chunk} after the end"
        assert choice.keys() == {"index", "delta", "finish_reason"}, choice
        assert choice["index"] == 0, choice
        assert ("role" in delta) == (at == 0), "the first chunk, and no other, has the role"
        assert None not in delta.values(), delta
        if at:
            assert delta == {} or any(delta.values()), f"an empty delta: {delta}"
            assert (delta == {}) == (choice["finish_reason"] is not None), choice
        finish = choice["finish_reason"]
        assert finish is None or finish in _REASONS, finish
        content += delta.get("content", "")
        reasoning += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", ()):
            function = call["function"]
            if call["index"] == len(calls):
                assert call.keys() == _CALL, call
                assert call["type"] == "function", call
                calls.append([call["id"], function["name"], function["arguments"]])
            else:
                assert call.keys() == {"index", "function"}, call
                assert function.keys() == {"arguments"}, call
                assert function["arguments"], "an empty delta"
                calls[call["index"]][2] += function["arguments"]
    assert len(heads) <= 1, "all chunks are of one completion"
    assert (last == "[DONE]") == (finish is not None), "[DONE] must follow the end"
    assert len({call[0] for call in calls}) == len(calls), "ids come twice"
    return Message(content, reasoning, [(id, name, text) for id, name, text in calls], finish, usage, None)
