"""Where a JSON value ends, what it nests, and what it says of calls while it arrives.

The scanner reads text piece by piece and looks at no character twice. It judges tokens, not grammar: braces, brackets
and strings find the end, and a token that JSON does not have (a bare word, a single quote) shows at once that the text
is broken. Everything else is left to one strict decoding of the whole value at its end.

A call is an object, alone or in an array; its name and arguments are members of it, or of the object under `function`.
So the one to three outermost levels are followed token by token: what they say stands in `facts`, and `want` is what
is wanted of the text that follows. That is learnt early and decides nothing: what a complete call says is read once,
from the whole of it, in `streamtools.calls`.
"""

from __future__ import annotations

from enum import Enum

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS
from streamtools.parsing import json_parts
from streamtools.parsing.json_parts import (
    ARGUMENTS,
    BEGIN,
    END,
    FIELD,
    NAME,
    PIECE,
    RAW,
    TEXT,
    Fact,
    Nesting,
    rest_of_word,
    run,
)
from streamtools.parsing.reader import Reader, always, white_space

_NAMES = frozenset(NAME_FIELDS)
_ARGUMENTS = frozenset(ARGUMENT_FIELDS)
_KEPT = 256  # characters of a key or a name: a longer key is none of ours, a longer name waits for the complete call


class State(Enum):
    """Where the scanner stands when it returns."""

    OPEN = "open"  # it needs more text
    ENDED = "ended"  # the value is complete
    BROKEN = "broken"  # what comes next cannot be JSON
    DEEP = "deep"  # the value nests deeper than the limit; reported once, scanning may go on
    LINE = "line"  # a line feed inside a string comes next, which the dialect wants to know


OPEN, ENDED, BROKEN, DEEP, LINE = State  # by these names, because before 3.12 an attribute of an enumeration is a call


