"""`<tool_call>{…}</tool_call>`: what opens it, what may stand in the tag, what becomes of it where it is not closed."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import Limits, Parser, parse
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import assert_chunk_invariant, steps
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, markup, raws, thought, warning
from tests.support.reading import read as read_with
from tests.support.ways_to_cut import every_way, usual_ways

HERMES = ["hermes_json"]
F = '<tool_call>{"name":"f"}</tool_call>'
G = '<tool_call>{"name":"g"}</tool_call>'
f, g = call("f"), call("g")
BROKEN, CUT, UNCLOSED = error("invalid_json"), error("truncated"), warning("missing_close")


def read(text: str, **options: Any) -> list[Brief]:
    """Return what the dialect reads in `text`, after all laws were seen to hold."""
    return read_with(text, dialects=HERMES, **options)


def test_a_closing_tag_is_waited_for() -> None:
    """It may come a character at a time, and nothing is told before it is all there; or it turns out to be none."""
    parser = Parser(HERMES)
    parser.feed('<tool_call>{"name":"f"}')

    assert [[]] * 11 == [parser.feed(char) for char in "</tool_call"]
    assert ["call", "thinking"] == [event.type for event in parser.feed(">")]
    assert [F] == [each.raw for each in parser.calls]


@together("length", range(len(F) - 14, len(F) + 1))
def test_a_limit_in_a_closing_tag(length: int) -> None:
    """It is met at the same character however the text is cut."""
    text = f"{F} and {G}"
    assert_chunk_invariant(text, usual_ways(text), dialects=HERMES, limits=Limits(call=length))


@together(
    ("text", "expected"),
    [
        pytest.param(F, [f], id="nothing else"),
        pytest.param('<tool_call>\n{"name":"f"}\n</tool_call>', [f], id="on lines of its own"),
        pytest.param('<tool_call> \t\r\n{"name":"f"} \r\n </tool_call>', [f], id="any white space in the tag"),
        pytest.param(f'<tool_call>{" " * 32}{{"name":"f"}}</tool_call>', [f], id="thirty-two spaces"),
        pytest.param('<tool_call>{"name":"f"}\n\n\n</tool_call>', [f], id="blank lines before the closing tag"),
        pytest.param(f"Look: {F} there", ["Look: ", f, " there"], id="in the middle of a line"),
        pytest.param(f"Look:\n{F}\nthere", ["Look:", f, "\nthere"], id="the line feed before it is the template's"),
        pytest.param(f"Look:\n\n{F}", ["Look:\n", f], id="one line feed only"),
        pytest.param(f"{F}{G}", [f, g], id="two without anything between"),
        pytest.param(f"{F}\n{G}", [f, g], id="two on two lines"),
        pytest.param(f"{F}\n\nThen\n{F}", [f, "\n\nThen", f], id="the same call twice is two calls"),
        pytest.param('<tool_call>{"name":"f"}{"name":"g"}</tool_call>', [f, g], id="two objects in one tag"),
        pytest.param('<tool_call>\n{"name":"f"}\n{"name":"g"}\n</tool_call>', [f, g], id="objects on two lines"),
        pytest.param('<tool_call>[{"name":"f"},{"name":"g"}]</tool_call>', [f, g], id="an array"),
        pytest.param('<tool_call>[{"name":"f"}]{"name":"g"}</tool_call>', [f, g], id="an array and an object"),
        pytest.param(
            '<tool_call>{"arguments":{"a":1},"name":"f"}</tool_call>', [call("f", a=1)], id="the arguments first"
        ),
        pytest.param(
            '<tool_call>{"name":"f","parameters":{"a":1}}</tool_call>', [call("f", a=1)], id="parameters for arguments"
        ),
        pytest.param(
            '<tool_call>{"name":"f","arguments":"{\\"a\\":1}"}</tool_call>', [call("f", a=1)], id="a string of JSON"
        ),
        pytest.param('<tool_call>{"name":"f","arguments":null}</tool_call>', [f], id="null is no arguments"),
        pytest.param('<tool_call>{"name":"f","arguments":""}</tool_call>', [f], id="an empty string is none either"),
        pytest.param(
            '<tool_call>{"type":"function","function":{"name":"f","arguments":{}}}</tool_call>', [f], id="OpenAI's form"
        ),
        pytest.param(
            '<tool_call>{"name":"f","arguments":{"a":"</tool_call>"}}</tool_call>!',
            [call("f", a="</tool_call>"), "!"],
            id="the closing tag in a string",
        ),
        pytest.param(
            '<tool_call>{"name":"f","arguments":{"a":"<tool_call>{\\"name\\":\\"g\\"}</tool_call>"}}</tool_call>!',
            [call("f", a=G), "!"],
            id="a whole call in a string",
        ),
        pytest.param(
            '<tool_call>{"name":"f","arguments":{"a":"x\n<tool_call>\n"}}</tool_call>!',
            [call("f", a="x\n<tool_call>\n"), "!"],
            id="a line of a string that begins with the opening tag",
        ),
        pytest.param(
            '<tool_call>{"name":"f","arguments":{"a":"é😀\\u00e9\\ud83d\\ude00"}}</tool_call>',
            [call("f", a="é😀é😀")],
            id="characters as they are and escaped",
        ),
        pytest.param(
            '<tool_call>{"name":"nobody.knows-it"}</tool_call>', [call("nobody.knows-it")], id="an undeclared name"
        ),
        pytest.param(f"<think>Hm.</think>\n\n{F}", [thought("Hm."), f], id="behind reasoning"),
        pytest.param(f"{F}<tool_call>", [f, error("truncated")], id="another opening tag at the end"),
    ],
)
def test_calls(text: str, expected: list[Brief]) -> None:
    """One JSON value or several between the tags; the first character of the body commits."""
    assert expected == read(text)


@together(
    "text",
    [
        pytest.param("<tool_call", id="half of the tag"),
        pytest.param("<tool_call> is a tag", id="the tag alone"),
        pytest.param("<tool_call></tool_call>", id="nothing in it"),
        pytest.param("<tool_call>\nf\n</tool_call>", id="a word in it: another dialect's"),
        pytest.param("<tool_call><function=f></function></tool_call>", id="a tag in it: another dialect's"),
        pytest.param('<tool_call>"f"</tool_call>', id="a string in it"),
        pytest.param(f'<tool_call>{" " * 33}{{"name":"f"}}', id="thirty-three spaces"),
        pytest.param('<tool_call\n>{"name":"f"}', id="a line feed in the tag"),
        pytest.param('<TOOL_CALL>{"name":"f"}', id="capitals"),
        pytest.param('<tool_calls>{"name":"f"}', id="the plural"),
        pytest.param("</tool_call>", id="a closing tag"),
        pytest.param(f"`{F}`", id="in a code span"),
        pytest.param(f"```\n{F}\n```", id="in a fence"),
        pytest.param(f"> {F}", id="in a quote"),
        pytest.param("<tool_cal", id="cut in the tag"),
        pytest.param("a\n", id="a line feed at the end"),
    ],
)
def test_text(text: str) -> None:
    """What only looks like a call is text, to the letter."""
    assert [text] == [each for each in read(text) if isinstance(each, str)]


def test_the_first_character_of_the_body_commits() -> None:
    """Before it there is a candidate, and the line feed before the tag is part of it."""
    told = [
        (step.delta, [type(event).__name__ for event in step.new], step.held)
        for step in steps("a\n<tool_call>\n{", dialects=HERMES)
    ]

    assert ("\n", [], "\n<tool_call>\n") == told[-2]
    assert ("{", ["Thinking"], "") == told[-1]


@pytest.mark.parametrize(
    ("text", "decides"),
    [("<tool_b", "b"), ("\n<tool_call>x", "x"), ("<tool_call>\n\n.", "."), ("\n\t", "\t"), ("<tool_call> \nf", "f")],
)
def test_text_is_released_at_the_character_that_decides(text: str, decides: str) -> None:
    """Everything is held up to that character, and nothing from there on."""
    *before, last = steps(text, dialects=HERMES)

    assert decides == last.delta
    assert [] == [event for step in before for event in step.new]
    assert ([text], "") == (brief(last.new), last.held)


@together(
    ("body", "expected"),
    [
        pytest.param('{"name":"f"}}', [BROKEN], id="a brace too many"),
        pytest.param('{"name":"f"}}}', [BROKEN], id="two braces too many"),
        pytest.param('[{"name":"f"}]]', [BROKEN], id="a bracket too many"),
        pytest.param('{"name":"f"} and so on', [BROKEN], id="prose behind the value"),
        pytest.param('{"name":"f"},{"name":"g"}', [BROKEN], id="a comma between two values"),
        pytest.param('{"name":"f"}</think>', [BROKEN], id="another closing tag"),
        pytest.param('{"name":"f"}{"name":g}', [f, BROKEN], id="a good value and a broken one"),
        pytest.param('{"name":g}{"name":"f"}', [BROKEN], id="a broken value and a good one"),
        pytest.param('[{"name":"f"},{"name":g}]', [f, BROKEN], id="an array whose last call is broken"),
        pytest.param('[{"a":1},{"name":"f"}]', [error("missing_tool_name"), f], id="an array whose first has no name"),
        pytest.param("[]", [error("unrecognised_tool_call")], id="an empty array"),
        pytest.param("[1]", [error("unrecognised_tool_call")], id="an array of numbers"),
        pytest.param("{}", [error("missing_tool_name")], id="an empty object"),
        pytest.param('{"name":"f","arguments":[1]}', [error("invalid_arguments")], id="an array for arguments"),
        pytest.param('{"name":"f","arguments":"x"}', [error("invalid_arguments")], id="a string that is no JSON"),
        pytest.param('{"name":"f","tool":"g"}', [error("conflicting_fields")], id="two names"),
        pytest.param('{"name":"f","name":"f"}', [error("duplicate_key")], id="the same key twice"),
        pytest.param('{"name":"f","args":{"a":NaN}}', [error("not_a_number")], id="what is not a number"),
        pytest.param('{"name":"f",}', [BROKEN], id="a trailing comma"),
        pytest.param("{'name':'f'}", [BROKEN], id="single quotes"),
        pytest.param("{name:f}", [BROKEN], id="no quotes"),
        pytest.param('{"name":"f"/*c*/}', [BROKEN], id="a comment"),
        pytest.param('{"name":"f","args":{"a":True}}', [BROKEN], id="a literal of Python"),
        pytest.param('{"name":"f","args":{"a":"say "hi" there"}}', [BROKEN], id="quotes that are not escaped"),
        pytest.param('{"name":"f","args":{"a":"\\$"}}', [BROKEN], id="an escape that JSON does not have"),
        pytest.param('{"name":"f', [BROKEN], id="a string that the tag ends"),
        pytest.param('{"name":"f"', [BROKEN], id="an object that the tag ends"),
        pytest.param('{"name":"f","args":{}', [BROKEN], id="a missing brace"),
    ],
)
def test_malformed_calls(body: str, expected: list[Brief]) -> None:
    """What is wrong is an error up to the closing tag, in strings too; behind it there is text again, and calls."""
    text = f"a<tool_call>{body}</tool_call> b{G}"

    if body == '{"name":"f':  # the tag is the content of the string until the next quote shows that it was not
        assert ["a", BROKEN, " b", g] == read(text)
    else:
        assert ["a", *expected, " b", g] == read(text)


@together(
    ("text", "expected"),
    [
        pytest.param(f'<tool_call>{{"name":"f"}}\n{G}', [f, UNCLOSED, g], id="behind a whole object"),
        pytest.param(f'<tool_call>{{"name":"f"}}{G}', [f, UNCLOSED, g], id="on the same line"),
        pytest.param(f'<tool_call>[{{"name":"f"}}]\n\n{G}', [f, UNCLOSED, g], id="behind a blank line"),
        pytest.param(f'<tool_call>{{"name":f}}\n{G}', [BROKEN, g], id="behind broken JSON"),
        pytest.param(f'<tool_call>{{"name":"f"}}}}\n \t{G}', [BROKEN, g], id="behind a brace too many, indented"),
        pytest.param(f'<tool_call>{{"name":"f\n{G}', [BROKEN, g], id="behind a missing quote"),
        pytest.param(f'<tool_call>{{"name":f}} {G}', [BROKEN], id="not on the line of broken JSON"),
        pytest.param('<tool_call>{"name":f}\n<tool_cal', [BROKEN], id="not if the tag is cut off"),
        pytest.param(
            '<tool_call>{"name":"f"}<tool_call>f', [f, UNCLOSED, "<tool_call>f"], id="the next tag is another dialect's"
        ),
    ],
)
def test_an_opening_tag_ends_a_call_that_is_not_closed(text: str, expected: list[Brief]) -> None:
    """A model that forgets the closing tag loses no call: behind broken JSON only at the beginning of a line."""
    assert expected == read(text)


@together(
    ("text", "expected"),
    [
        pytest.param('<tool_call>{"name":"f"}', [f, UNCLOSED], id="behind the brace"),
        pytest.param('<tool_call>{"name":"f"}\n', [f, UNCLOSED], id="behind a line feed"),
        pytest.param('<tool_call>{"name":"f"}</tool_', [f, UNCLOSED], id="in the closing tag"),
        pytest.param('<tool_call>{"name":"f"}\n{"name":"g"}\n</', [f, g, UNCLOSED], id="behind two objects"),
        pytest.param('<tool_call>{"name":"f"}\n{"name":', [f, CUT], id="in the second object"),
        pytest.param('<tool_call>[{"name":"f"}', [f, UNCLOSED], id="in an array, behind a call"),
        pytest.param('<tool_call>[{"name":"f"},', [f, UNCLOSED], id="in an array, behind a comma"),
        pytest.param('<tool_call>[{"name":"f"},{"na', [f, CUT], id="in an array, in a call"),
        pytest.param("<tool_call>[", [CUT], id="at the beginning of an array"),
        pytest.param('<tool_call>{"name":"f","arguments":{"a":1}', [CUT], id="before the last brace"),
        pytest.param('<tool_call>{"name":"f","arguments":{"a":"</tool_call>', [CUT], id="in a string"),
        pytest.param('<tool_call>{"name":"f","arguments":{}</tool_', [BROKEN], id="in the tag behind a missing brace"),
        pytest.param('<tool_call>{"name":"f"} on and on', [BROKEN], id="behind prose in the tag"),
    ],
)
def test_the_stream_ends_in_the_tag(text: str, expected: list[Brief]) -> None:
    """A call that only lacks its closing tag is one; a cut one is never executed."""
    assert expected == read(text)


def test_every_beginning_of_a_call_is_text_or_truncated_or_the_call() -> None:
    """Cut in the tag it is text, cut behind the tag or in the JSON an error, cut behind that the call."""
    text = '<tool_call>\n{"name":"f","arguments":{"a":"b"}}\n</tool_call>'
    commit, complete = text.index(">") + 1, text.rindex("}") + 1
    for end in range(len(text)):
        result = parse("Now " + text[:end], dialects=HERMES)
        found = (
            result.content,
            [each.arguments for each in result.calls],
            [(each.code, each.raw) for each in result.errors],
        )
        if end < commit:
            assert ("Now " + text[:end], [], []) == found
        elif end < complete:
            assert ("Now ", [], [("truncated", text[:end])]) == found
        else:
            assert ("Now ", [{"a": "b"}], []) == found


@pytest.mark.deep
def test_short_texts_at_every_cut_there_is() -> None:
    """However the shortest texts are cut, they say the same."""
    for text, expected in [
        ("<tool_call>{}", [error("missing_tool_name"), UNCLOSED]),
        ("\n<tool_call>[", [CUT]),
        ("<tool_call>x", ["<tool_call>x"]),
    ]:
        assert expected == brief(assert_chunk_invariant(text, every_way(text), dialects=HERMES))


def test_raw_text_and_markup() -> None:
    """The calls of a tag share out its text; the line feed before it, which the template puts there, is markup."""
    tag = '<tool_call>\n{"name":"f"}\n{"name":"g"}\n</tool_call>'

    assert ['<tool_call>\n{"name":"f"}', '{"name":"g"}\n</tool_call>'] == raws(f"a\n{tag}\nb", dialects=HERMES)
    assert ["a", markup("\n"), f, markup("\n"), g, "\nb"] == brief(
        assert_chunk_invariant(f"a\n{tag}\nb", [list(f"a\n{tag}\nb")], dialects=HERMES, keep_markup=True)
    )


def test_the_dialect_reads_what_it_writes() -> None:
    """A call goes out as the templates have it, and comes in again."""
    dialect = DIALECTS["hermes_json"]
    written = dialect.write_call("f", {"a": "é</tool_call>\n"})

    assert '<tool_call>\n{"name":"f","arguments":{"a":"é</tool_call>\\n"}}\n</tool_call>' == written
    assert [call("f", a="é</tool_call>\n")] == read(written)
    assert "<tool_response>\n7\n</tool_response>" == dialect.write_result("f", "7")
