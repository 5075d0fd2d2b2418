"""Plays the bytes of a recording with a chosen speed, other chunk boundaries, and an injected fault.

A provider may be slow, split its bytes anywhere, break the connection, or stop sending. A recording shows one case.
The options of this module create the other cases. The position of a fault is a byte offset in the recorded body,
so it does not depend on chunk boundaries. `replay`, `ReplayBytes` and `ReplayTransport` accept the options as keywords.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, TypedDict, Unpack

import anyio.lowlevel

from streamtools.errors import Checked, RecordingError, check_number
from streamtools.recording.files import OpenExchange
from streamtools.recording.format import Chunk, Recording, StreamEnd

Cut: TypeAlias = Literal["recorded", "byte", "frame", "whole"] | int | Sequence[int]
"""How to split the bytes into chunks.

`"recorded"` keeps the recorded chunks. `"byte"` makes chunks of one byte, `"frame"` one chunk for each server-sent
event, and `"whole"` one chunk of all bytes. An integer is the seed of a random generator, which makes chunks of 1 byte
to 4 KiB, half of them shorter than 64 bytes. A sequence holds the byte offsets of the cuts.
"""

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")  # a CR at the end does not match: an LF may follow


def recut(chunks: Iterable[Chunk], cut: Cut) -> Iterator[Chunk]:
    """Split the bytes of `chunks` at other offsets. The time of a new chunk is the time at which its last byte arrived.

    Only one new chunk and one recorded chunk are in memory.
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
        case str() | float():  # type: ignore[unreachable] # callers may not check types
            raise ValueError(f"cut must be recorded, byte, frame, whole, a seed or offsets, got {cut!r}")
        case int():  # log-uniform sizes: small chunks find more faults, large chunks save time
            generator = random.Random(cut)  # noqa: S311 - not for security
            return _by_size(chunks, (int(4096 ** generator.random()) for _ in itertools.count()))
    if not all(isinstance(offset, int) and offset >= 0 for offset in cut):
        raise ValueError(f"the offsets in cut must be integers of at least 0, got {cut!r}")
    offsets = [0, *sorted({offset for offset in cut if offset > 0})]
    sizes = (stop - start for start, stop in itertools.pairwise(offsets))
    return _by_size(chunks, itertools.chain(sizes, itertools.repeat(math.inf)))


def _by_size(chunks: Iterable[Chunk], sizes: Iterator[float]) -> Iterator[Chunk]:
    """Yield chunks of these sizes, then the remaining bytes. `sizes` must be endless."""
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
        searched = max(0, len(rest) - 4)  # `rest` may end with the beginning of a blank line
        rest += data
        start = 0
        while found := _BLANK_LINE.search(rest, searched):
            stop = searched = found.end()
            yield Chunk(at, bytes(rest[start:stop]))
            start = stop
        del rest[:start]
    if rest:
        yield Chunk(at, bytes(rest))


class PlaybackOptions(TypedDict, total=False):
    """The fields of `Playback` as keyword arguments."""

    speed: float
    cut: Cut
    cut_after: int | None
    reset_after: int | None
    stall_after: int | None
    read_timeout: float | None


