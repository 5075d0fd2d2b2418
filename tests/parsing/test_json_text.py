"""Tests of `JsonScanner`: it finds the end of a JSON value in one pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools.limits import Limits
from streamtools.testing.laws import assert_chunk_invariant
from tests.support.cases import together
from tests.support.reading import brief, call, error, raws, read, warning
from tests.support.ways_to_cut import every_way


@together(
    "value",
    [
        pytest.param('""', id="an empty string"),
        pytest.param('"{"', id="an opening brace in a string"),
        pytest.param('"}"', id="a closing brace in a string"),
    ],
)
def test_text_after_the_object_is_shown(value: str) -> None:
    assert [call("f", a=json.loads(value)), "} and on"] == read('###:{"name":"f","args":{"a":' + value + "}}} and on")


@pytest.mark.deep
def test_a_small_call_at_every_cut() -> None:
    """A call of twelve characters has two thousand cuts."""
    text = '###:{"a":"}"}.'

    assert [error("missing_tool_name"), "."] == brief(assert_chunk_invariant(text, every_way(text)))


def nested(levels: int) -> str:
    """Return a call with this number of levels."""
    return '###:{"name":"f","args":{"a":' + "[" * (levels - 2) + "]" * (levels - 2) + "}}"


def test_the_65th_level_is_an_error() -> None:
    """The rest of the call is only counted."""
    deepest, too_deep = nested(64), nested(65)
    begin = too_deep.rindex("[") + 1

    assert [call("f", a=json.loads("[" * 62 + "]" * 62)), " on"] == read(deepest + " on")
    assert [error("too_deep"), warning("skipped", len(too_deep) - begin), " on"] == read(too_deep + " on")
    assert [too_deep[:begin], None] == raws(too_deep)


@pytest.mark.parametrize(
    ("after", "count"),
    [
        pytest.param("[[{", 3, id="even deeper, and no end"),
        pytest.param('"]}}"]}}', 8, id="brackets in a string"),
        pytest.param("]}} ###:", 3, id="half a marker after it"),
        pytest.param("", None, id="nothing more"),
    ],
)
def test_beyond_the_depth_the_end_is_still_found(after: str, count: int | None) -> None:
    text = '###:{"name":"f","args":{"a":['
    expected: list[Any] = [error("too_deep")]
    if count:
        expected.append(warning("skipped", count))
    if after.endswith("###:"):
        expected.append(" ###:")

    assert expected == read(text + after, limits=Limits(depth=2))
