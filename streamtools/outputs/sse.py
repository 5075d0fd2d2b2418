"""Defines the interface of all encoders, and writes server-sent events, the native format and plain text. Sans-IO.

An encoder converts UI events to the bytes of one response. The server sends the `headers` of the encoder, then the
result of `encode` for each event, and finally the result of `close`. Some clients fail if a message, a call or a step
has no end. So the encoder closes open items: `encode(done)` ends the body according to the reason in `done`, and
`close` ends a body without `done`.

A line break in the data of an event would start another field or another event, so text of the model could insert
events. To prevent this, data with text of the model is JSON on one line. Every character that a client might
read as a line break is escaped. Lines end with LF, because some clients do not support CRLF.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from streamtools.errors import ChecksArguments, ClosedError
from streamtools.events import UI_EVENTS, Done, StepStart, Text, UIEvent, join_deltas
from streamtools.json_values import well_formed, write_json


class Encoder(Protocol):
    """Writes the events of one run for one client. The properties may be plain attributes.

    Set the attribute `replaces = True` if the format can report that a step is superseded.
    """

    @property
    def content_type(self) -> str:
        """The content type of the response."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response other than the content type. Their names are in lower case."""

    @property
    def keep_alive(self) -> bytes:
        """Bytes that clients ignore. The server sends them when no event arrives, so that proxies keep the connection.

        They are `b""` if the format has no such bytes.
        """

    @property
    def resumable(self) -> bool:
        """Whether a client that reconnects can continue after the last event that it received.

        If True, the bytes of an event contain its `seq` and do not depend on other events. If False, a client that
        reconnects needs all events from the start.
        """

    def encode(self, event: UIEvent) -> bytes:
        """Return the bytes for `event`, which may be `b""`. The bytes for `done` complete the body.

        Raises `ClosedError` after `done` and after `close`.
        """

    def close(self) -> bytes:
        """Return the bytes that end a body without `done`. Returns `b""` if the body has already ended."""


def closed_error() -> ClosedError:
    return ClosedError("The body has ended. Make a new encoder for another response.")


EVENT_STREAM = "text/event-stream"
EVENT_STREAM_HEADERS: Mapping[str, str] = MappingProxyType({"cache-control": "no-cache", "x-accel-buffering": "no"})
"""Headers that prevent proxies from caching or buffering the events."""

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
"""The last event of several protocols. It is the only event whose data is not JSON."""


class StreamEncoder(ChecksArguments):
    """The base of encoders whose bytes depend on earlier events. By default, they are server-sent events."""

    content_type: str = EVENT_STREAM
    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    keep_alive: bytes = KEEP_ALIVE
    resumable: bool = False


HIDDEN = ("follow-up",)
"""Event types that are excluded by default."""

_LINE_SEPARATORS = (  # JSON allows these characters unescaped in strings
    ("\x85".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """Return an event without a name. Its data is `value` as JSON."""
    return b"data: %b\n\n" % to_json(value)


def encode_part(type: str, **members: Any) -> bytes:
    """Return an event with the JSON object `{"type": type, **members}`. Fields with the value None are omitted."""
    return encode_json({"type": type} | present(**members))


def to_json(value: Any) -> bytes:
    """Return `value` as JSON on one line. Characters that a client might read as a line break are escaped.

    A lone surrogate becomes U+FFFD, because UTF-8 cannot encode it.
    """
    try:
        written = _encode(value)
    except UnicodeEncodeError:
        written = write_json(value)
    if not written.isascii() and (b"\xe2\x80" in written or b"\xc2\x85" in written):  # bytes of the separators
        for separator, escaped in _LINE_SEPARATORS:
            written = written.replace(separator, escaped)
    return written


def present(**members: Any) -> dict[str, Any]:
    """Return the `members` that are not None, because the protocols omit fields without a value."""
    return {name: value for name, value in members.items() if value is not None}


# The native format.


Framing: TypeAlias = Literal["sse", "ndjson"]


class NativeEncoder(ChecksArguments):
    """Writes UI events as JSON.

    The bytes of an event do not depend on other events. If a body ends without `done`, the client may reconnect with
    the `seq` of the last event that it received, in the header `Last-Event-ID`. So `close` writes nothing.

    With `framing="sse"`, each event is a server-sent event: its name is the type of the event, and its id is the `seq`.
    With `"ndjson"`, each event is one line. `exclude` names event types that are not sent. The default is `follow-up`,
    whose events contain messages for the model. Raises ValueError for an invalid value, and if `exclude` names `done`.
    """

    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    resumable = True
    replaces = True

    def __init__(self, *, framing: Framing = "sse", exclude: Collection[str] = HIDDEN) -> None:
        self.framing: Framing = framing
        self.is_sse = framing == "sse"
        self.excluded = frozenset(read_exclude(exclude))
        self.content_type = EVENT_STREAM if self.is_sse else "application/x-ndjson"
        self.keep_alive = KEEP_ALIVE if self.is_sse else b""
        sent = [kind for kind in UI_EVENTS if kind.type not in self.excluded]
        self._name_lines = {kind: f"event: {kind.type}\n".encode() for kind in sent}
        self._ended = False

    def encode(self, event: UIEvent) -> bytes:
        """Return the frame of `event`, or `b""` if its type is excluded."""
        if self._ended:
            raise closed_error()
        name_line = self._name_lines.get(type(event))
        if name_line is None:
            return b""
        if type(event) is Done:
            self._ended = True
        json = to_json(event)
        if not self.is_sse:
            return json + b"\n"
        if event.seq:
            return b"%bid: %d\ndata: %b\n\n" % (name_line, event.seq, json)
        return b"%bdata: %b\n\n" % (name_line, json)

    def close(self) -> bytes:
        """End the body. Returns `b""`, because a client may reconnect and receive the other events."""
        self._ended = True
        return b""


def read_exclude(exclude: Collection[str]) -> set[str]:
    """Return `exclude` as a set. Raises ValueError for an unknown event type and for `done`."""
    excluded = {exclude} if isinstance(exclude, str) else set(exclude)
    unknown = excluded - {kind.type for kind in UI_EVENTS if kind is not Done}
    if unknown:
        raise ValueError(f"`exclude` must name event types other than 'done', got {sorted(unknown)}.")
    return excluded


def encode(encoder: Encoder, events: Iterable[UIEvent], *, joins: bool) -> bytes:
    """Return the bytes that `encoder` writes for `events`. With `joins`, adjacent deltas are joined first."""
    return b"".join(map(encoder.encode, join_deltas(events) if joins else events))


class TextEncoder(StreamEncoder):
    """Writes only the text of the answer, in UTF-8. Blank lines separate the texts of steps."""

    content_type = "text/plain; charset=utf-8"
    keep_alive = b""

    def __init__(self) -> None:
        self._has_text = False
        self._needs_separator = False
        self._ended = False

    def encode(self, event: UIEvent) -> bytes:
        """Return the text of `event`, or `b""` if it has none."""
        if self._ended:
            raise closed_error()
        match event:
            case Text(text) if text:
                separator = "\n\n" if self._needs_separator else ""
                self._has_text, self._needs_separator = True, False
                return well_formed(separator + text).encode()
            case StepStart():
                self._needs_separator = self._has_text
            case Done():
                self._ended = True
        return b""

    def close(self) -> bytes:
        """End the body. Returns `b""`, because plain text has no end mark."""
        self._ended = True
        return b""
