"""Tests of the early events of a call: its name when it is certain, and its arguments piece by piece."""

from __future__ import annotations

import itertools

import pytest

from streamtools import coalesce
from streamtools.events import CallDelta, CallStart, UIEvent
from streamtools.testing.laws import assert_defined_per_character, cut, steps
from tests.support.cases import together
from tests.support.ways_to_cut import usual_ways


def reported(events: list[UIEvent]) -> list[str]:
    """Return names, marked, and pieces of arguments."""
    found = []
    for event in events:
        if isinstance(event, CallStart):
            found.append(f"-> {event.name}")
        elif isinstance(event, CallDelta):
            found.append(event.text)
    return found


@together(
    ("content", "arguments"),
    [
        pytest.param(r"{\"a\":1}", '{"a":1}', id="quotes"),
        pytest.param(r"{\"a\":\"\\n\"}", r'{"a":"\n"}', id="an escape in an escape"),
        pytest.param(r"{\}\"\n\u12\u00e9", '{\\}"\n\\u12é', id="escapes that JSON does not have, among good ones"),
    ],
)
def test_arguments_in_a_string_are_reported_decoded(content: str, arguments: str) -> None:
    """The cuts do not matter. An invalid escape is kept."""
    text = '###:{"name":"f","arguments":"' + content + '"}'
    for deltas in usual_ways(text):
        events = [event for step in steps(deltas, call_deltas=True) for event in step.new]
        assert ["-> f", arguments] == reported(coalesce(events))
    for one, two in itertools.combinations(range(28, len(text)), 2):
        assert_defined_per_character(cut(text, [one, two]), call_deltas=True)


ROWS = [
    pytest.param(
        ['###:{"args":{"a":[', '1],"b":"}"', "}", ',"x":1,"tool":"f"', "}"],
        [[], [], [], ["-> f", '{"a":[1],"b":"}"}'], []],
        id="however long",
    ),
    pytest.param(
        ['###:{"function":{"name":"f"', ',"arguments":"{\\"a', '\\":', '1}"', "}}"],
        [["-> f"], ['{"a'], ['":'], ["1}"], []],
        id="in a function, as a string",
    ),
    pytest.param(
        ['###:{"name":"f","args":{ "a" :\n', "1 ", "} }"],
        [["-> f", '{ "a" :\n'], ["1 "], ["}"]],
        id="as they are written",
    ),
    pytest.param(['###:{"name":"","tool":" ","toolName":"f"', "}"], [["-> f"], []], id="nor is a blank one"),
    pytest.param(
        [f'###:{{"{"k" * 300}":"g","name":"f"', "}"], [["-> f"], []], id="a key that is too long for any of ours"
    ),
]


@together(("deltas", "expected"), ROWS)
def test_name_and_arguments_are_reported_when_certain(deltas: list[str], expected: list[list[str]]) -> None:
    """The name with its closing quote, arguments with the character that decides."""
    assert expected == [reported(step.new) for step in steps(deltas, call_deltas=True)]
    assert_defined_per_character(deltas, call_deltas=True)


@together(("deltas", "expected"), ROWS)
def test_without_call_deltas_only_the_name_is_reported(deltas: list[str], expected: list[list[str]]) -> None:
    names = [[each for each in texts if each.startswith("-> ")] for texts in expected]

    assert names == [reported(step.new) for step in steps(deltas)]


def test_a_call_that_may_become_text_is_reported_late() -> None:
    """With `on_malformed="text"`, an interface would have to take back an early event."""
    deltas = ['###:{"name":"f"', ',"args":{"a":1}', "}"]

    assert [[], [], ["-> f", '{"a":1}']] == [
        reported(step.new) for step in steps(deltas, on_malformed="text", call_deltas=True)
    ]
