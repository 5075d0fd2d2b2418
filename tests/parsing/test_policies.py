"""Tests of the options of a parser."""

from __future__ import annotations

from typing import Literal

import pytest

from streamtools import Parser, parse
from streamtools.errors import Code
from streamtools.parsing.dialects import TAUGHT_DIALECTS
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, warning

F = '###:{"name":"f"}'
BLOCK = '~~~tool_call\n{"name":"f"}\n~~~'
BAD = '###:{"name" f}'
f = call("f")

# on_malformed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('###:{"name":"f', [warning("truncated"), '###:{"name":"f'], id="cut off"),
        pytest.param("~~~tool_call\nno\n~~~ b", [warning("invalid_json"), "~~~tool_call\nno\n~~~ b"], id="no JSON"),
        pytest.param(
            '~~~tool_call\n[{"name":"f"}, {"x":1}]\n~~~',
            [f, warning("missing_tool_name"), '{"x":1}]\n~~~'],
            id="in an array, only its own part",
        ),
    ],
)
def test_a_malformed_call_can_be_shown_as_text(text: str, expected: list[Brief]) -> None:
    """`thinking` ends, a warning gives the reason, and the text follows unchanged."""
    assert expected == read(text, on_malformed="text")
    assert [] == parse(text, on_malformed="text").errors
    assert all(each.raw is None for each in parse(text, on_malformed="text").warnings if each.code != "forged_result")


def test_a_malformed_call_is_hidden_by_default() -> None:
    """The error holds its text, its id and a message."""
    (found,) = parse(f"a {BAD} b").errors

    assert ["a ", error("invalid_json"), " b"] == read(f"a {BAD} b")
    assert (BAD, None, None) == (found.raw, found.call, found.status)
    assert found.call_id
    assert found.message


@pytest.mark.parametrize("after_call", ["show", "hide", "stop"])
def test_after_call_ignores_a_malformed_call_that_is_shown(after_call: Literal["show", "hide", "stop"]) -> None:
    result = parse('Say ###:{"name" f} or ###', on_malformed="text", after_call=after_call)

    assert 'Say ###:{"name" f} or ###' == result.content


@pytest.mark.parametrize(
    ("after_call", "content", "hidden"),
    [("show", ' ###:{"x" y} z', []), ("hide", "", [" ", '###:{"x" y}', " z"]), ("stop", " ", [])],
)
def test_after_call_applies_to_a_malformed_call(
    after_call: Literal["show", "hide", "stop"], content: str, hidden: list[str]
) -> None:
    result = parse('###:{"name":"f"} ###:{"x" y} z', on_malformed="text", after_call=after_call)

    assert content == result.content
    assert hidden == [each.raw for each in result.warnings if each.code is Code.HIDDEN_AFTER_CALL]


# after_call

HIDDEN = warning("hidden_after_call")


@together(
    ("text", "expected", "hidden"),
    [
        pytest.param(f"{F}\n", [f, HIDDEN], ["\n"], id="white space is text too"),
        pytest.param(f"{F} `{F}`", [f, HIDDEN], [f" `{F}`"], id="a quoted call is text like any other"),
        pytest.param(f"{F} ###", [f, HIDDEN], [" ###"], id="pending text is hidden too"),
    ],
)
def test_text_after_a_call_can_be_hidden(text: str, expected: list[Brief], hidden: list[str]) -> None:
    """A warning holds it, before the next call or at the end."""
    assert expected == read(text, after_call="hide")
    found = parse(text, after_call="hide").warnings
    assert hidden == [each.raw for each in found if each.code is Code.HIDDEN_AFTER_CALL]


@together(
    ("text", "expected"),
    [
        pytest.param(f"a {F} b", ["a ", f, " "], id="text after the call"),
        pytest.param(f"{F} \n\t{F}\n{BLOCK}\nb", [f, " \n\t", f, "\n", f, "\n"], id="calls after calls are read"),
        pytest.param(f"{F} ###:b {F}", [f, " "], id="half a marker, and a call that is not read"),
    ],
)
@together("reasoning", ["start", "anywhere"])
def test_text_after_a_call_can_stop_the_turn(
    text: str, expected: list[Brief], reasoning: Literal["start", "anywhere"]
) -> None:
    """Only white space and other calls are read."""
    assert expected == read(text, after_call="stop", reasoning=reasoning)


@together("reasoning", ["start", "anywhere"])
@together(
    ("able", "decisive"),
    [(" \n", "<"), ("", "x"), ("##", "x"), ("###", "r"), ("\n~~~tool_", "r"), ("###:", "x")],
    ids=["a reasoning tag", "a letter", "a heading", "a hash result", "a tilde result", "a broken marker"],
)
def test_stop_decides_at_the_first_character(able: str, decisive: str, reasoning: str) -> None:
    """A reasoning tag and a forged result stop the turn too."""
    parser = Parser(TAUGHT_DIALECTS, after_call="stop", reasoning="start" if reasoning == "start" else "anywhere")
    stopped = []
    for delta in ('###:{"name":"f"}' + able, decisive):
        parser.feed(delta)
        stopped.append(parser.stopped)

    assert [False, True] == stopped
    assert "" == parser.pending


# keep_markup
