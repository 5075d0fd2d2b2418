"""Checks requests against the types of an SDK, down to every leaf. Unknown members are faults.

The SDKs check less: TypedDicts allow unknown members, and pydantic validates an `Iterable` lazily.
"""

from __future__ import annotations

import collections.abc
import datetime
import enum
import inspect
import os
import pathlib
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, Union

import typing_extensions
from pydantic import BaseModel

_OPTIONAL = (typing_extensions.NotRequired, typing.NotRequired)
_REQUIRED = (typing_extensions.Required, typing.Required)
LISTS = (list, tuple, collections.abc.Iterable, collections.abc.Sequence)
MAPPINGS = (dict, collections.abc.Mapping)
NO_JSON = (typing.IO, os.PathLike, pathlib.Path)  # which the clients read themselves
_LEAVES: dict[Any, tuple[type, ...]] = {
    str: (str,),
    bytes: (str,),  # in Base64
    datetime.datetime: (str,),
    bool: (bool,),
    int: (int,),
    float: (int, float),
    type(None): (type(None),),
    None: (type(None),),
}


def faults(kind: Any, value: Any, place: str, beyond: frozenset[str] = frozenset()) -> list[str]:
    """Return the unknown members, wrong types and missing members of a value, each with its path.

    `beyond` are members that other servers of the same format know.
    """
    return list(_faults(kind, value, place, beyond))


def _faults(kind: Any, value: Any, place: str, beyond: frozenset[str]) -> Iterator[str]:
    kind = plain(kind)
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object) or isinstance(kind, typing.TypeVar):
        return
    if origin in (Union, types.UnionType):
        yield from min((faults(each, value, place, beyond) for each in inside), key=_closeness)
    elif origin is Literal:
        if value not in inside or isinstance(value, bool) != any(isinstance(each, bool) for each in inside):
            yield f"{place}: {value!r} is none of {inside}"
    elif origin in LISTS:
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        for at, each in enumerate(value):
            yield from _faults(inside[0], each, f"{place}[{at}]", beyond)
    elif origin in MAPPINGS or kind in MAPPINGS:
        if not isinstance(value, dict):
            yield f"{place} is no object"
            return
        for name, each in value.items():
            yield from _faults(inside[1] if inside else Any, each, f"{place}.{name}", beyond)
    elif kind in NO_JSON or origin in NO_JSON or getattr(kind, "__name__", "") == "UnrecognizedStr":
        yield f"{place} is no {kind}"
    elif kind in _LEAVES:
        if not isinstance(value, _LEAVES[kind]) or (kind is not bool and isinstance(value, bool)):
            yield f"{place} is no {getattr(kind, '__name__', kind)}"
    elif inspect.isclass(kind) and issubclass(kind, enum.Enum):
        if value not in [each.value for each in kind]:
            yield f"{place}: {value!r} is none of {kind.__name__}"
    elif (members := members_of(kind)) is None:
        raise TypeError(f"{place}: the judge does not know {kind!r}")
    elif not isinstance(value, dict):
        yield f"{place} is no {kind.__name__}"
    else:
        yield from (
            f"{place} lacks {name} of {kind.__name__}"
            for name, (_, required) in members.items()
            if required and name not in value
        )
        for name, each in value.items():
            if name in members:
                yield from _faults(members[name][0], each, f"{place}.{name}", beyond)
            elif name not in beyond:
                yield f"{place}.{name} is not known to {kind.__name__}"


def _closeness(found: list[str]) -> tuple[bool, int]:
    """Return a sort key for the faults of a union member. The intended member is the one with matching tags."""
    tags = (".type: ", ".role: ", ".type of ", "lacks type", "lacks role")
    return any(tag in each for each in found[:1] for tag in tags), len(found)


def plain(kind: Any) -> Any:
    """Return a type without its names and annotations."""
    while True:
        origin = typing.get_origin(kind)
        if hasattr(origin, "__value__"):  # of a generic name
            kind = origin.__value__[typing.get_args(kind)]
        elif hasattr(kind, "__value__"):
            kind = kind.__value__
        elif origin is typing.Annotated or origin in (*_OPTIONAL, *_REQUIRED):
            kind = typing.get_args(kind)[0]
        elif inspect.isclass(kind) and issubclass(kind, BaseModel) and [*kind.model_fields] == ["value"]:
            kind = kind.model_fields["value"].annotation  # Ollama's images, which are written as their data
        else:
            return kind


def members_of(kind: Any) -> dict[str, tuple[Any, bool]] | None:
    """Return the members of an object type with their type and whether they are required. None for other types."""
    if typing_extensions.is_typeddict(kind):
        hints = typing_extensions.get_type_hints(kind, include_extras=True)
        return {name: (hint, _is_required(hint, name in kind.__required_keys__)) for name, hint in hints.items()}
    if inspect.isclass(kind) and issubclass(kind, BaseModel):
        return {
            field.alias or name: (
                field.annotation,
                field.is_required() or typing.get_origin(plain(field.annotation)) is Literal,  # a tag
            )
            for name, field in kind.model_fields.items()
        }
    return None


def _is_required(hint: Any, known: bool) -> bool:
    origin = typing.get_origin(hint)
    return origin in _REQUIRED or (known and origin not in _OPTIONAL)


def shape_faults(shape: Any, value: Any, place: str) -> list[str]:
    """Return the faults for a shape of botocore."""
    return list(_shape_faults(shape, value, place))


def _shape_faults(shape: Any, value: Any, place: str) -> Iterator[str]:
    match shape.type_name:
        case "structure" if getattr(shape, "is_document_type", False):
            return
        case "structure" if isinstance(value, dict):
            if getattr(shape, "is_tagged_union", False) and len(value) != 1:
                yield f"{place} is not one of {[*shape.members]}"
            yield from (f"{place} lacks {name}" for name in shape.required_members if name not in value)
            for name, each in value.items():
                if name in shape.members:
                    yield from _shape_faults(shape.members[name], each, f"{place}.{name}")
                else:
                    yield f"{place}.{name} is not known"
        case "list" if isinstance(value, list):
            for at, each in enumerate(value):
                yield from _shape_faults(shape.member, each, f"{place}[{at}]")
        case "string" | "blob" if isinstance(value, str):
            if value not in (getattr(shape, "enum", None) or [value]):
                yield f"{place} is none of {shape.enum}"
        case "integer" | "float" | "double" | "long" if isinstance(value, int | float):
            return
        case "boolean" if isinstance(value, bool):
            return
        case kind:
            yield f"{place} is no {kind}"
