"""What is told of a call while it arrives: its name as soon as that is certain, its arguments piece by piece."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from streamtools import Limits, Parser, coalesce
from streamtools.events import CallDelta, CallStart, UIEvent
from streamtools.testing.laws import assert_defined_per_character, cut, steps
from tests.support.cases import together
from tests.support.ways_to_cut import usual_ways


def told(events: list[UIEvent]) -> list[str]:
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
def test_arguments_in_a_string_are_told_as_what_it_stands_for(content: str, arguments: str) -> None:
    """However the escapes are cut, the same pieces join to the same text; what is no escape stands for itself."""
    text = '###:{"name":"f","arguments":"' + content + '"}'
    for deltas in usual_ways(text):
        events = [event for step in steps(deltas, call_deltas=True) for event in step.new]
        assert ["-> f", arguments] == told(coalesce(events))
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
def test_what_is_told_when(deltas: list[str], expected: list[list[str]]) -> None:
    """The name goes out with its closing quotation mark, arguments with the character that makes them certain."""
    assert expected == [told(step.new) for step in steps(deltas, call_deltas=True)]
    assert_defined_per_character(deltas, call_deltas=True)


@together(("deltas", "expected"), ROWS)
def test_without_deltas_only_the_name_is_told(deltas: list[str], expected: list[list[str]]) -> None:
    """The pieces are opt-in, and the name comes at the same moment without them."""
    names = [[each for each in texts if each.startswith("-> ")] for texts in expected]

    assert names == [told(step.new) for step in steps(deltas)]


def test_nothing_is_told_before_the_call_is_certain_where_it_may_become_text() -> None:
    """With `on_malformed="text"` an interface would have to take back what it was told, so it is told late."""
    deltas = ['###:{"name":"f"', ',"args":{"a":1}', "}"]

    assert [[], [], ["-> f", '{"a":1}']] == [
        told(step.new) for step in steps(deltas, on_malformed="text", call_deltas=True)
    ]


BEGINNINGS = [
    pytest.param('{"name":"f","arguments":{"a":1}}', id="as a rule"),
    pytest.param('{ "toolName" :\r\n"f" }', id="with white space"),
    pytest.param('{name:"f"}', id="no quotes"),
    pytest.param('[1,{"name":"f"}]', id="a number first"),
    pytest.param('{}{"name":"f"}', id="nothing, and something behind it"),
    pytest.param('{"name":"f\n~~~', id="a fence that closes inside the name"),
]


TIGHT = [
    pytest.param(limits, marks=pytest.mark.deep)
    for limits in (Limits(depth=1), Limits(depth=2), Limits(call=24), Limits(calls=1))
]


@together("text", BEGINNINGS)
@pytest.mark.parametrize("limits", [Limits(), *TIGHT])
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.deep)])
def test_how_calls_begin_is_read_the_same_wherever_it_is_cut(text: str, limits: Limits, stride: int) -> None:
    """Whole or cut off; both the fence and the tag."""

    def read(deltas: Sequence[str]) -> list[UIEvent]:
        parser = Parser(["tilde_fence", "hermes_json"], call_deltas=True, limits=limits)
        return coalesce([event for delta in deltas for event in parser.feed(delta)] + parser.close())

    for whole in (f"~~~tool_call\n{text}\n~~~ on", f"<tool_call>{text}</tool_call> on"):
        for end in range(len(whole), 11, -stride):
            cut = whole[:end]
            expected = read([cut])

            assert [] == [way for way in (list(cut), *usual_ways(cut)) if read(way) != expected]
