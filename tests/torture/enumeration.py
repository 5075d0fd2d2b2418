"""Enumerates every blow at every place of a scenario, and random pairs of blows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.torture.blows import BOTH, KINDS, Blow, Kind
from tests.torture.noted import NotedStream
from tests.torture.streams import Scenario
from tests.torture.trial import Trial, run_trial
from tests.torture.verdict import judge, story_of

_LATE = 12  # additional steps that a run with threads may take


@dataclass
class Failure:
    """A trial with complaints, and the command that repeats it."""

    scenario: str
    backend: str
    blows: str
    seed: int
    complaints: list[str]

    def __str__(self) -> str:
        lines = "\n".join(f"  - {each}" for each in self.complaints)
        again = f"python -m tests.torture {self.scenario} --backend {self.backend} --seed {self.seed}"
        return f"{self.scenario} on {self.backend}, {self.blows}:\n{lines}\n  again: {again} --blow {self.blows}"


@dataclass
class Bench:
    """One scenario on one event loop: its places, and the results of its trials."""

    scenario: Scenario
    backend: str
    seed: int = 0
    noted: type[Any] = NotedStream
    failures: list[Failure] = field(default_factory=list)
    trials: int = 0
    whole: Counter[str] = field(init=False)
    places: Counter[str] = field(init=False)
    actions: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        trial = run_trial(self.scenario, self.backend, [], seed=self.seed, noted=self.noted)
        self.whole = story_of(trial.rack)
        self.places = trial.rack.points + Counter({"step": trial.rack.steps.count})
        self.actions = frozenset(trial.rack.actions)
        self._note(trial, self.seed)

    def kinds(self) -> list[Kind]:
        """Return the kinds of blows that apply to this scenario."""
        return [
            kind
            for kind in KINDS.values()
            if self.backend in kind.backends
            and kind.name not in self.scenario.without
            and (not kind.action or kind.action in self.actions)
            and self.places[kind.place]
        ]

    def strikes(self) -> Iterator[Blow]:
        """Yield each blow at each place."""
        for kind in self.kinds():
            for at in range(1 if kind.storm else self.places[kind.place]):
                yield Blow(kind, at)

    def strike(self, blows: list[Blow], seed: int | None = None) -> Trial:
        """Run the scenario with these blows, and record the failure if there is one."""
        seed = self.seed if seed is None else seed
        trial = run_trial(self.scenario, self.backend, blows, seed=seed, noted=self.noted)
        self._note(trial, seed)
        return trial

    def strike_everywhere(self) -> None:
        """Run the scenario with each blow at each place, and at further places as long as the run has any."""
        for blow in self.strikes():
            self.strike([blow])
        for kind in self.kinds():
            at = self.places[kind.place]
            while not kind.storm and at < self.places[kind.place] + _LATE and self.strike([Blow(kind, at)]).struck:
                at += 1

    def strike_twice(self, dice: random.Random) -> None:
        """Run the scenario with two random blows."""
        seed = dice.randrange(1 << 16)
        first, second = (self._throw(dice) for _ in range(2))
        if not (_contradict(first.kind, second.kind) or _contradict(second.kind, first.kind)):
            self.strike([first, second], seed)

    def _throw(self, dice: random.Random) -> Blow:
        kind = dice.choice(self.kinds())
        return Blow(kind, 0 if kind.storm else dice.randrange(self.places[kind.place]))

    def _note(self, trial: Trial, seed: int) -> None:
        self.trials += 1
        complaints = judge(trial, self.whole)
        if complaints:
            blows = " ".join(map(str, trial.blows)) or "nothing"
            self.failures.append(Failure(self.scenario.name, self.backend, blows, seed, complaints))


def _contradict(one: Kind, other: Kind) -> bool:
    """Return whether the effects of two blows cannot be distinguished, or Python is known to lose one of them.

    Before Python 3.12, `asyncio.wait_for` swallows a cancellation that arrives together with the awaited result. If a
    task is cancelled in the same turn in which a deadline passes, anyio treats both cancellations as its own, and the
    next task group around them removes both.
    """
    if one.reads == "wait_for" and other.reads == "move_on":
        return True
    return one.reads in ("wait_for", "move_on") and other.name.startswith("cancel-")


def benches(scenarios: list[Scenario], backends: tuple[str, ...] = BOTH, seed: int = 0) -> Iterator[Bench]:
    """Yield a bench for each scenario on each event loop."""
    for scenario in scenarios:
        for backend in backends:
            yield Bench(scenario, backend, seed)
