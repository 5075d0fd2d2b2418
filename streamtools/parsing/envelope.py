"""Which part of a call's JSON is its name, and which are its arguments, while they arrive.

A call is an object, alone or in an array; its name and arguments are members of it, or of the object under `function`.
The JSON scanner tells the tokens of these one to three outermost levels, and nothing of what is nested deeper. The
envelope answers with what it wants of the text that follows: a key or a name, arguments as they are written, or
arguments that are written as a string, which it unescapes. It learns early and decides nothing: what a complete call
says is read once, from the whole of it, in `streamtools.calls`.
"""

from __future__ import annotations

import json
import re
from typing import ClassVar, Protocol

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS
from streamtools.parsing.reader import matcher

FIELD = "field"  # a key, or the name of the tool
RAW = "raw"  # arguments that are an object or an array
TEXT = "text"  # arguments that are a string which holds JSON

_NAMES = frozenset(NAME_FIELDS)
_ARGUMENTS = frozenset(ARGUMENT_FIELDS)
_KEPT = 256  # characters of a key or a name: a longer key is none of ours, a longer name waits for the complete call

# The part of a string's content in which each escape is whole, and each pair of surrogates, and known to be none if it
# is none of JSON. What follows it is the beginning of an escape, or of a pair.
_whole_escapes = matcher(
    r"(?:[^\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F]|\Z)"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}[^0-9a-fA-F]))*"
)
_each_escape = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
).sub


# `{"name": "` or `[{"name": "`, or a beginning of it at the end of the text; nine letters of any key may become one.
_SPACE = r"[ \t\r\n]{0,32}+"
_KEY_OF_NAME = rf'(?:{"|".join(NAME_FIELDS)})"{_SPACE}(?::{_SPACE}(?:"()|\Z)|\Z)|[A-Za-z_]{{0,9}}+\Z'
_BEGINS_WITH_NAME = re.compile(rf'(\[{_SPACE}|)(?:\{{{_SPACE}(?:"(?:{_KEY_OF_NAME})|\Z)|\Z)')


class Listener(Protocol):
    """Who wants to know. Places count from the beginning of the span."""

    def begin_call(self, place: int) -> None:
        """A call, or what stands in its place, begins."""

    def begin_arguments(self, place: int) -> None:
        """The arguments of the last call begin, of which all else is known."""

    def end_call(self, place: int) -> None:
        """It is complete."""

    def name_call(self, name: str) -> None:
        """Its name is certain."""

    def tell_arguments(self, text: str) -> None:
        """A piece of its arguments, as JSON text."""


