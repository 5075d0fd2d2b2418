"""The laws of rules, and generators of texts and rules.

The reference tries every position and every length of the whole text with `re`. It is slow, but simple.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import cache

from hypothesis import strategies as st

from streamtools.rules import Rule
from streamtools.rules.matcher import Match, Matcher, _shared_automaton

Place = tuple[int, int, str]
"""Where a match begins and ends, and the name of its rule."""

_PARTS = st.sampled_from(
    ["a", "b", "[ab]", "[^a]", ".", "ab", "(?:a|bc)", "c", "a{0,3}", "(?:ab|b){1,3}", "b?", "[ab]{2,5}", r"\w", "(b|)c"]
)
_BEFORE = st.sampled_from(["", "", "", r"\b", "(?<!a)", "(?<=b)", r"\B"])
_BEHIND = st.sampled_from(["", "", "", r"\b", "(?!a)", "(?=b)", r"\B"])
_patterns = st.builds(
    "{}(?:{}){}".format, _BEFORE, st.lists(_PARTS, min_size=1, max_size=5).map("".join) | st.just("ab|abab|b"), _BEHIND
)
_literals = st.text("abc", min_size=1, max_size=4)


def _is_even(text: str) -> bool:
    return len(text) % 2 == 0


def _has_an_a(text: str) -> bool:
    return text.count("a") == 1


@cache
def made(name: str, what: str, is_literal: bool, check: int) -> Rule | None:
    """Return a rule, or None if its pattern may match the empty text."""
    try:
        return Rule(
            name=name, what=[what if is_literal else re.compile(what)], check=(None, _is_even, _has_an_a)[check]
        )
    except ValueError:
        return None


def _ruled(parts: list[tuple[tuple[str, bool], int]]) -> list[Rule]:
    each = [made(f"r{at}", what, literal, check) for at, ((what, literal), check) in enumerate(parts)]
    return [rule for rule in each if rule is not None]


_what = st.tuples(_patterns, st.just(False)) | st.tuples(_literals, st.just(True))
rule_sets = st.lists(st.tuples(_what, st.sampled_from([0, 0, 0, 1, 2])), min_size=1, max_size=4).map(_ruled)
plain_sets = st.lists(st.tuples(_what, st.just(0)), min_size=1, max_size=3).map(_ruled)
literal_sets = st.lists(st.tuples(st.tuples(_literals, st.just(True)), st.sampled_from([0, 0, 1])), min_size=1).map(
    _ruled
)
texts = st.text("aabbc .", max_size=14)


def expected(rules: Sequence[Rule], text: str) -> list[Place]:
    """Return the matches in a whole text: the first, of these the longest, and of these the match of the first rule."""
    found, at, size = [], 0, len(text)
    while at < size:
        ends = (
            (stop, rule.name)
            for stop in range(size, at, -1)
            for rule in rules
            if any(_fits(each, text, at, stop) for each in rule.what)
            and (rule.check is None or rule.check(text[at:stop]))
        )
        stop, name = next(ends, (at, ""))
        if name:
            found.append((at, stop, name))
        at = max(stop, at + 1)
    return found


def _fits(what: str | re.Pattern[str], text: str, start: int, stop: int) -> bool:
    if isinstance(what, str):
        return text[start:stop] == what
    return _ending(what, len(text) - stop).match(text, start) is not None


@cache
def _ending(what: re.Pattern[str], rest: int) -> re.Pattern[str]:
    return re.compile(f"(?:{what.pattern})(?=(?s:.{{{rest}}})\\Z)", what.flags)


def read(rules: Sequence[Rule], deltas: Sequence[str]) -> list[Place]:
    """Return the matches of a matcher, after checking that its pieces hold each character once."""
    _shared_automaton.cache_clear()  # a planted fault must not be hidden by a cached automaton
    matcher = Matcher(rules)
    pieces = [piece for delta in deltas for piece in matcher.feed(delta)]
    pieces += matcher.close()
    assert "".join(each if isinstance(each, str) else each.text for each in pieces) == "".join(deltas)
    found = [each for each in pieces if isinstance(each, Match)]
    assert all(len(each.text) <= each.rule.holds + 1 for each in found)
    return [(each.position, each.position + len(each.text), each.rule.name) for each in found]


def can_begin(rules: Sequence[Rule], text: str, at: int, longest: int) -> bool:
    """Return whether some text after this text makes a match that begins at a position."""
    tails = ("".join(tail) for size in range(longest + 1) for tail in itertools.product("abc ", repeat=size))
    return any(start == at for tail in tails for start, _, _ in expected(rules, text + tail))
