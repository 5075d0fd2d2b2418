"""Reads that pause for more text.

A grammar is a generator: straight-line code that reads what comes next and yields where the text does not suffice. Its
position is the whole of its state, so a new dialect is a few lines, and the end of the stream is one flag that every
read sees. What has been read is never looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import cast

from streamtools.parsing.markers import Pattern


def matcher(pattern: str) -> Callable[[str, int], re.Match[str]]:
    """Return what matches `pattern` at a place; the pattern matches nothing, too, so that there always is a match."""
    match = re.compile(pattern, re.DOTALL).match
    assert match("") is not None
    return cast("Callable[[str, int], re.Match[str]]", match)


_space = matcher(r"[ \t\r\n]*")


class Reader:
    """The text of one span that its grammar has still to read: `text` from `at` on."""

    __slots__ = ("at", "base", "ended", "text")

    def __init__(self, text: str, at: int, *, ended: bool) -> None:
        self.text = text
        self.at = at
        self.base = 0  # how much of the span comes before `text`
        self.ended = ended  # no more text will come

    @property
    def place(self) -> int:
        """How much of the span has been read."""
        return self.base + self.at

    def peek(self) -> Generator[None, None, str]:
        """Skip white space; return the next character, which is not read yet, or "" at the end of the stream."""
        while True:
            self.at = _space(self.text, self.at).end()
            if self.at < len(self.text):
                return self.text[self.at]
            if self.ended:
                return ""
            yield

    def accept(self, pattern: Pattern) -> Generator[None, None, bool]:
        """Read what `pattern` matches here, or nothing; return which."""
        while True:
            found = pattern.match(self.text, self.at, self.ended)
            if found is not None:
                break
            yield
        if found is False:
            return False
        self.at = found
        return True

    def until(self, closing: Closing) -> Generator[None, None, bool]:
        """Read up to the end of the first `closing` and return True, or to the end of the stream and return False."""
        while True:
            found = closing.search(self.text, self.at)
            if found is None:
                self.at = len(self.text)
            elif found.lastindex:
                self.at = found.end(1)
                return True
            else:
                self.at = found.start()
            if self.ended:
                self.at = len(self.text)
                return False
            yield


class Closing:
    """Something that ends a span wherever it comes: a pattern, and the beginnings of it at the end of the text.

    `whole` marks with its first group where the span ends; `partial` matches what may yet become `whole`.
    """

    def __init__(self, whole: str, partial: str) -> None:
        self.search = re.compile(f"{whole}|(?:{partial})\\Z").search
