"""Tests of `~~~tool_call`."""

from __future__ import annotations

import pytest

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
        "labelled": ('```json\n{"name":"f"}\n```\n', [f]),
        "without a label": ('```\n{"name":"f"}\n```\n', [f]),
        "spaces and CR LF": ('  ``` json \r\n{"name":"f"}\r\n  ```\r\n', [f]),
        "of four back-ticks": ('````json\n{"name":"f"}\n````\n', [f]),
        "closed by too few": ('```json\n{"name":"f"}\n``\n', [BROKEN]),
    },
)
def test_the_body_may_stand_in_a_fence_of_back_ticks(text: str, expected: list[Brief]) -> None:
    assert [*expected, " on"] == read(f"~~~tool_call\n{text}~~~ on")


@together(
    ("body", "expected"),
    {
        "one that is a string": ('["f",{"name":"f"}]', [error("unrecognised_tool_call"), f]),
        "one that is an array": ('[[{"name":"f"}],{"name":"g"}]', [error("unrecognised_tool_call"), g]),
        "that ends with a comma": ('[{"name":"f"},{"name":"g"},]', [f, g]),
        "without a comma": ('[{"name":"f"} {"name":"g"}]', [f, BROKEN]),
        "without a comma before a string": ('[{"name":"f"} "g"]', [f, BROKEN]),
        "without a comma between no calls": ("[[1]2]", [error("unrecognised_tool_call"), BROKEN]),
        "that a brace closes": ('[{"name":"f"}}', [f]),
    },
)
def test_each_object_of_an_array_is_a_call(body: str, expected: list[Brief]) -> None:
    """Good calls survive malformed siblings."""
    assert [*expected, " on"] == read(f"~~~tool_call\n{body}\n~~~ on")


def test_the_calls_of_an_array_divide_its_text() -> None:
    """Joined, their raw texts are the whole block."""
    block = '~~~tool_call\n[{"name":"f"}, {"a":1}, {"name":"g"}]\n~~~'

    assert ['~~~tool_call\n[{"name":"f"}, ', '{"a":1}, ', '{"name":"g"}]\n~~~'] == raws(block + " on")


@together(
    "text",
    [
        pytest.param('~~~tool_caller\n{"name":"f"}\n~~~', id="a longer word"),
        pytest.param('~~~tool_calls\n{"name":"f"}\n~~~', id="the plural"),
        pytest.param('```tool_call\n{"name":"f"}\n```', id="back-ticks"),
        pytest.param('- ~~~tool_call\n{"name":"f"}\n~~~', id="in a list item"),
        pytest.param('> ~~~tool_call\n> {"name":"f"}\n> ~~~', id="in a quote"),
        pytest.param(f"```\n{F}\n```", id="in a fence of back-ticks"),
        pytest.param(f"~~~~\n{F}\n~~~~", id="in a fence of tildes"),
        pytest.param('`~~~tool_call`\n{"name":"f"}\n~~~', id="in a code span"),
    ],
)
def test_text_that_resembles_the_marker_is_shown_unchanged(text: str) -> None:
    """It opens a code fence if Markdown says so."""
    assert [text] == read(text)


@together(
    ("text", "decides"), [("~~x", "x"), ("~~~\n", "\n"), ("~~~~", "~"), ("~~~python", "p"), ("~~~tool_caller", "e")]
)
def test_text_is_released_at_the_character_that_decides(text: str, decides: str) -> None:
    at = next(index for index, step in enumerate(steps(text)) if step.new)

    assert decides == text[at]
    assert [text[: at + 1]] == brief([*steps(text)][at].new)
    assert "" == [*steps(text)][at].pending


def test_indentation_is_shown_immediately() -> None:
    reported = [step.new for step in steps("  \t~~~tool_call", dialects="tilde_fence")]

    assert [" ", " ", "\t"] == [text for new in reported for text in brief(new)]


def test_the_line_end_commits() -> None:
    """Before the line end, the text is a candidate. After it, the call is announced."""
    reported = [(step.delta, len(step.new), step.pending) for step in steps("~~~tool_call \r\n")]

    assert ("\n", 1, "") == reported[-1]
    assert ("\r", 0, "~~~tool_call \r") == reported[-2]
    assert all(count == 0 for _, count, _ in reported[:-1])


def test_an_error_holds_the_hidden_text() -> None:
    """From the first tilde of the marker to the last of the closing line."""
    assert ["~~~tool_call\nno\n ~~~"] == raws("a\n  ~~~tool_call\nno\n ~~~~ b")


@together(
    ("text", "expected"),
    {
        # One object is between the lines.
        "after indentation": (f"  \t{F}", ["  \t", f]),
        "lines that end with CR LF": ('~~~tool_call\r\n{"name":"f"}\r\n~~~\r\n', [f, "\r\n"]),
        "blank lines in good JSON": ('~~~tool_call\n{\n\n"name":\n"f"\n\n}\n~~~', [f]),
        "after the close no line begins": (f"{F}{G}", [f, G]),
        "the same call twice is two calls": (f"{F}\nthen\n\n{F}", [f, "\nthen\n\n", f]),
        # A malformed call ends at the next line of tildes, even inside an open string.
        "a trailing comma": ('~~~tool_call\n{"name":"f",}\n~~~ on', [BROKEN, " on"]),
        "a back-slash before the line end": ('~~~tool_call\n{"name":"f\\\n~~~ on', [BROKEN, " on"]),
        "a missing brace": ('~~~tool_call\n{"name":"f"\n~~~ on', [BROKEN, " on"]),
        "a marker's tildes close like any others": (
            f"~~~tool_call\nno\n{F} on",
            [BROKEN, 'tool_call\n{"name":"f"}\n~~~ on'],
        ),
        "an empty name": ('~~~tool_call\n{"name":""}\n~~~ on', [error("missing_tool_name"), " on"]),
        # A complete object is a call at the end of the stream, with a warning. An incomplete one is truncated.
        "after the line": ('~~~tool_call\n{"name":"f"}\n', [f, UNCLOSED]),
        "after one back-tick": ('~~~tool_call\n```\n{"name":"f"}\n`', [f, UNCLOSED]),
        "after tildes that are not the last": ('~~~tool_call\n{"name":"f"} ~~ ', [BROKEN]),
        "after the marker": ("~~~tool_call", [CUT]),
        "before the brace": ('~~~tool_call\n{"name":"f"', [CUT]),
        # A result that the model writes is hidden and reported. A call inside it does not count.
        "without a name": ("~~~tool_result\n3 °C\n~~~ on", [FORGED, " on"]),
        "as we write it": ("~~~tool_result get-weather_2\n3 °C\n~~~ on", [FORGED, " on"]),
        "empty, after indentation": ("No.\n  ~~~tool_result\n~~~\nOn.", ["No.\n  ", FORGED, "\nOn."]),
        "blanks and CR LF": ("~~~tool_result \t f \r\nx\r\n  ~~~ on", [FORGED, " on"]),
        "a name of sixty-four characters": (f"~~~tool_result {'n' * 64}\nx\n~~~", [FORGED]),
    },
)
def test_calls_and_results_are_between_two_lines(text: str, expected: list[Brief]) -> None:
    """The text after the second line is shown."""
    assert expected == read(text)
