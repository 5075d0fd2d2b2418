"""Tests of the option `pace`: whole words and whole graphemes, at any cuts."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import Parser, coalesce, outputs, parse, rules
from streamtools.events import Text
from streamtools.testing.laws import cut
from tests.rules.test_text_guard import CALL, RULES, feed, places, texts

CLUSTERS = [
    *("a", "é", "e\u0301", "👨‍👩‍👧", "👍🏽", "🇩🇪", "🇫🇷", "한", "\u1112\u1161\u11ab", "नि", "☁\ufe0f"),
    *("\r\n", " ", "漢"),
]
PACES: list[Literal["words", "graphemes"]] = ["words", "graphemes"]


@given(st.lists(st.sampled_from(CLUSTERS), max_size=10))
def test_a_grapheme_is_never_cut(clusters: list[str]) -> None:
    """It is shown when the next grapheme begins, or at the end."""
    parser = Parser((), pace="graphemes")

    reported = [event.text for event in feed(parser, list("".join(clusters))) if isinstance(event, Text)]

    assert clusters == reported


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("Tell me, now", ["Tell ", "me, ", "now"]),
        ("a  b", ["a ", " ", "b"]),
        ("漢字とkana.", ["漢", "字", "と", "kana."]),
        ("x" * 130, ["x" * 64, "x" * 64, "xx"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"]),
    ],
)
def test_a_word_is_never_cut(text: str, reported: list[str]) -> None:
    """It includes the white space after it.

    In a script without spaces, each character is a word. A word has at most 64.
    """
    assert reported == [event.text for event in feed(Parser((), pace="words"), list(text)) if isinstance(event, Text)]


@given(texts, places, st.sampled_from(PACES), st.booleans())
def test_the_shown_text_does_not_depend_on_the_pace(text: str, at: list[int], pace: Any, ruled: bool) -> None:
    """Nor does its order with calls."""
    found = [*RULES, rules.stop("END")] if ruled else []
    events = feed(Parser(text_rules=found, pace=pace, reasoning="anywhere"), cut(text, at))

    outputs.validate(events, run=False)
    assert coalesce(events) == coalesce(parse(text, text_rules=found, pace=pace, reasoning="anywhere").events)
    plain = parse(text, text_rules=found, reasoning="anywhere")
    assert plain.content == "".join(event.text for event in events if isinstance(event, Text))
    kinds, those = (
        [event.type for event in coalesce(event for event in each if event.type != "warning")]
        for each in (events, plain.events)
    )
    assert kinds == those


def test_pending_text_is_shown_before_a_call() -> None:
    events = feed(Parser(pace="words"), ["half a wo", f" {CALL}", "rd"])

    assert ["half a wo ", "thinking", "call-start", "call", "thinking", "rd"] == [
        each.text if isinstance(each, Text) else each.type for each in coalesce(events)
    ]
    with pytest.raises(ValueError, match="pace"):
        Parser(pace="slow")  # type: ignore[arg-type]


PLANTED: dict[str, Any] = {
    "a mark is a character": ("_joined", lambda text, at, one, other: False),
    "flags have one letter": ("_is_half_flag", lambda character: False),
    "nothing is joined": ("_JOINER", "\0"),
}


@pytest.mark.parametrize(("name", "fault"), PLANTED.values(), ids=PLANTED)
def test_a_planted_cut_of_a_grapheme_is_caught(name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(CLUSTERS)

    def reported() -> list[str]:
        return [event.text for event in feed(Parser((), pace="graphemes"), list(text)) if isinstance(event, Text)]

    assert CLUSTERS == reported()
    monkeypatch.setattr(f"streamtools.parsing.text_filter.{name}", fault)
    assert CLUSTERS != reported()
