"""The suite on the command line: `cases` and `schema` write what it asks, `run` puts it to a parser."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path

from conformance.cases import Case, Cut, read_lines, schema, to_line
from conformance.construction import cases
from conformance.scores import CUTS, Score, run, table
from conformance.subjects import Command, Server, Subject, function, ours


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return 1 where a case is wrong."""
    chosen = _arguments().parse_args(arguments)
    match chosen.do:
        case "schema":
            sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
        case "cases":
            sys.stdout.writelines(to_line(case) + "\n" for case in _cases(chosen))
        case "run":
            with _subject(chosen) as subject:
                return _run(subject, _cases(chosen), chosen)
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    does = parser.add_subparsers(dest="do", required=True)
    does.add_parser("schema", help="write the JSON schema of a case")
    made = does.add_parser("cases", help="write the cases, a line of JSON each")
    judged = does.add_parser("run", help="judge a parser, and print a table; without an adapter, that of streamtools")
    for each in (made, judged):
        each.add_argument("--dialect", action="append", default=[], metavar="ID", help="only this one; may be repeated")
        each.add_argument("--rule", action="append", default=[], help="only this one; may be repeated")
        each.add_argument("--every-place", action="store_true", help="cut answers off at each place, not each seventh")
    judged.add_argument(
        "--from", type=Path, dest="file", metavar="FILE", help="the cases of a file, as `cases` writes it"
    )
    judged.add_argument("--cut", action="append", choices=CUTS, help="only this one; may be repeated; default: all")
    judged.add_argument("--by", choices=["dialect", "rule"], default="dialect", help="what a row of the table is")
    judged.add_argument("--faults", type=int, default=0, metavar="N", help="print so many wrong cases, too")
    adapter = judged.add_mutually_exclusive_group()
    adapter.add_argument("--function", metavar="MODULE:NAME", help="a function of deltas, a dialect and tools")
    adapter.add_argument("--command", help="a program that answers lines of JSON with lines of JSON")
    adapter.add_argument("--server", metavar="URL", help="an OpenAI-compatible server, up to /chat/completions")
    judged.add_argument(
        "--listen", default="127.0.0.1:9311", help="where the server finds its model; default: %(default)s"
    )
    return parser


def _cases(chosen: argparse.Namespace) -> Iterator[Case]:
    made: Iterable[Case] = cases(chosen.dialect, every_place=chosen.every_place)
    if getattr(chosen, "file", None) is not None:
        read = read_lines(chosen.file.read_text(encoding="utf-8").split("\n"))
        made = (case for case in read if not chosen.dialect or case.dialect in chosen.dialect)
    return (case for case in made if not chosen.rule or case.rule in chosen.rule)


def _subject(chosen: argparse.Namespace) -> AbstractContextManager[Subject]:
    if chosen.command:
        return Command(chosen.command)
    if chosen.server:
        return Server(chosen.server, chosen.listen)
    if not chosen.function:
        return nullcontext(function(ours))
    module, _, name = chosen.function.partition(":")
    return nullcontext(function(getattr(import_module(module), name)))


def _run(subject: Subject, asked: Iterable[Case], chosen: argparse.Namespace) -> int:
    cuts: Sequence[Cut] = chosen.cut or CUTS
    scores: dict[str, Score] = defaultdict(Score)
    every, left = Score(), chosen.faults
    for result in run(subject, asked, cuts):
        scores[getattr(result.case, chosen.by)].add(result)
        every.add(result)
        if result.example and left:
            left -= 1
            deltas, reported = result.example
            sys.stdout.write(f"{result.case.id}: {', '.join(sorted(result.kinds))}\n  {result.case.why}\n")
            sys.stdout.write(f"  read: {deltas!r}\n  reported: {reported!r}\n")
            sys.stdout.write("".join(f"  right: {outcome!r}\n" for outcome in result.case.expected))
    sys.stdout.write(table([*scores.items(), ("all", every)], chosen.by))
    return int(every.right < every.cases)


if __name__ == "__main__":
    sys.exit(main())
