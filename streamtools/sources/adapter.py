"""Converts the bytes of a provider, or the objects of its SDK, into source events.

A `Source` reads a transport and passes each piece to an adapter. The adapter of a wire format splits bytes into frames
with a `FrameDecoder`, and converts each frame into source events. Adapters and decoders are sans-IO.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec

from streamtools.calls import read_arguments
from streamtools.errors import Code, UnreadableSource
from streamtools.events import (
    SOURCE_EVENTS,
    ChainCompleted,
    FinishReason,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from streamtools.json_values import DECODE_ERRORS, Rejected, as_dict, decode, fits, well_formed
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.logs import loggable
from streamtools.sources.event_formats import advice_for_unsupported, describe_event, format_of
from streamtools.sources.provider_terms import bounded, bounded_id, finish_reason, name_of, raised_error, read_fault
from streamtools.sources.read_pace import ReadPace, current_pace
from streamtools.sources.transport import Transport, check_url

UNREADABLE = msgspec.UNSET
"""The value of a frame that could not be decoded. No JSON value equals it."""

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_BOM = b"\xef\xbb\xbf"
_INVALID_IN_NAME = re.compile(rb"[^\t -~]")  # a byte that a valid field name does not contain
_ENVELOPE = {"event", "data", "id", "retry"}  # the keys of a server-sent event as a dict

_UNCUT_FIELDS = ("type", "id", "call_id", "name", "server_name", "format", "signature")  # strings that are sent whole


# Frames: server-sent events or NDJSON lines.


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One server-sent event, or one line of NDJSON.

    `data` should be UTF-8, but a provider may send any bytes. It is `bytes`, because the JSON decoder reads bytes.
    """

    data: bytes
    event: str = "message"


Framed: TypeAlias = Frame | SourceWarning | SourceError
"""A frame, a warning about lost bytes, or an error after which the rest of the stream cannot be read."""


def skipped(size: int, limit: int) -> SourceWarning:
    """Return the warning for a frame that exceeds `limit`. `size` is its length in bytes. A CRLF counts as one byte."""
    message = f"an event of {size} bytes is over the limit of {limit}; it was skipped"
    return SourceWarning(Code.SKIPPED, message, count=size)


def bad_frame(why: str, raw: str = "") -> SourceWarning:
    """Return the warning for a frame that cannot be read. `raw` is the beginning of its text, if it has one."""
    return SourceWarning(Code.BAD_FRAME, f"an event could not be decoded: {bounded(why, 200)}", raw=raw or None)


