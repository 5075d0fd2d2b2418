"""A target: what is fuzzed, with the laws that hold for it, and the inputs and words to begin with.

An input is a head, whose bytes choose among options, and a body, which is what the code under test reads. A head of
zeros chooses what is usual; bytes that are missing are zeros.
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
    """`check` raises where an input breaks a law, and else returns what kind of outcome it had, in any words."""

    name: str
    check: Callable[[Input], Iterable[object]]
    seeds: Callable[[], list[bytes]]
    words: Sequence[bytes]


class Input:
    """The bytes that an engine has chosen, as a target sees them."""

    def __init__(self, data: bytes) -> None:
        self._head = data[:HEAD].ljust(HEAD, b"\0")
        self.body = data[HEAD:]

    def choose(self, place: int, choices: Sequence[T]) -> T:
        """Return the choice that the byte of the head at `place` is."""
        return choices[self._head[place] % len(choices)]

    def choose_all(self, table: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Return the choice of each row, by the bytes of the head in order."""
        return {name: self.choose(place, choices) for place, (name, choices) in enumerate(table.items())}

    def wants(self, law: int) -> bool:
        """Return whether a law that costs more than others is to be checked; there are eight of them at most."""
        return bool(self._head[_LAWS] >> law & 1)

    def places(self, length: int) -> list[int]:
        """Return where to cut something of this length."""
        chance = random.Random(self._head[_CUTS : _CUTS + 2])
        return [chance.randrange(length + 1) for _ in range(chance.randrange(1, 7))]

    @property
    def text(self) -> str:
        """The body as text; what is no UTF-8 is halves of surrogate pairs."""
        try:
            return self.body.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return self.body.decode("utf-8", "surrogateescape")


def seed(body: bytes | str, *, laws: int = 0, **head: int) -> bytes:
    """Return an input: a body, and the bytes of its head by their places, as in `_3=1`."""
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
    """Return a text or bytes in pieces of one size, each an object of its own."""
    return [whole[at : at + size] for at in range(0, len(whole), size)]


def encode(text: str) -> bytes:
    """Return a text as bytes, halves of surrogate pairs included."""
    return text.encode("utf-8", "surrogatepass")
