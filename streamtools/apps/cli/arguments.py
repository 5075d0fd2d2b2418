"""What can be asked of the command, and what was: for each sub-command a class with its name holds its arguments."""

from __future__ import annotations

import argparse
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from streamtools.apps.cli.complaints import Refused
from streamtools.apps.cli.model_arguments import ModelArguments, add_model, add_tools, check_model, read_dialects
from streamtools.parsing.dialects import DIALECTS, Dialect
from streamtools.recording import DETECT
from streamtools.sources import ADAPTERS

PORT = 8765
GATEWAY_PORT = 8766
SPEED = 0.4  # slow enough to be watched: the recorded model writes 150 tokens a second

_STATUS = """\
exit status: 0; 1 if a stream failed, a recording breaks off or the output is closed; 2 if the command line or the file
is of no use; 130 if interrupted. In each case but 0 one line on standard error says why.
"""


@dataclass(frozen=True, kw_only=True)
class Replay:
    file: str
    tools: str | None
    json: bool
    speed: float
    cut: Any
    dialects: tuple[Dialect, ...] | None


@dataclass(frozen=True, kw_only=True)
class Record:
    url: str | None
    origin: str | None
    out: str
    body: str | None
    headers: list[tuple[str, str]]
    source: str
    redact: list[re.Pattern[str]]
    keep_unreadable: bool
    json: bool


@dataclass(frozen=True, kw_only=True)
class Report:
    files: list[str]
    json: bool
    dialects: tuple[Dialect, ...] | None


@dataclass(frozen=True, kw_only=True)
class Serve(ModelArguments):
    files: list[str]
    host: str
    port: int
    allowed: list[str]
    redis: str | None
    keep: str | None
    workers: int
    speed: float


@dataclass(frozen=True, kw_only=True)
class Demo:
    all: bool
    speed: float


@dataclass(frozen=True, kw_only=True)
class Chat(ModelArguments):
    model: str
    record: str | None
    kept: str | None
    once: str | None
    raw: bool
    json: bool


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """What is None stands in the configuration, or has its default."""

    config: str | None
    given: dict[str, Any]


Command = Replay | Demo | Chat | Record | Report | Serve | Gateway


def parse(argv: Sequence[str] | None) -> Command:
    """Return what was asked. Raises `Refused`, and SystemExit behind `--help` and `--version`, which are answered."""
    given = vars(_parser().parse_args(argv))
    command: type[Command] = given.pop("command")
    if command is Chat:
        check_model(given)
    elif command is Serve:
        _check_serve(given)
    elif command is Gateway:
        config = given.pop("config")
        given = {"config": config, "given": {name: value for name, value in given.items() if value is not None}}
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
        prog="streamtools", description="Watch model streams turn into text, tool calls and results.", epilog=_STATUS
    )
    parser.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (_add_replay, _add_record, _add_report, _add_chat, _add_serve, _add_gateway, _add_demo):
        add(commands)
    return parser


