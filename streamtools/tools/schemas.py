"""JSON schemas: completed, checked, and rewritten for those that cannot follow references.

A schema may be another's: a tool server sends it, or a client. So it is looked through once, when its tool is made, and
what nobody could read later is refused there; and what its references come to is bounded, since a few that stand in one
another are as much text as one likes. Only the places where a schema may occur are walked: a property may be called
`items`, and a default may look like a schema.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json

from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS

JsonSchema = dict[str, Any]

_ONE = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "not", "if", "then", "else"),
    *("propertyNames", "additionalProperties", "unevaluatedProperties"),
)
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")  # `items` was a list before draft 2020-12
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_NAMES = ("type", "required")  # of which a type may be one alone
_TEXTS = ("$ref", "format", "description")
_LISTS = ("enum", "examples")
_NOT_AT_THE_TOP = ("anyOf", "oneOf", "allOf", "not", "enum")  # OpenAI and Anthropic refuse them there
_ROOM = 8 * 1024
"""Characters of definitions that are written in the place of references, beside four times those of the schema."""


def complete(schema: Any) -> Any:
    """Return the schema with `items: {}` in each array that says nothing of its items: OpenAI refuses it otherwise."""
    if not isinstance(schema, dict):
        return schema  # `true` and `false` are schemas too
    kind = schema.get("type")
    is_array = kind == "array" or (isinstance(kind, list) and "array" in kind)
    return _inside(schema, complete) | ({"items": {}} if is_array and "items" not in schema else {})


def snapshot(schema: Mapping[str, Any]) -> JsonSchema:
    """Return a copy, in plain values, of a schema that a user, a client or a server wrote for a tool's parameters,
    completed.

    Raises ValueError where providers would refuse it: it is no JSON, not an object's, or has an alternative at its top;
    and where something in it is not what JSON Schema has in its place, or nests deeper than arguments may.
    """
    try:
        copied = from_json(to_json(schema))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema of the parameters cannot be written as JSON: {error}") from error
    if not fits(copied, DEFAULT_LIMITS.depth):
        raise ValueError(f"the schema of the parameters nests deeper than {DEFAULT_LIMITS.depth}")
    if copied.get("type", "object") != "object":
        raise ValueError(f"the schema of a tool's parameters is an object's, not of type {copied['type']!r}")
    if found := [key for key in _NOT_AT_THE_TOP if key in copied]:
        raise ValueError(f"the schema of the parameters has {found[0]!r} at its top, which providers refuse")
    check_keywords(copied)
    if not all(isinstance(each, dict) for each in copied.get("examples", ())):
        raise ValueError("the schema's 'examples' are a list of objects")
    completed: JsonSchema = complete({"type": "object", "properties": {}, **copied})
    return completed


def check_keywords(schema: Mapping[str, Any]) -> None:
    """Raise ValueError where a keyword holds something else than whoever reads it takes for granted."""
    for key, value in schema.items():
        parts: Iterable[Any] = ()
        right, rule = True, ""
        if key in _NAMED:
            right, rule = isinstance(value, dict), "are an object that holds a schema for each name"
            parts = value.values() if right else ()
        elif key in _ONE and not (key in _SEVERAL and isinstance(value, list)):
            parts, rule = (value,), "is a schema"
        elif key in _SEVERAL:
            right, rule = isinstance(value, list), "is a list of schemas"
            parts = value if right else ()
        elif key in _NAMES:
            right, rule = isinstance(value, list) and all(isinstance(each, str) for each in value), "is a list of names"
            right = right or (key == "type" and isinstance(value, str))
        elif key in _TEXTS:
            right, rule = isinstance(value, str), "is a text"
        elif key in _LISTS:
            right, rule = isinstance(value, list), "is a list"
        if not right or not all(isinstance(part, dict | bool) for part in parts):
            raise ValueError(f"the schema's {key!r} {rule}")
        for part in parts:
            if isinstance(part, dict):
                check_keywords(part)


def inline(schema: JsonSchema) -> JsonSchema:
    """Return the schema without `$ref`, for those that cannot follow one.

    What refers to itself ends as `{}`, and so does what nests deeper than arguments may, and what is behind as much as
    a schema of this length has room for: definitions that refer twice to the next are twice as long with each.
    """
    definitions = {
        f"#/{key}/{name}": part for key in ("$defs", "definitions") for name, part in schema.get(key, {}).items()
    }
    lengths: dict[str, int] = {}
    room = _ROOM + 4 * len(to_json(schema))

    def follow(reference: str, seen: tuple[str, ...], depth: int) -> Any:
        nonlocal room
        target = definitions.get(reference)
        if not isinstance(target, dict) or reference in seen:
            return {}
        if reference not in lengths:
            lengths[reference] = len(to_json(target))
        room -= lengths[reference]
        return written_out(target, (*seen, reference), depth) if room >= 0 else {}

    def written_out(part: Any, seen: tuple[str, ...], depth: int) -> Any:
        if not isinstance(part, dict):
            return part
        if depth > DEFAULT_LIMITS.depth:
            return {}
        reference = part.get("$ref")
        if isinstance(reference, str):
            beside = {key: value for key, value in part.items() if key != "$ref"}
            return {**follow(reference, seen, depth + 1), **beside}
        return _inside(part, lambda inner: written_out(inner, seen, depth + 1))

    top = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    return copy.deepcopy(written_out(top, (), 0))


def _inside(schema: JsonSchema, change: Callable[[Any], Any]) -> JsonSchema:
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
