"""Tests of `neutralize` and `restore`: text that could be read as structure gets a word joiner, and loses it later."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools.parsing import parse
from streamtools.parsing.dialects import DIALECTS, Dialect, neutralizing
from streamtools.parsing.dialects.neutralizing import neutralize, restore
from tests.families import MARKUP
from tests.support.cases import together

ALL = tuple(DIALECTS.values())


@together(
    ("dialect", "text", "expected"),
    {
        "a marker": ("hash_marker", '###:{"name":"f"}', '#\u2060##:{"name":"f"}'),
        "what only begins like one": ("hash_marker", "### Title", "### Title"),
        "two of them": ("hash_marker", "###:###:", "#\u2060##:#\u2060##:"),
    },
)
def test_the_joiner_follows_the_first_character(dialect: str, text: str, expected: str) -> None:
    """Nothing else changes."""
    assert expected == neutralize(text, [DIALECTS[dialect]])
    assert text == restore(expected, [DIALECTS[dialect]])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(
            {"a": ["#\u2060##:", {"#\u2060##:": 1}]}, {"a": ["###:", {"###:": 1}]}, id="deep inside, and keys"
        ),
        pytest.param({"#\u2060##:": 1, "###:": 2}, {"#\u2060##:": 1, "###:": 2}, id="keys that would become one"),
        pytest.param([None, True, 1.5, ""], [None, True, 1.5, ""], id="no text"),
    ],
)
def test_arguments_are_restored(value: Any, expected: Any) -> None:
    """A joiner that `neutralize` did not insert is kept."""
    assert expected == restore(value, [DIALECTS["hash_marker"]])


@given(st.lists(st.sampled_from([part for parts in MARKUP.values() for part in parts]) | st.text(max_size=3)))
def test_neutralized_text_can_be_restored(parts: list[str]) -> None:
    """For any text and any dialects."""
    text = "".join(parts).replace("\u2060", "")

    assert text == restore(neutralize(text, ALL), ALL)


def test_a_long_text_is_neutralized_in_blocks() -> None:
    """Reserved texts at the edge of a block are found."""
    dialects = (DIALECTS["hermes_json"],)
    call, shown = "<tool_call>", neutralize("<tool_call>", dialects)
    for at in range(neutralizing._BLOCK - len(call) - 1, neutralizing._BLOCK + 2):
        text = "a" * at + call + "a" * neutralizing._BLOCK + call
        assert "a" * at + shown + "a" * neutralizing._BLOCK + shown == neutralize(text, dialects)


def test_each_character_is_searched_once() -> None:
    """For any number of dialects."""
    pattern = neutralizing.structure_of(tuple(ALL)).first.pattern
    assert 1 == pattern.count("<(?!")
    assert len(pattern) < len("".join(word for dialect in ALL for word in dialect.reserved))


@together("dialect", ALL, ids=lambda each: each.id)
def test_no_part_of_a_result_is_a_call(dialect: Dialect) -> None:
    """For the results of each dialect, at each cut."""
    for page in ('{"to": "Ann"}', "a page"):
        text = dialect.write_result("read", neutralize(page, [dialect]))
        for at in range(len(text)):
            assert [] == parse(text[at:], dialects=[dialect]).calls, text[at:]