class FrameDecoder(ABC):
    """Splits a stream of bytes into frames. The chunks may end at any byte.

    First, every line end (CR, LF or CRLF) is replaced with LF, also if a chunk ends between CR and LF. A frame then
    ends at two LFs, or at one LF in NDJSON. A network chunk of whole frames therefore needs only one split. An
    incomplete frame is stored in one `bytearray`, and only its new bytes are searched. The cost of a large frame thus
    does not depend on the size of the chunks.

    Subclasses define the separator of frames and how a frame is read. The decoder of binary messages overrides `feed`,
    because binary messages have no separator.
    """

    _separator: ClassVar[bytes]

    def __init__(self, limit: int = DEFAULT_LIMITS.frame) -> None:
        self._limit = limit
        self._after_cr = False  # the last chunk ended with CR
        self._buffer = bytearray()  # the beginning of an incomplete frame
        self._dropped = 0  # the number of dropped bytes of a frame over the limit
        self.ignored = b""
        """The beginning of the first line that is not a field of an event, for example the first line of HTML."""

    def feed(self, chunk: bytes) -> list[Framed]:
        """Return the frames that `chunk` completes."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_lf(chunk)
        if self._buffer or self._dropped:
            searched = len(self._buffer)
            self._buffer += chunk
            # The separator may have begun in the byte before the new bytes.
            if self._buffer.find(self._separator, searched and searched - 1) < 0:
                self._enforce_limit()
                return []
            chunk = bytes(self._buffer)
            self._buffer.clear()
        blocks = chunk.split(self._separator)
        self._buffer += blocks.pop()
        frames: list[Framed] = []
        for block in blocks:
            size = self._dropped + len(block)  # the dropped bytes are the beginning of the first block
            self._dropped = 0
            if size > self._limit:
                frames.append(skipped(size, self._limit))
            elif block and (frame := self._read(block)) is not None:
                frames.append(frame)
        if self._buffer:
            self._enforce_limit()
        return frames

    def close(self) -> list[Framed]:
        """Return the last frame if the stream ended without its separator."""
        frames = self.feed(self._separator)
        self._buffer.clear()
        return frames

    @abstractmethod
    def _read(self, block: bytes) -> Frame | None:
        """Return the frame in `block`, or None if it is empty. LF separates the lines of `block`."""

    def _enforce_limit(self) -> None:
        """Drop the buffered bytes if they exceed the limit. Keeps a final LF, which may begin the frame's separator."""
        ends_in_lf = self._buffer[-1:] == b"\n"
        size = len(self._buffer) - ends_in_lf
        if self._dropped or size > self._limit:
            self._dropped += size
            self._buffer = bytearray(b"\n" if ends_in_lf else b"")

    def _with_lf(self, chunk: bytes) -> bytes:
        """Return `chunk` with each CRLF and CR replaced with LF.

        If the chunk ends with CR, and the next chunk begins with LF, that LF is dropped.
        """
        if not chunk:
            return chunk
        continues_crlf = self._after_cr and chunk[:1] == b"\n"
        self._after_cr = chunk[-1:] == b"\r"
        return chunk[continues_crlf:].replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class SSEDecoder(FrameDecoder):
    """Splits a `text/event-stream` into frames. A frame over `limit` bytes is skipped and not stored.

    The decoder deviates from the WHATWG standard, because real streams do:

    - The last event needs no blank line, because several providers end without one.
    - An event with a name but without data is delivered, because Anthropic sends such pings.
    - If an event has no data, its lines of bare JSON become the data, because Gemini sends errors in this form.
    - A byte order mark is ignored at the beginning of each event, not only of the first.
    - `id` and `retry` are ignored, because a client cannot reconnect to a completion.
    - A line becomes data if its field name contains control characters or non-ASCII bytes. Such a line is probably a
      damaged field. As data, it cannot be decoded, so a warning reports the loss.
    """

    _separator = b"\n\n"

    def _read(self, block: bytes) -> Frame | None:
        data: list[bytes] = []
        bare = bytearray()  # the lines of bare JSON
        event = ""
        # `BytesIO`, because `split` would need many times the memory of a hostile frame
        for line in BytesIO(block.lstrip(b"\n").removeprefix(_BOM)):
            name, _, value = line.rstrip(b"\n").partition(b":")
            if value.startswith(b" "):
                value = value[1:]
            if name == b"data":
                data.append(value)
            elif name == b"event":
                event = value.decode(errors="replace")
            elif name in (b"id", b"retry"):
                continue
            elif bare or line[:1] == b"{" or line.rstrip() in (b"[", b"[{"):
                bare += line
            elif _INVALID_IN_NAME.search(name):
                data.append(line.rstrip(b"\n"))
            elif name and not self.ignored:
                self.ignored = line[:100].strip()
        if not data and not event and not bare:
            return None
        return Frame(b"\n".join(data) if data else bytes(bare.rstrip(b"\n")), event or "message")


class LineDecoder(FrameDecoder):
    """Splits NDJSON into frames, one per line. Empty lines, and a byte order mark before a line, are ignored."""

    _separator = b"\n"

    def _read(self, block: bytes) -> Frame | None:
        block = block.removeprefix(_BOM)
        return Frame(block) if block.strip() else None


