"""What can be asked of the command, and what was."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from streamtools.cli.complaints import Refused
from streamtools.parsing.dialects import DEFAULT_DIALECTS, DIALECTS, Dialect, choose_dialects

_STATUS = """\
exit status: 0; 1 if a stream failed, a recording breaks off or the output is closed; 2 if the command line or the file
is of no use; 130 if interrupted. In each case but 0 one line on standard error says why.
"""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """`streamtools replay`"""

    file: str
    tools: str | None
    json: bool
    speed: float
    dialects: tuple[Dialect, ...] | None


@dataclass(frozen=True, kw_only=True)
class Demo:
    """`streamtools demo`"""

    all: bool
    speed: float


def parse(argv: Sequence[str] | None) -> Replay | Demo:
    """Return what was asked. Raises `Refused`, and SystemExit behind `--help` and `--version`, which are answered."""
    given = vars(_parser().parse_args(argv))
    command: type[Replay | Demo] = given.pop("command")
    return command(**given)


class _Parser(argparse.ArgumentParser):
    """Refuses in one line; argparse would print the usage, too."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> NoReturn:
        print(f"streamtools {importlib.metadata.version('streamtools')}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="streamtools",
        description="Watch model streams turn into text, tool calls and results.",
        epilog=_STATUS,
    )
    parser.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_replay(commands)
    _add_demo(commands)
    return parser


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser(
        "replay",
        help="play a recorded stream",
        description="Play a recorded stream as a live transcript, with a summary. FILE is a recording of streamtools, "
        "or the server-sent events that `curl -N` wrote into a file. Without --tools, calls are reported and stay "
        "pending.",
        epilog=_STATUS,
    )
    replay.set_defaults(command=Replay)
    replay.add_argument("file", metavar="FILE", help="a recording, or a raw capture of server-sent events")
    replay.add_argument(
        "--tools",
        metavar="MODULE:NAME",
        help="run the calls with these tools: a ToolRegistry, a tool, functions, or a list of them; "
        "modules are looked for in the current directory, too",
    )
    replay.add_argument("--json", action="store_true", help="print events, one JSON object a line, and nothing else")
    _add_speed(replay)
    replay.add_argument(
        "--dialects",
        metavar="A,B",
        type=_dialects,
        help=f"read calls that are written in these ways: {', '.join(DIALECTS)}, or auto for all "
        f"(default: {','.join(DEFAULT_DIALECTS)})",
    )


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="see it work, without a network or a key",
        description="Start a server on this machine that streams recorded answers of a real model, read them as a "
        "backend would, run the tools that they call, and show all of it.",
        epilog=_STATUS,
    )
    demo.set_defaults(command=Demo)
    demo.add_argument("--all", action="store_true", help="play all recordings that come with streamtools, not three")
    _add_speed(demo)


def _add_speed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--speed",
        metavar="X",
        type=_speed,
        default=1.0,
        help="how fast: 1 is the recorded timing (default), 2 twice as fast, 0 without waiting",
    )


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1
    if not 0 <= speed < float("inf"):
        raise argparse.ArgumentTypeError(f"a speed is 0 or a factor such as 0.5 or 2, and {text!r} is neither")
    return speed


def _dialects(text: str) -> tuple[Dialect, ...]:
    names = [name.strip() for name in text.split(",")]
    try:
        return choose_dialects("auto" if names == ["auto"] else [name for name in names if name])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
