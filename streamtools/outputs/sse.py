"""Server-sent events, written so that nothing in them can begin another event. Sans-IO.

Whoever controls a line end controls the stream: the text behind it would be a field, or an event, of its own. So data
is JSON on one line, in which everything that any reader might take for a line end is escaped; and where an event has a
name and an id, the name is that of a type of ours and the id a number. Lines end in LF and never in CRLF, which not all
clients understand.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.surrogates import whole_strings

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


def to_json(value: Any) -> bytes:
    """Return the JSON of `value` in one line, without white space, and without any character that could end a line.

    Half a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD.
    """
    try:
        written = _encode(value)
    except UnicodeEncodeError:
        written = _encode(whole_strings(msgspec.to_builtins(value)))
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
    """Return those of `members` that are not None: protocols tell what is absent by its absence."""
    return {name: value for name, value in members.items() if value is not None}
