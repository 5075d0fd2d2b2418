"""The declared tools: their names, and the types of their parameters.

Some dialects write all values as plain text, so only the tool's JSON schema says whether `1` is a number. Others write
calls without a marker, so only the name of a declared tool distinguishes a call from a JSON answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from streamtools.json_values import compact

Types = frozenset[str]
"""The names of the JSON types that a schema allows. Empty if the schema does not restrict the type."""

Signatures: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""The name of each tool, with the names of its parameters."""

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_DEPTH = 16  # references and alternatives are followed to this depth, because a schema may refer to itself
_TYPE_OF_CLASS: Final = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", type(None): "null",
}  # fmt: skip
# An object without `arguments` that has one of these fields is the definition of a tool, not a call.
_DEFINITION: Final = {"description", "input_schema", "inputSchema", "parametersJsonSchema"}
# A schema may name Python types, such as `str`.
_TYPE_OF_NAME = {kind.__name__: name for kind, name in _TYPE_OF_CLASS.items()}


class Schema:
    """The JSON schema of a tool's arguments, or of one value in them. It knows the types that a value may have."""

    def __init__(self, schema: object, root: object = None, given: Mapping[str, str] = _NOTHING) -> None:
        """`given` has the JSON of each member that was read, by name.

        Alternatives that do not allow these members are excluded.
        """
        self._schema, self._given = schema, given
        self._root = schema if root is None else root
        self._schemas = list(_alternatives(schema, self._root, _DEPTH, given))

    def narrowed(self, name: str, text: str) -> Schema:
        """Return the schema with only the alternatives that allow the JSON `text` for the property `name`."""
        return Schema(self._schema, self._root, {**self._given, name: text})

    @cached_property
    def types(self) -> Types:
        """The JSON types that the schema allows. Empty if the schema does not restrict the type."""
        return frozenset(kind for schema in self._schemas for kind in _types(schema))

    @cached_property
    def strings(self) -> frozenset[str]:
        """The strings in `enum` and `const` of the schema."""
        return frozenset(value for each in self._schemas for value in _constants(each) if isinstance(value, str))

    @cached_property
    def has_alternatives(self) -> bool:
        """Whether more than one schema has properties. The schema, its references and its alternatives are counted."""
        return sum("properties" in schema for schema in self._schemas) > 1

    @cached_property
    def properties(self) -> dict[str, Schema]:
        """The schemas of the named properties, by name."""
        found: dict[str, list[object]] = {}
        for schema in self._schemas:
            for name, child in _mapping(schema.get("properties")).items():
                found.setdefault(str(name), []).append(child)
        return {
            name: Schema(children[0] if len(children) == 1 else {"anyOf": children}, self._root)
            for name, children in found.items()
        }

    @cached_property
    def others(self) -> Schema:
        """The schema of all properties that are not in `properties`."""
        return self._child("additionalProperties")

    @cached_property
    def items(self) -> Schema:
        """The schema of the elements of an array."""
        return self._child("items")

    def property(self, name: str) -> Schema:
        """Return the schema of the property `name`."""
        return self.properties.get(name) or self.others

    def _child(self, key: str) -> Schema:
        found = [schema.get(key) for schema in self._schemas]
        return Schema({"anyOf": [child for child in found if isinstance(child, Mapping)]}, self._root)


class Declared:
    """The declared tools."""

    def __init__(self, tools: object = None) -> None:
        """`tools` is a tool, a provider's definition as a dict, or an iterable of these.

        A tool is an object with `name` and `parameters`. In an iterable, a definition without a name is ignored,
        because the provider itself runs that tool. Raises TypeError for a value that declares no tool, such as a plain
        function.
        """
        self._schemas = dict(_declarations(tools))
        self.names = tuple(self._schemas)

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def signatures(self, *, parameters: bool) -> Signatures:
        """Return the name of each tool and, with `parameters=True`, the names of its parameters."""
        return tuple((name, tuple(self.arguments(name).properties) if parameters else ()) for name in self.names)

    def arguments(self, name: str) -> Schema:
        """Return the schema of a tool's arguments. The schema of an unknown tool allows everything."""
        schema = self._schemas.get(name, UNKNOWN)
        if not isinstance(schema, Schema):
            self._schemas[name] = schema = Schema(schema)
        return schema

    def defines(self, name: str, arguments: Mapping[str, Any], envelope: Any) -> bool:
        """Return whether a call only repeats the definition of a tool.

        The `arguments` of such a call are a JSON schema, or they are missing. `envelope` is the JSON value that holds
        the name and the arguments. Some tools have a parameter `properties`, or take any object. For them, a schema is
        a definition only if its properties are exactly the parameters of the tool.
        """
        if not arguments:
            inner = _mapping(_mapping(envelope).get("function", envelope))
            return "arguments" not in inner and not _DEFINITION.isdisjoint(inner)
        known, properties = self.arguments(name).properties, arguments.get("properties")
        takes_schema = "properties" in known or (name in self and not known)
        kind = arguments.get("type", "object" if known else None)
        is_schema = isinstance(properties, Mapping) and str(kind).lower() == "object"
        return is_schema and (not takes_schema or known.keys() == _mapping(properties).keys())


