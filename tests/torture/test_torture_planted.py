"""The torture finds what it is there to find: each planted fault, and none where there is none."""

from __future__ import annotations

import sys

import pytest

from tests.torture.__main__ import main
from tests.torture.blows import BOTH
from tests.torture.enumeration import Bench
from tests.torture.loops import PATIENCE
from tests.torture.planted import OF_ASYNCIO, PLANTED
from tests.torture.scenarios import SCENARIOS


@pytest.mark.parametrize(
    ("fault", "backend"),
    [(fault, backend) for fault in PLANTED for backend in BOTH if backend == "asyncio" or fault not in OF_ASYNCIO],
)
def test_planted_faults_are_found(fault: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kind of blow, at every place, brings it out."""
    monkeypatch.setattr("tests.torture.loops.PATIENCE", PATIENCE / 50)
    stream, blow, complaint = PLANTED[fault]
    bench = Bench(SCENARIOS["generators"], backend, noted=stream)
    for each in bench.strikes():
        if each.kind.name == blow.partition("@")[0]:
            bench.strike([each])
        if any(complaint in told for failure in bench.failures for told in failure.complaints):
            return
    raise AssertionError(f"{fault} was not found in {bench.trials} runs: {bench.failures[:1]}")


def test_a_failure_says_how_to_repeat_it() -> None:
    """The scenario, the event loop, the blow, its place, and one command."""
    stream, _, _ = PLANTED["a response that stays open"]
    bench = Bench(SCENARIOS["prose"], "trio", seed=3, noted=stream)
    blow = next(each for each in bench.strikes() if str(each) == "aclose@4")
    bench.strike([blow])
    told = str(bench.failures[0])
    assert told.startswith("prose on trio, aclose@4:")
    assert told.endswith("again: python -m tests.torture prose --backend trio --seed 3 --blow aclose@4")


@pytest.mark.parametrize("words", ["--blow cancl@3", "--blow cancel@x", "--blow cancel@3 prose", "stream"])
def test_what_cannot_be_struck(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, and not a traceback."""
    monkeypatch.setattr(sys, "argv", ["torture", *words.split()])
    with pytest.raises(SystemExit) as left:
        main()
    assert 2 == left.value.code
    assert ("no scenario" if words == "stream" else "a blow is KIND@PLACE") in capsys.readouterr().err


@pytest.mark.parametrize(("place", "there"), [("4", True), ("99999", False)])
def test_a_blow_that_strikes_nothing_says_so(
    place: str, there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No failure is found either way."""
    monkeypatch.setattr(sys, "argv", ["torture", "prose", "--backend", "trio", "--blow", f"aclose@{place}"])
    assert 0 == main()
    said = capsys.readouterr().out
    assert there != ("prose on trio: nothing was struck" in said)
    assert "2 runs, 0 failures" in said
