"""Parts of the JSON scanner: its patterns, its position in a value, what it reports; and the repair of broken JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from streamtools.parsing.reader import always, matcher

WORD_BEGINS = frozenset("-+.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORDS = frozenset(("true", "false", "null", "NaN", "Infinity", "-Infinity"))
LONGEST_WORD = 16  # characters that are kept of a number or a literal, of which the longest has nine
NUMERIC = "-+.0123456789eE"
rest_of_word = matcher(r"[-+.0-9A-Za-z]*")
numeric = re.compile(r"[-+.0-9eE]*").fullmatch


@dataclass(frozen=True, slots=True)
class StringPatterns:
    """How a string goes on. The searches find nothing in text that only continues it."""

    inside: Callable[[str, int], re.Match[str]]
    """What does not end it, and holds no half of an escape."""
    leaves: Callable[[str], Any]
    """Searches text where each escape is whole, and none is of a back-slash."""
    leaves_escapes: Callable[[str], Any]
    """Searches any text."""
    leaves_escaped: Callable[[str], Any]
    """Searches any text of which the first character is escaped."""
    leaves_plain: Callable[[str], Any]
    """Searches text without escapes."""


IN_STRING = StringPatterns(
    matcher(r'[^"\\]*(?:\\.[^"\\]*)*'),
    re.compile(r'"(?<!\\")|\\(?:\\|\Z)').search,
    re.compile(r'(?![^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z)', re.DOTALL).match,
    re.compile(r'(?!.[^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z)', re.DOTALL).match,
    re.compile(r'["\\]').search,
)
IN_LINE_OF_STRING = StringPatterns(
    matcher(r'[^"\\\n]*(?:\\[^\n][^"\\\n]*)*'),
    re.compile(r'"(?<!\\")|\\(?:\\|\n|\Z)|\n').search,
    re.compile(r'(?![^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+\\?\Z)').match,
    re.compile(r'(?![^\n][^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+\\?\Z)').match,
    re.compile(r'["\\\n]').search,
)
"""The same, where a line feed in a string counts too."""

# Text deep in a value, with strings, numbers and separators, and no bracket. The last group that matched says where the
# text ends: in a number, elsewhere outside of strings, or inside a string, which begins at that group. The first group
# is where the last complete string begins.
LAST_STRING, ENDS_IN_NUMBER, ENDS_IN_STRING = 1, 2, 4
_APART = r"[-+.0-9eE \t\r\n,:]*+"
_HOPS = rf'{_APART}(?:()"[^"\\\n]*"{_APART})*+(?:(?<=[-+.0-9eE])(\Z)|(\Z)|()"[^"\\\n]*\Z)'
hop_out_of_string = re.compile(rf'[^"\\\n]*"{_HOPS}').match
hop_into_string = re.compile(_HOPS).match

run = matcher(r'(?:[ \t\r\n,:]++|"[^"\\\n]*"|(?:[-+.0-9eE]++|true|false|null)(?=[ \t\r\n,:}\]]))*+')
"""The same tokens, and literals, up to what has to be looked at: a bracket, a string or a word that may go on."""

# The part of a string's content in which each escape is whole, and each pair of surrogates, and known to be none if it
# is none of JSON. What follows it is the beginning of an escape, or of a pair.
whole_escapes = matcher(
    r"(?:[^\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F]|\Z)"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}[^0-9a-fA-F]))*"
)
_each_escape = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
).sub


def unescape(text: str) -> str:
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


FIELD = "field"  # what a scanner wants of the text that follows: a key, or the name of the tool
RAW = "raw"  # arguments that are an object or an array
TEXT = "text"  # arguments that are a string which holds JSON

BEGIN, ARGUMENTS, NAME, PIECE, END = "begin", "arguments", "name", "piece", "end"
CALL, BLAME = "call", "blame"
Fact: TypeAlias = tuple[str, Any]
"""What has been read: that a call, or what stands in its place, begins at a place of the span, or its ARGUMENTS do; its
NAME; a PIECE of its arguments, as JSON text; its END, as a place; that it is a CALL of a tool which no member names, or
what it is to BLAME for.
"""


class Nesting:
    """The position of a scanner in a JSON value: in a string, in a number, how deep."""

    __slots__ = (
        "_beyond", "_leaves", "_limit", "_lines", "_numeric", "_patterns", "_stack", "_word", "escaped", "in_string",
        "leaves", "outer", "over_line", "passes", "string_begin",
    )  # fmt: skip

    _limit: int
    _lines: bool  # line feeds in strings count
    _patterns: StringPatterns
    _leaves: Callable[[str], Any]
    _stack: list[str]
    _beyond: int  # levels beyond the limit: only their number is kept
    _word: str | None  # the beginning of a number or a literal, which may go on
    _numeric: bool
    outer: int  # tokens at this depth and above are of interest
    in_string: bool
    string_begin: int  # the place where the string begins that was read last
    escaped: bool  # in a string, the next character is a part of it: behind a back-slash, or
    over_line: bool  # where it is the line feed that the last `scan` returned for
    leaves: Callable[[str], Any]
    """What finds nothing in text that only continues the open string, or `always` where each character counts."""
    passes: bool  # `pass_over` may be asked

    @property
    def depth(self) -> int:
        """How many containers are open."""
        return len(self._stack) + self._beyond

    def pass_over(self, text: str, place: int) -> bool:
        """Read all of `text`, at `place`, if it opens no container and no call depends on it; return whether it did.

        That is what continues a string, with escapes in it, or deep in the value anything but brackets and literals.
        """
        if self.in_string and (self.escaped or "\\" in text):
            return self._pass_over_escapes(text)
        if len(self._stack) <= self.outer:
            return False
        found = hop_out_of_string(text) if self.in_string else hop_into_string(text)
        if found is None:
            return False
        ends = found.lastindex
        if ends == ENDS_IN_STRING:
            self.in_string = True
            self.string_begin = place + found.start(ends)
            self._word = None
            self.leaves = self._leaves
            return True
        last = found.start(LAST_STRING)
        if last >= 0:
            self.string_begin = place + last
        if ends == ENDS_IN_NUMBER:
            number = text[len(text.rstrip(NUMERIC)) :]
            self._word = ((self._word or "") + number if number == text else number)[:LONGEST_WORD]
        else:
            self._word = None
        self.in_string = False
        self.leaves = always
        return True

    def _pass_over_escapes(self, text: str) -> bool:
        leaves = self._patterns.leaves_escaped if self.escaped else self._patterns.leaves_escapes
        if leaves(text) is not None:
            return False
        if text[-1] == "\\":
            slashes = len(text) - len(text.rstrip("\\"))
            self.escaped = (slashes - (self.escaped and slashes == len(text))) % 2 == 1
        else:
            self.escaped = False
        self.leaves = always if self.escaped else self._leaves
        return True

    def _skip_escaped(self, text: str, at: int) -> int:
        """Return the place behind what is a part of the open string whatever it is."""
        skips = self.over_line or not (self._lines and text[at] == "\n")
        self.escaped = self.over_line = False
        return at + skips

    def _add_to_word(self, text: str) -> None:
        self._word = ((self._word or "") + text)[:LONGEST_WORD]
        self._numeric = self._numeric and numeric(text) is not None