def as_frame(item: object) -> Frame | None:
    """Return the frame of a server-sent event, a dict or an SDK object. Returns None for any other object.

    An SDK object is converted back into the frame that the SDK decoded. So each format needs only one adapter.
    It reads the same events from objects as from bytes, and also fields that the SDK does not know.

    Data that nests too deep to be serialized as JSON becomes a frame that cannot be decoded. Raises `UnreadableSource`
    for an object with values that cannot be written as JSON. Such an object does not come from a provider.
    """
    data, event = getattr(item, "data", None), getattr(item, "event", None)
    if isinstance(data, str) and isinstance(event, str):  # a ServerSentEvent of httpx-sse or httpx2
        return Frame(well_formed(data).encode(), event or "message")
    try:
        value = as_dict(item)
        if value is None:
            return None
        event, data = value.get("event"), value.get("data")
        # The value may be a server-sent event as a dict.
        if isinstance(event, str) and isinstance(data, str | dict) and _ENVELOPE.issuperset(value):
            return Frame(well_formed(data).encode() if isinstance(data, str) else _write(data), event or "message")
        return Frame(_write(value))
    except (ValueError, RecursionError):
        return Frame(f"{type(item)!r} that cannot be written as JSON".encode())  # no JSON, so its decoding fails
    except Exception as error:
        raise UnreadableSource(f"{type(item)!r} cannot be written as JSON: {error}") from error


def _write(value: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_inner)
    except UnicodeEncodeError:  # a string contains half of a surrogate pair; the next object may hold the other half
        return json.dumps(msgspec.to_builtins(value, enc_hook=_inner)).encode()


def _inner(value: object) -> dict[str, Any]:
    """Return the dict of an SDK object that is nested in a dict. Raises TypeError for any other value."""
    plain = as_dict(value)
    if plain is None:
        raise TypeError(f"{type(value)!r} is not a JSON value")
    return plain


# Text and calls that arrive in pieces.


class PairJoiner:
    """Joins surrogate pairs that were cut, in the text of one channel.

    JSON may escape a character above U+FFFF as two surrogates. A server that streams token by token may send these in
    two deltas.

    `half` is the buffered first half of a pair, or empty. If the second half does not follow, the buffered half becomes
    U+FFFD. Set `half` to an empty string if the provider repeats the whole text.
    """

    def __init__(self) -> None:
        self.half = ""

    def join(self, text: str) -> str:
        """Return the buffered half followed by `text`, as valid Unicode. A half at the end of `text` is buffered."""
        if not self.half and text.isascii():
            return text
        text = self.half + text
        self.half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self.half = text[-1]
            text = text[:-1]
        return well_formed(text)

    def close(self) -> str:
        """Return U+FFFD if a half is buffered, else an empty string."""
        left, self.half = self.half and "\ufffd", ""
        return left


