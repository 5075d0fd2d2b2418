"""Messages, arguments and results as attributes of spans, where somebody has asked for content.

They are JSON in the form of the conventions' schemas, at most `LONGEST` characters of it, in which keys are overwritten
as in a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from streamtools.calls import ToolCall
from streamtools.history import Assistant, Message, Results, System, TextPart, Thought
from streamtools.json_values import writable
from streamtools.recording.scrubbing import scrub

Clean: TypeAlias = Callable[[Any], Any]
"""Returns plain data as the rules on a run's text leave it."""

LONGEST = 64 * 1024
"""Characters of one attribute."""


def as_attribute(value: Any) -> str:
    """Return a text as it is, and another value as JSON: without keys, and cut where it is too long."""
    written = value.encode("utf-8", "replace") if isinstance(value, str) else msgspec.json.encode(writable(value))
    return scrub(written).decode("utf-8", "replace")[:LONGEST]


def input_messages(history: Iterable[Message], clean: Clean) -> str:
    return as_attribute(clean([_message(each) for each in history]))


def output_messages(text: str, reasoning: str, calls: Sequence[ToolCall], finish: str | None, clean: Clean) -> str:
    """Return `gen_ai.output.messages`: what the model said as the reader saw it."""
    parts = [{"type": "reasoning", "content": reasoning}] * bool(reasoning)
    parts += [{"type": "text", "content": text}] * bool(text)
    said = {"role": "assistant", "parts": [*parts, *map(_call, calls)], "finish_reason": finish or "error"}
    return as_attribute(clean([said]))


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _message(message: Message) -> dict[str, Any]:
    match message:
        case System(text):
            return {"role": "system", "parts": [{"type": "text", "content": text}]}
        case Results(results):
            answers = [{"type": "tool_call_response", "id": each.call_id, "response": each.text} for each in results]
            return {"role": "tool", "parts": answers}
        case Assistant(parts=said):
            return {"role": "assistant", "parts": list(map(_part, said))}
        case _:
            content = message.content
            texts = [content] if isinstance(content, str) else [str(each.get("text", "")) for each in content]
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
