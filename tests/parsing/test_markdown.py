"""What is code or a quote, decided line by line and without look-ahead.

Each row is a text before a call. In code and in quotes the call is text; behind them it is a call.
"""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import parse
from streamtools.parsing.dialects import TAUGHT_DIALECTS
from streamtools.testing.laws import steps
from tests.support.cases import together
from tests.support.reading import brief, call, read
from tests.support.reference import place_after

CALL = '###:{"name":"f"}'
FENCED_CALL = '~~~tool_call\n{"name":"f"}\n~~~'

CODE = [
    pytest.param("```\n", id="a fence of back-ticks"),
    pytest.param("~~~\n", id="a fence of tildes"),
    pytest.param("   ```\n", id="an indented fence"),
    pytest.param("```\n~~~\n", id="a fence of the other character"),
    pytest.param("``a ` b ", id="a shorter run in a span"),
]

TEXT = [
    pytest.param("\n\n", id="blank lines"),
    pytest.param("1.> ", id="a number without a blank"),
    pytest.param("~~ ", id="two tildes"),
    pytest.param("<pre>\n", id="markup: not looked at"),
]


@together("before", CODE)
def test_a_call_in_code_or_in_a_quote_is_text(before: str) -> None:
    """Nothing of it is hidden, by default; with `in_code="call"` it is a call."""
    text = before + CALL

    assert [text] == read(text)
    assert [before, call("f")] == read(text, in_code="call")


@together("before", TEXT)
def test_a_call_elsewhere_is_a_call(before: str) -> None:
    """Whatever came before, and whatever it looked like."""
    assert [*filter(None, [before]), call("f")] == read(before + CALL)


@together("before", [each for each in [*CODE, *TEXT] if str(each.values[0]).endswith("\n")])
def test_both_dialects_see_the_same(before: str) -> None:
    """At a line start the other dialect's call counts exactly where this one's does."""
    inline, fenced = parse(before + CALL), parse(before + FENCED_CALL)

    assert len(inline.calls) == len(fenced.calls)


@together(
    ("text", "expected"),
    [
        pytest.param(f"`a` {CALL} `b` {CALL}", ["`a` ", call("f"), " `b` ", call("f")], id="spans around a call"),
        pytest.param(f"{CALL} ` {CALL}", [call("f"), f" ` {CALL}"], id="a back-tick behind a call"),
        pytest.param(
            '###:{"name": x\n\n> ' + CALL, [("error", "invalid_json"), f"\n> {CALL}"], id="behind a blank line"
        ),
    ],
)
def test_markdown_goes_on_behind_a_call(text: str, expected: list[object]) -> None:
    """A call is not visible, and yet its line is not a new one behind it."""
    assert expected == read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"` {CALL} ` {CALL}", ["` ", call("f"), " ` ", call("f")], id="a span goes on behind its call"),
        pytest.param(f"```\n{FENCED_CALL}\n```", ["```\n", call("f"), "\n```"], id="a fence around a fence"),
        pytest.param(f"~~~\n{FENCED_CALL}\n~~~\n", ["~~~\n", call("f"), "\n~~~\n"], id="tildes around tildes"),
    ],
)
def test_calls_in_code(text: str, expected: list[object]) -> None:
    """Some models fence every call; for them `in_code="call"`."""
    assert expected == read(text, in_code="call")


def test_what_can_only_become_markdown_is_shown_at_once() -> None:
    """Back-ticks, quotes, list markers and lone tildes in a line decide nothing that is not visible already."""
    text = "> a\n- b\n```\n~~~\n```\nc ~~ `d` \\` 1. 2)\n~"
    taken = [*steps(text, dialects=TAUGHT_DIALECTS)]

    assert [*text[:-1]] == [each for step in taken for each in brief(step.new)]
    assert "~" == taken[-1].pending


def test_a_line_feed_is_held_where_it_may_belong_to_an_opener() -> None:
    """By default it may, outside of fences: until the next character says what follows. Nothing else is held here."""
    lines = {
        "> a\n": "\n",
        "```\n": "",
        "in a fence\n": "",
        "~~~\n": "",
        "```\r\n": "\n",
        "c ~~ `d` 1. 2)\n": "\n",
        "- e\n": "\n",
    }
    held = [step.pending for step in steps("".join(lines))]
    behind = [end - 1 for end in accumulate(map(len, lines))]

    assert [*lines.values()] == [held[at] for at in behind]
    assert not any(each for at, each in enumerate(held) if at not in behind)


_PIECES = (
    "`", "``", "```", "````", "~~~", "~~~~", "~~", "\n", "\n", "\n", "\r\n", " ", "    ", "\t", ">", "> ", "- ", "-",
    "* ", "1. ", "12) ", "1234567890. ", "\\", "\\\\", "x", "word ", "\r", "json", "+", ".",
)  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=16).map("".join))
def test_the_context_is_what_reading_by_lines_finds(before: str) -> None:
    """Followed character by character or read line by line, Markdown gives every place the same meaning."""
    place = place_after(before)
    apart = not place.after.isalnum()
    result = parse(before + CALL)

    assert (apart and not place.in_code) == bool(result.calls)
    assert (place.line_start and not place.in_code) == bool(parse(before + FENCED_CALL).calls)
