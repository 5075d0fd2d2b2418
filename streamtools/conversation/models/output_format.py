"""Adds the type of the answer to a request: in the provider's schema parameter, or in the prompt. Sans-IO.

Providers that accept a schema constrain the model's output to it. Only OpenAI accepts a schema and tools in one
request, so other providers get a schema only in requests without tools. Anthropic's models must call a tool whose
argument is the answer. The arguments of this call become the text of the answer. Anthropic does not allow forced tool
calls while thinking is enabled, so the prompt then describes the type. The prompt also describes it for all other
models.
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

ANSWER_TOOL = "answer"
"""The name of the tool that the model must call with its answer."""


def _anthropic(name: str, schema: Any) -> Body:
    tool = {"name": ANSWER_TOOL, "description": f"Takes your answer, a {name}.", "input_schema": schema}
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": ANSWER_TOOL, "disable_parallel_tool_use": True}}


def _json_schema(name: str, schema: Any) -> Body:
    return {"name": name, "schema": schema, "strict": False}  # strict mode supports only a subset of JSON Schema


_FORMATS: dict[str, Callable[[str, Any], Body]] = {
    "openai": lambda name, schema: {
        "response_format": {"type": "json_schema", "json_schema": _json_schema(name, schema)}
    },
    "responses": lambda name, schema: {"text": {"format": {"type": "json_schema", **_json_schema(name, schema)}}},
    "gemini": lambda name, schema: {
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}
    },
    "ollama": lambda name, schema: {"format": schema},
    "anthropic": _anthropic,
}
"""Maps a message format to a function that returns the body fields with the schema."""


def takes_schema(model: object, output: OutputType, options: Mapping[str, Any], *, tools: bool) -> bool:
    """Return whether a request with these options can carry the schema. `tools` says whether it also carries tools."""
    format = getattr(model, "format", None)
    if tools:
        return urlsplit(str(getattr(model, "url", ""))).hostname == "api.openai.com"
    if format == "anthropic":
        given = {**getattr(model, "options", {}), **options}
        thinking = given.get("thinking")
        thinks = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
        return output.schema.get("type") == "object" and not (thinks or "tools" in given or "tool_choice" in given)
    return format in _FORMATS


def schema_fields(format: str, output: OutputType) -> Mapping[str, Any]:
    """Return the body fields that hold the schema of the answer; none if the provider accepts no schema."""
    write = _FORMATS.get(format)
    name = "".join(char if char.isalnum() and char.isascii() else "_" for char in output.name)[:64]
    return {} if write is None else write(name or "output", output.schema)


def with_type_in_prompt(history: tuple[Message, ...], output: OutputType) -> tuple[Message, ...]:
    """Return the history with a description of the answer's type in its system prompt."""
    schema = json.dumps(output.schema, ensure_ascii=False)
    contract = f"Your final answer is one JSON value and nothing else, which fits this JSON schema:\n{schema}"
    first = history[0] if history else None
    if isinstance(first, System):
        return (System(f"{first.text}\n\n{contract}"), *history[1:])
    return (System(contract), *history)


class AnswerToolReader:
    """Replaces a call of the answer tool with text events that hold its arguments. Sans-IO."""

    def __init__(self) -> None:
        self._has_deltas: dict[str, bool] = {}  # by call key: whether a delta of the arguments has arrived

    def read(self, batch: Sequence[SourceEvent]) -> Sequence[SourceEvent]:
        """Return the events of `batch`, with text events instead of events of the answer tool's call."""
        return [read for event in batch for read in self._read(event)]

    def _read(self, event: SourceEvent) -> tuple[SourceEvent, ...]:
        match event:
            case ToolCallStart(key, name=name) if name == ANSWER_TOOL:
                self._has_deltas[key] = False
                return ()
            case ToolCallDelta(key, text) if key in self._has_deltas:
                self._has_deltas[key] = self._has_deltas[key] or bool(text)
                return (TextDelta(text),)
            case NativeToolCall(key, name) if name == ANSWER_TOOL or key in self._has_deltas:
                arguments = event.arguments
                if self._has_deltas.get(key) or arguments is None:
                    return ()
                return (TextDelta(arguments if isinstance(arguments, str) else json.dumps(arguments)),)
            case ProviderCompleted(tool_calls=calls) if self._has_deltas or calls:
                others = [call for call in calls or () if call.name != ANSWER_TOOL] or None
                finish = "stop" if event.finish_reason == "tool_calls" and not others else event.finish_reason
                return (replace(event, tool_calls=others, finish_reason=finish),)
        return (event,)
