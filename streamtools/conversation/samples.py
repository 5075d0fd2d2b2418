"""Arguments for the example of a call, where a tool has none of its own: read from its JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtools.tools import Tool
from streamtools.tools.schemas import inline

_FORMATS = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "email": "name@example.org",
    "uri": "https://example.org",
}
_GIVEN = ("examples", "enum")  # lists of values, of which any will do


def sample_arguments(tool: Tool) -> list[dict[str, Any]]:
    """Return arguments that a model might give `tool`: its own examples, or else one or two that its schema tells.

    Those have the required parameters, or, if none is, the first one.
    """
    examples = tool.parameters.get("examples")
    if examples:
        return [dict(each) for each in examples]
    schema = inline(tool.parameters)
    one, other = (_members(schema, word) for word in ("some", "another"))
    return [one] if one == other else [one, other]


def _members(schema: Mapping[str, Any], word: str) -> dict[str, Any]:
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", ())
    names = [name for name in properties if name in required] or list(properties)[:1]
    return {name: _value(properties[name], f"{word} {name.replace('_', ' ')}") for name in names}


def _value(schema: Any, called: str) -> Any:
    """Return a value that a schema allows, as far as it is a simple one; a text is what the value is `called`."""
    if not isinstance(schema, Mapping):
        return "..."
    if "const" in schema:
        return schema["const"]
    for key in _GIVEN:
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    if schema.get("default") is not None:
        return schema["default"]
    for key in ("anyOf", "oneOf", "allOf"):
        if each := next((each for each in schema.get(key, ()) if not _is_null(each)), None):
            return _value(each, called)
    kinds = schema.get("type")
    kind = kinds if isinstance(kinds, str) else next((each for each in kinds or () if each != "null"), None)
    match kind:
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [_value(schema.get("items", {}), called)]
        case "object":
            return _members(schema, called.partition(" ")[0])
        case "string":
            return _FORMATS.get(schema.get("format", ""), called)
        case _:
            return "..."


def _is_null(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"
