"""The options of `Playback`: recorded times, injected faults, timeouts, and invalid values."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from streamtools import coalesce, replay
from streamtools.errors import RecordingError
from streamtools.events import Done, Error
from streamtools.recording import Playback, PlaybackOptions, Recording, ReplayBytes
from streamtools.recording.format import Chunk, StreamEnd
from streamtools.recording.playback import PLAYBACK_OPTIONS, Cut, inject_fault, recut
from tests.recording.test_event_replay import ANSWER, write
from tests.recording.test_replay_bytes import FRAMES, STREAM, collect, recording

places = st.integers(0, len(STREAM))
cuts = st.sampled_from(["recorded", "byte", "frame", "whole", 7, (3, 9)])


def spoiled(cut: Cut = "recorded", **options: Any) -> bytes:
    """Return the bytes of a replay with a fault. Check that other cuts give the same bytes."""
    playback = Playback(**options)
    once = b"".join(data for _, data in inject_fault(recording(*FRAMES).chunks, playback, "it"))
    again = recut(inject_fault(recording(*FRAMES).chunks, playback, "it"), cut)
    assert once == b"".join(data for _, data in again)
    return once


@given(places, cuts, st.sampled_from(["cut_after", "reset_after", "stall_after"]))
def test_a_fault_ends_the_stream_at_its_offset(place: int, cut: Cut, fault: str) -> None:
    """Offsets do not depend on cuts."""
    assert STREAM[:place] == spoiled(cut, **{fault: place})


@pytest.mark.parametrize("fault", ["cut_after", "reset_after", "stall_after"])
def test_a_fault_that_is_not_reached_raises(fault: str) -> None:
    size = len(STREAM)
    message = f"^it: {fault}={size + 1} was not reached: the response has {size} bytes$"
    with pytest.raises(RecordingError, match=message):
        spoiled(**{fault: size + 1})
    assert STREAM == b"".join(ReplayBytes(recording(*FRAMES), cut=[0, 3, size]))
    with pytest.raises(RecordingError, match=rf": cut={size + 1} was not reached: the response has {size} bytes$"):
        list(ReplayBytes(recording(*FRAMES), cut=[size + 1, 3]))


WRONG: dict[str, tuple[PlaybackOptions, str]] = {
    "no speed": ({"speed": -1}, "speed must be a number of at least 0, got -1"),
    "no time": ({"read_timeout": -1}, "read_timeout must be a positive number or None, got -1"),
    "before the beginning": ({"cut_after": -1}, "cut_after must be an integer of at least 0 or None, got -1"),
    "no place": ({"stall_after": True}, "stall_after must be an integer of at least 0 or None, got True"),
    "a negative cut": ({"cut": [3, -1]}, "the offsets in cut must be integers of at least 0, got [3, -1]"),
    "two ends": (
        {"cut_after": 1, "stall_after": 1},
        "use only one of cut_after and stall_after: a response can have only one fault",
    ),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG)
def test_invalid_options_are_refused(options: PlaybackOptions, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ReplayBytes(recording(), **options)


def test_the_keywords_are_the_fields_of_playback() -> None:
    assert set(PlaybackOptions.__annotations__) == PLAYBACK_OPTIONS


class FakeTime:
    """Replaces the clocks of blocking and asynchronous readers. Sleeping advances it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 10.0
        for module, name in ((time, "monotonic"), (anyio, "current_time")):
            monkeypatch.setattr(module, name, lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.advance)
        monkeypatch.setattr(anyio, "sleep", self.sleep)

    def advance(self, seconds: float) -> None:
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({}, [0, 0, 0, 0]),
        ({"speed": 1}, [0, 1, 2, 3]),
        ({"speed": 2}, [0, 0.5, 1, 1.5]),
        ({"speed": 1, "cut": "whole"}, [2, 3]),
        ({"speed": 1, "reset_after": 3}, [0, 1]),
    ],
)
async def test_chunks_arrive_at_the_recorded_times(
    options: PlaybackOptions, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeTime(monkeypatch)
    chunks = (Chunk(0, b"a"), Chunk(1000, b"bc"), Chunk(2000, b"def"))
    for asynchronous in (True, False):
        clock.now = 10
        played = ReplayBytes(_at_3_seconds(*chunks), **options)
        seen: list[float] = []
        try:
            if asynchronous:
                async for _ in played:
                    seen.append(clock.now - 10)
            else:
                for _ in played:
                    seen.append(clock.now - 10)
            seen.append(clock.now - 10)
        except ConnectionResetError:
            assert "reset_after" in options
        assert times == seen


def _at_3_seconds(*chunks: Chunk) -> Recording:
    return replace(recording(), chunks=chunks, end=StreamEnd("end", 3000))


async def test_a_stall_ends_with_the_read_timeout() -> None:
    played = ReplayBytes(recording(*FRAMES), stall_after=3, read_timeout=0.01, cut="byte")
    assert [b"d", b"a", b"t"] == [await anext(played) for _ in range(3)]
    with pytest.raises(TimeoutError, match="the read timeout expired"):
        await anext(played)
    assert [] == await collect(played)


def test_a_blocking_reader_needs_a_timeout_for_a_stall() -> None:
    played = ReplayBytes(recording(*FRAMES), stall_after=3, read_timeout=0.01)
    assert b"dat" == next(played)
    with pytest.raises(TimeoutError, match="the read timeout expired"):
        next(played)
    assert [] == list(played)
    played = ReplayBytes(recording(*FRAMES), stall_after=0)
    with pytest.raises(RuntimeError, match="this read would wait forever"):
        next(played)


async def test_closing_or_cancelling_ends_a_stall() -> None:
    """A cancelled read can be repeated."""
    played = ReplayBytes(recording(*FRAMES), stall_after=0)
    with anyio.move_on_after(0.01) as scope:
        await anext(played)
    assert scope.cancelled_caught

    async with anyio.create_task_group() as group:

        async def read() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await anext(played)

        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await played.aclose()
    assert [] == await collect(played)


async def test_a_recorded_pause_may_exceed_the_read_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeTime(monkeypatch)
    played = ReplayBytes(_at_3_seconds(Chunk(0, b"a"), Chunk(1500, b"b")), speed=1, read_timeout=1.2)
    assert b"a" == await anext(played)
    with pytest.raises(TimeoutError):
        await anext(played)
    assert 11.2 == clock.now


async def test_a_stalled_replay_ends_with_the_events_of_a_reset(tmp_path: Path) -> None:
    """Only the message of the error differs."""
    path = write(tmp_path / "a.jsonl", ANSWER)
    events = await replay(path, stall_after=len(ANSWER[0]), read_timeout=0.001)
    reset = await replay(path, reset_after=len(ANSWER[0]))
    (silent,), (lost,) = ([each for each in some if isinstance(each, Error)] for some in (events, reset))
    assert silent.message.startswith("the provider sent no data for too long")
    assert coalesce(events) == coalesce(
        [structs.replace(each, message=silent.message) if each == lost else each for each in reset]
    )
    assert isinstance(events[-1], Done)
    assert "failed" == events[-1].reason


async def test_a_replay_raises_after_the_events_if_a_fault_is_not_reached(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cut_after=9999 was not reached: the response has"):
        await replay(write(tmp_path / "a.jsonl", ANSWER), cut_after=9999)
