"""Property tests of rules: the matches do not depend on the cuts, pending text is minimal, and the cost is linear."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from streamtools import Parser
from streamtools.events import Text
from streamtools.rules import Rule, email, shown
from streamtools.rules.automaton import Automaton
from streamtools.rules.matcher import Match, Matcher, TextAndMatches
from streamtools.testing.laws import cut
from tests.rules.laws import can_begin, expected, literal_sets, plain_sets, read, rule_sets, texts
from tests.support.bounds import calls_made
from tests.support.cases import together

places = st.lists(st.integers(0, 14), max_size=6)


@given(rule_sets, texts, places)
def test_matches_do_not_depend_on_cuts(rules: list[Rule], text: str, at: list[int]) -> None:
    """First, then longest, then the first rule, with any results of checks."""
    assume(rules)
    assert expected(rules, text) == read(rules, cut(text, at)) == read(rules, list(text))


def joined(pieces: TextAndMatches) -> list[str | Match]:
    """Return certain pieces, with the text between two matches joined."""
    made: list[str | Match] = [""]
    for each in [pieces] if isinstance(pieces, str) else pieces:
        if isinstance(each, str) and isinstance(before := made[-1], str):
            made[-1] = before + each
        else:
            made += [each, ""]
    return [each for each in made if each]


@given(literal_sets, texts, places)
def test_the_fast_path_for_literals_finds_the_same_matches(rules: list[Rule], text: str, at: list[int]) -> None:
    """Also for pieces that were seen before."""
    for pieces in (cut(text, at), list(text), cut(text, at)):
        one, other, parser = Matcher(rules), Matcher(rules), Parser(text_rules=rules)
        other.search_beginning = None
        for piece in pieces:
            assert joined(one.feed(piece)) == joined(other.feed(piece))
            assert (one.pending, one.position) == (other.pending, other.position)
        assert one.close() == other.close()
        events = [event for piece in pieces for event in parser.feed(piece)] + parser.close()
        assert shown(rules, text) == "".join(event.text for event in events if isinstance(event, Text))


@given(plain_sets, st.text("aabc ", max_size=5))
def test_pending_text_may_become_a_match(rules: list[Rule], text: str) -> None:
    """All such text is pending: some text after it makes a match."""
    assume(rules and all(rule.holds < 6 and isinstance(rule.what[0], str) for rule in rules))
    matcher = Matcher(rules)
    matcher.feed(text)
    begin = len(text) - len(matcher.pending)
    assert len(matcher.pending) <= max(rule.holds for rule in rules)
    assert not matcher.pending or can_begin(rules, text, begin, 3)


@together(
    ("text", "held"),
    [
        ("write to ", ""),
        ("write to me", "me"),
        ("write to me@", "me@"),
        ("write to me@here", "me@here"),
        ("write to me@here ", ""),
        ("write to me@here.or", "me@here.or"),
        ("write to me@here.or ", ""),
        ("a" * 65, ""),
    ],
)
def test_a_word_is_pending_while_it_may_be_an_address(text: str, held: str) -> None:
    matcher = Matcher([email()])
    for character in text:
        matcher.feed(character)
    assert held == matcher.pending


HARD = {
    "a long match that never comes": ["a|a{1,400}b"],
    "a run of classes": ["[ab]{0,200}c", "[ab]{200}"],
    "nested": ["(?:a{1,9}b?){1,40}c"],
    "overlapping literals": ["aaab", "aaaaaaaaaaaab", "aa"],
    "looks": [r"(?<!b)a{1,300}(?=b)", r"\ba{1,90}c"],
}
TEXTS: dict[str, Callable[[int], str]] = {
    "one letter": lambda size: "a" * size,
    "two": lambda size: ("aab" * size)[:size],
    "words": lambda size: ("aaa aaab " * size)[:size],
}


def work_of(rules: list[Rule], text: str, size: int) -> int:
    """Return how many function calls reading a text takes."""
    matcher = Matcher(rules)

    def work() -> None:
        for at in range(0, len(text), size):
            matcher.feed(text[at : at + size])
        matcher.close()

    return calls_made(work)


@pytest.mark.deep
@pytest.mark.parametrize("size", [3, 10**6], ids=["in threes", "at once"])
@pytest.mark.parametrize("written", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("patterns", HARD.values(), ids=HARD)
def test_twice_the_text_is_twice_the_work(patterns: list[str], written: Callable[[int], str], size: int) -> None:
    """No text after an undecided match is read again."""
    rules = [Rule(name=each, what=[re.compile(each)]) for each in patterns]
    work_of(rules, written(6000), size)  # what is made once
    once, twice, four_times = (work_of(rules, written(length), size) for length in (1500, 3000, 6000))
    assert four_times - twice < 3 * (twice - once) + 500  # 2 if linear, 4 if quadratic


def test_states_over_the_limit_are_deleted_and_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [Rule(name="r", what=[re.compile("[ab]{0,5}a[ab]{5}c")])]
    text = "".join("ab"[(at * 2654435761 >> 7) & 1] for at in range(400)) + "c"
    monkeypatch.setattr("streamtools.rules.automaton._MAX_TRANSITIONS", 20)
    assert expected(rules, text) == read(rules, list(text)) != []


def shows_too_early(patch: pytest.MonkeyPatch) -> None:
    """Show one character of the pending text."""
    feed, release = Matcher.feed, Matcher._release

    def early(matcher: Matcher, decided: Any, stop: int) -> Any:
        return release(matcher, decided, stop + (len(matcher.pending) > 1 and not decided))

    patch.setattr(Matcher, "_release", early)
    patch.setattr(Matcher, "feed", lambda matcher, text: feed(matcher, text) if not text else matcher._read(text))


def takes_the_shortest(patch: pytest.MonkeyPatch) -> None:
    """Accept a match as soon as there is one."""
    step = Automaton.step

    def first(automaton: Automaton, *args: Any) -> Any:
        made = step(automaton, *args)
        if made.after is None or made.ends:
            return made
        key = made.state.key
        return made._replace(ends=True, state=automaton.state((key[0], key[1][:-1])))

    patch.setattr(Automaton, "step", first)


def prefers_the_last_rule(patch: pytest.MonkeyPatch) -> None:
    """Prefer the last of two rules that match the same text."""
    patch.setattr("streamtools.rules.automaton.sorted", lambda each: sorted(each, reverse=True), raising=False)


def shows_a_match_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Show pending text at the end unchanged, even if it is a match."""
    patch.setattr(Matcher, "close", lambda matcher: matcher._release([], matcher.position))