def _add(commands: Any, command: type[Command], **texts: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(command.__name__.lower(), epilog=_STATUS, **texts)
    parser.set_defaults(command=command)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print events, one JSON object a line, and nothing else")


def _add_replay(commands: Any) -> None:
    replay = _add(
        commands,
        Replay,
        help="play a recorded stream",
        description="Play a recorded stream as a live transcript, with a summary. FILE is a recording of streamtools, "
        "or the server-sent events that `curl -N` wrote into a file. Without --tools, calls are reported and stay "
        "pending.",
    )
    replay.add_argument("file", metavar="FILE", help="a recording, or a raw capture of server-sent events")
    add_tools(replay)
    _add_json(replay)
    _add_speed(replay)
    cuts = ("recorded", "frame", "byte", "whole")
    replay.add_argument("--cut", choices=cuts, default="recorded", help="how the bytes are cut (default: %(default)s)")
    replay.add_argument(
        "--dialects",
        metavar="A,B",
        type=read_dialects,
        help=f"read calls that are written in these ways: {', '.join(DIALECTS)}, or auto for all (default: auto)",
    )


def _add_chat(commands: Any) -> None:
    chat = _add(
        commands,
        Chat,
        help="talk to a model",
        description="Talk to a model, as a live transcript with a summary of each answer. Questions are lines of "
        "standard input; on a terminal, Markdown is drawn, and /help lists commands. /quit or the end of the input "
        "ends the chat. Ctrl-C stops an answer; pressed twice, or at an empty prompt, it ends the chat. The key is "
        "that of the provider's usual environment variable.",
    )
    add_model(chat, required=True)
    chat.add_argument("--record", metavar="FILE", help="write all that the server answers into this recording")
    kept = "go on with the conversation in this file, if there is one yet, and keep it there after each answer"
    chat.add_argument("--continue", dest="kept", metavar="FILE", help=kept)
    chat.add_argument("--once", metavar="QUESTION", help="ask this, and end with the answer")
    chat.add_argument("--raw", action="store_true", help="show calls and Markdown as the model wrote them")
    _add_json(chat)


def _add_record(commands: Any) -> None:
    record = _add(
        commands,
        Record,
        help="record a stream",
        description="Ask a provider, write what it streams into a recording with its cuts and times, and show it as it "
        "comes; or make a recording of a stream that was saved. Headers are written from a short list; what is named "
        "like a credential, and keys of known formats wherever they stand, are overwritten.",
    )
    where = record.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="the address to ask, with POST if there is a --body")
    where.add_argument(
        "--from",
        dest="origin",
        metavar="FILE",
        help="a stream that was saved: what `curl -N` wrote, the payloads of its events one a line (chunks.txt), or a "
        "recording, to be redacted once more",
    )
    record.add_argument("--out", required=True, metavar="FILE", help="the recording; written anew, for your eyes only")
    record.add_argument("--body", metavar="FILE", help="send this; - is standard input")
    record.add_argument(
        "--header",
        dest="headers",
        metavar="NAME:VALUE",
        action="append",
        type=_header,
        default=[],
        help="send this header, such as 'authorization: Bearer …'; may be repeated",
    )
    record.add_argument(
        "--source",
        choices=(DETECT, *ADAPTERS),
        default=DETECT,
        help="whose stream it is (default: that is seen when it is read)",
    )
    record.add_argument(
        "--redact",
        metavar="PATTERN",
        action="append",
        type=_pattern,
        default=[],
        help="overwrite what this regular expression matches, too; may be repeated",
    )
    record.add_argument(
        "--keep-unreadable",
        action="store_true",
        help="write a --body, too, that cannot be looked through for secrets, such as an image",
    )
    _add_json(record)


def _add_report(commands: Any) -> None:
    report = _add(
        commands,
        Report,
        help="see what models have done, in recordings and logs",
        description="Write a page with what recordings and logs tell: calls, near misses and errors by dialect, how "
        "runs ended, and times. FILE is a recording, or lines of JSON: events, or records of the log; - is standard "
        "input.",
    )
    report.add_argument("files", metavar="FILE", nargs="+", help="a recording, or a log of JSON lines")
    report.add_argument("--json", action="store_true", help="print the figures as one JSON object, and no page")
    report.add_argument(
        "--dialects", metavar="A,B", type=read_dialects, help="read calls in recordings in these ways (default: auto)"
    )


def _add_serve(commands: Any) -> None:
    serve = _add(
        commands,
        Serve,
        help="talk to a model on a web page",
        description="Serve a page on this machine for talking to a model and watching what streams: text, calls, "
        "results, and the events behind them. Without --model, recorded answers of a real model are played. The key is "
        "that of the provider's usual environment variable, and stays here.",
    )
    serve.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="show these recordings, or raw captures, in the debugger: bytes and events side by side, at any cut",
    )
    add_model(serve, required=False)
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen at (default: 127.0.0.1, this machine alone); whoever reaches it can run the tools",
    )
    serve.add_argument("--port", type=_port, default=PORT, help=f"the port (default: {PORT}; 0: any that is free)")
    serve.add_argument(
        "--allow-host",
        dest="allowed",
        metavar="NAME",
        action="append",
        default=[],
        help="answer under this name, too, such as that of a proxy in front; may be repeated",
    )
    shared = "keep conversations in Redis or Valkey, such as redis://localhost, where servers share them"
    serve.add_argument("--redis", metavar="URL", help=shared)
    serve.add_argument("--keep", metavar="FILE", help="keep conversations in this file of SQLite, also over a restart")
    serve.add_argument(
        "--workers", metavar="N", type=_count, default=1, help="so many processes serve (default: 1; more need --redis)"
    )
    _add_speed(serve, SPEED)


