"""Where a JSON value ends, and what it nests.

The scanner reads text piece by piece and looks at no character twice. It judges tokens, not grammar: braces, brackets
and strings find the end, and a token that JSON does not have (a bare word, a single quote) shows at once that the text
is broken. Everything else is left to one strict decoding of the whole value at its end.

The outermost levels are told to an `Envelope`, which makes a call's name and arguments of them while they arrive.
Nearly every call begins alike, with its name: that much, 150 characters at most, is matched by one expression of the
envelope, and what does not match is read token by token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from streamtools.parsing.envelope import FIELD, RAW, TEXT, Envelope
from streamtools.parsing.json_tokens import (
    ENDS_IN_NUMBER,
    ENDS_IN_STRING,
    IN_LINE_OF_STRING,
    IN_STRING,
    LAST_STRING,
    LONGEST_WORD,
    NUMERIC,
    WORD_BEGINS,
    WORDS,
    hop_into_string,
    hop_out_of_string,
    numeric,
    rest_of_word,
    run,
)
from streamtools.parsing.reader import Reader, white_space


class State(Enum):
    """Where the scanner stands when it returns."""

    OPEN = "open"  # it needs more text
    ENDED = "ended"  # the value is complete
    BROKEN = "broken"  # what comes next cannot be JSON
    DEEP = "deep"  # the value nests deeper than the limit; told once, scanning may go on
    LINE = "line"  # a line feed inside a string comes next, and the dialect asked to be told


OPEN, ENDED, BROKEN, DEEP, LINE = State  # by these names, because before 3.12 an attribute of an enumeration is a call


class JsonText:
    """Reads one JSON object or array, however it is cut."""

    __slots__ = (
        "_begun",
        "_beyond",
        "_inside",
        "_leaves",
        "_limit",
        "_lines",
        "_numeric",
        "_patterns",
        "_stack",
        "_word",
        "envelope",
        "escaped",
        "in_string",
        "leaves",
        "passes",
        "string_begin",
        "usual",
    )

    def __init__(self, envelope: Envelope, *, depth: int, lines: bool = False) -> None:
        """Tell the outer levels to `envelope`; nest `depth` levels; with `lines`, stop at line feeds in strings."""
        self.envelope = envelope
        self._limit = depth
        self._lines = lines
        self._patterns = patterns = IN_LINE_OF_STRING if lines else IN_STRING
        self._inside = patterns.inside
        self._leaves = patterns.leaves
        self._stack: list[str] = []
        self.usual = envelope.usual if depth > 1 else None  # how the value may begin; None once that is decided
        self._begun = ""  # what has come of that, and has not been read otherwise
        self._beyond = 0  # levels beyond the limit: only their number is kept
        self._word: str | None = None  # the beginning of a number or a literal, which may go on
        self._numeric = True
        self.in_string = False
        self.string_begin = -1  # the place where the string begins that was read last
        self.escaped = False  # in a string, behind a back-slash
        self.leaves: Callable[[str], Any] | None = None
        """What finds nothing in text that only continues the open string, or None where each character counts."""
        self.passes = False  # `pass_over` may be asked

    @property
    def depth(self) -> int:
        """How many containers are open."""
        return len(self._stack) + self._beyond

    def pass_over(self, text: str, place: int) -> bool:
        """Read all of `text`, at `place`, if it nests nothing and tells the envelope nothing; return whether it did.

        That is what continues a string, with escapes in it, or deep in the value anything but brackets and literals.
        """
        if self.in_string and (self.escaped or "\\" in text):
            return self._pass_over_escapes(text)
        if len(self._stack) <= self.envelope.depth:
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
        self.leaves = None
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
        self.leaves = None if self.escaped else self._leaves
        return True

    def _note_string(self, text: str, begin: int, base: int, end: int) -> None:
        """Take note of where the last string begins in a part of `text` that ends outside of strings."""
        last = text.rfind('"', begin, end)
        if last > begin and (first := text.rfind('"', begin, last)) >= 0:
            self.string_begin = base + first

    def scan(self, reader: Reader, over_line: bool = False) -> State:
        """Read as far as the text goes; `over_line` reads the line feed that the last call returned for.

        One loop over all kinds of tokens: most pieces of text hold one or two, and a call for each would cost more than
        the token does.
        """
        usual = self.usual
        if usual is not None and self._begin(reader, usual):
            return OPEN
        envelope, stack, inside = self.envelope, self._stack, self._inside
        text, at, base = reader.text, reader.at, reader.base
        taken = at  # what comes before has been given to the envelope, if it is wanted
        end = len(text)
        depth = len(stack)
        simple: bool | None = None  # whether strings end at the next quote, which only they have to know
        state = OPEN
        while at < end:
            if self.in_string:
                if over_line or self.escaped:
                    at, over_line = self._skip_escaped(text, at, over_line), False
                if simple is None:
                    simple = "\\" not in text and not (self._lines and "\n" in text)
                if simple:  # as `inside` would, which costs twice as much
                    at = text.find('"', at)
                    if at < 0:
                        at = end
                else:
                    at = inside(text, at).end()
                if at == end:
                    break
                char = text[at]
                if char == '"':
                    self.in_string = False
                    if depth <= envelope.depth:
                        if envelope.want == FIELD:  # as `take` would: keys are most of what a small call is
                            envelope.kept.append(text[taken:at])
                        elif envelope.want:
                            envelope.take(text[taken:at])
                        envelope.end_value(depth, base + at + 1)
                    at += 1
                    if not depth:  # the value is a string
                        state = ENDED
                        break
                elif char == "\\":  # what it escapes is still to come, or is a line feed
                    self.escaped = True
                    at += 1
                else:
                    state = LINE
                    break
                continue
            if self._word is not None:
                begin = at
                at = rest_of_word(text, at).end()
                self._add_to_word(text[begin:at])
                if at < end:
                    state = self._end_word(base + at)
                    if state is not OPEN:
                        break
                continue
            char = text[at]
            shallow = depth <= envelope.depth
            if not shallow and char not in "{}[]":
                behind = run(text, at).end()
                if behind > at:
                    self._note_string(text, at, base, behind)
                    at = behind
                    continue
            if char == '"':
                if shallow and not envelope.begin_value(char, depth, base + at):
                    state = BROKEN
                    break
                self.in_string = True
                self.string_begin = base + at
                at += 1
                if envelope.want != RAW:
                    taken = at
            elif char in ",:":
                if shallow and not envelope.separate(char, depth, base + at):
                    state = BROKEN
                    break
                at += 1
            elif char in " \t\r\n":
                at += 1
                if at < end and text[at] in " \t\r\n":
                    at = white_space(text, at).end()
            elif char in "{[":
                wanted = envelope.want
                if shallow and not envelope.begin_value(char, depth, base + at):
                    state = BROKEN
                    break
                if envelope.want != wanted:
                    taken = at
                at += 1
                if depth < self._limit:
                    stack.append(char)
                    depth += 1
                else:
                    self._beyond += 1
                    if self._beyond == 1:
                        state = DEEP
                        break
            elif char in "}]":
                if self._beyond:  # beyond the limit any bracket closes
                    self._beyond -= 1
                    at += 1
                    continue
                if not depth or (stack[-1] == "{") != (char == "}"):
                    state = BROKEN
                    break
                stack.pop()
                at += 1
                depth -= 1
                if depth > envelope.depth:
                    continue
                if envelope.want == RAW and depth == envelope.wanted_depth:
                    envelope.take(text[taken:at])
                if not envelope.end_value(depth, base + at):
                    state = BROKEN
                    break
                if not depth:
                    state = ENDED
                    break
            elif char in WORD_BEGINS:
                if shallow and not envelope.begin_value("", depth, base + at):
                    state = BROKEN
                    break
                self._word, self._numeric = "", True
            else:
                state = BROKEN
                break
        want = envelope.want
        if want and at > taken:
            if want == RAW:  # as `take` would, here and below
                envelope.tell(text[taken:at])
            elif want == FIELD and not envelope.kept:
                envelope.kept.append(text[taken:at])
            else:
                envelope.take(text[taken:at])
        if not self.in_string:
            self.leaves = None
            self.passes = self._numeric and depth > envelope.depth
        elif want in (TEXT, FIELD):  # in which escapes are told apart
            self.leaves = None if self.escaped or envelope.held else self._patterns.leaves_plain
            self.passes = False
        else:
            self.leaves = None if self.escaped else self._leaves
            self.passes = True
        reader.at = at
        return state

    def _begin(self, reader: Reader, usual: re.Pattern[str]) -> bool:
        """Read how a call begins as a rule; return whether more text has to show if it does so."""
        before, text = self._begun, reader.text
        begun = before + text[reader.at :]
        found = usual.match(begun)
        if found is not None and found.lastindex != 2 and not reader.ended:
            self._begun = begun
            reader.at = len(text)
            return True
        self.usual = None
        if found is not None and found.lastindex == 2:
            place = reader.base + reader.at - len(before)
            reader.at += found.end() - len(before)
            array = found.end(1)
            self._stack += "[{" if array else "{"
            self.in_string = True
            self.string_begin = place + found.end() - 1
            self.envelope.begin_named(place, array)
        elif before:
            reader.unread(before)
        return False

    def _skip_escaped(self, text: str, at: int, over_line: bool) -> int:
        """Return the place behind what is a part of the open string whatever it is."""
        if over_line:
            at += 1
        if self.escaped and at < len(text):
            self.escaped = False
            if not (self._lines and text[at] == "\n"):
                at += 1
        return at

    def _add_to_word(self, text: str) -> None:
        self._word = ((self._word or "") + text)[:LONGEST_WORD]
        self._numeric = self._numeric and numeric(text) is not None

    def _end_word(self, place: int) -> State:
        """Forget the word; return BROKEN if neither JSON nor one of its usual extensions has such a token."""
        known = self._numeric or self._word in WORDS
        self._word, self._numeric = None, True
        if known and len(self._stack) <= self.envelope.depth:
            self.envelope.end_value(len(self._stack), place)
        return OPEN if known else BROKEN
