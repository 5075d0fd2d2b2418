"""The pace of text: whole words and whole graphemes, whatever the cuts, and before calls all that there is."""

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
    "a",
    "é",
    "e\u0301",
    "👨‍👩‍👧",
    "👍🏽",
    "🇩🇪",
    "🇫🇷",
    "한",
    "\u1112\u1161\u11ab",
    "नि",
    "☁\ufe0f",
    "\r\n",
    " ",
    "漢",
]
PACES: list[Literal["words", "graphemes"]] = ["words", "graphemes"]


@given(st.lists(st.sampled_from(CLUSTERS), max_size=10))
def test_a_grapheme_is_never_cut(clusters: list[str]) -> None:
    """Each comes whole, when the next one begins, or at the end."""
    parser = Parser((), pace="graphemes")

    told = [event.text for event in feed(parser, list("".join(clusters))) if isinstance(event, Text)]

    assert clusters == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Tell me, now", ["Tell ", "me, ", "now"]),
        ("a  b", ["a ", " ", "b"]),
        ("漢字とkana.", ["漢", "字", "と", "kana."]),
        ("x" * 130, ["x" * 64, "x" * 64, "xx"]),
        ("葛\U000e0100城", ["葛\U000e0100", "城"]),
    ],
)
def test_a_word_is_never_cut(text: str, told: list[str]) -> None:
    """It comes with the white space behind it; a character of a script without spaces is one, and no word is longer
    than 64.
    """
    assert told == [event.text for event in feed(Parser((), pace="words"), list(text)) if isinstance(event, Text)]


@given(texts, places, st.sampled_from(PACES), st.booleans())
def test_what_is_shown_does_not_depend_on_the_pace(text: str, at: list[int], pace: Any, ruled: bool) -> None:
    """All of it comes, in the same order, before the calls that it came before."""
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


def test_a_call_comes_behind_the_text_before_it() -> None:
    """Half a word is whole when something else follows."""
    events = feed(Parser(pace="words"), ["half a wo", f" {CALL}", "rd"])

    assert ["half a wo ", "thinking", "call-start", "call", "thinking", "rd"] == [
        each.text if isinstance(each, Text) else each.type for each in coalesce(events)
    ]
    with pytest.raises(ValueError, match="pace"):
        Parser(pace="slow")  # type: ignore[arg-type]


PLANTED: dict[str, Any] = {
    "a mark is a character": ("_joined", lambda text, at, one, other: False),
    "flags have one letter": ("_is_flag", lambda character: False),
    "nothing is joined": ("_JOINER", "\0"),
}


@pytest.mark.parametrize(("name", "fault"), PLANTED.values(), ids=PLANTED)
def test_a_cut_grapheme_is_noticed(name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the first law looks at."""
    text = "".join(CLUSTERS)

    def told() -> list[str]:
        return [event.text for event in feed(Parser((), pace="graphemes"), list(text)) if isinstance(event, Text)]

    assert CLUSTERS == told()
    monkeypatch.setattr(f"streamtools.parsing.text_filter.{name}", fault)
    assert CLUSTERS != told()
