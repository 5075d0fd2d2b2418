"""Parses the arguments of the command line, and defines the text of `--help`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn, get_args

from streamtools import __version__
from streamtools.apps.cli.errors import CommandError
from streamtools.parsing.dialects import DIALECTS, Dialect, choose_dialects
from streamtools.tools.definitions import ProviderFormat

SERVE_PORT = 8765
GATEWAY_PORT = 8766
SERVE_SPEED = 0.4  # slower than recorded, because the model wrote 150 tokens per second

_EXIT_STATUS = """\
Exit status: 0 on success; 1 if a stream failed, a recording breaks off or the output is closed; 2 if the command line
or a file is invalid; 130 if interrupted. One line on standard error says why it is not 0.
"""


def parse(argv: Sequence[str] | None) -> Namespace:
    """Parse the arguments. The attribute `command` of the result is the name of the command.

    Raises CommandError for invalid arguments, and SystemExit after `--help` and `--version`.
    """
    parser = _Parser(
        prog="streamtools",
        description="Watch model streams turn into text, tool calls and results.",
        epilog=_EXIT_STATUS,
    )
    parser.add_argument("--version", action="version", version=f"streamtools {__version__}", help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add_arguments, summary in (
        (_replay, "play a recorded stream"),
        (_serve, "talk to a model on a web page"),
        (_gateway, "serve tool calls of any model to any client"),
        (_demo, "see it work, without a network or a key"),
    ):
        name = add_arguments.__name__.removeprefix("_")
        command = commands.add_parser(name, help=summary, description=add_arguments.__doc__, epilog=_EXIT_STATUS)
        command.set_defaults(command=name)
        add_arguments(command)
    args = parser.parse_args(argv)
    if args.command == "serve":
        _check_model_options(args)
    return args


class _Parser(ArgumentParser):
    """An argument parser that reports an error as one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see {self.prog} --help)")


# Each of these functions adds the arguments of one command. Its name is the command with a leading underscore, and its
# docstring is the description in `--help`.


def _replay(parser: ArgumentParser) -> None:
    """Play a recorded stream as a live transcript with a summary. FILE is a recording of streamtools, or the
    server-sent events that `curl -N` wrote to a file. Without --tools, calls are shown and stay pending.
    """
    add = parser.add_argument
    add("file", metavar="FILE", help="a recording, or a raw capture of server-sent events")
    _add_tools(parser)
    add("--json", action="store_true", help="print only events, one JSON object per line")
    _add_speed(parser)
    cuts = ("recorded", "frame", "byte", "whole")
    add("--cut", choices=cuts, default="recorded", help="how to cut the bytes into chunks (default: %(default)s)")
    dialects = f"{', '.join(DIALECTS)}, or auto for all"
    add("--dialects", metavar="A,B", type=_dialects, help=f"parse calls in these dialects: {dialects} (default: auto)")


def _serve(parser: ArgumentParser) -> None:
    """Serve a page on this machine for talking to a model and watching the stream: text, calls, results, and events.
    Without --model and FILE, recorded answers of a real model are played. The API key is read from the provider's usual
    environment variable, and stays in the server.
    """
    add = parser.add_argument
    add("files", metavar="FILE", nargs="*", help="show these recordings, or raw captures, in the debugger")
    _add_model_options(parser)
    host_help = "the address to listen on (default: 127.0.0.1, this machine only); page visitors can run the tools"
    add("--host", default="127.0.0.1", help=host_help)
    add("--port", type=_port, default=SERVE_PORT, help="the port; 0 for any free port (default: %(default)s)")
    allow_host_help = "also answer to this host name, such as the name of a reverse proxy; can be repeated"
    add("--allow-host", dest="allowed_hosts", metavar="NAME", action="append", default=[], help=allow_host_help)
    _add_speed(parser, SERVE_SPEED)


