"""The base of all adapters, which turn a provider's bytes into source events. Sans-IO.

An adapter raises nothing, whatever the bytes are. Data that it cannot decode becomes a warning, and data that it does
not understand passes as `raw`. After an error or the format's terminator, the rest of the stream is dropped, so that no
success follows an error. If nothing in a stream is understood, an error says that the format is another.

`PlainText` and `ReadyEvents` need no decoding. Plain text has no terminator but its end: an iterable that is exhausted
has stopped, and one that raises was interrupted.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, get_args

import msgspec

from streamtools.errors import Code, UnreadableSource
from streamtools.events import (
    ChainCompleted,
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
from streamtools.sources.frames import Damaged, Frame, Framed, FrameDecoder, Skipped, as_frame
from streamtools.sources.pieces import CallT, PairJoiner
from streamtools.sources.provider_terms import Fault, bounded, bounded_id, finish_reason, read_fault

REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of msgspec for JSON that it does not read, or that has not the expected shape."""

UNREADABLE = msgspec.UNSET
"""Stands for the value of a frame without one. No JSON value is equal to it."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_is_error = re.compile(rb'\{ ?"type" ?: ?"(?:response\.)?error"').match
_EVENTS: tuple[type, ...] = get_args(SourceEvent)
_MAX_FIRST_LINE = 4096  # bytes of a first line that is searched for another format
_MAX_FIELDS = 64  # names of unknown fields that are remembered, and characters of a name


def _is_not_understood(events: Iterable[SourceEvent]) -> bool:
    """Return whether no adapter has understood anything in `events`."""
    return all(type(event) is SourceRaw or type(event) is SourceWarning for event in events)


class Adapter(ABC):
    """Turns the items of a transport into source events, one item at a time."""

    format: str | None = None
    """The history format of the provider's messages."""
    _over = False  # the rest of the stream does not count
    content_type = ""
    """The declared type of the response, if it is known."""
    reads_documents = False
    """Whether a response that is declared as JSON and begins with an array is a stream of this format."""

    @property
    def ended(self) -> bool:
        """Whether the terminator or an error has arrived, so that the end of the transport no longer matters."""
        return self._over

    @abstractmethod
    def take(self, item: object) -> list[SourceEvent]:
        """Return the events that `item` completes. It may be bytes, a server-sent event, a dict or an SDK object.

        Raises `UnreadableSource` for an object of another type.
        """

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        """Return the events that `chunk` completes, as `take` does."""
        return self.take(chunk)

    @abstractmethod
    def close(self, cause: str | None = None) -> list[SourceEvent]:
        """Return the events that the end of the transport completes. A second call returns none.

        `cause` says why the transport broke off. That is an error, unless the stream has `ended` before.
        """

    def fail(self, error: SourceError) -> list[SourceEvent]:
        """Return the last events of a stream that the provider's SDK ended by raising `error`."""
        events = self.close("an exception")
        interruption = Code.STREAM_INTERRUPTED
        return [error if isinstance(event, SourceError) and event.code is interruption else event for event in events]


