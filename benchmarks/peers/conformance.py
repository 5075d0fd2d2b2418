"""Runs the conformance suite with the peers, for the tables of conformance/README.md.

`python -m benchmarks.peers.conformance [--peers DIR] [--cut CUT]… [--every-place]`; the environment of the peers is
made by `python -m benchmarks.peers install`. A dialect of which a peer does not read a single call is left out, and
named: it reads the format in another form than our writer's, or wants more of its engine than stands in here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.installing import DEFAULT, parts_in, python_in
from conformance import CUTS, Command, Result, Score, Subject, cases, function, ours, run, table

PEERS = {"sglang": "SGLang", "vllm": "vLLM", "agent-tool-parser": "agent-tool-parser"}


def judge(subject: Subject, chosen: argparse.Namespace, dialects: Sequence[str] = ()) -> tuple[list[Result], list[str]]:
    """Return the results in the dialects that a parser reads, and the dialects in which it reads no call."""
    alone = (case for case in cases(dialects) if case.rule == "only a call")
    first = {result.case.dialect: bool(result.kinds) for result in run(subject, alone, ["tokens"])}
    read = [dialect for dialect, failed in first.items() if not failed]
    results = run(subject, cases(read, every_place=chosen.every_place), ["tokens", *chosen.cut] if chosen.cut else CUTS)
    return list(results), [dialect for dialect, failed in first.items() if failed]


def score(results: Sequence[Result], *, by_tokens: bool = False) -> Score:
    """Return the numbers of passed cases: at all cuts, or only at token boundaries."""
    counted = Score()
    for result in results:
        counted.add(replace(result, faults={"tokens": result.faults["tokens"]}) if by_tokens else result)
    return counted


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.conformance", description=__doc__)
    parser.add_argument("--peers", type=Path, default=DEFAULT, metavar="DIR", help="default: .venv-peers")
    parser.add_argument("--cut", action="append", choices=CUTS, help="beside `tokens`; default: all")
    parser.add_argument("--every-place", action="store_true")
    chosen = parser.parse_args()
    own, _ = judge(function(ours), chosen)
    rows = [(f"streamtools {version('streamtools')}", own)]
    found, notes = {}, []
    for kind, name in PEERS.items():
        python, parts = python_in(chosen.peers), parts_in(chosen.peers)
        with Command([str(python), "-m", "benchmarks.peers.conforming", kind, str(parts)]) as peer:
            results, unread = judge(peer, chosen)
        found[name] = results
        asked = {result.case.id for result in results}
        dialects = {result.case.dialect for result in results}
        rows.append((f"{name} {version_of(kind, python, parts)}", results))
        rows.append((f"streamtools, the same {len(asked)}", [each for each in own if each.case.id in asked]))
        notes.append(f"{name}: {len(dialects)} dialects; left out: {', '.join(unread) or 'none'}.")
    print(table([(name, score(results, by_tokens=True)) for name, results in rows], "each token whole"))
    print(table([(name, score(results)) for name, results in rows], "cut in every way"))
    print("\n".join(f"- {note}" for note in notes) + "\n")
    for name, results in found.items():
        rules = dict.fromkeys(result.case.rule for result in results)
        by_rule = {rule: [each for each in results if each.case.rule == rule] for rule in rules}
        print(table([(rule, score(each, by_tokens=True)) for rule, each in by_rule.items()], f"{name}, tokens whole"))
        print("- " + "\n- ".join(examples(results)) + "\n", file=sys.stderr)


def examples(results: Sequence[Result]) -> list[str]:
    """Return one fault of each kind in each dialect."""
    shown: dict[tuple[str, str], str] = {}
    for result in results:
        for kind in sorted(result.kinds):
            shown.setdefault((result.case.dialect, kind), f"{result.case.id}: {kind}: {result.example!r}"[:600])
    return list(shown.values())


def version_of(kind: str, python: Path, parts: Path) -> str:
    """Return the version of a peer."""
    if (told := parts / f"{kind}.version").exists():
        return told.read_text(encoding="utf-8").strip()
    found = list((python.parents[1] / "lib").glob(f"python*/site-packages/{kind.replace('-', '_')}-*.dist-info"))
    return found[0].stem.rpartition("-")[2] if found else ""


if __name__ == "__main__":
    main()
