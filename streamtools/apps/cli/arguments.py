"""What can be asked of the command, and what was: for each sub-command a class with its name.

Its fields are the arguments, and its docstring is what `--help` says of it.
"""

# ruff: noqa: RUF009  # a dataclass takes fields that a function has made

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, NoReturn, get_args

from streamtools import __version__
from streamtools.apps.cli.complaints import Refused
from streamtools.parsing.dialects import DIALECTS, Dialect, choose_dialects
from streamtools.recording import DETECT
from streamtools.sources import ADAPTERS
from streamtools.tools.definitions import ProviderFormat

PORT = 8765
GATEWAY_PORT = 8766
SPEED = 0.4  # slow enough to be watched: the recorded model writes 150 tokens a second

_STATUS = """\
exit status: 0; 1 if a stream failed, a recording breaks off or the output is closed; 2 if the command line or the file
is of no use; 130 if interrupted. In each case but 0 one line on standard error says why.
"""


def argument(*names: str, one_of: bool = False, **how: Any) -> Any:
    """Return the field of an argument, which is told `how` as `argparse` is; its option has its name, if no other.

    Of those that are `one_of` several, one is given.
    """
    return field(metadata={"names": names, "one_of": one_of, "how": how})


def read_dialects(text: str) -> tuple[Dialect, ...]:
    """Return the dialects that are named, with commas between them."""
    names = [name.strip() for name in text.split(",")]
    try:
        return choose_dialects("auto" if names == ["auto"] else list(filter(None, names)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _taught(text: str) -> Dialect:
    (dialect, *others) = read_dialects(text) or (None,)
    if dialect is None or others:
        raise argparse.ArgumentTypeError(f"one dialect is taught, and {text!r} is not one")
    if not dialect.teachable:
        why = f"calls of the dialect {dialect.id!r} hold tokens of a chat template, which no prompt can write"
        raise argparse.ArgumentTypeError(why)
    return dialect


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"an option is NAME=VALUE, such as temperature=0, and {text!r} is not")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _speed(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (speed := float(text)) < float("inf"):
            return speed
    raise argparse.ArgumentTypeError(f"a speed is 0 or a factor such as 0.5 or 2, and {text!r} is neither")


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


def _number(text: str, *, least: int, most: int, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{what}, and {text!r} is none")
    return int(text)


_port = partial(_number, least=0, most=65535, what="a port is a number up to 65535")


def _add_speed(default: float = 1.0) -> Any:
    how = f"how fast: 1 is the recorded timing, 2 twice as fast, 0 without waiting (default: {default:g})"
    return argument(metavar="X", type=_speed, default=default, help=how)


_TOOLS: dict[str, Any] = {
    "metavar": "MODULE:NAME",
    "help": "run the calls with these tools: a ToolRegistry, a tool, functions, or a list of them; "
    "modules are looked for in the current directory, too",
}
_MODEL: dict[str, Any] = {"metavar": "NAME", "help": "what its provider calls the model"}
_JSON: dict[str, Any] = {"action": "store_true", "help": "print events, one JSON object a line, and nothing else"}


@dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """A model, and how it is asked. Only `serve` does without a model."""

    model: str | None = argument(**_MODEL)
    url: str | None = argument(
        help="the address of the server, such as http://127.0.0.1:8080/v1 (default: that of the provider)"
    )
    api: ProviderFormat = argument(
        choices=get_args(ProviderFormat), default="openai", help="how the server is spoken to (default: openai)"
    )
    dialect: Dialect | None = argument(
        metavar="NAME",
        type=_taught,
        help="calls are text, written in this way, which the model is taught (default: the calls of the API, and text "
        "that is a call as models of that name write it, or as auto reads them)",
    )
    tools: str | None = argument(**_TOOLS)
    emulate: Literal["off", "fallback", "force"] = argument(
        choices=("off", "fallback", "force"),
        default="off",
        help="ask the model in a request of its own which tools are needed: where it made no call, or always "
        "(default: off)",
    )
    few_shot: bool = argument(action="store_true", help="teach the dialect with examples too, for base models")
    system: str | None = argument(metavar="TEXT", help="the system prompt")
    options: dict[str, Any] = argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        type=_option,
        help="put this into each request, such as temperature=0; the value is JSON, or else a text; may be repeated",
    )

    def __post_init__(self) -> None:
        """Put what was given in order. Raises `Refused` for what does not go together."""
        object.__setattr__(self, "options", dict(self.options or ()))
        if self.model is not None and not self.model.strip():
            raise Refused(f"--model takes the name of a model, and {self.model!r} is none")
        if self.few_shot and (self.dialect is None or self.tools is None):
            raise Refused("--few-shot shows calls of --tools in a --dialect, and needs both")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Play a recorded stream as a live transcript, with a summary. FILE is a recording of streamtools, or the
    server-sent events that `curl -N` wrote into a file. Without --tools, calls are reported and stay pending.
    """

    file: str = argument("file", metavar="FILE", help="a recording, or a raw capture of server-sent events")
    tools: str | None = argument(**_TOOLS)
    json: bool = argument(**_JSON)
    speed: float = _add_speed()
    cut: Any = argument(
        choices=("recorded", "frame", "byte", "whole"),
        default="recorded",
        help="how the bytes are cut (default: %(default)s)",
    )
    dialects: tuple[Dialect, ...] | None = argument(
        metavar="A,B",
        type=read_dialects,
        help=f"read calls that are written in these ways: {', '.join(DIALECTS)}, or auto for all (default: auto)",
    )


@dataclass(frozen=True, kw_only=True)
class Record:
    """Ask a provider, write what it streams into a recording with its cuts and times, and show it as it comes; or make
    a recording of a stream that was saved. Headers are written from a short list; what is named like a credential, and
    keys of known formats wherever they stand, are overwritten.
    """

    url: str | None = argument(one_of=True, help="the address to ask, with POST if there is a --body")
    origin: str | None = argument(
        "--from",
        one_of=True,
        metavar="FILE",
        help="a stream that was saved: what `curl -N` wrote, the payloads of its events one a line (chunks.txt), or a "
        "recording, to be redacted once more",
    )
    out: str = argument(required=True, metavar="FILE", help="the recording; written anew, for your eyes only")
    body: str | None = argument(metavar="FILE", help="send this; - is standard input")
    headers: list[tuple[str, str]] = argument(
        "--header",
        metavar="NAME:VALUE",
        action="append",
        type=_header,
        default=[],
        help="send this header, such as 'authorization: Bearer …'; may be repeated",
    )
    source: str = argument(
        choices=(DETECT, *ADAPTERS), default=DETECT, help="whose stream it is (default: that is seen when it is read)"
    )
    redact: list[re.Pattern[str]] = argument(
        metavar="PATTERN",
        action="append",
        type=_pattern,
        default=[],
        help="overwrite what this regular expression matches, too; may be repeated",
    )
    keep_unreadable: bool = argument(
        action="store_true", help="write a --body, too, that cannot be looked through for secrets, such as an image"
    )
    json: bool = argument(**_JSON)


@dataclass(frozen=True, kw_only=True)
class Chat(ModelArguments):
    """Talk to a model, as a live transcript with a summary of each answer. Questions are lines of standard input; on a
    terminal, Markdown is drawn, and /help lists commands. /quit or the end of the input ends the chat. Ctrl-C stops an
    answer; pressed twice, or at an empty prompt, it ends the chat. The key is that of the provider's usual environment
    variable.
    """

    model: str = argument(required=True, **_MODEL)
    record: str | None = argument(metavar="FILE", help="write all that the server answers into this recording")
    kept: str | None = argument(
        "--continue",
        metavar="FILE",
        help="go on with the conversation in this file, if there is one yet, and keep it there after each answer",
    )
    once: str | None = argument(metavar="QUESTION", help="ask this, and end with the answer")
    raw: bool = argument(action="store_true", help="show calls and Markdown as the model wrote them")
    json: bool = argument(**_JSON)


@dataclass(frozen=True, kw_only=True)
class Serve(ModelArguments):
    """Serve a page on this machine for talking to a model and watching what streams: text, calls, results, and the
    events behind them. Without --model, recorded answers of a real model are played. The key is that of the provider's
    usual environment variable, and stays here.
    """

    files: list[str] = argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="show these recordings, or raw captures, in the debugger: bytes and events side by side, at any cut",
    )
    host: str = argument(
        default="127.0.0.1",
        help="the address to listen at (default: 127.0.0.1, this machine alone); whoever reaches it can run the tools",
    )
    port: int = argument(type=_port, default=PORT, help=f"the port (default: {PORT}; 0: any that is free)")
    allowed: list[str] = argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="answer under this name, too, such as that of a proxy in front; may be repeated",
    )
    speed: float = _add_speed(SPEED)

    def __post_init__(self) -> None:
        """Do so, too. Raises `Refused` for options of a model that is missing."""
        super().__post_init__()
        if self.files and self.model is not None:
            raise Refused("a FILE is played, and a --model answers: one of them")
        if self.model is None:
            usual = {"emulate": "off", "api": "openai"}
            told = {name: getattr(self, name) for name in ("url", "dialect", "tools", "system", "options", *usual)}
            if needless := [name for name, value in told.items() if value and value != usual.get(name)]:
                name = "option" if needless[0] == "options" else needless[0]
                raise Refused(f"--{name} needs a --model: without one, recordings are played")


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Listen for clients of OpenAI's and Anthropic's APIs, and ask a server of chat completions, whose model writes its
    calls into the text: the clients have native ones. Keys are never on the command line.
    """

    upstream: str | None = argument(metavar="URL", help="the server to ask, such as http://127.0.0.1:8080/v1")
    config: str | None = argument(metavar="FILE", help="a file of TOML with these and further options")
    mode: str | None = argument(choices=("text", "native", "auto"), help="how models call (default: text)")
    api: str | None = argument(
        choices=("openai", "ollama", "llama.cpp", "vllm"), help="what the server speaks (default: openai)"
    )
    dialects: list[str] | None = argument(
        "--dialect",
        metavar="ID",
        action="append",
        help="teach the first of these, and read them; may be repeated; docs/dialects.md lists them (default: the "
        "dialect of the model's name, or else tilde_fence; all are read)",
    )
    few_shot: bool | None = argument(action="store_true", default=None, help="teach with examples, for base models")
    host: str | None = argument(help="the address to listen at (default: 127.0.0.1, this machine alone)")
    port: int | None = argument(type=_port, help=f"the port (default: {GATEWAY_PORT}; 0: any that is free)")
    hosts: list[str] | None = argument("--allow-host", metavar="NAME", action="append", help="also answer to this name")
    key_env: str | None = argument(metavar="NAME", help="the variable with the key for the server, for all clients")
    client_key_env: str | None = argument(metavar="NAME", help="the variable with the key that clients have to send")
    record: str | None = argument(metavar="FILE", help="write what the server is asked and answers into a recording")


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Start a server on this machine that streams recorded answers of a real model, read them as a backend would, run
    the tools that they call, and show all of it.
    """

    all: bool = argument(action="store_true", help="play all recordings that come with streamtools, not three")
    speed: float = _add_speed()


Command = Replay | Record | Chat | Serve | Gateway | Demo

_ABOUT: dict[type[Command], str] = {
    Replay: "play a recorded stream",
    Record: "record a stream",
    Chat: "talk to a model",
    Serve: "talk to a model on a web page",
    Gateway: "give any client tools, in front of any model",
    Demo: "see it work, without a network or a key",
}


def parse(argv: Sequence[str] | None) -> Command:
    """Return what was asked. Raises `Refused`, and SystemExit behind `--help` and `--version`, which are answered."""
    given = vars(_parser().parse_args(argv))
    command: type[Command] = given.pop("command")
    return command(**given)


class _Parser(argparse.ArgumentParser):
    """Refuses in one line; argparse would print the usage, too."""

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="streamtools", description="Watch model streams turn into text, tool calls and results.", epilog=_STATUS
    )
    parser.add_argument("--version", action="version", version=f"streamtools {__version__}", help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command, about in _ABOUT.items():
        of_command = commands.add_parser(
            command.__name__.lower(), help=about, description=command.__doc__, epilog=_STATUS
        )
        of_command.set_defaults(command=command)
        one_of: Any = None
        for each in fields(command):
            names, how = each.metadata["names"] or (f"--{each.name.replace('_', '-')}",), dict(each.metadata["how"])
            if names[0].startswith("-"):
                how["dest"] = each.name
            if each.metadata["one_of"]:
                one_of = one_of or of_command.add_mutually_exclusive_group(required=True)
            (one_of if each.metadata["one_of"] else of_command).add_argument(*names, **how)
    return parser
