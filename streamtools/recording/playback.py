"""Plays the bytes of a recording: at a speed, cut in a way, and with a fault if one is asked for.

Real providers are slow, cut their bytes anywhere, break off, fall silent and sometimes send rubbish. A recording holds
what one of them did once; what it did not do is put in here, at a place that is given in bytes of the body as recorded,
so that it is the same place however the stream is cut. `replay`, `ReplayBytes` and `ReplayTransport` take these options
alike, as keywords.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self, TypeAlias, TypedDict, Unpack

import anyio.lowlevel

from streamtools.errors import RecordingError
from streamtools.recording.file_reader import OpenRecording
from streamtools.recording.format import Chunk, End, Recording

Cut: TypeAlias = Literal["recorded", "byte", "frame", "whole"] | int | random.Random | Sequence[int]
"""How to cut: as recorded, byte by byte, after each frame of server-sent events, not at all, at random with this seed
or generator (pieces of 1 byte to 4 KiB, half of them below 64 bytes), or at these offsets from the start."""

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")  # a CR at the very end may still become a CRLF


def recut(chunks: Iterable[Chunk], cut: Cut) -> Iterator[Chunk]:
    """Return the same bytes, in the same order, in other pieces, each with the time at which its last byte was there.

    Memory holds one piece, and the chunk that it is cut from.
    """
    match cut:
        case "recorded":
            return iter(chunks)
        case "byte":
            return _by_size(chunks, itertools.repeat(1))
        case "frame":
            return _by_frame(chunks)
        case "whole":
            cut = ()
        case str():  # type: ignore[unreachable] # of those who check no types
            raise ValueError(f"no way of cutting is named {cut!r}; there are recorded, byte, frame and whole")
        case int():
            return recut(chunks, random.Random(cut))  # noqa: S311 - it cuts, it protects nothing
        case random.Random():  # evenly on a logarithmic scale: small pieces find more faults, large ones save time
            return _by_size(chunks, (int(4096 ** cut.random()) for _ in itertools.count()))
    offsets = [0, *sorted({offset for offset in cut if offset > 0})]
    sizes = (stop - start for start, stop in itertools.pairwise(offsets))
    return _by_size(chunks, itertools.chain(sizes, itertools.repeat(math.inf)))


def _by_size(chunks: Iterable[Chunk], sizes: Iterator[float]) -> Iterator[Chunk]:
    """Yield pieces of these sizes, an endless series, and what is left at the end."""
    rest, at, size = bytearray(), 0.0, next(sizes)
    for at, data in chunks:
        rest += data
        start = 0
        while (stop := start + size) <= len(rest):
            yield Chunk(at, bytes(rest[start : int(stop)]))
            start, size = int(stop), next(sizes)
        del rest[:start]
    if rest:
        yield Chunk(at, bytes(rest))


def _by_frame(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    rest, at = bytearray(), 0.0
    for at, data in chunks:
        searched = max(0, len(rest) - 4)  # a blank line, seen but for its last byte
        rest += data
        start = 0
        while found := _BLANK_LINE.search(rest, searched):
            stop = searched = found.end()
            yield Chunk(at, bytes(rest[start:stop]))
            start = stop
        del rest[:start]
    if rest:
        yield Chunk(at, bytes(rest))


GARBAGE = b'\xff\x00"}\x1b{\xc3\x28\xfe'
"""What `garbage_at` inserts: bytes that are no UTF-8, a null byte, an escape, and a quote, so that no JSON survives."""


class VirtualClock:
    """A clock without waiting: a replay sets it forward to the time of each chunk.

    Called, it returns its time in seconds. Only replays that are given this clock use it; tools, their time limits and
    the limits of a run use the time of the event loop. While a reader handles a chunk, the clock shows the recorded
    time of that chunk, because other tasks run before it moves on.
    """

    def __init__(self, start: float = 0.0) -> None:
        self.now = start

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Set the clock forward; it does not go back."""
        self.now += max(0.0, seconds)


class PlaybackOptions(TypedDict, total=False):
    """The fields of `Playback`, as keywords."""

    speed: float
    cut: Cut
    clock: VirtualClock | None
    drip: float | None
    cut_after: int | None
    reset_after: int | None
    stall_after: int | None
    garbage_at: int | None
    garbage: bytes
    read_timeout: float | None


