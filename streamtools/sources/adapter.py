"""What all adapters share: the bytes of one provider's stream in, source events out. Sans-IO.

An adapter is total: whatever the bytes are, it raises nothing. What it cannot decode is a warning and the stream goes
on; what it does not understand passes as `raw`; and once it has reported an error, or the format's own sentinel has
come, the rest of the stream means nothing any more and is dropped, so that no success follows an error.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from streamtools.errors import Code, UnreadableSource
from streamtools.events import (
    NativeToolCall,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceWarning,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from streamtools.json_values import fits, whole
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.frames import Frame, Framed, LineDecoder, Skipped, SSEDecoder, as_frame
from streamtools.sources.provider_terms import Fault, bounded, read_fault

REFUSED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for JSON that it does not read, and for JSON that has another shape than the one asked for."""

UNREADABLE = msgspec.UNSET
"""Stands for the value of a frame that has none; JSON has no value that is equal to it."""

_T = TypeVar("_T")
CallT = TypeVar("CallT", bound="OpenCall")
_SHAPED = 6
"""Levels of an event that a struct may describe; below them everything is taken as it came."""


class Pairs:
    """The text of one channel, whose surrogate pairs a provider may cut in two.

    JSON writes a character beyond U+FFFF as two escapes, and a server that streams token by token may send them in two
    deltas. A `half` is no text: it waits here for its other half, and becomes U+FFFD if that does not come.
    """

    __slots__ = ("half",)

    def __init__(self) -> None:
        self.half = ""

    def join(self, text: str) -> str:
        """Return `text` as what UTF-8 can hold, with the half that waited before it and without one at its end."""
        if not self.half and text.isascii():
            return text
        text = self.half + text
        self.half = ""
        if "\ud800" <= text[-1] <= "\udbff":
            self.half = text[-1]
            text = text[:-1]
        return whole(text)

    def close(self) -> str:
        """Return what is left: U+FFFD for a half that waited in vain, else nothing."""
        left, self.half = self.half and "\ufffd", ""
        return left


class OpenCall:
    """A native call that is being streamed: it starts, grows and ends, and each of these is an event."""

    __slots__ = ("executed", "fault", "given", "id", "key", "name", "own", "pairs", "signature")

    def __init__(
        self, key: str, id: str | None = None, name: str | None = None, given: Any = None, signature: str | None = None
    ) -> None:
        self.key = key
        self.id = id
        self.name = name
        self.given = given  # the arguments, where they come whole
        self.signature = signature
        self.own: dict[str, Any] | None = None  # what goes back beside it, by the format of the provider's messages
        self.executed = False  # the provider runs the tool itself
        self.fault: Code | None = None  # a piece could not be read, and without it the call says something else
        self.pairs = Pairs()

    def start(self, events: list[SourceEvent]) -> None:
        """Append that the call begins, or what more is known of it now."""
        events.append(ToolCallStart(self.key, self.id, self.name))

    def add(self, text: str, events: list[SourceEvent]) -> None:
        """Append a piece of the arguments, which may be cut in mid-character."""
        if text := self.pairs.join(text) if text else "":
            events.append(ToolCallDelta(self.key, text))

    def end(self, given: Any, events: list[SourceEvent], fault: Code | None = None) -> None:
        """Append the end; `given` are arguments that came whole."""
        fault = self.fault or fault
        made = NativeToolCall(
            self.key, self.name, given, self.id, self.executed, self.signature, fault=fault, own=self.own
        )
        events.append(made)

    def refuse(self, events: list[SourceEvent]) -> None:
        """Append the beginning and the end of a call that begins while as many are open as a turn may have.

        It is not kept: each piece that nobody can read costs a look at all calls that are open.
        """
        if not self.executed:  # which is nobody's to run, and only ends
            self.start(events)
        self.end(None, events, Code.TOO_MANY_CALLS)


def end_doubtful(calls: dict[Any, CallT], place: object, events: list[SourceEvent]) -> None:
    """End those of the open `calls` that a piece may belong to which nobody can read: without it they say something
    else. These are the one in its place, or all of them where it, or they, have none; what has no key is no call.
    """
    for at in [*calls] if place is None else (None, place):
        if at in calls and calls[at].key:
            calls.pop(at).end(None, events, Code.INVALID_ARGUMENTS)


