"""Make foreign text safe for a terminal.

A model can be made to write escape sequences that rename the window, hide text, type into the shell, or reverse the
reading order. Control characters are replaced by visible symbols, so that the user sees what was sent. Line feeds and
tabs stay.
"""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Printable:
    """Makes a stream of texts printable. A carriage return before a line feed belongs to the line end.

    >>> text = Printable()
    >>> text.feed("red: \\x1b[31m\\r"), text.feed("\\nnext"), text.close()
    ('red: ␛[31m', '\\nnext', '')
    """

    def __init__(self) -> None:
        self._pending = ""  # a carriage return that a line feed may follow

    def feed(self, text: str) -> str:
        """Return the text that can be printed now."""
        text = self._pending + text
        self._pending = "\r" if text.endswith("\r") else ""
        return printable(text[:-1] if self._pending else text)

    def close(self) -> str:
        """Return the pending text."""
        pending, self._pending = self._pending, ""
        return printable(pending)


def printable(text: str) -> str:
    """Return `text` with symbols in place of control characters."""
    return _CONTROL.sub(_symbol, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return `text` printable and on one line, with single spaces."""
    return printable(" ".join(text.split()))


def crop(text: str, length: int) -> str:
    """Return `text`, cut to `length` characters with an ellipsis if it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
