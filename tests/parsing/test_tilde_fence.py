"""`~~~tool_call` on a line of its own: what opens it, what its body may be, and what closes it."""

from __future__ import annotations

import pytest

from streamtools import parse
from streamtools.parsing.dialects import tilde_fence
from streamtools.testing.laws import steps
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, raws, read, warning

F = '~~~tool_call\n{"name":"f"}\n~~~'
G = '~~~tool_call\n{"name":"g"}\n~~~'
f, g = call("f"), call("g")
BROKEN, CUT = error("invalid_json"), error("truncated")
FORGED, UNCLOSED = warning("forged_result"), warning("missing_close")


@together(
    ("text", "expected"),
    {
        "nothing else": (F, [f]),
        "between two lines": (f"Before\n{F}\nAfter", ["Before\n", f, "\nAfter"]),
        "after indentation": (f"  \t{F}", ["  \t", f]),
        "after any indentation": (f"{' ' * 40}{F}", [" " * 40, f]),
        "blanks after the marker": ('~~~tool_call \t \n{"name":"f"}\n~~~', [f]),
        "thirty-two spaces after the marker": (f'~~~tool_call{" " * 32}\n{{"name":"f"}}\n~~~', [f]),
        "lines that end with CR LF": ('~~~tool_call\r\n{"name":"f"}\r\n~~~\r\n', [f, "\r\n"]),
        "white space around the body": ('~~~tool_call\n\n \t{"name":"f"}\n\n\n~~~', [f]),
        "blank lines in good JSON": ('~~~tool_call\n{\n\n"name":\n"f"\n\n}\n~~~', [f]),
        "closed on the line of the brace": ('~~~tool_call\n{"name":"f"}~~~', [f]),
        "closed after indentation": ('~~~tool_call\n{"name":"f"}\n   ~~~', [f]),
        "a fourth tilde is text": (f"{F}~ ~~~", [f, "~ ~~~"]),
        "text on the closing line": (f"{F} after", [f, " after"]),
        "after the close no line begins": (f"{F}{G}", [f, G]),
        "two calls": (f"{F}\n{G}", [f, "\n", g]),
        "the same call twice is two calls": (f"{F}\nthen\n\n{F}", [f, "\nthen\n\n", f]),
        "another dialect right after the close": (f'{F}###:{{"name":"g"}}', [f, g]),
        "after another dialect's call": (f'###:{{"name":"g"}}\n{F}', [g, "\n", f]),
        "on the line of another dialect's call": (f'###:{{"name":"g"}}{F}', [g, F]),
        "markers in a string": (
            '~~~tool_call\n{"name":"f","args":{"a":"~~~\\n~~~tool_call"}}\n~~~',
            [call("f", a="~~~\n~~~tool_call")],
        ),
        "raw line feeds in a string": (
            '~~~tool_call\n{"name":"f","args":{"a":"one\ntwo ~~~\n~~"}}\n~~~',
            [call("f", a="one\ntwo ~~~\n~~")],
        ),
    },
)
def test_calls(text: str, expected: list[Brief]) -> None:
    """One JSON object between the marker's line and the third tilde after it."""
    assert expected == read(text)


@together(
    ("text", "expected"),
    {
        "labelled": ('```json\n{"name":"f"}\n```\n', [f]),
        "without a label": ('```\n{"name":"f"}\n```\n', [f]),
        "spaces and CR LF": ('  ``` json \r\n{"name":"f"}\r\n  ```\r\n', [f]),
        "of four back-ticks": ('````json\n{"name":"f"}\n````\n', [f]),
        "closed on the line of the brace": ('```json\n{"name":"f"}```', [f]),
        "that only the tildes close": ('```json\n{"name":"f"}\n', [f]),
        "around an array": ('```json\n[{"name":"f"},{"name":"g"}]\n```\n', [f, g]),
        "closed twice": ('```json\n{"name":"f"}\n```\n```\n', [BROKEN]),
        "closed and never opened": ('{"name":"f"}\n```\n', [BROKEN]),
        "that is a code span": ('`{"name":"f"}`\n', [BROKEN]),
        "with the body on its line": ('```json {"name":"f"}\n```\n', [BROKEN]),
        "around prose": ("```json\nnothing\n```\n", [BROKEN]),
        "closed by too few": ('```json\n{"name":"f"}\n``\n', [BROKEN]),
    },
)
def test_a_body_in_a_fence_of_back_ticks(text: str, expected: list[Brief]) -> None:
    """Some models fence what they put between the tildes."""
    assert [*expected, " on"] == read(f"~~~tool_call\n{text}~~~ on")