def _add_gateway(commands: Any) -> None:
    gateway = _add(
        commands,
        Gateway,
        help="give any client tools, in front of any model",
        description="Listen for clients of OpenAI's and Anthropic's APIs, and ask a server of chat completions, whose "
        "model writes its calls into the text: the clients have native ones. Keys are never on the command line.",
    )
    gateway.add_argument("--upstream", metavar="URL", help="the server to ask, such as http://127.0.0.1:8080/v1")
    gateway.add_argument("--config", metavar="FILE", help="a file of TOML with these and further options")
    gateway.add_argument("--mode", choices=("text", "native", "auto"), help="how models call (default: text)")
    gateway.add_argument(
        "--api", choices=("openai", "ollama", "llama.cpp", "vllm"), help="what the server speaks (default: openai)"
    )
    gateway.add_argument(
        "--dialect",
        dest="dialects",
        metavar="ID",
        action="append",
        help="teach the first of these, and read them; may be repeated; docs/dialects.md lists them (default: the "
        "dialect of the model's name, or else tilde_fence; all are read)",
    )
    gateway.add_argument("--few-shot", action="store_true", default=None, help="teach with examples, for base models")
    gateway.add_argument("--host", help="the address to listen at (default: 127.0.0.1, this machine alone)")
    gateway.add_argument("--port", type=_port, help=f"the port (default: {GATEWAY_PORT}; 0: any that is free)")
    gateway.add_argument("--allow-host", dest="hosts", metavar="NAME", action="append", help="also answer to this name")
    gateway.add_argument("--key-env", metavar="NAME", help="the variable with the key for the server, for all clients")
    gateway.add_argument("--client-key-env", metavar="NAME", help="the variable with the key that clients have to send")
    gateway.add_argument("--record", metavar="FILE", help="write what the server is asked and answers into a recording")


def _add_demo(commands: Any) -> None:
    demo = _add(
        commands,
        Demo,
        help="see it work, without a network or a key",
        description="Start a server on this machine that streams recorded answers of a real model, read them as a "
        "backend would, run the tools that they call, and show all of it.",
    )
    demo.add_argument("--all", action="store_true", help="play all recordings that come with streamtools, not three")
    _add_speed(demo)


def _add_speed(parser: argparse.ArgumentParser, default: float = 1.0) -> None:
    parser.add_argument(
        "--speed",
        metavar="X",
        type=_speed,
        default=default,
        help=f"how fast: 1 is the recorded timing, 2 twice as fast, 0 without waiting (default: {default:g})",
    )


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = -1
    if not 0 <= speed < float("inf"):
        raise argparse.ArgumentTypeError(f"a speed is 0 or a factor such as 0.5 or 2, and {text!r} is neither")
    return speed


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (name.strip() and colon):
        shown = text if len(text) <= 20 else f"{text[:8]}…"  # the rest may be a key
        raise argparse.ArgumentTypeError(f"a header is NAME:VALUE, such as 'accept: */*', and {shown!r} is not")
    return name.strip(), value.strip()


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"a port is a number up to 65535, and {text!r} is none")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError(f"a number of processes is one from 1 to 64, and {text!r} is none")
    return int(text)


def _check_serve(given: dict[str, Any]) -> None:
    """Put what was given in order. Raises `Refused` for options of a model that is missing."""
    check_model(given)
    if given["workers"] > 1 and given["redis"] is None:
        raise Refused("--workers needs a --redis, in which they share the conversations")
    if given["keep"] is not None and given["redis"] is not None:
        raise Refused("conversations are kept by --redis, or in the file of --keep: one of them")
    if given["files"] and given["model"] is not None:
        raise Refused("a FILE is played, and a --model answers: one of them")
    if given["model"] is None:
        needless = [name for name in ("url", "dialect", "tools", "system", "options") if given[name]]
        needless += [] if given["emulate"] == "off" else ["emulate"]
        needless += [] if given["api"] == "openai" else ["api"]
        if needless:
            name = "option" if needless[0] == "options" else needless[0]
            raise Refused(f"--{name} needs a --model: without one, recordings are played")