@dataclass(frozen=True, kw_only=True)
class Playback:
    """How to play. Raises ValueError for a value that is not allowed, and for two faults that end the same stream.

    A place that the body does not reach raises `RecordingError` at its end: a fault that never came would let a
    test pass for the wrong reason.
    """

    speed: float = 0
    """0 for no waiting, 1 for the recorded timing, 2 for twice as fast."""
    cut: Cut = "recorded"
    """How the bytes are cut, see `recut`."""
    clock: VirtualClock | None = None
    """Is set forward by the recorded times (at `speed`, where that is not 0) instead of waiting for them."""
    drip: float | None = None
    """Bytes a second, at most: a piece is there when its last byte is. With `cut="byte"` they come one by one."""
    cut_after: int | None = None
    """Bytes behind which the response ends, as if it were complete."""
    reset_after: int | None = None
    """Bytes behind which the connection breaks."""
    stall_after: int | None = None
    """Bytes behind which nothing more comes, until the reader's time is up, or it is cancelled or closed."""
    garbage_at: int | None = None
    """Bytes behind which `garbage` is inserted."""
    garbage: bytes = GARBAGE
    read_timeout: float | None = None
    """Seconds that a reader waits for the next bytes, then TimeoutError; `ReplayTransport` takes the client's."""

    def __post_init__(self) -> None:
        if not 0 <= self.speed < math.inf:
            raise ValueError(f"speed is 0 or a factor, and {self.speed!r} is neither")
        for name in ("drip", "read_timeout"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is a number above 0, not {value!r}")
        for name in (*_ENDINGS, "garbage_at"):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and value >= 0):
                raise ValueError(f"{name} is a number of bytes from 0, not {value!r}")
        given = [name for name in _ENDINGS if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"a stream ends once: {' or '.join(given)}, not both")
        if given and self.garbage_at is not None and self.garbage_at > getattr(self, given[0]):
            raise ValueError(f"garbage_at is behind {given[0]}, where nothing comes")

    @property
    def ending(self) -> tuple[str, int] | None:
        """The fault that ends the stream, and behind how many bytes."""
        return next(((name, place) for name in _ENDINGS if (place := getattr(self, name)) is not None), None)

    @property
    def faulty(self) -> bool:
        """Whether there is a fault."""
        return self.ending is not None or self.garbage_at is not None

    @property
    def inserted(self) -> int:
        """How many bytes of garbage there are."""
        return 0 if self.garbage_at is None else len(self.garbage)


_ENDINGS = ("cut_after", "reset_after", "stall_after")
PLAYBACK = frozenset(field.name for field in fields(Playback))
"""The names of the options."""


def spoil(chunks: Iterable[Chunk], playback: Playback, name: str) -> Iterator[Chunk]:
    """Yield the chunks with the garbage of `playback`, up to the place where its fault ends the stream.

    Nothing is read behind that place. Raises `RecordingError`, which calls the recording `name`, if it is not reached.
    """
    if playback.garbage_at is not None:
        chunks = _insert(chunks, playback.garbage_at, playback.garbage, name)
    if playback.ending is not None:
        chunks = _stop(chunks, *playback.ending, playback.inserted, name)
    return iter(chunks)


def _insert(chunks: Iterable[Chunk], place: int, garbage: bytes, name: str) -> Iterator[Chunk]:
    """Yield the chunks, with `garbage` before the byte at `place`, or behind the last one."""
    count, at = 0, 0.0
    for at, data in chunks:
        split, count = place - count, count + len(data)
        yield Chunk(at, data[:split] + garbage + data[split:] if 0 <= split < len(data) else data)
    if count < place:
        raise RecordingError(unreached(name, "garbage_at", place, count))
    if count == place:
        yield Chunk(at, garbage)


def _stop(chunks: Iterable[Chunk], fault: str, place: int, inserted: int, name: str) -> Iterator[Chunk]:
    """Yield `place` bytes, and the `inserted` ones before them."""
    count, limit = 0, place + inserted
    if not limit:
        return
    for at, data in chunks:
        if count + len(data) >= limit:
            yield Chunk(at, data[: limit - count])
            return
        count += len(data)
        yield Chunk(at, data)
    raise RecordingError(unreached(name, fault, place, count - inserted))


def unreached(name: str, fault: str, place: int, size: int) -> str:
    """Return the message for a fault whose place is behind the end of a response."""
    return f"{name}: {fault}={place} was not reached: the response has {size:,} bytes"


_YIELD_EVERY = 4096  # bytes between two checkpoints: often enough to be cancelled, and fast byte by byte
_TURNS = 4
"""Checkpoints before a virtual clock moves on. A task that waits for the bytes needs two, because trio runs ready tasks
in random order; a task that waits for that one needs two more."""


