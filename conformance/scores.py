"""Runs a parser on cases in all their cuts, counts the faults, and shows them in a table."""

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
    """The result of one case: its faults by cut. A cut without faults has an empty entry."""

    case: Case
    faults: dict[Cut, Counter[str]]
    example: tuple[list[str], Reported | str] | None = None
    """The deltas of the first fault, and the report of the parser or the exception that it raised."""

    @property
    def right(self) -> bool:
        """True if no cut has a fault."""
        return not any(self.faults.values())

    @property
    def kinds(self) -> set[str]:
        """The names of the faults."""
        return {kind for faults in self.faults.values() for kind in faults}


def run(subject: Subject, cases: Iterable[Case], cuts: Collection[Cut] = CUTS) -> Iterator[Result]:
    """Yield the result of each case whose dialect the parser reads, in those of its cuts that are in `cuts`.

    An exception of the parser is the fault `raised`.
    """
    for case in cases:
        if (result := _run_case(subject, case, [cut for cut in case.cuts if cut in cuts])) is not None:
            yield result


def _run_case(subject: Subject, case: Case, cuts: Collection[Cut]) -> Result | None:
    """Return the result of a case. Returns None without cuts, or if the parser does not read the dialect."""
    faults: dict[Cut, Counter[str]] = {cut: Counter() for cut in cuts}
    example: tuple[list[str], Reported | str] | None = None
    for cut in cuts:
        for pieces in deltas(case.text, cut):
            found, reported = _call_parser(subject, case, pieces)
            if reported is None:
                return None
            faults[cut] |= found
            if found and example is None:
                example = pieces, reported
    return Result(case, faults, example) if faults else None


def _call_parser(subject: Subject, case: Case, pieces: list[str]) -> tuple[Counter[str], Reported | str | None]:
    try:
        reported = subject(case, pieces)
    except Exception as error:
        return Counter({"raised": 1}), f"{type(error).__name__}: {error}"
    if reported is None or (reported.reasoning is None and case.expected[0].reasoning):
        return Counter(), None  # a parser that reports no reasoning is not tested on it
    return judge(case, reported), reported


@dataclass
class Score:
    """Counts the results of several cases."""

    cases: int = 0
    right: int = 0
    right_by_tokens: int = 0
    """Cases that are right if each token is whole. They may be wrong in other cuts."""
    faults: Counter[str] = field(default_factory=Counter)
    """The number of cases with each fault."""

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
    """Return a table in Markdown, with a row for each score and a column for each fault that occurs."""
    cells = [[name, *score.cells] for name, score in scores]
    used = [at for at in range(len(TITLES) + 1) if at < 4 or any(row[at] != "–" for row in cells)]
    rows = [[title, *TITLES], ["---", *("---:" for _ in TITLES)], *cells]
    return "".join(f"| {' | '.join(row[at] for at in used)} |\n" for row in rows)
