"""Runs agent-tool-parser, which reads whole texts: once at the end, or the text so far with each delta.

It gives calls and no text, so that its text is not judged. The tools are named to it, as its documentation advises.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.peers.adapting import Feed, Finish, Peer
from benchmarks.peers.streams import TOOLS


def load(choice: str, declared: Sequence[dict[str, Any]] = TOOLS) -> Peer:
    """Return a parser in the mode `choice`, with the names of the `declared` tools."""
    parser = import_module("agent_tool_parser").ToolParser(allowed_tools={tool["name"] for tool in declared})
    parse = parser.try_parse_all

    def make() -> tuple[Feed, Finish]:
        text = ""

        def keep(delta: str) -> None:
            nonlocal text
            text += delta

        def parse_again(delta: str) -> None:
            nonlocal text
            text += delta
            parse(text)

        return (keep if choice == "at the end" else parse_again), lambda: [parse(text)]

    return Peer(version("agent-tool-parser"), make, _read)


def _read(calls: Any) -> Iterable[list[Any]]:
    for at, call in enumerate(calls or []):
        yield ["whole", str(at), call.name, json.dumps(call.args)]