class ReplayBytes:
    """The response in a recording, as an iterator of bytes: asynchronous, or blocking for those who use `for`.

    The options are those of `Playback`. Times count from the first read, so that the time that the reader takes is not
    added to them. A `reset`, recorded or put in, raises ConnectionResetError at its place, as does a recording that
    breaks off; `timeout` raises TimeoutError, and so does a silence of more than `read_timeout` seconds. A cancelled
    read loses nothing. Where the recorded reader left, it is not known what else would have come: that is a `reset`, or
    with `waits`, for readers that may leave too, a silence. An `OpenRecording` is read on the way, line by line, and is
    closed at the end or by `close`. A blocking reader that would wait for ever gets a RuntimeError.
    """

    def __init__(
        self, recording: Recording | OpenRecording, *, waits: bool = False, **options: Unpack[PlaybackOptions]
    ) -> None:
        self.playback = playback = Playback(**options)
        self.recording = recording
        self.closed = False
        self._waits = waits
        chunks: Iterator[Chunk] = iter(recording.chunks) if isinstance(recording, Recording) else recording
        self._pieces = recut(spoil(chunks, playback, recording.name), playback.cut)
        self._piece: Chunk | None = None
        self._given = 0  # bytes
        self._since_yield = _YIELD_EVERY
        waited_for = (playback.clock, playback.drip, playback.stall_after)
        self._timed = playback.speed > 0 or any(each is not None for each in waited_for)
        self._begun: float | None = None  # when the clock that counts was at the beginning
        self._left: anyio.Event | None = None  # set on closing, for a read that waits for ever

    def __iter__(self) -> Self:
        return self

    __aiter__ = __iter__

    async def __anext__(self) -> bytes:
        if self.closed:
            raise StopAsyncIteration
        piece, late = self._look(), False
        if self._timed:
            for _ in range(0 if self.playback.clock is None else _TURNS):
                await anyio.lowlevel.checkpoint()
            delay, late = self._delay(piece, anyio.current_time())
            if delay == math.inf:
                self._left = anyio.Event()
                await self._left.wait()
                raise anyio.ClosedResourceError
            if delay > 0:
                await anyio.sleep(delay)
        if self._since_yield >= _YIELD_EVERY and piece is not None and not late:
            await anyio.lowlevel.checkpoint()
            self._since_yield = 0
        if (data := self._take(piece, late)) is None:
            raise StopAsyncIteration
        self._since_yield += len(data)
        return data

    def __next__(self) -> bytes:
        if self.closed:
            raise StopIteration
        piece, late = self._look(), False
        if self._timed:
            delay, late = self._delay(piece, time.monotonic())
            if delay == math.inf:
                raise RuntimeError("nothing more comes, and this reader has no read timeout: it would wait for ever")
            if delay > 0:
                time.sleep(delay)
        if (data := self._take(piece, late)) is None:
            raise StopIteration
        return data

    def begin(self, now: float) -> None:
        """Count times from `now`, a time of the event loop or of `time.monotonic`, and not from the first read."""
        if self._begun is None:
            self._begun = now if self.playback.clock is None else self.playback.clock()

    def close(self) -> None:
        """Give nothing more, and close the file if there is one. May be repeated."""
        self.closed = True
        if self._left is not None:
            self._left.set()
        if isinstance(self.recording, OpenRecording):
            self.recording.close()

    async def aclose(self) -> None:
        """Do as `close` does."""
        self.close()

    def missed(self) -> tuple[str, int] | None:
        """Return the fault that the reader has not come to, and its place; None if there is none, or it has come."""
        playback = self.playback
        if playback.garbage_at is not None and self._given <= playback.garbage_at:
            return "garbage_at", playback.garbage_at
        ending = playback.ending
        return None if ending is None or self._given >= ending[1] + playback.inserted else ending

    def _look(self) -> Chunk | None:
        """Return the next piece, which stays the next one until it is taken; None at the end."""
        if self._piece is None:
            try:
                self._piece = next(self._pieces, None)
            except RecordingError:
                self.close()
                raise
            if self._piece is None and self._silent:
                self._timed = True
        return self._piece

    @property
    def _silent(self) -> bool:
        """Whether nothing comes behind the last piece, and no end."""
        if self.playback.ending is not None:
            return self.playback.stall_after is not None
        end = self.recording.end
        return self._waits and end is not None and end.kind == "left"

    def _delay(self, piece: Chunk | None, now: float) -> tuple[float, bool]:
        """Return the seconds to wait from `now`, 0 where a virtual clock went on instead, and if time is up then."""
        clock, timeout = self.playback.clock, self.playback.read_timeout
        self.begin(now)
        assert self._begun is not None
        delay = self._begun + self._due(piece) - (now if clock is None else clock())
        wait = delay if timeout is None else min(delay, timeout)
        if clock is not None and wait < math.inf:
            clock.advance(wait)
            return 0, wait < delay
        return wait, wait < delay

    def _due(self, piece: Chunk | None) -> float:
        """Return when the piece is there, or the end: seconds from the beginning."""
        if piece is None and self._silent:
            return math.inf
        playback, end = self.playback, self.recording.end
        at, data = piece or (end.at if end and playback.ending is None else 0, b"")
        speed = playback.speed or (0 if playback.clock is None else 1)
        recorded = at / 1000 / speed if speed else 0.0
        return recorded if playback.drip is None else max(recorded, (self._given + len(data)) / playback.drip)

    def _take(self, piece: Chunk | None, late: bool) -> bytes | None:
        """Return the bytes of the piece, None at the end of the response; raise what else its end is."""
        if piece is not None and not late:
            self._piece = None
            self._given += len(piece.data)
            return piece.data
        self.close()
        if late:
            raise TimeoutError("nothing came in time")
        if self.playback.reset_after is not None:
            raise ConnectionResetError("the connection was reset, as it was asked to be")
        if self.playback.cut_after is not None:
            return None
        match self.recording.end:
            case None:
                raise ConnectionResetError(f"{self.recording.name} breaks off")
            case End("reset"):
                raise ConnectionResetError("the connection was reset, as recorded")
            case End("timeout"):
                raise TimeoutError("nothing more came, as recorded")
            case End("left"):
                raise ConnectionResetError("the recorded reader left here")
        return None