def _gateway(parser: ArgumentParser) -> None:
    """Serve clients of OpenAI's and Anthropic's APIs, in front of a chat completions server. Tool calls that the model
    writes as text become native calls for the clients. API keys are never on the command line.
    """
    add = parser.add_argument
    add("--upstream", metavar="URL", help="the server to call, such as http://127.0.0.1:8080/v1")
    add("--config", metavar="FILE", help="a TOML file with these and more options")
    add("--mode", choices=("text", "native", "auto"), help="how models make calls (default: text)")
    servers = ("openai", "ollama", "llama.cpp", "vllm")
    add("--api", choices=servers, help="the server, which can then force calls (default: openai, any server)")
    dialect_help = "teach the first of these dialects, and parse all; can be repeated (default: by the model's name)"
    add("--dialect", dest="dialects", metavar="ID", action="append", help=dialect_help)
    add("--host", help="the address to listen on (default: 127.0.0.1, this machine only)")
    add("--port", type=_port, help=f"the port; 0 for any free port (default: {GATEWAY_PORT})")
    add("--allow-host", dest="hosts", metavar="NAME", action="append", help="also answer to this host name")
    add("--key-env", metavar="NAME", help="the environment variable with the key for the server")
    add("--client-key-env", metavar="NAME", help="the environment variable with the key that clients must send")
    add("--record", metavar="FILE", help="record the requests to the server and its responses")


def _demo(parser: ArgumentParser) -> None:
    """Play recorded answers of a real model without a network, read them as a backend would, run the tools that they
    call, and show everything.
    """
    _add_speed(parser)


# These functions add arguments that several commands share.


def _add_model_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="NAME", help="the provider's name of the model")
    add("--url", help="the base URL of the server, such as http://127.0.0.1:8080/v1 (default: the provider's)")
    add(
        "--api", choices=get_args(ProviderFormat), default="openai", help="the API of the server (default: %(default)s)"
    )
    dialect_help = "teach the model to write calls as text in this dialect (default: native calls of the API)"
    add("--dialect", metavar="NAME", type=_taught_dialect, help=dialect_help)
    _add_tools(parser)
    add("--system", metavar="TEXT", help="the system prompt")


def _check_model_options(args: Namespace) -> None:
    """Raise CommandError if the model's name is blank, or if options cannot be combined."""
    if args.model is not None and not args.model.strip():
        raise CommandError(f"--model must name a model, got {args.model!r}")
    if args.model is not None and args.files:
        raise CommandError("pass either FILE or --model: a file is played, a model answers")
    if args.model is None:
        defaults = {"url": None, "dialect": None, "tools": None, "system": None, "api": "openai"}
        if given := [name for name, default in defaults.items() if getattr(args, name) != default]:
            raise CommandError(f"--{given[0]} needs a --model: without a model, recordings are played")


def _add_tools(parser: ArgumentParser) -> None:
    tools_help = "run calls with these tools: a ToolRegistry, a tool, functions, or a list of them"
    parser.add_argument("--tools", metavar="MODULE:NAME", help=f"{tools_help}; the current directory is searched, too")


def _add_speed(parser: ArgumentParser, default: float = 1.0) -> None:
    speed_help = f"1 for the recorded timing, 2 for twice as fast, 0 for no waiting (default: {default:g})"
    parser.add_argument("--speed", metavar="X", type=_speed, default=default, help=speed_help)


# These functions convert the text of an argument to its value. They raise ArgumentTypeError for an invalid text.


def _dialects(text: str) -> tuple[Dialect, ...]:
    names = [name.strip() for name in text.split(",")]
    try:
        return choose_dialects("auto" if names == ["auto"] else list(filter(None, names)))
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _taught_dialect(text: str) -> Dialect:
    dialects = _dialects(text)
    if len(dialects) != 1:
        raise ArgumentTypeError(f"expected one dialect, got {text!r}")
    if not dialects[0].teachable:
        raise ArgumentTypeError(f"{dialects[0].id!r} cannot be taught: its calls contain tokens of a chat template")
    return dialects[0]


def _speed(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (speed := float(text)) < float("inf"):
            return speed
    raise ArgumentTypeError(f"expected 0 or a factor such as 0.5 or 2, got {text!r}")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= 65535):
        raise ArgumentTypeError(f"expected a port from 0 to 65535, got {text!r}")
    return int(text)