@dataclass(slots=True, eq=False)
class OpenCall:
    """A native call that is being streamed."""

    key: str
    id: str | None = None
    name: str | None = None
    given: Any = None  # the whole arguments, or None if they arrive in pieces
    signature: str | None = None
    own: dict[str, Any] | None = None  # fields that the next request must repeat, as {message format: fields}
    executed: bool = False  # the provider runs the tool
    fault: Code | None = None  # why the call must not run, for example because a piece could not be read
    pair_joiner: PairJoiner = field(default_factory=PairJoiner)
    length: int = 0  # the number of characters of the arguments that arrived in pieces
    pieces: list[str] = field(default_factory=list)  # these arguments, if the provider runs the tool

    def start(self, events: list[SourceEvent]) -> None:
        """Append the start of the call. Called again when its id or name becomes known."""
        events.append(ToolCallStart(self.key, self.id, self.name))

    def add(self, text: str, events: list[SourceEvent], limit: int = 0) -> None:
        """Append a piece of the arguments. The provider may have cut it in mid-character.

        A call that the provider runs is reported only at its end, so its arguments are stored up to `limit` characters.
        """
        text = self.pair_joiner.join(text) if text else ""
        self.length += len(text)
        if text and not self.executed:
            events.append(ToolCallDelta(self.key, text))
        elif self.length <= limit:
            self.pieces.append(text)

    def end(self, given: Any, events: list[SourceEvent], fault: Code | None = None) -> None:
        """Append the end of the call. `given` holds whole arguments, or None if deltas have reported them."""
        fault, details = self.fault or fault, (self.id, self.executed, self.signature)
        events.append(NativeToolCall(self.name, given, self.key, *details, fault=fault, own=self.own))

    def close(
        self,
        events: list[SourceEvent],
        limits: Limits,
        repeat: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
    ) -> None:
        """Append the end of the call, and before it U+FFFD if half of a surrogate pair is buffered.

        The field `given` is ignored if arguments arrived in pieces. `repeat` receives the arguments, or {} if deltas
        have reported them. It returns the value of the field `own`. `repeat` is not called if it would receive invalid
        arguments.
        """
        self.add(self.pair_joiner.close(), events, limits.call)
        given = ("".join(self.pieces) or None) if self.length else self.given
        fault = None if fits(given, limits.depth) else Code.TOO_DEEP
        if self.executed and self.length > limits.call:
            fault = Code.TOO_LARGE
        if repeat is not None and fault is None:
            with suppress(Rejected):
                own = repeat(read_arguments(given).value)
                self.own = own if fits(own, limits.depth) else None
        self.end(None if fault else given, events, fault)

    def refuse(self, events: list[SourceEvent]) -> None:
        """Append the start and the end of a call over the limit of open calls.

        The number of stored calls is limited, because each unreadable piece requires a search of all open calls.
        """
        if not self.executed:  # a call that the provider runs is reported only at its end
            self.start(events)
        self.end(None, events, Code.TOO_MANY_CALLS)


class GrowingItem:
    """A JSON object that grows by deltas. It is forwarded when it is complete, because the next request repeats it."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = dict(data)
        self._texts: dict[str, list[str]] = {}  # strings that arrived in pieces, by the name of their field

    def add(self, delta: Mapping[str, Any]) -> None:
        """Add the fields of a delta. Lists and most strings are extended, objects are updated, others replaced."""
        for name, value in delta.items():
            known = self.data.get(name)
            if isinstance(value, str) and isinstance(known, str | None) and name not in _UNCUT_FIELDS:
                self._texts.setdefault(name, [known or ""]).append(value)
                self.data.setdefault(name, "")  # keeps the order of the fields
            elif isinstance(value, list) and isinstance(known, list):
                self.data[name] += value
            elif isinstance(value, dict) and isinstance(known, dict):
                known.update(value)
            elif value not in (None, ""):
                self.data[name] = copy(value)  # a later delta changes the copy, and an event may hold the original

    def whole(self) -> dict[str, Any]:
        """Return the object with all strings joined."""
        return self.data | {name: well_formed("".join(texts)) for name, texts in self._texts.items()}


def end_doubtful(calls: dict[Any, CallT], index: object, events: list[SourceEvent]) -> None:
    """End the open calls that may have lost arguments in an unreadable piece. They become invalid.

    A piece with an `index` may belong to the call with this index, or to the call without an index. A piece without an
    index may belong to any call. `calls` holds the calls by index. Its entries with an empty `key` are not calls.
    """
    for known in [*calls] if index is None else (None, index):
        if known in calls and calls[known].key:
            calls.pop(known).end(None, events, Code.INVALID_ARGUMENTS)


CallT = TypeVar("CallT", bound="OpenCall")


# Adapters.


def _is_understood(events: Iterable[SourceEvent]) -> bool:
    """Return whether the adapter has understood data: whether an event is neither raw data nor a warning."""
    return any(type(event) is not SourceRaw and type(event) is not SourceWarning for event in events)


class Adapter(ABC):
    """Converts the items of a transport into source events, one item at a time.

    An adapter never raises an exception because of the bytes that it reads. Data that it cannot decode becomes a
    warning. Data that it does not understand is forwarded as a `raw` event. After an error or the format's terminator,
    the rest of the stream is dropped, so that no success follows an error. If the adapter understands nothing in a
    stream, it reports that the stream has another format.
    """

    format: str | None = None
    """The provider's message format, in which a history can be sent back. None if the provider has no such format."""
    endpoint: str = ""
    """The usual path of requests at the provider, for advice about a wrong URL. Empty if it is unknown."""
    _over = False  # the rest of the stream is ignored
    content_type = ""
    """The `Content-Type` of the response, or an empty string if it is unknown."""

    @property
    def ended(self) -> bool:
        """Whether the whole answer or an error has arrived. A connection that is lost later is not an error."""
        return self._over

    @abstractmethod
    def take(self, item: object) -> list[SourceEvent]:
        """Return the events that `item` completes. `item` is bytes, a server-sent event, a dict or an SDK object.

        Raises `UnreadableSource` for an object of another type.
        """

    def feed(self, chunk: bytes) -> list[SourceEvent]:
        """Return the events that `chunk` completes, as `take` does."""
        return self.take(chunk)

    @abstractmethod
    def close(self, cause: str | SourceError | None = None) -> list[SourceEvent]:
        """Return the events that the end of the transport completes. A second call returns none.

        `cause` says why the transport broke off. It is None if the transport ended normally. If `cause` is a text, and
        the stream has not `ended`, the last event is an error. A `SourceError` describes an exception of the provider's
        SDK. It becomes the last event even if the stream has `ended`, but not after an error or a terminator.
        """


