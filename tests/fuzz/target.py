"""A fuzz target: the code under test, its laws, and the inputs and words to begin with.

An input has a head and a body. The bytes of the head select options, and the code under test reads the body. A head of
zeros selects the usual options. Missing bytes are zeros.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

HEAD = 16
"""Bytes that choose."""

_CUTS, _LAWS = 13, 15  # the places in the head of the seed for cuts, two bytes, and of the laws that cost more

T = TypeVar("T")
Cuttable = TypeVar("Cuttable", str, bytes)


@dataclass(frozen=True)
class Target:
    """A fuzz target. `check` returns the kind of outcome, in any words, and raises if the input breaks a law."""

    name: str
    check: Callable[[Input], Iterable[object]]
    seeds: Callable[[], list[bytes]]
    words: Sequence[bytes]


class Input:
    """The bytes that the engine has chosen, as a target reads them."""

    def __init__(self, data: bytes) -> None:
        self._head = data[:HEAD].ljust(HEAD, b"\0")
        self.body = data[HEAD:]

    def choose(self, place: int, choices: Sequence[T]) -> T:
        """Return the choice that the byte at `place` of the head selects."""
        return choices[self._head[place] % len(choices)]

    def choose_all(self, table: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Return the choice of each row, selected by the bytes of the head in order."""
        return {name: self.choose(place, choices) for place, (name, choices) in enumerate(table.items())}

    def wants(self, law: int) -> bool:
        """Return whether to check an expensive law. There are at most eight of them."""
        return bool(self._head[_LAWS] >> law & 1)

    def places(self, length: int) -> list[int]:
        """Return positions to cut a text of this length at."""
        chance = random.Random(self._head[_CUTS : _CUTS + 2])
        return [chance.randrange(length + 1) for _ in range(chance.randrange(1, 7))]

    @property
    def text(self) -> str:
        """The body as text. Invalid UTF-8 becomes lone surrogates."""
        try:
            return self.body.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return self.body.decode("utf-8", "surrogateescape")


def seed(body: bytes | str, *, laws: int = 0, **head: int) -> bytes:
    """Return an input: a body, and bytes of its head by position, as in `_3=1`."""
    chosen = bytearray(HEAD)
    chosen[_LAWS] = laws
    for place, byte in head.items():
        chosen[int(place[1:])] = byte
    return bytes(chosen) + (encode(body) if isinstance(body, str) else body)


def seeds(bodies: Iterable[bytes | str], table: Mapping[str, Sequence[Any]], laws: int = 0) -> Iterator[bytes]:
    """Yield each body with the usual choices, and for each other choice a few of them.

    One in two is held to one of the first so many `laws` that cost more, each in its turn.
    """
    every = list(bodies)
    yield from (seed(body, laws=1 << at // 2 % laws if laws and at % 2 else 0) for at, body in enumerate(every))
    at = 0
    for place, choices in enumerate(table.values()):
        for other in range(1, len(choices)):
            for _ in range(3):
                at += 1
                yield seed(every[at % len(every)], **{f"_{place}": other})


def pieces(whole: Cuttable, size: int) -> list[Cuttable]:
    """Cut a text or bytes into pieces of one size. Each piece is a new object."""
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def encode(text: str) -> bytes:
    """Return a text as bytes, including lone surrogates."""
    return text.encode("utf-8", "surrogatepass")