@pytest.mark.parametrize(
    "plant", [shows_too_early, takes_the_shortest, prefers_the_last_rule, shows_a_match_at_the_end]
)
def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first law, with few texts."""
    rules = [
        Rule(name="r1", what=["ab", "abab"]),
        Rule(name="r2", what=[re.compile("a[bc]{1,3}")]),
        Rule(name="r3", what=["ab "]),
    ]
    plain = ["abab abc ab", "a", "cab acbcab", "ab"]
    assert all(expected(rules, text) == read(rules, list(text)) for text in plain)
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        assert all(expected(rules, text) == read(rules, list(text)) for text in plain)


@together(
    ("pattern", "why"),
    [
        ("a*", "upper bound"),
        ("a{2,}", "upper bound"),
        ("a??", "cannot be lazy"),
        (r"(a)\1", r"at character 3: the backreference `\\1` is not supported"),
        ("(?P<a>b)(?P=a)", r"the backreference `\(\?P=a\)` is not supported"),
        (r"\Aa", r"the escape or class `\\A` is not supported"),
        ("(?<=ab)c", "one character"),
        ("(?=a{2})b", "one character"),
        ("^a", "not supported"),
        ("a?", "empty"),
        ("(?:ab){1,9999}", "lower the bounds"),
        ("(?i:a)", r"the group `\(\?i` is not supported"),
    ],
)
def test_an_unsupported_pattern_is_refused(pattern: str, why: str) -> None:
    """The error gives the reason."""
    with pytest.raises(ValueError, match=why):
        Rule(name="r", what=[re.compile(pattern)])


def test_a_rule_without_a_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="has no pattern"):
        Rule(name="r", what=[])


@pytest.mark.parametrize("text", [r"ORD-\d{1,8}", r"\w+@example", "[0-9]{4}", "[a-z]+"])
def test_a_text_that_looks_like_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is literal text: use re\.compile"):
        Rule(name="r", what=[text])


@pytest.mark.parametrize("pattern", [1, None, b"a", re.compile(b"a")])
def test_only_a_text_or_a_pattern_of_text_is_a_pattern(pattern: Any) -> None:
    with pytest.raises(ValueError, match="needs a str or a compiled pattern of a str, got "):
        Rule(name="r", what=["a", pattern])


@pytest.mark.parametrize("flags", [re.DOTALL, re.VERBOSE, re.ASCII])
def test_an_unsupported_flag_is_refused(flags: re.RegexFlag) -> None:
    """`re.IGNORECASE` is supported."""
    with pytest.raises(ValueError, match="IGNORECASE"):
        Rule(name="r", what=[re.compile("a.", flags)])
    assert "x" == shown([Rule(name="r", what=[re.compile("ä.", re.IGNORECASE)], by="x")], "Äé")
