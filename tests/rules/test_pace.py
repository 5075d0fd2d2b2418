"""The pace of text: whole words and whole graphemes, whatever the cuts, and before calls all that there is."""

from __future__ import annotations

import re
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import Parser, coalesce, outputs, parse, rules
from streamtools.events import Text
from streamtools.testing.laws import cut
from tests.rules.test_text_guard import CALL, RULES, feed, places, texts
from tests.support.cases import together

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
PACES: list[Literal["words", "links", "graphemes"]] = ["words", "links", "graphemes"]
LINKS = [
    ('see [the long way](https://a.b/c (d) "t") now', ["see ", '[the long way](https://a.b/c (d) "t") ', "now"]),
    ("![a picture](x.png), and", ["![a picture](x.png), ", "and"]),
    ("[![a picture](x y)](z w) so", ["[![a picture](x y)](z w) ", "so"]),
    ("a [b [c d](e f) g h", ["a ", "[b [c d](e f) ", "g ", "h"]),
    ("[a [b] c](d e) f", ["[a [b] c](d e) ", "f"]),
    ("[a b] c d", ["[a b] ", "c ", "d"]),
    ("[a b][c d](e f) g", ["[a b]", "[c d](e f) ", "g"]),
    ("\\[ x y \\] z", ["\\[ ", "x ", "y ", "\\] ", "z"]),
    ("[a \\] b](c d) e", ["[a \\] b](c d) ", "e"]),
    ("[a b\nc d](e f)", ["[a b\n", "c ", "d](e ", "f)"]),
    ("[a](" + "u" * 200 + ") b", ["[a](" + "u" * 200 + ") ", "b"]),
]


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


@together(("text", "told"), LINKS)
def test_a_link_is_never_cut(text: str, told: list[str]) -> None:
    """It comes with its end, however it was cut; what turns out to be none comes with the character that decides."""
    for pieces in (list(text), [text[:7], text[7:]]):
        shown = [event.text for event in feed(Parser((), pace="links"), pieces) if isinstance(event, Text)]
        assert text == "".join(shown)
        assert len(pieces) == 2 or told == shown
        ends = [len("".join(told[: at + 1])) for at in range(len(told))]
        assert {len("".join(shown[: at + 1])) for at in range(len(shown))} <= {*ends}


@given(st.text("[[]]()! \na", max_size=24), places)
def test_no_link_is_cut(text: str, at: list[int]) -> None:
    """Of those that a regular expression finds."""
    parser, ends = Parser((), pace="links"), [0]
    for piece in cut(text, at):
        ends.append(ends[-1] + sum(len(event.text) for event in parser.feed(piece) if isinstance(event, Text)))

    for link in re.finditer(r"!?\[[^\[\]\n]*\]\([^()\n]*\)", text):
        assert not [end for end in ends if link.start() < end < link.end()]


def test_what_never_ends_as_a_link_is_shown() -> None:
    """Behind so many characters."""
    parser = Parser((), pace="links")
    parser.feed("[" + "a " * 511)
    assert len(parser.held) == 1023
    parser.feed("a a")
    assert parser.held == "a"
    assert len(parse("[" * 5000, pace="links").content) == 5000


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
    monkeypatch.setattr(f"streamtools.parsing.pace.{name}", fault)
    assert CLUSTERS != told()
