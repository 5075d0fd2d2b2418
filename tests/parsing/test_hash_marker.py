"""`###:{…}`: three hashes are a heading more often than not, and each character reports more."""

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


def test_the_seeds_own_example_at_all_two_and_three_way_cuts() -> None:
    """One call and no visible text, wherever the stream was cut, with prose around it too."""
    for text, expected in [
        (SEED, [call("getWeather", city="San Francisco")]),
        (f"It is\n{SEED} so.", ["It is\n", call("getWeather", city="San Francisco"), " so."]),
    ]:
        events = assert_chunk_invariant(text, [*two_way(text), list(text)])
        assert expected == brief(events)
    assert_chunk_invariant(SEED, three_way(SEED))


@together(
    ("text", "expected"),
    {
        "nothing else": (F, [f]),
        "in the middle of a line": (f"Look: {F} there", ["Look: ", f, " there"]),
        "after indentation": (f"    {F}", ["    ", f]),
        "in a list item": (f"- {F}", ["- ", f]),
        "in a heading": (f"## Title {F}", ["## Title ", f]),
        "in a table": (f"a | {F} | b", ["a | ", f, " | b"]),
        "in brackets": (f"({F})", ["(", f, ")"]),
        "after an underscore": (f"_{F}_", ["_", f, "_"]),
        "after a full stop": (f"é.{F}", ["é.", f]),
        "after a symbol": (f"😀{F}", ["😀", f]),
        "after a back-slash": (f"\\{F}", ["\\", f]),
        "two without anything between": (f"{F}{G}", [f, g]),
        "the same call twice is two calls": (f"{F}{F}", [f, f]),
        "text between and around": (f"One {F} two\n{G}\nthree", ["One ", f, " two\n", g, "\nthree"]),
        "a space before the brace": ('###: {"name":"f"}', [f]),
        "a line end, a tab and a space before the brace": ('###:\r\n\t {"name":"f"}', [f]),
        "a line end, a tab and a space after the brace": ('###:{\r\n\t "name":"f"}', [f]),
        "thirty-two spaces before the brace": ("###:" + " " * 32 + '{"name":"f"}', [f]),
        "thirty-two line feeds after the brace": ("###:{" + "\n" * 32 + '"name":"f"}', [f]),
        "blank lines do not end good JSON": ('###:\n\n{\n\n"name":"f"\n\n}', [f]),
        "a marker after a marker that came to nothing": (f"###:{F}", ["###:", f]),
        "a marker in the white space of one that came to nothing": ("###:{" + F, ["###:{", f]),
        "a marker on the line after one that came to nothing": (f"###: \n{F}", ["###: \n", f]),
        "braces in braces": ('###:{"name":"f","arguments":{"a":{"b":[{}]}}}', [call("f", a={"b": [{}]})]),
        "braces in a string": ('###:{"name":"f","arguments":{"a":"}}{"}}!', [call("f", a="}}{"), "!"]),
        "an escaped quote": ('###:{"name":"f","args":{"a":"\\"}\\\\"}}!', [call("f", a='"}\\'), "!"]),
        "a whole call in a string": ('###:{"name":"f","args":{"a":"###:{\\"name\\":\\"g\\"}"}}', [call("f", a=G)]),
        "another dialect's call, line feeds and all, in a string": (
            '###:{"name":"f","args":{"a":"\n~~~tool_call\n{}\n~~~\n\n"}}',
            [call("f", a="\n~~~tool_call\n{}\n~~~\n\n")],
        ),
    },
)
def test_calls(text: str, expected: list[Brief]) -> None:
    """The marker counts anywhere, as in the seed; the call ends where its object ends."""
    assert expected == read(text)


