"""Creates the span attributes that contain messages, arguments and results, for `instrument(content=True)`.

The attributes for messages are JSON in the schema of the OpenTelemetry conventions. In all attributes, API keys in
known formats are overwritten, as in a recording. Attributes are truncated after `MAX_ATTRIBUTE` characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from streamtools.calls import ToolCall
from streamtools.history import Assistant, Message, Results, System, TextPart, Thought
from streamtools.json_values import writable
from streamtools.recording.redaction import scrub

Clean: TypeAlias = Callable[[Any], Any]
"""A function that applies the text rules of a run, which replace matches, to plain data. Returns the changed data."""

MAX_ATTRIBUTE = 64 * 1024
"""The maximum length of an attribute in characters."""


def as_attribute(value: Any) -> str:
    """Convert a value to an attribute. A string is used directly, any other value is serialized as JSON.

    API keys are overwritten, and the result is truncated after `MAX_ATTRIBUTE` characters.
    """
    encoded = value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(writable(value))
    return scrub(encoded).decode("utf-8", "replace")[:MAX_ATTRIBUTE]


def input_messages(history: Iterable[Message], clean: Clean) -> str:
    """Return the value of the attribute `gen_ai.input.messages`."""
    return as_attribute(clean([_message(message) for message in history]))


def output_messages(text: str, reasoning: str, calls: Sequence[ToolCall], finish: str | None, clean: Clean) -> str:
    """Return the value of the attribute `gen_ai.output.messages`: one response."""
    parts = [{"type": "reasoning", "content": reasoning}] if reasoning else []
    parts += [{"type": "text", "content": text}] if text else []
    message = {"role": "assistant", "parts": [*parts, *map(_call, calls)], "finish_reason": finish or "error"}
    return as_attribute(clean([message]))


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _message(message: Message) -> dict[str, Any]:
    match message:
        case System(text):
            return {"role": "system", "parts": [{"type": "text", "content": text}]}
        case Results(results):
            parts = [{"type": "tool_call_response", "id": item.call_id, "response": item.text} for item in results]
            return {"role": "tool", "parts": parts}
        case Assistant(parts=assistant_parts):
            return {"role": "assistant", "parts": list(map(_part, assistant_parts))}
        case _:
            content = message.content
            texts = [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content]
            return {"role": "user", "parts": [{"type": "text", "content": text} for text in texts]}


def _part(part: Any) -> dict[str, Any]:
    match part:
        case ToolCall():
            return _call(part)
        case TextPart(text):
            return {"type": "text", "content": text}
        case Thought(text):
            return {"type": "reasoning", "content": text}
        case _:
            return {"type": "provider_item"}
