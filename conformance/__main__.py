"""The command line of the suite: `cases` and `schema` write the cases and their schema, `run` tests a parser."""

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
    """Run a command. Returns 1 if a case is wrong."""
    options = _arguments().parse_args(arguments)
    match options.command_name:
        case "schema":
            sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
        case "cases":
            sys.stdout.writelines(to_line(case) + "\n" for case in _cases(options))
        case "run":
            with _subject(options) as subject:
                return _run(subject, _cases(options), options)
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    commands = parser.add_subparsers(dest="command_name", required=True)
    commands.add_parser("schema", help="write the JSON schema of a case")
    cases_command = commands.add_parser("cases", help="write the cases, one line of JSON each")
    run_command = commands.add_parser("run", help="test a parser, by default that of streamtools")
    for command in (cases_command, run_command):
        command.add_argument(
            "--dialect", action="append", default=[], metavar="ID", help="only this dialect; repeatable"
        )
        command.add_argument("--rule", action="append", default=[], help="only this rule; repeatable")
        command.add_argument("--every-place", action="store_true", help="cut answers off at each place")
    run_command.add_argument(
        "--from", type=Path, dest="file", metavar="FILE", help="read the cases from a file that `cases` wrote"
    )
    run_command.add_argument("--cut", action="append", choices=CUTS, help="only this cut; repeatable; default: all")
    run_command.add_argument("--by", choices=["dialect", "rule"], default="dialect", help="the rows of the table")
    run_command.add_argument("--faults", type=int, default=0, metavar="N", help="print N wrong cases")
    adapter = run_command.add_mutually_exclusive_group()
    adapter.add_argument("--function", metavar="MODULE:NAME", help="a function of deltas, a dialect and tools")
    adapter.add_argument("--command", help="a program that reads and writes lines of JSON")
    adapter.add_argument("--server", metavar="URL", help="an OpenAI-compatible server")
    run_command.add_argument(
        "--listen", default="127.0.0.1:9311", help="where the server finds its model; default: %(default)s"
    )
    return parser


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    selected: Iterable[Case] = cases(options.dialect, every_place=options.every_place)
    if getattr(options, "file", None) is not None:
        from_file = read_lines(options.file.read_text(encoding="utf-8").split("\n"))
        selected = (case for case in from_file if not options.dialect or case.dialect in options.dialect)
    return (case for case in selected if not options.rule or case.rule in options.rule)


def _subject(options: argparse.Namespace) -> AbstractContextManager[Subject]:
    if options.command:
        return Command(options.command)
    if options.server:
        return Server(options.server, options.listen)
    if not options.function:
        return nullcontext(function(ours))
    module, _, name = options.function.partition(":")
    return nullcontext(function(getattr(import_module(module), name)))


def _run(subject: Subject, selected: Iterable[Case], options: argparse.Namespace) -> int:
    cuts: Sequence[Cut] = options.cut or CUTS
    scores: dict[str, Score] = defaultdict(Score)
    total, faults_to_print = Score(), options.faults
    for result in run(subject, selected, cuts):
        scores[getattr(result.case, options.by)].add(result)
        total.add(result)
        if result.example and faults_to_print:
            faults_to_print -= 1
            deltas, reported = result.example
            sys.stdout.write(f"{result.case.id}: {', '.join(sorted(result.kinds))}\n  {result.case.why}\n")
            sys.stdout.write(f"  read: {deltas!r}\n  reported: {reported!r}\n")
            sys.stdout.write("".join(f"  right: {outcome!r}\n" for outcome in result.case.expected))
    sys.stdout.write(table([*scores.items(), ("all", total)], options.by))
    return int(total.right < total.cases)


if __name__ == "__main__":
    sys.exit(main())
