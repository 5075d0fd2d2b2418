"""How a model is told of which type its answer has to be: by its provider's own means, or in words. Sans-IO.

A provider that is given a schema keeps its model to it, but few let a model call tools in the same request: OpenAI
does. So others are given one where no tools are sent. Anthropic's models are made to call a tool that takes the answer,
unless they think, which forbids to force a call; what they write into that call is the text of the answer. All others
are told in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from streamtools.events import NativeToolCall, ProviderCompleted, SourceEvent, TextDelta, ToolCallDelta, ToolCallStart
from streamtools.history import Message, System
from streamtools.typed import OutputType

Body = dict[str, Any]

ANSWER = "answer"
"""The tool that a model is made to call with its answer, where no other tools are sent."""


def _anthropic(name: str, schema: Any) -> Body:
    tool = {"name": ANSWER, "description": f"Takes your answer, a {name}.", "input_schema": schema}
    return {"tools": [tool], "tool_choice": {"type": "tool", "name": ANSWER, "disable_parallel_tool_use": True}}


def _named(name: str, schema: Any) -> Body:
    return {"name": name, "schema": schema, "strict": False}  # strict ones allow only a part of JSON Schema


_FORMATS: dict[str, Callable[[str, Any], Body]] = {
    "openai": lambda name, schema: {"response_format": {"type": "json_schema", "json_schema": _named(name, schema)}},
    "responses": lambda name, schema: {"text": {"format": {"type": "json_schema", **_named(name, schema)}}},
    "gemini": lambda name, schema: {
        "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}
    },
    "ollama": lambda name, schema: {"format": schema},
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


# Which servers go on with an answer whose beginning they are given, and how each is told to.
#
# Nobody else does: a provider that is not in the table takes the last message of the assistant for a finished one, or
# refuses it. Sources, as of 2026:
#
#     vllm       the parameters of its chat completions (docs.vllm.ai, OpenAI-compatible server)
#     sglang     the same (docs.sglang.ai, OpenAI APIs)
#     llama.cpp  ggml-org/llama.cpp pull requests 13174 and 23012; before 23089 it sent the beginning once more
#     deepseek   api-docs.deepseek.com, guide to chat prefix completion; below `/beta` alone
#     mistral    docs.mistral.ai, `prefix` of the assistant's message; it sends the beginning once more
#     anthropic  platform.claude.com, prefill; models before 4.6, without thinking, and with no white space at its end


@dataclass(frozen=True)
class Prefill:
    """How a server is told to go on: by members of the body, or of the message; and whether it may send it again."""

    body: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] = field(default_factory=dict)
    echoes: bool = False

    def write(self, body: Mapping[str, Any], text: str) -> dict[str, Any]:
        """Return the body of a request whose answer begins with `text`."""
        said = {"role": "assistant", "content": text, **self.message}
        return {**body, "messages": [*body["messages"], said], **self.body}


_GENERATION = {"continue_final_message": True, "add_generation_prompt": False}
PREFILLS: dict[str, Prefill] = {
    "vllm": Prefill(body=_GENERATION),
    "sglang": Prefill(body=_GENERATION),
    "llama.cpp": Prefill(body=_GENERATION, echoes=True),
    "deepseek": Prefill(message={"prefix": True}),
    "mistral": Prefill(message={"prefix": True}, echoes=True),
    "anthropic": Prefill(),
}
_CLAUDE = re.compile(
    r"claude-(?:(?:opus|sonnet|haiku)-4(?:-[015])?(?:-2\d{7})?|3-[a-z0-9-]{1,40}|(?:instant|2)\b.{0,40})"
)


def known_prefill(format: str, url: str, model: str) -> str | None:
    """Return the row of a model at an address, if it is known to go on; the servers of one's own have to be named."""
    parts = urlsplit(url)
    if format == "anthropic":
        name = model.removesuffix("-latest").removesuffix("-0")
        return "anthropic" if parts.hostname == "api.anthropic.com" and _CLAUDE.fullmatch(name) else None
    if format != "openai":
        return None
    if parts.hostname == "api.deepseek.com" and parts.path.startswith("/beta/"):
        return "deepseek"
    return "mistral" if parts.hostname == "api.mistral.ai" else None


def prefill_of(model: object, *options: Mapping[str, Any]) -> Prefill | None:
    """Return how a model is told to go on with an answer in a request with such `options`; None if it is not."""
    name = getattr(model, "prefill", None)
    row = PREFILLS.get(name) if isinstance(name, str) else None
    if row is None:
        return None
    thinking = [each["thinking"] for each in (getattr(model, "options", {}), *options) if "thinking" in each]
    thinks = bool(thinking) and isinstance(thinking[-1], Mapping) and thinking[-1].get("type") != "disabled"
    return None if name == "anthropic" and thinks else row
