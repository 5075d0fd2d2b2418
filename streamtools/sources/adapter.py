"""What all adapters share: the bytes of one provider's stream in, source events out. Sans-IO.

An adapter is total: whatever the bytes are, it raises nothing. What it cannot decode is a warning and the stream goes
on; what it does not understand passes as `raw`; and once it has reported an error, or the format's own sentinel has
come, the rest of the stream means nothing any more and is dropped, so that no success follows an error.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from streamtools.errors import Code, UnreadableSource
from streamtools.events import ReasoningDelta, SourceError, SourceEvent, SourceRaw, SourceWarning, TextDelta
from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.frames import Frame, Framed, LineDecoder, SSEDecoder
from streamtools.sources.objects import as_frame
from streamtools.sources.pairs import Pairs
from streamtools.sources.words import Fault, bounded, read_fault
from streamtools.surrogates import whole

REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for JSON that it does not read, and for JSON that has another shape than the one asked for."""

_T = TypeVar("_T")
_SHAPED = 6
"""Levels of an event that a struct may describe; below them everything is taken as it came."""

UNREADABLE = msgspec.UNSET
"""Stands for the value of a frame that has none; JSON has no value that is equal to it."""


class Adapter(ABC):
    """Makes source events of what a transport yields, one item at a time."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the terminator or an error has come, so that it no longer matters how the transport ends."""

    @abstractmethod
    def take(self, item: object) -> list[SourceEvent]:
        """Return the events that `item` completes: bytes, a server-sent event, a dict, an object of an SDK.

        Raises `UnreadableSource` for an object of the wrong type.
        """

    @abstractmethod
    def close(self, cause: str | None = None) -> list[SourceEvent]:
        """Return the events that the end of the transport completes; a second call returns none.

        `cause` is given where the transport broke off: it is an error unless the stream had `ended` before.
        """

    def fail(self, error: SourceError) -> list[SourceEvent]:
        """Return the last events of a stream in whose place the provider's SDK raised `error`."""
        events = self.close("an exception")
        interruption = Code.STREAM_INTERRUPTED
        return [error if isinstance(each, SourceError) and each.code is interruption else each for each in events]


