"""Where a JSON value ends, and what it nests.

The scanner reads text piece by piece and looks at no character twice. It judges tokens, not grammar: braces, brackets
and strings find the end, and a token that JSON does not have (a bare word, a single quote) shows at once that the text
is broken. Everything else is left to one strict decoding of the whole value at its end.

The outermost levels are told to an `Envelope`, which makes a call's name and arguments of them while they arrive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from enum import Enum
from typing import Any

from streamtools.parsing.envelope import FIELD, RAW, TEXT, Envelope
from streamtools.parsing.reader import Reader

_space = re.compile(r"[ \t\r\n]*").match
_WORD_BEGINS = frozenset("-+.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORDS = frozenset(("true", "false", "null", "NaN", "Infinity", "-Infinity"))
_rest_of_word = re.compile(r"[-+.0-9A-Za-z]*").match
_numeric = re.compile(r"[-+.0-9eE]*").fullmatch

_in_string = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL).match
_in_line_of_string = re.compile(r'[^"\\\n]*(?:\\[^\n][^"\\\n]*)*').match

# These find nothing in text that leaves an open string open: in content of a string, in content of which the first
# character is escaped, and in content without escapes. The second three are for strings in which a line feed counts.
_leaves_string = re.compile(r'(?![^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z)', re.DOTALL).match
_leaves_escape = re.compile(r'(?!.[^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z)', re.DOTALL).match
_leaves_plain = re.compile(r'["\\]').search
_leaves_line = re.compile(r'(?![^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+\\?\Z)').match
_leaves_line_escape = re.compile(r'(?![^\n][^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+\\?\Z)').match
_leaves_plain_line = re.compile(r'["\\\n]').search


# Text deep in a value that closes and opens strings and no container: which group took part tells where it ends, 1
# outside of a string, 2 inside.
_hop_out_of_string = re.compile(r'[^"\\\n]*"[ \t\r\n,:]*(?:(\Z)|"[^"\\\n]*(\Z))').match
_hop_into_string = re.compile(r'[ \t\r\n,:]*(?:(\Z)|"[^"\\\n]*(\Z))').match


class State(Enum):
    """Where the scanner stands when it returns."""

    OPEN = "open"  # it needs more text
    ENDED = "ended"  # the value is complete
    BROKEN = "broken"  # what comes next cannot be JSON
    DEEP = "deep"  # the value nests deeper than the limit; told once, scanning may go on
    LINE = "line"  # a line feed inside a string comes next, and the dialect asked to be told


class JsonText:
    """Reads one JSON object or array, however it is cut."""

    __slots__ = (
        "_beyond",
        "_envelope",
        "_inside",
        "_limit",
        "_lines",
        "_numeric",
        "_stack",
        "_word",
        "escaped",
        "in_string",
    )

    def __init__(self, envelope: Envelope, *, depth: int, lines: bool = False) -> None:
        """Tell the outer levels to `envelope`; nest `depth` levels; with `lines`, stop at line feeds in strings."""
        self._envelope = envelope
        self._limit = depth
        self._lines = lines
        self._inside = _in_line_of_string if lines else _in_string
        self._stack: list[str] = []
        self._beyond = 0  # levels beyond the limit: only their number is kept
        self._word: str | None = None  # the beginning of a number or a literal, which may go on
        self._numeric = True
        self.in_string = False
        self.escaped = False  # in a string, behind a back-slash

    @property
    def depth(self) -> int:
        """How many containers are open."""
        return len(self._stack) + self._beyond

    @property
    def leaves(self) -> Callable[[str], Any] | None:
        """What finds nothing in text that only continues the open string, or None where each character counts."""
        if not self.in_string:
            return None
        want = self._envelope.want
        if want in (TEXT, FIELD):
            if self.escaped or self._envelope.held:
                return None
            return _leaves_plain_line if self._lines else _leaves_plain
        if self.escaped:
            return _leaves_line_escape if self._lines else _leaves_escape
        return _leaves_line if self._lines else _leaves_string

    @property
    def telling(self) -> bool:
        """Whether the text that comes belongs to a call's arguments."""
        return self._envelope.want in (RAW, TEXT)

    @property
    def capture(self) -> Callable[[str], None] | None:
        """What takes the text that comes, if it belongs to a key or a name."""
        return self._envelope.take if self._envelope.want == FIELD else None

    def skim(self, text: str) -> None:
        """Take note of text that only continued the open string."""
        if text[-1] == "\\":
            slashes = len(text) - len(text.rstrip("\\"))
            self.escaped = (slashes - (self.escaped and slashes == len(text))) % 2 == 1
        else:
            self.escaped = False

    def hop(self, text: str) -> bool:
        """Read all of `text` if it only closes and opens strings deep in the value; return whether it did."""
        if self.escaped or self._word is not None or len(self._stack) <= self._envelope.depth:
            return False
        found = (_hop_out_of_string if self.in_string else _hop_into_string)(text)
        if found is None:
            return False
        self.in_string = found.lastindex == 2
        return True

    def scan(self, reader: Reader, *, over_line: bool = False) -> State:
        """Read as far as the text goes; `over_line` reads the line feed that the last call returned for."""
        envelope, stack = self._envelope, self._stack
        text, at, told = reader.text, reader.at, reader.at
        end = len(text)
        state = State.OPEN
        while at < end:
            if self.in_string:
                at += over_line
                over_line = False
                if self.escaped and at < end:
                    self.escaped = False
                    at += not (self._lines and text[at] == "\n")
                at = self._inside(text, at).end()  # type: ignore[union-attr]  # matches nothing, too
                if at == end:
                    break
                char = text[at]
                if char == "\n":
                    state = State.LINE
                    break
                at += 1
                if char == "\\":  # what it escapes is still to come, or is a line feed
                    self.escaped = True
                    continue
                self.in_string = False
                if envelope.want and envelope.want != RAW:
                    envelope.take(text[told : at - 1])
                if len(stack) <= envelope.depth:
                    envelope.end_value(len(stack), reader.base + at)
                continue
            if self._word is not None:
                begin = at
                at = _rest_of_word(text, at).end()  # type: ignore[union-attr]  # matches nothing, too
                self._add_to_word(text[begin:at])
                if at == end:
                    break
                if not self._end_word():
                    state = State.BROKEN
                    break
                if len(stack) <= envelope.depth:
                    envelope.end_value(len(stack), reader.base + at)
            char = text[at]
            depth = len(stack)
            if char == '"':
                if depth <= envelope.depth and not envelope.begin_value(char, depth, reader.base + at):
                    state = State.BROKEN
                    break
                self.in_string = True
                at += 1
                if envelope.want != RAW:
                    told = at
            elif char in " \t\r\n":
                at += 1
                if at < end and text[at] in " \t\r\n":
                    at = _space(text, at).end()  # type: ignore[union-attr]  # matches nothing, too
            elif char in ",:":
                if depth <= envelope.depth and not envelope.separate(char, depth, reader.base + at):
                    state = State.BROKEN
                    break
                at += 1
            elif char in "{[":
                if depth <= envelope.depth:
                    wanted = envelope.want
                    if not envelope.begin_value(char, depth, reader.base + at):
                        state = State.BROKEN
                        break
                    if envelope.want != wanted:
                        told = at
                at += 1
                if depth < self._limit:
                    stack.append(char)
                else:
                    self._beyond += 1
                    if self._beyond == 1:
                        state = State.DEEP
                        break
            elif char in "}]":
                if self._beyond:
                    self._beyond -= 1
                    at += 1
                    continue
                if not depth or (stack[-1] == "{") != (char == "}"):
                    state = State.BROKEN
                    break
                at += 1
                stack.pop()
                depth -= 1
                if envelope.want == RAW and depth == envelope.wanted_depth:
                    envelope.take(text[told:at])
                    envelope.want = ""
                if depth <= envelope.depth and not envelope.end_value(depth, reader.base + at):
                    state = State.BROKEN
                    break
                if not depth:
                    state = State.ENDED
                    break
            elif char in _WORD_BEGINS:
                if depth <= envelope.depth and not envelope.begin_value("", depth, reader.base + at):
                    state = State.BROKEN
                    break
                self._word, self._numeric = "", True
            else:
                state = State.BROKEN
                break
        if envelope.want and at > told:
            envelope.take(text[told:at])
        reader.at = at
        return state

    def _add_to_word(self, text: str) -> None:
        self._word = ((self._word or "") + text)[:16]  # the longest literal has nine characters
        self._numeric = self._numeric and _numeric(text) is not None

    def _end_word(self) -> bool:
        """Forget the word; return whether JSON, or one of its usual extensions, has such a token."""
        known = self._numeric or self._word in _WORDS
        self._word = None
        return known


_milestone = re.compile(r'\\(?:.|\Z)|\n[ \t\r]{0,256}(?:(\n)|(\Z))|[\n"{}\[\]]', re.DOTALL).search


def recover(reader: Reader, scanner: JsonText) -> Generator[None, None, None]:
    """Behind the place where `scanner` found its text broken, read to where the brackets balance.

    A blank line ends it all the same, in strings too: the missing quote that broke the text must not swallow the rest
    of the answer. A line of more than 256 blanks is none; the end of the stream ends everything.
    """
    depth, in_string = scanner.depth, scanner.in_string
    while True:
        found = _milestone(reader.text, reader.at)
        if found is None:
            reader.at = len(reader.text)
        elif found[1]:
            reader.at = found.start() + 1
            return
        elif found[0] == "\\" or found[2] is not None:
            reader.at = found.start()
        else:
            mark = found[0]
            reader.at = found.start() + 1 if mark[0] == "\\" and not in_string else found.end()
            if mark == '"':
                in_string = not in_string
            elif not in_string and mark in "{[":
                depth += 1
            elif not in_string and mark in "}]":
                depth -= 1
                if depth <= 0:
                    return
            continue
        if reader.ended:
            reader.at = len(reader.text)
            return
        yield
