"""Dialects: the laws for texts with valid calls, malformed calls and near misses, at any cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from streamtools import Parser
from streamtools.events import UIEvent
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.outputs import validate
from streamtools.testing.laws import (
    assert_chunk_invariant,
    assert_conserved,
    assert_defined_per_character,
    assert_deltas_match_arguments,
    cut,
    feed,
)
from streamtools.testing.random_texts import CODE, JSON, MARKDOWN, PROSE, STRINGS, TAGS
from tests.families import MARKERS, MARKUP
from tests.fuzz.target import Input, Target, encode, pieces, seeds
from tests.support.bounds import assert_within_limits, characters_handled, stored
from tests.support.promptness import assert_prompt
from tests.support.reference import examples
from tests.support.strategies import AUTO, TOOLS, enabled
from tests.support.variants import KNOWN

_SMALL = Limits(call=60, depth=3, digits=4, calls=2)
CHOICES: dict[str, Sequence[Any]] = {
    "tools": (TOOLS, None),
    "call_deltas": (False, True),
    "on_malformed": ("error", "text"),
    "after_call": ("show", "hide", "stop"),
    "in_code": (None, "text", "call"),
    "reasoning": ("start", "anywhere", "off"),
    "in_reasoning": (False, True),
    "calls_at": ("start", "anywhere"),
    "limits": (DEFAULT_LIMITS, _SMALL, Limits(call=12), Limits(call=200, depth=1), Limits(calls=0), Limits(digits=1)),
}
"""Ways to read a text, as `tests.support.strategies.options` has them."""

_LONG = 400  # characters of a text for which the laws that look at each place are checked
_PUMPED = 1_500  # characters of a text of which twice as many are read, too
_SATURATED = 4_000  # characters after which a parser with small limits stores its maximum
_KEPT = 2_500  # characters that may be kept of three times as many more: a call that is read holds up to 1,700
_GROWTH = 2.3  # times the work for twice the text
_RATE = 20  # times as many characters handled as there are: a text may begin with what costs nearly nothing


def check(ids: tuple[str, ...], given: Input) -> Iterator[object]:
    """Check the laws for one text."""
    text = given.text
    how = given.choose_all(CHOICES) | {"dialects": enabled(ids)}
    refused = how["on_malformed"] == "text"
    deltas = cut(text, given.places(len(text)))
    events = assert_chunk_invariant(text, [deltas, list(text)], keep_markup=True, **how)
    parser = Parser(keep_markup=True, **how)
    told = [event for delta in deltas for event in parser.feed(delta)] + parser.close()
    assert_conserved(text, told, stopped=parser.stopped)
    validate(told, run=False)
    if not refused:
        assert_within_limits(told, how["limits"])
    if given.wants(0) and len(text) <= _LONG:
        assert_prompt(text, **how)
        assert_prompt(deltas, **how)
    if given.wants(1) and len(text) <= _LONG:
        assert_defined_per_character(deltas, **how)
    if given.wants(2):
        assert_deltas_match_arguments(feed(list(text), **how | {"call_deltas": True, "call_partials": True}))
    if given.wants(3) and text:
        _keeps_little(text, how)
    if given.wants(4) and text:
        _works_in_proportion(text, how)
    yield from _outcome(events, how)


def _outcome(events: list[UIEvent], how: dict[str, Any]) -> Iterator[object]:
    policy = (how["on_malformed"], how["after_call"], how["in_reasoning"])
    before: object = None
    for event in events:
        kind = (type(event).__name__, getattr(event, "code", None), getattr(getattr(event, "call", None), "dialect", 0))
        yield policy, kind
        yield before, kind
        before = kind


def _keeps_little(text: str, how: dict[str, Any]) -> None:
    """Check that the limits bound the stored text of an endless stream."""
    kept = _keeps(text, how)
    if kept >= _KEPT:  # patterns are compiled when they are first wanted, and then kept for all parsers
        kept = _keeps(text, how)
    assert kept < _KEPT, f"{kept} characters are kept of three times {_SATURATED}"


def _keeps(text: str, how: dict[str, Any]) -> int:
    """Return the growth of the stored characters when a text becomes three times as long again."""
    parser = Parser(**how | {"limits": replace(how["limits"], call=min(200, how["limits"].call), calls=2)})
    count = _SATURATED // len(text) + 1
    for delta in pieces(text * count, 50):
        parser.feed(delta)
    before = stored(parser)
    for delta in pieces(text * (3 * count), 50):
        parser.feed(delta)
    return stored(parser) - before


def _works_in_proportion(text: str, how: dict[str, Any]) -> None:
    """Check that twice the text is twice the work, in deltas of four. The beginning may cost less."""

    def work(count: int) -> int:
        return characters_handled(lambda: feed(pieces(text * count, 4), **how))

    count = _PUMPED // len(text) + 1
    once, twice = work(count), work(2 * count)
    if twice > _GROWTH * once and twice > _RATE * 2 * count * len(text):
        four = work(4 * count)
        grows = four - twice > _GROWTH * (twice - once)
        assert not grows, (
            f"{once} characters are handled for {count} times the text, {twice} for twice, {four} for four"
        )


def _bodies(ids: tuple[str, ...]) -> Iterator[str]:
    """Yield the first texts: calls and results as the dialects write them, whole, in prose, in code, and malformed."""
    arguments: list[dict[str, Any]] = [
        {}, {"a": "x"}, {"city": "Zürich", "count": -1, "size": 2.5, "loud": True}, {"words": ["a", "b"], "city": None},
        *({"a": each} for each in STRINGS[:12]),
    ]  # fmt: skip
    for each in ids:
        dialect = KNOWN[each]
        written = [dialect.write_call("get_weather", given) for given in arguments[: 3 if len(ids) > 2 else None]]
        call, other = written[0], written[1]
        yield from written
        yield from (
            f"Let me see.\n{call}\nDone. {other}",
            f"{call}{other}",
            f"`{call}` {call}",
            f"```\n{call}\n```\n{call}",
        )
        yield from (
            f"<think>I {call} </think>{call}",
            f"> {call}\n{call}\n\n{call}",
            f"So {call} and\n\n{other}, or [{call}]",
            f"\n<think>\nI {call}\n{other}\n",
            f"<think>I\n\n{call}{other}\n\n</think>\n\n{call}",
            f"<think>{call}\n{other[: len(other) // 2]}",
            other[: len(other) // 2],
            call[:-1],
        )
        yield from (
            other.replace('"', "", 1),
            f"{call}{call[:-2]}\n\nand on",
            call + dialect.write_result("f", "It is done."),
        )
        yield "".join(MARKUP[each])
        yield from (text + "x" for marker in MARKERS[each][:4] for text in list(examples(marker.parts))[:2])


def make_of(name: str, ids: tuple[str, ...]) -> Target:
    """Return the target of a set of dialects."""
    markup = [part for each in ids for part in MARKUP[each]]
    calls = [KNOWN[each].write_call("f", {"a": "}"}) for each in ids]
    words = [*markup, *calls, *JSON, *PROSE, *MARKDOWN, *CODE, *TAGS, *STRINGS]
    return Target(
        name,
        lambda given: check(ids, given),
        lambda: list(seeds(_bodies(ids), CHOICES, laws=5)),
        [encode(word) for word in dict.fromkeys(words) if word],
    )


def make(dialect: str) -> Target:
    """Return the target of one dialect."""
    return make_of(f"dialect:{dialect}", (dialect,))


def make_auto() -> Target:
    """Return the target of `"auto"`."""
    return make_of("auto", AUTO)
