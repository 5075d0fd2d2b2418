"""Whether JSON that comes in pieces has ended: brackets and strings are counted, and nothing is understood.

Each character is looked at once, by a regular expression, and nothing is kept of the text.
"""

from __future__ import annotations

import re

_outside = re.compile(r'["{}\[\]]')
_inside = re.compile(r'["\\]')


class Brackets:
    """Reads one JSON value. Text that is none gives some answer, and never an exception."""

    __slots__ = ("_begun", "_depth", "_escaped", "_in_string")

    def __init__(self) -> None:
        self._begun = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def closed(self) -> bool:
        """Whether the object, array or string has ended. A number or a word never does: more of it might follow."""
        return self._begun and self._depth == 0 and not self._in_string

    def feed(self, text: str) -> None:
        """Read on."""
        at = 0
        if self._escaped and text:
            self._escaped = False
            at = 1
        while found := (_inside if self._in_string else _outside).search(text, at):
            at = found.end()
            mark = found[0]
            if mark == '"':
                self._begun = True
                self._in_string = not self._in_string
            elif mark == "\\":
                self._escaped = at == len(text)
                at += 1
            elif mark in "{[":
                self._begun = True
                self._depth += 1
            elif self._depth:
                self._depth -= 1
