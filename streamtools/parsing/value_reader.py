"""Reads a JSON value while its text arrives. For each piece of text, it returns the additions to the value.

    feed('{"city": "Par')      returns [([], {}, False), (["city"], "Par", False)]
    feed('is", "days": [1')    returns [(["city"], "is", True), (["days"], [], False)]
    feed(', 2]}')              returns [(["days", 0], 1, True), (["days", 1], 2, True), (["days"], [], True),
                                        ([], {}, True)]

An addition holds a path, a value, and whether the value at the path is complete. The number 1 is returned with the
third piece, because a digit could have followed it.

The reader reads each character once, and does not store the value. It stores the path of each open container, and the
keys of each open object. It also buffers an incomplete key, number, literal or escape.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from streamtools.errors import Code
from streamtools.json_values import Rejected
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.parsing.json_scanner import IN_STRING, WORD_BEGINS, json_number, rest_of_word, whole_escapes
from streamtools.parsing.reader import matcher

Path: TypeAlias = list[str | int]  # keys and indexes; the additions of one value share one list
_MAX_WORD = 4096  # a longer number is rejected before its end, if it also exceeds `limits.digits`
_LITERALS = {"true": True, "false": False, "null": None}
_valid_escapes = matcher(r'(?:[^\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
"""Matches text up to the first escape that is not valid JSON."""


Added: TypeAlias = tuple[Path, Any, bool]
"""An addition: its path in the value, the added value, and whether the value at that path is now complete.

The added value is a piece of a string, a number, a literal, or an empty container. An empty container means that an
object or array begins or, if the value is complete, that it ends.
"""

VALUE, FIRST, KEY, FIRST_KEY, COLON, COMMA, END = range(7)
"""The expected token. VALUE: a value. FIRST: a value or `]`. KEY: a key. FIRST_KEY: a key or `}`. COLON: a colon.

