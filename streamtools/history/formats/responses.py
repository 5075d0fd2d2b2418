"""Items of OpenAI's Responses: reasoning, what was said, each call and each of its results are items of their own.

Reasoning goes back where it has its id and its encrypted content, before what it led to; without the latter a request
that stores nothing is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.formats.turns import Names, arguments_text, in_order
from streamtools.history.messages import Assistant, Message, Results, System, Thought
from streamtools.history.parts import responses_parts


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the items of a settled history, in which answers to calls in text are the user's."""
    names = Names(history)
    items: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            items.append({"role": "system", "content": message.text})
        elif isinstance(message, Assistant):
            items += (
                _write(each, names) for each in in_order(message) if not isinstance(each, Thought) or _is_ours(each)
            )
        elif isinstance(message, Results):
            items += (
                {"type": "function_call_output", "call_id": result.call_id, "output": result.text}
                for result in message.results
            )
        else:
            items.append({"role": "user", "content": responses_parts(message.content)})
    return items


def _is_ours(thought: Thought) -> bool:
    return bool(thought.id and thought.signature)


def _write(said: Thought | str | ToolCall, names: Names) -> dict[str, Any]:
    match said:
        case str():
            return {"role": "assistant", "content": said}
        case ToolCall():
            name = names.of(said.name)
            return {"type": "function_call", "call_id": said.id, "name": name, "arguments": arguments_text(said)}
        case _:
            summary = [{"type": "summary_text", "text": said.text}] if said.text else []
            return {"type": "reasoning", "id": said.id, "summary": summary, "encrypted_content": said.signature}