@dataclass(frozen=True, kw_only=True)
class Playback(Checked):
    """Options for playing a recording.

    Raises ValueError for an invalid value, and for more than one of `cut_after`, `reset_after` and `stall_after`.

    If the body is shorter than the offset of the fault, reading its end raises RecordingError. Without this error, a
    test could pass although its fault was never injected. Without a fault, the same applies to the offsets in `cut`.
    """

    speed: float = 0
    """The speed: 0 plays without waiting, 1 with the recorded timing, 2 twice as fast."""
    cut: Cut = "recorded"
    """How the bytes are split into chunks, see `Cut`."""
    cut_after: int | None = None
    """The number of bytes after which the response ends, as if it were complete. None means that it is not cut."""
    reset_after: int | None = None
    """The number of bytes after which the connection breaks. None means that it is not broken."""
    stall_after: int | None = None
    """The number of bytes after which no more bytes arrive. The reader then waits until its timeout expires, or until
    it is cancelled or closed. None means no stall."""
    read_timeout: float | None = None
    """The time in seconds after which a read without data raises TimeoutError. None means no limit, but
    `ReplayTransport` then uses the timeout of the request."""

    def __post_init__(self) -> None:
        recut((), self.cut)  # raises ValueError for a value that is not a `Cut`
        check_number("speed", self.speed, 0)
        check_number("read_timeout", self.read_timeout, optional=True)
        for name in _FAULTS:
            check_number(name, getattr(self, name), 0, whole=True, optional=True)
        faults = [name for name in _FAULTS if getattr(self, name) is not None]
        if len(faults) > 1:
            raise ValueError(f"use only one of {' and '.join(faults)}: a response can have only one fault")

    @property
    def fault(self) -> tuple[str, int] | None:
        """The name of the option that injects a fault, and the byte offset of the fault. None without a fault."""
        return next(((name, offset) for name in _FAULTS if (offset := getattr(self, name)) is not None), None)


_FAULTS = ("cut_after", "reset_after", "stall_after")
PLAYBACK_OPTIONS = frozenset(field.name for field in fields(Playback))


def inject_fault(chunks: Iterable[Chunk], playback: Playback, name: str) -> Iterator[Chunk]:
    """Yield the chunks up to the injected fault of `playback`. Later chunks are not read.

    Raises RecordingError if the chunks are shorter than the offset of the fault, or without a fault, than an offset in
    `cut`. `name` is the name of the recording for the message.
    """
    last_cut = 0 if isinstance(playback.cut, str | int) else max(playback.cut, default=0)
    fault, offset = playback.fault or ("cut", last_cut)
    count = 0
    for at, data in chunks if offset or not playback.fault else ():
        if playback.fault and count + len(data) >= offset:
            yield Chunk(at, data[: offset - count])
            return
        count += len(data)
        yield Chunk(at, data)
    if count < offset:
        raise RecordingError(unreached_fault(name, fault, offset, count))


def unreached_fault(name: str, fault: str, offset: int, size: int) -> str:
    """Return the error message for a fault whose `offset` is after the end of the response."""
    return f"{name}: {fault}={offset} was not reached: the response has {size:,} bytes"


# Number of bytes between two checkpoints. A checkpoint allows cancellation. A checkpoint after each chunk would be slow
# if the chunks have one byte.
_CHECKPOINT_BYTES = 4096


