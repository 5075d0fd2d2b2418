"""Ways to split a text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from hypothesis import settings

from streamtools.testing.laws import cut

T = TypeVar("T")


def some(values: Iterable[T], share: int, first: int = 0) -> Iterator[T]:
    """Return one of `share` values in the quick profile, and all values in the other profiles."""
    return itertools.islice(values, *((0, None, 1) if settings().max_examples > 15 else (first % share, None, share)))


def two_way(text: str) -> Iterator[list[str]]:
    """Yield every way to split `text` in two."""
    return (cut(text, [place]) for place in range(1, len(text)))


def three_way(text: str) -> Iterator[list[str]]:
    """Yield every way to split `text` in three."""
    return (cut(text, places) for places in itertools.combinations(range(1, len(text)), 2))


def every_way(text: str) -> Iterator[list[str]]:
    """Yield every way to split `text`. Their number doubles with each character."""
    places = range(1, len(text))
    chosen = itertools.chain.from_iterable(itertools.combinations(places, count) for count in range(len(text)))
    return (cut(text, each) for each in chosen)


_SIZES = (2, 3, 5, 8)
"""The lengths of the pieces in the quick tests."""

_PLACES = 6
"""The number of positions at which the quick tests split a text in two."""


def usual_ways(text: str) -> Iterator[Sequence[str]]:
    """Yield `text` whole, character by character, with empty deltas between, and split in two at every position.

    The quick profile uses fewer positions, which depend on the length, and pieces of a few sizes.
    """
    yield [text]
    yield list(text)
    yield [delta for character in text for delta in (character, "")]
    if settings().max_examples > 15:
        yield from two_way(text)
        return
    yield from ([text[at : at + size] for at in range(0, len(text), size)] for size in _SIZES if size < len(text))
    every = max(1, len(text) // _PLACES)
    yield from (cut(text, [place]) for place in range(1 + len(text) % every, len(text), every))
