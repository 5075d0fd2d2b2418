"""A run of the suite: each case in each of its cuts, the faults of each, and a table of them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import get_args

from conformance.cases import FAULTS, Case, Cut, Reported, deltas, judge
from conformance.subjects import Subject

CUTS: tuple[Cut, ...] = get_args(Cut)


@dataclass(frozen=True)
class Result:
    """What became of a case: its faults by the way in which it was cut; those without any stand there, too."""

    case: Case
    faults: dict[Cut, Counter[str]]
    example: tuple[list[str], Reported | str] | None = None
    """The deltas of the first cut with a fault, and the answer to it, or what was raised."""

    @property
    def right(self) -> bool:
        """Whether there is no fault, however the text was cut."""
        return not any(self.faults.values())

    @property
    def kinds(self) -> set[str]:
        """The names of its faults."""
        return {kind for faults in self.faults.values() for kind in faults}


def run(subject: Subject, cases: Iterable[Case], cuts: Collection[Cut] = CUTS) -> Iterator[Result]:
    """Yield the result of each case in a dialect that the parser reads, in those of its cuts that are among `cuts`.

    An exception of the parser is a fault, and its verdict is the same for every parser.
    """
    for case in cases:
        if (result := _try(subject, case, [cut for cut in case.cuts if cut in cuts])) is not None:
            yield result


def _try(subject: Subject, case: Case, cuts: Collection[Cut]) -> Result | None:
    """Return what becomes of a case in these cuts; None if there are none, or the parser does not read the dialect."""
    faults: dict[Cut, Counter[str]] = {cut: Counter() for cut in cuts}
    example: tuple[list[str], Reported | str] | None = None
    for cut in cuts:
        for pieces in deltas(case.text, cut):
            found, reported = _ask(subject, case, pieces)
            if reported is None:
                return None
            faults[cut] |= found
            if found and example is None:
                example = pieces, reported
    return Result(case, faults, example) if faults else None


def _ask(subject: Subject, case: Case, pieces: list[str]) -> tuple[Counter[str], Reported | str | None]:
    try:
        reported = subject(case, pieces)
    except Exception as error:
        return Counter({"raised": 1}), f"{type(error).__name__}: {error}"
    if reported is None or (reported.reasoning is None and case.expected[0].reasoning):
        return Counter(), None  # a parser that knows of no thoughts is not asked about them
    return judge(case, reported), reported


@dataclass
class Score:
    """The results of several cases, counted."""

    cases: int = 0
    right: int = 0
    right_by_tokens: int = 0
    """Right where tokens are whole; cut otherwise, they may be wrong. None where that was not asked."""
    faults: Counter[str] = field(default_factory=Counter)
    """How many cases have which fault."""

    def add(self, result: Result) -> None:
        """Count a result."""
        self.cases += 1
        self.right += result.right
        self.right_by_tokens += "tokens" in result.faults and not result.faults["tokens"]
        self.faults.update(result.kinds)

    @property
    def cells(self) -> list[str]:
        """The cells of a row of the table."""
        counts = [self.cases, self.right, self.right_by_tokens, *(self.faults[kind] for kind in FAULTS)]
        return [str(count) if count else "–" for count in counts]


TITLES = ("cases", "right", "right by tokens", *FAULTS)
"""The titles of `Score.cells`."""


def table(scores: Iterable[tuple[str, Score]], title: str) -> str:
    """Return a table in Markdown, with a row for each score."""
    rows = [[title, *TITLES], ["---", *("---:" for _ in TITLES)], *([name, *score.cells] for name, score in scores)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
