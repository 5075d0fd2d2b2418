"""The native format: UI events as JSON, as named and numbered server-sent events or one per line. Sans-IO.

The bytes of an event depend on that event alone. A body without `done` has not ended: its reader may reconnect with the
`seq` of the last event that it saw (`Last-Event-ID`). So `close` adds nothing, because only the run knows how it ends.

The messages of a `follow-up` are for the model, and include what a tool shows to the model alone
(`ToolResult(model=…)`). So a reader gets them only if `exclude` does not name them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from streamtools.errors import check_word
from streamtools.events import UI_EVENTS, Done, UIEvent
from streamtools.outputs.encoder import Encoder, closed_error
from streamtools.outputs.sse import EVENT_STREAM, EVENT_STREAM_HEADERS, KEEP_ALIVE, escape_separators

HIDDEN = ("follow-up",)
"""Types of events that a reader gets only on request."""

_EVENT_FIELDS = {kind: f"event: {kind.type}\n".encode() for kind in UI_EVENTS}
_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=32)
def _first_lines(is_sse: bool, excluded: frozenset[str]) -> Mapping[type, bytes]:
    """Return the first line of each event type that is sent."""
    return {kind: _EVENT_FIELDS[kind] if is_sse else b"" for kind in UI_EVENTS if kind.type not in excluded}


class NativeEncoder:
    """Writes the events themselves, as JSON.

    `framing` is `"sse"`, where each event has its type as its name and its `seq` as its id, or `"ndjson"`, one line per
    event. `exclude` names types of events that the reader does not get, by default `follow-up`, which holds messages
    for the model. Raises ValueError for a value that is not allowed, and for the exclusion of `done`.
    """

    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    resumable = True
    replaces = True

    def __init__(self, *, framing: Literal["sse", "ndjson"] = "sse", exclude: Collection[str] = HIDDEN) -> None:
        check_word("framing", framing, ("sse", "ndjson"))
        self.is_sse = framing == "sse"
        self.excluded = frozenset(read_exclude(exclude))
        self.content_type = EVENT_STREAM if self.is_sse else "application/x-ndjson"
        self.keep_alive = KEEP_ALIVE if self.is_sse else b""
        self._first_lines = _first_lines(self.is_sse, self.excluded)
        self._ended = False

    def encode(self, event: UIEvent) -> bytes:
        """Return the frame of `event`, or `b""` if it is excluded."""
        if self._ended:
            raise closed_error()
        first_line = self._first_lines.get(type(event))
        if first_line is None:
            return b""
        if type(event) is Done:
            self._ended = True
        try:
            json = _encode(event)
        except UnicodeEncodeError:  # a lone surrogate
            json = event.to_json().encode()
        if not json.isascii():
            json = escape_separators(json)
        if not self.is_sse:
            return json + b"\n"
        if event.seq:
            return b"%bid: %d\ndata: %b\n\n" % (first_line, event.seq, json)
        return b"%bdata: %b\n\n" % (first_line, json)

    def close(self) -> bytes:
        """Return nothing: see the module."""
        self._ended = True
        return b""


def read_exclude(exclude: Collection[str]) -> set[str]:
    """Return the event types in `exclude`. Raises ValueError for an unknown type and for `done`."""
    excluded = {exclude} if isinstance(exclude, str) else set(exclude)
    unknown = excluded - {kind.type for kind in UI_EVENTS if kind is not Done}
    if unknown:
        raise ValueError(f"`exclude` must name event types other than 'done', got {sorted(unknown)}.")
    return excluded


class SharedFrames:
    """The batches that the readers of one run encoded last, so that a batch is encoded once for all of them.

    Only the native format is shared: the bytes of the other formats depend on earlier events.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[bool, frozenset[str]], tuple[Sequence[UIEvent], bytes]] = {}

    def encode(self, encoder: Encoder, events: Sequence[UIEvent]) -> bytes:
        """Return the bytes of `events`, which are not empty, as `encoder` writes them."""
        if type(encoder) is not NativeEncoder:
            return b"".join(map(encoder.encode, events))
        key = encoder.is_sse, encoder.excluded
        known, data = self._last.get(key, ((), b""))
        if len(known) == len(events) and known[0] is events[0] and known[-1] is events[-1]:
            return data
        data = b"".join(map(encoder.encode, events))
        self._last[key] = events, data
        return data
