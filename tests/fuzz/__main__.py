"""The command: `python -m tests.fuzz --help`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import plain
from tests.fuzz.running import HEADING, Finding, Report, be_quiet, shorten, try_out
from tests.fuzz.targets import TARGETS, choose

_MINUTE = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if no fault was found, 1 if a fault was found, 2 for invalid arguments."""
    asked = _parse(arguments)
    if asked.list:
        print("\n".join(TARGETS))
        return 0
    be_quiet()
    try:
        if asked.replay is not None:
            return _replay(asked.replay, asked.targets)
        names = choose(asked.targets or ["all"])
    except (LookupError, OSError) as error:
        print(error if isinstance(error, OSError) else error.args[-1], file=sys.stderr)
        return 2
    seconds = None if asked.minutes is None else asked.minutes * _MINUTE / (len(names) if asked.share else 1)
    if seconds is None and asked.runs is None:
        print("say --minutes or --runs", file=sys.stderr)
        return 2
    print(HEADING, flush=True)
    found = 0
    for name in names:
        corpus = None if asked.corpus is None else asked.corpus / name.replace(":", ".")
        report, finding = _fuzz(name, asked, seconds, corpus)
        if finding is not None:
            found += 1
            finding = shorten(TARGETS[name](), finding)
            path = finding.keep(asked.found)
            report.path = str(path)
            print(finding.describe(path, asked.seed), file=sys.stderr, flush=True)
        print(report.row(), flush=True)
    print(f"{len(names)} targets, {found} with findings", flush=True)
    return 1 if found else 0


def _fuzz(
    name: str, asked: argparse.Namespace, seconds: float | None, corpus: Path | None
) -> tuple[Report, Finding | None]:
    known = sorted(corpus.iterdir()) if corpus is not None and corpus.is_dir() else []
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
    target = TARGETS[name]()

    def keep(data: bytes) -> None:
        if corpus is not None:
            corpus.joinpath(Finding(name, data, "").name).write_bytes(data)

    inputs = [path.read_bytes() for path in known]
    return plain.run(target, seed=asked.seed, seconds=seconds, runs=asked.runs, known=inputs, keep=keep)


def _replay(path: Path, targets: Sequence[str]) -> int:
    data = path.read_bytes()
    names = choose(targets or [path.name.rpartition("-")[0].replace(".", ":") or path.name])
    if len(names) != 1:
        raise LookupError("one input is for one target: --replay FILE TARGET")
    (name,) = names
    _, finding = try_out(TARGETS[name](), data)
    print(f"{name}: {data!r}")
    print(finding.error if finding else "no law is broken")
    return 1 if finding else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Hold the package to its laws.")
    add = parser.add_argument
    add("targets", nargs="*", metavar="TARGET", help="names, kinds such as `source`, `first` or `all`")
    add("--minutes", type=float, help="of processor time for each target")
    add("--share", action="store_true", help="divide the minutes among the targets")
    add("--runs", type=int, help="inputs for each target")
    add("--seed", type=int, default=1, help="of chance (1)")
    add("--corpus", type=Path, metavar="DIR", help="inputs to begin with, to which those worth keeping are added")
    add("--found", type=Path, default=Path(".fuzz/found"), metavar="DIR", help="where findings are kept (.fuzz/found)")
    add("--replay", type=Path, metavar="FILE", help="try one input out again; its name says the target, or you do")
    add("--list", action="store_true", help="name the targets")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