def _declarations(tools: object) -> Iterator[tuple[str, object]]:
    if tools is None:
        return
    if isinstance(tools, Mapping):
        found = tuple(_defined(tools))
        if tools and not found:
            raise _misuse(tools)
        yield from found
    elif isinstance(name := getattr(tools, "name", None), str):
        yield name, getattr(tools, "parameters", None)
    elif isinstance(tools, Iterable) and not isinstance(tools, str | bytes | bytearray):
        item: object
        for item in tools:
            yield from _defined(item) if isinstance(item, Mapping) else _declarations(item)
    else:
        raise _misuse(tools)


def _defined(definition: Mapping[Any, Any]) -> Iterator[tuple[str, object]]:
    """Yield the name and the schema of each tool in a provider's definition.

    A definition holds one tool, or several tools in Gemini's form. A definition without a name yields nothing.
    """
    inner = definition.get("function") or definition.get("toolSpec")  # `toolSpec` is Bedrock's form
    declaration = inner if isinstance(inner, Mapping) else definition
    declarations = declaration.get("functionDeclarations") or declaration.get("function_declarations")
    if declarations is not None:
        yield from _declarations(declarations)
        return
    if any(map(callable, definition.values())):
        raise _misuse(definition)
    schemas = [declaration.get(key) for key in ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")]
    if isinstance(name := declaration.get("name"), str) and name:
        schema = next((schema for schema in schemas if schema is not None), None)
        yield name, schema["json"] if isinstance(schema, Mapping) and [*schema] == ["json"] else schema


def _misuse(value: object) -> TypeError:
    return TypeError(f"{value!r} declares no tool; for a function, write `@tool` above it, or pass `tool(function)`")


def _alternatives(
    schema: object, root: object, depth: int, given: Mapping[str, str] = _NOTHING
) -> Iterator[Mapping[str, Any]]:
    """Yield `schema`, the schema that its `$ref` names, and the schemas in its `anyOf`, `oneOf` and `allOf`.

    Alternatives that do not allow the members `given` are left out.
    """
    if not isinstance(schema, Mapping) or depth == 0:
        return
    yield schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = _mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
        yield from _alternatives(target, root, depth - 1, given)
    for key in ("anyOf", "oneOf", "allOf"):
        several = schema.get(key)
        for alternative in several if isinstance(several, list | tuple) else ():
            inner = [*_alternatives(alternative, root, depth - 1, given)]
            if key == "allOf" or not given or all(_allows(each, given) for each in inner):
                yield from inner


def _allows(schema: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    """Return whether `schema` allows the members `given`. Only `enum` and `const` of its properties are checked."""
    properties = _mapping(schema.get("properties"))
    listed = {name: _constants(_mapping(properties.get(name))) for name in given}
    return all(not values or given[name] in map(compact, values) for name, values in listed.items())


def _constants(schema: Mapping[str, Any]) -> list[object]:
    """Return the values that the schema lists, or [] if it lists none."""
    several = schema.get("enum")
    return [*(several if isinstance(several, list | tuple) else ()), *([schema["const"]] if "const" in schema else ())]


def _types(schema: Mapping[str, Any]) -> Iterator[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        yield _kind(kind)
    elif isinstance(kind, list | tuple):
        yield from (_kind(name) for name in kind if isinstance(name, str))
    elif "properties" in schema:
        yield "object"
    elif "items" in schema:
        yield "array"
    if schema.get("nullable") is True:
        yield "null"
    for value in _constants(schema) if kind is None else ():
        if type(value) in _TYPE_OF_CLASS:
            yield _TYPE_OF_CLASS[type(value)]


def _kind(name: str) -> str:
    name = name.lower()  # Gemini's schemas have types in capital letters
    return _TYPE_OF_NAME.get(name, name)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


UNKNOWN: Final = Schema({})
"""An empty schema, which allows every value."""
