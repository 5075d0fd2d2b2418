"""The policies of a parser: explicit, few, and each does what its name says."""

from __future__ import annotations

from typing import Literal

import pytest

from streamtools import Parser, parse
from streamtools.errors import Code
from streamtools.limits import Limits
from streamtools.parsing.dialects import TAUGHT_DIALECTS
from streamtools.testing.laws import steps
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, markup, read, thought, warning

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
def test_a_malformed_call_as_text(text: str, expected: list[Brief]) -> None:
    """With `on_malformed="text"` thinking ends, a warning tells why, and then the text is shown to the letter."""
    assert expected == read(text, on_malformed="text")
    assert [] == parse(text, on_malformed="text").errors
    assert all(each.raw is None for each in parse(text, on_malformed="text").warnings if each.code != "forged_result")


def test_an_error_of_a_malformed_call() -> None:
    """By default it is hidden, and the error holds its text, its id and a sentence."""
    (found,) = parse(f"a {BAD} b").errors

    assert ["a ", error("invalid_json"), " b"] == read(f"a {BAD} b")
    assert (BAD, None, None) == (found.raw, found.call, found.status)
    assert found.call_id
    assert found.message


@pytest.mark.parametrize("after_call", ["show", "hide", "stop"])
def test_a_malformed_call_that_is_text_hides_nothing_behind_it(after_call: Literal["show", "hide", "stop"]) -> None:
    """What is shown as text is no call, so `after_call` does not begin to count there."""
    result = parse('Say ###:{"name" f} or ###', on_malformed="text", after_call=after_call)

    assert 'Say ###:{"name" f} or ###' == result.content


@pytest.mark.parametrize(
    ("after_call", "content", "hidden"),
    [("show", ' ###:{"x" y} z', []), ("hide", "", [" ", '###:{"x" y}', " z"]), ("stop", " ", [])],
)
def test_a_malformed_call_behind_a_call_is_text_behind_a_call(
    after_call: Literal["show", "hide", "stop"], content: str, hidden: list[str]
) -> None:
    """What becomes of text behind a call becomes of a malformed call there, too, where that is to be text."""
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
        pytest.param(f"{F} ###", [f, HIDDEN], [" ###"], id="what was held is hidden too"),
    ],
)
def test_text_behind_a_call_can_be_hidden(text: str, expected: list[Brief], hidden: list[str]) -> None:
    """With `after_call="hide"` it comes in a warning, before the next call or at the end."""
    assert expected == read(text, after_call="hide")
    found = parse(text, after_call="hide").warnings
    assert hidden == [each.raw for each in found if each.code is Code.HIDDEN_AFTER_CALL]


@together(
    ("text", "expected"),
    [
        pytest.param(f"a {F} b", ["a ", f, " "], id="text behind the call"),
        pytest.param(f"{F} \n\t{F}\n{BLOCK}\nb", [f, " \n\t", f, "\n", f, "\n"], id="calls behind calls are read"),
        pytest.param(f"{F} ###:b {F}", [f, " "], id="half a marker, and a call that is not read"),
    ],
)
@together("reasoning", ["start", "anywhere"])
def test_text_behind_a_call_can_stop_everything(
    text: str, expected: list[Brief], reasoning: Literal["start", "anywhere"]
) -> None:
    """With `after_call="stop"` only white space and other calls are read behind a call."""
    assert expected == read(text, after_call="stop", reasoning=reasoning)


@together("reasoning", ["start", "anywhere"])
@together(
    ("able", "decisive"),
    [(" \n", "<"), ("", "x"), ("##", "x"), ("###", "r"), ("\n~~~tool_", "r"), ("###:", "x")],
    ids=["a reasoning tag", "a letter", "a heading", "a hash result", "a tilde result", "a broken marker"],
)
def test_stop_decides_at_the_first_character_that_begins_no_call(able: str, decisive: str, reasoning: str) -> None:
    """Neither a reasoning tag nor an invented result is a reason to read on."""
    parser = Parser(TAUGHT_DIALECTS, after_call="stop", reasoning="start" if reasoning == "start" else "anywhere")
    stopped = []
    for delta in ('###:{"name":"f"}' + able, decisive):
        parser.feed(delta)
        stopped.append(parser.stopped)

    assert [False, True] == stopped
    assert "" == parser.pending


# trim


@together(
    ("text", "expected"),
    [
        pytest.param(f"a \n{F}\n\n b", ["a", markup(" \n"), f, markup("\n\n "), "b"], id="around a call"),
        pytest.param(
            "a ###result f: {} b", ["a ", warning("forged_result"), " b"], id="a forged result is not next to a call"
        ),
        pytest.param(
            f"<think> a </think> {F}",
            [markup("<think>"), thought(" a "), markup("</think> "), f],
            id="reasoning keeps its white space",
        ),
    ],
)
def test_white_space_next_to_calls_can_be_trimmed(text: str, expected: list[Brief]) -> None:
    """With `trim` it is markup; elsewhere it stays."""
    assert expected == read(text, trim=True, keep_markup=True)
    assert [each for each in expected if each[0] != "markup"] == read(text, trim=True)


def test_white_space_is_not_held_without_end() -> None:
    """More of it than a call may have characters is shown, although a call may follow."""
    text = "a" + " " * 25 + F
    limits = Limits(call=len(F) - 5)
    told = [len(step.fed) for step in steps(text[:-5], trim=True, limits=limits) if brief(step.new)]

    assert [1, 1 + 12, 1 + 24, 26 + len(F) - 4][:3] == told[:3]
    assert ["a" + " " * 24, markup(" ")] == read(text, trim=True, keep_markup=True, limits=limits)[:2]


# strict


def test_strict_refuses_the_only_repair() -> None:
    """A raw line feed in a string is an error with `strict`, and read as itself without."""
    text = '###:{"name":"f","args":{"a":"x\ny"}} b'

    assert [call("f", a="x\ny"), " b"] == read(text)
    assert [error("invalid_json"), " b"] == read(text, strict=True)


# keep_markup
