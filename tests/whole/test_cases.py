"""Many cases in one test: none hides another, and the failed ones are named."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.support.cases import together
from tests.support.loops import ONE_LOOP

NUMBERS = [1, pytest.param(2, id="two"), 3, 4]


@ONE_LOOP
async def test_each_failed_case_is_named() -> None:
    """By its id or its value, as with `pytest.mark.parametrize`."""
    tried: list[tuple[int, str, str]] = []

    @together("number", NUMBERS)
    @together("word, other", [("a", "b"), ("c", "d")], ids=["first", "second"])
    def look(number: int, word: str, other: str, fixture: str) -> None:
        tried.append((number, word + other, fixture))
        assert number % 2 or word == "a"

    @together(["number"], NUMBERS, ids=str)
    async def wait(number: int) -> None:
        assert number % 2

    trying: Any = look
    waiting: Any = wait
    assert ["fixture"] == list(inspect.signature(look).parameters)
    with pytest.raises(AssertionError, match=r"(?s)^2 of 4 .*:\n\ntwo: .*1 of 2.*second: .*\n\n4: .*second: "):
        trying(fixture="f")
    assert [(number, words, "f") for number in (1, 2, 3, 4) for words in ("ab", "cd")] == tried
    with pytest.raises(AssertionError, match=r"(?s)^2 of 4 cases failed:\n\ntwo: .*\n\n4: "):
        await waiting()


def test_a_case_with_a_mark_is_refused() -> None:
    """The mark would have no effect."""
    marked: Any = pytest.param(1, marks=pytest.mark.deep)
    with pytest.raises(TypeError, match="a separate test"):
        together("number", [marked])
