"""Tell a model the type of its answer: by its provider's schema parameter, or in words. Sans-IO.

A provider that is given a schema keeps its model to it. Only OpenAI allows tools in the same request, so other
providers get a schema when no tools are sent. Anthropic's models are made to call a tool that takes the answer. What
they write into that call becomes the text of the answer. They cannot be forced to call while they think. The prompts of
all other models describe the type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from streamtools.events import NativeToolCall, ProviderCompleted, SourceEvent, TextDelta, ToolCallDelta, ToolCallStart
from streamtools.history import Message, System
from streamtools.typed import OutputType

Body = dict[str, Any]

ANSWER = "answer"
"""The tool that a model is made to call with its answer."""


def _anthropic(name: str, schema: Any) -> Body:
    tool = {"name": ANSWER, "description": f"Takes your answer, a {name}.", "input_schema": schema}
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": ANSWER, "disable_parallel_tool_use": True}}


def _named(name: str, schema: Any) -> Body:
    return {"name": name, "schema": schema, "strict": False}  # strict schemas are only a part of JSON Schema


_FORMATS: dict[str, Callable[[str, Any], Body]] = {
    "openai": lambda name, schema: {"response_format": {"type": "json_schema", "json_schema": _named(name, schema)}},
    "responses": lambda name, schema: {"text": {"format": {"type": "json_schema", **_named(name, schema)}}},
    "gemini": lambda name, schema: {
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}
    },
    "ollama": lambda name, schema: {"format": schema},
    "anthropic": _anthropic,
}
"""By the format of a provider's messages. The prompts of other models describe the type."""


def takes_schema(model: object, output: OutputType, options: Mapping[str, Any], *, tools: bool) -> bool:
    """Return whether a request with these options includes the schema itself; `tools`: whether tools are sent."""
    format = getattr(model, "format", None)
    if tools:
        return urlsplit(str(getattr(model, "url", ""))).hostname == "api.openai.com"
    if format == "anthropic":
        given = {**getattr(model, "options", {}), **options}
        thinking = given.get("thinking")
        thinks = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
        return output.schema.get("type") == "object" and not (thinks or "tools" in given or "tool_choice" in given)
    return format in _FORMATS


def schema_members(format: str, output: OutputType) -> Mapping[str, Any]:
    """Return the members of a body that carry the schema of the answer; none if the provider accepts no schema."""
    write = _FORMATS.get(format)
    name = "".join(char if char.isalnum() and char.isascii() else "_" for char in output.name)[:64]
    return {} if write is None else write(name or "output", output.schema)


def in_words(history: tuple[Message, ...], output: OutputType) -> tuple[Message, ...]:
    """Return a history whose system prompt describes the type of the answer."""
    schema = json.dumps(output.schema, ensure_ascii=False)
    contract = f"Your final answer is one JSON value and nothing else, which fits this JSON schema:\n{schema}"
    first = history[0] if history else None
    if isinstance(first, System):
        return (System(f"{first.text}\n\n{contract}"), *history[1:])
    return (System(contract), *history)


class AnswerCall:
    """Turns the call of `ANSWER` in an answer into the text of the answer. Sans-IO."""

    def __init__(self) -> None:
        self._has_deltas: dict[str, bool] = {}  # by the key of the call

    def read(self, batch: Sequence[SourceEvent]) -> Sequence[SourceEvent]:
        return [read for event in batch for read in self._read(event)]

    def _read(self, event: SourceEvent) -> tuple[SourceEvent, ...]:
        match event:
            case ToolCallStart(key, name=name) if name == ANSWER:
                self._has_deltas[key] = False
                return ()
            case ToolCallDelta(key, text) if key in self._has_deltas:
                self._has_deltas[key] = self._has_deltas[key] or bool(text)
                return (TextDelta(text),)
            case NativeToolCall(key, name) if name == ANSWER or key in self._has_deltas:
                arguments = event.arguments
                if self._has_deltas.get(key) or arguments is None:
                    return ()
                return (TextDelta(arguments if isinstance(arguments, str) else json.dumps(arguments)),)
            case ProviderCompleted(tool_calls=calls) if self._has_deltas or calls:
                others = [call for call in calls or () if call.name != ANSWER] or None
                finish = "stop" if event.finish_reason == "tool_calls" and not others else event.finish_reason
                return (replace(event, tool_calls=others, finish_reason=finish),)
        return (event,)
