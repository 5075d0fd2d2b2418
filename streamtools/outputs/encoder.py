"""What all encoders share: UI events in, the bytes of a response out. Sans-IO.

An encoder serves one response. It knows no connection and no server: the server sends its `headers`, then what `encode`
returns for each event, and what `close` returns at the end. Front ends that rely on an end of everything that begins
get it in any case: `done` ends the body as the run ended, and `close` ends a body whose `done` never came.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, Protocol

import msgspec

from streamtools.errors import ClosedError, check_word
from streamtools.events import UI_EVENTS, Done, UIEvent
from streamtools.json_values import writable

EVENT_STREAM = "text/event-stream"
EVENT_STREAM_HEADERS: Mapping[str, str] = MappingProxyType({"cache-control": "no-cache", "x-accel-buffering": "no"})
"""Headers for proxies, which must neither cache nor buffer server-sent events."""


class Encoder(Protocol):
    """Writes the events of one run for one reader. What is a property here may be a plain attribute.

    One with `replaces = True` can tell its reader that a step is superseded.
    """

    @property
    def content_type(self) -> str:
        """The content type of the response."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The other headers that the protocol asks for, with names in lower case."""

    @property
    def keep_alive(self) -> bytes:
        """What may be sent while nothing happens, so that no proxy gives up; `b""` where the format has nothing. It may
        stand between any two events.
        """

    @property
    def resumable(self) -> bool:
        """Whether each event carries its `seq` and is written as if it were the only one, so that a reader may go on
        behind the last event that it saw. Where False, one that comes back needs all events from the start.
        """

    def encode(self, event: UIEvent) -> bytes:
        """Return what goes out for `event`, `b""` where the format has nothing for it; `done` completes the body.

        Raises `ClosedError` behind `done` and behind `close`.
        """

    def close(self) -> bytes:
        """Return what ends the body, truthfully, of a run that did not come to its `done`; `b""` once it has ended."""


def closed_error() -> ClosedError:
    return ClosedError("the body has ended; another response needs another encoder")


# Server-sent events, written so that nothing in them can begin another event. Sans-IO.
#
# Text behind a line end would be a field, or an event, of its own, so a line end in data would let its author control
# the stream. Data is therefore JSON on one line, in which everything that any reader might take for a line end is
# escaped; where an event has a name and an id, the name is that of a type of ours and the id a number. Lines end in LF
# and never in CRLF, which not all clients understand.

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
"""How several protocols end; the one event whose data is no JSON."""

_SEPARATORS = (  # those that JSON lets stand unescaped in strings
    ("\x85".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """Return one event without a name, whose data is the JSON of `value`."""
    return b"data: %b\n\n" % to_json(value)


def encode_part(type: str, **members: Any) -> bytes:
    """Return one event of a type, without those of its members that are None."""
    return encode_json({"type": type} | present(**members))


def to_json(value: Any) -> bytes:
    """Return the JSON of `value` in one line, without white space, and without any character that could end a line.

    Half a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD.
    """
    try:
        written = _encode(value)
    except UnicodeEncodeError:
        written = _encode(writable(msgspec.to_builtins(value)))
    return written if written.isascii() else escape_separators(written)


def escape_separators(json: bytes) -> bytes:
    """Return JSON with the line separators in its strings escaped."""
    if b"\xe2\x80" not in json and b"\xc2\x85" not in json:  # in UTF-8, two of them begin as much else does
        return json
    for separator, escaped in _SEPARATORS:
        if separator in json:
            json = json.replace(separator, escaped)
    return json


def present(**members: Any) -> dict[str, Any]:
    """Return those of `members` that are not None: protocols leave out what is absent."""
    return {name: value for name, value in members.items() if value is not None}


# The events themselves: JSON over server-sent events, named and numbered, or one a line. Sans-IO.
#
# What goes out for an event depends on nothing but that event. A body that has no `done` has not ended: its reader may
# come back with the `seq` of the last event that it saw (`Last-Event-ID`). So `close` adds nothing: only the run
# itself knows how it ends.
#
# The messages of a `follow-up` are for the model, and hold what a tool gives to the model alone
# (`ToolResult(model=…)`). So a reader gets them only if `exclude` does not name them.

HIDDEN = ("follow-up",)
"""Types of events that readers get only on request."""

_HEADINGS = {kind: f"event: {kind.type}\n".encode() for kind in UI_EVENTS}


@lru_cache(maxsize=32)
def _headings(sse: bool, excluded: frozenset[str]) -> Mapping[type, bytes]:
    """Return what each event begins with; made once, and not for each response."""
    return {kind: _HEADINGS[kind] if sse else b"" for kind in UI_EVENTS if kind.type not in excluded}


class NativeEncoder:
    """Writes the events themselves, as JSON.

    `framing` is `"sse"`, where each event carries its type as name and its `seq` as id, or `"ndjson"`, one line each.
    `exclude` names types of events that the reader does not get: by default `follow-up`, which holds what the model is
    given. Raises ValueError for a value that is not allowed, and for the exclusion of `done`, which says that the run
    has ended.
    """

    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    resumable = True
    replaces = True

    def __init__(self, *, framing: Literal["sse", "ndjson"] = "sse", exclude: Collection[str] = HIDDEN) -> None:
        check_word("framing", framing, ("sse", "ndjson"))
        excluded = read_exclude(exclude)
        sse = framing == "sse"
        self.content_type = EVENT_STREAM if sse else "application/x-ndjson"
        self.keep_alive = KEEP_ALIVE if sse else b""
        self._heading = _headings(sse, frozenset(excluded))
        self._lines = not sse
        self._ended = False

    def encode(self, event: UIEvent) -> bytes:
        """Return the frame of `event`, or `b""` if it is excluded."""
        if self._ended:
            raise closed_error()
        kind = type(event)
        head = self._heading.get(kind)
        if head is None:
            return b""
        if kind is Done:
            self._ended = True
        try:
            json = _encode(event)
        except UnicodeEncodeError:  # half a surrogate pair
            json = event.to_json().encode()
        if not json.isascii():
            json = escape_separators(json)
        if self._lines:
            return json + b"\n"
        if event.seq:
            return b"%bid: %d\ndata: %b\n\n" % (head, event.seq, json)
        return b"%bdata: %b\n\n" % (head, json)

    def close(self) -> bytes:
        """Return nothing, always: see the module."""
        self._ended = True
        return b""


def read_exclude(exclude: Collection[str]) -> set[str]:
    """Return the types that `exclude` names. Raises ValueError for one that does not exist, and for `done`."""
    excluded = {exclude} if isinstance(exclude, str) else set(exclude)
    unknown = excluded - {kind.type for kind in UI_EVENTS if kind is not Done}
    if unknown:
        raise ValueError(f"exclude names types of events, other than 'done', and not {sorted(unknown)}")
    return excluded
