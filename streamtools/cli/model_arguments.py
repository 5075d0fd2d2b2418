"""How a command line names a model, its tools, and how it is asked: what `chat` and `serve` have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from streamtools.cli.complaints import Refused
from streamtools.parsing.dialects import DEFAULT_DIALECTS, Dialect, choose_dialects

API = Literal["openai", "responses", "anthropic", "ollama", "gemini"]


@dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """A model, and how it is asked. Only `serve` does without a model."""

    url: str | None
    model: str | None
    api: API
    dialect: Dialect | None
    tools: str | None
    emulate: Literal["off", "fallback", "force"]
    few_shot: bool
    system: str | None
    options: dict[str, Any]


def add_model(parser: Any, *, required: bool) -> None:
    """Add the options."""
    parser.add_argument("--model", required=required, metavar="NAME", help="what its provider calls the model")
    parser.add_argument(
        "--url", help="the address of the server, such as http://127.0.0.1:8080/v1 (default: that of the provider)"
    )
    parser.add_argument(
        "--api", choices=get_args(API), default="openai", help="how the server is spoken to (default: openai)"
    )
    parser.add_argument(
        "--dialect",
        metavar="NAME",
        type=_taught,
        help="calls are text, written in this way, which the model is taught (default: the calls of the API, and text "
        f"that is one in {' or '.join(DEFAULT_DIALECTS)})",
    )
    add_tools(parser)
    parser.add_argument(
        "--emulate",
        choices=("off", "fallback", "force"),
        default="off",
        help="ask the model in a request of its own which tools are needed: where it made no call, or always "
        "(default: off)",
    )
    parser.add_argument("--few-shot", action="store_true", help="teach the dialect with examples too, for base models")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        dest="options",
        action="append",
        type=_option,
        help="put this into each request, such as temperature=0; the value is JSON, or else a text; may be repeated",
    )


def add_tools(parser: argparse.ArgumentParser) -> None:
    """Add `--tools`."""
    parser.add_argument(
        "--tools",
        metavar="MODULE:NAME",
        help="run the calls with these tools: a ToolRegistry, a tool, functions, or a list of them; "
        "modules are looked for in the current directory, too",
    )


def check_model(given: dict[str, Any]) -> None:
    """Put what was given in order. Raises `Refused` for what does not go together."""
    given["options"] = dict(given["options"] or ())
    if given["few_shot"] and (given["dialect"] is None or given["tools"] is None):
        raise Refused("--few-shot shows calls of --tools in a --dialect, and needs both")


def read_dialects(text: str) -> tuple[Dialect, ...]:
    """Return the dialects that are named, with commas between them."""
    names: Sequence[str] = [name.strip() for name in text.split(",")]
    try:
        return choose_dialects("auto" if names == ["auto"] else [name for name in names if name])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _taught(text: str) -> Dialect:
    (dialect, *others) = read_dialects(text) or (None,)
    if dialect is None or others:
        raise argparse.ArgumentTypeError(f"one dialect is taught, and {text!r} is not one")
    if not dialect.teachable:
        raise argparse.ArgumentTypeError(
            f"calls of the dialect {dialect.id!r} hold tokens of a chat template, which no prompt can write"
        )
    return dialect


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"an option is NAME=VALUE, such as temperature=0, and {text!r} is not")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value