class JsonText(Nesting):
    """Reads one JSON object or array, however it is cut."""

    __slots__ = (
        "_calls", "_expects", "_field", "_first", "_has_arguments", "_inside", "_named", "facts", "held", "kept", "key",
        "members", "want", "wanted_depth",
    )  # fmt: skip

    def __init__(self, *, depth: int, lines: bool = False) -> None:
        """Nest `depth` levels; with `lines`, stop at line feeds in strings."""
        self._limit, self._lines = depth, lines
        self._patterns = patterns = json_parts.IN_LINE_OF_STRING if lines else json_parts.IN_STRING
        self._inside, self._leaves = patterns.inside, patterns.leaves
        self._stack = []
        self._beyond = self.outer = 0
        self._word, self.leaves = None, always
        self._numeric = True
        self.in_string = self.escaped = self.over_line = self.passes = False
        self.string_begin = -1
        self.facts: list[Fact] = []  # what has been read of calls since `facts` was taken
        self._calls = 0  # the depth at which calls stand: 0, or 1 in an array
        self._expects = True  # in an array: an element may begin
        self._first = True  # in an array: none has
        self._field: str | None = None  # the member whose value comes
        self._named = self._has_arguments = False
        self.members = -1  # the depth of tokens that are the members of a call, which only key and value tell apart
        self.key = True  # the next string of these is a key
        self.want = ""  # what is wanted of the text that comes
        self.wanted_depth = 0  # the depth at which raw arguments stand
        self.held = ""  # the beginning of an escape
        self.kept: list[str] = []  # the pieces of the key or the name that comes

    def scan(self, reader: Reader) -> State:
        """Read as far as the text goes.

        One loop over all kinds of tokens: most pieces of text hold one or two, and a function call costs more than a
        token.
        """
        stack = self._stack
        text, at, base = reader.text, reader.at, reader.base
        taken = at  # what comes before has been given to the envelope, if it is wanted
        end = len(text)
        depth = len(stack)
        simple: bool | None = None  # whether strings end at the next quote, which only they have to know
        state = OPEN
        while at < end:
            if self.in_string:
                if self.escaped:
                    at = self._skip_escaped(text, at)
                if simple is None:
                    simple = "\\" not in text and not (self._lines and "\n" in text)
                if simple:  # as `inside` would, which costs twice as much
                    at = text.find('"', at)
                    if at < 0:
                        at = end
                else:
                    at = self._inside(text, at).end()
                if at == end:
                    break
                char = text[at]
                if char == '"':
                    self.in_string = False
                    if depth <= self.outer:
                        if self.want == FIELD:  # as `take` would, and `end_value`: keys are most of a small call
                            self.kept.append(text[taken:at])
                            field = "".join(self.kept)
                            if self.key and len(field) <= _KEPT and "\\" not in field and depth == self.members:
                                self._field, self.want = field, ""
                            else:
                                self.end_value(depth, base + at + 1)
                        else:
                            if self.want:
                                self.take(text[taken:at])
                            self.end_value(depth, base + at + 1)
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
            shallow = depth <= self.outer
            if not shallow and char not in "{}[]":
                behind = run(text, at).end()
                if behind > at:
                    last = text.rfind('"', at, behind)
                    if last > at and (first := text.rfind('"', at, last)) >= 0:
                        self.string_begin = base + first
                    at = behind
                    continue
            if char == '"':
                if depth == self.members and self.key:  # as `begin_value` would
                    self.want, self.kept = FIELD, []
                elif shallow and not self.begin_value(char, depth, base + at):
                    state = BROKEN
                    break
                self.in_string = True
                self.string_begin = base + at
                at += 1
                if self.want != RAW:
                    taken = at
            elif char in ",:":
                if depth == self.members:
                    self.key = char == ","
                elif shallow and not self.separate(char, depth, base + at):
                    state = BROKEN
                    break
                at += 1
            elif char in " \t\r\n":
                at += 1
                if at < end and text[at] in " \t\r\n":
                    at = white_space(text, at).end()
            elif char in "{[":
                wanted = self.want
                if shallow and not self.begin_value(char, depth, base + at):
                    state = BROKEN
                    break
                if self.want != wanted:
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
                if depth > self.outer:
                    continue
                if self.want == RAW and depth == self.wanted_depth:
                    self.facts.append((PIECE, text[taken:at]))
                if depth == self.members:
                    self.want = ""
                elif not self.end_value(depth, base + at):
                    state = BROKEN
                    break
                if not depth:
                    state = ENDED
                    break
            elif char in json_parts.WORD_BEGINS:
                if shallow and not self.begin_value("", depth, base + at):
                    state = BROKEN
                    break
                self._word, self._numeric = "", True
            else:
                state = BROKEN
                break
        want = self.want
        if want and at > taken:
            if want == RAW:  # as `take` would, here and below
                self.facts.append((PIECE, text[taken:at]))
            elif want == FIELD and not self.kept:
                self.kept.append(text[taken:at])
            else:
                self.take(text[taken:at])
        if not self.in_string:
            self.leaves = always
            self.passes = self._numeric and depth > self.outer
        elif want in (TEXT, FIELD):  # in which escapes are read
            self.leaves = always if self.escaped or self.held else self._patterns.leaves_plain
            self.passes = False
        else:
            self.leaves = always if self.escaped else self._leaves
            self.passes = True
        reader.at = at
        return state

    def _end_word(self, place: int) -> State:
        """Forget the word; return BROKEN if neither JSON nor one of its usual extensions has such a token."""
        known = self._numeric or self._word in json_parts.WORDS
        self._word, self._numeric = None, True
        if known and len(self._stack) <= self.outer:
            self.end_value(len(self._stack), place)
        return OPEN if known else BROKEN

    # What the outermost levels say.

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Take note of a value, or a key, that begins at `depth` with a quote, a bracket, or (a word) nothing.

        Returns False where JSON allows no value.
        """
        if depth == 0 and first == "[":
            self._calls = self.outer = 1
        elif depth == self._calls:
            if not self._expects:
                self.facts.append((BEGIN, place))
                return False
            self._expects = self._first = False
            self.key, self._field, self._named, self._has_arguments = True, None, False, False
            if first == "{":
                self.outer = self.members = depth + 1
            self.facts.append((BEGIN, place))
        elif depth < self.outer:
            return False
        elif first == '"' and (self.key or (self._field in _NAMES and not self._named)):
            self.want, self.kept = FIELD, []
        elif self.key:
            return False
        elif self._field in _ARGUMENTS and first and not self._has_arguments:
            self.want = TEXT if first == '"' else RAW
            self.wanted_depth = depth
            self._has_arguments = True
        elif self._field == "function" and first == "{" and depth == self._calls + 1:
            self.outer = self.members = depth + 1
            self.key, self._field = True, None
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """Take note of the end of a value at `depth`; return False where JSON does not allow it to end."""
        want, self.want = self.want, ""
        if want == FIELD:  # a member of a call, since nothing else has fields
            kept = "".join(self.kept)
            text = self._read_field() if "\\" in kept or len(kept) > _KEPT else kept
            if self.key:
                self._field = text
            elif text and text.strip():
                self._named = True
                self.facts.append((NAME, text))
        elif depth < self._calls:
            return self._first or not self._expects
        elif depth == self._calls:
            self.facts.append((END, place))
            self.outer, self.members = depth, -1
        elif want == TEXT:
            self.facts.append((PIECE, self.held))
            self.held = ""
        elif depth < self.outer:  # the end of `function`
            self.outer = self.members = depth
            self.key, self._field = False, None
        return True

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Take note of a comma or a colon at `depth`; return False where JSON allows none.

        What stands between two calls of an array and does not belong there is a bad call of its own, so that good
        ones before it do not hide it.
        """
        allowed = mark == "," and depth == self._calls > 0 and not self._expects
        self._expects = True
        if not allowed:
            self.facts.append((BEGIN, place))
        return allowed

    def take(self, text: str) -> None:
        """Take a piece of the text that is wanted."""
        if self.want == FIELD:
            if len(self.kept) <= _KEPT:
                self.kept.append(text[: _KEPT + 1])
        elif self.want == RAW:
            self.facts.append((PIECE, text))
        else:
            text = self.held + text
            whole = json_parts.whole_escapes(text, 0).end()
            self.held = text[whole:]
            if whole:
                self.facts.append((PIECE, json_parts.unescape(text[:whole])))

    def _read_field(self) -> str | None:
        """Return the key or the name that has come to its end, or None if it is too long."""
        text = "".join(self.kept)
        return None if len(text) > _KEPT else json_parts.unescape(text)


class Arguments(JsonText):
    """One JSON object that is the arguments of a call, or a string that holds it: the name stands elsewhere."""

    __slots__ = ()

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Take note of the object or the string; anything else is no arguments."""
        if first not in ("{", '"'):
            return False
        self.facts.append((ARGUMENTS, place))
        self.want = RAW if first == "{" else TEXT
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """Take note of its end."""
        if self.want == TEXT:
            self.facts.append((PIECE, self.held))
            self.held = ""
        self.want = ""
        self.facts.append((END, place))
        return True
