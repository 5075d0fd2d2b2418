"""A share of the torture: each scenario, on both event loops, with blows at places spread over the run.

`python -m tests.torture` strikes at every place; the deep test at every so many, and the first and the last; the quick
one once.
"""

from __future__ import annotations

from itertools import groupby

import pytest

from tests.torture.blows import BOTH
from tests.torture.enumeration import Bench
from tests.torture.scenarios import SCENARIOS

PLACES = 2
"""Places of each scenario at which a kind of blow strikes, at most."""


each_scenario = pytest.mark.parametrize("scenario", SCENARIOS)
each_backend = pytest.mark.parametrize("backend", BOTH)


@each_backend
@each_scenario
def test_a_blow(scenario: str, backend: str) -> None:
    """In the middle of each run, by turns of each kind."""
    bench = Bench(SCENARIOS[scenario], backend)
    assert not bench.failures, str(bench.failures[0])
    kinds = [list(group) for _, group in groupby(bench.strikes(), lambda blow: blow.kind)]
    blows = kinds[(list(SCENARIOS).index(scenario) + BOTH.index(backend)) % len(kinds)]
    bench.strike([blows[len(blows) // 2]])
    assert not bench.failures, str(bench.failures[0])


@pytest.mark.deep
@each_backend
@each_scenario
def test_nothing_breaks(scenario: str, backend: str) -> None:
    """Whatever is done to a run, it ends as it should, tells the truth, and leaves nothing behind."""
    bench = Bench(SCENARIOS[scenario], backend)
    assert not bench.failures, str(bench.failures[0])
    for number, (_, group) in enumerate(groupby(bench.strikes(), lambda blow: blow.kind)):
        blows = list(group)
        stride = -(-len(blows) // PLACES)
        for blow in blows[number % stride :: stride]:
            bench.strike([blow])
    assert not bench.failures, f"{len(bench.failures)} of {bench.trials}:\n{bench.failures[0]}"