class FrameAdapter(Adapter):
    """The base of adapters whose formats consist of frames. Subclasses read one frame at a time.

    `name` is the name of the wire format in `ADAPTERS`. The provider may have cut a character into two pieces. `_text`
    joins such characters of the answer, and `_thought` joins such characters of the reasoning.
    """

    name: ClassVar[str] = ""

    def __init__(self, frames: FrameDecoder, limits: Limits = DEFAULT_LIMITS) -> None:
        self._frames = frames
        self._limits = limits
        self._text = PairJoiner()
        self._thought = PairJoiner()
        self._understood = False  # whether the adapter has understood any data of the stream
        # Describes the first event that is not understood and has another format. The second item is advice, or None.
        self._other_format: tuple[str, str | None] | None = None
        self._response_id: str | None = None  # the provider's id of the response
        self._model: str | None = None  # the provider's name of the model
        self._reason: str | None = None  # the finish reason that the provider sent
        self._usage: Usage | None = None
        self._started = 0  # the number of calls that have started

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
            if self._over:
                break
            if isinstance(frame, Frame):
                self._read(frame, events)
            elif isinstance(frame, SourceWarning):
                events.append(frame)
            else:
                self._note_ignored_line()
                self._fail(self._wrong_format_error(events) or frame, events)
        if not self._understood:
            self._understood = _is_understood(events)
        return events

    def take(self, item: object) -> list[SourceEvent]:
        if isinstance(item, bytes | bytearray | memoryview):
            return self.feed(bytes(item))
        if (made := as_frame(item)) is not None:
            return self.feed_frames([made])
        expected = "a stream of bytes, of server-sent events or of an SDK's objects"
        raise UnreadableSource(f"expected {expected}, got an item of {type(item)!r}")

    def close(self, cause: str | SourceError | None = None) -> list[SourceEvent]:
        events = self.feed_frames(self._frames.close())
        if isinstance(cause, SourceError) and not self._over:
            self._fail(cause, events)  # as in a stream of bytes, an error after the finish reason fails the turn
        elif not self._over:
            self._note_ignored_line()
            self._end(events)
            if not self.ended:
                fault = self._wrong_format_error(events) if cause is None else interrupted(cause)
                events += [] if fault is None else [fault]
            self._over = True
        if cause is not None and any(isinstance(event, SourceError) for event in events):
            # The broken connection has cut the last frame, and the error reports this.
            events = [event for event in events if getattr(event, "code", "") != Code.BAD_FRAME]
        return events

    @abstractmethod
    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Append the events of `frame`."""

    def _end(self, events: list[SourceEvent]) -> None:
        """Append the last events when the transport ends before a terminator or an error has arrived."""
        self._flush(events)

    def _note_ignored_line(self) -> None:
        """If a line of the stream is not a field of an event, record that the stream has another format.

        This is not called at a terminator, because the line may follow the terminator in the same network chunk.
        """
        if self._other_format is None and self._frames.ignored:
            line = bounded(self._frames.ignored.decode(errors="replace"), 60)
            self._other_format = f"the line `{line}`", None

    def _wrong_format_error(self, events: list[SourceEvent]) -> SourceError | None:
        """Return an error if the stream has another format, else None.

        The stream has another format if `_other_format` is set, and neither the earlier data nor `events` were
        understood.
        """
        if self._other_format is None or self._understood or _is_understood(events):
            return None
        seen, advice = self._other_format
        advice = advice or "`sources.detect` chooses a source that reads the stream"
        if "html" in self.content_type:
            advice = f"a page was sent: {check_url(self.endpoint)}"
        declared = bounded(self.content_type, 100) or "unknown"
        expected = f"`sources.{self.name}`" if self.name else "the adapter"
        message = f"{expected} understood nothing in the stream: the content type is {declared}"
        return SourceError(f"{message}, and the stream begins with {seen}; {advice}", cause="unknown_format")

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append buffered data, because no more data arrives. Half of a cut character becomes U+FFFD."""
        if thought := self._thought.close():
            events.append(ReasoningDelta(thought))
        if text := self._text.close():
            events.append(TextDelta(text))

    def _fail(self, fault: SourceError, events: list[SourceEvent]) -> None:
        """Append buffered data and then the error. All later data of the stream is dropped."""
        self._flush(events)
        events.append(fault)
        self._over = True

    def _add_text(self, text: Any, events: list[SourceEvent]) -> None:
        """Append a piece of the answer. The provider may have cut it in mid-character."""
        if isinstance(text, str) and text and (text := self._text.join(text)):
            events.append(TextDelta(text))

    def _add_reasoning(self, text: Any, events: list[SourceEvent], signature: str | None = None) -> None:
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
                self._note_other_format(frame.event, None)
                events.append(bad_frame(str(error), bounded(frame.data[:800].decode(errors="replace"), 200)))
            return UNREADABLE

    def _decode_object(self, frame: Frame, events: list[SourceEvent]) -> dict[str, Any] | None:
        """Return the JSON object of a frame. For any other frame, append its events and return None.

        `[DONE]` is ignored, because gateways that support several formats send it in all of them.
        """
        try:
            return _decode_object(frame.data)
        except DECODE_ERRORS:
            value = UNREADABLE if frame.data.startswith(b"[DONE]") else self._decode(frame, events)
        if isinstance(value, dict):
            return value
        if value is not UNREADABLE:
            self._report_or_pass(frame, value, events)
        return None

    def _report_or_pass(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an error if the value has the shape of an error in any format. Forward any other value as `raw`."""
        first = value[0] if isinstance(value, list) and value else value
        known = first if isinstance(first, dict) else {}
        is_bare_error = not isinstance(known.get("type"), str) and known.get("error")
        is_error = "choices" not in known and "error" in (known.get("object"), known.get("type"))
        if frame.event == "error" or is_bare_error or is_error:
            self._report(value, events)
        else:
            self._pass_not_understood(frame, value, events)

    def _pass_not_understood(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Forward a value that is not understood. If it shows that the stream has another format, record this."""
        self._note_other_format(frame.event, value)
        self._pass_raw(value, events)

    def _note_other_format(self, event: str, value: Any) -> None:
        if self._other_format is None and not self._understood and (name := format_of(event, value)) != self.name:
            advice = f"`sources.{name}` reads this format" if name else advice_for_unsupported(value)
            self._other_format = describe_event(event, value), advice

    def _complete_response(
        self,
        reason: str | None,
        usage: Usage | None,
        events: list[SourceEvent],
        *,
        text: str = "",
        finish: FinishReason | None = None,
    ) -> None:
        """Append the end of the response.

        `reason` is the finish reason that the provider sent. `finish` is the normalized reason. If it is None, it is
        derived from `reason`. `text` is the whole text of the answer, if the provider repeats it at the end.
        """
        raw = None if reason is None else bounded(reason, 100)
        id, model = self._response_id, self._model
        finish = finish or finish_reason(raw)
        events.append(ProviderCompleted(text or None, None, finish, raw, usage, True, id, model))
        self._over = True

    def _report_usage(self, usage: Usage | None, events: list[SourceEvent]) -> None:
        """Append the usage, unless it is None or equal to the last usage."""
        if usage is not None and usage != self._usage:
            self._usage = usage
            events.append(SourceUsage(usage))

    def _name_response(self, id: Any, model: Any) -> None:
        """Record the provider's id of the response and its name of the model. Later values are ignored."""
        self._response_id = self._response_id or bounded_id(id)
        self._model = self._model or bounded_id(model)

    def _report(self, value: Any, events: list[SourceEvent]) -> None:
        """Append the error that `value` describes, such as the JSON object of an error event."""
        self._fail(read_fault(value), events)

    def _pass(self, event: SourceEvent, value: Any, events: list[SourceEvent]) -> None:
        """Append `event`. If its JSON `value` nests too deep to be serialized, append a warning instead."""
        events.append(event if fits(value, self._limits.depth) else bad_frame("it nests too deep"))

    def _pass_raw(self, value: Any, events: list[SourceEvent]) -> None:
        """Append a value as a `raw` event."""
        self._pass(SourceRaw(value), value, events)

    def _pass_item(self, value: Any, events: list[SourceEvent], about: Literal["item", "text"] = "item") -> None:
        """Append a `raw` event with a value that the next request must repeat. `about` is passed to `SourceRaw`."""
        self._pass(SourceRaw(value, self.format, about), value, events)

    def _new_key(self) -> str:
        """Return the key of the next call."""
        self._started += 1
        return str(self._started)

    def _open_call(self, calls: dict[Any, CallT], index: Any, call: CallT, events: list[SourceEvent]) -> bool:
        """Store `call` in `calls` under `index`, and return True. Append its start, unless the provider runs it.

        If too many calls are open, report the call as refused and return False.
        """
        if index not in calls and len(calls) >= self._limits.calls:
            call.refuse(events)
            return False
        calls[index] = call
        if not call.executed:
            call.start(events)
        return True


class PlainText(Adapter):
    """Converts strings into text events. None is accepted as an empty string: SDKs yield it for deltas without text.

    A stream of plain text has no terminator. If its iterable is exhausted, the turn is complete. If the iterable raises
    an exception, the stream was interrupted.
    """

    def __init__(self) -> None:
        self._text = PairJoiner()

    def take(self, item: object) -> list[SourceEvent]:
        if item is not None and not isinstance(item, str):
            raise UnreadableSource(f"expected a stream of strings, got an item of {type(item)!r}")
        text = self._text.join(item or "")
        return [TextDelta(text)] if text else []

    def close(self, cause: str | SourceError | None = None) -> list[SourceEvent]:
        if self._over:
            return []
        self._over = True
        rest = self._text.close()
        end = ProviderCompleted(finish_reason="stop") if cause is None else interrupted(cause)
        return [TextDelta(rest), end] if rest else [end]


class ReadyEvents(Adapter):
    """Forwards source events unchanged."""

    def take(self, item: object) -> list[SourceEvent]:
        if not isinstance(item, SOURCE_EVENTS):
            raise UnreadableSource(f"expected source events, such as TextDelta, got an item of {type(item)!r}")
        if self._over:
            return []
        event: SourceEvent = item  # type: ignore[assignment]  # mypy cannot see what `get_args` returns
        if isinstance(event, ProviderCompleted):
            self._over = event.ends_run
        elif isinstance(event, ChainCompleted | SourceError):
            self._over = True
        return [event]

    def close(self, cause: str | SourceError | None = None) -> list[SourceEvent]:
        if cause is None or self._over:
            return []
        self._over = True
        return [interrupted(cause)]


def interrupted(cause: str | SourceError) -> SourceError:
    """Return the error event for a transport that broke off. `cause` is described at `Adapter.close`."""
    if isinstance(cause, SourceError):
        return cause
    return SourceError("the connection to the provider was lost", Code.STREAM_INTERRUPTED, cause=cause)


# Sources.


class Source(AsyncIterator[list[SourceEvent]]):
    """Yields the source events of one stream, as one list per network chunk or SDK object. A list may be empty.

    This is a class and not an asynchronous generator, because a read may be cancelled, and another task may continue to
    read. A cancelled generator has ended for good, and this would look like the end of the stream.

    Failures of the transport become error events. An object that cannot be read raises `UnreadableSource`. After a
    cancelled read, the next read continues if the transport supports this.
    """

    def __init__(self, origin: object, adapter: Adapter) -> None:
        self._transport = Transport(origin)
        self._adapter = adapter
        adapter.content_type = self._transport.content_type
        self._read: Callable[[], Awaitable[Any]] | None = None  # None until the response is checked
        self._pace: ReadPace | None = None  # the pace that `_read` has; None before the first read and without a pace
        self._ended_by_cancel = False  # the last read was cancelled, and this has ended the transport
        self._over = False
        self._released = False
        self.raised_at: str | None = None
        """The file and line that raised the exception of the transport, for the log. None without an exception."""

    async def __anext__(self) -> list[SourceEvent]:
        if self._over:
            raise StopAsyncIteration
        try:
            if (read := self._read) is None:
                refusal = await self._transport.refusal(self._adapter.endpoint)
                if refusal is not None:
                    self._over = True
                    return [refusal]
                self._read = self._transport.read
                if (pace := current_pace.get()) is not None:
                    self._pace = pace
                    self._read = pace.open(self._transport.response, self._read)
                item = await anext(self._transport)
            else:
                item = await read()
        except StopAsyncIteration:
            if self._over:
                raise
            self._over = True
            return self._adapter.close("the read was cancelled" if self._ended_by_cancel else None)
        except Exception as error:
            if self._over:  # `aclose` was called during the read
                raise StopAsyncIteration from None
            self._over = True
            self.raised_at = loggable(error)["raised_at"]
            return _explain_timeout(error, self._adapter.close(raised_error(error) or name_of(error)))
        except BaseException:
            self._ended_by_cancel = self._transport.ends_when_cancelled
            raise
        self._ended_by_cancel = False
        try:
            return self._adapter.feed(item) if type(item) is bytes else self._adapter.take(item)
        except UnreadableSource:
            self._over = True
            raise

    @property
    def origin(self) -> tuple[str | None, str | None, str | None]:
        """The provider's message format, its host and its model.

        Each is None if it is unknown. A source does not know the model, so the third value is None.
        """
        return self._adapter.format, self._transport.host, None

    @property
    def url(self) -> str | None:
        """The host and path of the response's URL, or None."""
        return self._transport.url

    async def aclose(self) -> None:
        """Stop reading and close the response. May be called at any time, from any task, and repeatedly."""
        self._over = True
        if self._pace is not None:
            self._pace.close()
        if not self._released:
            await self._transport.aclose()
            self._released = True


_TIMEOUTS = {"ReadTimeout", "TimeoutError", "APITimeoutError"}
"""The class names of the read timeout exceptions of HTTP clients, Python and SDKs."""
_NO_DATA = "the provider sent no data for too long; to wait longer, increase the `timeout` of the HTTP client or model"


def _explain_timeout(error: Exception, events: list[SourceEvent]) -> list[SourceEvent]:
    """Return the last events of a stream. If `error` is a read timeout, the error event gets a message about it."""
    end = events[-1] if events else None
    if type(error).__name__ in _TIMEOUTS and type(end) is SourceError and end.cause == name_of(error):
        events[-1] = msgspec.structs.replace(end, message=_NO_DATA)
    return events
