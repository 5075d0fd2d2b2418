"""Counts the results of streams."""

from __future__ import annotations

import traceback
from collections import Counter

from benchmarks.soaking.witness import Witness

_TOLD = 20  # problems that are kept; of the others there is the number


class Tally:
    """Counts streams, events, calls, endings and ways of leaving. Stores the first problems."""

    def __init__(self) -> None:
        self.streams = 0
        self.events = 0
        self.calls = 0
        self.resumed = 0
        self.seen: Counter[str] = Counter()
        """Endings of streams that somebody read to the end."""
        self.left: Counter[str] = Counter()
        """Ways in which streams were left before."""
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []
        self.wrong = 0

    def add(self, witness: Witness, left: str | None) -> None:
        """Count a correct stream, and how it was left."""
        self.streams += 1
        self.events += witness.count
        self.calls += witness.calls
        self.outcomes += witness.outcomes
        if left is not None:
            self.left[left] += 1
        if witness.is_whole:
            self.seen[witness.plan.ending] += 1

    def blame(self, what: str, error: BaseException | None = None) -> None:
        """Store a problem."""
        self.wrong += 1
        if len(self.problems) < _TOLD:
            told = "" if error is None else "".join(traceback.format_exception(error, limit=-4))
            self.problems.append(f"{what}: {told}" if told else what)
