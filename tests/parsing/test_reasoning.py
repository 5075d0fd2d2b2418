"""Tests of reasoning between tags."""

from __future__ import annotations

from typing import Literal

import pytest

from streamtools import parse
from streamtools.events import Reasoning, Warning
from streamtools.testing.laws import steps
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, markup, read, thought, warning
from tests.support.reference import TAGS

F = '###:{"name":"f"}'
BLOCK = '~~~tool_call\n{"name":"f"}\n~~~'
f = call("f")
ALIKE = warning("call_in_reasoning")


@pytest.mark.parametrize(("opening", "closing"), TAGS.items())
def test_six_pairs_of_tags_open_and_close_reasoning(opening: str, closing: str) -> None:
    assert [thought("plan"), "Answer."] == read(f"{opening}plan{closing}Answer.")
    for other in TAGS.values():
        if other != closing:
            assert [thought(f"plan{other} on")] == read(f"{opening}plan{other} on")


@together(
    ("text", "expected"),
    [
        pytest.param(" \r\n\t<think>a</think>b", [" \r\n\t", thought("a"), "b"], id="after white space"),
        pytest.param("\n\n<think>a", ["\n", thought("a")], id="a line feed before it is the template's"),
        pytest.param("\n</think>a", ["a"], id="a line feed before a closing tag"),
        pytest.param("<think>a</think", [thought("a</think")], id="cut in the closing tag"),
        pytest.param("</thi", ["</thi"], id="cut in it"),
    ],
)
def test_tags_count_at_the_start(text: str, expected: list[Brief]) -> None:
    """Only white space may precede them."""
    assert expected == read(text)


@together(
    ("text", "expected"),
    [
        ("<think>a</think>b", [markup("<think>"), thought("a"), markup("</think>"), "b"]),
        ("<think>a</think>\nb", [markup("<think>"), thought("a"), markup("</think>\n"), "b"]),
        ("<think>a</think>\n\nb", [markup("<think>"), thought("a"), markup("</think>\n\n"), "b"]),
        ("<think>a</think>\n\n\nb", [markup("<think>"), thought("a"), markup("</think>\n\n"), "\nb"]),
        ("<think>a</think> \nb", [markup("<think>"), thought("a"), markup("</think>"), " \nb"]),
        ("<think>a</think>\r\nb", [markup("<think>"), thought("a"), markup("</think>"), "\r\nb"]),
        ("<think>\na\n</think>", [markup("<think>\n"), thought("a"), markup("\n</think>")]),
        ("<think>\n\na\n\n</think>", [markup("<think>\n"), thought("\na\n"), markup("\n</think>")]),
        ("<think>\n</think>a", [markup("<think>\n</think>"), "a"]),
        ("<think>\n\n</think>\n\na", [markup("<think>\n\n</think>\n\n"), "a"]),
        ("<think>\n</thi", [markup("<think>\n"), thought("</thi")]),
        ("<think>a\n", [markup("<think>"), thought("a\n")]),
        ("<think> \na", [markup("<think>"), thought(" \na")]),
    ],
)
def test_line_feeds_of_the_template_belong_to_the_tags(text: str, expected: list[Brief]) -> None:
    """One inside each tag, and up to two after the closing tag."""
    assert expected == read(text, keep_markup=True)
    assert [each for each in expected if each[0] != "markup"] == read(text)


@together(
    ("text", "expected"),
    [
        pytest.param("plan</think>\n\nAnswer.", [thought("plan"), "Answer."], id="closed"),
        pytest.param("<think>plan</think>Answer.", [thought("plan"), "Answer."], id="opened again"),
        pytest.param("<thi", [thought("<thi")], id="cut in the tag that opens it again"),
        pytest.param("a</think>b</think>c", [thought("a"), "b</think>c"], id="closed twice"),
    ],
)
@together("reasoning", ["start", "anywhere", "off"])
def test_in_reasoning_starts_inside_reasoning(
    text: str, expected: list[Brief], reasoning: Literal["start", "anywhere", "off"]
) -> None:
    assert expected == read(text, in_reasoning=True, reasoning=reasoning)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("`<think>`a", ["`<think>`a"], id="in a code span"),
        pytest.param("> <think>a", ["> <think>a"], id="in a quote"),
        pytest.param("```\n<think>a", ["```\n<think>a"], id="in a fence"),
        pytest.param("```\n```\n<think>a", ["```\n```\n", thought("a")], id="after a fence"),
        pytest.param(f"a <think>b</think>{BLOCK}", ["a ", thought("b"), f], id="a line begins after it"),
    ],
)
def test_reasoning_anywhere_reads_tags_where_calls_count(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, reasoning="anywhere")


def test_reasoning_off_shows_tags_as_text() -> None:
    assert ["<think>a ", f, "</think>b"] == read(f"<think>a {F}</think>b", reasoning="off")


def test_tags_do_not_depend_on_dialects() -> None:
    assert [thought(F), F] == read(f"<think>{F}</think>{F}", dialects=())


@together(
    ("text", "alike"),
    [pytest.param(F, True, id="a call"), pytest.param(f"I could {F} or {F}.", True, id="two are reported once")],
)
def test_a_call_in_reasoning_is_reasoning_with_one_warning(text: str, alike: bool) -> None:
    reported = [ALIKE] if alike else []

    assert [thought(text.removesuffix("\n")), *reported, "Answer."] == read(f"<think>{text}</think>Answer.")
    assert [thought(text + "."), *reported] == read(f"<think>{text}.")


def test_the_beginning_of_a_call_in_reasoning_is_reported() -> None:
    """The beginning ends with the character that commits. If the message ends there, the call is truncated."""
    begun = '###:\n{ "'
    assert [thought(begun), ALIKE, "Answer."] == read(f"<think>{begun}</think>Answer.")
    assert [error("truncated")] == read(f"<think>{begun}")


def test_each_section_of_reasoning_has_its_warning_at_its_end() -> None:
    text = f"<think>{F}</think><think>{F}</think>a"

    assert [thought(F), ALIKE, thought(F), ALIKE, "a"] == read(text)
    warnings = parse(text).warnings
    assert [(None, None)] * 2 == [(each.raw, each.count) for each in warnings]
    assert all(isinstance(each, Warning) for each in warnings)


def test_reasoning_is_shown_immediately() -> None:
    """Only text that may close it is pending."""
    reported = [(step.pending, brief(step.new)) for step in steps("<think>a</b</think>c")]
    shown = [held for held, _ in reported]

    assert ["<", "<t", "<th", "<thi", "<thin", "<think", "", "", "<", "</", ""] == shown[:11]
    assert [thought("a")] == reported[7][1]
    assert [thought("</b")] == reported[10][1]
    assert "ab" == "".join(
        event.text for step in steps(["<think>", "a", "b"]) for event in step.new if isinstance(event, Reasoning)
    )
