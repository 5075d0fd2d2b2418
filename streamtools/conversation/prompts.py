"""Writes the section of a system prompt that teaches a model to call tools in text.

The section describes the tools and the form of a call. It begins with the line `<tool_instructions>` and ends with the
line `</tool_instructions>`. A later call of `augment_system_prompt` finds the section by these lines and replaces it. A
later call without tools removes the section. Tool descriptions are data, so they are neutralized: a description cannot
contain an example of a call, and cannot end the section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from streamtools.errors import checked
from streamtools.history import Message, System
from streamtools.history.content import string_at
from streamtools.json_values import compact
from streamtools.parsing.dialects import Dialect, choose_dialects
from streamtools.parsing.dialects.neutralizing import neutralize, neutralize_all
from streamtools.tools import Tool, ToolRegistry
from streamtools.tools.registry import ToolsLike
from streamtools.tools.schemas import inline

BEGIN: Final = "<tool_instructions>"
END: Final = "</tool_instructions>"

# From a line `BEGIN` to the next line `END`, without another line `BEGIN` between them.
_section = re.compile(rf"^{BEGIN}\n(?:(?!{BEGIN}$).*\n)*?{END}$", re.MULTILINE)
_section_tag = re.compile(f"<(?={BEGIN[1:]}|{END[1:]})")  # the first character of `BEGIN` or `END`

_SEPARATOR = "\n\n"


@checked
def augment_system_prompt(
    base: str | None, tools: ToolsLike | None, dialect: str | Dialect | Sequence[str | Dialect] = "tilde_fence"
) -> str:
    """Return the system prompt `base` with a section that teaches a model to call `tools` in a `dialect`.

    If `base` already has such a section, the section is replaced. If not, the section is appended after a blank line.
    If `tools` is empty, an existing section is removed. Tools are described in the order of their registration, with
    their JSON schemas. If several dialects are enabled, pass all of them in `dialect`, beginning with the dialect to
    teach. Their markers are then neutralized in the tool descriptions. Raises ValueError for a dialect that is unknown
    or cannot be taught.
    """
    registry = ToolRegistry.of(tools)
    section = _write_section(registry, _enabled(dialect)) if registry else ""
    return put_section(base, section)


def put_section(base: str | None, section: str) -> str:
    """Return the prompt `base` with the tool section `section`, which replaces an existing section.

    `section` is a result of `augment_system_prompt(None, …)`. With `""`, an existing section is removed.
    """
    base = base or ""
    start, *following = _section.split(base)  # `base` may contain several sections: all are removed
    if following:
        *middle, end = (text.removeprefix(_SEPARATOR) for text in following)
        rest = [*(text.removesuffix(_SEPARATOR) for text in middle), end]
        return _joined(start.removesuffix(_SEPARATOR), section, *rest)
    return _joined(base if base.strip() else "", section) if section else base


def add_teaching(history: Sequence[Message], section: str) -> list[Message]:
    """Return a history with `section`, a result of `augment_system_prompt(None, …)`, in its system prompt."""
    first = history[0] if history else None
    base, rest = (first.text, history[1:]) if isinstance(first, System) else (None, history)
    prompt = put_section(base, section)
    return [*([System(prompt)] if prompt else []), *rest]


def _enabled(dialects: str | Dialect | Sequence[str | Dialect]) -> list[Dialect]:
    """Return the dialect to teach, followed by the other given dialects and the dialects of `"auto"`."""
    chosen = choose_dialects((dialects,) if isinstance(dialects, str | Dialect) else dialects)
    if not chosen:
        raise ValueError("`dialect` is empty. Name a dialect to teach, such as 'tilde_fence'.")
    if not (first := chosen[0]).teachable:
        raise ValueError(f"calls of the dialect {first.id!r} contain tokens of a chat template; no prompt can teach it")
    ids = {dialect.id for dialect in chosen}
    return [*chosen, *(dialect for dialect in choose_dialects("auto") if dialect.id not in ids)]


def _write_section(registry: ToolRegistry, enabled: list[Dialect]) -> str:
    first = next(iter(registry))
    parts = [
        "You can use these tools:",
        "\n".join(_describe(tool, enabled) for tool in registry),
        enabled[0].instructions(first.name, neutralize_all(sample_arguments(first), enabled)).rstrip("\n"),
    ]
    written = _section_tag.sub("<\u2060", _SEPARATOR.join(parts))  # the text of a tool must not end the section
    return f"{BEGIN}\n{written}\n{END}"


# The description and the schema are neutralized completely. In the JSON around them, matches of `reserved_patterns`
# stay. These patterns match the keys of calls without a marker. A definition has the same keys, but is not read as a
# call.


def _describe(tool: Tool, enabled: list[Dialect]) -> str:
    described = {"description": tool.description, "parameters": tool.parameters}
    written = compact({"name": tool.name, **neutralize_all(described, enabled)})
    return neutralize(written, [_without_patterns(dialect) for dialect in enabled])


@lru_cache(maxsize=256)
def _without_patterns(dialect: Dialect) -> Dialect:
    return replace(dialect, reserved_patterns=())


def _joined(*parts: str) -> str:
    return _SEPARATOR.join(filter(None, parts))


# Sample arguments for the example of a call.

_FORMATS = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "name@example.org",
    "uri": "https://example.org",
}
_TEXT = "Paris"  # a text of any other format


def sample_arguments(tool: Tool) -> dict[str, Any]:
    """Return the arguments of a sample call of `tool`: the first of the `examples` in its schema.

    Without `examples`, they are generated from the schema. They contain the required parameters, or the first parameter
    if none is required.
    """
    if examples := tool.parameters.get("examples"):
        return dict(examples[0])
    return _members(inline(tool.parameters))


def _members(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    names = [name for name in properties if name in required] or list(properties)[:1]
    return {name: _value(properties[name]) for name in names}


def _value(schema: Any) -> Any:
    """Return an example value for a schema."""
    if not isinstance(schema, Mapping):
        return "..."
    if choices := [schema["const"]] if "const" in schema else schema.get("examples") or schema.get("enum"):
        return choices[0]
    if schema.get("default") is not None:
        return schema["default"]
    branches = (branch for key in ("anyOf", "oneOf", "allOf") for branch in schema.get(key, ()))
    if branch := next((branch for branch in branches if string_at(branch, "type") != "null"), None):
        return _value(branch)
    kinds = schema.get("type", ())
    match next((kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"), None):
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [_value(schema.get("items", {}))]
        case "object":
            return _members(schema)
        case "string":
            return _FORMATS.get(schema.get("format", "")) or _TEXT
    return "..."
