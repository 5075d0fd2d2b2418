"""Messages of Cohere's chat, version 2: those of OpenAI's, but for what a model thought.

Before its calls that is a plan, which has a field of its own; before its words, parts of its content. Both go back only
to Cohere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streamtools.history import chat_messages as chat
from streamtools.history.content import given
from streamtools.history.parts import Assistant, Message
from streamtools.history.turns import Draft, in_order

FORMAT = "cohere"


def read_plan(message: Mapping[str, Any], said: Draft) -> None:
    """Add the plan that a message of the assistant's begins with, if it has one."""
    citations = message.get("citations")
    if citations or given(message, "tool_plan"):
        said.format = FORMAT
    if plan := given(message, "tool_plan"):
        said.add_thought(plan)
    if citations:
        said.add_item({"citations": citations})


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a settled history, in which answers to calls in text are the user's."""
    written = chat.write_openai(history)
    turns = [each for each in history if isinstance(each, Assistant) and (each.text or each.calls or each.items)]
    said = [message for message in written if message["role"] == "assistant"]
    for turn, message in zip(turns, said, strict=True):
        message.pop("content")
        for call in message.get("tool_calls", ()):
            call.pop("extra_content", None)  # of Google's
        of_cohere = turn.origin.format in (None, FORMAT)
        thoughts = "".join(each.text for each in turn.thoughts) if of_cohere and any(in_order(turn)) else ""
        parts = [{"type": "text", "text": turn.text}] if turn.text else []
        if turn.calls and thoughts:
            message["tool_plan"] = thoughts
        elif thoughts:
            parts.insert(0, {"type": "thinking", "thinking": thoughts})
        if parts:
            message["content"] = parts
    return written