class FrameAdapter(Adapter):
    """An adapter of a format that comes in frames. Subclasses read one frame at a time and say what the end means.

    Halves of characters wait in `_text` and `_thought` for their others, on the two channels that all formats have.
    """

    def __init__(self, frames: SSEDecoder | LineDecoder, limits: Limits = DEFAULT_LIMITS) -> None:
        self._frames = frames
        self._limits = limits
        self._over = False  # nothing that comes now counts
        self._text = Pairs()
        self._thought = Pairs()

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        """Return the events of the frames that `chunk` completes."""
        return self.feed_frames(self._frames.feed(chunk))

    def feed_frames(self, frames: Iterable[Framed]) -> list[SourceEvent]:
        """Return the events of frames that somebody else has decoded."""
        events: list[SourceEvent] = []
        for frame in frames:
            if type(frame) is Frame and not self._over:
                self._read(frame, events)
            else:
                self._pass_over(frame, events)
        return events

    def take(self, item: object) -> list[SourceEvent]:
        if type(item) is bytes:  # as `feed` does it, at the cost of two calls less for each chunk
            events: list[SourceEvent] = []
            for frame in self._frames.feed(item):
                if type(frame) is Frame and not self._over:
                    self._read(frame, events)
                else:
                    self._pass_over(frame, events)
            return events
        return self._take_other(item)

    def _take_other(self, item: object) -> list[SourceEvent]:
        """Return the events of an item that is not just bytes."""
        if isinstance(item, bytes | bytearray | memoryview):
            return self.feed(bytes(item))
        if (made := as_frame(item)) is not None:
            return self.feed_frames([made])
        expected = "a stream of bytes, of server-sent events or of an SDK's objects"
        raise UnreadableSource(f"{expected} was expected; it yields {type(item)!r}")

    def close(self, cause: str | None = None) -> list[SourceEvent]:
        events = self.feed_frames(self._frames.close())
        if not self._over:
            self._end(events)
            if cause is not None and not self.ended:
                events.append(interrupted(cause))
            self._over = True
        return events

    def fail(self, error: SourceError) -> list[SourceEvent]:
        events = self.feed_frames(self._frames.close())
        if not self._over:  # as in the bytes, it takes back an end that has come before
            self._flush(events)
            events.append(error)
            self._over = True
        return events

    @abstractmethod
    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Append what `frame` means to `events`."""

    def _end(self, events: list[SourceEvent]) -> None:
        """Append what the end of the transport means, which came before a sentinel and without an error."""
        self._flush(events)

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append what was held back, because nothing comes any more that could complete it."""
        self._flush_text(events)

    def _flush_text(self, events: list[SourceEvent]) -> None:
        """Append what waited for the other half of a character."""
        if thought := self._thought.close():
            events.append(ReasoningDelta(thought))
        if text := self._text.close():
            events.append(TextDelta(text))

    def _fail(self, fault: Fault, events: list[SourceEvent]) -> None:
        """Append the one error of this stream."""
        events.append(fault.event())
        self._over = True

    def _decode(self, frame: Frame, events: list[SourceEvent]) -> Any:
        """Return the value of a frame; where there is none, append what that means and return `UNREADABLE`.

        A frame without data is a ping and means nothing; one that is named an error is one even if it is plain text.
        """
        try:
            return decode(frame.data)
        except ValueError as error:
            if frame.event == "error":
                self._fail(read_fault(frame.data[:4096].decode(errors="replace")), events)
            elif frame.data:
                events.append(_bad_frame(str(error), bounded(frame.data[:800].decode(errors="replace"), 200)))
            return UNREADABLE

    def _pass_over(self, frame: Framed, events: list[SourceEvent]) -> None:
        if not isinstance(frame, Frame) and not self._over:
            message = f"an event of {frame.count} bytes is over the limit of {self._limits.frame}; it was skipped"
            events.append(SourceWarning(Code.SKIPPED, message, count=frame.count))

    def _pass_raw(self, value: Any, events: list[SourceEvent]) -> None:
        """Append what was not understood, unless it nests so deep that writing it as JSON again might fail."""
        events.append(SourceRaw(value) if fits(value, self._limits.depth) else _bad_frame("it nests too deep", ""))


def interrupted(cause: str) -> SourceError:
    """Return the error that stands for a transport which broke off."""
    return SourceError("the connection to the provider was lost", Code.STREAM_INTERRUPTED, cause=cause)


def decode(data: bytes) -> Any:
    """Return the value that `data` is the JSON of, reading what msgspec refuses too; raise ValueError.

    That is half of a surrogate pair, NaN and infinities, raw control characters in strings, and invalid UTF-8.
    """
    try:
        return msgspec.json.decode(data)
    except REFUSED:
        try:
            return json.loads(data.decode(errors="replace"), strict=False)
        except RecursionError as error:
            raise ValueError(str(error)) from None


def convert(value: Any, shape: type[_T]) -> _T:
    """Return a decoded value as a struct of type `shape`; raise `msgspec.ValidationError` for one of another shape.

    Keys may hold half of a surrogate pair, which names no field and which msgspec does not look up. Texts keep theirs.
    """
    try:
        return msgspec.convert(value, shape)
    except UnicodeEncodeError:  # in a key, or in a text that stands for an object or a list
        try:
            return msgspec.convert(_with_whole_keys(value, _SHAPED), shape)
        except UnicodeEncodeError as error:
            raise msgspec.ValidationError(str(error)) from None


def _with_whole_keys(value: Any, levels: int) -> Any:
    if levels == 0:
        return value
    if isinstance(value, dict):
        return {whole(key): _with_whole_keys(each, levels - 1) for key, each in value.items()}
    return [_with_whole_keys(each, levels - 1) for each in value] if isinstance(value, list) else value


def _bad_frame(why: str, raw: str) -> SourceWarning:
    return SourceWarning(Code.BAD_FRAME, f"an event could not be decoded: {bounded(why, 200)}", raw=raw or None)
