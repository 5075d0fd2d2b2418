"""What can be asked of `streamtools serve`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamtools.cli.complaints import Refused
from streamtools.cli.model_arguments import ModelArguments, add_model, check_model

PORT = 8765
SPEED = 0.4  # slow enough to be watched: the recorded model writes 150 tokens a second


@dataclass(frozen=True, kw_only=True)
class Serve(ModelArguments):
    """`streamtools serve`"""

    host: str
    port: int
    allowed: list[str]
    speed: float


def add_serve(commands: Any, epilog: str, speed: Callable[[str], float]) -> None:
    """Add the command to the others."""
    serve = commands.add_parser(
        "serve",
        help="talk to a model on a web page",
        description="Serve a page on this machine for talking to a model and watching what streams: text, calls, "
        "results, and the events behind them. Without --model, recorded answers of a real model are played. The key is "
        "that of the provider's usual environment variable, and stays here.",
        epilog=epilog,
    )
    serve.set_defaults(command=Serve)
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
    serve.add_argument(
        "--speed",
        metavar="X",
        type=speed,
        default=SPEED,
        help=f"how fast recordings play: 1 is the recorded timing, 0 without waiting (default: {SPEED})",
    )


def check_serve(given: dict[str, Any]) -> None:
    """Put what was given in order. Raises `Refused` for options of a model that is missing."""
    check_model(given)
    if given["model"] is None:
        needless = [name for name in ("url", "dialect", "tools", "system", "options") if given[name]]
        needless += [] if given["emulate"] == "off" else ["emulate"]
        needless += [] if given["api"] == "openai" else ["api"]
        if needless:
            name = "option" if needless[0] == "options" else needless[0]
            raise Refused(f"--{name} needs a --model: without one, recordings are played")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"a port is a number up to 65535, and {text!r} is none")
    return int(text)
