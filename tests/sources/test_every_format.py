"""The laws of all adapters over the streams of their tests: cuts change nothing, ends are earned, nothing raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import sources
from streamtools.events import SourceEvent
from tests.sources import (
    test_sources_ai_sdk,
    test_sources_anthropic,
    test_sources_bedrock,
    test_sources_cohere,
    test_sources_gemini,
    test_sources_latitude,
    test_sources_ollama,
    test_sources_openai,
    test_sources_responses,
)
from tests.sources.adapters import Make, assert_ends_are_earned, assert_same_at_every_cut, read
from tests.support.cases import together
from tests.support.cuts import cut, places


class Stream(NamedTuple):
    """A stream in frames, and its events."""

    make: Make
    frames: list[bytes]
    expected: list[SourceEvent]


def _streams() -> Iterator[tuple[str, Stream]]:
    tables: dict[str, dict[str, Any]] = {
        "ai_sdk": test_sources_ai_sdk.STREAMS,
        "anthropic": test_sources_anthropic.STREAMS,
        "bedrock": test_sources_bedrock.STREAMS,
        "cohere": test_sources_cohere.STREAMS,
        "gemini": test_sources_gemini.STREAMS,
        "ollama": test_sources_ollama.STREAMS,
        "openai": test_sources_openai.STREAMS,
        "responses": test_sources_responses.STREAMS,
    }
    for format, table in tables.items():
        for name, (written, expected) in table.items():
            frames = [written] if isinstance(written, bytes) else written
            yield f"{format}, {name}", Stream(lambda format=format: sources.adapter(format), frames, expected)  # type: ignore[misc]


STREAMS = dict(_streams())
WHOLE = {
    format: b"".join(b"".join(stream.frames) for name, stream in STREAMS.items() if name.startswith(f"{format},"))
    for format in ("ai_sdk", "anthropic", "cohere", "gemini", "ollama", "openai", "responses")
} | {
    "latitude": b"".join(
        envelope(*events)
        for envelope in test_sources_latitude.ENVELOPES
        for events, _ in test_sources_latitude.RUNS.values()
    )
}
_IN_FRAMES = {name: stream for name, stream in STREAMS.items() if not name.startswith("openai")}
_pieces = st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 900)), max_size=6)


@together("stream", STREAMS.values(), ids=STREAMS)
def test_streams_at_every_cut(stream: Stream) -> None:
    """Each stream gives the same events however it is cut, and each event survives JSON."""
    assert_same_at_every_cut(stream.make, b"".join(stream.frames), stream.expected)


@together("stream", _IN_FRAMES.values(), ids=_IN_FRAMES)
def test_streams_that_break_off(stream: Stream) -> None:
    """Only a terminator, a finish reason or an error ends a stream."""
    assert_ends_are_earned(stream.make, stream.frames)


@pytest.mark.parametrize("format", WHOLE)
@given(_pieces, places, st.binary(max_size=8))
def test_random_pieces_never_raise(format: str, pieces: list[tuple[int, int]], where: list[int], noise: bytes) -> None:
    """Any bytes give events, and the same events at any cut."""
    whole = WHOLE[format]
    begins = ((start % len(whole), length) for start, length in pieces)
    stream = noise.join(whole[start : start + length] for start, length in begins)

    def make() -> sources.FrameAdapter:
        return sources.adapter(format)

    assert read(make, stream) == read(make, *cut(stream, where))
