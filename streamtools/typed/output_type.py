"""Defines the type that an answer must have. Creates its JSON schema for the provider and validates the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtools.logs import validation_errors

if TYPE_CHECKING:
    from pydantic import TypeAdapter  # imported on first use: the import is slow, and most streams have no type

_MAX_ERRORS = 100  # the maximum number of errors that a message names
_KINDS = {dict: "object", list: "array", str: "string", int: "number", float: "number", bool: "boolean"}
# Keywords that do not restrict the value.
_ANNOTATIONS = frozenset(("$defs", "definitions", "title", "description", "default", "examples", "$schema", "$id"))
_UNCHECKED = frozenset(("$ref", "anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "prefixItems"))


class InvalidValue(ValueError):
    """The value does not have the required type. `errors` names each error and its path."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors = [*errors]
        more = len(self.errors) - _MAX_ERRORS
        super().__init__("; ".join(self.errors[:_MAX_ERRORS]) + (f"; and {more} more errors" if more > 0 else ""))


@dataclass(frozen=True, slots=True)
class InvalidItem:
    """An item of a typed answer that is not valid. `ToolStream.items` yields it with `invalid="yield"`."""

    path: list[str | int]
    """The path of the item in the answer, such as `["rows", 2]`. It is `[]` for an answer that another one replaces."""
    value: Any
    """The item as plain data."""
    errors: list[str]
    """The errors. Each error begins with its path in the item: `"n: Input should be a valid integer"`."""


class OutputType:
    """The type of an answer: a pydantic model, a dataclass, a TypedDict, any other type, or a JSON schema.

    `schema` is the JSON schema of the type. If the type is a JSON schema, an answer becomes plain data. The answer is
    checked only for types, for enumerations of strings, and for required and forbidden fields. For other types,
    pydantic validates the JSON text.
    """

    def __init__(self, kind: Any) -> None:
        """Create the type. Raises TypeError if pydantic cannot validate `kind`."""
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(kind, Mapping):
            self.schema = dict(kind)
            self.name = str(kind.get("title", "output"))
        else:
            from pydantic import PydanticUserError, TypeAdapter

            try:
                self._adapter = TypeAdapter(kind)
                self.schema = self._adapter.json_schema()
            except (PydanticUserError, NameError) as error:
                advice = f"; write {kind} without quotes" if isinstance(kind, str) else ""
                raise TypeError(f"output must be a type for pydantic or a JSON schema, got {kind!r}{advice}") from error
            self.name = getattr(kind, "__name__", "output")

    def validate(self, text: str) -> Any:
        """Return the validated instance from the JSON text of an answer.

        Raises `InvalidValue` for an invalid answer. Its message does not repeat the value, unless a custom validator
        does. If the type is a JSON schema, raises `json.JSONDecodeError` for a text that is not JSON.
        """
        if self._adapter is None:
            plain = json.loads(text)
            if errors := [*_SchemaCheck(self.schema).find_errors(self.schema, plain)]:
                raise InvalidValue(errors)
            return plain
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            lines = (f"{path or 'the value'}: {message}" for path, _, message in validation_errors(error))
            raise InvalidValue(lines) from None


class _SchemaCheck:
    """Checks a value against the simple keywords of a JSON schema.

    The keywords in `_UNCHECKED` refer to other schemas, combine them, or apply them to parts of a value. Of these
    keywords, only `$ref`, `anyOf` and `oneOf` are checked, and only if the schema has no other keyword that restricts
    the value. `oneOf` is checked like `anyOf`. All other schemas with a keyword in `_UNCHECKED` are not checked.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._followed: dict[tuple[str, str], list[str]] = {}  # the errors by reference and path

    def find_errors(self, schema: Any, value: Any, path: str = "") -> Iterator[str]:
        """Yield a message for each violation of the schema by the value at `path`.

        If no choice of an `anyOf` or `oneOf` allows the value, yields the errors of the choice with the fewest errors.
        """
        if not isinstance(schema, Mapping):
            return
        keywords = schema.keys() - _ANNOTATIONS
        if keywords == {"$ref"}:
            yield from self._follow(str(schema["$ref"]), value, path)
            return
        if keywords in ({"anyOf"}, {"oneOf"}):
            choices = ([*self.find_errors(choice, value, path)] for choice in schema[next(iter(keywords))])
            yield from min(choices, key=len, default=())
            return
        if keywords & _UNCHECKED:
            return
        kind, types = _KINDS.get(type(value), "null"), schema.get("type", ())
        names = [types] if isinstance(types, str) else types
        whole = type(value) is not float or value.is_integer()
        allowed = {"number" if name == "integer" and whole else name for name in names}
        # Only an enumeration of strings is checked. `[None]` means that there is no enumeration.
        words = schema.get("enum", [schema["const"]] if "const" in schema else [None])
        place = path or "the value"
        if (allowed and kind not in allowed) or (all(isinstance(word, str) for word in words) and value not in words):
            yield f"{place} cannot be this {kind}"
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self.find_errors(schema.get("items"), item, f"{path}[{index}]")
        elif isinstance(value, dict):
            properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
            for key, member in value.items():
                if key not in properties and rest is False:
                    yield f"{place} must not have the member {key!r}"
                yield from self.find_errors(properties.get(key, rest), member, f"{path}.{key}" if path else key)
            yield from (f"{place} lacks {key!r}" for key in schema.get("required", ()) if key not in value)

    def _follow(self, reference: str, value: Any, path: str) -> list[str]:
        key = reference, path
        if key not in self._followed:
            self._followed[key] = []  # ends the recursion of a schema that refers to itself
            target: Any = self._root
            for part in reference.removeprefix("#/").split("/"):
                target = target.get(part) if isinstance(target, Mapping) else None
            self._followed[key] = [*self.find_errors(target, value, path)]
        return self._followed[key]
