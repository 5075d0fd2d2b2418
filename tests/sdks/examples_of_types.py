"""Examples of what the types of an SDK describe: of each member, and of each way to write it, at least one."""

from __future__ import annotations

import datetime
import enum
import inspect
import types
import typing
from typing import Any, Literal, Union

from tests.sdks.judge import LISTS, MAPPINGS, NO_JSON, members_of, plain

_LEAVES: dict[Any, Any] = {
    str: "x",
    bytes: "aGk=",
    bool: True,
    int: 1,
    float: 0.5,
    datetime.datetime: "2025-01-01T00:00:00Z",
}
_NAMED = {"arguments": "{}"}  # texts that hold JSON


def examples(kind: Any, name: str = "", inside: tuple[Any, ...] = ()) -> list[Any]:
    """Return values of a type, the first with nothing that may be missing; `inside` are the types around it."""
    kind = plain(kind)
    origin, within = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object) or isinstance(kind, typing.TypeVar):
        return [{"a": 1}]
    if origin in (Union, types.UnionType):
        return [value for each in within for value in examples(each, name, inside)]
    if origin is Literal:
        return [*within]
    if origin in LISTS:
        return [[value] for value in examples(within[0], name, inside)]
    if origin in MAPPINGS or kind in MAPPINGS:
        return [{"k": value} for value in (examples(within[1], name, inside) if within else [1])[:1]]
    if kind in NO_JSON or origin in NO_JSON or kind in (None, type(None)):
        return []
    if kind in _LEAVES:
        return [_NAMED.get(name, "x") if kind is str else _LEAVES[kind]]
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return [each.value for each in kind][:2]
    members = members_of(kind)
    if members is None or kind in inside:
        return []  # texts that a client does not know, and what holds itself
    given = {key: (examples(hint, key, (*inside, kind)), required) for key, (hint, required) in members.items()}
    if any(required and not values for values, required in given.values()):
        return []
    least = {key: values[0] for key, (values, required) in given.items() if required}
    return [least, *({**least, key: each} for key, (values, _) in given.items() for each in values if each is not None)]


def examples_of_shape(shape: Any, inside: tuple[str, ...] = ()) -> list[Any]:
    """Return the same of a shape of botocore's."""
    if getattr(shape, "is_document_type", False):
        return [{"a": 1}]
    match shape.type_name:
        case "structure" if shape.name in inside:
            return []
        case "structure":
            given = {key: examples_of_shape(each, (*inside, shape.name)) for key, each in shape.members.items()}
            if getattr(shape, "is_tagged_union", False):
                return [{key: value} for key, values in given.items() for value in values]
            if not all(given[key] for key in shape.required_members):
                return []
            least = {key: given[key][0] for key in shape.required_members}
            return [least, *({**least, key: value} for key, values in given.items() for value in values)]
        case "list":
            return [[value] for value in examples_of_shape(shape.member, inside)]
        case "map":
            return [{"k": value} for value in examples_of_shape(shape.value, inside)[:1]]
        case "string":
            return [*(getattr(shape, "enum", None) or ["x"])][:3]
        case kind:
            return [{"blob": "aGk=", "boolean": True, "float": 0.5, "double": 0.5}.get(kind, 1)]
