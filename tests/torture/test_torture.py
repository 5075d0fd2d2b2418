"""A share of the torture: each scenario on both event loops, with blows at places spread over the run.

`python -m tests.torture` strikes at every place. The deep test strikes at a few places, the quick test at one.
"""

from __future__ import annotations

from itertools import groupby

import pytest

from tests.torture.blows import BOTH
from tests.torture.enumeration import Bench
from tests.torture.scenarios import SCENARIOS

PLACES = 2
"""Maximum number of places of each scenario at which a kind of blow strikes."""


each_scenario = pytest.mark.parametrize("scenario", SCENARIOS)
each_backend = pytest.mark.parametrize("backend", BOTH)


@each_backend
@each_scenario
def test_a_blow(scenario: str, backend: str) -> None:
    """One blow in the middle of each run. The kind depends on the scenario and the event loop."""
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
    """Each disturbed run ends as it should, reports its true end, and leaves no resources."""
    bench = Bench(SCENARIOS[scenario], backend)
    assert not bench.failures, str(bench.failures[0])
    for number, (_, group) in enumerate(groupby(bench.strikes(), lambda blow: blow.kind)):
        blows = list(group)
        stride = -(-len(blows) // PLACES)
        for blow in blows[number % stride :: stride]:
            bench.strike([blow])
    assert not bench.failures, f"{len(bench.failures)} of {bench.trials}:\n{bench.failures[0]}"
