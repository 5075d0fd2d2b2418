"""`python -m benchmarks.peers install [--into DIR]`: creates the environment of the peers for `bench_peers`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.peers.installing import DEFAULT, install


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("install", help="make a new environment with the peers in it")
    command.add_argument("--into", type=Path, default=DEFAULT, metavar="DIR", help="default: .venv-peers")
    chosen = parser.parse_args()
    failed = install(chosen.into.resolve())
    print(f"installed into {chosen.into}")
    for line in failed:
        print(f"not installed: {line}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