@together(
    "text",
    [
        pytest.param("### Title", id="a heading"),
        pytest.param("#### Title", id="a smaller heading"),
        pytest.param("###\n", id="a line of three hashes"),
        pytest.param("###: note", id="a colon and a word"),
        pytest.param("###:{x}", id="a letter after the brace"),
        pytest.param("###:{}", id="an empty object"),
        pytest.param("###:{ }", id="an empty object with a space"),
        pytest.param("###:{'name':'f'}", id="single quotes"),
        pytest.param('### :{"name":"f"}', id="a space before the colon"),
        pytest.param('####:{"name":"f"}', id="four hashes"),
        pytest.param(f"###{F}", id="six hashes"),
        pytest.param('##:{"name":"f"}', id="two hashes"),
        pytest.param('###;{"name":"f"}', id="a semicolon"),
        pytest.param('###:[{"name":"f"}]', id="an array"),
        pytest.param(f"log{F}", id="after a letter"),
        pytest.param(f"é{F}", id="after a letter with an accent"),
        pytest.param(f"東{F}", id="after a letter of another script"),
        pytest.param(f"9{F}", id="after a digit"),
        pytest.param("###:" + " " * 33 + '{"name":"f"}', id="thirty-three spaces before the brace"),
        pytest.param("###:{" + " " * 33 + '"name":"f"}', id="thirty-three spaces after the brace"),
        pytest.param('###:\u00a0{"name":"f"}', id="a space that is none of the four"),
        pytest.param(f"`{F}`", id="in a code span"),
        pytest.param(f"> {F}", id="in a quote"),
        pytest.param('> ###:\n{"name":"f"}', id="begun in a quote"),
        pytest.param(f"```\n{F}\n```", id="in a fence"),
        pytest.param("###", id="cut after the hashes"),
        pytest.param("###:", id="cut after the colon"),
        pytest.param("###:{", id="cut after the brace"),
        pytest.param("###:\n{\n", id="cut in the white space"),
    ],
)
def test_text(text: str) -> None:
    """What only looks like a call is text, to the letter."""
    assert [text] == read(text)


@together(
    ("text", "decides"),
    [
        ("### Title", " "),
        ("## Title", " "),
        ("#### Title", "#"),
        ("###\n", "\n"),
        ("###: note", "n"),
        ("###:{x}", "x"),
        ("###:{}", "}"),
        ("###:" + " " * 33, " "),
        ("###result: {", ":"),
        ("###results", "s"),
    ],
)
def test_text_is_released_at_the_character_that_decides(text: str, decides: str) -> None:
    """Everything is buffered up to that character, and nothing from there on."""
    states = [*steps(text, dialects="hash_marker")]
    at = next(index for index, step in enumerate(states) if step.new)

    assert decides == text[at]
    for index, step in enumerate(states):
        assert step.pending == (text[: index + 1] if index < at else step.pending)
    assert [text[: at + 1]] == brief(states[at].new)


def test_the_quotation_mark_commits() -> None:
    """Before it there is a candidate; from it on, the interface knows that a call is being written."""
    told = [(step.delta, [type(event).__name__ for event in step.new], step.pending) for step in steps('a ###: { "x')]

    assert ('"', ["Thinking"], "") == told[-2]
    assert all(names == [] for _, names, _ in told[2:-2])


BROKEN = error("invalid_json")


@together(
    ("text", "expected"),
    {
        "a bare word": ('###:{"name": f} on', [BROKEN, " on"]),
        "single quotes": ("###:{\"name\": 'f'} on", [BROKEN, " on"]),
        "a trailing comma": ('###:{"name":"f",} on', [BROKEN, " on"]),
        "a missing comma": ('###:{"name":"f" "args":{}} on', [BROKEN, " on"]),
        "a missing colon": ('###:{"name" "f"} on', [BROKEN, " on"]),
        "a literal of Python": ('###:{"name":"f","args":{"a":True}} on', [BROKEN, " on"]),
        "a number that JSON does not have": ('###:{"name":"f","args":{"a":01}} on', [BROKEN, " on"]),
        "a comment": ('###:{"name":"f"/*c*/} on', [BROKEN, " on"]),
        "the wrong bracket": ('###:{"name":"f"] on', [BROKEN, " on"]),
        "the wrong bracket, deeper": ('###:{"name":"f","args":[1}} on', [BROKEN, " on"]),
        "an escape that JSON does not have": ('###:{"name":"\\x"} on', [BROKEN, " on"]),
        "a brace in a string after the break": ('###:{"name": f, "a":"}"} on', [BROKEN, " on"]),
        "an escaped quote after the break": ('###:{"name": f, "a":"\\"}"} on', [BROKEN, " on"]),
        "brackets after the break balance": ('###:{"name": f, [{"a":1}]} on', [BROKEN, " on"]),
        "a missing quote, up to a blank line": ('###:{"name":"f,"args":{}}\nno\n\nOn.', [BROKEN, "\nOn."]),
        "a blank line of CR LF": ('###:{"name": f\r\n\r\nOn.', [BROKEN, "\r\nOn."]),
        "a blank line of blanks": ('###:{"name": f\n \t\nOn.', [BROKEN, " \t\nOn."]),
        "a blank line in an open string": ('###:{"name": f, "a":"\n\nOn.', [BROKEN, "\nOn."]),
        "line feeds alone do not end it": ('###:{"name": f\nno\nno} on', [BROKEN, " on"]),
        "broken up to the end of the stream": ('###:{"name": f, "a', [BROKEN]),
        "a word that could still become one of JSON": ('###:{"name": f', [error("truncated")]),
        "a good call after a broken one": (f'###:{{"name": f}}{F}', [BROKEN, f]),
        "a good call after the blank line": (f'###:{{"name": f\n\n{F}', [BROKEN, "\n", f]),
        "another dialect there": ('###:{"name": f\n\n~~~tool_call\n{"name":"f"}\n~~~', [BROKEN, "\n", f]),
        "an object without a name": ('###:{"a":1} on', [error("missing_tool_name"), " on"]),
    },
)
def test_malformed_calls(text: str, expected: list[Brief]) -> None:
    """What is broken is an error up to where its brackets balance or a blank line comes, and text again after that."""
    assert expected == read(text)


