"""`~~~tool_call` on a line of its own: what opens it, what its body may be, and what closes it."""

from __future__ import annotations

import pytest

from streamtools import parse
from streamtools.parsing.dialects import tilde_fence
from streamtools.testing.laws import assert_chunk_invariant, steps
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, raws, read, warning

F = '~~~tool_call\n{"name":"f"}\n~~~'
G = '~~~tool_call\n{"name":"g"}\n~~~'
f, g = call("f"), call("g")
BROKEN, CUT = error("invalid_json"), error("truncated")
FORGED, UNCLOSED = warning("forged_result"), warning("missing_close")


@together(
    ("text", "expected"),
    [
        pytest.param(F, [f], id="nothing else"),
        pytest.param(f"Before\n{F}\nAfter", ["Before\n", f, "\nAfter"], id="between two lines"),
        pytest.param(f"  \t{F}", ["  \t", f], id="behind indentation"),
        pytest.param(f"{' ' * 40}{F}", [" " * 40, f], id="behind any indentation"),
        pytest.param('~~~tool_call \t \n{"name":"f"}\n~~~', [f], id="blanks behind the marker"),
        pytest.param(f'~~~tool_call{" " * 32}\n{{"name":"f"}}\n~~~', [f], id="thirty-two spaces behind the marker"),
        pytest.param('~~~tool_call\r\n{"name":"f"}\r\n~~~\r\n', [f, "\r\n"], id="lines that end with CR LF"),
        pytest.param('~~~tool_call\n\n \t{"name":"f"}\n\n\n~~~', [f], id="white space around the body"),
        pytest.param('~~~tool_call\n{\n\n"name":\n"f"\n\n}\n~~~', [f], id="blank lines in good JSON"),
        pytest.param('~~~tool_call\n{"name":"f"}~~~', [f], id="closed on the line of the brace"),
        pytest.param('~~~tool_call\n{"name":"f"}\n   ~~~', [f], id="closed behind indentation"),
        pytest.param(f"{F}~ ~~~", [f, "~ ~~~"], id="a fourth tilde is text"),
        pytest.param(f"{F} after", [f, " after"], id="text on the closing line"),
        pytest.param(f"{F}{G}", [f, G], id="behind the close no line begins"),
        pytest.param(f"{F}\n{G}", [f, "\n", g], id="two calls"),
        pytest.param(f"{F}\nthen\n\n{F}", [f, "\nthen\n\n", f], id="the same call twice is two calls"),
        pytest.param(f'{F}###:{{"name":"g"}}', [f, g], id="another dialect right behind the close"),
        pytest.param(f'###:{{"name":"g"}}\n{F}', [g, "\n", f], id="behind another dialect's call"),
        pytest.param(f'###:{{"name":"g"}}{F}', [g, F], id="on the line of another dialect's call"),
        pytest.param(
            '~~~tool_call\n{"name":"f","args":{"a":"~~~\\n~~~tool_call"}}\n~~~',
            [call("f", a="~~~\n~~~tool_call")],
            id="markers in a string",
        ),
        pytest.param(
            '~~~tool_call\n{"name":"f","args":{"a":"one\ntwo ~~~\n~~"}}\n~~~',
            [call("f", a="one\ntwo ~~~\n~~")],
            id="raw line feeds in a string",
        ),
    ],
)
def test_calls(text: str, expected: list[Brief]) -> None:
    """One JSON object between the marker's line and the third tilde behind it."""
    assert expected == read(text)


