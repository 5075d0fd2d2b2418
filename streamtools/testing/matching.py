"""When an event is the one that a test expects: what the test says is compared, and what it leaves out is not.

An expected event is an event, of which the fields that hold their defaults are left out; or a dict of the fields that
count, by the names that they have in JSON (`{"type": "text", "text": "Hello"}`), defaults included; or a class, or a
union of classes; or anything that is equal to it, as `unittest.mock.ANY` is to everything. `...` is any number of
events, none too. Ids of calls and of the run, times and `seq` are chance, so a test that cares names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType, UnionType
from typing import Any, NamedTuple, TypeAlias

import msgspec

from streamtools.events import Event

Expected: TypeAlias = "Event | type[Event] | UnionType | Mapping[str, Any] | EllipsisType"
"""What may stand in the list of a test."""

_MISSING = object()
_BEFORE = 20  # characters that two texts share, shown before the place where they part


class Difference(NamedTuple):
    """Where an event is another than expected: the way to a value in it, and the two values."""

    where: str
    expected: object
    came: object

    def show(self, side: object) -> str:
        """Return a short repr of one of the values: of texts from a little before the place where they part."""
        if isinstance(self.expected, str) and isinstance(self.came, str) and isinstance(side, str):
            pairs = enumerate(zip(self.expected, self.came, strict=False))
            parted = next((at for at, (one, other) in pairs if one != other), min(len(self.expected), len(self.came)))
            return show(side) if parted < 2 * _BEFORE else "…" + show(side[parted - _BEFORE :])
        return show(side)


def matches(expected: Any, came: Any) -> bool:
    """Tell whether `came` is what a test expects."""
    return difference(expected, came) is None


def matcher(expected: Any) -> Callable[[Event], bool]:
    """Return what tells of many events whether they are the one that a test expects."""
    if not isinstance(expected, Event):
        return lambda came: matches(expected, came)
    kind, stated = type(expected), [*_stated(expected).items()]
    return lambda came: type(came) is kind and all(matches(value, getattr(came, name)) for name, value in stated)


def difference(expected: Any, came: Any, where: str = "") -> Difference | None:
    """Return the first difference that counts, or None."""
    if isinstance(expected, type | UnionType) and isinstance(came, Event):
        return None if isinstance(came, expected) else Difference(where, expected, came)
    if isinstance(expected, msgspec.Struct) and isinstance(came, msgspec.Struct):
        if type(expected) is not type(came):
            return Difference(where, expected, came)
        return _first(_stated(expected), _fields(came), where)
    if isinstance(expected, Mapping) and isinstance(came, msgspec.Struct):
        return _first(expected, _fields(came), where)
    if isinstance(expected, Mapping) and isinstance(came, Mapping):
        missing = [key for key in came if key not in expected]
        if missing:
            return Difference(_below(where, missing[0]), _MISSING, came[missing[0]])
        return _first(expected, came, where)
    if isinstance(expected, list | tuple) and isinstance(came, list | tuple):
        return _of_lists(expected, came, where)
    return None if expected == came else Difference(where, expected, came)


def _first(expected: Mapping[str, Any], came: Mapping[str, Any], where: str) -> Difference | None:
    for key, value in expected.items():
        if key not in came:
            return Difference(_below(where, key), value, _MISSING)
        found = difference(value, came[key], _below(where, key))
        if found is not None:
            return found
    return None


def _of_lists(expected: Sequence[Any], came: Sequence[Any], where: str) -> Difference | None:
    for at, (one, other) in enumerate(zip(expected, came, strict=False)):
        found = difference(one, other, f"{where}[{at}]")
        if found is not None:
            return found
    if len(expected) == len(came):
        return None
    at = min(len(expected), len(came))
    sides = (each[at] if at < len(each) else _MISSING for each in (expected, came))
    return Difference(f"{where}[{at}]", *sides)


def _below(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {"type": struct.type, **fields} if isinstance(struct, Event) else fields


def _stated(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that hold something else than their default."""
    return {
        field.name: value
        for field in msgspec.structs.fields(struct)
        if (value := getattr(struct, field.name)) is not field.default
        and (field.default is msgspec.NODEFAULT or value != field.default or value.__class__ != field.default.__class__)
    }


def show(value: object, width: int = 100) -> str:
    """Return a short repr: an event without the fields that hold their defaults, long texts cut in the middle."""
    if value is _MISSING:
        return "nothing"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, UnionType):
        return " | ".join(map(show, value.__args__))
    text = _show_struct(value) if isinstance(value, msgspec.Struct) else repr(value)
    return text if len(text) <= width else f"{text[: width - width // 3]} … {text[len(text) - width // 3 + 3 :]}"


def _show_struct(struct: msgspec.Struct) -> str:
    fields = (
        f"{name}={_show_struct(value) if isinstance(value, msgspec.Struct) else repr(value)}"
        for name, value in _stated(struct).items()
    )
    return f"{type(struct).__name__}({', '.join(fields)})"
