"""The type of an answer, and what the JSON of a value of it can be: which kinds of tokens, words and keys.

A value is refused early only for what its whole validation refuses in any case. So whatever code of the user's may
change (validators before the type, discriminators, values of enumerations that a class finds itself) counts as
anything, and so does what pydantic reads from several kinds of JSON. Types are read from pydantic's core schema, which
says of each in which order it is read; its JSON schema says less: that "3" is read as an integer, say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter


OBJECT, ARRAY, STRING, NUMBER, BOOLEAN, NULL = "object", "array", "string", "number", "boolean", "null"
_SCALARS = frozenset((STRING, NUMBER, BOOLEAN))

_KINDS: dict[type, str] = {dict: OBJECT, list: ARRAY, str: STRING, int: NUMBER, float: NUMBER, bool: BOOLEAN}

Core = Mapping[str, Any]
"""A schema of pydantic's core, or a JSON schema."""


@dataclass(eq=False)
class Shape:
    """What is certain of a value. None, of any member, is: not certain."""

    kinds: frozenset[str] | None = None
    words: tuple[str, ...] | None = None
    """What a string can be."""
    members: Callable[[str], Shape | None] | None = field(default=None, repr=False)
    """Returns the shape of the member of an object, or None if there can be no such member."""
    items_of: Callable[[], Shape] | None = field(default=None, repr=False)
    required: tuple[str, ...] = ()
    """Members that an object needs at its end; known of JSON schemas alone."""

    def member(self, key: str) -> Shape | None:
        """Return the shape of a member of an object, or None if there can be none of this name."""
        return ANYTHING if self.members is None else self.members(key)

    @cached_property
    def item(self) -> Shape:
        """The shape of the items of an array."""
        return ANYTHING if self.items_of is None else self.items_of()

    def check(self, value: Any, path: str = "") -> None:
        """Raise ValueError where a plain value is not of this shape."""
        here = path or "the value"
        kind = kind_of(value)
        if not self.allows(kind) or (kind == STRING and not self.may_become(value, whole=True)):
            raise ValueError(f"{here} cannot be this {kind}")
        if kind == ARRAY:
            for at, each in enumerate(value):
                self.item.check(each, f"{path}[{at}]")
        elif kind == OBJECT:
            for key, each in value.items():
                if (shape := self.member(key)) is None:
                    raise ValueError(f"{here} has no member {key!r}")
                shape.check(each, f"{path}.{key}" if path else key)
            if missing := [key for key in self.required if key not in value]:
                raise ValueError(f"{here} lacks {missing[0]!r}")

    def allows(self, kind: str) -> bool:
        """Return whether a value may be of a kind of JSON."""
        return self.kinds is None or kind in self.kinds

    def may_become(self, beginning: str, *, whole: bool) -> bool:
        """Return whether a string that begins so, or is so, is allowed."""
        if self.words is None:
            return True
        return beginning in self.words if whole else any(word.startswith(beginning) for word in self.words)


ANYTHING = Shape()

_PLAIN = {
    **dict.fromkeys(("int", "float", "bool"), Shape(_SCALARS)),
    "none": Shape(frozenset((NULL,))),
    "tuple": Shape(frozenset((ARRAY,))),
}
"""What is of a shape by its type alone."""
_INSIDE = {"function-after": "schema", "json-or-python": "json_schema", "lax-or-strict": "lax_schema"}
"""Wrappers, and where each has the schema that counts."""


