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
from tests.support.reference import place_behind

CALL = '###:{"name":"f"}'
FENCED_CALL = '~~~tool_call\n{"name":"f"}\n~~~'

CODE = [
    pytest.param("```\n", id="a fence of back-ticks"),
    pytest.param("~~~\n", id="a fence of tildes"),
    pytest.param("```json\n", id="a fence with a language"),
    pytest.param("~~~ a `word` ~~~\n", id="a fence of tildes with anything behind them"),
    pytest.param("   ```\n", id="an indented fence"),
    pytest.param("\t\t```\n", id="a fence behind tabs: indentation alone is not code"),
    pytest.param("- ```\n", id="a fence in a list item"),
    pytest.param("12) - * ```\n", id="a fence in an item of an item of an item"),
    pytest.param("- text\n  ```\n", id="a fence further down in an item"),
    pytest.param("```\n\ntext\n", id="a fence with blank lines"),
    pytest.param("```\r\ntext\r\n", id="a fence in lines of CR LF"),
    pytest.param("````\n```\n", id="a longer fence than what looks like its close"),
    pytest.param("```\n~~~\n", id="a fence of the other character"),
    pytest.param("~~~\n```\n", id="and the other way round"),
    pytest.param("```\n``` x\n", id="a close with text behind it"),
    pytest.param("```\nx ```\n", id="a close with text before it"),
    pytest.param("```\n```\r\r\n", id="a close with two CR"),
    pytest.param("```\n    ```\n", id="a close indented by four columns more"),
    pytest.param("```\n\t```\n", id="a close indented by a tab"),
    pytest.param("  ```\n      ```\n", id="a close indented by four more than the fence"),
    pytest.param("```\n> ```\n", id="a close in a quote"),
    pytest.param("```\n- ```\n", id="a close in a list item"),
    pytest.param("```\n```\n```\n", id="a second fence"),
    pytest.param("> quote\n```\n", id="a fence behind a quote"),
    pytest.param("x ~~~\n~~~\n", id="a fence behind tildes in the middle of a line"),
    pytest.param("~~~tool_callers\n", id="a fence that is no marker"),
    pytest.param("- ~~~tool_call\n", id="a marker where it is none"),
    pytest.param("```", id="the line of a fence, right behind it"),
    pytest.param("~~~", id="the line of a fence of tildes"),
    pytest.param("```json ", id="the line of a fence, further on"),
    pytest.param("`", id="a code span"),
    pytest.param("``", id="a code span of two"),
    pytest.param("text `x ", id="a code span in the middle of a line"),
    pytest.param("``a ` b ", id="a shorter run in a span"),
    pytest.param("`a `` b ", id="a longer run in a span"),
    pytest.param("`a` `", id="a second span"),
    pytest.param("\\\\`", id="two back-slashes before a back-tick"),
    pytest.param("`\\` `", id="a back-slash in a span escapes nothing"),
    pytest.param("    `", id="a span behind indentation"),
    pytest.param("- `", id="a span in an item"),
    pytest.param("-```", id="back-ticks behind a hyphen that is no item"),
    pytest.param("> ", id="a quote"),
    pytest.param(">", id="a quote without a space"),
    pytest.param("   > text ", id="an indented quote"),
    pytest.param("> > ", id="a quote in a quote"),
    pytest.param("- > ", id="a quote in an item"),
    pytest.param("1. 2) + > ", id="a quote in an item of an item"),
    pytest.param("123456789. > ", id="a number of nine digits"),
    pytest.param("-\t> ", id="an item with a tab"),
    pytest.param("> a\n> ", id="the second line of a quote"),
    pytest.param("> ```\n> ", id="a fence in a quote, in the quote"),
]

