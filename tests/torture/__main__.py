"""Runs the torture from the command line. The docstring of the package describes it."""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.torture.blows import BOTH, KINDS, read_blow
from tests.torture.enumeration import Bench, Failure, benches
from tests.torture.scenarios import SCENARIOS


def main() -> int:
    """Run the torture, and print the failures. Returns 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description="Strikes runs at each await.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"one of {', '.join(SCENARIOS)}; else all")
    parser.add_argument("--backend", choices=BOTH, help="one event loop instead of both")
    parser.add_argument("--seconds", type=float, help="run a random share of all blows for about this time")
    parser.add_argument("--seed", type=int, default=0, help="seed of shares, of pairs, and of trio's scheduler")
    parser.add_argument("--pairs", type=int, default=100, help="pairs of blows for each scenario and loop (100)")
    parser.add_argument("--blow", nargs="+", metavar="KIND@PLACE", help="these blows, together, in one run")
    parser.add_argument("--show", type=int, default=20, help="maximum number of printed failures (20)")
    parser.add_argument("--repeat", type=int, default=1, help="number of repetitions of the run with --blow")
    given = parser.parse_args()
    unknown = [name for name in given.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    try:
        blows = [str(read_blow(each)) for each in given.blow or ()]
    except (KeyError, ValueError):
        parser.error(f"a blow is KIND@PLACE, and --blow follows the scenarios; kinds are {', '.join(KINDS)}")
    chosen = [SCENARIOS[name] for name in given.scenarios or SCENARIOS]
    backends = (given.backend,) if given.backend else BOTH
    begun = time.monotonic()
    found: list[Failure] = []
    runs = 0
    all_benches = list(benches(chosen, backends, given.seed))
    for bench in all_benches:
        if blows:
            trials = [bench.strike(list(map(read_blow, blows))) for _ in range(given.repeat)]
            if not any(trial.struck for trial in trials):
                print(f"{bench.scenario.name} on {bench.backend}: no blow struck, because the run has no such place")
        elif given.seconds is None:
            bench.strike_everywhere()
            dice = random.Random(f"{given.seed} {bench.scenario.name} {bench.backend}")
            for _ in range(given.pairs):
                bench.strike_twice(dice)
        if given.seconds is None:
            print(f"{bench.scenario.name} on {bench.backend}: {bench.trials} runs, {len(bench.failures)} failures")
    if given.seconds is not None:
        _strike_share(all_benches, given.seconds, random.Random(given.seed))
    for bench in all_benches:
        found += bench.failures
        runs += bench.trials
    for failure in found[: given.show]:
        print(failure)
    print(f"{runs} runs in {time.monotonic() - begun:.0f} s, {len(found)} failures")
    return 1 if found else 0


def _strike_share(all_benches: list[Bench], seconds: float, dice: random.Random) -> None:
    """Strike random blows, and a pair after every fourth one, for this time."""
    all_blows = [(bench, blow) for bench in all_benches for blow in bench.strikes()]
    dice.shuffle(all_blows)
    end = time.monotonic() + seconds
    for number, (bench, blow) in enumerate(all_blows):
        if time.monotonic() >= end:
            break
        bench.strike([blow])
        if not number % 4:
            bench.strike_twice(dice)


if __name__ == "__main__":
    sys.exit(main())