class FrameAdapter(Adapter):
    """An adapter of a format in frames. Subclasses read one frame at a time and define the end of the stream.

    `name` is the name of the format in `ADAPTERS`. `_text` and `_thought` join cut characters on the two channels that
    all formats have.
    """

    name: ClassVar[str] = ""

    def __init__(self, frames: FrameDecoder, limits: Limits = DEFAULT_LIMITS) -> None:
        self._frames = frames
        self._limits = limits
        self._over = False  # set on the instance, too, because reading it there is faster
        self._text = PairJoiner()
        self._thought = PairJoiner()
        self._blank = True  # nothing was understood yet
        self._strange: tuple[str, str | None] | None = None  # the first event of another format, and advice
        self._passed_on: dict[str, None] = {}  # unknown fields of deltas that were passed on
        self._response_id: str | None = None  # the provider's names of the answer and the model
        self._model: str | None = None

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """The provider's names of the answer and of its model, if they have arrived."""
        return self._response_id, self._model

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        """Return the events of the frames that `chunk` completes."""
        return self.feed_frames(self._frames.feed(chunk))

    def feed_frames(self, frames: Iterable[Framed]) -> list[SourceEvent]:
        """Return the events of frames that were decoded elsewhere."""
        events: list[SourceEvent] = []
        for frame in frames:
            if type(frame) is Frame and not self._over:
                self._read(frame, events)
            else:
                self._pass_over(frame, events)
        if self._blank:
            self._blank = _is_not_understood(events)
        return events

    def take(self, item: object) -> list[SourceEvent]:
        return self.feed(item) if type(item) is bytes else self._take_other(item)

    def _take_other(self, item: object) -> list[SourceEvent]:
        """Return the events of an item that is no `bytes` object."""
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
        if not self._over:  # an error revokes an earlier end, as it does in the bytes
            self._fail(error, events)
        return events

    @abstractmethod
    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Append the events of `frame`."""

    def _end(self, events: list[SourceEvent]) -> None:
        """Append the events of an end of the transport without a terminator or an error."""
        self._flush(events)

    def _foreign(self, events: list[SourceEvent]) -> SourceError | None:
        """Return the error of a stream of another format: nothing in it was understood, nor in `events`."""
        if self._strange is None and self._frames.ignored:
            self._strange = f"no event, but `{bounded(self._frames.ignored.decode(errors='replace'), 60)}`", None
        if self._strange is None or not (self._blank and _is_not_understood(events)):
            return None
        seen, advice = self._strange
        advice = advice or "`sources.detect` finds out whether any source reads it"
        declared = bounded(self.content_type, 100) or "unknown"
        expected = f"`sources.{self.name}`" if self.name else "the adapter"
        message = f"nothing in the stream is what {expected} reads: the content type is {declared}"
        return SourceError(f"{message}, and it begins with {seen}; {advice}", cause="unknown_format")

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append buffered parts, such as halves of characters, because nothing more arrives."""
        if thought := self._thought.close():
            events.append(ReasoningDelta(thought))
        if text := self._text.close():
            events.append(TextDelta(text))

    def _fail(self, fault: Fault | SourceError, events: list[SourceEvent]) -> None:
        """Append buffered parts, and the one error of this stream."""
        self._flush(events)
        events.append(fault.event() if isinstance(fault, Fault) else fault)
        self._over = True

    def _say(self, text: Any, events: list[SourceEvent]) -> None:
        """Append a piece of the answer. It may be cut in mid-character."""
        if isinstance(text, str) and text and (text := self._text.join(text)):
            events.append(TextDelta(text))

    def _think(self, text: Any, events: list[SourceEvent], signature: str | None = None) -> None:
        """Append a piece of reasoning and its signature. The text may be cut in mid-character."""
        text = self._thought.join(text) if isinstance(text, str) and text else ""
        if text or signature:
            events.append(ReasoningDelta(text, signature))

    def _decode(self, frame: Frame, events: list[SourceEvent]) -> Any:
        """Return the value of a frame. If it cannot be decoded, append a warning or an error and return `UNREADABLE`.

        A frame without data is a ping and means nothing. A frame named "error" is an error, even if it is plain text.
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
        """Return the object of a frame. If there is none, append what the frame means and return None.

        A frame with the type "error" is an error, even if it cannot be read. `[DONE]` means nothing: gateways that
        speak several formats send it.
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
        """Append a frame unchanged."""
        if (value := self._decode(frame, events)) is not UNREADABLE:
            self._pass_unknown(frame, value, events)

    def _pass_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error that is not of this format, or else the value unchanged."""
        nameless = isinstance(value, dict) and not isinstance(value.get("type"), str) and value.get("error")
        if frame.event == "error" or nameless:
            self._report(value, events)
        else:
            self._pass_strange(frame, value, events)

    def _pass_strange(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append the value of a frame that is not understood. It may show that the stream has another format."""
        self._note_strange(frame.event, value)
        self._pass_raw(value, events)

    def _note_strange(self, event: str, value: Any) -> None:
        if self._strange is None and self._blank and (name := format_of(event, value)) != self.name:
            advice = f"`sources.{name}` reads those" if name else unread_format(event, value)
            self._strange = seen_in(event, value), advice

    def _pass_fields(self, delta: dict[str, Any], known: frozenset[str], events: list[SourceEvent]) -> None:
        """Append unknown fields of a delta, each once per stream, because servers repeat them in each delta."""
        for name, value in delta.items() if not known.issuperset(delta) else ():
            if not value or name in known or name in self._passed_on:
                continue
            if len(self._passed_on) < _MAX_FIELDS and len(name) <= _MAX_FIELDS:
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
    ) -> None:
        """Append the end of the turn with the provider's reason. `finish` overrides the meaning of that reason."""
        raw = None if reason is None else bounded(reason, 100)
        id, model = self._response_id, self._model
        finish = finish or finish_reason(raw)
        events.append(ProviderCompleted(text or None, None, finish, raw, usage, True, id, model))

    def _name_response(self, id: Any, model: Any) -> None:
        """Record the provider's names of this answer and of the model. The first name of each counts."""
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
        """Append a value that was not understood, or a warning if it nests too deep to be written as JSON again."""
        events.append(SourceRaw(value) if fits(value, self._limits.depth) else _bad_frame("it nests too deep", ""))

    def _pass_item(self, value: Any, events: list[SourceEvent], about: Literal["item", "text"] = "item") -> None:
        """Append a value that is not interpreted here and belongs into the next request."""
        self._pass_raw(value, events)
        if isinstance(events[-1], SourceRaw):
            events[-1] = SourceRaw(value, self.format, about)

    def _open_call(self, calls: dict[Any, CallT], at: Any, call: CallT, events: list[SourceEvent]) -> bool:
        """Add a call that begins, and return True. Returns False, and ends the call, over the limit of open calls."""
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


