"""Reads that pause for more text.

A grammar is a generator: straight-line code that reads what comes next and yields where the text does not suffice. Its
position is the whole of its state, so a new dialect is a few lines, and the end of the stream is one flag that every
read sees. What has been read is never looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import cast

from streamtools.parsing.closings import Closing
from streamtools.parsing.markers import Pattern


def matcher(pattern: str) -> Callable[[str, int], re.Match[str]]:
    """Return what matches `pattern` at a place; the pattern matches nothing, too, so that there always is a match."""
    match = re.compile(pattern, re.DOTALL).match
    assert match("") is not None
    return cast("Callable[[str, int], re.Match[str]]", match)


white_space = matcher(r"[ \t\r\n]*")
not_white_space = re.compile(r"[^ \t\r\n]").search
always: Callable[[str], object] = len
"""Finds something in any text: a number is not None. No search costs less."""


class Reader:
    """The text of one span that its grammar has still to read: `text` from `at` on."""

    __slots__ = ("at", "base", "before_closing", "ended", "leaves", "take", "text", "waits")

    text: str
    at: int
    base: int  # how much of the span comes before `text`
    ended: bool  # no more text will come
    leaves: Callable[[str], object] | None  # see `content`; None where the grammar must see all text
    take: Callable[[str], None] | None  # who takes text in which `leaves` finds nothing
    waits: Pattern | None  # what may yet match at `at`, if nothing else counts before that is decided
    before_closing: int  # the place where the last closing that was read begins

    @property
    def place(self) -> int:
        """How much of the span has been read."""
        return self.base + self.at

    def go_back(self, place: int) -> None:
        """Go back to where the last read began, which was not for this."""
        self.at = place - self.base

    def read_since(self, place: int) -> str:
        """Return what the last read has read, which began at `place`."""
        return self.text[place - self.base : self.at]

    def unread(self, text: str) -> None:
        """Go back over `text`, which is what has been read last."""
        self.base += self.at - len(text)
        self.text = text + self.text[self.at :]
        self.at = 0

    def peek(self) -> Generator[None, None, str]:
        """Skip white space; return the next character, which is not read yet, or "" at the end of the stream."""
        while True:
            self.at = white_space(self.text, self.at).end()
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
            self.waits = pattern
            yield
            self.waits = None
        if found is False:
            return False
        self.at = found
        return True

    def choose(self, *patterns: Pattern) -> Generator[None, None, int]:
        """Read the first of `patterns` that matches here; return its number, or -1 where none does."""
        while True:
            for number, pattern in enumerate(patterns):
                found = pattern.match(self.text, self.at, self.ended)
                if found is None:
                    self.waits = pattern
                    break
                if found is not False:
                    self.at = found
                    return number
            else:
                return -1
            yield
            self.waits = None

    def word(self, characters: Word) -> Generator[None, None, str]:
        """Read the characters of a class that stand here, as many as it allows; return them."""
        word = ""
        while True:
            begin = self.at
            self.at = characters.match(self.text, begin, begin + characters.most - len(word)).end()
            word += self.text[begin : self.at]
            if self.at < len(self.text) or len(word) == characters.most or self.ended:
                return word
            yield

    def content(self, closing: Closing, take: Callable[[str], None]) -> Generator[None, None, bool]:
        """Give what stands before the first `closing` to `take`, and read the closing too; return whether it came.

        Pieces of the text that have no closing and no beginning of one in them may be given without this being resumed.
        """
        while True:
            found = closing.search(self.text, self.at)
            end = found.start() if found is not None else len(self.text)
            if end > self.at:
                take(self.text[self.at : end])
                self.at = end
            if found is not None and found.lastindex:
                self.before_closing = self.base + end
                self.at = found.end(1)
                return True
            if self.ended:
                if self.at < len(self.text):
                    take(self.text[self.at :])
                self.at = len(self.text)
                return False
            if found is None:
                self.leaves, self.take = closing.leaves, take
            yield
            self.leaves = self.take = None

    def until(self, closing: Closing) -> Generator[None, None, bool]:
        """Read up to the end of the first `closing` and return True, or to the end of the stream and return False."""
        while True:
            found = closing.search(self.text, self.at)
            if found is None:
                self.at = len(self.text)
            elif found.lastindex:
                self.before_closing = self.base + found.start()
                self.at = found.end(1)
                return True
            else:
                self.at = found.start()
            if self.ended:
                self.at = len(self.text)
                return False
            yield


class Word:
    """A class of characters, written as inside `[...]` of a pattern, and how many of them make a word at most."""

    def __init__(self, characters: str, most: int = 256) -> None:
        self.match = cast("Callable[[str, int, int], re.Match[str]]", re.compile(f"[{characters}]*").match)
        self.most = most
