"""Tests of markers: a match is complete, undecided, or not a match."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import pytest

from streamtools import Dialect, parse
from streamtools.parsing.dialects import Opener
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, Marker, Markers, Maybe, OneOf, Part, Pattern, Some
from streamtools.parsing.span import Span
from tests.families.base import Run
from tests.support.cases import together
from tests.support.reference import may_become
from tests.support.ways_to_cut import usual_ways


def body(span: Span) -> Generator[None, None, None]:
    """Read one JSON object."""
    yield from span.json()
    span.close()


@together(
    ("parts", "text", "ended", "expected"),
    [
        pytest.param(("ab",), "ab", False, 2, id="all of it"),
        pytest.param(("ab",), "abc", False, 2, id="more than all of it"),
        pytest.param(("a", BLANKS, LINE_END), "a", True, 1, id="the end of the stream ends a line"),
    ],
)
def test_a_match_has_three_results(
    parts: tuple[Part, ...], text: str, ended: bool, expected: int | bool | None
) -> None:
    """The end of the match does not depend on text before it."""
    shifted = expected + 2 if type(expected) is int else expected

    assert expected == Pattern(*parts).match(text, 0, ended)
    assert shifted == Pattern(*parts).match("--" + text, 2, ended)


def test_short_texts_match_as_in_a_slow_reference() -> None:
    """The reference walks the parts, over all texts of up to six characters out of four."""
    parts: tuple[Part, ...] = ("ab", Some(" a", 1, 2), "a", LINE_END)
    slow = [("ab", Run(" a", 1, 2), "a", end) for end in ("\n", "\r\n")]
    pattern = Pattern(*parts)
    for length in range(1, 7):
        for text in map("".join, itertools.product("ab \n", repeat=length)):
            maybe = any(may_become(text, each) for each in slow)
            assert maybe == (pattern.match(text, 0, False) is None), repr(text)


@together(
    "markers",
    [
        pytest.param([("abc",), ("ab", OneOf(("c", "cab", "")), "b")], id="words"),
        pytest.param([("ab", LINE_END), ("ab", BLANKS, "c")], id="a line end"),
        pytest.param([("ab", Some("b", 1, 2), OneOf(("c", "a"))), ("ab", "c")], id="a repetition before words"),
        pytest.param([("a", Some("b", 0, 2), Maybe(("", "c")), "a")], id="nothing in a choice"),
    ],
)
@pytest.mark.parametrize("longest", [5, pytest.param(6, marks=pytest.mark.deep)])
def test_several_markers_match_as_each_alone(markers: list[tuple[Part, ...]], longest: int) -> None:
    """Over all texts of up to six characters out of five."""
    together = Markers([(Marker(parts), number) for number, parts in enumerate(markers)])
    alone = [Markers([(Marker(parts), number)]) for number, parts in enumerate(markers)]
    for length in range(1, longest + 1):
        for text in map("".join, itertools.product("abc \n", repeat=length)):
            for ended in (False, True):
                each = [one.match(text, 0, ended) for one in alone]
                whole = sorted((one[1], one[0]) for one in each if one)
                found = together.match(text, 0, ended)
                if whole:
                    assert found, repr(text)
                    assert whole[0][0] == found[1], repr(text)
                    assert found in each, repr(text)
                else:
                    assert found is (None if None in each else False), repr(text)


@pytest.mark.parametrize(
    ("opener", "text"),
    [
        pytest.param(Opener(("【", Some("一-龥", 1, 8), "调用】"), body), "【工具调用】", id="in any script"),
        pytest.param(
            Opener(("【", Some("一-龥", 1, 4), "】"), body), "【工具调用】", id="a range, and a character after it"
        ),
        pytest.param(Opener(("@call", LINE_END), body, ahead=("{",)), "@call\r\n", id="before a line of its own"),
    ],
)
def test_markers_are_found_at_each_cut(opener: Opener, text: str) -> None:
    """A repetition gives back text of the next part, and the next line may arrive later."""
    own = Dialect(
        id="own", openers=(opener,), write_call=lambda name, arguments: "", write_result=lambda name, text: ""
    )
    for deltas in usual_ways(text + '{"name":"f"} on'):
        assert [("f", "own")] == [(call.name, call.dialect) for call in parse(deltas, dialects=[own]).calls]


def test_a_marker_ends_before_its_ahead() -> None:
    """Whichever marker of a group matches."""
    markers = Markers([(Marker(("<a", SPACES), ahead=(first,)), first) for first in ("{", "[")])

    assert ("{", 4) == markers.match("<a  {", 0, False)
    assert ("[", 3) == markers.match("<a [", 0, False)
    assert markers.match("<a  ", 0, False) is None
    assert markers.match("<a  ", 0, True) is False


def test_the_marker_that_is_complete_first_wins() -> None:
    """The result does not depend on the cuts, even for dialects with the same markers."""
    long, short = Marker(("(C)", SPACES), ahead=("[", SPACES, "{")), Marker(("(C)", SPACES), ahead=("[",))
    markers = Markers([(long, "long"), (short, "short")])

    assert ("short", 4) == markers.match("(C) [", 0, False)
    assert ("short", 4) == markers.match("(C) [{", 0, False)
    assert ("short", 4) == markers.match("(C) [{", 0, True)
