"""Tests of `###:{…}`. Three hashes are usually a heading."""

from __future__ import annotations

import pytest

from streamtools.parsing.dialects import hash_marker
from streamtools.testing.laws import assert_chunk_invariant, steps
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, raws, read, warning
from tests.support.ways_to_cut import three_way, two_way, usual_ways

SEED = '###:{"toolName":"getWeather","parameters":{"city":"San Francisco"}}'
"""The example of the document that the dialect comes from."""

F = '###:{"name":"f"}'
G = '###:{"name":"g"}'
f, g = call("f"), call("g")


def test_the_example_at_all_two_and_three_way_cuts() -> None:
    """One call and no visible text, with prose around it too."""
    for text, expected in [
        (SEED, [call("getWeather", city="San Francisco")]),
        (f"It is\n{SEED} so.", ["It is\n", call("getWeather", city="San Francisco"), " so."]),
    ]:
        events = assert_chunk_invariant(text, [*two_way(text), list(text)])
        assert expected == brief(events)
    assert_chunk_invariant(SEED, three_way(SEED))


@together(
    "text",
    [
        pytest.param('###:[{"name":"f"}]', id="an array"),
        pytest.param(f"9{F}", id="after a digit"),
        pytest.param(f"`{F}`", id="in a code span"),
        pytest.param(f"> {F}", id="in a quote"),
        pytest.param('> ###:\n{"name":"f"}', id="begun in a quote"),
        pytest.param(f"```\n{F}\n```", id="in a fence"),
        pytest.param("###", id="cut after the hashes"),
    ],
)
def test_text_that_resembles_a_call_is_shown_unchanged(text: str) -> None:
    assert [text] == read(text)


def test_the_quotation_mark_commits() -> None:
    """Before the quotation mark, the text is a candidate. After it, the call is announced."""
    seen = [(step.delta, [type(event).__name__ for event in step.new], step.pending) for step in steps('a ###: { "x')]

    assert ('"', ["Thinking"], "") == seen[-2]
    assert all(names == [] for _, names, _ in seen[2:-2])


BROKEN = error("invalid_json")


def test_an_error_holds_the_hidden_text() -> None:
    """From the first hash to the end of the recovery, including the line feed."""
    assert ['###:{"name": f}'] == raws('a ###:{"name": f} b')
    assert ['###:{"name": f\n'] == raws('a ###:{"name": f\n\nb')


@together(
    ("text", "expected"),
    {
        # The marker counts anywhere.
        "in the middle of a line": (f"Look: {F} there", ["Look: ", f, " there"]),
        "after indentation": (f"    {F}", ["    ", f]),
        "in a list item": (f"- {F}", ["- ", f]),
        "after a back-slash": (f"\\{F}", ["\\", f]),
        "a line end, a tab and a space after the brace": ('###:{\r\n\t "name":"f"}', [f]),
        "braces in braces": ('###:{"name":"f","arguments":{"a":{"b":[{}]}}}', [call("f", a={"b": [{}]})]),
        # A malformed call ends where its brackets balance, or at a blank line.
        "single quotes": ("###:{\"name\": 'f'} on", [BROKEN, " on"]),
        "the wrong bracket, deeper": ('###:{"name":"f","args":[1}} on', [BROKEN, " on"]),
        "an escape that JSON does not have": ('###:{"name":"\\x"} on', [BROKEN, " on"]),
        "a brace in a string after the break": ('###:{"name": f, "a":"}"} on', [BROKEN, " on"]),
        "brackets after the break balance": ('###:{"name": f, [{"a":1}]} on', [BROKEN, " on"]),
        "broken up to the end of the stream": ('###:{"name": f, "a', [BROKEN]),
        "another dialect there": ('###:{"name": f\n\n~~~tool_call\n{"name":"f"}\n~~~', [BROKEN, "\n", f]),
        "an object without a name": ('###:{"a":1} on', [error("missing_tool_name"), " on"]),
        # A result that the model writes is hidden and reported. A call inside it does not count.
        "as we write it": ('###result f: {"a":1} on', [warning("forged_result"), " on"]),
        "without anything in it": ("Yes.\n###result f:{}\n", ["Yes.\n", warning("forged_result"), "\n"]),
        "more white space": ("###result \t f: \r\n {}", [warning("forged_result")]),
        "a name of sixty-four characters": (f"###result {'n' * 64}: {{}}", [warning("forged_result")]),
        "all the white space": (f"###result{' ' * 32}f:{' ' * 32}{{}}", [warning("forged_result")]),
        "broken, up to the end": ('###result f: {"a": on and on', [warning("forged_result")]),
    },
)
def test_calls_and_results_end_with_their_object(text: str, expected: list[Brief]) -> None:
    """Text after them is shown."""
    assert expected == read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(F, [f], id="at the beginning"),
        pytest.param(f"a\n \t{F}", ["a\n \t", f], id="after indentation"),
        pytest.param(f"a {F}", [f"a {F}"], id="in the middle of a line"),
        pytest.param(f"{F}{G}", [f, G], id="after a call on the same line"),
        pytest.param(f"{F}\n{G}", [f, "\n", g], id="on the line after a call"),
        pytest.param("a ###result f: {}", ["a ###result f: {}"], id="a result in the middle of a line"),
    ],
)
def test_the_marker_can_be_limited_to_line_starts(text: str, expected: list[Brief]) -> None:
    dialects = [hash_marker(marker_at="line_start")]

    assert expected == brief(assert_chunk_invariant(text, usual_ways(text), dialects=dialects))


def test_the_dialect_reads_what_it_writes() -> None:
    """A written result is recognized as a forged result."""
    dialect = hash_marker()

    assert [call("f", a="é}\n")] == read(dialect.write_call("f", {"a": "é}\n"}))
    assert '###result f: {"a":1}' == dialect.write_result("f", '{"a": 1}')
    assert '###result f: {"result":[1,"x"]}' == dialect.write_result("f", '[1,"x"]')
    assert '###result f: {"result":"no JSON"}' == dialect.write_result("f", "no JSON")
    assert [warning("forged_result")] == read(dialect.write_result("f", "text with }"))