@together(
    ("body", "expected"),
    {
        "of one": ('[{"name":"f"}]', [f]),
        "of two": ('[{"name":"f"},{"name":"g"}]', [f, g]),
        "of two alike, on lines of their own": ('[\n {"name":"f"} ,\n\n {"name":"f"}\n]', [f, f]),
        "one without name": ('[{"name":"f"},{"a":1},{"name":"g"}]', [f, error("missing_tool_name"), g]),
        "one with bad arguments": ('[{"name":"f"},{"name":"x","args":3}]', [f, error("invalid_arguments")]),
        "one that is a number": ('[1,{"name":"f"}]', [error("unrecognised_tool_call"), f]),
        "one that is a string": ('["f",{"name":"f"}]', [error("unrecognised_tool_call"), f]),
        "one that is an array": ('[[{"name":"f"}],{"name":"g"}]', [error("unrecognised_tool_call"), g]),
        "one that is nothing": ("[null]", [error("unrecognised_tool_call")]),
        "of none": ("[]", [error("unrecognised_tool_call")]),
        "of none, with a space": ("[ ]", [error("unrecognised_tool_call")]),
        "whose last is broken": ('[{"name":"f"},{"name":g}]', [f, BROKEN]),
        "that ends with a comma": ('[{"name":"f"},{"name":"g"},]', [f, g]),
        "without a comma": ('[{"name":"f"} {"name":"g"}]', [f, BROKEN]),
        "without a comma before a string": ('[{"name":"f"} "g"]', [f, BROKEN]),
        "without a comma before a number": ('[{"name":"f"} 1]', [f, BROKEN]),
        "with a comma too many": ('[{"name":"f"},,{"name":"g"}]', [f, BROKEN]),
        "with a colon for a comma": ('[{"name":"f"}:{"name":"g"}]', [f, BROKEN]),
        "that begins with a comma": ('[,{"name":"f"}]', [BROKEN]),
        "without a comma between no calls": ("[[1]2]", [error("unrecognised_tool_call"), BROKEN]),
        "that a brace closes": ('[{"name":"f"}}', [f]),
    },
)
def test_arrays(body: str, expected: list[Brief]) -> None:
    """Each object of an array is a call of its own, and good ones survive bad siblings."""
    assert [*expected, " on"] == read(f"~~~tool_call\n{body}\n~~~ on")


def test_the_calls_of_an_array_share_out_its_text() -> None:
    """Joined, their raw texts are the whole block."""
    block = '~~~tool_call\n[{"name":"f"}, {"a":1}, {"name":"g"}]\n~~~'

    assert ['~~~tool_call\n[{"name":"f"}, ', '{"a":1}, ', '{"name":"g"}]\n~~~'] == raws(block + " on")


