"""Tests of arguments in pieces with paths, and of their JSON text."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools.calls import read_arguments
from streamtools.json_values import Rejected
from streamtools.limits import DEFAULT_LIMITS
from streamtools.sources.wire_formats.partial_args import PartialArgs
from tests.support.cases import together


def text(path: Any, value: Any, *, more: bool = False) -> dict[str, Any]:
    return {"jsonPath": path, "stringValue": value} | ({"willContinue": True} if more else {})


def number(path: str, value: Any) -> dict[str, Any]:
    return {"jsonPath": path, "numberValue": value}


def write(*pieces: Any) -> tuple[str, bool]:
    """Return the whole text, and whether a piece was invalid."""
    arguments = PartialArgs(DEFAULT_LIMITS)
    return "".join([*map(arguments.write, pieces), arguments.close()]), arguments.is_invalid


def is_malformed(*pieces: Any) -> bool:
    """Return whether the pieces make no valid arguments, so that the call does not run."""
    written, is_invalid = write(*pieces)
    with suppress(Rejected):
        read_arguments(written)
        return is_invalid
    return True


WRITTEN: dict[str, tuple[list[Any], str]] = {
    # As it was recorded: a string ends with an empty piece that does not go on.
    "a string in pieces": ([text("$.a", "Bos", more=True), text("$.a", "ton", more=True), text("$.a", "")], "Boston"),
    "a string whose pieces do not say that they go on": ([text("$.a", "Bos"), text("$.a", "ton")], "Boston"),
    "an empty string": ([text("$.a", "")], ""),
    "a string that has to be escaped": ([text("$.a", 'a"\\\n'), text("$.a", "é\u2028")], 'a"\\\né\u2028'),
    "a pair that is cut": ([text("$.a", "\ud83d"), text("$.a", "\ude00")], "😀"),
    "a value that is announced": ([{"jsonPath": "$.a", "willContinue": True}, text("$.a", "b")], "b"),
    "a path that is spelled in two ways": ([text("$.a", "1"), text("$['a']", "2")], "12"),
}
ORDERED: dict[str, tuple[list[Any], str]] = {
    "all kinds of values": (
        [
            *(number("$.n", 1), number("$.f", 0.5), number("$.big", 10**40)),
            *({"jsonPath": "$.t", "boolValue": True}, {"jsonPath": "$.u", "boolValue": False}),
            *({"jsonPath": "$.z", "nullValue": "NULL_VALUE"}, {"jsonPath": "$.y", "nullValue": None}),
        ],
        '{"n":1,"f":0.5,"big":1' + "0" * 40 + ',"t":true,"u":false,"z":null,"y":null}',
    ),
    "objects in lists": (
        [text("$.i[0].a", "x"), text("$.i[0].b", "y"), text("$.i[1].a", "z"), number("$.k", 1)],
        '{"i":[{"a":"x","b":"y"},{"a":"z"}],"k":1}',
    ),
    "lists in lists": ([number("$.m[0][0]", 1), number("$.m[0][1]", 2), number("$.m[1][0]", 3)], '{"m":[[1,2],[3]]}'),
    "back from the depth": (
        [number("$.a.b.c", 1), number("$.a.d.e", 2), number("$.a.f", 3), number("$.g", 4)],
        '{"a":{"b":{"c":1},"d":{"e":2},"f":3},"g":4}',
    ),
    "nothing": ([], ""),
    "names in brackets": (
        [
            *(number("$['a b']", 1), number('$["c\\"d"]', 2), number("$['e\\'f\"g']", 3), number('$["\\u00e9"][0]', 4)),
            number("$['']", 5),
        ],
        '{"a b":1,"c\\"d":2,"e\'f\\"g":3,"é":[4],"":5}',
    ),
}
DISORDERED: dict[str, list[Any]] = {
    "a member of an object that is closed": [text("$.a.x", "1"), text("$.b", "2"), text("$.a.y", "3")],
    "a string that is continued after another value": [text("$.a", "1", more=True), text("$.b", "2"), text("$.a", "3")],
    "an item of a list that is closed": [number("$.a[0]", 1), number("$.b", 2), number("$.a[1]", 3)],
    "the first item again": [number("$.a[0]", 1), number("$.b", 2), number("$.a[0]", 3)],
    "a value where an object stands": [number("$.o.p", 1), number("$.o", 1)],
    "an object where a value stands": [number("$.a", 1), number("$.a.b", 1)],
    "an item where a text stands": [text("$.a", "1"), number("$.a[0]", 1)],
    "a member where a list stands": [number("$.l[0]", 1), number("$.l.a", 1)],
    "a number twice": [number("$.o.p", 1), number("$.o.p", 1)],
}
UNREADABLE: dict[str, Any] = {
    "no object": 7,
    "no path": {"stringValue": "a"},
    "a path that is none": text("a", "b"),
    "a path of another type": text(["$"], "b"),
    "the root": text("$", "b"),
    "a root that is a list": text("$[0]", "b"),
    "a wild card": text("$.a[*]", "b"),
    "a descendant": text("$..a", "b"),
    "an index from the end": text("$.a[-1]", "b"),
    "a name that is no string": number('$["\\x"]', 1),
    "a path of many steps": number("$" + ".a" * 65, 1),
    "an endless path": number("$." + "a" * 5000, 1),
    "a list with a hole": number("$.b[1]", 1),
    "infinity": number("$.b", float("inf")),
    "a number that is a text": number("$.b", "NaN"),
    "a truth that is a number": {"jsonPath": "$.b", "boolValue": 1},
    "a number that is a truth": number("$.b", True),
    "a text that is a number": text("$.b", 5),
}


@pytest.mark.parametrize(("pieces", "value"), WRITTEN.values(), ids=WRITTEN)
def test_strings_are_written_as_they_arrive(pieces: list[Any], value: str) -> None:
    """All pieces of one string are one string."""
    written, is_invalid = write(*pieces)
    assert not is_invalid
    assert {"a": value} == json.loads(written)
    assert written.encode().decode() == written


@pytest.mark.parametrize(("pieces", "expected"), ORDERED.values(), ids=ORDERED)
def test_values_in_order_are_written(pieces: list[Any], expected: str) -> None:
    """Containers are opened and closed as the paths want it."""
    assert (expected, False) == write(*pieces)


@together("pieces", DISORDERED.values(), ids=DISORDERED)
def test_values_out_of_order_are_malformed(pieces: list[Any]) -> None:
    """A key is written twice, or an index is missing."""
    assert is_malformed(*pieces)


@together("piece", UNREADABLE.values(), ids=UNREADABLE)
def test_nothing_follows_an_invalid_piece(piece: Any) -> None:
    before = [number("$.o.p", 1), number("$.l[0]", 1), text("$.a", "b")]
    assert ('{"o":{"p":1},"l":[1],"a":"b', True) == write(*before, piece, text("$.a", "c"))


_names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _names
_values = st.recursive(
    _leaves,
    lambda each: st.lists(each, min_size=1, max_size=3) | st.dictionaries(_names, each, min_size=1, max_size=3),
    max_leaves=8,
)


def _pieces(value: Any, path: str = "$") -> list[dict[str, Any]]:
    """Return an object without empty containers as pieces, in its own order."""
    if isinstance(value, dict):
        return [piece for name, each in value.items() for piece in _pieces(each, f"{path}[{json.dumps(name)}]")]
    if isinstance(value, list):
        return [piece for at, each in enumerate(value) for piece in _pieces(each, f"{path}[{at}]")]
    if isinstance(value, str):
        return [text(path, value[:1], more=True), text(path, value[1:])]
    kind = "boolValue" if isinstance(value, bool) else "nullValue" if value is None else "numberValue"
    return [{"jsonPath": path, kind: value}]


@given(st.dictionaries(_names, _values, min_size=1, max_size=4))
def test_any_object_survives_its_division_into_pieces(value: dict[str, Any]) -> None:
    """An object that is taken to pieces is written as itself."""
    written, is_invalid = write(*_pieces(value))
    assert not is_invalid
    assert value == json.loads(written)


@given(st.dictionaries(_names, _values, min_size=1, max_size=4), st.randoms())
def test_pieces_in_any_order_give_the_object_or_are_malformed(value: dict[str, Any], chance: Any) -> None:
    """Pieces in disorder never make another object."""
    pieces = _pieces(value)
    chance.shuffle(pieces)
    assert is_malformed(*pieces) or _lengths(value) == _lengths(json.loads(write(*pieces)[0]))


def _lengths(value: Any) -> Any:
    """Return a value with the length in the place of each text, whose pieces may have changed places."""
    if isinstance(value, dict):
        return {name: _lengths(each) for name, each in value.items()}
    return (
        [_lengths(each) for each in value]
        if isinstance(value, list)
        else len(value)
        if isinstance(value, str)
        else value
    )
