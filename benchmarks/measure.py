"""Compares two functions in one process. All benchmarks measure and print in this way.

Absolute times depend on the machine and the moment, so the figure is a ratio. The subject and the reference take turns.
Each is measured seven times, and the best time of each counts, because slower runs were disturbed by other programs. A
measurement takes at least some milliseconds, and shorter work is repeated. Times are processor times, because other
programs on the machine change the elapsed time. Results are checked separately, without a clock.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import platform
import pstats
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from math import log
from statistics import median
from time import monotonic, process_time
from typing import Protocol, runtime_checkable

Work = Callable[[], float]
"""Does its work and returns the seconds of processor time that one such work takes, without what had to be prepared."""

_SHORTEST = 0.01  # seconds of one measurement; the clock and the loop around it are then far below one per cent
_WARM_UP = 1.0  # seconds in which a processor that was idle comes up to its speed


@dataclass(frozen=True)
class Result:
    """A row: its figure, the target, and the details."""

    section: str
    name: str
    value: float
    unit: str
    target: float | None = None
    details: dict[str, float] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the figure is within its target, rounded to two digits. None without a target."""
        return None if self.target is None else round(self.value, 2) <= self.target


class Case(Protocol):
    """A row that can be measured."""

    @property
    def section(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def subject(self) -> Work: ...
    def check(self) -> None:
        """Raise AssertionError if the measured code gives a wrong result."""

    def measure(self, repeats: int) -> Result: ...


@runtime_checkable
class Profiled(Protocol):
    """A row that prints its own profile."""

    def profile(self) -> None: ...


@dataclass(frozen=True)
class Comparison:
    """The time of `subject` for each of its `items`, relative to the time of `reference`."""

    section: str
    name: str
    items: int
    subject: Work
    reference: Work
    check: Callable[[], None]
    target: float | None = None
    unit: str = "× floor"

    def measure(self, repeats: int) -> Result:
        times = interleave([self.subject, self.reference], repeats)
        subject, reference = (min(each) / self.items * 1e9 for each in times)
        details = {
            "ns": subject,
            "beside": reference,
            "spread %": max(median(each) / min(each) - 1 for each in times) * 100,
        }
        return Result(self.section, self.name, subject / reference, self.unit, self.target, details)


@dataclass(frozen=True)
class Growth:
    """How the time of `works` grows with their sizes, such as the number of characters: 1 is linear, 2 is quadratic."""

    section: str
    name: str
    works: dict[int, Work]
    check: Callable[[], None]
    target: float | None = None

    @property
    def subject(self) -> Work:
        return self.works[max(self.works)]

    def measure(self, repeats: int) -> Result:
        times = interleave(list(self.works.values()), repeats, equally_long=True)
        best = {size: min(each) for size, each in zip(self.works, times, strict=True)}
        small, large = min(best), max(best)
        exponent = log(best[large] / best[small]) / log(large / small)
        details = {f"ns at {size:,}": time / size * 1e9 for size, time in best.items()}
        return Result(self.section, self.name, exponent, "exponent", self.target, details)


def interleave(works: list[Work], repeats: int, *, equally_long: bool = False) -> list[list[float]]:
    """Return `repeats` times of each of `works`, taken in turns, first forwards, then backwards, and so on.

    If they are measured `equally_long`, one that is a hundred times as fast has no better chance of a quiet moment.
    """
    passes = [1] * len(works)
    if repeats > 1:
        once = [max(work(), 1e-9) for work in works]
        span = max(_SHORTEST, *once) if equally_long else _SHORTEST
        passes = [max(1, round(span / time)) for time in once]
    times: list[list[float]] = [[] for _ in works]
    for repeat in range(repeats):
        turns = list(zip(works, passes, times, strict=True))
        for work, count, taken in reversed(turns) if repeat % 2 else turns:
            gc.collect()
            taken.append(sum(work() for _ in range(count)) / count)
    return times


def timed(work: Callable[[], object]) -> Work:
    """Return `work` with a clock."""

    def run() -> float:
        started = process_time()
        work()
        return process_time() - started

    return run


def main(title: str, cases: Callable[[bool], Iterable[Case]]) -> None:
    """Measure `cases` and print them as the command line requires. `cases` gets whether inputs are small."""
    parser = argparse.ArgumentParser(description=f"Measure {title}; see benchmarks/README.md.")
    parser.add_argument("--json", action="store_true", help="print one JSON object with all rows")
    parser.add_argument("--smoke", action="store_true", help="small inputs, once, to see that all of it works")
    parser.add_argument("--only", default="", metavar="WORDS", help="only rows with these words in their names")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="best of N (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="profile rows that miss, or that --only names")
    parser.add_argument("--run", type=int, metavar="N", help="run the subjects N times without a clock, for a profiler")
    chosen = parser.parse_args()
    head = f"{title}, {platform.python_implementation()} {platform.python_version()}, {platform.machine()}"
    wrong: list[str] = []
    working = _working((case for case in cases(chosen.smoke) if chosen.only in f"{case.section}: {case.name}"), wrong)
    results: list[Result] = []
    if chosen.run is not None:
        _run(working, chosen.run)
    elif chosen.smoke:
        results = [case.measure(1) for case in working]
        if not chosen.json:
            print(f"{head}: {len(results)} rows work; nothing was measured")
    else:
        measured = _measure(working, chosen.repeats, chosen.profile, every=bool(chosen.only))
        results = list(measured) if chosen.json else _print_table(f"{head}, best of {chosen.repeats}", measured)
    if chosen.json:
        rows = [asdict(result) | {"met": None if chosen.smoke else result.met} for result in results]
        print(
            json.dumps({"benchmark": title, "python": platform.python_version(), "smoke": chosen.smoke, "rows": rows})
        )
    sys.exit("\n".join(wrong) or None)


def _working(cases: Iterable[Case], wrong: list[str]) -> Iterator[Case]:
    """Yield the cases with correct results. Describe the others in `wrong`."""
    for case in cases:
        try:
            case.check()
        except AssertionError as error:
            wrong.append(f"{case.section}: {case.name} gives a wrong result: {str(error)[:200]}")
        else:
            yield case


def _run(cases: Iterable[Case], times: int) -> None:
    """Run subjects without measuring. A profiler can then compare two numbers of repetitions."""
    for case in cases:
        for _ in range(times):
            case.subject()


def _measure(cases: Iterable[Case], repeats: int, profile: bool, *, every: bool) -> Iterator[Result]:
    begin = monotonic()
    for case in cases:
        while monotonic() < begin + _WARM_UP:  # before the first
            case.subject()
        result = case.measure(repeats)
        yield result
        if profile and (every or result.met is False):
            _print_profile(case)


def _print_table(head: str, results: Iterable[Result]) -> list[Result]:
    """Print rows as they arrive, with column names before each section."""
    print(head)
    section = None
    printed = []
    for result in results:
        if section != result.section:
            section = result.section
            print(f"\n{section:<46}" + "".join(f"{name:>14}" for name in result.details) + f"{'':<13}target  met")
        figures = "".join(f"{value:>14,.1f}" for value in result.details.values())
        target, met = ("–", "–") if result.target is None else (f"≤ {result.target:g}", "yes" if result.met else "NO")
        print(f"{result.name:<46}{figures}{result.value:>8.2f} {result.unit:<10}{target:>7}  {met}", flush=True)
        printed.append(result)
    return printed


def _print_profile(case: Case) -> None:
    """Print the ten most expensive functions of a row's subject, or the row's own profile."""
    if isinstance(case, Profiled):
        case.profile()
        return
    profile = cProfile.Profile()
    profile.runcall(case.subject)
    pstats.Stats(profile, stream=sys.stderr).strip_dirs().sort_stats("tottime").print_stats(10)
