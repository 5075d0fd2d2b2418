"""Text of others on a terminal: every character is shown, and none is obeyed.

A model can be made to write escape sequences that rename the window, hide text or type into the shell. Control
characters are replaced with pictures of themselves, so that one sees what was sent; line feeds and tabs stay.
"""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Printable:
    """Makes a stream of texts printable. A carriage return before a line feed is part of the line's end.

    >>> text = Printable()
    >>> text.feed("red: \\x1b[31m\\r"), text.feed("\\nnext"), text.close()
    ('red: ␛[31m', '\\nnext', '')
    """

    def __init__(self) -> None:
        self._held = ""  # a carriage return whose line feed may be yet to come

    def feed(self, text: str) -> str:
        """Return what can be printed now."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return printable(text[:-1] if self._held else text)

    def close(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return printable(held)


def printable(text: str) -> str:
    """Return `text` with pictures in place of its control characters."""
    return _CONTROL.sub(_picture, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return `text` printable and on one line, with single spaces."""
    return printable(" ".join(text.split()))


def crop(text: str, length: int) -> str:
    """Return `text`, or its beginning and an ellipsis if it is longer than `length` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\x{code:02x}" if code < 0x100 else "\ufffd"
