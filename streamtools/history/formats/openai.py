"""Messages of OpenAI's chat completions, and of the many servers that speak it.

Arguments are JSON text, each result is a message of its own, and a failure is told in words. Reasoning is left out:
some of the servers refuse a field for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.history.formats.turns import Names, arguments_text
from streamtools.history.messages import Assistant, Message, Results, System


def write(history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a settled history, in which answers to calls in text are the user's."""
    names = Names(history)
    messages: list[dict[str, Any]] = []
    for message in history:
        if isinstance(message, System):
            messages.append({"role": "system", "content": message.text})
        elif isinstance(message, Assistant):
            calls = [_write_call(call, names) for call in message.calls]
            if message.text or calls:
                written = {"role": "assistant", "content": message.text or None}
                messages.append(written | {"tool_calls": calls} if calls else written)
        elif isinstance(message, Results):
            messages += (
                {"role": "tool", "tool_call_id": result.call_id, "content": result.text} for result in message.results
            )
        else:
            messages.append({"role": "user", "content": message.content})
    return messages


def _write_call(call: ToolCall, names: Names) -> dict[str, Any]:
    function = {"name": names.of(call.name), "arguments": arguments_text(call)}
    written = {"id": call.id, "type": "function", "function": function}
    if call.signature is not None:  # Google's, which its service of this format wants back
        written["extra_content"] = {"google": {"thought_signature": call.signature}}
    return written