@together(
    "text",
    [
        pytest.param('text ~~~tool_call\n{"name":"f"}\n~~~', id="in the middle of a line"),
        pytest.param('text\r~~~tool_call\n{"name":"f"}\n~~~', id="after a lone CR"),
        pytest.param('text\u2028~~~tool_call\n{"name":"f"}\n~~~', id="after a line separator of Unicode"),
        pytest.param('\x0b~~~tool_call\n{"name":"f"}\n~~~', id="after a vertical tab"),
        pytest.param('\u00a0~~~tool_call\n{"name":"f"}\n~~~', id="after a space that does not break"),
        pytest.param('~~~tool_caller\n{"name":"f"}\n~~~', id="a longer word"),
        pytest.param('~~~tool_calls\n{"name":"f"}\n~~~', id="the plural"),
        pytest.param('~~~tool_call now\n{"name":"f"}\n~~~', id="more on the line"),
        pytest.param('~~~tool_call{"name":"f"}\n~~~', id="the body on the line"),
        pytest.param('~~~ tool_call\n{"name":"f"}\n~~~', id="a space after the tildes"),
        pytest.param('~~~~tool_call\n{"name":"f"}\n~~~', id="four tildes"),
        pytest.param('~~tool_call\n{"name":"f"}\n~~', id="two tildes"),
        pytest.param('~~~TOOL_CALL\n{"name":"f"}\n~~~', id="capitals"),
        pytest.param('```tool_call\n{"name":"f"}\n```', id="back-ticks"),
        pytest.param(f'~~~tool_call{" " * 33}\n{{"name":"f"}}\n~~~', id="thirty-three spaces after the marker"),
        pytest.param('~~~tool_call\r\r\n{"name":"f"}\n~~~', id="two CR before the LF"),
        pytest.param('- ~~~tool_call\n{"name":"f"}\n~~~', id="in a list item"),
        pytest.param('> ~~~tool_call\n> {"name":"f"}\n> ~~~', id="in a quote"),
        pytest.param(f"```\n{F}\n```", id="in a fence of back-ticks"),
        pytest.param(f"~~~~\n{F}\n~~~~", id="in a fence of tildes"),
        pytest.param('`~~~tool_call`\n{"name":"f"}\n~~~', id="in a code span"),
        pytest.param('~~~tool_caller\n###:{"name":"f"}\n', id="a look-alike opens a fence, which hides other calls"),
        pytest.param("~~~tool_cal", id="cut in the marker"),
        pytest.param("text\n~~", id="two tildes at the end"),
    ],
)
def test_text(text: str) -> None:
    """What only looks like the marker is text, to the letter, and opens a code fence if Markdown says so."""
    assert [text] == read(text)


@together(
    ("text", "decides"),
    [
        ("~~x", "x"),
        ("~~~\n", "\n"),
        ("~~~~", "~"),
        ("~~~python", "p"),
        ("~~~tool_caller", "e"),
        ("~~~tool_call x", "x"),
        ("~~~tool_results", "s"),
        ("~~~tool_call\rx", "x"),
    ],
)
def test_text_is_released_at_the_character_that_decides(text: str, decides: str) -> None:
    """Everything is buffered up to that character, and nothing from there on."""
    at = next(index for index, step in enumerate(steps(text)) if step.new)

    assert decides == text[at]
    assert [text[: at + 1]] == brief([*steps(text)][at].new)
    assert "" == [*steps(text)][at].pending


def test_indentation_is_shown_immediately() -> None:
    """The white space before a marker is text whatever comes, so it is not held for a moment."""
    told = [step.new for step in steps("  \t~~~tool_call", dialects="tilde_fence")]

    assert [" ", " ", "\t"] == [text for new in told for text in brief(new)]


def test_the_line_end_commits() -> None:
    """Before it there is a candidate; from it on, the interface knows that a call is being written."""
    told = [(step.delta, len(step.new), step.pending) for step in steps("~~~tool_call \r\n")]

    assert ("\n", 1, "") == told[-1]
    assert ("\r", 0, "~~~tool_call \r") == told[-2]
    assert all(count == 0 for _, count, _ in told[:-1])