class PlainText(Adapter):
    """Strings into text. None counts as an empty string: SDKs yield it for deltas without text."""

    def __init__(self) -> None:
        self._text = PairJoiner()

    def take(self, item: object) -> list[SourceEvent]:
        if item is not None and not isinstance(item, str):
            raise UnreadableSource(f"a stream of strings was expected; it yields {type(item)!r}")
        text = self._text.join(item or "")
        return [TextDelta(text)] if text else []

    def close(self, cause: str | None = None) -> list[SourceEvent]:
        if self._over:
            return []
        self._over = True
        rest = self._text.close()
        end = ProviderCompleted(finish_reason="stop") if cause is None else interrupted(cause)
        return [TextDelta(rest), end] if rest else [end]


class ReadyEvents(Adapter):
    """Passes source events on unchanged."""

    def take(self, item: object) -> list[SourceEvent]:
        if not isinstance(item, _EVENTS):
            raise UnreadableSource(f"a stream of source events was expected; it yields {type(item)!r}")
        event: SourceEvent = item  # type: ignore[assignment]  # mypy cannot see what `get_args` returns
        if isinstance(event, ProviderCompleted):
            self._over = event.ends_run
        elif isinstance(event, ChainCompleted | SourceError):
            self._over = True
        return [event]

    def close(self, cause: str | None = None) -> list[SourceEvent]:
        if cause is None or self._over:
            return []
        self._over = True
        return [interrupted(cause)]


def interrupted(cause: str) -> SourceError:
    """Return the error of a transport that broke off."""
    return SourceError("the connection to the provider was lost", Code.STREAM_INTERRUPTED, cause=cause)


def decode(data: bytes) -> Any:
    """Return the value of JSON text. Raises ValueError.

    It also accepts what msgspec refuses: half of a surrogate pair, NaN and infinities, raw control characters in
    strings, and invalid UTF-8.
    """
    try:
        return msgspec.json.decode(data)
    except REFUSED:
        try:
            return json.loads(data.decode(errors="replace"), strict=False)
        except RecursionError as error:
            raise ValueError(str(error)) from None


def _first_line(data: bytes) -> Any:
    """Return the value of the first line of NDJSON, or None."""
    end = data.find(b"\n", 0, _MAX_FIRST_LINE)
    try:
        return None if end < 0 else decode(data[:end])
    except ValueError:
        return None


def _bad_frame(why: str, raw: str) -> SourceWarning:
    return SourceWarning(Code.BAD_FRAME, f"an event could not be decoded: {bounded(why, 200)}", raw=raw or None)
