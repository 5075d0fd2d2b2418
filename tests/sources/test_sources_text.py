"""Streams that need no decoding: strings and ready events, from anything that can be iterated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest

from streamtools import sources
from streamtools.errors import UnreadableSource
from streamtools.events import ChainCompleted, ProviderCompleted, SourceError, SourceEvent, TextDelta
from streamtools.sources.adapter import PlainText, ReadyEvents
from tests.sources.adapters import collect
from tests.sources.test_source_reading import lost

STOP = ProviderCompleted(finish_reason="stop")


async def asynchronously(items: Iterable[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def broken(*items: Any) -> Iterator[Any]:
    yield from items
    raise OSError("gone")


async def test_strings_are_text_and_their_end_is_a_stop() -> None:
    """One string is one delta; empty strings and None, which SDKs yield, are nothing."""
    pieces: list[Any] = ["a", "", None, "b"]
    assert [TextDelta("a"), TextDelta("b"), STOP] == await collect(sources.text(pieces))
    assert [TextDelta("a"), TextDelta("b"), STOP] == await collect(sources.text(asynchronously(pieces)))


async def test_one_string_is_one_delta() -> None:
    """A string is not taken apart into its characters."""
    assert [TextDelta("abc"), STOP] == await collect(sources.text("abc"))
    assert await collect(sources.text([])) == [STOP]


async def test_surrogate_pairs_that_were_cut_are_joined() -> None:
    """No delta ends in half a character, and none is lost at the end."""
    assert [TextDelta("😀"), TextDelta("\ufffd"), STOP] == await collect(sources.text(["\ud83d", "\ude00\ud83d"]))


async def test_an_iterator_that_raises_is_an_interruption() -> None:
    """Its exception is for the log, and there is no stop."""
    assert [TextDelta("a"), lost("OSError")] == await collect(sources.text(broken("a")))
    assert [TextDelta("\ufffd"), lost("OSError")] == await collect(sources.text(asynchronously(broken("\ud83d"))))


async def test_objects_other_than_strings_are_refused() -> None:
    """Bytes have no place among strings; the source ends with the exception."""
    source = sources.text([b"a"])  # type: ignore[list-item]
    with pytest.raises(UnreadableSource, match="expected a stream of strings, got an item of <class 'bytes'>"):
        await anext(source)
    assert await collect(source) == []


async def test_ready_events_are_unchanged() -> None:
    """An adapter of the caller's own needs nothing but its events."""
    ready: list[SourceEvent] = [TextDelta("a"), ProviderCompleted(ends_run=False), ChainCompleted()]
    assert ready == await collect(sources.events(ready))
    assert ready == await collect(sources.events(asynchronously(ready)))


@pytest.mark.parametrize("end", [ChainCompleted(), ProviderCompleted(), SourceError("no")])
async def test_ready_events_are_not_interrupted_after_their_end(end: SourceEvent) -> None:
    """After a terminator or an error it does not matter how the iterable ends; before, it does."""
    assert [end] == await collect(sources.events(broken(end)))
    turn = ProviderCompleted(ends_run=False)
    assert [turn, lost("OSError")] == await collect(sources.events(broken(turn)))


async def test_objects_that_are_not_ready_events_are_refused() -> None:
    """A dict is no event."""
    with pytest.raises(UnreadableSource, match="got an item of <class 'dict'>"):
        await collect(sources.events([{"type": "text-delta"}]))  # type: ignore[list-item]


def test_an_adapter_closes_once() -> None:
    """A second close has nothing to add."""
    for adapter, end in [(PlainText(), lost("reset")), (ReadyEvents(), lost("reset"))]:
        before = adapter.ended
        assert [end] == adapter.close("reset")
        assert (before, adapter.ended) == (False, True)
        assert adapter.close("reset") == []
