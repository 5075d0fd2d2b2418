"""A JSON value as it grows: what each piece of its text adds, and at which place of the value. Sans-IO.

The reader looks at no character twice, and keeps no more than the places that are open. It holds half an escape, and
numbers and literals until they are certain. A value that its shape does not allow is refused as soon as that is seen.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeAlias

from streamtools.errors import Code
from streamtools.json_values import Rejected
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.parsing import json_parts
from streamtools.parsing.reader import matcher, white_space
from streamtools.typed.shape import ANYTHING, ARRAY, OBJECT, STRING, Shape, kind_of

Path: TypeAlias = list[str | int]  # shared between what was added at the same place
_MOST_OF_WORD = 4096  # characters of a number, before its digits are counted
_TO_CLOSE = {"{": "}", "[": "]"}
_sound = matcher(r'(?:[^\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+')
"""What holds no escape that JSON does not have."""


class Added(NamedTuple):
    """What was added at a place of the value: a piece of a string, a whole number or literal, an empty container that
    begins; or, when it is `complete`, what was still missing.
    """

    path: Path
    value: Any
    complete: bool


class ValueReader:
    """Reads one JSON value, of a `shape`; `feed` returns what is new. `ended` tells that it is complete.

    Where the text cannot be JSON, or cannot become such a value, `fault` says so, and nothing is read after that.
    """

    def __init__(self, shape: Shape = ANYTHING, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.ended = False
        self.fault: Rejected | None = None
        self.repaired = False
        """A string holds raw control characters, which stand for themselves."""
        self.flows = False
        """A string is open, and text without quotes and back-slashes is a piece of it, at `place`: a caller may take
        it as such, and `note_controls`, in place of feeding it.
        """
        self.rest = ""
        """The text behind the value, of the piece in which that has ended."""
        self._limits = limits
        self._stack: list[tuple[str, Shape]] = []  # the containers that are open, with their shapes
        self._path: list[str | int] = []
        self.place: Path = []
        self._keys: list[set[str]] = []
        self._shape: Shape | None = shape  # of the value that comes
        self._expects = "value"  # or "first" (a value or the end), "key", "first key", "colon", "comma", "end"
        self._in_string = self._is_key = False
        self._held = ""  # the beginning of an escape
        self._word = ""  # the beginning of a number or a literal
        self._string: list[str] = []  # a key, or a string that has to be one of a few words
        self._checks = False

    def feed(self, text: str) -> list[Added]:
        """Return what a piece of the text adds."""
        added: list[Added] = []
        if self.fault is not None or self.ended:
            return added
        try:
            at, end = 0, len(text)
            while at < end and not self.ended:
                at = self._read_string(text, at, added) if self._in_string else self._read_token(text, at, added)
            self.rest = text[at:]
        except Rejected as fault:
            self.fault = fault
        self.flows = self._in_string and not (self._is_key or self._checks or self._held or self.fault)
        return added

    def close(self) -> list[Added]:
        """Return what the end of the text makes certain; a value that is not complete is a fault."""
        added: list[Added] = []
        try:
            if self._word and self.fault is None:
                self._end_word(added)
            if not self.ended:
                raise Rejected(Code.TRUNCATED, "the value was cut off")
        except Rejected as fault:
            self.fault = self.fault or fault
        return added

    def _read_token(self, text: str, at: int, added: list[Added]) -> int:
        char = text[at]
        if self._word or char in json_parts.WORD_BEGINS:
            end = json_parts.rest_of_word(text, at).end()
            self._word += text[at:end]
            if len(self._word) > max(_MOST_OF_WORD, self._limits.digits):
                raise Rejected(Code.NUMBER_TOO_LONG, "a number is too long")
            if end < len(text):
                self._end_word(added)
            return end
        if char in " \t\r\n":
            return white_space(text, at).end()
        if char == '"':
            self._begin_string()
        elif char in "{[":
            self._open(char, added)
        elif char in "}]":
            self._close(char, added)
        elif char == ":" and self._expects == "colon":
            self._expects = "value"
        elif char == "," and self._expects == "comma":
            self._separate()
        else:
            raise _invalid()
        return at + 1

    # Strings.

    def _begin_string(self) -> None:
        self._is_key = self._expects in ("key", "first key")
        if not self._is_key:
            shape = self._begin_value(STRING)
            self._checks = shape.words is not None
            self._shape = shape
        self._in_string, self._held, self._string = True, "", []

    def _read_string(self, text: str, at: int, added: list[Added]) -> int:
        held, self._held = self._held, ""
        rest = held + text[at:] if held else text
        begin = 0 if held else at
        inside = json_parts.IN_STRING.inside(rest, begin).end()
        ends = inside < len(rest) and rest[inside] == '"'
        broken = not ends and inside < len(rest) - 1  # a line feed behind a back-slash
        piece = rest[begin:inside] if ends or broken else rest[begin:]
        if not (ends or broken):
            whole = json_parts.whole_escapes(piece, 0).end()
            piece, self._held = piece[:whole], piece[whole:]
        if not piece.isprintable():
            self.note_controls(piece)
        if "\\" in piece:
            sound = _sound(piece, 0).end()
            broken = broken or sound < len(piece)
            piece = str(json.loads(f'"{piece[:sound]}"', strict=False))
        if self._is_key:
            self._string.append(piece)
            if ends and not broken:
                self._end_key("".join(self._string))
        else:
            whole_string = ends and not broken
            allowed = self._allowed(piece, whole=whole_string) if self._checks else None
            complete = whole_string and allowed is None
            if complete or piece[:allowed]:
                added.append(Added(self.place, piece[:allowed], complete))
            if allowed is not None:
                raise Rejected(Code.INVALID_OUTPUT, f"{self._here()} is none of the words that are allowed")
            if complete:
                self._end_value()
        if broken:
            raise _invalid()
        self._in_string = not ends
        return inside + 1 - (len(held) - at if held else 0) if ends else len(text)

    def note_controls(self, text: str) -> None:
        """Take note of raw control characters in a piece of a string."""
        self.repaired = self.repaired or any(character < " " for character in text)

    def _allowed(self, piece: str, *, whole: bool) -> int | None:
        """Return how many characters of a piece may follow; None if all of it is right."""
        before, shape = "".join(self._string), self._shape or ANYTHING
        self._string.append(piece)
        if shape.may_become(before + piece, whole=whole):
            return None
        count = 0
        while count < len(piece) and shape.may_become(before + piece[: count + 1], whole=False):
            count += 1
        return count

    def _end_key(self, key: str) -> None:
        if key in self._keys[-1]:
            raise Rejected(Code.DUPLICATE_KEY, f"{self._here()} has the member {key!r} twice")
        self._keys[-1].add(key)
        self._shape = self._stack[-1][1].member(key)
        if self._shape is None:
            raise Rejected(Code.INVALID_OUTPUT, f"{self._here()} has no member {key!r}")
        self._path.append(key)
        self.place = self._path.copy()
        self._expects = "colon"

    # Values.

    def _begin_value(self, kind: str) -> Shape:
        if self._expects not in ("value", "first"):
            raise _invalid()
        shape = self._shape or ANYTHING
        if not shape.allows(kind):
            raise Rejected(Code.INVALID_OUTPUT, f"{self._here()} cannot be of the type {kind}")
        return shape

    def _end_value(self) -> None:
        self._checks = False
        if not self._stack:
            self._expects, self.ended = "end", True
            return
        self._expects = "comma"

    def _end_word(self, added: list[Added]) -> None:
        word, self._word = self._word, ""
        try:
            value = json.loads(word, parse_constant=_refuse)
        except ValueError:
            raise _invalid() from None
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            raise Rejected(Code.NOT_A_NUMBER, "a number is too large")
        self._begin_value(kind_of(value))
        added.append(Added(self.place, value, True))
        self._end_value()

    def _open(self, char: str, added: list[Added]) -> None:
        shape = self._begin_value(OBJECT if char == "{" else ARRAY)
        if len(self._stack) >= self._limits.depth:
            raise Rejected(Code.TOO_DEEP, "the value nests too deeply")
        self._stack.append((char, shape))
        added.append(Added(self.place, {} if char == "{" else [], False))
        self._keys.append(set())
        if char == "{":
            self._expects = "first key"
        else:
            self._expects, self._shape = "first", shape.item
            self._path.append(0)
            self.place = self._path.copy()

    def _close(self, char: str, added: list[Added]) -> None:
        if (
            not self._stack
            or _TO_CLOSE[self._stack[-1][0]] != char
            or self._expects not in ("comma", "first", "first key")
        ):
            raise _invalid()
        if char == "]" or self._expects == "comma":
            self._path.pop()
        self._stack.pop()
        self._keys.pop()
        self.place = self._path.copy()
        added.append(Added(self.place, {} if char == "}" else [], True))
        self._end_value()

    def _separate(self) -> None:
        kind, shape = self._stack[-1]
        if kind == "{":
            self._path.pop()
            self._expects = "key"
        else:
            last = self._path[-1]
            assert isinstance(last, int)
            self._path[-1] = last + 1
            self._expects, self._shape = "value", shape.item
        self.place = self._path.copy()

    def _here(self) -> str:
        return ".".join(map(str, self.place)) or "the value"


def _invalid() -> Rejected:
    return Rejected(Code.INVALID_JSON, "the value is not valid JSON")


def _refuse(word: str) -> None:
    raise ValueError(word)
