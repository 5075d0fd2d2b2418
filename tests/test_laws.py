"""Properties: what holds for every text, every dialect, every way to read it and every cut."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from hypothesis import Phase, event, given, settings
from hypothesis import strategies as st

from streamtools import Parser, parse
from streamtools.errors import Code
from streamtools.events import Call, Error, Text, UIEvent, Warning
from streamtools.limits import DEFAULT_LIMITS
from streamtools.parsing.dialects import DEFAULT_DIALECTS, choose_dialects
from streamtools.parsing.dialects.base import restore
from streamtools.testing.feeding import cut, feed, steps
from streamtools.testing.laws import (
    LIMITS,
    MALFORMED,
    assert_chunk_invariant,
    assert_conserved,
    assert_defined_per_character,
    assert_deltas_tell_the_arguments,
    assert_in_order,
)
from tests.bounds import assert_within_limits
from tests.families import ENVELOPES, MARKERS, MARKUP, TEMPLATE_TAGS
from tests.promptness import assert_prompt
from tests.reference import begins_with, examples, may_become
from tests.strategies import AUTO, TOOLS, Options, Written, armed, cuts, documents, options, readings, texts
from tests.variants import KNOWN, VARIANTS

Ids: TypeAlias = tuple[str, ...]

SHARED = ("<tool_call>", "<function_calls>", "<tool_calls", "<function=", "[TOOL_CALLS]", "<｜")
"""Beginnings of markers that several dialects share."""


def _sets() -> Iterator[tuple[Ids, float]]:
    """Yield the sets of dialects that are armed, and how large a share of the profile's examples each gets."""
    yield from (((each,), 0.25) for each in KNOWN)
    yield DEFAULT_DIALECTS, 0.5
    yield tuple(VARIANTS), 0.25
    for beginning in SHARED:
        yield tuple(each for each in AUTO if _begins(each, beginning)), 0.25
    yield AUTO, 1


def _begins(dialect: str, beginning: str) -> bool:
    return any(text.startswith(beginning) for marker in MARKERS[dialect] for text in examples(marker.parts))


SETS = {"auto" if ids == AUTO else "+".join(ids): (ids, share) for ids, share in _sets()}

Check: TypeAlias = Callable[[Ids, st.DataObject], None]

LAWS: dict[str, Check] = {}
"""The properties themselves, by the names of their tests."""


def law(check: Check) -> Callable[[Ids, float], None]:
    """Make a property of each set of dialects: it is checked with the set's share of the profile's examples."""

    @pytest.mark.parametrize(("ids", "share"), SETS.values(), ids=SETS)
    @functools.wraps(check)
    def test(ids: Ids, share: float) -> None:
        @settings(max_examples=max(1, round(share * settings().max_examples)))
        @given(st.data())
        def hold(data: st.DataObject) -> None:
            check(ids, data)

        hold()

    del test.__wrapped__  # pytest would look for its parameters there
    LAWS[check.__name__] = check
    return test


def test_every_dialect_is_covered() -> None:
    """Each dialect of the table has its fragments, and its markers in the reference."""
    assert set(KNOWN) == set(MARKUP) == set(MARKERS)


def test_all_that_are_armed_together_are_told_apart() -> None:
    """Where `"auto"` arms them, no complete marker of a dialect is the beginning of a marker of another one."""
    entries = [(each, marker.parts) for each in AUTO for marker in MARKERS[each]]
    entries += [(each, tag.parts) for each in AUTO for tag in TEMPLATE_TAGS.get(each, ())]
    taken = {
        f"{text!r} of {one} and {other}"
        for one, parts in entries
        for text in examples(parts)
        for other, others in entries
        if one != other and parts != others and (begins_with(text, others) or may_become(text, others))
    }

    assert set() == taken


@law
def test_chunk_invariance(ids: Ids, data: st.DataObject) -> None:
    """One by one, and however else it is cut, a text gives the same events."""
    text, how = data.draw(readings(ids))
    ways = [list(text), *(cut(text, data.draw(cuts)) for _ in range(3))]

    events = assert_chunk_invariant(text, ways, keep_markup=True, **how)

    for what in traits(text, how):
        event(what)
    event(f"{min(len(events), 10)} events")


@law
def test_deltas_are_only_batching(ids: Ids, data: st.DataObject) -> None:
    """Not only in the end but at each cut, the same has been said and the same is held."""
    text, how = data.draw(readings(ids))

    assert_defined_per_character(cut(text, data.draw(cuts)), **how)


