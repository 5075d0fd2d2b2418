"""Tools as the seed's chat front end lists them: a name, a description, and a list of parameters, each with a schema.

The list says the same as a JSON schema of an object, and is read and written as one. A parameter's schema stands alone
there, so that references into the whole are written out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streamtools.tools.schemas import JsonSchema, inline


def schema_of_parameters(parameters: Iterable[Mapping[str, Any]]) -> JsonSchema:
    """Return the JSON schema of the object that has these parameters. Raises ValueError for one without a name.

    >>> schema_of_parameters([{"name": "city", "type": "string", "description": "Where.", "isRequired": True}])
    {'type': 'object', 'properties': {'city': {'type': 'string', 'description': 'Where.'}}, 'required': ['city']}
    """
    properties: dict[str, Any] = {}
    required: list[str] = []
    for each in parameters:
        name = each.get("name") if isinstance(each, Mapping) else None
        if not isinstance(name, str) or not name or name in properties:
            raise ValueError(f"each parameter has a name of its own, and this one has not: {each!r}")
        schema = {key: value for key, value in (each.get("schema") or {}).items() if key != "$schema"}
        if "type" not in schema and each.get("type"):
            schema = {"type": each["type"], **schema}
        if each.get("description"):
            schema["description"] = each["description"]
        properties[name] = schema
        if each.get("isRequired"):
            required.append(name)
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def parameters_of_schema(schema: JsonSchema) -> list[dict[str, Any]]:
    """Return the parameter list of an object's schema, in its order; a type that is not one word is `object`."""
    whole = inline(schema)
    required = whole.get("required", ())
    return [
        {
            "name": name,
            "type": type_of(part),
            "description": part.get("description", ""),
            "isRequired": name in required,
            "schema": {"type": type_of(part), **part},
        }
        for name, part in ((name, part if isinstance(part, dict) else {}) for name, part in whole["properties"].items())
    ]


def type_of(schema: JsonSchema) -> str:
    """Return the one type that a schema allows beside null, or `object` if it does not say or allows several."""
    told = _types(schema) - {"null"}
    return told.pop() if len(told) == 1 else "object"


def _types(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return {"object"}
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return set(kind)
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values and all(isinstance(each, str) for each in values):
        return {"string"}
    return {each for part in schema.get("anyOf", ()) for each in _types(part)} or {"object"}