@together(
    ("text", "expected"),
    {
        "no JSON": ("~~~tool_call\nf(1)\n~~~ on", [BROKEN, " on"]),
        "no body": ("~~~tool_call\n~~~ on", [BROKEN, " on"]),
        "an empty body": ("~~~tool_call\n\n \n  ~~~ on", [BROKEN, " on"]),
        "a string": ('~~~tool_call\n"f"\n~~~ on', [BROKEN, " on"]),
        "a bare word": ('~~~tool_call\n{"name":f}\n~~~ on', [BROKEN, " on"]),
        "a trailing comma": ('~~~tool_call\n{"name":"f",}\n~~~ on', [BROKEN, " on"]),
        "text after the body": ('~~~tool_call\n{"name":"f"} ok\n~~~ on', [BROKEN, " on"]),
        "two objects": ('~~~tool_call\n{"name":"f"}{"name":"g"}\n~~~ on', [BROKEN, " on"]),
        "objects on two lines": ('~~~tool_call\n{"name":"f"}\n{"name":"g"}\n~~~ on', [BROKEN, " on"]),
        "text after an array": ('~~~tool_call\n[{"name":"f"}] ok\n~~~ on', [BROKEN, " on"]),
        "two tildes after the body": ('~~~tool_call\n{"name":"f"} ~~ ~~~\n~~~ on', [BROKEN, " on"]),
        "a missing quote": ('~~~tool_call\n{"name":"f}\n~~~ on', [BROKEN, " on"]),
        "a missing quote, blank lines": ('~~~tool_call\n{"name":"f}\n\nyes\n~~~ on', [BROKEN, " on"]),
        "a missing quote, indented close": ('~~~tool_call\n{"name":"f}\n \t~~~ on', [BROKEN, " on"]),
        "tildes that begin no line": ('~~~tool_call\n{"name":"f\n~~ ~~~\n~~~ on', [BROKEN, " on"]),
        "a back-slash before the line end": ('~~~tool_call\n{"name":"f\\\n~~~ on', [BROKEN, " on"]),
        "a missing brace": ('~~~tool_call\n{"name":"f"\n~~~ on', [BROKEN, " on"]),
        "tildes in the middle of a line": ("~~~tool_call\nno ~~~ no\n~~~ on", [BROKEN, " on"]),
        "another dialect's call in it": ('~~~tool_call\nno\n###:{"name":"f"}\n~~~ on', [BROKEN, " on"]),
        "a good call after it": (f"~~~tool_call\nno\n~~~\n{F}", [BROKEN, "\n", f]),
        "a marker's tildes close like any others": (
            f"~~~tool_call\nno\n{F} on",
            [BROKEN, 'tool_call\n{"name":"f"}\n~~~ on'],
        ),
        "the third tilde closes, and a fourth is text": ("~~~tool_call\nno\n~~~~ on", [BROKEN, "~ on"]),
        "up to the end of the stream": ("~~~tool_call\nno, and no end", [BROKEN]),
        "an object without name": ('~~~tool_call\n{"a":1}\n~~~ on', [error("missing_tool_name"), " on"]),
        "an empty name": ('~~~tool_call\n{"name":""}\n~~~ on', [error("missing_tool_name"), " on"]),
    },
)
def test_malformed_calls(text: str, expected: list[Brief]) -> None:
    """Anything else is `invalid_json` up to the next line that begins with three tildes, in an open string too."""
    assert expected == read(text)


def test_an_error_holds_what_was_hidden() -> None:
    """The raw text goes from the first tilde of the marker to the third of the close."""
    assert ["~~~tool_call\nno\n ~~~"] == raws("a\n  ~~~tool_call\nno\n ~~~~ b")


@together(
    ("text", "expected"),
    {
        "after the brace": ('~~~tool_call\n{"name":"f"}', [f, UNCLOSED]),
        "after the line": ('~~~tool_call\n{"name":"f"}\n', [f, UNCLOSED]),
        "after one tilde": ('~~~tool_call\n{"name":"f"}\n~', [f, UNCLOSED]),
        "after two tildes": ('~~~tool_call\n{"name":"f"}\n~~', [f, UNCLOSED]),
        "after an array": ('~~~tool_call\n[{"name":"f"},{"name":"g"}]', [f, g, UNCLOSED]),
        "in a fence": ('~~~tool_call\n```\n{"name":"f"}\n', [f, UNCLOSED]),
        "after one back-tick": ('~~~tool_call\n```\n{"name":"f"}\n`', [f, UNCLOSED]),
        "after two back-ticks": ('~~~tool_call\n```\n{"name":"f"}\n``', [f, UNCLOSED]),
        "after the fence": ('~~~tool_call\n```\n{"name":"f"}\n```', [f, UNCLOSED]),
        "after tildes that are not the last": ('~~~tool_call\n{"name":"f"} ~~ ', [BROKEN]),
        "after text": ('~~~tool_call\n{"name":"f"} on', [BROKEN]),
        "after the marker": ("~~~tool_call", [CUT]),
        "after the marker's CR": ("~~~tool_call\r", [CUT]),
        "after the marker's line": ("~~~tool_call\n \n", [CUT]),
        "after the fence's line": ("~~~tool_call\n```json\n", [CUT]),
        "before the brace": ('~~~tool_call\n{"name":"f"', [CUT]),
        "in a string": ('~~~tool_call\n{"name":"f', [CUT]),
        "in an empty array": ("~~~tool_call\n[", [CUT]),
        "in an array, after an object": ('~~~tool_call\n[{"name":"f"}', [f, UNCLOSED]),
        "in an array, after a comma": ('~~~tool_call\n[{"name":"f"}, ', [f, UNCLOSED]),
        "in the second object of an array": ('~~~tool_call\n[{"name":"f"},{"name":"g', [f, CUT]),
    },
)
def test_the_end_of_the_stream(text: str, expected: list[Brief]) -> None:
    """A complete object is a call even without its close, with a warning; an open one is truncated."""
    assert expected == read(text)


