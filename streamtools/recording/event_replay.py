"""Replays a recording as UI events. A `ToolStream` reads the recorded bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from os import PathLike
from typing import Any, Self, Unpack

from streamtools import sources
from streamtools.errors import AsyncOnly, RecordingError
from streamtools.events import UIEvent
from streamtools.recording.files import DETECT, OpenExchange, RecordedExchange, open_exchange
from streamtools.recording.playback import PLAYBACK_OPTIONS, PlaybackOptions, ReplayBytes
from streamtools.stream.options import StreamOptions
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools.registry import ToolsLike


class ReplayOptions(PlaybackOptions, StreamOptions, total=False):
    """The options of `Playback` and of `ToolStream` as keywords."""


class ReplayedResponse(ReplayBytes):
    """A recorded response with the attributes that a source reads: `status_code`, `headers` and `aiter_bytes`."""

    def __init__(self, recording: OpenExchange, options: PlaybackOptions) -> None:
        super().__init__(recording, **options)
        response = recording.head.response
        self.status_code = response.status if response else 200
        self.headers = dict(response.headers) if response else {}

    def aiter_bytes(self) -> Self:
        """Return the iterator of the bytes, which is this object. Only one reader can use it."""
        return self


class EventReplay(AsyncOnly):
    """The result of `replay`. `await` returns a list of the events. `async with` returns a `ToolStream`."""

    def __init__(self, open_stream: Callable[[], AbstractAsyncContextManager[ToolStream]]) -> None:
        self._open_stream = open_stream

    async def __aenter__(self) -> ToolStream:
        self._context = self._open_stream()
        return await self._context.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        await self._context.__aexit__(*raised)

    def __await__(self) -> Generator[Any, None, list[UIEvent]]:
        return self._collect().__await__()

    async def _collect(self) -> list[UIEvent]:
        async with self._open_stream() as stream:
            return [event async for event in stream]


@asynccontextmanager
async def open_replay(
    path: str | PathLike[str], exchange: RecordedExchange | int | None, tools: ToolsLike | None, options: ReplayOptions
) -> AsyncIterator[ToolStream]:
    """Yield the stream of an exchange. None means the only exchange. Raises RecordingError for an invalid recording."""
    playback: Any = {name: value for name, value in options.items() if name in PLAYBACK_OPTIONS}
    stream_options: Any = {name: value for name, value in options.items() if name not in PLAYBACK_OPTIONS}
    recording = exchange.open() if isinstance(exchange, RecordedExchange) else open_exchange(path, exchange)
    try:
        response = ReplayedResponse(recording, playback)
        stream = ToolStream(sources.Source(response, adapter_of(recording)), tools=tools, **stream_options)
    except BaseException:
        recording.close()
        raise
    async with stream:
        yield stream
    if response.error is not None:
        raise response.error  # the stream has reported it as an event


def adapter_of(recording: OpenExchange) -> sources.Adapter:
    """Return the source adapter that reads the bytes of a recording. Raises RecordingError for an unknown format."""
    head = recording.head
    content_type = head.response.headers.get("content-type", "") if head.response is not None else ""
    try:
        return sources.Undecided(content_type) if head.source == DETECT else sources.adapter(head.source)
    except LookupError as error:
        raise RecordingError(f"{recording.name}: {error}") from None


def replay(
    path: str | PathLike[str],
    *,
    exchange: int | None = None,
    tools: ToolsLike | None = None,
    **options: Unpack[ReplayOptions],
) -> EventReplay:
    """Replay a recording, or a raw capture of any provider, as UI events.

    `events = await replay("weather.jsonl", tools=tools)` returns a list. `async with replay(...) as stream` returns a
    `ToolStream`. If the file holds several exchanges, `exchange` selects one by its number, from 1. `ReplayTransport`
    replays a whole conversation.

    `speed` is 0 for no waiting and 1 for the recorded timing. `cut` splits the bytes into other chunks. `reset_after`,
    `cut_after` and `stall_after` inject faults. `read_timeout` limits each wait for data.
    `streamtools.recording.Playback` describes these options. All other options are passed to `ToolStream`.

    Raises RecordingError if the file is not a recording or is incomplete, or if it holds several exchanges and
    `exchange` is None.
    """
    return EventReplay(partial(open_replay, path, exchange, tools, options))
