"""How a model is told of which type its answer has to be: by its provider's own means, or in words. Sans-IO.

A provider that is given a schema keeps its model to it, but few let a model call tools in the same request. So it is
given one where no tools are sent, and all others are told in words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from streamtools.typed import OutputType

Body = dict[str, Any]


def _openai(name: str, schema: Any) -> Body:
    wanted = {"name": name, "schema": schema, "strict": False}  # strict ones allow only a part of JSON Schema
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


def _responses(name: str, schema: Any) -> Body:
    return {"text": {"format": {"type": "json_schema", "name": name, "schema": schema, "strict": False}}}


def _gemini(name: str, schema: Any) -> Body:
    return {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}}


def _ollama(name: str, schema: Any) -> Body:
    return {"format": schema}


_FORMATS: dict[str, Callable[[str, Any], Body]] = {
    "openai": _openai,
    "responses": _responses,
    "gemini": _gemini,
    "ollama": _ollama,
}
"""By the format of a provider's messages; Anthropic, Cohere, Bedrock and others are told in words."""


def is_native(format: object) -> bool:
    """Return whether models behind a format are given the schema itself."""
    return format in _FORMATS


def native_format(format: str, output: OutputType) -> Mapping[str, Any]:
    """Return the members of a body by which a provider is given the schema of an answer; none where it takes none."""
    write = _FORMATS.get(format)
    name = "".join(char if char.isalnum() and char.isascii() else "_" for char in output.name)[:64]
    return {} if write is None else write(name or "output", output.schema)


def contract(output: OutputType) -> str:
    """Return what a model is told in words."""
    schema = json.dumps(output.schema, ensure_ascii=False)
    return f"Your final answer is one JSON value and nothing else, which fits this JSON schema:\n{schema}"
