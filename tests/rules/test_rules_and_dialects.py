"""Tests of rules together with each dialect."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from streamtools import Parser, coalesce, outputs, parse
from streamtools.events import Call, Reasoning, Text, Thinking
from streamtools.parsing.dialects import DIALECTS
from streamtools.rules import shown
from streamtools.testing.laws import cut
from tests.families import MARKUP
from tests.rules.test_text_guard import RULES, assert_conserved, feed

WORDS = [
    *("secret", "sec", "ret", "top ", "[1]", "a@b.org", "@b.org", "me", " ", "\n", "##", "e\u0301", "👨‍👩‍👧"),
    *('{"a": 1}', "`"),
]


def left_of(events: Any) -> str:
    """Return the text of events after applying the rules. Hidden text and reasoning separate texts."""
    seen, text = "", ""
    for event in events:
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, Thinking | Reasoning):
            seen, text = seen + shown(RULES, text), ""
    return seen + shown(RULES, text)


def hold(dialect: str, seed: int) -> int:
    """Raise AssertionError if a text breaks the laws. Returns the number of its calls."""
    draw = Random(f"{dialect} {seed}")
    parts = draw.choices([*WORDS, *MARKUP[dialect], *MARKUP[dialect]], k=draw.randint(1, 16))
    if draw.random() < 0.5:
        known = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    else:
        known = []
    text = "".join(parts)
    more: dict[str, Any] = {"dialects": [dialect], "tools": known, "reasoning": draw.choice(["start", "anywhere"])}
    plain = parse(text, **more)
    chosen = {**more, "text_rules": RULES}
    whole = parse(text, **chosen)
    for cuts in (list(range(len(text))), sorted(draw.choices(range(len(text) + 1), k=4))):
        events = feed(Parser(**chosen), cut(text, cuts))
        outputs.validate(events, run=False)
        assert coalesce(whole.events) == coalesce(events)
        assert "".join(event.text for event in events if isinstance(event, Text)) == left_of(plain.events)
        assert_conserved(plain.content, events)
    kinds = (Call, Thinking)
    reported = [[type(each) for each in one.events if isinstance(each, kinds)] for one in (plain, whole)]
    assert reported[0] == reported[1]
    return len(whole.calls)


@pytest.mark.parametrize("many", [1, pytest.param(60, marks=pytest.mark.deep)])
def test_rules_apply_to_the_visible_text_of_each_dialect(many: int) -> None:
    """At any cuts: no match spans a call, and no text is lost."""
    calls = sum(hold(dialect, seed) for dialect, seed in itertools.product(sorted(DIALECTS), range(many)))
    assert calls > 0
