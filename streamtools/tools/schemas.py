"""Completes, checks, inlines and converts the JSON schemas of tool parameters.

A schema may come from a client or a tool server, so it is not trusted. It is checked once, when its tool is defined.
Inlining replaces each `$ref` by its definition, or by `{}` if it cannot be inlined. The inlined schema has a size
limit, because nested references could make it grow exponentially. The functions visit only positions at which JSON
Schema allows a schema, because a property may have the name `items`, and a default value may look like a schema.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

import msgspec
from pydantic_core import from_json, to_json

from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS

JsonSchema = dict[str, Any]

_SCHEMA_KEYS = (
    "items", "additionalItems", "unevaluatedItems", "contains", "not", "if", "then", "else", "propertyNames",
    "additionalProperties", "unevaluatedProperties",
)  # fmt: skip
_SCHEMA_LIST_KEYS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")  # `items` could be a list before 2020-12
_SCHEMA_MAP_KEYS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
REFUSED_AT_THE_TOP = ("anyOf", "oneOf", "allOf", "not", "enum")
"""The keywords that OpenAI and Anthropic refuse at the top of a tool's schema."""
_SCHEMA = "bool | _Keywords"
_Keywords: Any = TypedDict(
    "_Keywords",
    {
        **dict.fromkeys(_SCHEMA_MAP_KEYS, f"dict[str, {_SCHEMA}]"),  # type: ignore[misc]  # mypy expects literals
        **dict.fromkeys(_SCHEMA_LIST_KEYS, f"list[{_SCHEMA}]"),
        **dict.fromkeys(_SCHEMA_KEYS, _SCHEMA),
        **dict.fromkeys(("enum", "examples"), list),
        **dict.fromkeys(("$ref", "$schema", "format", "title", "description"), str),
        "items": f"{_SCHEMA} | list[{_SCHEMA}]",
        "required": list[str],
        "type": "str | list[str]",
    },
    total=False,
)
"""The types of the values of keywords. Other keywords may have any value."""

_INLINED_LENGTH = 8 * 1024
"""The size limit of inlined definitions, in bytes. Four times the length of the schema is added to this limit."""


def complete(schema: Any) -> Any:
    """Return the schema with `items: {}` added to each array without `items`, because OpenAI requires `items`."""
    if not isinstance(schema, dict):
        return schema  # `true` and `false` are also schemas
    kind = schema.get("type")
    is_array = kind == "array" or (isinstance(kind, list) and "array" in kind)
    return _map_subschemas(schema, complete) | ({"items": {}} if is_array and "items" not in schema else {})


def snapshot(schema: Mapping[str, Any]) -> JsonSchema:
    """Check a schema for the parameters of a tool. Return a copy with the missing keywords.

    Raises ValueError for a schema that providers refuse: it cannot be written as JSON, does not describe an object, or
    has a keyword such as `anyOf` at the top. Also raises ValueError if a keyword has an invalid value, or if the schema
    nests deeper than the limit for arguments.
    """
    try:
        copied = from_json(to_json(schema))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema of the parameters cannot be written as JSON: {error}") from error
    if not fits(copied, DEFAULT_LIMITS.depth):
        raise ValueError(f"the schema of the parameters nests deeper than {DEFAULT_LIMITS.depth}")
    if copied.get("type", "object") != "object":
        raise ValueError(f"the schema of the parameters must have the type 'object', got {copied['type']!r}")
    if found := [key for key in REFUSED_AT_THE_TOP if key in copied]:
        raise ValueError(f"the schema of the parameters has {found[0]!r} at the top, which providers refuse; nest it")
    check_keywords(copied)
    if not all(isinstance(example, dict) for example in copied.get("examples", ())):
        raise ValueError("the 'examples' of the schema must be a list of objects")
    completed: JsonSchema = complete({"type": "object", "properties": {}, **copied})
    return completed


def check_keywords(schema: Mapping[str, Any]) -> None:
    """Raise ValueError if a keyword has a value of the wrong type.

    Also raises ValueError if the schema has keys, but none of the keywords that this module knows.
    """
    if schema and not schema.keys() & {"const", "default", *_Keywords.__annotations__}:
        example = '{"type": "object", "properties": {...}}'
        raise ValueError(f"the JSON schema has no keyword, only {', '.join(map(repr, schema))}; write {example}")
    try:
        msgspec.convert(schema, _Keywords)
    except msgspec.ValidationError as error:
        raise ValueError(f"the JSON schema has an invalid value: {error}") from None


