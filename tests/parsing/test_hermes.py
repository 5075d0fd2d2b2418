"""Tests of `<tool_call>{…}</tool_call>`."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import Limits, Parser
from streamtools.testing.laws import assert_chunk_invariant
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, markup, raws, thought, warning
from tests.support.reading import read as read_with
from tests.support.ways_to_cut import usual_ways

HERMES = ["hermes_json"]
F = '<tool_call>{"name":"f"}</tool_call>'
G = '<tool_call>{"name":"g"}</tool_call>'
f, g = call("f"), call("g")
BROKEN, CUT, UNCLOSED = error("invalid_json"), error("truncated"), warning("missing_close")


def read(text: str, **options: Any) -> list[Brief]:
    """Return what the dialect reads in `text`, after checking all laws."""
    return read_with(text, dialects=HERMES, **options)


def test_nothing_is_reported_before_the_closing_tag_is_complete() -> None:
    parser = Parser(HERMES)
    parser.feed('<tool_call>{"name":"f"}')

    assert [[]] * 11 == [parser.feed(char) for char in "</tool_call"]
    assert ["call", "thinking"] == [event.type for event in parser.feed(">")]
    assert [F] == [each.raw for each in parser.calls]


@together("length", range(len(F) - 14, len(F) + 1))
def test_a_limit_in_a_closing_tag_does_not_depend_on_cuts(length: int) -> None:
    text = f"{F} and {G}"
    assert_chunk_invariant(text, usual_ways(text), dialects=HERMES, limits=Limits(call=length))


@together(
    "text",
    [
        pytest.param("<tool_call", id="half of the tag"),
        pytest.param("<tool_call><function=f></function></tool_call>", id="a tag in it: another dialect's"),
        pytest.param('<tool_call\n>{"name":"f"}', id="a line feed in the tag"),
        pytest.param(f"`{F}`", id="in a code span"),
        pytest.param(f"```\n{F}\n```", id="in a fence"),
        pytest.param(f"> {F}", id="in a quote"),
    ],
)
def test_text_that_resembles_a_call_is_shown_unchanged(text: str) -> None:
    assert [text] == [each for each in read(text) if isinstance(each, str)]


@together(
    ("body", "expected"),
    {
        "an array whose last call is broken": ('[{"name":"f"},{"name":g}]', [f, BROKEN]),
        "an empty array": ("[]", [error("unrecognised_tool_call")]),
        "an array of numbers": ("[1]", [error("unrecognised_tool_call")]),
        "the same key twice": ('{"name":"f","name":"f"}', [error("duplicate_key")]),
        "single quotes": ("{'name':'f'}", [BROKEN]),
        "no quotes": ("{name:f}", [BROKEN]),
    },
)
def test_a_malformed_call_ends_at_the_closing_tag(body: str, expected: list[Brief]) -> None:
    """Text and calls follow."""
    assert ["a", *expected, " b", g] == read(f"a<tool_call>{body}</tool_call> b{G}")


@together(
    ("text", "expected"),
    {
        # One or several values.
        "nothing else": (F, [f]),
        "on lines of its own": ('<tool_call>\n{"name":"f"}\n</tool_call>', [f]),
        "a string of JSON": ('<tool_call>{"name":"f","arguments":"{\\"a\\":1}"}</tool_call>', [call("f", a=1)]),
        "OpenAI's form": ('<tool_call>{"type":"function","function":{"name":"f","arguments":{}}}</tool_call>', [f]),
        "after reasoning": (f"<think>Hm.</think>\n\n{F}", [thought("Hm."), f]),
        "another opening tag at the end": (f"{F}<tool_call>", [f, error("truncated")]),
        # An opening tag ends a call that is not closed. After malformed JSON, only one at the start of a line does.
        "after a whole object": (f'<tool_call>{{"name":"f"}}\n{G}', [f, UNCLOSED, g]),
        "on the same line": (f'<tool_call>{{"name":"f"}}{G}', [f, UNCLOSED, g]),
        "after a blank line": (f'<tool_call>[{{"name":"f"}}]\n\n{G}', [f, UNCLOSED, g]),
        "after broken JSON": (f'<tool_call>{{"name":f}}\n{G}', [BROKEN, g]),
        "after a brace too many, indented": (f'<tool_call>{{"name":"f"}}}}\n \t{G}', [BROKEN, g]),
        "the next tag is another dialect's": ('<tool_call>{"name":"f"}<tool_call>f', [f, UNCLOSED, "<tool_call>f"]),
        # At the end, only the closing tag may be missing.
        "after the brace": ('<tool_call>{"name":"f"}', [f, UNCLOSED]),
        "after a line feed": ('<tool_call>{"name":"f"}\n', [f, UNCLOSED]),
        "in the closing tag": ('<tool_call>{"name":"f"}</tool_', [f, UNCLOSED]),
        "in an array, after a call": ('<tool_call>[{"name":"f"}', [f, UNCLOSED]),
        "before the last brace": ('<tool_call>{"name":"f","arguments":{"a":1}', [CUT]),
        "after prose in the tag": ('<tool_call>{"name":"f"} on and on', [BROKEN]),
    },
)
def test_json_stands_between_the_tags(text: str, expected: list[Brief]) -> None:
    """The first character of the body commits. A call that is cut off never runs."""
    assert expected == read(text)


def test_calls_divide_the_text_of_their_tag() -> None:
    """The line feed of the template before the tag is markup."""
    tag = '<tool_call>\n{"name":"f"}\n{"name":"g"}\n</tool_call>'

    assert ['<tool_call>\n{"name":"f"}', '{"name":"g"}\n</tool_call>'] == raws(f"a\n{tag}\nb", dialects=HERMES)
    assert ["a", markup("\n"), f, markup("\n"), g, "\nb"] == brief(
        assert_chunk_invariant(f"a\n{tag}\nb", [list(f"a\n{tag}\nb")], dialects=HERMES, keep_markup=True)
    )
