"""Cut a recorded stream anew.

What a parser must not depend on is exactly what a network decides: where chunks are cut. Each way of cutting gives the
same bytes in the same order; a piece has the time at which its last byte was there.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from streamtools.recording.format import Chunk

Cut: TypeAlias = Literal["recorded", "byte", "frame", "whole"] | int | random.Random | Sequence[int]
"""How to cut: as recorded, byte by byte, after each frame of server-sent events, not at all, at random with this seed
or generator (pieces of 1 byte to 4 KiB, half of them below 64 bytes), or at these offsets from the start."""

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")  # a CR at the very end may still become a CRLF


def recut(chunks: Iterable[Chunk], cut: Cut) -> Iterator[Chunk]:
    """Return the same bytes in other pieces. Memory holds one piece, and the chunk that it is cut from."""
    if isinstance(cut, str):
        return _by_name(chunks, cut)
    if isinstance(cut, int):
        return _by_size(chunks, _random_sizes(random.Random(cut)))  # noqa: S311 - it cuts, it protects nothing
    if isinstance(cut, random.Random):
        return _by_size(chunks, _random_sizes(cut))
    offsets = [0, *sorted({offset for offset in cut if offset > 0})]
    sizes = (stop - start for start, stop in itertools.pairwise(offsets))
    return _by_size(chunks, itertools.chain(sizes, itertools.repeat(math.inf)))


def _by_name(chunks: Iterable[Chunk], name: str) -> Iterator[Chunk]:
    match name:
        case "recorded":
            return iter(chunks)
        case "byte":
            return _by_size(chunks, itertools.repeat(1))
        case "frame":
            return _by_frame(chunks)
        case "whole":
            return _by_size(chunks, itertools.repeat(math.inf))
        case _:
            raise ValueError(f"no way of cutting is named {name!r}; there are recorded, byte, frame and whole")


def _by_size(chunks: Iterable[Chunk], sizes: Iterator[float]) -> Iterator[Chunk]:
    """Yield pieces of these sizes, an endless series, and what is left at the end."""
    rest, at, size = bytearray(), 0.0, next(sizes)
    for at, data in chunks:
        rest += data
        start = 0
        while (stop := start + size) <= len(rest):
            yield Chunk(at, bytes(rest[start : int(stop)]))
            start, size = int(stop), next(sizes)
        del rest[:start]
    if rest:
        yield Chunk(at, bytes(rest))


def _by_frame(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    rest, at = bytearray(), 0.0
    for at, data in chunks:
        searched = max(0, len(rest) - 4)  # a blank line, seen but for its last byte
        rest += data
        start = 0
        while found := _BLANK_LINE.search(rest, searched):
            stop = searched = found.end()
            yield Chunk(at, bytes(rest[start:stop]))
            start = stop
        del rest[:start]
    if rest:
        yield Chunk(at, bytes(rest))


def _random_sizes(generator: random.Random) -> Iterator[int]:
    """Yield sizes of 1 to 4095, evenly on a logarithmic scale: small pieces find more faults, large ones save time."""
    while True:
        yield int(4096 ** generator.random())