class Envelope:
    """Follows the outer levels of one JSON value that is a call or an array of calls."""

    usual: ClassVar[re.Pattern[str] | None] = _BEGINS_WITH_NAME
    """Matches how nearly every call begins, or the beginning of that at the end of the text; see `begin_named`.

    The first group is the beginning of an array, or nothing; the second takes part where all has come. An envelope
    that reads tokens in a way of its own sets this to None: it is not asked about what this matches.
    """

    __slots__ = (
        "_calls",
        "_expects",
        "_field",
        "_first",
        "_key",
        "_listener",
        "_named",
        "_told",
        "depth",
        "held",
        "kept",
        "tell",
        "want",
        "wanted_depth",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.tell = listener.tell_arguments
        self._calls = 0  # the depth at which calls stand: 0, or 1 in an array
        self._expects = True  # in an array: an element may begin
        self._first = True  # in an array: none has
        self._key = True  # the next string of the members is a key
        self._field: str | None = None  # the member whose value comes
        self._named = False
        self._told = False
        self.depth = 0  # tokens at this depth and above are told
        self.want = ""  # what is wanted of the text that comes
        self.wanted_depth = 0  # the depth at which raw arguments stand
        self.held = ""  # the beginning of an escape
        self.kept: list[str] = []  # the pieces of the key or the name that comes

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Take note of a value, or a key, that begins at `depth` with a quote, a bracket, or (a word) nothing.

        Returns False where JSON allows no value.
        """
        if depth == 0 and first == "[":
            self._calls = self.depth = 1
        elif depth == self._calls:
            if not self._expects:
                self._listener.begin_call(place)
                return False
            self._expects = self._first = False
            self._key, self._field, self._named, self._told = True, None, False, False
            self.depth = depth + (first == "{")
            self._listener.begin_call(place)
        elif depth < self.depth:
            return False
        elif first == '"' and (self._key or (self._field in _NAMES and not self._named)):
            self.want, self.kept = FIELD, []
        elif self._key:
            return False
        elif self._field in _ARGUMENTS and first and not self._told:
            self.want = TEXT if first == '"' else RAW
            self.wanted_depth = depth
            self._told = True
        elif self._field == "function" and first == "{" and depth == self._calls + 1:
            self.depth = depth + 1
            self._key, self._field = True, None
        return True

    def begin_named(self, place: int, array: int) -> None:
        """Take note of what `usual` has matched at `place`, of which `array` characters begin an array, or none."""
        self._calls = 1 if array else 0
        self._expects = self._first = self._key = False
        self._field = NAME_FIELDS[0]
        self.depth = self._calls + 1
        self._listener.begin_call(place + array)
        self.want, self.kept = FIELD, []

    def end_value(self, depth: int, place: int) -> bool:
        """Take note of the end of a value at `depth`; return False where JSON does not allow it to end."""
        want, self.want = self.want, ""
        if want == FIELD:  # a member of a call, since nothing else has fields
            kept = "".join(self.kept)
            text = self._read_field() if "\\" in kept or len(kept) > _KEPT else kept
            if self._key:
                self._field = text
            elif text and text.strip():
                self._named = True
                self._listener.name_call(text)
        elif depth < self._calls:
            return self._first or not self._expects
        elif depth == self._calls:
            self._listener.end_call(place)
            self.depth = self._calls
        elif want == TEXT:
            self.tell(self.held)
            self.held = ""
        elif depth < self.depth:  # the end of `function`
            self.depth = depth
            self._key, self._field = False, None
        return True

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Take note of a comma or a colon at `depth`; return False where JSON allows none.

        What stands between two calls of an array and does not belong there is a bad call of its own, so that good
        ones before it do not hide it.
        """
        if depth == self.depth and depth > self._calls:
            self._key = mark == ","
            if self._key:
                self._field = None
            return True
        allowed = mark == "," and depth == self._calls > 0 and not self._expects
        self._expects = True
        if not allowed:
            self._listener.begin_call(place)
        return allowed

    def take(self, text: str) -> None:
        """Take a piece of the text that is wanted."""
        if self.want == FIELD:
            if len(self.kept) <= _KEPT:
                self.kept.append(text[: _KEPT + 1])
        elif self.want == RAW:
            self.tell(text)
        else:
            text = self.held + text
            whole = _whole_escapes(text, 0).end()
            self.held = text[whole:]
            if whole:
                self.tell(_unescape(text[:whole]))

    def _read_field(self) -> str | None:
        """Return the key or the name that has come to its end, or None if it is too long."""
        text = "".join(self.kept)
        return None if len(text) > _KEPT else _unescape(text)


class Arguments(Envelope):
    """One JSON object that is the arguments of a call, or a string that holds it: the name stands elsewhere."""

    __slots__ = ()
    usual = None

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Take note of the object or the string; anything else is no arguments."""
        if first not in ("{", '"'):
            return False
        self._listener.begin_arguments(place)
        self.want = RAW if first == "{" else TEXT
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """Take note of its end."""
        if self.want == TEXT:
            self.tell(self.held)
            self.held = ""
        self.want = ""
        self._listener.end_call(place)
        return True


def _unescape(text: str) -> str:
    """Return what the content of a JSON string stands for; an escape that JSON does not have stands for itself."""
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return _each_escape(_unescape_one, text)


def _unescape_one(escape: re.Match[str]) -> str:
    try:
        return str(json.loads(f'"{escape[0]}"', strict=False))
    except ValueError:
        return escape[0]
