"""A recording straight to UI events: the whole pipeline over recorded bytes, for tests and for a second look."""

from __future__ import annotations

from collections.abc import Generator
from os import PathLike
from types import TracebackType
from typing import Any

from streamtools import sources
from streamtools.errors import RecordingError
from streamtools.events import UIEvent
from streamtools.recording.captures import DETECT, open_stream_file
from streamtools.recording.cutting import Cut
from streamtools.recording.reading import OpenRecording
from streamtools.recording.replay import ReplayBytes
from streamtools.stream import ToolStream


class Playback:
    """A recorded response, with what a source asks of one: a status, headers, bytes."""

    def __init__(self, recording: OpenRecording, *, speed: float = 0, cut: Cut = "recorded") -> None:
        response = recording.head.response
        self.status_code = response.status if response else 200
        self.headers = dict(response.headers) if response else {}
        self.fault: RecordingError | None = None  # the file turned out to be no whole recording
        self._bytes = ReplayBytes(recording, speed=speed, cut=cut)

    def aiter_bytes(self) -> Playback:
        """Return the bytes, for the only reader that there may be."""
        return self

    def __aiter__(self) -> Playback:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._bytes)
        except RecordingError as error:
            self.fault = error
            raise

    async def aclose(self) -> None:
        """Close the file."""
        await self._bytes.aclose()


class Replay:
    """What `replay` returns: awaited, a list of events; entered, a `ToolStream`."""

    def __init__(self, path: str | PathLike[str], speed: float, cut: Cut, options: dict[str, Any]) -> None:
        self._path = path
        self._speed = speed
        self._cut = cut
        self._options = options
        self._playback: Playback | None = None
        self._stream: ToolStream | None = None

    async def __aenter__(self) -> ToolStream:
        recording = open_stream_file(self._path)
        try:
            self._playback = Playback(recording, speed=self._speed, cut=self._cut)
            source = sources.Source(self._playback, _adapter(recording))
            self._stream = ToolStream(source, **self._options)
        except BaseException:
            recording.close()
            raise
        return await self._stream.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._stream is not None
        assert self._playback is not None
        await self._stream.__aexit__(kind, error, traceback)
        if error is None and self._playback.fault is not None:
            raise self._playback.fault

    def __await__(self) -> Generator[Any, None, list[UIEvent]]:
        return self._collect().__await__()

    async def _collect(self) -> list[UIEvent]:
        async with self as stream:
            return [event async for event in stream]


def _adapter(recording: OpenRecording) -> sources.Adapter:
    if recording.head.source == DETECT:
        return sources.Undecided(sources.ADAPTERS)
    try:
        return sources.adapter(recording.head.source)
    except LookupError as error:
        raise RecordingError(f"{recording.name}: {error}") from None


def replay(path: str | PathLike[str], *, speed: float = 0, cut: Cut = "recorded", **options: Any) -> Replay:
    """Return the UI events of a recording, or of a response that was saved as it came, whichever provider's it is.

    `events = await replay("weather.jsonl", tools=tools)` is a list; `async with replay(...) as stream` streams. `speed`
    is 0 for no waiting and 1 for the recorded timing; `cut` cuts the bytes anew, see `streamtools.recording.recut`. The
    other options are those of `ToolStream`. Raises `RecordingError` for a file that is no recording or breaks off.
    """
    return Replay(path, speed, cut, options)
