"""Compares streamtools with other parsers: the cost of a delta, its growth, and the correctness of the results.

    python -m benchmarks.peers install        # once: the peers, in an environment of their own
    python benchmarks/bench_peers.py

Every parser reads the same prose and the same calls, in a format that it knows. See benchmarks/peers/README.md for the
method, and for what the numbers do not say.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers import tables
from benchmarks.peers.crew import Crew
from benchmarks.peers.installing import DEFAULT
from benchmarks.peers.measuring import available, cut_in_many_ways, key_of, measure
from benchmarks.peers.rows import ROWS, Row
from benchmarks.peers.streams import CASES


def main() -> None:
    chosen = _arguments()
    if chosen.read:
        run = json.loads(chosen.read.read_text(encoding="utf-8"))
    else:
        rows = [row for row in ROWS if chosen.only in key_of(row)]
        if not rows:
            sys.exit(f"no row has {chosen.only!r} in its name; there are {', '.join(map(key_of, ROWS))}")
        run = _run(rows, chosen)
    if chosen.save:
        chosen.save.write_text(json.dumps(run, indent=1), encoding="utf-8")
    if chosen.smoke:
        print(f"peers: {len(run['rows'])} rows work; nothing was measured")
    else:
        print(tables.markdown(run) if chosen.markdown else tables.plain(run))
    sys.exit("\n".join(_wrong(run)) or None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small inputs, once, to see that all of it works")
    parser.add_argument("--markdown", action="store_true", help="print the short table for a README, then the rest")
    parser.add_argument("--only", default="", metavar="WORDS", help="only rows with these words in their names")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="median of N (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=60, metavar="S", help="give up what takes longer (default: 60)")
    parser.add_argument("--peers", type=Path, default=DEFAULT, metavar="DIR", help="environment (default: .venv-peers)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write all figures to a file, as JSON")
    parser.add_argument("--read", type=Path, metavar="FILE", help="print the figures of a file, and measure nothing")
    return parser.parse_args()


def _run(rows: list[Row], chosen: argparse.Namespace) -> dict[str, Any]:
    """Run all measurements. Returns the data of the tables as JSON values."""
    small: bool = chosen.smoke
    with Crew(chosen.peers.resolve()) as crew:
        running, missing = available(crew, rows)
        for name, reason in missing.items():
            print(f"not measured: {name}: {reason}", file=sys.stderr, flush=True)
        cells = {}
        for name in chosen.cases:
            cells[name] = measure(crew, running, name, 1 if small else chosen.repeats, chosen.limit, small)
            print(f"{'tried' if small else 'measured'}: {name}", file=sys.stderr, flush=True)
        judged = [row for row in running if row.group in ("ours", "peer")]
        cut = {key_of(row): cut_in_many_ways(crew, row, chosen.limit, small=small) for row in judged}
        return {
            "date": date.today().isoformat(),
            "machine": f"{platform.machine()}, {_processor()}, {platform.system()}",
            "python": f"{platform.python_implementation()} {platform.python_version()}",
            "command": "python -m benchmarks.bench_peers --markdown",
            "repeats": chosen.repeats,
            "limit": chosen.limit,
            "rows": [
                {"key": key_of(row), "name": row.name, "format": row.format, "group": row.group, "node": row.on_node}
                | {"version": crew.versions[row.kind, row.choice], "text": row.tells_text}
                for row in running
            ],
            "missing": missing,
            "cells": cells,
            "cut": cut,
        }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    models = [line for line in info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
    return f"{len(models)} × {models[0].partition(':')[2].strip()}" if models else platform.processor()


def _wrong(run: dict[str, Any]) -> list[str]:
    """Return the faults of streamtools itself. The faults of peers are in the tables."""
    ours = [row["key"] for row in run["rows"] if row["group"] == "ours"]
    wrong = []
    for key in ours:
        for name, cells in run["cells"].items():
            cell = cells.get(key, {})
            verdict = cell.get("verdict", {})
            if "dnf" in cell or "raised" in cell or any(verdict.get(each) for each in ("lost", "leaked", "wrong")):
                wrong.append(f"{key}: {name}: {cell}")
        wrong += [f"{key}: {each}" for each in run["cut"].get(key, []) if _is_wrong(each)]
    return wrong


def _is_wrong(cut: dict[str, Any]) -> bool:
    return bool(cut["results"] != 1 or cut["small"]["faulty"] or cut["large"]["faulty"])


if __name__ == "__main__":
    main()
