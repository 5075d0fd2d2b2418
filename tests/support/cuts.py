"""Ways to split bytes into chunks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st

_SIZES = (2, 7, 16, 61)
"""The sizes in bytes of the chunks in the quick tests."""

_PLACES = 16
"""The number of positions at which the quick tests split data in two."""


def usual_cuts(data: bytes) -> Iterator[list[bytes]]:
    """Yield `data` whole, byte by byte, with empty chunks between, and split in two at every position.

    The quick profile uses fewer positions, which depend on the length, and pieces of a few sizes.
    """
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    yield [chunk for at in range(len(data)) for chunk in (data[at : at + 1], b"")]
    every = 1
    if settings().max_examples <= 15:
        yield from ([data[at : at + size] for at in range(0, len(data), size)] for size in _SIZES if size < len(data))
        every = max(1, len(data) // _PLACES)
    for at in range(1 + len(data) % every, len(data), every):
        yield [data[:at], data[at:]]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return `data`, split at `places`. They need not be sorted and may be outside of `data`."""
    bounds = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(bounds)]


places = st.lists(st.integers(0, 400), max_size=12)