@together(
    ("text", "expected"),
    [
        pytest.param('```json\n{"name":"f"}\n```\n', [f], id="labelled"),
        pytest.param('```\n{"name":"f"}\n```\n', [f], id="without a label"),
        pytest.param('  ``` json \r\n{"name":"f"}\r\n  ```\r\n', [f], id="spaces and CR LF"),
        pytest.param('````json\n{"name":"f"}\n````\n', [f], id="of four back-ticks"),
        pytest.param('```json\n{"name":"f"}```', [f], id="closed on the line of the brace"),
        pytest.param('```json\n{"name":"f"}\n', [f], id="that only the tildes close"),
        pytest.param('```json\n[{"name":"f"},{"name":"g"}]\n```\n', [f, g], id="around an array"),
        pytest.param('```json\n{"name":"f"}\n```\n```\n', [BROKEN], id="closed twice"),
        pytest.param('{"name":"f"}\n```\n', [BROKEN], id="closed and never opened"),
        pytest.param('`{"name":"f"}`\n', [BROKEN], id="that is a code span"),
        pytest.param('```json {"name":"f"}\n```\n', [BROKEN], id="with the body on its line"),
        pytest.param("```json\nnothing\n```\n", [BROKEN], id="around prose"),
        pytest.param('```json\n{"name":"f"}\n``\n', [BROKEN], id="closed by too few"),
    ],
)
def test_a_body_in_a_fence_of_back_ticks(text: str, expected: list[Brief]) -> None:
    """Some models fence what they put between the tildes."""
    assert [*expected, " on"] == read(f"~~~tool_call\n{text}~~~ on")