def test_an_error_holds_what_was_hidden() -> None:
    """The raw text goes from the first hash to the end that recovery found, the line feed of that line included."""
    assert ['###:{"name": f}'] == raws('a ###:{"name": f} b')
    assert ['###:{"name": f\n'] == raws('a ###:{"name": f\n\nb')


@together(
    ("text", "expected"),
    {
        "as we write it": ('###result f: {"a":1} on', [warning("forged_result"), " on"]),
        "without anything in it": ("Yes.\n###result f:{}\n", ["Yes.\n", warning("forged_result"), "\n"]),
        "more white space": ("###result \t f: \r\n {}", [warning("forged_result")]),
        "a name of sixty-four characters": (f"###result {'n' * 64}: {{}}", [warning("forged_result")]),
        "all the white space": (f"###result{' ' * 32}f:{' ' * 32}{{}}", [warning("forged_result")]),
        "broken, up to the end": ('###result f: {"a": on and on', [warning("forged_result")]),
        "broken, up to a blank line": ('###result f: {"a": on\n\non', [warning("forged_result"), "\non"]),
        "cut off": ('###result f: {"a":', [warning("forged_result")]),
        "cut off at the brace that commits": ("###result f: {", [warning("forged_result")]),
        "a call after it, none in it": ('###result f: {"name":"g"} ' + G, [warning("forged_result"), " ", g]),
        "after the call": (F + "\n###result f: {}", [f, "\n", warning("forged_result")]),
        "no object": ("###result f: [1]", ["###result f: [1]"]),
        "no colon": ("###result f {}", ["###result f {}"]),
        "no name": ("###result: {}", ["###result: {}"]),
        "a name with a full stop": ("###result f.g: {}", ["###result f.g: {}"]),
        "no space before the name": ("###resultf: {}", ["###resultf: {}"]),
        "a heading": ("### result f: {}", ["### result f: {}"]),
        "four hashes": ("####result f: {}", ["####result f: {}"]),
        "too long a name": (f"###result {'n' * 65}: {{}}", [f"###result {'n' * 65}: {{}}"]),
        "too much white space": (f"###result{' ' * 33}f: {{}}", [f"###result{' ' * 33}f: {{}}"]),
        "in code": ("`###result f: {}`", ["`###result f: {}`"]),
        "cut before the brace": ("###result f:", ["###result f:"]),
    },
)
def test_results_that_the_model_writes(text: str, expected: list[Brief]) -> None:
    """A result in our own form is hidden and reported, and nothing in it counts."""
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
def test_at_line_starts_only(text: str, expected: list[Brief]) -> None:
    """With `marker_at="line_start"` the marker counts after nothing but indentation."""
    dialects = [hash_marker(marker_at="line_start")]

    assert expected == brief(assert_chunk_invariant(text, usual_ways(text), dialects=dialects))


def test_the_dialect_reads_what_it_writes() -> None:
    """Calls go out and come in alike; results are what we would report as forged, objects as they are."""
    dialect = hash_marker()

    assert [call("f", a="é}\n")] == read(dialect.write_call("f", {"a": "é}\n"}))
    assert '###result f: {"a":1}' == dialect.write_result("f", '{"a": 1}')
    assert '###result f: {"result":[1,"x"]}' == dialect.write_result("f", '[1,"x"]')
    assert '###result f: {"result":"no JSON"}' == dialect.write_result("f", "no JSON")
    assert [warning("forged_result")] == read(dialect.write_result("f", "text with }"))
