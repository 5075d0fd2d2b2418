"""What all adapters share: the bytes of one provider's stream in, source events out. Sans-IO.

An adapter is total: whatever the bytes are, it raises nothing. What it cannot decode is a warning and the stream goes
on; what it does not understand passes as `raw`; and once it has reported an error, or the format's own sentinel has
come, the rest of the stream means nothing any more and is dropped, so that no success follows an error. A stream of
which nothing was understood is of another format, and an error that says so.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import msgspec

from streamtools.errors import Code, UnreadableSource
from streamtools.events import (
    FinishReason,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceWarning,
    TextDelta,
    Usage,
)
from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.event_formats import format_of, seen_in, unread_format
from streamtools.sources.frames import Damaged, Frame, Framed, FrameDecoder, Skipped
from streamtools.sources.open_call import CallT
from streamtools.sources.provider_terms import Fault, bounded, bounded_id, finish_reason, read_fault
from streamtools.sources.sdk_objects import as_frame
from streamtools.sources.surrogates import PairJoiner

REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for JSON that it does not read, and for JSON that has another shape than the one asked for."""

UNREADABLE = msgspec.UNSET
"""Stands for the value of a frame that has none; JSON has no value that is equal to it."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_is_error = re.compile(rb'\{ ?"type" ?: ?"(?:response\.)?error"').match
_LINE = 4096  # bytes of a line that is looked at to tell another format
_PASSED_ON = 64  # names of unknown fields are remembered, of at most so many characters


def _hold_nothing(events: Iterable[SourceEvent]) -> bool:
    """Return whether there is nothing in `events` that an adapter has understood."""
    return all(type(event) is SourceRaw or type(event) is SourceWarning for event in events)


class Adapter(ABC):
    """Makes source events of what a transport yields, one item at a time."""

    format: str | None = None
    """That of the messages of its provider, where a history has one."""
    _over = False  # nothing that comes now counts
    content_type = ""
    """What the response declares, as far as it is known."""
    reads_documents = False
    """Whether a response that is declared as JSON, and begins an array, is a stream of this format."""

    @property
    def ended(self) -> bool:
        """Whether the terminator or an error has come, so that it no longer matters how the transport ends."""
        return self._over

    @abstractmethod
    def take(self, item: object) -> list[SourceEvent]:
        """Return the events that `item` completes: bytes, a server-sent event, a dict, an object of an SDK.

        Raises `UnreadableSource` for an object of the wrong type.
        """

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        """Return the events that `chunk` completes, as `take` does."""
        return self.take(chunk)

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

    `name` is that of the format in `ADAPTERS`. Halves of characters wait in `_text` and `_thought` for their others, on
    the two channels that all formats have.
    """

    name: ClassVar[str] = ""

    def __init__(self, frames: FrameDecoder, limits: Limits = DEFAULT_LIMITS) -> None:
        self._frames = frames
        self._limits = limits
        self._over = False  # again, because each frame asks for it, and an attribute of the object is found sooner
        self._text = PairJoiner()
        self._thought = PairJoiner()
        self._blank = True  # nothing has been understood
        self._strange: tuple[str, str | None] | None = None  # the first event of another format, and what reads those
        self._passed_on: dict[str, None] = {}  # the unknown fields of deltas that have been passed on
        self._response_id: str | None = None  # the provider's names for its answer, and for the model
        self._model: str | None = None

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """The provider's names for the answer and for its model, as far as it has told them."""
        return self._response_id, self._model

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        """Return the events of the frames that `chunk` completes."""
        events: list[SourceEvent] = []  # as `feed_frames` does it, at the cost of a call less for each chunk
        for frame in self._frames.feed(chunk):
            if type(frame) is Frame and not self._over:
                self._read(frame, events)
            else:
                self._pass_over(frame, events)
        if self._blank:
            self._blank = _hold_nothing(events)
        return events

    def feed_frames(self, frames: Iterable[Framed]) -> list[SourceEvent]:
        """Return the events of frames that somebody else has decoded."""
        events: list[SourceEvent] = []
        for frame in frames:
            if type(frame) is Frame and not self._over:
                self._read(frame, events)
            else:
                self._pass_over(frame, events)
        if self._blank:
            self._blank = _hold_nothing(events)
        return events

    def take(self, item: object) -> list[SourceEvent]:
        return self.feed(item) if type(item) is bytes else self._take_other(item)

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
            if not self.ended:
                fault = self._foreign(events) if cause is None else interrupted(cause)
                events += [] if fault is None else [fault]
            self._over = True
        return events

    def fail(self, error: SourceError) -> list[SourceEvent]:
        events = self.feed_frames(self._frames.close())
        if not self._over:  # as in the bytes, it takes back an end that has come before
            self._fail(error, events)
        return events

    @abstractmethod
    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Append what `frame` means to `events`."""

    def _end(self, events: list[SourceEvent]) -> None:
        """Append what the end of the transport means, which came before a sentinel and without an error."""
        self._flush(events)

    def _foreign(self, events: list[SourceEvent]) -> SourceError | None:
        """Return the error of a stream of another format, of which nothing was understood, `events` included."""
        if self._strange is None and self._frames.ignored:
            self._strange = f"no event, but `{bounded(self._frames.ignored.decode(errors='replace'), 60)}`", None
        if self._strange is None or not (self._blank and _hold_nothing(events)):
            return None
        seen, advice = self._strange
        advice = advice or "`sources.detect` finds out whether any source reads it"
        declared = bounded(self.content_type, 100) or "unknown"
        expected = f"`sources.{self.name}`" if self.name else "the adapter"
        message = f"nothing in the stream is what {expected} reads: the content type is {declared}"
        return SourceError(f"{message}, and it begins with {seen}; {advice}", cause="unknown_format")

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append what waited for more, halves of characters to begin with, because nothing comes any more."""
        if thought := self._thought.close():
            events.append(ReasoningDelta(thought))
        if text := self._text.close():
            events.append(TextDelta(text))

    def _fail(self, fault: Fault | SourceError, events: list[SourceEvent]) -> None:
        """Append what waited, and the one error of this stream."""
        self._flush(events)
        events.append(fault.event() if isinstance(fault, Fault) else fault)
        self._over = True

    def _say(self, text: Any, events: list[SourceEvent]) -> None:
        """Append a piece of the answer, which may be cut in mid-character."""
        if isinstance(text, str) and text and (text := self._text.join(text)):
            events.append(TextDelta(text))

    def _think(self, text: Any, events: list[SourceEvent], signature: str | None = None) -> None:
        """Append a piece of reasoning, likewise, and what signs it."""
        text = self._thought.join(text) if isinstance(text, str) and text else ""
        if text or signature:
            events.append(ReasoningDelta(text, signature))

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
                self._note_strange(frame.event, None if self._strange else _first_line(frame.data))
                events.append(_bad_frame(str(error), bounded(frame.data[:800].decode(errors="replace"), 200)))
            return UNREADABLE

    def _decode_object(self, frame: Frame, events: list[SourceEvent]) -> dict[str, Any] | None:
        """Return the object of a frame; where there is none, append what that means and return None.

        What calls itself an error is one even if it cannot be read. A `[DONE]` is of gateways that speak several
        formats, and means nothing.
        """
        try:
            return _decode_object(frame.data)
        except REFUSED:
            value = UNREADABLE if frame.data.startswith(b"[DONE]") else self._decode(frame, events)
        if isinstance(value, dict):
            return value
        if value is not UNREADABLE:
            self._pass_unknown(frame, value, events)
        elif not self._over and _is_error(frame.data):
            self._report(None, events)
        return None

    def _pass(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Append a frame as it came."""
        if (value := self._decode(frame, events)) is not UNREADABLE:
            self._pass_unknown(frame, value, events)

    def _pass_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error that is none of the format's own, or else the value as it came."""
        nameless = isinstance(value, dict) and not isinstance(value.get("type"), str) and value.get("error")
        if frame.event == "error" or nameless:
            self._report(value, events)
        else:
            self._pass_strange(frame, value, events)

    def _pass_strange(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append the value of a frame that is not understood at all, and may show that the stream is another's."""
        self._note_strange(frame.event, value)
        self._pass_raw(value, events)

    def _note_strange(self, event: str, value: Any) -> None:
        if self._strange is None and self._blank and (name := format_of(event, value)) != self.name:
            advice = f"`sources.{name}` reads those" if name else unread_format(event, value)
            self._strange = seen_in(event, value), advice

    def _pass_fields(self, delta: dict[str, Any], known: frozenset[str], events: list[SourceEvent]) -> None:
        """Append the fields of a delta that are not known, each once for a stream: servers repeat them for ever."""
        for name, value in delta.items() if not known.issuperset(delta) else ():
            if not value or name in known or name in self._passed_on:
                continue
            if len(self._passed_on) < _PASSED_ON and len(name) <= _PASSED_ON:
                self._passed_on[name] = None
            self._pass_raw({name: value}, events)

    def _complete_response(
        self,
        reason: str | None,
        usage: Usage | None,
        events: list[SourceEvent],
        *,
        text: str = "",
        finish: FinishReason | None = None,
        ends_run: bool = True,
    ) -> None:
        """Append that the turn has ended, for a reason of the provider's that means `finish` where that is given."""
        raw = None if reason is None else bounded(reason, 100)
        id, model = self._response_id, self._model
        finish = finish or finish_reason(raw)
        events.append(ProviderCompleted(text or None, None, finish, raw, usage, ends_run, id, model))

    def _name_response(self, id: Any, model: Any) -> None:
        """Take note of the provider's names for this answer and for the model; the first of each counts."""
        self._response_id = self._response_id or bounded_id(id)
        self._model = self._model or bounded_id(model)

    def _report(self, value: Any, events: list[SourceEvent]) -> None:
        self._fail(read_fault(value), events)

    def _pass_over(self, frame: Framed, events: list[SourceEvent]) -> None:
        if type(frame) is Damaged and not self._over:
            if frame.final:
                self._fail(self._foreign(events) or Fault(frame.why, "framing", None), events)
            else:
                events.append(_bad_frame(frame.why, ""))
        elif type(frame) is Skipped and not self._over:
            message = f"an event of {frame.count} bytes is over the limit of {self._limits.frame}; it was skipped"
            events.append(SourceWarning(Code.SKIPPED, message, count=frame.count))

    def _pass_raw(self, value: Any, events: list[SourceEvent]) -> None:
        """Append what was not understood, unless it nests so deep that writing it as JSON again might fail."""
        events.append(SourceRaw(value) if fits(value, self._limits.depth) else _bad_frame("it nests too deep", ""))

    def _pass_item(self, value: Any, events: list[SourceEvent], about: Literal["item", "text"] = "item") -> None:
        """Append what nobody here interprets, and goes back with the next request."""
        self._pass_raw(value, events)
        if isinstance(events[-1], SourceRaw):
            events[-1] = SourceRaw(value, self.format, about)

    def _open_call(self, calls: dict[Any, CallT], at: Any, call: CallT, events: list[SourceEvent]) -> bool:
        """Put a call that begins in its place, and return True; return False where as many are open as may be."""
        if at not in calls and len(calls) >= self._limits.calls:
            call.refuse(events)
            return False
        calls[at] = call
        if not call.executed:
            call.start(events)
        return True

    def _pass_call(self, call: NativeToolCall, events: list[SourceEvent]) -> None:
        """Append a call that the provider has run itself, or a warning if it cannot be written as JSON again."""
        self._pass_raw(call.arguments, events)
        if isinstance(events[-1], SourceRaw):
            events[-1] = call


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


def _first_line(data: bytes) -> Any:
    """Return the value of the first of several lines of JSON, in which others stream; None where it is none."""
    end = data.find(b"\n", 0, _LINE)
    try:
        return None if end < 0 else decode(data[:end])
    except ValueError:
        return None


def _bad_frame(why: str, raw: str) -> SourceWarning:
    return SourceWarning(Code.BAD_FRAME, f"an event could not be decoded: {bounded(why, 200)}", raw=raw or None)
