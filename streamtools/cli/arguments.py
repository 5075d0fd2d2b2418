"""What can be asked of the command, and what was."""

from __future__ import annotations

import argparse
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from streamtools.cli.complaints import Refused
from streamtools.cli.model_arguments import ModelArguments, add_model, add_tools, check_model, read_dialects
from streamtools.cli.record_arguments import Record, add_record
from streamtools.cli.serve_arguments import Serve, add_serve, check_serve
from streamtools.parsing.dialects import DEFAULT_DIALECTS, DIALECTS, Dialect

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


@dataclass(frozen=True, kw_only=True)
class Chat(ModelArguments):
    """`streamtools chat`"""

    model: str
    record: str | None
    once: str | None
    raw: bool
    json: bool


Command = Replay | Demo | Chat | Record | Serve


def parse(argv: Sequence[str] | None) -> Command:
    """Return what was asked. Raises `Refused`, and SystemExit behind `--help` and `--version`, which are answered."""
    given = vars(_parser().parse_args(argv))
    command: type[Command] = given.pop("command")
    if command is Chat:
        check_model(given)
    elif command is Serve:
        check_serve(given)
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
    add_record(commands, _STATUS)
    _add_chat(commands)
    add_serve(commands, _STATUS, _speed)
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
    add_tools(replay)
    replay.add_argument("--json", action="store_true", help="print events, one JSON object a line, and nothing else")
    _add_speed(replay)
    replay.add_argument(
        "--dialects",
        metavar="A,B",
        type=read_dialects,
        help=f"read calls that are written in these ways: {', '.join(DIALECTS)}, or auto for all "
        f"(default: {','.join(DEFAULT_DIALECTS)})",
    )


def _add_chat(commands: Any) -> None:
    chat = commands.add_parser(
        "chat",
        help="talk to a model",
        description="Talk to a model, as a live transcript with a summary of each answer. Questions are lines of "
        "standard input; /quit or its end ends the chat. Ctrl-C stops an answer and keeps the chat; twice, or where a "
        "question is asked for, it ends it. The key is that of the provider's usual environment variable.",
        epilog=_STATUS,
    )
    chat.set_defaults(command=Chat)
    add_model(chat, required=True)
    chat.add_argument("--record", metavar="FILE", help="write all that the server answers into this recording")
    chat.add_argument("--once", metavar="QUESTION", help="ask this, and end with the answer")
    chat.add_argument("--raw", action="store_true", help="show calls as the model wrote them")
    chat.add_argument("--json", action="store_true", help="print events, one JSON object a line, and nothing else")


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
