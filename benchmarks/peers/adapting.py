"""The interface of a parser for the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarks.peers.streams import TOOLS

Feed: TypeAlias = Callable[[str], Any]
Finish: TypeAlias = Callable[[], Iterable[Any]]
Make: TypeAlias = "Callable[[], tuple[Feed, Finish]]"


@dataclass(frozen=True)
class Peer:
    """A parser: `make` one for a stream; `read` what its `feed` returns, or one of those that its `finish` returns.

    What is measured is `feed` and `finish`, and there is nothing in them but what a user of the parser has to do, too.
    `read` makes of an output what `judging.Told` says, without the delta's number.
    """

    version: str
    make: Make
    read: Callable[[Any], Iterable[list[Any]]]


def function_tools(declared: Sequence[dict[str, Any]] = TOOLS) -> list[dict[str, Any]]:
    """Return declared tools in OpenAI's format."""
    return [{"type": "function", "function": tool} for tool in declared]
