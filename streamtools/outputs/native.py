"""The events themselves: JSON over server-sent events, named and numbered, or one a line. Sans-IO.

What goes out for an event depends on nothing but that event. A body that has no `done` has not ended: its reader may
come back with the `seq` of the last event that it saw (`Last-Event-ID`). So `close` adds nothing: only the run itself
knows how it ends.

The messages of a `follow-up` are the model's, what a tool tells it alone among them (`ToolResult(model=…)`). So a
reader gets them only if `exclude` does not name them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from streamtools.events import UI_EVENTS, Done, UIEvent
from streamtools.outputs.encoder import EVENT_STREAM, EVENT_STREAM_HEADERS, closed_error
from streamtools.outputs.sse import KEEP_ALIVE, escape_separators

HIDDEN = ("follow-up",)
"""Types of events that readers get only if somebody says so."""

_encode = msgspec.json.Encoder().encode
_HEADS = {kind: f"event: {kind.type}\n".encode() for kind in UI_EVENTS}


class NativeEncoder:
    """Writes each event as `event.to_json()` does; `framing` is `"sse"`, or `"ndjson"` for one line each.

    `exclude` names types of events that the reader does not get, by default `follow-up`, which holds what the model is
    told. Raises ValueError for a framing or a type that does not exist, and for the exclusion of `done`, which tells
    that the run has ended.
    """

    resumable = True

    def __init__(self, *, framing: Literal["sse", "ndjson"] = "sse", exclude: Collection[str] = HIDDEN) -> None:
        if framing not in ("sse", "ndjson"):
            raise ValueError(f"framing is 'sse' or 'ndjson', not {framing!r}")
        excluded = read_exclude(exclude)
        sse = framing == "sse"
        self.content_type = EVENT_STREAM if sse else "application/x-ndjson"
        self.headers: Mapping[str, str] = EVENT_STREAM_HEADERS
        self.keep_alive = KEEP_ALIVE if sse else b""
        self._heads = {kind: _HEADS[kind] if sse else b"" for kind in UI_EVENTS if kind.type not in excluded}
        self._lines = not sse
        self._ended = False

    def encode(self, event: UIEvent) -> bytes:
        """Return the frame of `event`, or `b""` if it is excluded."""
        if self._ended:
            raise closed_error()
        kind = type(event)
        head = self._heads.get(kind)
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
