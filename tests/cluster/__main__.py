"""Runs episodes from the command line. The docstring of the package describes them."""

from __future__ import annotations

import argparse
import time

from tests.cluster.checks import check
from tests.cluster.episode import run_episode
from tests.cluster.plants import PLANTS


def main() -> int:
    """Run episodes, and print the findings. Returns 1 if there are any; with `--plant`, if there are none."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="duration, about (2)")
    parser.add_argument("--episodes", type=int, default=10_000, help="maximum number of episodes")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first episode; each further one adds 1 (1)")
    parser.add_argument("--plant", choices=PLANTS, help="a fault in the workers, which must be found")
    parser.add_argument("--keep", action="store_true", help="keep the folders with the logs of the workers")
    given = parser.parse_args()
    begun, failed, played, runs, faults = time.monotonic(), 0, 0, 0, 0
    while played < given.episodes and time.monotonic() - begun < 60 * given.minutes:
        seed = given.seed + played
        history = run_episode(seed, plant=given.plant, keep_folder=given.keep)
        found = check(history)
        played += 1
        runs += len(history.started)
        faults += len(history.faults)
        for each in found[:10]:
            print(f"seed {seed}: {each}")
        if found:
            every = [*history.faults, *history.slow]
            described = (f"{f.kind} {f.worker} {f.begun:.2f}-{f.over:.2f}" for f in every)
            print(f"seed {seed}: {', '.join(described)}")
        failed += bool(found)
        if found and given.plant:
            break
    print(
        f"{played} episodes, {runs} runs, {faults} faults in {time.monotonic() - begun:.0f} s: {failed} with findings"
    )
    return int(not failed if given.plant else bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
