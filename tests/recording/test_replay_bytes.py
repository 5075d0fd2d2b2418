"""`ReplayBytes` and `recut`: every cut gives the same bytes, and a replay ends as the recorded stream did."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools.recording import ExchangeHead, Recording, ReplayBytes
from streamtools.recording.files import RecordingWriter, open_exchange
from streamtools.recording.format import Chunk, EndKind, StreamEnd
from streamtools.recording.playback import Cut, recut

HEAD = ExchangeHead(source="openai")
FRAMES = (b"data: a\n\n", b": b\r\n\r\n", b"data: c\r\r", b"data: d\r\ndata: e\n\r\n", b"data: [DONE]")
STREAM = b"".join(FRAMES)

streams = st.lists(st.binary(max_size=30) | st.sampled_from([b"\n", b"\r", b"\n\n", b"\r\n", b"data: x"]))


def recording(*chunks: bytes, end: EndKind = "end") -> Recording:
    """Return a recording of these chunks, one per millisecond."""
    last = StreamEnd(end, float(len(chunks)))
    return Recording(HEAD, tuple(Chunk(float(at), data) for at, data in enumerate(chunks)), last)


def pieces(stream: Sequence[bytes], cut: Cut) -> list[bytes]:
    """Return the chunks of `recut`."""
    return [data for _, data in recut(recording(*stream).chunks, cut)]


async def collect(replay: ReplayBytes) -> list[bytes]:
    """Return all bytes of a replay."""
    return [data async for data in replay]


@given(streams, st.sampled_from(["recorded", "byte", "frame", "whole", 7, (3, 1, 9), [0]]))
def test_every_cut_keeps_the_bytes(stream: list[bytes], cut: Cut) -> None:
    """No chunk is empty, and times never decrease."""
    chunks = list(recut(recording(*stream).chunks, cut))
    assert b"".join(stream) == b"".join(data for _, data in chunks)
    assert cut == "recorded" or all(data for _, data in chunks)
    assert chunks == sorted(chunks, key=lambda chunk: chunk.at)


@given(st.lists(st.integers(0, len(STREAM))))
def test_cuts_do_not_depend_on_the_recorded_chunks(places: list[int]) -> None:
    borders = [0, *sorted(places), len(STREAM)]
    stream = [STREAM[start:stop] for start, stop in itertools.pairwise(borders)]
    assert list(FRAMES) == pieces(stream, "frame")
    assert [bytes([byte]) for byte in STREAM] == pieces(stream, "byte")
    assert pieces(stream, "whole") == [STREAM]
    assert pieces([STREAM], 5) == pieces(stream, 5)


def test_the_kinds_of_cut() -> None:
    stream = [b"ab", b"", b"cdef"]
    assert pieces(stream, "recorded") == [b"ab", b"", b"cdef"]
    assert pieces(stream, "byte") == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert pieces(stream, "whole") == [b"abcdef"]
    assert pieces(stream, (4, 1, 0, 1)) == [b"a", b"bcd", b"ef"]
    assert pieces([], "whole") == []
    assert pieces([b"data: a\n", b"\ndata: b\n\n"], "frame") == [b"data: a\n\n", b"data: b\n\n"]


def test_a_chunk_has_the_time_of_its_last_byte() -> None:
    chunks = (Chunk(1, b"data"), Chunk(2, b": a\n"), Chunk(3, b"\ndata: b"))
    assert [Chunk(3, b"data: a\n\n"), Chunk(3, b"data: b")] == list(recut(chunks, "frame"))
    assert [Chunk(1, b"da"), Chunk(2, b"ta: "), Chunk(3, b"a\n\ndata: b")] == list(recut(chunks, [2, 6]))


def test_an_unknown_cut_is_refused() -> None:
    with pytest.raises(
        ValueError, match=re.escape("cut must be recorded, byte, frame, whole, a seed or offsets, got 'half'")
    ):
        ReplayBytes(recording(), cut="half")  # type: ignore[arg-type]  # callers may not check types


@pytest.mark.parametrize("cut", ["recorded", "byte", "frame", "whole", 3, (2,)])
async def test_a_replay_returns_the_bytes_once(cut: Cut) -> None:
    replay = ReplayBytes(recording(*FRAMES), cut=cut)
    assert pieces(FRAMES, cut) == await collect(replay)
    assert await collect(replay) == []


@pytest.mark.parametrize(
    ("end", "error"), [("reset", ConnectionResetError), ("timeout", TimeoutError), ("left", ConnectionResetError)]
)
@pytest.mark.parametrize("speed", [0, 1000])
async def test_a_replay_ends_as_recorded(end: EndKind, error: type[OSError], speed: float) -> None:
    """For a reader of either kind."""
    for blocking in (False, True):
        replay = ReplayBytes(recording(b"a", b"b", end=end), speed=speed)
        assert [next(replay) if blocking else await anext(replay) for _ in range(2)] == [b"a", b"b"]
        with pytest.raises(error):
            next(replay) if blocking else await anext(replay)
        assert (list(replay) if blocking else await collect(replay)) == []
    assert [b"a"] == list(ReplayBytes(recording(b"a")))


async def test_a_replay_can_be_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        writer = RecordingWriter(file, HEAD)
        writer.chunk(b"ab", 0)
        writer.end("end", 0)
    replay = ReplayBytes(open_exchange(path), cut="byte")
    first = await anext(replay)
    await replay.aclose()
    await replay.aclose()
    assert (first, await collect(replay)) == (b"a", [])


async def test_a_replay_keeps_the_recorded_times() -> None:
    chunks = (Chunk(10, b"a"), Chunk(30, b"b"), Chunk(20, b"c"))
    for speed in (1.0, 2.0):
        replay = ReplayBytes(Recording(HEAD, chunks, StreamEnd("end", 60)), speed=speed)
        start = anyio.current_time()
        arrivals = []
        async for data in replay:
            arrivals.append((data, anyio.current_time() - start))
        over = anyio.current_time() - start

        assert [data for data, _ in arrivals] == [b"a", b"b", b"c"]
        assert all(at + 0.001 >= due / 1000 / speed for (_, at), due in zip(arrivals, (10, 30, 30), strict=True))
        assert over + 0.001 >= 0.06 / speed


async def test_a_cancelled_read_can_be_repeated() -> None:
    replay = ReplayBytes(Recording(HEAD, (Chunk(20, b"a"),), StreamEnd("end", 40)), speed=1)
    got = []
    given_up = 0
    while not replay.closed:
        with anyio.move_on_after(0.001):
            got.append(await anext(replay, b""))
        given_up += 1
    assert got == [b"a", b""]
    assert given_up > 2


async def test_a_replay_without_waiting_can_be_cancelled() -> None:
    given = 0
    with anyio.CancelScope() as scope:
        async for data in ReplayBytes(recording(bytes(100_000)), cut="byte"):
            given += len(data)
            if given == 1000:
                scope.cancel()
    assert given < 10_000
    assert scope.cancelled_caught