TEXT = [
    pytest.param("", id="nothing"),
    pytest.param("\n\n", id="blank lines"),
    pytest.param("    ", id="indentation of four"),
    pytest.param("\t", id="a tab"),
    pytest.param("# ", id="a heading"),
    pytest.param("- ", id="an item"),
    pytest.param("> a\n", id="the line behind a quote: a quote does not go on by itself"),
    pytest.param("> a\n  ", id="an indented line behind a quote"),
    pytest.param("a > ", id="a sign that does not begin the line"),
    pytest.param("1234567890. > ", id="a number of ten digits"),
    pytest.param("1.> ", id="a number without a blank"),
    pytest.param("-> ", id="an arrow"),
    pytest.param("**> ", id="emphasis"),
    pytest.param("```\n```\n", id="behind an empty fence"),
    pytest.param("```\nx\n```\n", id="behind a fence"),
    pytest.param("```\nx\n`````\n", id="behind a fence with a longer close"),
    pytest.param("```\nx\n```  \t\n", id="behind a close with blanks"),
    pytest.param("```\r\nx\r\n``` \r\n", id="behind a close with CR LF"),
    pytest.param("```\nx\n   ```\n", id="behind a close indented by three"),
    pytest.param(" ```\nx\n    ```\n", id="behind a close indented by three more than the fence"),
    pytest.param("- ```\n  x\n     ```\n", id="behind a close indented by three more than the fence of an item"),
    pytest.param("- ```\n  x\n```\n", id="behind a close that is indented less"),
    pytest.param("1. ```\n\t```\n", id="behind a close whose tab reaches one column further"),
    pytest.param("~~~\n```\n~~~\n", id="behind a fence with the other character in it"),
    pytest.param("````\n```\n````\n", id="behind a fence with a shorter one in it"),
    pytest.param("```\n`` x\n```\n", id="behind a fence with a shorter run in it"),
    pytest.param("~~ ", id="two tildes"),
    pytest.param("``` a ` b\n", id="the line behind back-ticks with another back-tick: no fence"),
    pytest.param("``` a ```\n", id="the line behind a span of three"),
    pytest.param("x ```\n", id="the line behind back-ticks in the middle of a line"),
    pytest.param("x ~~~\n", id="the line behind tildes in the middle of a line"),
    pytest.param("x ~~~ ", id="behind tildes in the middle of a line"),
    pytest.param("> ```\n", id="the line behind a quote with a fence: it opens nothing outside"),
    pytest.param("> ~~~\n", id="the same with tildes"),
    pytest.param("`a`", id="behind a span"),
    pytest.param("``a`b``", id="behind a span of two"),
    pytest.param("a `b\n", id="the line behind an unpaired back-tick"),
    pytest.param("a ``b` c\r\n", id="the line behind a span that is not closed, with CR LF"),
    pytest.param("\\`", id="behind an escaped back-tick"),
    pytest.param("\\```\n", id="the line behind escaped back-ticks"),
    pytest.param("\\\\\\`", id="three back-slashes before a back-tick"),
    pytest.param("`\\`", id="a back-slash before the close of a span"),
    pytest.param("    \\`", id="an escaped back-tick behind indentation"),
    pytest.param("-```\n", id="the line behind back-ticks behind a hyphen"),
    pytest.param("***\n", id="a rule"),
    pytest.param("- - -\n", id="a rule that looks like items"),
    pytest.param("Title\n---\n", id="an underlined heading"),
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
        pytest.param(f"{CALL}\n```\n{CALL}", [call("f"), f"\n```\n{CALL}"], id="a fence behind a call"),
        pytest.param(f"{CALL}```\n{CALL}", [call("f"), "```\n", call("f")], id="behind a call no line begins"),
        pytest.param(f"{CALL}> {CALL}", [call("f"), "> ", call("f")], id="a sign behind a call is no quote"),
        pytest.param(f"{FENCED_CALL}> {CALL}", [call("f"), "> ", call("f")], id="nor behind a fenced one"),
        pytest.param(f"{FENCED_CALL}\n> {CALL}", [call("f"), f"\n> {CALL}"], id="a quote on the next line"),
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
        pytest.param(
            f"` {FENCED_CALL}", [f"` {FENCED_CALL}"], id="in a span no line begins, so the other marker does not count"
        ),
        pytest.param(f"```\n{FENCED_CALL}\n```", ["```\n", call("f"), "\n```"], id="a fence around a fence"),
        pytest.param(f"~~~\n{FENCED_CALL}\n~~~\n", ["~~~\n", call("f"), "\n~~~\n"], id="tildes around tildes"),
        pytest.param(f"> {CALL}", ["> ", call("f")], id="in a quote"),
        pytest.param(f"> {FENCED_CALL}", [f"> {FENCED_CALL}"], id="in a quote no line begins"),
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
    place = place_behind(before)
    apart = not place.after.isalnum()
    result = parse(before + CALL)

    assert (apart and not place.in_code) == bool(result.calls)
    assert (place.line_start and not place.in_code) == bool(parse(before + FENCED_CALL).calls)
