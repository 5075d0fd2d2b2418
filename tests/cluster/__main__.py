"""Episodes from the command line: see the package."""

from __future__ import annotations

import argparse
import time

from tests.cluster.checks import check
from tests.cluster.episode import run_episode
from tests.cluster.plants import PLANTS


def main() -> int:
    """Play episodes, print what does not hold, and return 1 if that is anything (with `--plant`, if it is nothing)."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="for about so long (2)")
    parser.add_argument("--episodes", type=int, default=10_000, help="at most so many")
    parser.add_argument("--seed", type=int, default=1, help="of the first episode; the next has the next (1)")
    parser.add_argument("--plant", choices=PLANTS, help="a fault in the workers, which has to be found")
    parser.add_argument("--keep", action="store_true", help="keep the folders, with the logs of the workers")
    given = parser.parse_args()
    begun, wrong, played, runs, faults = time.monotonic(), 0, 0, 0, 0
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
            told = (f"{f.kind} {f.worker} {f.begun:.2f}-{f.over:.2f}" for f in every)
            print(f"seed {seed}: {', '.join(told)}")
        wrong += bool(found)
        if found and given.plant:
            break
    print(f"{played} episodes, {runs} runs, {faults} faults in {time.monotonic() - begun:.0f} s: {wrong} with findings")
    return int(not wrong if given.plant else bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
