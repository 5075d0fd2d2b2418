"""Tests of the Markdown context, found line by line and without look-ahead. Each row is a text before a call."""

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
    """With `in_code="call"`, it is a call."""
    text = before + CALL

    assert [text] == read(text)
    assert [before, call("f")] == read(text, in_code="call")


@together("before", TEXT)
def test_a_call_outside_of_code_and_quotes_is_a_call(before: str) -> None:
    assert [*filter(None, [before]), call("f")] == read(before + CALL)


@together(
    ("text", "expected"),
    [
        pytest.param(f"`a` {CALL} `b` {CALL}", ["`a` ", call("f"), " `b` ", call("f")], id="spans around a call"),
        pytest.param(f"{CALL} ` {CALL}", [call("f"), f" ` {CALL}"], id="a back-tick after a call"),
        pytest.param(
            '###:{"name": x\n\n> ' + CALL, [("error", "invalid_json"), f"\n> {CALL}"], id="after a blank line"
        ),
    ],
)
def test_the_markdown_line_continues_after_a_call(text: str, expected: list[object]) -> None:
    assert expected == read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"` {CALL} ` {CALL}", ["` ", call("f"), " ` ", call("f")], id="a span continues after its call"),
        pytest.param(f"```\n{FENCED_CALL}\n```", ["```\n", call("f"), "\n```"], id="a fence around a fence"),
        pytest.param(f"~~~\n{FENCED_CALL}\n~~~\n", ["~~~\n", call("f"), "\n~~~\n"], id="tildes around tildes"),
    ],
)
def test_in_code_call_reads_fenced_calls(text: str, expected: list[object]) -> None:
    """Some models put each call into a fence."""
    assert expected == read(text, in_code="call")


def test_markdown_characters_are_shown_immediately() -> None:
    """Back-ticks, quotes, list markers and lone tildes within a line."""
    text = "> a\n- b\n```\n~~~\n```\nc ~~ `d` \\` 1. 2)\n~"
    taken = [*steps(text, dialects=TAUGHT_DIALECTS)]

    assert [*text[:-1]] == [each for step in taken for each in brief(step.new)]
    assert "~" == taken[-1].pending


def test_a_line_feed_is_pending_while_it_may_belong_to_an_opener() -> None:
    """Until the next character arrives, and only outside of fences. No other text is pending."""
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
    after = [end - 1 for end in accumulate(map(len, lines))]

    assert [*lines.values()] == [held[at] for at in after]
    assert not any(each for at, each in enumerate(held) if at not in after)


_PIECES = (
    "`", "``", "```", "````", "~~~", "~~~~", "~~", "\n", "\n", "\n", "\r\n", " ", "    ", "\t", ">", "> ", "- ", "-",
    "* ", "1. ", "12) ", "1234567890. ", "\\", "\\\\", "x", "word ", "\r", "json", "+", ".",
)  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=16).map("".join))
def test_the_fast_search_finds_the_same_context_as_reading_step_by_step(before: str) -> None:
    place = place_after(before)
    apart = not place.after.isalnum()
    result = parse(before + CALL)

    assert (apart and not place.in_code) == bool(result.calls)
    assert (place.line_start and not place.in_code) == bool(parse(before + FENCED_CALL).calls)
