"""Many cases in one test: all are tried, and what failed is named."""

from __future__ import annotations

import pytest

from tests.support.cases import cases


def try_four(tried: list[int]) -> None:
    """Try four cases, of which three fail."""
    with cases() as case:
        for number in range(4):
            with case("number", number):
                tried.append(number)
                assert number != 1, "it is one"
                if number == 2:
                    pytest.fail("it is two")
                if number == 3:
                    raise ExceptionGroup("group", [ValueError("it is three")])


def test_all_that_fail_are_named() -> None:
    """The others are tried nevertheless."""
    tried: list[int] = []
    with pytest.raises(AssertionError) as raised:
        try_four(tried)

    assert [0, 1, 2, 3] == tried
    first, one, two, three = str(raised.value).split("\n\n")
    assert "3 of 4 cases failed:" == first
    assert one.startswith("number, 1: AssertionError: it is one")
    assert two == "number, 2: Failed: it is two"
    assert three == "number, 3: ValueError: it is three"
    assert "it is one" in str(raised.value.__cause__)


def test_there_is_a_case() -> None:
    """A loop over nothing is no test."""
    with pytest.raises(AssertionError, match="there was no case"), cases():
        pass