@law
def test_conservation(ids: Ids, data: st.DataObject) -> None:
    """All events together hold every character of the text, in order."""
    text, how = data.draw(readings(ids))
    parser = Parser(keep_markup=True, **how)
    events = [each for delta in cut(text, data.draw(cuts)) for each in parser.feed(delta)] + parser.close()

    assert_conserved(text, events, stopped=parser.stopped)


@law
def test_promptness(ids: Ids, data: st.DataObject) -> None:
    """Only what can still become a marker is held back, whether the text comes one by one or in pieces."""
    text, how = data.draw(readings(ids))

    assert_prompt(text, **how)
    assert_prompt(cut(text, data.draw(cuts)), **how)


@law
def test_paired_lifecycle(ids: Ids, data: st.DataObject) -> None:
    """Each call is announced once and ends once, in the order that interfaces rely on."""
    text, how = data.draw(readings(ids))
    events = feed(cut(text, data.draw(cuts)), **how)

    assert_in_order(events, run=False)
    assert_deltas_tell_the_arguments(feed(list(text), **how | {"call_deltas": True}))


@law
def test_totality(ids: Ids, data: st.DataObject) -> None:
    """No text whatever makes a parser raise, half pairs of surrogates and control characters included."""
    anything = st.text(st.characters(), max_size=30) | st.text('#~:{}[]"\\`\n\r tolcarsuen_<>/hik', max_size=60)

    feed(data.draw(st.lists(anything | texts(ids, max_size=3), max_size=6)), **data.draw(options(ids)))


@law
def test_what_is_written_is_read(ids: Ids, data: st.DataObject) -> None:
    """Good calls between prose come out with their names and arguments, and the prose is all that is visible."""
    document = data.draw(documents(ids))
    result = parse(cut(document.text, data.draw(cuts)), dialects=armed(ids), tools=TOOLS)

    dialects = choose_dialects(armed(ids))
    assert document.calls == [(call.dialect, call.name, restore(call.arguments, dialects)) for call in result.calls]
    assert document.prose == result.content
    assert [] == result.errors


@law
def test_a_call_is_told_when_it_is_complete(ids: Ids, data: st.DataObject) -> None:
    """Nothing has to follow a call for it to be told."""
    document = data.draw(documents(ids))
    parser = Parser(dialects=armed(ids), tools=TOOLS)
    written = 0
    for part in document.parts:
        parser.feed(part if isinstance(part, str) else part.text)
        written += isinstance(part, Written)

        assert written == len(parser.calls)


@law
def test_limits_bound_what_is_kept(ids: Ids, data: st.DataObject) -> None:
    """No call, good or bad, is kept beyond the limit, and no turn has more calls than are allowed."""
    text, how = data.draw(readings(ids))
    limits = how.get("limits", DEFAULT_LIMITS)
    events = feed(cut(text, data.draw(cuts)), **how | {"on_malformed": "error"})

    assert_within_limits(events, limits)


def traits(text: str, how: Options) -> list[str]:
    """Return what reading `text` shows: calls, candidates that came to nothing, errors."""
    found = set()
    events: list[UIEvent] = []
    held = ""
    for step in steps(text, **how):
        events = step.events
        if held and any(isinstance(each, Text) for each in step.new):
            found.add("a released candidate")
        held = step.held
    if any(isinstance(each, Call) for each in events):
        found.add("a committed call")
    codes = {each.code for each in events if isinstance(each, Error | Warning)} & MALFORMED
    if codes:
        found.add("an error")
    if codes & set(LIMITS):
        found.add("a limit")
    if codes - {*LIMITS, Code.INVALID_JSON}:
        found.add("an error of its own")
    return sorted(found)


@pytest.mark.parametrize("ids", [ids for ids, _ in SETS.values()], ids=SETS)
def test_the_texts_are_worth_reading(ids: Ids) -> None:
    """At least a tenth of the generated texts hold a call, a candidate that is released, an error; others are rarer."""
    seen: Counter[str] = Counter()
    read = 0

    @settings(max_examples=100, derandomize=True, database=None, phases=[Phase.generate])
    @given(readings(ids))
    def count(reading: tuple[str, Options]) -> None:
        nonlocal read
        read += 1
        seen.update(traits(*reading))

    count()

    least = dict.fromkeys(["a committed call", "a released candidate", "an error"], 0.1)
    least["a limit"] = 0.02
    if ENVELOPES.intersection(ids):
        least["an error of its own"] = 0.01
    assert {} == {what: seen[what] / read for what, share in least.items() if seen[what] < share * read}
    assert read >= 100
