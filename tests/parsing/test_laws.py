"""Property tests: the laws hold for all texts, dialects, options and cuts."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import pytest
from hypothesis import Phase, given, settings

from streamtools.parsing.dialects import TAUGHT_DIALECTS
from tests.families import ENVELOPES, MARKERS, MARKUP, TEMPLATE_TAGS
from tests.families.base import Part
from tests.parsing.laws import FEW, SETS, Ids, Reading, check, traits
from tests.support.reference import begins_with, examples, may_become
from tests.support.strategies import AUTO, Options, readings
from tests.support.variants import KNOWN

EACH_SET = pytest.mark.parametrize("ids", SETS.values(), ids=SETS)
SHARE = 0.6
"""How large a share of the profile's examples a set of dialects gets, but in the quick tests."""


def test_every_dialect_has_fragments_and_reference_markers() -> None:
    assert set(KNOWN) == set(MARKUP) == set(MARKERS)


@pytest.mark.deep
def test_no_marker_of_auto_begins_with_a_marker_of_others() -> None:
    """Except that a sentence before a call of Claude may begin with a call of Olmo, which is complete first."""
    owners: defaultdict[tuple[Part, ...], set[str]] = defaultdict(set)
    for each in AUTO:
        for parts in [*(marker.parts for marker in MARKERS[each]), *(tag.parts for tag in TEMPLATE_TAGS.get(each, ()))]:
            owners[parts].add(each)

    def may_begin(text: str, parts: tuple[Part, ...]) -> bool:
        return begins_with(text, parts) or may_become(text, parts)

    taken = {
        (*owners[parts], *owners[longer], text)
        for parts, longer in itertools.permutations(owners, 2)
        if owners[parts] != owners[longer] and any(may_begin(text, longer) for text in examples(parts[:1]))
        for text in examples(parts)
        if may_begin(text, longer)
    }

    assert {("olmo3_pythonic", "anthropic_xml")} == {tuple(names) for *names, _ in taken}, taken


@pytest.mark.hypothesis
@EACH_SET
def test_the_laws_hold(ids: Ids) -> None:
    """For all corner cases and for generated texts. The deep tests generate twice as many for the most common sets."""
    profile = settings().max_examples
    often = 2 if ids in (TAUGHT_DIALECTS, AUTO) else 1
    check(ids, FEW if profile <= 15 else round(SHARE * profile) * often)


@pytest.mark.deep
@EACH_SET
def test_generated_texts_hold_calls_candidates_and_errors(ids: Ids) -> None:
    """At least a tenth of the texts each. Other traits are rarer."""
    seen: Counter[str] = Counter()
    read, examples = 0, 900 if ids == AUTO else 300  # what is rare comes in bursts, the more so the more is enabled

    @settings(max_examples=examples, derandomize=True, database=None, phases=[Phase.generate])
    @given(readings(ids))
    def count(reading: tuple[str, Options]) -> None:
        nonlocal read
        read += 1
        text, how = reading
        seen.update(traits(Reading(list(text), how)))

    count()

    least = dict.fromkeys(["a committed call", "a released candidate", "an error"], 0.1)
    least["a limit"] = 0.02
    if ENVELOPES.intersection(ids):
        least["an error of its own"] = 0.01
    assert {} == {what: seen[what] / read for what, share in least.items() if seen[what] < share * read}
    assert read >= examples
