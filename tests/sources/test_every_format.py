"""The laws of all adapters over the streams of their tests: cuts change nothing, ends are earned, nothing raises."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import sources
from streamtools.errors import Code
from streamtools.events import SourceError, SourceEvent, SourceWarning
from streamtools.machine import StreamMachine
from streamtools.sources.adapter import Frame
from streamtools.sources.wire_formats.latitude import Latitude
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
_IN_FRAMES = {
    name: stream._replace(frames=re.findall(rb"(?s).+?\n\n|.+\Z", b"".join(stream.frames)))
    if name.startswith("openai")
    else stream
    for name, stream in STREAMS.items()
} | {
    f"latitude, {name}": Stream(Latitude, [test_sources_latitude.native(each) for each in events], expected)
    for name, (events, expected) in test_sources_latitude.RUNS.items()
}
_pieces = st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 900)), max_size=6)


@together("stream", STREAMS.values(), ids=STREAMS)
def test_streams_give_the_same_events_at_every_cut(stream: Stream) -> None:
    """Each stream gives the same events however it is cut, and each event survives JSON."""
    assert_same_at_every_cut(stream.make, b"".join(stream.frames), stream.expected)


@together("stream", _IN_FRAMES.values(), ids=_IN_FRAMES)
def test_streams_that_break_off_are_interrupted(stream: Stream) -> None:
    """Only a terminator, a finish reason or an error ends a stream."""
    assert_ends_are_earned(stream.make, stream.frames)


@together("stream", STREAMS.values(), ids=STREAMS)
def test_a_frame_that_the_network_cuts_off_is_ignored(stream: Stream) -> None:
    """The error for the lost connection is enough. Without an error, after the finish reason, the warning stays."""
    whole = b"".join(stream.frames)
    for end in range(0, len(whole), 7):
        adapter = stream.make()
        adapter.feed(whole[:end])
        closing = adapter.close("reset")
        is_warned = any(getattr(each, "code", "") == Code.BAD_FRAME for each in closing)
        assert not (is_warned and any(isinstance(each, SourceError) for each in closing))


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


def _read_json(data: bytes) -> Any:
    """Return a JSON value, or None."""
    try:
        return json.loads(data)
    except ValueError:
        return None


def _values_of(frames: list[bytes]) -> list[Any]:
    """Return the JSON values of server-sent events or lines."""
    values = [_read_json(frame.partition(b"data: ")[2] or frame) for frame in frames]
    return [value for value in values if value is not None]


def _written(stream: Stream, values: list[Any]) -> list[bytes]:
    form = b"%b\n" if stream.make().name == "ollama" else b"data: %b\n\n"
    return [form % json.dumps(value).encode() for value in values]


_IN_JSON = {
    name: stream for name, stream in _IN_FRAMES.items() if not name.startswith("bedrock") and _values_of(stream.frames)
}


@together("stream", _IN_JSON.values(), ids=_IN_JSON)
def test_dicts_are_read_like_bytes(stream: Stream) -> None:
    """An object gives the events of its bytes."""
    values = _values_of(stream.frames)
    by_bytes, by_dicts = stream.make(), stream.make()
    for value, frame in zip(values, _written(stream, values), strict=True):
        if isinstance(value, dict):
            assert by_bytes.feed(frame) == by_dicts.take(value)
    assert by_bytes.close() == by_dicts.close()


_DEEP = "[" * 200 + "]" * 200
_UNREADABLE = {
    "cut": '{"type":"cut',
    "too deep to be decoded": '{"type":"x","a":' + _DEEP + "}",
    "too deep to be passed on": '{"type":"x","a":' + "[" * 90 + "]" * 90 + "}",
    "a number with too many digits": '{"type":"x","choices":[],"n":' + "1" * 5000 + "}",
}


@pytest.mark.parametrize("data", _UNREADABLE.values(), ids=_UNREADABLE)
@pytest.mark.parametrize("format", WHOLE)
def test_a_frame_that_cannot_be_decoded_is_a_warning(format: str, data: str) -> None:
    """The stream continues after it."""
    broken = (f"{data}\n" if format == "ollama" else f"data: {data}\n\n").encode()
    first, *rest = read(lambda: sources.adapter(format), broken, WHOLE[format])
    assert isinstance(first, SourceWarning)
    assert first.code is Code.BAD_FRAME
    assert rest == read(lambda: sources.adapter(format), WHOLE[format])


@pytest.mark.parametrize("format", ["anthropic", "responses"])
def test_an_error_that_cannot_be_decoded_is_reported(format: str) -> None:
    """The run fails even if the message of the error is lost."""
    data = b'event: error\ndata: {"type":"error","x":' + b"1" * 5000 + b"}\n\n"
    (only,) = read(lambda: sources.adapter(format), data, WHOLE[format])
    assert isinstance(only, SourceError)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a JSON value."""
    yield path
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from _places(member, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """Return a JSON value with another value at `path`."""
    if not path:
        return other
    copied = copy.copy(value)
    copied[path[0]] = _replaced(value[path[0]], path[1:], other)
    return copied


_DEEP_VALUE = json.loads("[" * 100 + "]" * 100)


@together("stream", _IN_JSON.values(), ids=_IN_JSON)
def test_values_of_wrong_types_never_raise(stream: Stream) -> None:
    """A deep value, or one of another type, gives events in any place that the machine reads and that JSON can hold."""
    values = _values_of(stream.frames)
    for place, path in enumerate(itertools.islice(_places(values), 60)):
        odd: Any = (None, 5, "a", [1], {"a": "b"}, [], "", True, _DEEP_VALUE)[place % 9]
        machine = StreamMachine()
        events = read(stream.make, *_written(stream, _replaced(values, path, odd) if path else values))
        told = [out for event in events for out in machine.feed(event)] + machine.close()
        assert all(event.to_json() for event in told)


_ODD_VALUES: list[Any] = [5, -1.5, True, None, "x", "", {}, {"a": 1}, [], [1], [{"type": "text", "text": 5}], [[]]]


@pytest.mark.deep
@pytest.mark.parametrize("name", STREAMS)
def test_a_value_of_another_type_raises_nothing(name: str) -> None:
    """At each place of each event."""
    stream = STREAMS[name]
    decoder = stream.make()._frames
    split = [each for chunk in stream.frames for each in decoder.feed(chunk)] + decoder.close()
    frames = [each for each in split if isinstance(each, Frame)]
    for index, frame in enumerate(frames):
        value = _read_json(frame.data)
        for path, other in itertools.product(_places(value), _ODD_VALUES):
            changed = Frame(json.dumps(_replaced(value, path, other)).encode(), frame.event)
            adapter = stream.make()
            adapter.feed_frames([*frames[:index], changed, *frames[index + 1 :]])
            adapter.close()
