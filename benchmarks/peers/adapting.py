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
    """A parser. `make` creates one for a stream. `read` converts an output of its `feed` or `finish`.

    `feed` and `finish` are measured. They contain only work that every user of the parser has. `read` returns items of
    `judging.Told` without the number of the delta.
    """

    version: str
    make: Make
    read: Callable[[Any], Iterable[list[Any]]]


def function_tools(declared: Sequence[dict[str, Any]] = TOOLS) -> list[dict[str, Any]]:
    """Return declared tools in OpenAI's format."""
    return [{"type": "function", "function": tool} for tool in declared]
