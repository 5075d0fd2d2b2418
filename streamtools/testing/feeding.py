"""Ways to cut a text, and to feed it to a parser."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from streamtools.events import UIEvent
from streamtools.parsing import Parser


def cut(text: str, places: Iterable[int]) -> list[str]:
    """Return `text` cut at `places`, which may lie anywhere and come in any order."""
    bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(bounds)]


def two_way(text: str) -> Iterator[list[str]]:
    """Yield every way to cut `text` in two."""
    return (cut(text, [place]) for place in range(1, len(text)))


def three_way(text: str) -> Iterator[list[str]]:
    """Yield every way to cut `text` in three."""
    return (cut(text, places) for places in itertools.combinations(range(1, len(text)), 2))


def every_way(text: str) -> Iterator[list[str]]:
    """Yield every way at all to cut `text`: twice as many with each character."""
    places = range(1, len(text))
    chosen = itertools.chain.from_iterable(itertools.combinations(places, count) for count in range(len(text)))
    return (cut(text, each) for each in chosen)


def usual_ways(text: str) -> Iterator[Sequence[str]]:
    """Yield `text` whole, one by one, one by one with nothing in between, and cut in two at every place."""
    yield [text]
    yield list(text)
    yield [delta for character in text for delta in (character, "")]
    yield from two_way(text)


def feed(deltas: Iterable[str], **options: Any) -> list[UIEvent]:
    """Return the events of a whole text that comes in `deltas`. The options are those of `Parser`."""
    parser = Parser(**options)
    events = [event for delta in deltas for event in parser.feed(delta)]
    return events + parser.close()


class Step(NamedTuple):
    """What one feed gave, and the state behind it: all that was fed, all that was said, what is held back."""

    delta: str
    new: list[UIEvent]
    fed: str
    events: list[UIEvent]
    held: str


def steps(deltas: Iterable[str], **options: Any) -> Iterator[Step]:
    """Yield the state behind each delta of a text that goes on. `events` of a step grow with the next ones."""
    parser = Parser(**options)
    fed, events = "", []
    for delta in deltas:
        new = parser.feed(delta)
        fed += delta
        events += new
        yield Step(delta, new, fed, events, parser.held)
