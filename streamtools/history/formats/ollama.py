"""Messages of Ollama's own chat: arguments are objects, results name their tool, images stand beside the text.

It takes reasoning back as plain text, for templates that show a model what it thought before a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.formats.turns import Names
from streamtools.history.messages import Assistant, Message, Results, System
from streamtools.history.parts import ollama_parts


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a settled history, in which answers to calls in text are the user's."""
    names = Names(history)
    messages: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            messages.append({"role": "system", "content": message.text})
        elif isinstance(message, Assistant):
            if message.text or message.calls:
                messages.append(_assistant(message, names))
        elif isinstance(message, Results):
            messages += (
                {
                    "role": "tool",
                    "tool_name": names.of(result.name),
                    "tool_call_id": result.call_id,
                    "content": result.text,
                }
                for result in message.results
            )
        else:
            messages.append({"role": "user", **ollama_parts(message.content)})
    return messages


def _assistant(message: Assistant, names: Names) -> dict[str, Any]:
    written: dict[str, Any] = {"role": "assistant", "content": message.text}
    if thought := "\n".join(each.text for each in message.thoughts if each.text):
        written["thinking"] = thought
    if message.calls:
        written["tool_calls"] = [_write_call(call, names) for call in message.calls]
    return written


def _write_call(call: ToolCall, names: Names) -> dict[str, Any]:
    return {"id": call.id, "function": {"name": names.of(call.name), "arguments": call.arguments}}
