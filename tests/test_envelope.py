"""What is told of a call while it arrives: its name as soon as that is certain, its arguments piece by piece."""

from __future__ import annotations

import itertools

import pytest

from streamtools import coalesce
from streamtools.events import CallDelta, CallStart, UIEvent
from tests.feeding import cut, steps, usual_ways
from tests.laws import assert_defined_per_character


def told(events: list[UIEvent]) -> list[str]:
    """Return names, marked, and pieces of arguments."""
    found = []
    for event in events:
        if isinstance(event, CallStart):
            found.append(f"-> {event.name}")
        elif isinstance(event, CallDelta):
            found.append(event.text)
    return found


@pytest.mark.parametrize(
    ("content", "arguments"),
    [
        pytest.param(r'{\"a\":1}', '{"a":1}', id="quotes"),
        pytest.param(r'{\"a\":\"\\n\"}', r'{"a":"\n"}', id="an escape in an escape"),
        pytest.param(r'{\"a\":\"\u00e9\"}', '{"a":"é"}', id="a code point"),
        pytest.param(r'{\"a\":\"\ud83d\ude00\"}', '{"a":"😀"}', id="a pair of surrogates"),
        pytest.param(r'{\"a\":\"\ud83d\ud83d\ude00\"}', '{"a":"\ud83d😀"}', id="half a pair before a pair"),
        pytest.param(r'{\"a\":\"\ud83d\n\"}', '{"a":"\ud83d\n"}', id="half a pair before an escape"),
        pytest.param(r'{\"a\":\"\ud83dx\"}', '{"a":"\ud83dx"}', id="half a pair before a letter"),
        pytest.param(r"{\}\"\n\u12\u00e9", '{\\}"\n\\u12é', id="escapes that JSON does not have, among good ones"),
        pytest.param(r"\ud83d\uZ\ud83d\ude00", "\ud83d\\uZ😀", id="half a pair before an escape that is none"),
        pytest.param("{\n\t}", "{\n\t}", id="raw control characters"),
    ],
)
def test_arguments_in_a_string_are_told_as_what_it_stands_for(content: str, arguments: str) -> None:
    """However the escapes are cut, the same pieces join to the same text; what is no escape stands for itself."""
    text = '###:{"name":"f","arguments":"' + content + '"}'
    for deltas in usual_ways(text):
        events = [event for step in steps(deltas, call_deltas=True) for event in step.new]
        assert ["-> f", arguments] == told(coalesce(events))
    for one, two in itertools.combinations(range(28, len(text)), 2):
        assert_defined_per_character(cut(text, [one, two]), call_deltas=True)