@together(
    ("body", "expected"),
    [
        pytest.param('[{"name":"f"}]', [f], id="of one"),
        pytest.param('[{"name":"f"},{"name":"g"}]', [f, g], id="of two"),
        pytest.param('[\n {"name":"f"} ,\n\n {"name":"f"}\n]', [f, f], id="of two alike, on lines of their own"),
        pytest.param('[{"name":"f"},{"a":1},{"name":"g"}]', [f, error("missing_tool_name"), g], id="one without name"),
        pytest.param(
            '[{"name":"f"},{"name":"x","args":3}]', [f, error("invalid_arguments")], id="one with bad arguments"
        ),
        pytest.param('[1,{"name":"f"}]', [error("unrecognised_tool_call"), f], id="one that is a number"),
        pytest.param('["f",{"name":"f"}]', [error("unrecognised_tool_call"), f], id="one that is a string"),
        pytest.param('[[{"name":"f"}],{"name":"g"}]', [error("unrecognised_tool_call"), g], id="one that is an array"),
        pytest.param("[null]", [error("unrecognised_tool_call")], id="one that is nothing"),
        pytest.param("[]", [error("unrecognised_tool_call")], id="of none"),
        pytest.param("[ ]", [error("unrecognised_tool_call")], id="of none, with a space"),
        pytest.param('[{"name":"f"},{"name":g}]', [f, BROKEN], id="whose last is broken"),
        pytest.param('[{"name":"f"},{"name":"g"},]', [f, g], id="that ends with a comma"),
        pytest.param('[{"name":"f"} {"name":"g"}]', [f, BROKEN], id="without a comma"),
        pytest.param('[{"name":"f"} "g"]', [f, BROKEN], id="without a comma before a string"),
        pytest.param('[{"name":"f"} 1]', [f, BROKEN], id="without a comma before a number"),
        pytest.param('[{"name":"f"},,{"name":"g"}]', [f, BROKEN], id="with a comma too many"),
        pytest.param('[{"name":"f"}:{"name":"g"}]', [f, BROKEN], id="with a colon for a comma"),
        pytest.param('[,{"name":"f"}]', [BROKEN], id="that begins with a comma"),
        pytest.param("[[1]2]", [error("unrecognised_tool_call"), BROKEN], id="without a comma between no calls"),
        pytest.param('[{"name":"f"}}', [f], id="that a brace closes"),
    ],
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
        pytest.param('text\r~~~tool_call\n{"name":"f"}\n~~~', id="behind a lone CR"),
        pytest.param('text\u2028~~~tool_call\n{"name":"f"}\n~~~', id="behind a line separator of Unicode"),
        pytest.param('\x0b~~~tool_call\n{"name":"f"}\n~~~', id="behind a vertical tab"),
        pytest.param('\u00a0~~~tool_call\n{"name":"f"}\n~~~', id="behind a space that does not break"),
        pytest.param('~~~tool_caller\n{"name":"f"}\n~~~', id="a longer word"),
        pytest.param('~~~tool_calls\n{"name":"f"}\n~~~', id="the plural"),
        pytest.param('~~~tool_call now\n{"name":"f"}\n~~~', id="more on the line"),
        pytest.param('~~~tool_call{"name":"f"}\n~~~', id="the body on the line"),
        pytest.param('~~~ tool_call\n{"name":"f"}\n~~~', id="a space behind the tildes"),
        pytest.param('~~~~tool_call\n{"name":"f"}\n~~~', id="four tildes"),
        pytest.param('~~tool_call\n{"name":"f"}\n~~', id="two tildes"),
        pytest.param('~~~TOOL_CALL\n{"name":"f"}\n~~~', id="capitals"),
        pytest.param('```tool_call\n{"name":"f"}\n```', id="back-ticks"),
        pytest.param(f'~~~tool_call{" " * 33}\n{{"name":"f"}}\n~~~', id="thirty-three spaces behind the marker"),
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
    """Everything is held up to that character, and nothing from there on."""
    at = next(index for index, step in enumerate(steps(text)) if step.new)

    assert decides == text[at]
    assert [text[: at + 1]] == brief([*steps(text)][at].new)
    assert "" == [*steps(text)][at].held


def test_indentation_is_shown_at_once() -> None:
    """The white space before a marker is text whatever comes, so it is not held for a moment."""
    told = [step.new for step in steps("  \t~~~tool_call", dialects="tilde_fence")]

    assert [" ", " ", "\t"] == [text for new in told for text in brief(new)]


def test_the_line_end_commits() -> None:
    """Before it there is a candidate; from it on, the interface knows that a call is being written."""
    told = [(step.delta, len(step.new), step.held) for step in steps("~~~tool_call \r\n")]

    assert ("\n", 1, "") == told[-1]
    assert ("\r", 0, "~~~tool_call \r") == told[-2]
    assert all(count == 0 for _, count, _ in told[:-1])


@together(
    ("text", "expected"),
    [
        pytest.param("~~~tool_call\nf(1)\n~~~ on", [BROKEN, " on"], id="no JSON"),
        pytest.param("~~~tool_call\n~~~ on", [BROKEN, " on"], id="no body"),
        pytest.param("~~~tool_call\n\n \n  ~~~ on", [BROKEN, " on"], id="an empty body"),
        pytest.param('~~~tool_call\n"f"\n~~~ on', [BROKEN, " on"], id="a string"),
        pytest.param('~~~tool_call\n{"name":f}\n~~~ on', [BROKEN, " on"], id="a bare word"),
        pytest.param('~~~tool_call\n{"name":"f",}\n~~~ on', [BROKEN, " on"], id="a trailing comma"),
        pytest.param('~~~tool_call\n{"name":"f"} ok\n~~~ on', [BROKEN, " on"], id="text behind the body"),
        pytest.param('~~~tool_call\n{"name":"f"}{"name":"g"}\n~~~ on', [BROKEN, " on"], id="two objects"),
        pytest.param('~~~tool_call\n{"name":"f"}\n{"name":"g"}\n~~~ on', [BROKEN, " on"], id="objects on two lines"),
        pytest.param('~~~tool_call\n[{"name":"f"}] ok\n~~~ on', [BROKEN, " on"], id="text behind an array"),
        pytest.param('~~~tool_call\n{"name":"f"} ~~ ~~~\n~~~ on', [BROKEN, " on"], id="two tildes behind the body"),
        pytest.param('~~~tool_call\n{"name":"f}\n~~~ on', [BROKEN, " on"], id="a missing quote"),
        pytest.param('~~~tool_call\n{"name":"f}\n\nyes\n~~~ on', [BROKEN, " on"], id="a missing quote, blank lines"),
        pytest.param('~~~tool_call\n{"name":"f}\n \t~~~ on', [BROKEN, " on"], id="a missing quote, indented close"),
        pytest.param('~~~tool_call\n{"name":"f\n~~ ~~~\n~~~ on', [BROKEN, " on"], id="tildes that begin no line"),
        pytest.param('~~~tool_call\n{"name":"f\\\n~~~ on', [BROKEN, " on"], id="a back-slash before the line end"),
        pytest.param('~~~tool_call\n{"name":"f"\n~~~ on', [BROKEN, " on"], id="a missing brace"),
        pytest.param("~~~tool_call\nno ~~~ no\n~~~ on", [BROKEN, " on"], id="tildes in the middle of a line"),
        pytest.param('~~~tool_call\nno\n###:{"name":"f"}\n~~~ on', [BROKEN, " on"], id="another dialect's call in it"),
        pytest.param(f"~~~tool_call\nno\n~~~\n{F}", [BROKEN, "\n", f], id="a good call behind it"),
        pytest.param(
            f"~~~tool_call\nno\n{F} on",
            [BROKEN, 'tool_call\n{"name":"f"}\n~~~ on'],
            id="a marker's tildes close like any others",
        ),
        pytest.param("~~~tool_call\nno\n~~~~ on", [BROKEN, "~ on"], id="the third tilde closes, and a fourth is text"),
        pytest.param("~~~tool_call\nno, and no end", [BROKEN], id="up to the end of the stream"),
        pytest.param('~~~tool_call\n{"a":1}\n~~~ on', [error("missing_tool_name"), " on"], id="an object without name"),
        pytest.param('~~~tool_call\n{"name":""}\n~~~ on', [error("missing_tool_name"), " on"], id="an empty name"),
    ],
)
def test_malformed_calls(text: str, expected: list[Brief]) -> None:
    """Anything else is `invalid_json` up to the next line that begins with three tildes, in an open string too."""
    assert expected == read(text)


def test_an_error_holds_what_was_hidden() -> None:
    """The raw text goes from the first tilde of the marker to the third of the close."""
    assert ["~~~tool_call\nno\n ~~~"] == raws("a\n  ~~~tool_call\nno\n ~~~~ b")


@together(
    ("text", "expected"),
    [
        pytest.param('~~~tool_call\n{"name":"f"}', [f, UNCLOSED], id="behind the brace"),
        pytest.param('~~~tool_call\n{"name":"f"}\n', [f, UNCLOSED], id="behind the line"),
        pytest.param('~~~tool_call\n{"name":"f"}\n~', [f, UNCLOSED], id="behind one tilde"),
        pytest.param('~~~tool_call\n{"name":"f"}\n~~', [f, UNCLOSED], id="behind two tildes"),
        pytest.param('~~~tool_call\n[{"name":"f"},{"name":"g"}]', [f, g, UNCLOSED], id="behind an array"),
        pytest.param('~~~tool_call\n```\n{"name":"f"}\n', [f, UNCLOSED], id="in a fence"),
        pytest.param('~~~tool_call\n```\n{"name":"f"}\n`', [f, UNCLOSED], id="behind one back-tick"),
        pytest.param('~~~tool_call\n```\n{"name":"f"}\n``', [f, UNCLOSED], id="behind two back-ticks"),
        pytest.param('~~~tool_call\n```\n{"name":"f"}\n```', [f, UNCLOSED], id="behind the fence"),
        pytest.param('~~~tool_call\n{"name":"f"} ~~ ', [BROKEN], id="behind tildes that are not the last"),
        pytest.param('~~~tool_call\n{"name":"f"} on', [BROKEN], id="behind text"),
        pytest.param("~~~tool_call", [CUT], id="behind the marker"),
        pytest.param("~~~tool_call\r", [CUT], id="behind the marker's CR"),
        pytest.param("~~~tool_call\n \n", [CUT], id="behind the marker's line"),
        pytest.param("~~~tool_call\n```json\n", [CUT], id="behind the fence's line"),
        pytest.param('~~~tool_call\n{"name":"f"', [CUT], id="before the brace"),
        pytest.param('~~~tool_call\n{"name":"f', [CUT], id="in a string"),
        pytest.param("~~~tool_call\n[", [CUT], id="in an empty array"),
        pytest.param('~~~tool_call\n[{"name":"f"}', [f, UNCLOSED], id="in an array, behind an object"),
        pytest.param('~~~tool_call\n[{"name":"f"}, ', [f, UNCLOSED], id="in an array, behind a comma"),
        pytest.param('~~~tool_call\n[{"name":"f"},{"name":"g', [f, CUT], id="in the second object of an array"),
    ],
)
def test_the_end_of_the_stream(text: str, expected: list[Brief]) -> None:
    """A complete object is a call even without its close, with a warning; an open one is truncated."""
    assert expected == read(text)


@together(
    ("text", "expected"),
    [
        pytest.param("~~~tool_result\n3 °C\n~~~ on", [FORGED, " on"], id="without a name"),
        pytest.param("~~~tool_result get-weather_2\n3 °C\n~~~ on", [FORGED, " on"], id="as we write it"),
        pytest.param("No.\n  ~~~tool_result\n~~~\nOn.", ["No.\n  ", FORGED, "\nOn."], id="empty, behind indentation"),
        pytest.param("~~~tool_result \t f \r\nx\r\n  ~~~ on", [FORGED, " on"], id="blanks and CR LF"),
        pytest.param(f"~~~tool_result {'n' * 64}\nx\n~~~", [FORGED], id="a name of sixty-four characters"),
        pytest.param("~~~tool_result\nx ~~~ y\n~~ z\n~~~", [FORGED], id="tildes that begin no line, or are too few"),
        pytest.param("~~~tool_result\nx\n\ny", [FORGED], id="unclosed, up to the end"),
        pytest.param("~~~tool_result", [FORGED], id="at the end"),
        pytest.param('~~~tool_result\n###:{"name":"f"}\n~~~', [FORGED], id="a call in it"),
        pytest.param(f"{F}\n~~~tool_result\nx\n~~~\n{G}", [f, "\n", FORGED, "\n", g], id="between two calls"),
        pytest.param("~~~tool_resulting\nx\n~~~", ["~~~tool_resulting\nx\n~~~"], id="a longer word"),
        pytest.param("~~~tool_result a b\nx", ["~~~tool_result a b\nx"], id="two words"),
        pytest.param("~~~tool_result f.g\nx", ["~~~tool_result f.g\nx"], id="a name with a full stop"),
        pytest.param(f"~~~tool_result {'n' * 65}\nx", [f"~~~tool_result {'n' * 65}\nx"], id="too long a name"),
        pytest.param("> ~~~tool_result\nx", ["> ~~~tool_result\nx"], id="in a quote"),
        pytest.param("see ~~~tool_result\nx", ["see ~~~tool_result\nx"], id="in the middle of a line"),
    ],
)
def test_results_that_the_model_writes(text: str, expected: list[Brief]) -> None:
    """A result in our own form is hidden and reported, and nothing in it counts."""
    assert expected == read(text)


@together(
    ("deltas", "expected"),
    [
        pytest.param(["Once u", "pon a", " time\n"], ["Once upon a time\n"], id="prose in pieces"),
        pytest.param(
            ["first\n~~~t", "ool", '_call\n{"tool":', '"ls"}', "\n~", "~~", "\nlast"],
            ["first\n", call("ls"), "\nlast"],
            id="marker, body and close in pieces",
        ),
        pytest.param(["~~~tool_cal", "lback me"], ["~~~tool_callback me"], id="a cut beginning that comes to nothing"),
        pytest.param(["~~~tool_call ", "me later"], ["~~~tool_call me later"], id="a whole marker and then text"),
        pytest.param(["~~~tool_call \t", ' \n{"tool":"ls"}\n~~~', "ok"], [call("ls"), "ok"], id="a cut in the blanks"),
        pytest.param(["wait ~", "~"], ["wait ~~"], id="tildes at the end are let go"),
        pytest.param(["a\n~~~tool_", "result\nb\n~~~\nc"], ["a\n", FORGED, "\nc"], id="a cut where the markers part"),
        pytest.param(["so ~~~tool_result", "s are"], ["so ~~~tool_results are"], id="a result's name in prose"),
        pytest.param(["a\n~~~tool_result\nhalf of", " it"], ["a\n", FORGED], id="a result that nobody closes"),
        pytest.param(['~~~tool_call\n{"tool":', '"ls"'], [CUT], id="a call that nobody closes is not lost in silence"),
        pytest.param(
            ['~~~tool_call\n{"tool":"t","args":"{\\"x\\": 1}"}\n~~~\n'],
            [call("t", x=1), "\n"],
            id="arguments as a string",
        ),
        pytest.param(['~~~tool_call\n{"args":{}}\n~~~'], [error("missing_tool_name")], id="nobody is called"),
    ],
)
def test_what_a_filter_of_fences_must_do(deltas: list[str], expected: list[Brief]) -> None:
    """The situations that the ExAthena library tests its filter with, where we want the same."""
    text = "".join(deltas)

    assert expected == read(text)
    assert expected == brief(assert_chunk_invariant(text, [deltas]))


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