class ReplayBytes(AsyncIterator[bytes], Iterator[bytes]):
    """An iterator over the bytes of a recorded response, asynchronous or blocking.

    `Playback` describes the options. The recorded times start at the first read. Cancelling a read loses no bytes. An
    `OpenExchange` is read line by line. It is closed after the last chunk or by `close`.

    After the last chunk, a read raises an exception for these ends:

    - ConnectionResetError for a recorded or injected reset.
    - TimeoutError for a recorded timeout.
    - ConnectionResetError if the recorded reader closed the response.

    At any position, a read that waits for more than `read_timeout` seconds raises TimeoutError. A blocking read that
    would wait forever raises RuntimeError.
    """

    _waits_after_reader_left = False  # if True, a read waits where the recorded reader closed the response

    def __init__(self, recording: Recording | OpenExchange, **options: Unpack[PlaybackOptions]) -> None:
        self.playback = playback = Playback(**options)
        self.recording = recording
        self.closed = False
        self.error: RecordingError | None = None
        """The error that ended the replay: the recording is invalid, or the offset of the fault was not reached."""
        chunks = recording.chunks if isinstance(recording, Recording) else recording
        self._pieces = recut(inject_fault(chunks, playback, recording.name), playback.cut)
        self._piece: Chunk | None = None
        self._read_bytes = 0
        self._since_checkpoint = _CHECKPOINT_BYTES
        self._started_at: float | None = None
        self._closed_event: anyio.Event | None = None  # `close` sets it to end a read that waits forever

    async def __anext__(self) -> bytes:
        if self.closed:
            raise StopAsyncIteration
        piece = self._peek()
        delay, times_out = self._delay(piece, anyio.current_time)
        if delay == math.inf:
            self._closed_event = anyio.Event()
            await self._closed_event.wait()
            raise anyio.ClosedResourceError
        if delay > 0:
            await anyio.sleep(delay)
        if self._since_checkpoint >= _CHECKPOINT_BYTES and piece is not None and not times_out:
            await anyio.lowlevel.checkpoint()
            self._since_checkpoint = 0
        if (data := self._take(piece, times_out)) is None:
            raise StopAsyncIteration
        self._since_checkpoint += len(data)
        return data

    def __next__(self) -> bytes:
        if self.closed:
            raise StopIteration
        piece = self._peek()
        delay, times_out = self._delay(piece, time.monotonic)
        if delay == math.inf:
            raise RuntimeError("no more bytes arrive, and there is no read timeout: this read would wait forever")
        if delay > 0:
            time.sleep(delay)
        if (data := self._take(piece, times_out)) is None:
            raise StopIteration
        return data

    def close(self) -> None:
        """Stop, and close the file. Can be repeated."""
        self.closed = True
        if self._closed_event is not None:
            self._closed_event.set()
        if isinstance(self.recording, OpenExchange):
            self.recording.close()

    async def aclose(self) -> None:
        """Stop, and close the file. Can be repeated."""
        self.close()

    def missed(self) -> tuple[str, int] | None:
        """Return the name and the byte offset of an injected fault that was not reached. Returns None otherwise."""
        fault = self.playback.fault
        return None if fault is None or self._read_bytes >= fault[1] else fault

    def _peek(self) -> Chunk | None:
        """Return the next chunk without removing it. Returns None at the end."""
        if self._piece is None:
            try:
                self._piece = next(self._pieces, None)
            except RecordingError as error:
                self.error = error
                self.close()
                raise
        return self._piece

    @property
    def _ends_silent(self) -> bool:
        """True if the reader must wait forever after the last chunk."""
        if self.playback.fault is not None:
            return self.playback.stall_after is not None
        end = self.recording.end
        return self._waits_after_reader_left and end is not None and end.kind == "left"

    def _delay(self, piece: Chunk | None, clock: Callable[[], float]) -> tuple[float, bool]:
        """Return the seconds to wait for a chunk, and True if the read timeout expires first.

        `piece` is None after the last chunk.
        """
        playback, end, delay = self.playback, self.recording.end, 0.0
        if piece is None and self._ends_silent:
            delay = math.inf
        elif playback.speed:
            if self._started_at is None:
                self._started_at = clock()
            at = piece.at if piece is not None else end.at if end and playback.fault is None else 0
            delay = self._started_at + at / 1000 / playback.speed - clock()
        timeout = math.inf if playback.read_timeout is None else playback.read_timeout
        return min(delay, timeout), delay > timeout

    def _take(self, piece: Chunk | None, times_out: bool) -> bytes | None:
        """Remove the chunk and return its bytes. Returns None at a normal end, and raises at any other end."""
        if piece is not None and not times_out:
            self._piece = None
            self._read_bytes += len(piece.data)
            return piece.data
        self.close()
        if times_out:
            raise TimeoutError("the read timeout expired")
        if self.playback.reset_after is not None:
            raise ConnectionResetError("the connection was reset, as injected")
        if self.playback.cut_after is not None:
            return None
        match self.recording.end:
            case StreamEnd("reset"):
                raise ConnectionResetError("the connection was reset, as recorded")
            case StreamEnd("timeout"):
                raise TimeoutError("no more bytes arrived, as recorded")
            case StreamEnd("left"):
                raise ConnectionResetError("the recorded reader left here")
        return None
