"""JSON schemas as providers take them: completed, checked, and rewritten for those that cannot follow references.

Only the places where a schema may stand are walked: a property may be called `items`, and a default may look like a
schema.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pydantic_core import from_json, to_json

JsonSchema = dict[str, Any]

_ONE = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "not", "if", "then", "else"),
    *("propertyNames", "additionalProperties", "unevaluatedProperties"),
)
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")  # `items` was a list before draft 2020-12
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NOT_AT_THE_TOP = ("anyOf", "oneOf", "allOf", "not", "enum")  # OpenAI and Anthropic refuse them there


def complete(schema: JsonSchema) -> JsonSchema:
    """Return the schema with `items: {}` in each array that says nothing of its items: OpenAI refuses it otherwise."""

    def with_items(part: JsonSchema) -> JsonSchema:
        kind = part.get("type")
        is_array = kind == "array" or (isinstance(kind, list) and "array" in kind)
        return {**part, "items": {}} if is_array and "items" not in part else part

    return cast(JsonSchema, _rewrite(schema, with_items))


def snapshot(schema: Mapping[str, Any]) -> JsonSchema:
    """Return a copy, in plain values, of a schema that a user wrote for a tool's parameters, completed.

    Raises ValueError where providers would refuse it: it is no JSON, not an object's, or has an alternative at its top.
    """
    try:
        copied = from_json(to_json(schema))
    except ValueError as error:
        raise ValueError(f"the schema of the parameters cannot be written as JSON: {error}") from error
    if copied.get("type", "object") != "object":
        raise ValueError(f"the schema of a tool's parameters is an object's, not of type {copied['type']!r}")
    if found := [key for key in _NOT_AT_THE_TOP if key in copied]:
        raise ValueError(f"the schema of the parameters has {found[0]!r} at its top, which providers refuse")
    properties, required = copied.get("properties", {}), copied.get("required", [])
    if not isinstance(properties, dict) or not all(isinstance(each, dict | bool) for each in properties.values()):
        raise ValueError("the schema's 'properties' are an object that holds a schema for each name")
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise ValueError("the schema's 'required' is a list of names")
    return complete({"type": "object", "properties": {}, **copied})


def inline(schema: JsonSchema) -> JsonSchema:
    """Return the schema without `$ref`, for those that cannot follow one; what refers to itself ends as `{}`."""
    definitions = {
        f"#/{key}/{name}": part for key in ("$defs", "definitions") for name, part in schema.get(key, {}).items()
    }

    def written_out(part: Any, seen: tuple[str, ...]) -> Any:
        if not isinstance(part, dict):
            return part
        reference = part.get("$ref")
        if isinstance(reference, str):
            beside = {key: value for key, value in part.items() if key != "$ref"}
            target = {} if reference in seen else definitions.get(reference)
            return {**(written_out(target, (*seen, reference)) if isinstance(target, dict) else {}), **beside}
        return _inside(part, lambda inner: written_out(inner, seen))

    top = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    return copy.deepcopy(written_out(top, ()))


def _rewrite(schema: Any, change: Callable[[JsonSchema], JsonSchema]) -> Any:
    if not isinstance(schema, dict):
        return schema  # `true` and `false` are schemas too
    return change(_inside(schema, lambda inner: _rewrite(inner, change)))


def _inside(schema: JsonSchema, change: Callable[[Any], Any]) -> JsonSchema:
    """Return a schema whose parts have been changed."""
    changed = dict(schema)
    for key in _NAMED:
        if isinstance(schema.get(key), dict):
            changed[key] = {name: change(part) for name, part in schema[key].items()}
    for key in _SEVERAL:
        if isinstance(schema.get(key), Sequence) and not isinstance(schema[key], str):
            changed[key] = [change(part) for part in schema[key]]
    for key in _ONE:
        if isinstance(schema.get(key), dict):
            changed[key] = change(schema[key])
    return changed
