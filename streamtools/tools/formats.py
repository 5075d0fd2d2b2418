"""Tools as requests tell a model of them: the form of each provider, and one line each for a prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from streamtools.tools.schemas import JsonSchema, inline
from streamtools.tools.tool_clients import parameters_of_schema, type_of

if TYPE_CHECKING:
    from streamtools.tools.definition import Tool

Definition = dict[str, Any]

_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # of the names that Anthropic takes for the members of an input
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)", re.DOTALL)
_SENTENCE_LENGTH = 80
_SCALARS = {"string", "integer", "number", "boolean"}


def _openai(tool: Tool) -> Definition:
    return {"type": "function", "function": _named(tool) | {"parameters": tool.parameters}}


def _responses(tool: Tool) -> Definition:
    # Left out, `strict` is true there, and optional parameters become required.
    return {"type": "function", **_named(tool), "parameters": tool.parameters, "strict": False}


def _anthropic(tool: Tool) -> Definition:
    for name in tool.parameters["properties"]:
        if not _PROPERTY.fullmatch(name):
            raise ValueError(
                f"tool {tool.name!r}: Anthropic takes no parameter called {name!r}, but 1 to 64 of A-Z, a-z, 0-9, _ . -"
            )
    schema = _without_examples(tool)
    examples = tool.parameters.get("examples")
    return _named(tool) | {"input_schema": schema} | ({"input_examples": examples} if examples else {})


def _gemini(tool: Tool) -> Definition:
    return _named(tool) | {"parametersJsonSchema": _without_examples(tool)}


def _ollama(tool: Tool) -> Definition:
    # Its server knows no other members of the object, and a property that refers to something else says nothing to it.
    schema = inline(tool.parameters)
    kept = {key: schema[key] for key in ("type", "properties", "required") if key in schema}
    return {"type": "function", "function": _named(tool) | {"parameters": kept}}


def _mcp(tool: Tool) -> Definition:
    definition = _named(tool) | {"inputSchema": tool.parameters}
    schema = tool.output_schema
    is_object = schema is not None and schema.get("type") == "object"  # it allows no other
    return definition | {"outputSchema": schema} if is_object else definition


def _tool_client(tool: Tool) -> Definition:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters_of_schema(tool.parameters),
    }


FORMATS: dict[str, Callable[[Tool], Definition]] = {
    "openai": _openai,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
    "mcp": _mcp,
    "tool_clients": _tool_client,
}
"""How each provider wants to be told of a tool."""


def write_definitions(tools: Iterable[Tool], format: str) -> list[Definition]:
    """Return the tools as a provider's request holds them; Gemini's are one object. Raises ValueError."""
    if format not in FORMATS:
        raise ValueError(f"no tool definitions for {format!r}; there are {', '.join(FORMATS)}, compact")
    written = [FORMATS[format](each) for each in tools]
    return [{"functionDeclarations": written}] if format == "gemini" and written else written


def write_line(tool: Tool) -> str:
    """Return a tool in one line: its parameters, those that are required first, and a sentence of its description.

    >>> from streamtools.tools import Tool
    >>> def read_file(path: str, lines: list[int] | None = None) -> str:
    ...     "Read a file. Slowly."
    ...     return ""
    >>> write_line(Tool(read_file))
    '- read_file(path: string, lines?: integer[]) — Read a file.'
    """
    schema = inline(tool.parameters)
    required = set(schema.get("required", ()))
    names = sorted(schema["properties"], key=lambda name: (name not in required, name))
    told = [f"{name}{'' if name in required else '?'}: {_type(schema['properties'][name])}" for name in names]
    line = f"- {tool.name}({', '.join(told)})"
    text = " ".join(tool.description.split())
    sentence = _SENTENCE.match(text)
    text = sentence[1] if sentence else text
    if len(text) > _SENTENCE_LENGTH:
        text = text[: _SENTENCE_LENGTH - 1].rstrip() + "…"
    return f"{line} — {text}" if text else line


def _type(schema: JsonSchema | bool) -> str:
    if isinstance(schema, bool):
        return "any"
    kind = type_of(schema)
    if kind != "array":
        return kind
    arrays = [schema, *(each for each in schema.get("anyOf", ()) if isinstance(each, dict))]
    items: JsonSchema = next((each["items"] for each in arrays if isinstance(each.get("items"), dict)), {})
    return f"{type_of(items)}[]" if type_of(items) in _SCALARS else "array"


def _without_examples(tool: Tool) -> JsonSchema:
    return {key: value for key, value in tool.parameters.items() if key != "examples"}


def _named(tool: Tool) -> Definition:
    return {"name": tool.name} | ({"description": tool.description} if tool.description else {})