class CoreShapes:
    """Shapes of the schemas that pydantic's core reads; references are followed where they are met."""

    def __init__(self, whole: Core) -> None:
        self._referred: dict[str, Core] = {}
        self._of_str = frozenset((STRING, NUMBER)) if "coerce_numbers_to_str" in repr(whole) else frozenset((STRING,))

    def of(self, schema: Core) -> Shape:
        """Return the shape of a schema."""
        kind = str(schema.get("type"))
        if kind in _INSIDE:
            return self.of(schema[_INSIDE[kind]])
        read = getattr(self, "_" + kind.replace("-", "_"), None)
        shape = _PLAIN.get(kind, ANYTHING) if read is None else read(schema)
        assert isinstance(shape, Shape)
        return shape

    # Wrappers.

    def _definitions(self, schema: Core) -> Shape:
        self._referred |= {each["ref"]: each for each in schema["definitions"]}
        return self.of(schema["schema"])

    def _definition_ref(self, schema: Core) -> Shape:
        target = self._referred.get(schema["schema_ref"])
        return ANYTHING if target is None else self.of(target)

    def _default(self, schema: Core) -> Shape:
        return self.of(schema["schema"]) if schema.get("on_error", "raise") == "raise" else ANYTHING

    def _nullable(self, schema: Core) -> Shape:
        return _either([_PLAIN["none"], self.of(schema["schema"])])

    def _union(self, schema: Core) -> Shape:
        return _either([self.of(each[0] if isinstance(each, tuple) else each) for each in schema["choices"]])

    # Scalars. What is a subclass of a string in Python may be read otherwise.

    def _str(self, schema: Core) -> Shape:
        return Shape(self._of_str)

    def _literal(self, schema: Core) -> Shape:
        return _words(schema["expected"])

    def _enum(self, schema: Core) -> Shape:
        if getattr(schema["cls"]._missing_, "__func__", None) is not Enum._missing_.__func__:  # type: ignore[attr-defined]
            return ANYTHING  # the class finds values itself
        return _words([member.value for member in schema["members"]])

    # Containers.

    def _list(self, schema: Core) -> Shape:
        items = schema.get("items_schema")
        return Shape(frozenset((ARRAY,)), items_of=None if items is None else lambda: self.of(items))

    _set = _frozenset = _list

    def _dict(self, schema: Core) -> Shape:
        values = cache(lambda: self.of(schema["values_schema"]))
        return Shape(frozenset((OBJECT,)), members=(lambda key: values()) if "values_schema" in schema else None)

    def _model(self, schema: Core) -> Shape:
        if schema.get("root_model") or schema.get("custom_init"):
            return ANYTHING if schema.get("custom_init") else self.of(schema["schema"])
        return self._fields(schema["schema"], schema.get("config") or {})

    _dataclass = _model

    def _typed_dict(self, schema: Core) -> Shape:
        return self._fields(schema, schema.get("config") or {})

    def _fields(self, schema: Core, config: Core) -> Shape:
        """Return the shape of an object with fields; a validator behind them changes nothing of that."""
        while schema.get("type") == "function-after":
            schema = schema["schema"]
        if schema.get("type") not in ("model-fields", "dataclass-args", "typed-dict"):
            return ANYTHING
        given = schema["fields"]
        named = [(each["name"], each) for each in given] if isinstance(given, list) else list(given.items())
        forbids = (schema.get("extra_behavior") or config.get("extra_fields_behavior")) == "forbid"
        by_name = bool(config.get("populate_by_name") or config.get("validate_by_name"))
        fields: dict[str, list[Core | None]] = {}
        for name, each in named:
            alias = each.get("validation_alias")
            # Which of several keys counts, and what a path leads to, is not certain; nor is a name that has an alias.
            sure = not isinstance(alias, list) and not (alias and by_name)
            for key in {name, *_first_keys(alias)}:
                fields.setdefault(key, []).append(each if sure and key == (alias or name) else None)
        shapes: dict[str, Shape] = {}

        def member(key: str) -> Shape | None:
            found = fields.get(key)
            if found is None:
                return None if forbids else ANYTHING
            if key not in shapes:
                one = found[0]
                shapes[key] = ANYTHING if len(found) > 1 or one is None else self.of(one["schema"])
            return shapes[key]

        return Shape(frozenset((OBJECT,)), members=member)


def _first_keys(alias: Any) -> Iterable[str]:
    """Return the keys behind which a field with an alias may be found."""
    if not isinstance(alias, list):
        return (alias,) if alias else ()
    return (str(path[0]) for path in (alias if alias and isinstance(alias[0], list) else [alias]) if path)


def _words(values: Iterable[Any]) -> Shape:
    words = list(values)
    if all(type(word) is str for word in words):
        return Shape(frozenset((STRING,)), words=tuple(words))
    plain = all(isinstance(word, str | int | float) and not isinstance(word, Enum) for word in words)
    return Shape(_SCALARS) if plain else ANYTHING


