"""Writes JSON as server-sent events. Sans-IO.

A line break in the data of an event would start another field or another event, so text of the model could insert
events. To prevent this, all data is JSON on one line, with all characters escaped that a client might read as a line
break. Lines end with LF, because some clients do not support CRLF.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from streamtools.json_values import writable

EVENT_STREAM = "text/event-stream"
EVENT_STREAM_HEADERS: Mapping[str, str] = MappingProxyType({"cache-control": "no-cache", "x-accel-buffering": "no"})
"""Headers that prevent proxies from caching or buffering the events."""

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
"""The last event of several protocols. It is the only event whose data is not JSON."""

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
        written = _encode(writable(msgspec.to_builtins(value)))
    if not written.isascii() and (b"\xe2\x80" in written or b"\xc2\x85" in written):  # bytes of the separators
        for separator, escaped in _LINE_SEPARATORS:
            written = written.replace(separator, escaped)
    return written


def present(**members: Any) -> dict[str, Any]:
    """Return the `members` that are not None, because the protocols omit fields without a value."""
    return {name: value for name, value in members.items() if value is not None}
