"""The torture finds each planted fault, and reports nothing without a fault."""

from __future__ import annotations

import pytest

from tests.torture.blows import BOTH
from tests.torture.enumeration import Bench
from tests.torture.loops import PATIENCE
from tests.torture.planted import OF_ASYNCIO, PLANTED, HidesEnd
from tests.torture.scenarios import SCENARIOS


@pytest.mark.parametrize(
    ("fault", "backend"),
    [(fault, backend) for fault in PLANTED for backend in BOTH if backend == "asyncio" or fault not in OF_ASYNCIO],
)
def test_planted_faults_are_found(fault: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kind of blow, at every place, reveals it."""
    monkeypatch.setattr("tests.torture.loops.PATIENCE", PATIENCE / 50)
    stream, blow, complaint = PLANTED[fault]
    bench = Bench(SCENARIOS["generators"], backend, noted=stream)
    for each in bench.strikes():
        if each.kind.name == blow.partition("@")[0]:
            bench.strike([each])
        if any(complaint in told for failure in bench.failures for told in failure.complaints):
            return
    raise AssertionError(f"{fault} was not found in {bench.trials} runs: {bench.failures[:1]}")


def test_a_failure_has_the_command_that_repeats_it() -> None:
    """It has the scenario, the event loop, the blow, its place, and a command."""
    stream, _, _ = PLANTED["a response that stays open"]
    bench = Bench(SCENARIOS["prose"], "trio", seed=3, noted=stream)
    blow = next(each for each in bench.strikes() if str(each) == "aclose@4")
    bench.strike([blow])
    told = str(bench.failures[0])
    assert told.startswith("prose on trio, aclose@4:")
    assert told.endswith("again: python -m tests.torture prose --backend trio --seed 3 --blow aclose@4")


def test_a_forgotten_question_is_found() -> None:
    """A run that asks for an approval must not report that it finished."""
    bench = Bench(SCENARIOS["resumed"], "asyncio", noted=HidesEnd)
    assert "the run is finished, but should be waiting" in bench.failures[0].complaints
