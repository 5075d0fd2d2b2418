"""The base classes of adapters, which convert a provider's bytes into source events. Sans-IO.

An adapter never raises an exception because of the bytes that it reads. Data that it cannot decode becomes a warning.
Data that it does not understand is forwarded as a `raw` event. After an error or the format's terminator, the rest of
the stream is dropped, so that no success follows an error. If the adapter understands nothing in a stream, it reports
that the stream has another format.

`PlainText` and `ReadyEvents` decode no bytes. A stream of plain text has no terminator. If its iterable is exhausted,
the turn has stopped. If the iterable raises an exception, the stream was interrupted.
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

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that msgspec raises for JSON that it cannot read, or that does not have the expected type."""

UNREADABLE = msgspec.UNSET
"""The value of a frame that could not be decoded. No JSON value equals it."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_is_error = re.compile(rb'\{ ?"type" ?: ?"(?:response\.)?error"').match
_EVENTS: tuple[type, ...] = get_args(SourceEvent)
_MAX_FIRST_LINE = 4096  # the maximum length, in bytes, of a first line that is searched for signs of another format
_MAX_FIELDS = 64  # the maximum number of unknown field names that are stored, and the maximum length of such a name


def _is_understood(events: Iterable[SourceEvent]) -> bool:
    """Return whether the adapter has understood data: whether an event is neither raw data nor a warning."""
    return any(type(event) is not SourceRaw and type(event) is not SourceWarning for event in events)


class Adapter(ABC):
    """Converts the items of a transport into source events, one item at a time."""

    format: str | None = None
    """The name of the provider's message format, in which a history can be sent back. None if there is none."""
    _over = False  # the rest of the stream is ignored
    content_type = ""
    """The `Content-Type` of the response, or an empty string if it is unknown."""
    reads_documents = False
    """Whether this format can be a JSON response that consists of one array. Each element is then an event."""

    @property
    def ended(self) -> bool:
        """Whether the terminator or an error has arrived. The transport may then end or break off without effect."""
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

        `cause` says why the transport broke off. It is None if the transport ended normally. With a cause, the last
        event is an error, unless the stream had already `ended`.
        """

    def fail(self, error: SourceError) -> list[SourceEvent]:
        """Return the last events of a stream whose SDK raised an exception. `error` is the event for it."""
        events = self.close("an exception")
        interruption = Code.STREAM_INTERRUPTED
        return [error if isinstance(event, SourceError) and event.code is interruption else event for event in events]


class FrameAdapter(Adapter):
    """The base of adapters whose formats consist of frames. Subclasses read one frame at a time.

    `name` is the name of the format in `ADAPTERS`. `_text` joins characters of the answer that the provider has cut
    into two pieces. `_thought` does this for the reasoning.
    """

    name: ClassVar[str] = ""

    def __init__(self, frames: FrameDecoder, limits: Limits = DEFAULT_LIMITS) -> None:
        self._frames = frames
        self._limits = limits
        self._over = False  # also set on the instance, because reading an instance attribute is faster
        self._text = PairJoiner()
        self._thought = PairJoiner()
        self._understood = False  # whether the adapter has understood any data of the stream
        # A description of the first event that belongs to no format or to another one, and advice.
        self._other_format: tuple[str, str | None] | None = None
        self._passed_on: dict[str, None] = {}  # the names of unknown fields of deltas that were forwarded
        self._response_id: str | None = None  # the provider's id of the response
        self._model: str | None = None  # the provider's name of the model

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """The provider's id of the response and its name of the model. Each is None until it has arrived."""
        return self._response_id, self._model

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        """Return the events of the frames that `chunk` completes."""
        return self.feed_frames(self._frames.feed(chunk))

    def feed_frames(self, frames: Iterable[Framed]) -> list[SourceEvent]:
        """Return the events of frames."""
        events: list[SourceEvent] = []
        for frame in frames:
            if type(frame) is Frame and not self._over:
                self._read(frame, events)
            else:
                self._pass_over(frame, events)
        if not self._understood:
            self._understood = _is_understood(events)
        return events

    def take(self, item: object) -> list[SourceEvent]:
        return self.feed(item) if type(item) is bytes else self._read_sdk_object(item)

    def _read_sdk_object(self, item: object) -> list[SourceEvent]:
        """Return the events of an item whose type is not `bytes`, such as an SDK object or a dict."""
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
                fault = self._wrong_format_error(events) if cause is None else interrupted(cause)
                events += [] if fault is None else [fault]
            self._over = True
        return events

    def fail(self, error: SourceError) -> list[SourceEvent]:
        events = self.feed_frames(self._frames.close())
        if not self._over:  # as in a stream of bytes, an error after the finish reason fails the turn
            self._fail(error, events)
        return events

    @abstractmethod
    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Append the events of `frame`."""

    def _end(self, events: list[SourceEvent]) -> None:
        """Append the last events when the transport ends before a terminator or an error has arrived."""
        self._flush(events)

    def _wrong_format_error(self, events: list[SourceEvent]) -> SourceError | None:
        """Return an error if the stream has another format, else None.

        This is so if the adapter understood neither the earlier data of the stream nor `events`.
        """
        if self._other_format is None and self._frames.ignored:
            self._other_format = f"no event, but `{bounded(self._frames.ignored.decode(errors='replace'), 60)}`", None
        if self._other_format is None or self._understood or _is_understood(events):
            return None
        seen, advice = self._other_format
        advice = advice or "`sources.detect` finds out whether any source reads it"
        declared = bounded(self.content_type, 100) or "unknown"
        expected = f"`sources.{self.name}`" if self.name else "the adapter"
        message = f"nothing in the stream is what {expected} reads: the content type is {declared}"
        return SourceError(f"{message}, and it begins with {seen}; {advice}", cause="unknown_format")

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append buffered data, such as the first half of a cut character, because no more data arrives."""
        if thought := self._thought.close():
            events.append(ReasoningDelta(thought))
        if text := self._text.close():
            events.append(TextDelta(text))

    def _fail(self, fault: Fault | SourceError, events: list[SourceEvent]) -> None:
        """Append buffered data and then the error. All later data of the stream is dropped."""
        self._flush(events)
        events.append(fault.event() if isinstance(fault, Fault) else fault)
        self._over = True

    def _say(self, text: Any, events: list[SourceEvent]) -> None:
        """Append a piece of the answer. The provider may have cut it in mid-character."""
        if isinstance(text, str) and text and (text := self._text.join(text)):
            events.append(TextDelta(text))

    def _think(self, text: Any, events: list[SourceEvent], signature: str | None = None) -> None:
        """Append a piece of reasoning and its signature. The provider may have cut the text in mid-character."""
        text = self._thought.join(text) if isinstance(text, str) and text else ""
        if text or signature:
            events.append(ReasoningDelta(text, signature))

    def _decode(self, frame: Frame, events: list[SourceEvent]) -> Any:
        """Return the value of a frame. If it cannot be decoded, append a warning or an error and return `UNREADABLE`.

        A frame without data is a ping and is ignored. A frame named "error" is an error, even if it holds plain text.
        """
        try:
            return decode(frame.data)
        except ValueError as error:
            if frame.event == "error":
                self._fail(read_fault(frame.data[:4096].decode(errors="replace")), events)
            elif frame.data:
                self._note_other_format(frame.event, None if self._other_format else _first_line(frame.data))
                events.append(_bad_frame(str(error), bounded(frame.data[:800].decode(errors="replace"), 200)))
            return UNREADABLE

    def _decode_object(self, frame: Frame, events: list[SourceEvent]) -> dict[str, Any] | None:
        """Return the JSON object of a frame. For any other frame, append its events and return None.

        A frame with the type "error" is an error, even if it cannot be decoded. `[DONE]` is ignored, because gateways
        that support several formats send it in all of them.
        """
        try:
            return _decode_object(frame.data)
        except DECODE_ERRORS:
            value = UNREADABLE if frame.data.startswith(b"[DONE]") else self._decode(frame, events)
        if isinstance(value, dict):
            return value
        if value is not UNREADABLE:
            self._pass_unknown(frame, value, events)
        elif not self._over and _is_error(frame.data):
            self._report(None, events)
        return None

    def _pass(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Forward a frame that this adapter does not interpret."""
        if (value := self._decode(frame, events)) is not UNREADABLE:
            self._pass_unknown(frame, value, events)

    def _pass_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error if the value is an error in another format. Forward any other value as `raw`."""
        nameless = isinstance(value, dict) and not isinstance(value.get("type"), str) and value.get("error")
        if frame.event == "error" or nameless:
            self._report(value, events)
        else:
            self._pass_not_understood(frame, value, events)

    def _pass_not_understood(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Forward the value of a frame that is not understood. Records whether it has another known format."""
        self._note_other_format(frame.event, value)
        self._pass_raw(value, events)

    def _note_other_format(self, event: str, value: Any) -> None:
        if self._other_format is None and not self._understood and (name := format_of(event, value)) != self.name:
            advice = f"`sources.{name}` reads those" if name else unread_format(event, value)
            self._other_format = seen_in(event, value), advice

    def _pass_fields(self, delta: dict[str, Any], known: frozenset[str], events: list[SourceEvent]) -> None:
        """Forward unknown fields of a delta. Each is forwarded once per stream, because servers repeat them."""
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
        """Append the end of the turn.

        `reason` is the finish reason that the provider sent. `finish` replaces the normalized reason that would be
        derived from it.
        """
        raw = None if reason is None else bounded(reason, 100)
        id, model = self._response_id, self._model
        finish = finish or finish_reason(raw)
        events.append(ProviderCompleted(text or None, None, finish, raw, usage, True, id, model))

    def _name_response(self, id: Any, model: Any) -> None:
        """Record the provider's id of the response and its name of the model. Later values are ignored."""
        self._response_id = self._response_id or bounded_id(id)
        self._model = self._model or bounded_id(model)

    def _report(self, value: Any, events: list[SourceEvent]) -> None:
        self._fail(read_fault(value), events)

    def _pass_over(self, frame: Framed, events: list[SourceEvent]) -> None:
        if type(frame) is Damaged and not self._over:
            if frame.final:
                self._fail(self._wrong_format_error(events) or Fault(frame.why, "framing", None), events)
            else:
                events.append(_bad_frame(frame.why, ""))
        elif type(frame) is Skipped and not self._over:
            message = f"an event of {frame.count} bytes is over the limit of {self._limits.frame}; it was skipped"
            events.append(SourceWarning(Code.SKIPPED, message, count=frame.count))

    def _pass_raw(self, value: Any, events: list[SourceEvent]) -> None:
        """Append a value as a `raw` event. If it nests too deep to be serialized, append a warning instead."""
        events.append(SourceRaw(value) if fits(value, self._limits.depth) else _bad_frame("it nests too deep", ""))

    def _pass_item(self, value: Any, events: list[SourceEvent], about: Literal["item", "text"] = "item") -> None:
        """Append a `raw` event whose value must be part of the next request to the provider."""
        self._pass_raw(value, events)
        if isinstance(events[-1], SourceRaw):
            events[-1] = SourceRaw(value, self.format, about)

    def _open_call(self, calls: dict[Any, CallT], at: Any, call: CallT, events: list[SourceEvent]) -> bool:
        """Add a call that begins to `calls`, and return True.

        If too many calls are open, this reports the call as refused and returns False.
        """
        if at not in calls and len(calls) >= self._limits.calls:
            call.refuse(events)
            return False
        calls[at] = call
        if not call.executed:
            call.start(events)
        return True

    def _pass_call(self, call: NativeToolCall, events: list[SourceEvent]) -> None:
        """Append a call that the provider has run. If its arguments nest too deep, append a warning instead."""
        self._pass_raw(call.arguments, events)
        if isinstance(events[-1], SourceRaw):
            events[-1] = call


class PlainText(Adapter):
    """Converts strings into text events. None is accepted as an empty string: SDKs yield it for deltas without text."""

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
    """Forwards source events unchanged."""

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
    """Return the error event for a transport that broke off."""
    return SourceError("the connection to the provider was lost", Code.STREAM_INTERRUPTED, cause=cause)


def decode(data: bytes) -> Any:
    """Return the value of JSON text. Raises ValueError if it is invalid.

    Unlike msgspec, it accepts lone surrogates, NaN, infinities, raw control characters in strings, and invalid UTF-8.
    """
    try:
        return msgspec.json.decode(data)
    except DECODE_ERRORS:
        try:
            return json.loads(data.decode(errors="replace"), strict=False)
        except RecursionError as error:
            raise ValueError(str(error)) from None


def _first_line(data: bytes) -> Any:
    """Return the JSON value of the first line of `data`, or None."""
    end = data.find(b"\n", 0, _MAX_FIRST_LINE)
    try:
        return None if end < 0 else decode(data[:end])
    except ValueError:
        return None


def _bad_frame(why: str, raw: str) -> SourceWarning:
    return SourceWarning(Code.BAD_FRAME, f"an event could not be decoded: {bounded(why, 200)}", raw=raw or None)
