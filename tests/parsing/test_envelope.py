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
        pytest.param(r"{\"a\":\"\u00e9\"}", '{"a":"é"}', id="a code point"),
        pytest.param(r"{\"a\":\"\ud83d\ude00\"}", '{"a":"😀"}', id="a pair of surrogates"),
        pytest.param(r"{\"a\":\"\ud83d\ud83d\ude00\"}", '{"a":"\ud83d😀"}', id="half a pair before a pair"),
        pytest.param(r"{\"a\":\"\ud83d\n\"}", '{"a":"\ud83d\n"}', id="half a pair before an escape"),
        pytest.param(r"{\"a\":\"\ud83dx\"}", '{"a":"\ud83dx"}', id="half a pair before a letter"),
        pytest.param(r"{\}\"\n\u12\u00e9", '{\\}"\n\\u12é', id="escapes that JSON does not have, among good ones"),
        pytest.param(r"\ud83d\uZ\ud83d\ude00", "\ud83d\\uZ😀", id="half a pair before an escape that is none"),
        pytest.param("{\n\t}", "{\n\t}", id="raw control characters"),
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
        ['###:{"name":"f', '"', ',"arguments":{"a"', ":1}", "}"],
        [[], ["-> f"], ['{"a"'], [":1}"], []],
        id="name, then arguments as they come",
    ),
    pytest.param(
        ['###:{"arguments":{"a"', ":1}", ',"name":"f', '"', "}"],
        [[], [], [], ["-> f", '{"a":1}'], []],
        id="arguments that come before the name wait for it",
    ),
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
    pytest.param(['###:{"name":"f","tool":"f"', "}"], [["-> f"], []], id="the name is told once"),
    pytest.param(['###:{"name":"f","tool":"g"', "}"], [["-> f"], []], id="and not taken back"),
    pytest.param(['###:{"name":null,"tool":"f"', "}"], [["-> f"], []], id="a name of null is none"),
    pytest.param(['###:{"name":"","tool":" ","toolName":"f"', "}"], [["-> f"], []], id="nor is a blank one"),
    pytest.param(['###:{"x":{"name":"g"},"name":"f"', "}"], [["-> f"], []], id="nor one that is nested elsewhere"),
    pytest.param(['###:{"x":[{"name":"g"}],"name":"f"', "}"], [["-> f"], []], id="nor one in an array"),
    pytest.param(
        ['###:{"args":{"name":"g","args":1},"name":"f"', "}"],
        [["-> f", '{"name":"g","args":1}'], []],
        id="nor one in the arguments",
    ),
    pytest.param(['###:{"x":"name","name":"f"', "}"], [["-> f"], []], id="nor a value that is called so"),
    pytest.param(['###:{"n\\u0061me":"\\u0066"', "}"], [["-> f"], []], id="escapes in key and name"),
    pytest.param(
        [f'###:{{"{"k" * 300}":"g","name":"f"', "}"], [["-> f"], []], id="a key that is too long for any of ours"
    ),
    pytest.param(
        ['###:{"name":"' + "n" * 300 + '","args":{"a":1}', "}"],
        [[], ["-> " + "n" * 300, '{"a":1}']],
        id="a name of three hundred characters waits for the whole call",
    ),
    pytest.param(['###:{"name":"f","args":null', "}"], [["-> f"], []], id="null has no pieces"),
    pytest.param(['###:{"name":"f","args":""', "}"], [["-> f"], []], id="nor has an empty string"),
    pytest.param(['###:{"name":"f","args":12', "}"], [["-> f"], []], id="nor has a number"),
    pytest.param(
        ['###:{"name":"f","args":"x', "\\", 'n"', "}"], [["-> f", "x"], [], ["\n"], []], id="half an escape waits"
    ),
    pytest.param(
        ['###:{"name":"f","args":"\\ud83', "d\\u", "de00x", '"}'], [["-> f"], [], ["😀x"], []], id="so does half a pair"
    ),
    pytest.param(
        ['~~~tool_call\n[{"name":"f","args":{"a"', ':1}},{"args":{}', ',"name":"g"}]', "\n~~~"],
        [["-> f", '{"a"'], [":1}"], ["-> g", "{}"], []],
        id="each call of an array by itself",
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
    pytest.param('[{"tool":"f"},{"tool_name":"g"}]', id="in an array"),
    pytest.param('[ { "name": "f" } ]', id="in an array, with white space"),
    pytest.param("{" + " " * 33 + '"name":"f"}', id="with more white space than that"),
    pytest.param('{"names":"f","name":"g"}', id="a key that goes on"),
    pytest.param('{"arguments":{},"name":"f"}', id="another key"),
    pytest.param('{"n\\u0061me":"f"}', id="an escape in the key"),
    pytest.param('{"name":null,"tool":"f"}', id="a name that is no string"),
    pytest.param('{"name" "f"}', id="no colon"),
    pytest.param('{"name"::"f"}', id="two colons"),
    pytest.param('{name:"f"}', id="no quotes"),
    pytest.param('[[{"name":"f"}]]', id="two arrays"),
    pytest.param('[1,{"name":"f"}]', id="a number first"),
    pytest.param('{}{"name":"f"}', id="nothing, and something behind it"),
    pytest.param('{"name":"f"}{"name":"g"}', id="two of them"),
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
