"""Reads streams with an adapter, and asserts the laws of all adapters."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from streamtools import events as kinds
from streamtools.errors import Code
from streamtools.sources import FrameAdapter, Source
from tests.support.cuts import cut, usual_cuts

Make = Callable[[], FrameAdapter]

_SHORT = 1500  # bytes of a stream that is cut at every place
_CUTS = 200


def texts(*pieces: str) -> list[kinds.SourceEvent]:
    """Return an event for each piece of text."""
    return [kinds.TextDelta(piece) for piece in pieces]


def thoughts(*pieces: str) -> list[kinds.SourceEvent]:
    """Return an event for each piece of reasoning."""
    return [kinds.ReasoningDelta(piece) for piece in pieces]


def forwarded(*values: Any) -> list[kinds.SourceEvent]:
    """Return an event for each value that is forwarded as it came."""
    return [kinds.SourceRaw(value) for value in values]


def started(key: str, id: str | None, name: str | None, *pieces: str) -> list[kinds.SourceEvent]:
    """Return the start of a native call, and the pieces of its arguments."""
    return [kinds.ToolCallStart(key, id, name), *(kinds.ToolCallDelta(key, piece) for piece in pieces)]


def called(key: str, id: str | None, name: str | None, *pieces: str, **more: Any) -> list[kinds.SourceEvent]:
    """Return the events of a native call from its start to its end, whose further fields are `more`."""
    return [*started(key, id, name, *pieces), kinds.NativeToolCall(name, key=key, id=id, **more)]


def read(make: Make, *chunks: bytes) -> list[kinds.SourceEvent]:
    """Return the events of a whole stream in `chunks`, without the ids of response and model."""
    return [
        replace(event, response_id=None, model=None) if isinstance(event, kinds.ProviderCompleted) else event
        for event in _events(make, chunks)
    ]


async def collect(source: Source) -> list[kinds.SourceEvent]:
    """Return the events of a source."""
    return [event async for batch in source for event in batch]


def response_identity(make: Make, *chunks: bytes) -> tuple[str | None, str | None]:
    """Return the id of the response and the model from the end of a stream."""
    (end,) = (event for event in _events(make, chunks) if isinstance(event, kinds.ProviderCompleted))
    return end.response_id, end.model


def _events(make: Make, chunks: Sequence[bytes]) -> list[kinds.SourceEvent]:
    adapter = make()
    return [event for chunk in chunks for event in adapter.feed(chunk)] + adapter.close()


def cuts(stream: bytes) -> Iterator[list[bytes]]:
    """Yield the stream whole, byte by byte, and as `usual_cuts` does, or in pieces at random if it is long."""
    if len(stream) <= _SHORT:
        yield from usual_cuts(stream)
        return
    yield [stream]
    yield [stream[at : at + 1] for at in range(len(stream))]
    chance = random.Random(len(stream))
    for _ in range(_CUTS):
        yield cut(stream, [chance.randrange(len(stream)) for _ in range(chance.randrange(1, 12))])


def assert_same_at_every_cut(make: Make, stream: bytes, expected: list[kinds.SourceEvent]) -> None:
    """Assert that a stream gives the same events however it is cut, and that each event survives JSON."""
    assert expected == read(make, stream)
    for chunks in cuts(stream):
        assert expected == read(make, *chunks), chunks
    for event in expected:
        assert type(event) is type(kinds.read_source_event(event.to_json()))


def assert_ends_are_earned(make: Make, frames: Sequence[bytes]) -> None:
    """Assert that a stream which breaks off between two events completes only if it says that it had ended."""
    for count in range(len(frames)):
        adapter = make()
        events = adapter.feed(b"".join(frames[:count]))
        ended = adapter.ended
        events += adapter.close("reset")
        errors = [event for event in events if isinstance(event, kinds.SourceError)]
        lost = kinds.SourceError("the connection to the provider was lost", Code.STREAM_INTERRUPTED, cause="reset")
        assert len(errors) <= 1
        if ended:
            assert lost not in errors, count
        elif errors != [lost]:  # Latitude reports the error of a turn when the run ends
            (error,) = errors
            assert adapter.name == "latitude" or error.cause == "unknown_format", count
        assert ended or not any(
            isinstance(event, kinds.ChainCompleted) or (isinstance(event, kinds.ProviderCompleted) and event.ends_run)
            for event in events
        )
        assert adapter.ended
        assert adapter.close("reset") == []