def inline(schema: JsonSchema) -> JsonSchema:
    """Return the schema without `$ref`, for providers that do not resolve references.

    A reference becomes `{}` if it is recursive, or if its target is not an object in the definitions at the top. It
    also becomes `{}` if the inlined definitions exceed their size limit. A part that nests deeper than the limit for
    arguments becomes `{}` too.
    """
    definitions = {
        f"#/{key}/{name}": part for key in ("$defs", "definitions") for name, part in schema.get(key, {}).items()
    }
    lengths: dict[str, int] = {}
    remaining = _INLINED_LENGTH + 4 * len(to_json(schema))

    def follow(reference: str, seen: tuple[str, ...], depth: int) -> Any:
        nonlocal remaining
        target = definitions.get(reference)
        if not isinstance(target, dict) or reference in seen:
            return {}
        if reference not in lengths:
            lengths[reference] = len(to_json(target))
        remaining -= lengths[reference]
        return resolve(target, (*seen, reference), depth) if remaining >= 0 else {}

    def resolve(part: Any, seen: tuple[str, ...], depth: int) -> Any:
        if not isinstance(part, dict):
            return part
        if depth > DEFAULT_LIMITS.depth:
            return {}
        reference = part.get("$ref")
        other_keywords = {key: value for key, value in part.items() if key != "$ref"}
        resolved = _map_subschemas(other_keywords, lambda inner: resolve(inner, seen, depth + 1))
        return {**follow(reference, seen, depth + 1), **resolved} if isinstance(reference, str) else resolved

    top = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    return copy.deepcopy(resolve(top, (), 0))


def _map_subschemas(schema: JsonSchema, change: Callable[[Any], Any]) -> JsonSchema:
    changed = dict(schema)
    for key in _SCHEMA_MAP_KEYS:
        if isinstance(schema.get(key), dict):
            changed[key] = {name: change(part) for name, part in schema[key].items()}
    for key in _SCHEMA_LIST_KEYS:
        if isinstance(schema.get(key), Sequence) and not isinstance(schema[key], str):
            changed[key] = [change(part) for part in schema[key]]
    for key in _SCHEMA_KEYS:
        if isinstance(schema.get(key), dict):
            changed[key] = change(schema[key])
    return changed


# Latitude's chat front end describes the parameters of its tools (`toolClients`) with a list instead of an object
# schema. Each parameter in the list has a separate schema. In such a schema, references to other schemas do not work,
# so they are inlined.


def schema_of_parameters(parameters: Iterable[Mapping[str, Any]]) -> JsonSchema:
    """Return the JSON schema of a parameter list. Raises ValueError for a parameter without a unique name.

    >>> schema_of_parameters([{"name": "city", "type": "string", "description": "Where.", "isRequired": True}])
    {'type': 'object', 'properties': {'city': {'type': 'string', 'description': 'Where.'}}, 'required': ['city']}
    """
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in parameters:
        name = parameter.get("name") if isinstance(parameter, Mapping) else None
        if not isinstance(name, str) or not name or name in properties:
            raise ValueError(f"each parameter must have a unique name, got {parameter!r}")
        schema = {key: value for key, value in (parameter.get("schema") or {}).items() if key != "$schema"}
        if "type" not in schema and parameter.get("type"):
            schema = {"type": parameter["type"], **schema}
        if parameter.get("description"):
            schema["description"] = parameter["description"]
        properties[name] = schema
        if parameter.get("isRequired"):
            required.append(name)
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def parameters_of_schema(schema: JsonSchema) -> list[dict[str, Any]]:
    """Return the parameter list of an object schema, in order. Parameters with several types get the type `object`."""
    inlined = inline(schema)
    required = set(inlined.get("required", ()))
    parameters = []
    for name, property_ in inlined["properties"].items():
        part: JsonSchema = property_ if isinstance(property_, dict) else {}
        about = {"name": name, "type": single_type(part), "description": part.get("description", "")}
        parameters.append(about | {"isRequired": name in required, "schema": {"type": single_type(part), **part}})
    return parameters


def single_type(schema: JsonSchema) -> str:
    """Return the type of a schema, or `object` if it has several types or none. The type `null` is ignored.

    The types come from `type`, `anyOf`, or an `enum` or `const` of strings.
    """
    types = _types(schema) - {"null"}
    return types.pop() if len(types) == 1 else "object"


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return {"object"}
    kind = schema.get("type")
    if isinstance(kind, str | list):
        return {kind} if isinstance(kind, str) else set(kind)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values and all(isinstance(value, str) for value in values):
        return {"string"}
    return {type_ for part in schema.get("anyOf", ()) for type_ in _types(part)} or {"object"}
