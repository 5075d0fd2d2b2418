"""Give the bytes of a recording once more, as the network gave them, or cut in any other way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import anyio
import anyio.lowlevel

from streamtools.errors import RecordingError
from streamtools.recording.cutting import Cut, recut
from streamtools.recording.format import Chunk, Recording
from streamtools.recording.reading import OpenRecording

_STRETCH = 4096
"""Bytes after which a replay without waiting lets other tasks run: often enough to be cancelled, seldom enough to be
fast when it is cut byte by byte."""


class ReplayBytes:
    """The response in a recording, as an asynchronous iterator of bytes.

    With `speed=0` all bytes are there at once; 1 is the recorded timing, 2 is twice as fast. Times count from the first
    read, so that the time that the reader takes is not added to them. A recorded `reset` raises ConnectionResetError at
    its place, as does a recording that breaks off; `timeout` raises TimeoutError. A cancelled read loses nothing.
    An `OpenRecording` is read on the way, line by line, and is closed at the end or by `aclose`.
    """

    def __init__(self, recording: Recording | OpenRecording, *, speed: float = 0, cut: Cut = "recorded") -> None:
        if not 0 <= speed < float("inf"):
            raise ValueError(f"speed is 0 or a factor, and {speed!r} is neither")
        self.recording = recording
        self._speed = speed
        chunks: Iterator[Chunk] = iter(recording.chunks) if isinstance(recording, Recording) else recording
        self._pieces = recut(chunks, cut)
        self._piece: Chunk | None = None
        self._start: float | None = None
        self._stretch = _STRETCH
        self.closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self.closed:
            raise StopAsyncIteration
        if self._piece is None:
            try:
                self._piece = next(self._pieces, None)
            except RecordingError:
                await self.aclose()
                raise
        if self._piece is None:
            await self._finish()
            raise StopAsyncIteration
        await self._wait(self._piece.at)
        data, self._piece = self._piece.data, None
        self._stretch += len(data)
        return data

    async def aclose(self) -> None:
        """Give nothing more, and close the file if there is one. May be repeated."""
        self.closed = True
        if isinstance(self.recording, OpenRecording):
            self.recording.close()

    async def _finish(self) -> None:
        """Wait for the recorded end; raise what it raised."""
        end = self.recording.end
        await self._wait(end.at if end else 0)
        await self.aclose()
        if end is None:
            raise ConnectionResetError(f"{self.recording.name} breaks off")
        if end.kind == "reset":
            raise ConnectionResetError("the connection was reset, as recorded")
        if end.kind == "timeout":
            raise TimeoutError("nothing more came, as recorded")

    async def _wait(self, at: float) -> None:
        """Wait until `at` milliseconds after the first read, or just let other tasks run from time to time."""
        if self._speed:
            now = anyio.current_time()
            self._start = now if self._start is None else self._start
            delay = self._start + at / 1000 / self._speed - now
            if delay > 0:
                await anyio.sleep(delay)
                self._stretch = 0
        if self._stretch >= _STRETCH:
            await anyio.lowlevel.checkpoint()
            self._stretch = 0