COMMA: a comma or a closing bracket. END: none, because the value is complete.
"""


class ValueReader:
    """Reads one JSON value. `feed` returns the additions, and `ended` is True after the value is complete.

    If the text is not valid JSON, `fault` is the error, and the reader ignores all later text.
    """

    def __init__(self, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.ended = False
        self.fault: Rejected | None = None
        self.repaired = False
        """Whether a string of the value holds raw control characters. They are not valid JSON, but are accepted."""
        self.rest = ""
        """The text after the value, from the piece in which the value ended."""
        self._place: Path = []  # the path of the next value
        self._limits = limits
        # The innermost open container: its path, its keys (None for an array), and the index of its current item.
        self._outer: Path = []
        self._keys: set[str] | None = None
        self._index = 0
        self._stack: list[tuple[Path, set[str] | None, int]] = []  # the outer containers, in the same form
        self._expects = VALUE
        self._in_string = self._is_key = False
        self._escape = ""  # an incomplete escape at the end of the text
        self._word = ""  # an incomplete number or literal at the end of the text
        self._key: list[str] = []  # the pieces of the key that is being read

    def feed(self, text: str) -> Sequence[Added]:
        """Read a piece of text. Returns its additions to the value."""
        if self.fault is not None or self._expects == END:
            return ()
        added: list[Added] = []
        at, end = 0, len(text)
        try:
            if self._in_string:
                at = self._read_string(text, 0, added)
            elif self._word:
                at = self._read_word(text, 0, added)
            while at < end and self._expects != END:
                char = text[at]
                at += 1
                if char == '"':
                    self._is_key = self._expects in (KEY, FIRST_KEY)
                    if self._expects > FIRST and not self._is_key:
                        raise _invalid()
                    self._in_string, self._key = True, []
                    at = self._read_string(text, at, added)
                elif char in " \t\r\n":
                    continue
                elif char == ",":
                    if self._expects != COMMA:
                        raise _invalid()
                    if self._keys is None:
                        self._index += 1
                        self._place = [*self._outer, self._index]
                        self._expects = VALUE
                    else:
                        self._expects = KEY
                elif char == ":":
                    if self._expects != COLON:
                        raise _invalid()
                    self._expects = VALUE
                elif char in WORD_BEGINS:
                    at = self._read_word(text, at - 1, added)
                elif char in "{[":
                    self._open(char, added)
                elif char in "}]":
                    self._close(char, added)
                else:
                    raise _invalid()
            self.rest = text[at:] if self._expects == END else ""
        except Rejected as fault:
            self.fault = fault
        return added

    def close(self) -> Sequence[Added]:
        """Return the additions at the end of the text. If the value is incomplete, `fault` is set."""
        added: list[Added] = []
        try:
            if self._word and self.fault is None:
                self._end_word(added)
            if not self.ended:
                raise Rejected(Code.TRUNCATED, "the value was cut off")
        except Rejected as fault:
            self.fault = self.fault or fault
        return added

    # Strings.

    def _read_string(self, text: str, at: int, added: list[Added]) -> int:
        """Read the content of a string. Returns the index after the closing quote, or the length of the text."""
        end = text.find('"', at)
        piece = text[at:] if end < 0 else text[at:end]
        if self._escape or "\\" in piece:
            return self._read_escapes(text, at, added)
        if not piece.isprintable():  # it may hold raw control characters
            self.repaired = self.repaired or any(character < " " for character in piece)
        self._take(piece, end >= 0, added)
        if end < 0:
            return len(text)
        self._in_string = False
        return end + 1

    def _read_escapes(self, text: str, at: int, added: list[Added]) -> int:
        """Read the content of a string with escapes. Returns the same index as `_read_string`."""
        escape, self._escape = self._escape, ""
        rest = escape + text[at:] if escape else text
        begin = 0 if escape else at
        inside = IN_STRING.inside(rest, begin).end()
        ends = inside < len(rest) and rest[inside] == '"'
        broken = not ends and inside < len(rest) - 1  # a line feed follows a back-slash: no escape
        piece = rest[begin:inside] if ends or broken else rest[begin:]
        if not (ends or broken):
            whole = whole_escapes(piece, 0).end()
            piece, self._escape = piece[:whole], piece[whole:]
        if not piece.isprintable():  # it may hold raw control characters
            self.repaired = self.repaired or any(character < " " for character in piece)
        if "\\" in piece:
            valid_end = _valid_escapes(piece, 0).end()
            broken = broken or valid_end < len(piece)
            piece = str(json.loads(f'"{piece[:valid_end]}"', strict=False))
        self._take(piece, ends and not broken, added)
        if broken:
            raise _invalid()
        self._in_string = not ends
        return inside + 1 - (len(escape) - at if escape else 0) if ends else len(text)

    def _take(self, piece: str, ends: bool, added: list[Added]) -> None:
        """Add a piece of a string. With `ends`, the string ends after this piece."""
        if self._is_key:
            self._key.append(piece)
            if ends:
                self._end_key("".join(self._key))
            return
        if ends or piece:
            added.append((self._place, piece, ends))
        if ends:
            self._end_value()

    def _end_key(self, key: str) -> None:
        keys = self._keys
        assert keys is not None
        if key in keys:
            place = ".".join(map(str, self._outer)) or "the value"
            raise Rejected(Code.DUPLICATE_KEY, f"{place} has the member {key!r} twice")
        keys.add(key)
        self._place = [*self._outer, key]
        self._expects = COLON

    # Values.

    def _end_value(self) -> None:
        if self._stack:
            self._expects = COMMA
        else:
            self._expects, self.ended = END, True

    def _read_word(self, text: str, at: int, added: list[Added]) -> int:
        """Read the characters of a number or a literal. Returns the index after them."""
        end = rest_of_word(text, at).end()
        self._word += text[at:end]
        if len(self._word) > max(_MAX_WORD, self._limits.digits):
            raise Rejected(Code.NUMBER_TOO_LONG, "a number is too long")
        if end < len(text):
            self._end_word(added)
        return end

    def _end_word(self, added: list[Added]) -> None:
        word, self._word = self._word, ""
        value: Any
        if word in _LITERALS:
            value = _LITERALS[word]
        else:
            number = json_number(word)
            if number is None:
                raise _invalid()
            value = int(word) if number.lastindex is None else float(word)
            if value in _INFINITE:
                raise Rejected(Code.NOT_A_NUMBER, "a number is too large")
        if self._expects > FIRST:
            raise _invalid()
        added.append((self._place, value, True))
        self._end_value()

    def _open(self, char: str, added: list[Added]) -> None:
        is_object = char == "{"
        if self._expects > FIRST:
            raise _invalid()
        if len(self._stack) >= self._limits.depth:
            raise Rejected(Code.TOO_DEEP, "the value nests too deeply")
        self._stack.append((self._outer, self._keys, self._index))
        self._outer = place = self._place
        if is_object:
            added.append((place, {}, False))
            self._keys, self._expects = set(), FIRST_KEY
        else:
            added.append((place, [], False))
            self._keys, self._index, self._expects = None, 0, FIRST
            self._place = [*place, 0]

    def _close(self, char: str, added: list[Added]) -> None:
        expects, is_array = self._expects, self._keys is None
        first = FIRST if is_array else FIRST_KEY
        if not self._stack or is_array != (char == "]") or expects not in (COMMA, first):
            raise _invalid()
        self._place = self._outer
        added.append((self._place, [] if is_array else {}, True))
        self._outer, self._keys, self._index = self._stack.pop()
        self._end_value()


_INFINITE = (float("inf"), float("-inf"))


def _invalid() -> Rejected:
    return Rejected(Code.INVALID_JSON, "the value is not valid JSON")
