"""Rules and a pace beside each dialect: the reader sees what the rules leave of the text that there is without them."""

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

PACES: list[Any] = ["as_it_comes", "words", "graphemes"]
WORDS = [
    "secret",
    "sec",
    "ret",
    "top ",
    "[1]",
    "a@b.org",
    "@b.org",
    "me",
    " ",
    "\n",
    "##",
    "e\u0301",
    "👨‍👩‍👧",
    '{"a": 1}',
    "`",
]


def left_of(events: Any) -> str:
    """Return what the rules leave of the text of events. What is hidden, and what is thought, stands between texts."""
    seen, text = "", ""
    for event in events:
        if isinstance(event, Text):
            text += event.text
        elif isinstance(event, Thinking | Reasoning):
            seen, text = seen + shown(RULES, text), ""
    return seen + shown(RULES, text)


def hold(dialect: str, seed: int) -> int:
    """Raise AssertionError unless the laws hold for a text; return how many calls are in it."""
    draw = Random(f"{dialect} {seed}")
    parts = draw.choices([*WORDS, *MARKUP[dialect], *MARKUP[dialect]], k=draw.randint(1, 16))
    if draw.random() < 0.5:
        known = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    else:
        known = []
    text = "".join(parts)
    more: dict[str, Any] = {"dialects": [dialect], "tools": known, "reasoning": draw.choice(["start", "anywhere"])}
    plain = parse(text, **more)
    chosen = {**more, "text_rules": RULES, "pace": PACES[seed % 2]}
    whole = parse(text, **chosen)
    for cuts in (list(range(len(text))), sorted(draw.choices(range(len(text) + 1), k=4))):
        events = feed(Parser(**chosen), cut(text, cuts))
        outputs.validate(events, run=False)
        assert coalesce(whole.events) == coalesce(events)
        assert "".join(event.text for event in events if isinstance(event, Text)) == left_of(plain.events)
        assert_conserved(plain.content, events)
    kinds = (Call, Thinking)
    told = [[type(each) for each in one.events if isinstance(each, kinds)] for one in (plain, whole)]
    assert told[0] == told[1]
    return len(whole.calls)


@pytest.mark.parametrize("many", [1, pytest.param(60, marks=pytest.mark.deep)])
def test_the_reader_sees_what_the_rules_leave(many: int) -> None:
    """Of every dialect, with each pace, over cuts: no match over the edge of a call, and no text that is lost."""
    calls = sum(hold(dialect, seed) for dialect, seed in itertools.product(sorted(DIALECTS), range(many)))

    assert calls > 0
