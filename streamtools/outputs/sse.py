"""JSON as server-sent events, in which no text can start another event. Sans-IO.

In an event, text after a line break would be another field or another event, so a line break in data would let its
author control the stream. All data is therefore JSON on one line, with every character escaped that a reader might take
for a line break. Lines end with LF, because some clients do not understand CRLF.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from streamtools.json_values import writable

EVENT_STREAM = "text/event-stream"
EVENT_STREAM_HEADERS: Mapping[str, str] = MappingProxyType({"cache-control": "no-cache", "x-accel-buffering": "no"})
"""Headers that keep proxies from caching and buffering the events."""

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
"""The end of the stream in several protocols; the only event whose data is not JSON."""

_LINE_SEPARATORS = (  # JSON allows them unescaped in strings
    ("\x85".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_encode = msgspec.json.Encoder().encode


def encode_json(value: Any) -> bytes:
    """Return an event without a name, whose data is the JSON of `value`."""
    return b"data: %b\n\n" % to_json(value)


def encode_part(type: str, **members: Any) -> bytes:
    """Return an event with an object of this `type`. Members that are None are omitted."""
    return encode_json({"type": type} | present(**members))


def to_json(value: Any) -> bytes:
    """Return the JSON of `value` on one line, without white space and without characters that could end a line.

    A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD.
    """
    try:
        written = _encode(value)
    except UnicodeEncodeError:
        written = _encode(writable(msgspec.to_builtins(value)))
    return written if written.isascii() else escape_separators(written)


def escape_separators(json: bytes) -> bytes:
    """Return JSON with the line separators in its strings escaped."""
    if b"\xe2\x80" not in json and b"\xc2\x85" not in json:  # the first bytes of all three in UTF-8
        return json
    for separator, escaped in _LINE_SEPARATORS:
        json = json.replace(separator, escaped)
    return json


def present(**members: Any) -> dict[str, Any]:
    """Return the `members` that are not None: protocols omit absent members."""
    return {name: value for name, value in members.items() if value is not None}
