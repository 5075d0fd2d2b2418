"""How a model is told of which type its answer has to be: by its provider's own means, or in words. Sans-IO.

A provider that is given a schema keeps its model to it, but few let a model call tools in the same request: OpenAI
does. So others are given one where no tools are sent. Anthropic's models are made to call a tool that takes the answer,
unless they think, which forbids to force a call; what they write into that call is the text of the answer. All others
are told in words.
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
"""The tool that a model is made to call with its answer, where no other tools are sent."""


def _openai(name: str, schema: Any) -> Body:
    wanted = {"name": name, "schema": schema, "strict": False}  # strict ones allow only a part of JSON Schema
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


def _responses(name: str, schema: Any) -> Body:
    return {"text": {"format": {"type": "json_schema", "name": name, "schema": schema, "strict": False}}}


def _gemini(name: str, schema: Any) -> Body:
    return {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}}


def _ollama(name: str, schema: Any) -> Body:
    return {"format": schema}


def _anthropic(name: str, schema: Any) -> Body:
    tool = {"name": ANSWER, "description": f"Takes your answer, a {name}.", "input_schema": schema}
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": ANSWER, "disable_parallel_tool_use": True}}


_FORMATS: dict[str, Callable[[str, Any], Body]] = {
    "openai": _openai,
    "responses": _responses,
    "gemini": _gemini,
    "ollama": _ollama,
    "anthropic": _anthropic,
}
"""By the format of a provider's messages; Cohere, Bedrock and others are told in words."""


def takes_schema(model: object, output: OutputType, options: Mapping[str, Any], *, tools: bool) -> bool:
    """Return whether a model is given the schema itself in a request with these options, which sends `tools` or not."""
    format = getattr(model, "format", None)
    if tools:
        return urlsplit(str(getattr(model, "url", ""))).hostname == "api.openai.com"
    if format == "anthropic":
        said = {**getattr(model, "options", {}), **options}
        thinking = said.get("thinking")
        thinks = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
        return output.schema.get("type") == "object" and not (thinks or "tools" in said or "tool_choice" in said)
    return format in _FORMATS


def native_format(format: str, output: OutputType) -> Mapping[str, Any]:
    """Return the members of a body by which a provider is given the schema of an answer; none where it takes none."""
    write = _FORMATS.get(format)
    name = "".join(char if char.isalnum() and char.isascii() else "_" for char in output.name)[:64]
    return {} if write is None else write(name or "output", output.schema)


def in_words(history: tuple[Message, ...], output: OutputType) -> tuple[Message, ...]:
    """Return a history whose system prompt says of which type the answer has to be."""
    schema = json.dumps(output.schema, ensure_ascii=False)
    contract = f"Your final answer is one JSON value and nothing else, which fits this JSON schema:\n{schema}"
    first = history[0] if history else None
    if isinstance(first, System):
        return (System(f"{first.text}\n\n{contract}"), *history[1:])
    return (System(contract), *history)


class AnswerCall:
    """Makes of an answer's call of `ANSWER` the text of the answer. Sans-IO."""

    def __init__(self) -> None:
        self._written: dict[str, bool] = {}  # by the key of such a call: whether pieces of it have come

    def read(self, batch: Sequence[SourceEvent]) -> Sequence[SourceEvent]:
        """Return what events of the provider mean."""
        return [read for event in batch for read in self._read(event)]

    def _read(self, event: SourceEvent) -> tuple[SourceEvent, ...]:
        match event:
            case ToolCallStart(key, name=name) if name == ANSWER:
                self._written[key] = False
                return ()
            case ToolCallDelta(key, text) if key in self._written:
                self._written[key] = self._written[key] or bool(text)
                return (TextDelta(text),)
            case NativeToolCall(key, name) if name == ANSWER or key in self._written:
                given = event.arguments
                if self._written.get(key) or given is None:
                    return ()
                return (TextDelta(given if isinstance(given, str) else json.dumps(given)),)
            case ProviderCompleted(tool_calls=calls) if self._written or calls:
                others = [call for call in calls or () if call.name != ANSWER] or None
                finish = "stop" if event.finish_reason == "tool_calls" and not others else event.finish_reason
                return (replace(event, tool_calls=others, finish_reason=finish),)
        return (event,)
