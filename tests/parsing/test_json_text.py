"""Where a JSON value ends, found in one pass over text that comes in pieces."""

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
def test_a_value_ends_where_it_ends(value: str) -> None:
    """What follows the object is text, whatever the object holds."""
    assert [call("f", a=json.loads(value)), "} and on"] == read('###:{"name":"f","args":{"a":' + value + "}}} and on")


@pytest.mark.deep
def test_a_small_call_at_every_cut_there_is() -> None:
    """Two thousand ways to cut a call of twelve characters."""
    text = '###:{"a":"}"}.'

    assert [error("missing_tool_name"), "."] == brief(assert_chunk_invariant(text, every_way(text)))


def nested(levels: int) -> str:
    """A call of so many levels."""
    return '###:{"name":"f","args":{"a":' + "[" * (levels - 2) + "]" * (levels - 2) + "}}"


def test_depth() -> None:
    """64 levels are a call; at the 65th an error is told, and the rest of the call is only counted."""
    deepest, too_deep = nested(64), nested(65)
    begin = too_deep.rindex("[") + 1

    assert [call("f", a=json.loads("[" * 62 + "]" * 62)), " on"] == read(deepest + " on")
    assert [error("too_deep"), warning("skipped", len(too_deep) - begin), " on"] == read(too_deep + " on")
    assert [too_deep[:begin], None] == raws(too_deep)


@pytest.mark.parametrize(
    ("behind", "count"),
    [
        pytest.param("[[{", 3, id="even deeper, and no end"),
        pytest.param('"]}}"]}}', 8, id="brackets in a string"),
        pytest.param("]}} ###:", 3, id="half a marker behind it"),
        pytest.param("", None, id="nothing more"),
    ],
)
def test_beyond_the_depth_the_end_is_still_found(behind: str, count: int | None) -> None:
    """Brackets and strings are followed without being kept."""
    text = '###:{"name":"f","args":{"a":['
    expected: list[Any] = [error("too_deep")]
    if count:
        expected.append(warning("skipped", count))
    if behind.endswith("###:"):
        expected.append(" ###:")

    assert expected == read(text + behind, limits=Limits(depth=2))