def _either(shapes: list[Shape]) -> Shape:
    """Return what is certain of a value that has one of these shapes."""
    if any(shape.kinds is None for shape in shapes):
        return ANYTHING
    kinds = frozenset().union(*(shape.kinds or () for shape in shapes))
    of_strings = [shape.words for shape in shapes if shape.allows(STRING)]
    words = None
    if of_strings and all(each is not None for each in of_strings):
        words = tuple(dict.fromkeys(word for each in of_strings for word in each or ()))
    objects = [shape for shape in shapes if shape.allows(OBJECT)]
    arrays = [shape for shape in shapes if shape.allows(ARRAY)]
    return Shape(
        kinds,
        words,
        objects[0].members if len(objects) == 1 else None,
        (lambda: arrays[0].item) if len(arrays) == 1 else None,
    )


_NOTES = frozenset(("$defs", "definitions", "title", "description", "default", "examples", "$schema", "$id"))


def json_schema_shape(schema: Any, root: Core | None = None, known: dict[str, Shape] | None = None) -> Shape:
    """Return the shape of a JSON schema, in which each reference is followed once, also where many lead to others."""
    root, known = schema if root is None else root, {} if known is None else known
    if not isinstance(schema, Mapping):
        return ANYTHING
    said = schema.keys() - _NOTES
    if said == {"$ref"}:
        target: Any = root
        name = str(schema["$ref"])
        for part in name.removeprefix("#/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        if name not in known:
            known[name] = ANYTHING  # within itself
            if isinstance(target, Mapping) and "$ref" not in target:
                known[name] = json_schema_shape(target, root, known)
        return known[name]
    if said in ({"anyOf"}, {"oneOf"}):
        return _either([json_schema_shape(each, root, known) for each in schema[next(iter(said))]])
    if said & {"$ref", "anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "prefixItems"}:
        return ANYTHING
    named = schema.get("type")
    kinds = None if named is None else frozenset([named] if isinstance(named, str) else named)
    if kinds is not None and "integer" in kinds:
        kinds = kinds - {"integer"} | {NUMBER}
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    words = tuple(values) if values is not None and all(isinstance(value, str) for value in values) else None
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)

    def member(key: str) -> Shape | None:
        if key in properties:
            return json_schema_shape(properties[key], root, known)
        return None if rest is False else json_schema_shape(rest, root, known)

    items = schema.get("items")
    return Shape(
        frozenset((STRING,)) if words is not None else kinds,
        words,
        member,
        (lambda: json_schema_shape(items, root, known)) if isinstance(items, Mapping) else None,
        tuple(schema.get("required", ())),
    )


def kind_of(value: Any) -> str:
    """Return which kind of JSON a plain value is."""
    return _KINDS.get(type(value), NULL)


class OutputType:
    """What an answer has to be: a pydantic model, a dataclass, a TypedDict, any other type, or a JSON schema.

    `schema` is its JSON schema for the provider, and `shape` is for the reader. Validation is pydantic's, of the JSON
    as it was written. A JSON schema that is given in place of a type is held against the answer as far as its `Shape`
    goes (types, enumerations, required and forbidden members), and gives plain data.
    """

    def __init__(self, kind: Any) -> None:
        """Raises what pydantic raises for a type that it cannot validate."""
        self._adapter: TypeAdapter[Any] | None = None
        if isinstance(kind, Mapping):
            self.schema = dict(kind)
            self.shape = json_schema_shape(self.schema)
            self.name = str(kind.get("title", "output"))
        else:
            from pydantic import TypeAdapter  # here, because it takes long to load, and most streams have no type

            self._adapter = TypeAdapter(kind)
            self.schema = self._adapter.json_schema()
            self.shape = CoreShapes(self._adapter.core_schema).of(self._adapter.core_schema)
            self.name = getattr(kind, "__name__", "output")

    def validate(self, text: str) -> Any:
        """Return the validated instance of an answer, of its JSON text. Raises ValueError with what is wrong and where,
        without repeating the answer.
        """
        if self._adapter is None:
            plain = json.loads(text)
            self.shape.check(plain)
            return plain
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            lines = [f"{'.'.join(map(str, each['loc'])) or 'the value'}: {each['msg']}" for each in faults[:5]]
            raise ValueError("; ".join(lines)) from None
