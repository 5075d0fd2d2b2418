"""Server-sent events, written so that nothing in them can begin another event. Sans-IO.

Whoever controls a line end controls the stream: the text behind it would be a field, or an event, of its own. So names
and ids come from a fixed alphabet, and data is JSON on one line, in which everything that any reader might take for a
line end is escaped. Lines end in LF and never in CRLF, which not all clients understand.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from streamtools.events import whole_strings

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
"""How several protocols end; the one event whose data is no JSON."""

_name = re.compile(r"[A-Za-z0-9_.:-]{1,200}")
_LINE_ENDS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")  # a tab ends no line, and is white space of JSON
_SEPARATORS = (  # those that JSON lets stand unescaped in strings
    ("\x85".encode(), b"\\u0085"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
_encode = msgspec.json.Encoder().encode


def encode_event(
    data: bytes | str, *, event: str | None = None, id: str | int | None = None, retry: int | None = None
) -> bytes:
    """Return one event. `data` is one line of JSON; a control character or a line separator in it that is not escaped
    is. `retry` is in milliseconds.

    Raises ValueError for a name or an id that holds other characters than ASCII letters, digits, `_`, `.`, `:` and `-`,
    or more than 200 of them, and for a `retry` that is no natural number.
    """
    head = ""
    for field, value in (("event", event), ("id", id)):
        if value is not None:
            name = str(value)
            if not _name.fullmatch(name):
                raise ValueError(f"{field} is up to 200 ASCII letters, digits, '_', '.', ':' and '-', not {value!r}")
            head += f"{field}: {name}\n"
    if retry is not None:
        if not isinstance(retry, int) or retry < 0:
            raise ValueError(f"retry is a number of milliseconds, not {retry!r}")
        head += f"retry: {retry:d}\n"
    return b"%bdata: %b\n\n" % (head.encode(), _on_one_line(data))


def comment(text: str) -> bytes:
    """Return a comment, which clients ignore."""
    return b": %b\n\n" % _on_one_line(text)


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


def _on_one_line(text: bytes | str) -> bytes:
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    text = _LINE_ENDS.sub(_escape, text)
    return text.encode() if text.isascii() else whole_strings(text).encode()


def _escape(found: re.Match[str]) -> str:
    return {"\n": "\\n", "\r": "\\r"}.get(found[0], f"\\u{ord(found[0]):04x}")