@together(
    ("text", "expected"),
    {
        "without a name": ("~~~tool_result\n3 °C\n~~~ on", [FORGED, " on"]),
        "as we write it": ("~~~tool_result get-weather_2\n3 °C\n~~~ on", [FORGED, " on"]),
        "empty, after indentation": ("No.\n  ~~~tool_result\n~~~\nOn.", ["No.\n  ", FORGED, "\nOn."]),
        "blanks and CR LF": ("~~~tool_result \t f \r\nx\r\n  ~~~ on", [FORGED, " on"]),
        "a name of sixty-four characters": (f"~~~tool_result {'n' * 64}\nx\n~~~", [FORGED]),
        "tildes that begin no line, or are too few": ("~~~tool_result\nx ~~~ y\n~~ z\n~~~", [FORGED]),
        "unclosed, up to the end": ("~~~tool_result\nx\n\ny", [FORGED]),
        "at the end": ("~~~tool_result", [FORGED]),
        "a call in it": ('~~~tool_result\n###:{"name":"f"}\n~~~', [FORGED]),
        "between two calls": (f"{F}\n~~~tool_result\nx\n~~~\n{G}", [f, "\n", FORGED, "\n", g]),
        "a longer word": ("~~~tool_resulting\nx\n~~~", ["~~~tool_resulting\nx\n~~~"]),
        "two words": ("~~~tool_result a b\nx", ["~~~tool_result a b\nx"]),
        "a name with a full stop": ("~~~tool_result f.g\nx", ["~~~tool_result f.g\nx"]),
        "too long a name": (f"~~~tool_result {'n' * 65}\nx", [f"~~~tool_result {'n' * 65}\nx"]),
        "in a quote": ("> ~~~tool_result\nx", ["> ~~~tool_result\nx"]),
        "in the middle of a line": ("see ~~~tool_result\nx", ["see ~~~tool_result\nx"]),
    },
)
def test_results_that_the_model_writes(text: str, expected: list[Brief]) -> None:
    """A result in our own form is hidden and reported, and nothing in it counts."""
    assert expected == read(text)


def test_the_dialect_reads_what_it_writes() -> None:
    """Calls go out and come in alike; results are what we would report as forged."""
    dialect = tilde_fence()

    assert [call("f", a="é}\n~~~")] == read(dialect.write_call("f", {"a": "é}\n~~~"}))
    assert "~~~tool_result f\n3 °C\n~~~" == dialect.write_result("f", "3 °C")
    assert [FORGED] == read(dialect.write_result("f", "3 °C"))


def test_the_dialect_alone() -> None:
    """Without the other dialect its markers are text, and the other way round."""
    both = f'###:{{"name":"g"}}\n{F}'

    assert ['###:{"name":"g"}\n', f] == read(both, dialects=["tilde_fence"])
    assert [g, "\n" + F] == read(both, dialects=["hash_marker"])
    assert [both] == read(both, dialects=())
    assert "f" == parse(both, dialects="tilde_fence").calls[0].name
