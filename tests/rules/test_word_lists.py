"""Rules of many words: the same matches as of a few, little memory, and the work of one step for each character."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import Parser, rules
from streamtools.events import Text
from streamtools.rules import Rule, shown
from streamtools.rules.automaton import _WordList
from streamtools.rules.matcher import Matcher
from streamtools.testing.laws import cut
from tests.rules.laws import expected, read
from tests.rules.test_rules_laws import work_of
from tests.support.cases import together

_words = st.lists(st.text("abAß日.", min_size=1, max_size=5), min_size=1, max_size=12)
_texts = st.text("abAß日. ", max_size=16)
_places = st.lists(st.integers(0, 16), max_size=6)


def as_one_pattern(words: list[str], around: str = "", flags: int = 0) -> re.Pattern[str]:
    """Return a pattern of all words."""
    return re.compile(f"{around}(?:{'|'.join(map(re.escape, words))}){around}", flags)


@given(_words, _texts, _places)
def test_words_match_as_their_patterns_do(words: list[str], text: str, at: list[int]) -> None:
    """As texts, as patterns, as one pattern, with word boundaries, without case, and beside other rules."""
    forms: list[list[str | re.Pattern[str]]] = [
        [*words],
        [re.compile(re.escape(word)) for word in words],
        [as_one_pattern(words)],
        [as_one_pattern(words, r"\b")],
        [re.compile(rf"\b{re.escape(word)}\b") for word in words],
        [as_one_pattern(words, flags=re.IGNORECASE)],
        [*words, re.compile(r"\b[ab]{2,3}(?!a)"), as_one_pattern(words, "b?")],
    ]
    for what in forms:
        both = [Rule(name="words", what=what), Rule(name="odd", what=words[:2], check=lambda match: "a" in match)]
        for used in (both, both[::-1], both[:1]):
            assert expected(used, text) == read(used, cut(text, at)) == read(used, list(text)), what


@given(_words, _texts)
def test_only_the_beginning_of_a_word_is_pending(words: list[str], text: str) -> None:
    matcher = Matcher([Rule(name="words", what=words)])
    for character in text:
        matcher.feed(character)
    beginnings = {word[:size] for word in words for size in range(1, len(word) + 1)}
    assert not matcher.pending or matcher.pending in beginnings or matcher.pending.startswith(tuple(words))


@together(
    ("words", "text", "result"),
    [
        (["cat", "cats", "at"], "cats cat at catatonic", "* * * **onic"),
        (["he", "she", "hers", "his"], "ushers", "u*rs"),
        (["日本", "日本語", "語"], "日本語日本語語", "***"),
        (["a", "a"], "aa", "**"),
        (["Straße"], "Straße STRASSE", "* STRASSE"),
    ],
)
def test_the_first_and_longest_word_wins(words: list[str], text: str, result: str) -> None:
    assert result == shown([rules.replace(words, "*")], text)
    assert result == shown([rules.replace(words + [f"{at}#never" for at in range(2000)], "*")], text)


def many_words(count: int, letters: str = "abcdefghijklmnopqrstuvwxyz") -> list[str]:
    """Return different words at random."""
    chance = random.Random(count)
    found: set[str] = set()
    while len(found) < count:
        found.add("".join(chance.choices(letters, k=chance.randint(4, 12))))
    return sorted(found)


CJK = "".join(map(chr, range(0x4E00, 0x4E00 + 4000)))


@pytest.mark.parametrize("letters", ["abcdefghijklmnopqrstuvwxyz", CJK], ids=["Latin", "CJK"])
def test_fifty_thousand_words_are_compiled(letters: str) -> None:
    """And found, among texts that begin as they do. Memory is that of the words, and linear."""
    chance, words = random.Random(1), many_words(50_000, letters)
    hidden = chance.sample(words, 50)
    text = " ".join(f"{word[:3]} {word}" for word in hidden)
    tracemalloc.start()
    rule = rules.replace(words, "*")
    parser = Parser(text_rules=[rule])
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    events = [event for at in range(0, len(text), 4) for event in parser.feed(text[at : at + 4])] + parser.close()
    written = "".join(event.text for event in events if isinstance(event, Text))

    assert memory < 50_000 * 400
    assert 50 == written.count("*")
    assert not any(word in written for word in hidden)
    assert max(map(len, words)) - 1 == rule.holds


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["literals", "one pattern"])
def test_the_work_does_not_grow_with_the_words(kind: str) -> None:
    """A known text takes the same work with 100 times the words. A new text takes a few times as much."""
    text = " ".join(word for word in many_words(300) for _ in "ab")

    def work(count: int) -> tuple[int, int]:
        words = many_words(count)
        what = words if kind == "literals" else [as_one_pattern(words, r"\b", re.IGNORECASE)]
        rules = [Rule(name="words", what=what)]
        return work_of(rules, text, 4), work_of(rules, text, 4)

    (new, known), (new_of_many, known_of_many) = work(500), work(50_000)
    assert known_of_many < 3 * known
    assert new_of_many < 6 * new


def takes_any_word_after_a_prefix(patch: pytest.MonkeyPatch) -> None:
    """Forget that the longer prefix must be one of a word."""
    follow = _WordList.follow

    def wrong(words: _WordList, state: int, now: int) -> tuple[bool, bool, list[int]]:
        is_whole, is_prefix, longer = follow(words, state, now)
        return is_whole, is_prefix, longer or ([state + 1] if now and is_prefix and not is_whole else [])

    patch.setattr(_WordList, "follow", wrong)


def ends_at_the_first_word(patch: pytest.MonkeyPatch) -> None:
    """Take a word that is the beginning of another at once."""
    follow = _WordList.follow

    def wrong(words: _WordList, state: int, now: int) -> tuple[bool, bool, list[int]]:
        is_whole, is_prefix, longer = follow(words, state, now)
        return is_whole, is_prefix and not is_whole, [] if is_whole else longer

    patch.setattr(_WordList, "follow", wrong)


@pytest.mark.parametrize("plant", [takes_any_word_after_a_prefix, ends_at_the_first_word])
def test_a_planted_fault_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    used, text = [Rule(name="words", what=["cat", "cats", "at", "cot", re.compile("z[yz]")])], "cats cxt cott"
    assert expected(used, text) == read(used, list(text))
    plant(monkeypatch)
    assert expected(used, text) != read(used, list(text))


@together(
    ("pattern", "matched", "other"),
    [
        ("a{,5}b", ["b", "ab", "aaaaab"], ["a{,5}b"]),
        ("a{000003}", ["aaa"], ["aa"]),
        ("a{00001,000000002}c", ["ac", "aac"], ["c"]),
        ("xa{}", ["xa{}"], ["xa"]),
        ("a{ 3}", ["a{ 3}"], ["aaa"]),
        ("a{3,\u0663}", ["a{3,\u0663}"], ["aaa"]),
        ("a{1,,2}", ["a{1,,2}"], ["aa"]),
        ("[ab]{0,2}c{,1}d", ["d", "abcd"], ["c"]),
    ],
)
def test_counts_mean_what_they_mean_to_re(pattern: str, matched: list[str], other: list[str]) -> None:
    rule = Rule(name="r", what=[re.compile(pattern)])
    for text in matched + other:
        assert (re.fullmatch(pattern, text) is not None) is (text in matched)
        assert expected([rule], text) == read([rule], list(text))


@pytest.mark.parametrize("pattern", ["a{,}", "a{3,}", "a{,0}b", "a{0}b"])
def test_counts_without_a_bound_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="upper bound"):
        Rule(name="r", what=[re.compile(pattern)])
