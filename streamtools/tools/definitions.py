"""Converts tools to the formats of providers and of Latitude."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

from streamtools.tools.schemas import inline, parameters_of_schema
from streamtools.tools.tool import Tool

ProviderFormat: TypeAlias = Literal[
    "openai", "responses", "anthropic", "gemini", "interactions", "ollama", "bedrock", "cohere"
]
DefinitionFormat: TypeAlias = Literal[ProviderFormat, "tool_clients"]
"""`"tool_clients"` is the format of Latitude."""

_ANTHROPIC_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # parameter names that Anthropic accepts


def refused_parameter(tool: Tool) -> str | None:
    """Return the first parameter name that Anthropic refuses, or None if it accepts all."""
    return next((name for name in tool.parameters["properties"] if not _ANTHROPIC_PROPERTY.fullmatch(name)), None)


def write_definition(tool: Tool, format: str) -> dict[str, Any]:
    """Return the definition of a tool in a `DefinitionFormat`.

    Raises ValueError for the format of Anthropic if Anthropic refuses the name of a parameter.
    """
    schema = tool.parameters
    named = {"name": tool.name} | ({"description": tool.description} if tool.description else {})
    examples = schema.get("examples")
    without_examples = {key: value for key, value in schema.items() if key != "examples"}
    match format:
        case "openai" | "cohere":
            return {"type": "function", "function": named | {"parameters": schema}}
        case "responses":  # without `strict`, optional parameters would become required
            return {"type": "function", **named, "parameters": schema, "strict": False}
        case "interactions":
            return {"type": "function", **named, "parameters": without_examples}
        case "anthropic":
            if (name := refused_parameter(tool)) is not None:
                rule = "use 1 to 64 of A-Z, a-z, 0-9, _ . -"
                raise ValueError(f"tool {tool.name!r}: Anthropic refuses the parameter name {name!r}; {rule}")
            return named | {"input_schema": without_examples} | ({"input_examples": examples} if examples else {})
        case "bedrock":
            return {"toolSpec": named | {"inputSchema": {"json": without_examples}}}
        case "gemini":
            return named | {"parametersJsonSchema": without_examples}
        case "ollama":  # Ollama ignores other fields, and does not resolve references
            whole = inline(schema)
            kept = {key: whole[key] for key in ("type", "properties", "required") if key in whole}
            return {"type": "function", "function": named | {"parameters": kept}}
        case _:  # "tool_clients"
            return {"name": tool.name, "description": tool.description, "parameters": parameters_of_schema(schema)}
