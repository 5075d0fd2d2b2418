"""A recorded response as httpx and httpx2 have theirs: made of the classes of the library that asked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from streamtools.errors import RecordingError
from streamtools.recording.format import Response
from streamtools.recording.playback import PlaybackOptions
from streamtools.recording.reading import OpenRecording
from streamtools.recording.replay import ReplayBytes


class RecordedResponse:
    """The response in `opened`, to a request of `library`; `told` gets the error that the recording turns out to have.

    An iterator of its bytes, asynchronous and blocking, which raises what the library would have raised.
    """

    def __init__(
        self,
        library: ModuleType,
        opened: OpenRecording,
        told: Callable[[RecordingError], object],
        options: PlaybackOptions,
    ) -> None:
        self._library = library
        self._told = told
        self._recording = opened
        self._faulty = any(options.get(name) is not None for name in ("cut_after", "reset_after", "stall_after"))
        self.bytes = ReplayBytes(opened, waits=True, **options)

    def response(self, *, blocking: bool) -> Any:
        """Return the response, whose body is still to be read; raise `RecordingError` for a head that is none."""
        head = self._recording.head.response or Response(status=200)
        # The bytes are kept decoded; a head that others wrote may say otherwise.
        headers = {name: value for name, value in head.headers.items() if name.lower() != "content-encoding"}
        stream = _body_class(self._library, blocking)(self)
        try:
            return self._library.Response(head.status, headers=headers, stream=stream)
        except UnicodeEncodeError as error:
            self.bytes.close()
            raise self._translate(
                RecordingError(f"{self._recording.name} has a header that is none: {error}")
            ) from None

    async def read(self) -> bytes:
        """Return the next bytes; raise StopAsyncIteration at the end."""
        try:
            return await anext(self.bytes)
        except (OSError, RecordingError) as error:
            raise self._translate(error) from None

    def read_blocking(self) -> bytes:
        """Return the next bytes; raise StopIteration at the end."""
        try:
            return next(self.bytes)
        except (OSError, RecordingError) as error:
            raise self._translate(error) from None

    def _translate(self, error: OSError | RecordingError) -> Exception:
        """Return the library's exception: the recorded one, or one that is of its kind."""
        if isinstance(error, RecordingError):
            self._told(error)
            return error
        late = isinstance(error, TimeoutError)
        library, end = self._library, None if self._faulty else self._recording.end
        kind = getattr(library, end.error, None) if end is not None else None
        if (
            not isinstance(kind, type)
            or not issubclass(kind, library.TransportError)
            or issubclass(kind, library.TimeoutException) is not late
        ):
            kind = library.ReadTimeout if late else library.ReadError
        made: Exception = kind(str(error))
        return made


@functools.cache
def _body_class(library: ModuleType, blocking: bool) -> type:
    """Return the class of bodies: its clients insist on streams of their own classes."""
    if blocking:
        return type("BlockingBody", (_BlockingBody, library.SyncByteStream), {})
    return type("Body", (_Body, library.AsyncByteStream), {})


class _Body:
    def __init__(self, recorded: RecordedResponse) -> None:
        self._recorded = recorded

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        return await self._recorded.read()

    async def aclose(self) -> None:
        self._recorded.bytes.close()


class _BlockingBody:
    def __init__(self, recorded: RecordedResponse) -> None:
        self._recorded = recorded

    def __iter__(self) -> _BlockingBody:
        return self

    def __next__(self) -> bytes:
        return self._recorded.read_blocking()

    def close(self) -> None:
        self._recorded.bytes.close()
