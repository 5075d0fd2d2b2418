"""A recording straight to UI events: the whole pipeline over recorded bytes, for tests and for a second look."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from os import PathLike
from typing import Any, Self, Unpack

from streamtools import sources
from streamtools.errors import RecordingError
from streamtools.events import UIEvent
from streamtools.recording.exchanges import DETECT, Exchange, open_exchange
from streamtools.recording.file_reader import OpenRecording
from streamtools.recording.playback import PLAYBACK, PlaybackOptions, ReplayBytes
from streamtools.stream.options import StreamOptions
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools.registry import ToolsLike


class ReplayOptions(PlaybackOptions, StreamOptions, total=False):
    """How a recording is played, and how its stream is read."""


class RecordedResponse(ReplayBytes):
    """A recorded response, with what a source asks of one: a status, headers, bytes."""

    def __init__(self, recording: OpenRecording, options: PlaybackOptions) -> None:
        super().__init__(recording, **options)
        response = recording.head.response
        self.status_code = response.status if response else 200
        self.headers = dict(response.headers) if response else {}
        self.fault: RecordingError | None = None  # the file turned out to be no whole recording

    def aiter_bytes(self) -> Self:
        """Return the bytes, for the only reader that there may be."""
        return self

    async def __anext__(self) -> bytes:
        try:
            return await super().__anext__()
        except RecordingError as error:
            self.fault = error
            raise


class Replay:
    """What `replay` returns: awaited, a list of events; entered, a `ToolStream`."""

    def __init__(self, play: Callable[[], AbstractAsyncContextManager[ToolStream]]) -> None:
        self._play = play

    async def __aenter__(self) -> ToolStream:
        self._playing = self._play()
        return await self._playing.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        await self._playing.__aexit__(*raised)

    def __await__(self) -> Generator[Any, None, list[UIEvent]]:
        return self._collect().__await__()

    async def _collect(self) -> list[UIEvent]:
        async with self._play() as stream:
            return [event async for event in stream]


@asynccontextmanager
async def played(
    path: str | PathLike[str], exchange: Exchange | int | None, tools: ToolsLike | None, options: ReplayOptions
) -> AsyncIterator[ToolStream]:
    """Give the stream of a recording, or of one exchange of it; raise `RecordingError`."""
    playing: Any = {name: each for name, each in options.items() if name in PLAYBACK}
    reading: Any = {name: each for name, each in options.items() if name not in PLAYBACK}
    recording = exchange.open() if isinstance(exchange, Exchange) else open_exchange(path, exchange)
    try:
        response = RecordedResponse(recording, playing)
        stream = ToolStream(sources.Source(response, adapter_of(recording)), tools=tools, **reading)
    except BaseException:
        recording.close()
        raise
    async with stream:
        yield stream
    if response.fault is not None:
        raise response.fault


def adapter_of(recording: OpenRecording) -> sources.Adapter:
    """Return what reads the bytes of a recording; raise `RecordingError` for a source that there is not."""
    head = recording.head
    declared = head.response.headers.get("content-type", "") if head.response is not None else ""
    try:
        return sources.Undecided(declared) if head.source == DETECT else sources.adapter(head.source)
    except LookupError as error:
        raise RecordingError(f"{recording.name}: {error}") from None


def replay(
    path: str | PathLike[str],
    *,
    exchange: int | None = None,
    tools: ToolsLike | None = None,
    **options: Unpack[ReplayOptions],
) -> Replay:
    """Return the UI events of a recording, or of a response that was saved as it came, whichever provider's it is.

    `events = await replay("weather.jsonl", tools=tools)` is a list; `async with replay(...) as stream` streams. One
    exchange is played: of a file with several, the one of this number, from 1; a whole conversation is what
    `ReplayTransport` plays. `speed` is 0 for no waiting and 1 for the recorded timing; `cut` cuts the bytes anew;
    `reset_after` and others put faults in: see `streamtools.recording.Playback`. All else are options of `ToolStream`.
    Raises `RecordingError` for a file that is no recording or breaks off, or holds several and no number is given.
    """
    return Replay(partial(played, path, exchange, tools, options))
