"""Tests of `Literals`: literals of Python become JSON at any cut."""

from __future__ import annotations

import ast
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools.errors import Code
from streamtools.parsing.bodies.literals import Literals
from streamtools.parsing.json_scanner import ScanState
from tests.support.cases import together
from tests.support.ways_to_cut import usual_ways

DEPTH = 4


class Outcome(NamedTuple):
    """The JSON, the state, the length of the text that was read, and the code of an unknown word."""

    json: str
    state: ScanState
    read: int
    fault: Code | None = None


def convert(deltas: list[str], *, ended: bool = False) -> Outcome:
    """Return the outcome for text in pieces. Content of strings is not scanned, as in a parser."""
    written: list[str] = []
    literals = Literals(written.append, depth=DEPTH)
    read = 0
    for delta in deltas:
        if literals.state is not ScanState.OPEN:
            break
        find_change = literals.find_change
        if find_change is not None and find_change(delta) is None:
            literals.take(delta)
            read += len(delta)
        else:
            read += literals.scan("#" + delta, 1) - 1 - len(literals.unread)
    if ended and literals.state is ScanState.OPEN:
        literals.end()
    code = literals.fault[0] if literals.fault is not None else None
    return Outcome("".join(written), literals.state, read, code)


def outcome(text: str, *, ended: bool = False) -> Outcome:
    """Return the outcome for a text, after checking that all cuts agree."""
    expected = convert([text], ended=ended)
    for deltas in usual_ways(text):
        assert expected == convert(list(deltas), ended=ended), deltas
    return expected


@together(
    ("text", "value"),
    {
        "an empty string": ("''", ""),
        "escaped quotes of both kinds": (r"'say \"x\" \'y\''", "say \"x\" 'y'"),
        "a bare quote between escapes": ("'\\n\"\\n'", '\n"\n'),
        "escaped line ends": ("'a\\\nb\\\r\nc\\\rd'", "abcd"),
        "hexadecimal": ("0x1F", 31),
    },
)
def test_python_literals_become_json(text: str, value: Any) -> None:
    for after in (" ", ",", ")", "\n}"):
        made = outcome(text + after)
        assert (ScanState.ENDED, len(text), None) == made[1:]
        assert value == json.loads(made.json)
    made = outcome(text, ended=True)
    assert (value, ScanState.ENDED) == (json.loads(made.json), made.state)


@together(
    ("text", "read"),
    {"no comma": ("[1 2]", 3), "two commas": ("[1,,2]", 3), "a character that there is not": ("'\\Uffffffff'", 10)},
)
def test_malformed_text_is_found_at_the_first_wrong_character(text: str, read: int) -> None:
    assert (ScanState.BROKEN, read) == outcome(text)[1:3]


@together("text", ["Paris", "007", "1_", "1__0", "--1", ".", "0x", "1j", "-", "e5", "b'x'", "f'x'"])
def test_an_unknown_word_has_its_own_code(text: str) -> None:
    """The text after it is read."""
    made = outcome(text + ",")
    assert ("null", Code.INVALID_ARGUMENTS) == (made.json, made.fault)
    assert ScanState.ENDED is made.state


@pytest.mark.parametrize(("text", "written"), [("nan", "NaN"), ("-inf", "-Infinity"), ("1e999", "1e999")])
def test_invalid_numbers_are_rejected_by_strict_decoding(text: str, written: str) -> None:
    assert written == outcome(text + " ").json


@together("text", ["'", "'a", '"""', '""""', "[1", "[1,", "{'a':", "'\\x4", "r'", "'''a''"])
def test_the_end_of_the_text_ends_no_string_and_no_container(text: str) -> None:
    assert ScanState.OPEN is outcome(text, ended=True).state


def test_the_depth_limit_is_reported_once_at_its_bracket() -> None:
    assert (ScanState.ENDED, 8) == outcome("[[[[]]]]")[1:3]
    assert (ScanState.DEEP, 4) == outcome("[[[[[]]]]]")[1:3]


def test_the_digits_of_an_endless_number_are_not_kept() -> None:
    written: list[str] = []
    literals = Literals(written.append, depth=DEPTH)
    for _ in range(1000):
        assert 100 == literals.scan("1" * 100)
    literals.scan(" ")
    assert 1024 == sum(map(len, written))
    assert literals.fault is not None


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)


@given(_values, st.integers(0, 100))
def test_repr_and_json_of_a_value_become_its_json(value: Any, at: int) -> None:
    """In one piece and in two."""
    for text in (repr(value), json.dumps(value)):
        literals_depth = text.count("[") + text.count("{") + text.count("(")
        for deltas in ([text], [text[:at], text[at:]]):
            written: list[str] = []
            literals = Literals(written.append, depth=literals_depth + 1)
            for delta in deltas:
                literals.scan(delta)
            literals.scan(" ")
            assert ScanState.ENDED is literals.state
            assert json.loads(json.dumps(value)) == json.loads("".join(written))


@given(st.text(alphabet="'\"\\xuU0147aé\n{}[](),:r ", max_size=12))
def test_accepted_text_has_the_value_that_python_reads(text: str) -> None:
    """Except raw line ends and escapes of JSON."""
    made = convert([text, " "])
    if made.state is not ScanState.ENDED or made.fault or "\n" in text or "\\/" in text:
        return
    try:
        expected = ast.literal_eval(text[: made.read].strip(" "))
    except (SyntaxError, ValueError, TypeError):
        return
    assert json.loads(json.dumps(expected)) == json.loads(made.json)