class Adapter(ABC):
    """Makes source events of what a transport yields, one item at a time."""

    format: str | None = None
    """That of the messages of its provider, where a history has one."""
    _over = False  # nothing that comes now counts

    @property
    def ended(self) -> bool:
        """Whether the terminator or an error has come, so that it no longer matters how the transport ends."""
        return self._over

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

    _who: tuple[str | None, str | None] | None = None  # what the first frame said of the response, where that tells it

    def __init__(self, frames: SSEDecoder | LineDecoder, limits: Limits = DEFAULT_LIMITS) -> None:
        self._frames = frames
        self._limits = limits
        self._over = False  # again, because each frame asks for it, and an attribute of the object is found sooner
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
        if type(item) is not bytes:
            return self._take_other(item)
        events: list[SourceEvent] = []  # as `feed` does it, at the cost of two calls less for each chunk
        for frame in self._frames.feed(item):
            if type(frame) is Frame and not self._over:
                self._read(frame, events)
            else:
                self._pass_over(frame, events)
        return events

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
            self._fail(error, events)
        return events

    @abstractmethod
    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        """Append what `frame` means to `events`."""

    def _end(self, events: list[SourceEvent]) -> None:
        """Append what the end of the transport means, which came before a sentinel and without an error."""
        self._flush(events)

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
                events.append(_bad_frame(str(error), bounded(frame.data[:800].decode(errors="replace"), 200)))
            return UNREADABLE

    def _convert(
        self, frame: Frame, shape: type[_T], events: list[SourceEvent], mend: Callable[[Any], Any] | None = None
    ) -> _T | None:
        """Return a frame that msgspec refuses in `shape`, once it has been mended; where there is no object, append
        what that means and return None. A `[DONE]` is of gateways that speak several formats, and means nothing.
        """
        value = UNREADABLE if frame.data.startswith(b"[DONE]") else self._decode(frame, events)
        if isinstance(value, dict):
            return convert(mend(value) if mend else value, shape)
        if value is not UNREADABLE:
            self._pass_unknown(frame, value, events)
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
            self._pass_raw(value, events)

    def _report(self, value: Any, events: list[SourceEvent]) -> None:
        self._fail(read_fault(value), events)

    def _pass_over(self, frame: Framed, events: list[SourceEvent]) -> None:
        if type(frame) is Skipped and not self._over:
            message = f"an event of {frame.count} bytes is over the limit of {self._limits.frame}; it was skipped"
            events.append(SourceWarning(Code.SKIPPED, message, count=frame.count))

    def _pass_raw(self, value: Any, events: list[SourceEvent]) -> None:
        """Append what was not understood, unless it nests so deep that writing it as JSON again might fail."""
        events.append(SourceRaw(value) if fits(value, self._limits.depth) else _bad_frame("it nests too deep", ""))

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


class _Who(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    response_id: str | None = msgspec.field(default=None, name="responseId")
    model_version: str | None = msgspec.field(default=None, name="modelVersion")


def identify(data: bytes) -> tuple[str | None, str | None]:
    """Return the id of the response and its model, as far as a frame tells them in the terms of OpenAI or Gemini."""
    try:
        who = msgspec.json.decode(data, type=_Who)
    except REFUSED:
        return None, None
    return who.id or who.response_id or None, who.model or who.model_version or None


def without_strays(value: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return an object without those of the members `names` that are none: the shape wants them to be objects."""
    return {name: each for name, each in value.items() if name not in names or isinstance(each, dict)}


def _with_whole_keys(value: Any, levels: int) -> Any:
    if levels == 0:
        return value
    if isinstance(value, dict):
        return {whole(key): _with_whole_keys(each, levels - 1) for key, each in value.items()}
    return [_with_whole_keys(each, levels - 1) for each in value] if isinstance(value, list) else value


def _bad_frame(why: str, raw: str) -> SourceWarning:
    return SourceWarning(Code.BAD_FRAME, f"an event could not be decoded: {bounded(why, 200)}", raw=raw or None)
