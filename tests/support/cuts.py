"""Ways to cut bytes: what a network may do to them, and what must make no difference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st

_SHORT = 100
"""Bytes that are cut at every place in the quick tests, too."""


def usual_cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield `data` whole, byte by byte, with empty chunks between, and in two: at every place if it is short or the
    profile is not the quick one, else at every third, which are others where the length is another.
    """
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    yield [chunk for at in range(len(data)) for chunk in (data[at : at + 1], b"")]
    every = 1 if len(data) <= _SHORT or settings().max_examples > 15 else 3
    for at in range(1 + len(data) % every, len(data), every):
        yield [data[:at], data[at:]]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return `data` cut at `places`, which may lie anywhere and come in any order."""
    bounds = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(bounds)]


places = st.lists(st.integers(0, 400), max_size=12)
