"""Give the bytes of a recording once more, as the network gave them, or otherwise: see `playback`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Self, Unpack

import anyio.lowlevel

from streamtools.errors import RecordingError
from streamtools.recording.cutting import recut
from streamtools.recording.faults import spoil
from streamtools.recording.format import Chunk, Recording
from streamtools.recording.pace import Pace
from streamtools.recording.playback import Playback, PlaybackOptions
from streamtools.recording.reading import OpenRecording

_STRETCH = 4096
"""Bytes after which a replay without waiting lets other tasks run: often enough to be cancelled, seldom enough to be
fast when it is cut byte by byte."""


class ReplayBytes:
    """The response in a recording, as an iterator of bytes: asynchronous, or blocking for those who use `for`.

    The options are those of `Playback`. Times count from the first read, so that the time that the reader takes is not
    added to them. A `reset`, recorded or put in, raises ConnectionResetError at its place, as does a recording that
    breaks off; `timeout` raises TimeoutError, and so does a silence of more than `read_timeout` seconds. A cancelled
    read loses nothing. Where the recorded reader left, it is not known what else would have come: that is a `reset`, or
    with `waits`, for readers that may leave too, a silence. An `OpenRecording` is read on the way, line by line, and is
    closed at the end or by `close`.
    """

    def __init__(
        self, recording: Recording | OpenRecording, *, waits: bool = False, **options: Unpack[PlaybackOptions]
    ) -> None:
        self._playback = playback = Playback(**options)
        self.recording = recording
        self.closed = False
        self._waits = waits
        chunks: Iterator[Chunk] = iter(recording.chunks) if isinstance(recording, Recording) else recording
        self._pieces = recut(spoil(chunks, playback, recording.name), playback.cut)
        self._piece: Chunk | None = None
        self._given = 0  # bytes
        self._stretch = _STRETCH
        self._pace = Pace(playback) if playback.timed or playback.stall_after is not None else None

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self.closed:
            raise StopAsyncIteration
        piece = self._look()
        if self._pace is not None:
            try:
                await self._pace.wait(self._due(piece))
            except TimeoutError:
                self.close()
                raise
        if piece is None:
            self._finish()
            raise StopAsyncIteration
        if self._stretch >= _STRETCH:
            await anyio.lowlevel.checkpoint()
            self._stretch = 0
        self._stretch += len(piece.data)
        return self._take(piece)

    def __next__(self) -> bytes:
        if self.closed:
            raise StopIteration
        piece = self._look()
        if self._pace is not None:
            try:
                self._pace.wait_blocking(self._due(piece))
            except TimeoutError:
                self.close()
                raise
        if piece is None:
            self._finish()
            raise StopIteration
        return self._take(piece)

    def begin(self, now: float) -> None:
        """Count times from `now`, a time of the event loop or of `time.monotonic`, and not from the first read."""
        if self._pace is not None:
            self._pace.begin(now)

    def close(self) -> None:
        """Give nothing more, and close the file if there is one. May be repeated."""
        self.closed = True
        if self._pace is not None:
            self._pace.close()
        if isinstance(self.recording, OpenRecording):
            self.recording.close()

    async def aclose(self) -> None:
        """Do as `close` does."""
        self.close()

    def missed(self) -> tuple[str, int] | None:
        """Return the fault that the reader has not come to, and its place; None if there is none, or it has come."""
        playback = self._playback
        if playback.garbage_at is not None and self._given <= playback.garbage_at:
            return "garbage_at", playback.garbage_at
        inserted = 0 if playback.garbage_at is None else len(playback.garbage)
        if playback.ending is None or self._given >= playback.ending[1] + inserted:
            return None
        return playback.ending

    def _look(self) -> Chunk | None:
        """Return the next piece, which stays the next one until it is taken; None at the end."""
        if self._piece is None:
            try:
                self._piece = next(self._pieces, None)
            except RecordingError:
                self.close()
                raise
            if self._piece is None and self._pace is None and self._silent:
                self._pace = Pace(self._playback)
        return self._piece

    @property
    def _silent(self) -> bool:
        """Whether nothing comes behind the last piece, and no end."""
        if self._playback.last is not None:
            return self._playback.stall_after is not None
        end = self.recording.end
        return self._waits and end is not None and end.kind == "left"

    def _take(self, piece: Chunk) -> bytes:
        self._piece = None
        self._given += len(piece.data)
        return piece.data

    def _due(self, piece: Chunk | None) -> float:
        """Return when the piece is there, or the end."""
        if piece is not None:
            return self._playback.due(piece.at, self._given + len(piece.data))
        if self._silent:
            return math.inf
        end = self.recording.end if self._playback.last is None else None
        return self._playback.due(end.at if end else 0, self._given)

    def _finish(self) -> None:
        """Close, and raise what the end raises."""
        self.close()
        if self._playback.cut_after is not None:
            return
        if self._playback.reset_after is not None:
            raise ConnectionResetError("the connection was reset, as it was asked to be")
        end = self.recording.end
        if end is None:
            raise ConnectionResetError(f"{self.recording.name} breaks off")
        if end.kind == "reset":
            raise ConnectionResetError("the connection was reset, as recorded")
        if end.kind == "timeout":
            raise TimeoutError("nothing more came, as recorded")
        if end.kind == "left":
            raise ConnectionResetError("whoever read what was recorded left here")
