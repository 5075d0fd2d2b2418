"""Defines the type that an answer must have. Creates its JSON schema for the provider and validates the answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamtools.logs import reason_without_input

if TYPE_CHECKING:
    from pydantic import TypeAdapter  # imported on first use: the import is slow, and most streams have no type

_KINDS = {dict: "object", list: "array", str: "string", int: "number", float: "number", bool: "boolean"}
# Keywords that do not restrict the value.
_ANNOTATIONS = frozenset(("$defs", "definitions", "title", "description", "default", "examples", "$schema", "$id"))
_UNCHECKED = frozenset(("$ref", "anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "prefixItems"))


class OutputType:
    """The type of an answer: a pydantic model, a dataclass, a TypedDict, any other type, or a JSON schema.

    `schema` is the JSON schema of the type. If the type is a JSON schema, an answer becomes plain data. Its types,
    enumerations, and required and forbidden fields are then checked. For other types, pydantic validates the JSON text.
    """

    def __init__(self, kind: Any) -> None:
        """Create the type. If pydantic cannot validate `kind`, its exception is raised."""
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(kind, Mapping):
            self.schema = dict(kind)
            self.name = str(kind.get("title", "output"))
        else:
            from pydantic import TypeAdapter

            self._adapter = TypeAdapter(kind)
            self.schema = self._adapter.json_schema()
            self.name = getattr(kind, "__name__", "output")

    def validate(self, text: str) -> Any:
        """Return the validated instance from the JSON text of an answer.

        Raises ValueError for an invalid answer. The message names the fault and its path, but does not repeat the
        value, unless a custom validator does.
        """
        if self._adapter is None:
            plain = json.loads(text)
            fault = _JsonSchema(self.schema).find_fault(self.schema, plain)
            if fault is not None:
                raise ValueError(fault)
            return plain
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)[:5]
            paths = [".".join(map(str, fault["loc"])) or "the value" for fault in faults]
            lines = [f"{path}: {reason_without_input(fault)}" for path, fault in zip(paths, faults, strict=True)]
            raise ValueError("; ".join(lines)) from None


class _JsonSchema:
    """Checks a value against the simple keywords of a JSON schema.

    Of the keywords that refer to or combine schemas, only a lone `$ref`, `anyOf` or `oneOf` is checked. `oneOf` is
    checked like `anyOf`.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._followed: dict[tuple[str, str], str | None] = {}  # the result by reference and path

    def find_fault(self, schema: Any, value: Any, path: str = "") -> str | None:
        """Return a message that says why the value at `path` violates the schema. Returns None if it is valid."""
        if not isinstance(schema, Mapping):
            return None
        keywords = schema.keys() - _ANNOTATIONS
        if keywords == {"$ref"}:
            return self._follow(str(schema["$ref"]), value, path)
        if keywords in ({"anyOf"}, {"oneOf"}):
            faults = [self.find_fault(choice, value, path) for choice in schema[next(iter(keywords))]]
            return faults[0] if faults and None not in faults else None
        if keywords & _UNCHECKED:
            return None
        kind, types = _KINDS.get(type(value), "null"), schema.get("type", ())
        names = [types] if isinstance(types, str) else types
        allowed = {"number" if name == "integer" else name for name in names}
        # Only an enumeration of strings is checked. `[None]` stands for a missing one.
        words = schema.get("enum", [schema["const"]] if "const" in schema else [None])
        if (allowed and kind not in allowed) or (all(isinstance(word, str) for word in words) and value not in words):
            return f"{path or 'the value'} cannot be this {kind}"
        if isinstance(value, list):
            faults = [self.find_fault(schema.get("items"), item, f"{path}[{at}]") for at, item in enumerate(value)]
            return next(filter(None, faults), None)
        return self._find_fault_of_members(schema, value, path) if isinstance(value, dict) else None

    def _find_fault_of_members(self, schema: Mapping[str, Any], value: dict[str, Any], path: str) -> str | None:
        here, properties, rest = path or "the value", schema.get("properties", {}), schema.get("additionalProperties")
        for key, member in value.items():
            if key not in properties and rest is False:
                return f"{here} must not have the member {key!r}"
            fault = self.find_fault(properties.get(key, rest), member, f"{path}.{key}" if path else key)
            if fault is not None:
                return fault
        missing = [key for key in schema.get("required", ()) if key not in value]
        return f"{here} lacks {missing[0]!r}" if missing else None

    def _follow(self, reference: str, value: Any, path: str) -> str | None:
        key = reference, path
        if key not in self._followed:
            self._followed[key] = None  # ends the recursion of a schema that refers to itself
            target: Any = self._root
            for part in reference.removeprefix("#/").split("/"):
                target = target.get(part) if isinstance(target, Mapping) else None
            self._followed[key] = self.find_fault(target, value, path)
        return self._followed[key]
