"""Runs two thousand concurrent streams for minutes, with tools, faults and leaving readers, and searches for leaks.

    python benchmarks/soak.py --minutes 5

Two processes use the loopback interface. The measured process keeps all streams open and replaces those that end. The
other process is the provider and the browsers. Both derive the plan of a stream from its seed. Each event is checked
against the plan. The exit status is 0 only if all checks pass. Requires Linux with glibc 2.33, uvicorn and the extra
`web`.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.soaking.house import House
from benchmarks.soaking.soak import Settings, soak
from benchmarks.soaking.verdict import judge, summarise
from benchmarks.soaking.watch import Sample

_FILES = 3  # of a stream, at most: one to the provider and two of a browser, of which the other process has one
_COLUMNS = (
    *("s", "open", "streams/s", "events/s", "calls/s", "used", "MiB", "blocks", "tasks", "threads", "files", "objects"),
    *("lag", "cpu %", "other %"),
)
_FINE = [place for place, name in enumerate(_COLUMNS) if name in ("used", "MiB", "lag")]


class Table:
    """Prints a line for each sample. Rates are relative to the previous line."""

    def __init__(self) -> None:
        self._begin: float | None = None
        self._before: tuple[Sample, tuple[int, int, int]] | None = None

    def add(self, now: Sample, house: House) -> None:
        """Print a line."""
        counts = house.tally.streams, house.tally.events, house.tally.calls
        if self._before is None or self._begin is None:
            print(" ".join(f"{name:>9}" for name in _COLUMNS))
            self._begin = now.at
        else:
            before, counted = self._before
            time = now.at - before.at
            rates = [(many - less) / time for many, less in zip(counts, counted, strict=True)]
            shares = [(now.seconds - before.seconds) / time, (now.seconds_outside - before.seconds_outside) / time]
            row = [
                now.at - self._begin,
                now.streams,
                *rates,
                now.used / 2**20,
                now.held / 2**20,
                *(now.blocks, now.tasks, now.threads, now.files, now.objects),
                now.lag,
                *(100 * each for each in shares),
            ]
            print(" ".join(f"{value:>9,.{1 if place in _FINE else 0}f}" for place, value in enumerate(row)), flush=True)
        self._before = now, counts


def allow_files(streams: int) -> None:
    """Raise the limit of open files for this process and its child. Exits if that fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES * streams + 200
    if hard != resource.RLIM_INFINITY and hard < needed:
        sys.exit(f"{streams} streams may need {needed} open files, and {hard} are allowed: see `ulimit -Hn`")
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def main() -> int:
    """Run the command. Returns the exit status."""
    parser = argparse.ArgumentParser(description="Many streams at the same time, for minutes: does anything stay?")
    parser.add_argument("--streams", type=int, default=2000, help="how many are open at the same time (%(default)s)")
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long streams begin (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another gives other streams (%(default)s)")
    parser.add_argument("--pace", type=float, default=1.7, help="seconds between two chunks of a stream (%(default)s)")
    parser.add_argument("--smoke", action="store_true", help="140 streams, 40 at a time; nothing is measured")
    options = parser.parse_args()
    settings = Settings(options.streams, options.minutes, seed=options.seed, pace=options.pace)
    if options.smoke:
        settings = Settings(40, count=140, seed=options.seed, pace=0.005, idle=3.0)
    allow_files(settings.streams)
    report = asyncio.run(soak(settings, Table().add))
    print(f"\n{summarise(report)}\n")
    for problem in [*report.here.problems, *report.browsers["problems"]]:
        print(f"{problem}\n")
    findings = judge(report, settings)
    for what, holds, told in findings:
        print(f"{'not judged' if holds is None else 'ok' if holds else 'FAILED':>10}  {what}: {told}")
    return 1 if any(each.holds is False for each in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
