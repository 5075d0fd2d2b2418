"""Finds the end of a JSON value, its nesting, and the calls that it holds, while the text arrives.

The scanner reads text piece by piece, and each character once. It judges tokens, not grammar. Braces, brackets and
strings find the end. A token that JSON does not have, such as a bare word, shows immediately that the text is broken.
One strict decoding of the complete value decides everything else.

A call is an object, alone or in an array. Its name and arguments are members of the object, or of the object in its
member `function`. So the one to three outermost levels are followed token by token. `facts` holds what they say, and
`want` says what the following text is. These early facts decide nothing: `streamtools.calls` reads the complete call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS
from streamtools.parsing.reader import Reader, always, matcher, white_space

# Tokens: patterns for strings, words and escapes, in text that arrives piece by piece.

WORD_BEGINS = frozenset("-+.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORDS = frozenset(("true", "false", "null", "NaN", "Infinity", "-Infinity"))
LONGEST_WORD = 16  # characters that are kept of a number or a literal; the longest literal has nine
NUMERIC = "-+.0123456789eE"
rest_of_word = matcher(r"[-+.0-9A-Za-z]*")
numeric = re.compile(r"[-+.0-9eE]*").fullmatch


@dataclass(frozen=True, slots=True)
class StringPatterns:
    """How a string continues. The searches find nothing in text that only continues it."""

    inside: Callable[[str, int], re.Match[str]]
    """Matches text that does not end the string, and ends with no half of an escape."""
    leaves: Callable[[str], Any]
    """Searches text in which each escape is complete, and none is an escaped back-slash."""
    leaves_escapes: Callable[[str], Any]
    """Searches any text."""
    leaves_escaped: Callable[[str], Any]
    """Searches any text whose first character is escaped."""
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
"""The same, but a line feed in a string is found too."""

# Text deep in a value: strings, numbers and separators, but no bracket. The last group that matched says where the text
# ends: in a number, elsewhere outside of strings, or inside the string that begins at that group. The first group is
# the beginning of the last complete string.
LAST_STRING, ENDS_IN_NUMBER, ENDS_IN_STRING = 1, 2, 4
_APART = r"[-+.0-9eE \t\r\n,:]*+"
_HOPS = rf'{_APART}(?:()"[^"\\\n]*"{_APART})*+(?:(?<=[-+.0-9eE])(\Z)|(\Z)|()"[^"\\\n]*\Z)'
hop_out_of_string = re.compile(rf'[^"\\\n]*"{_HOPS}').match
hop_into_string = re.compile(_HOPS).match

run = matcher(r'(?:[ \t\r\n,:]++|"[^"\\\n]*"|(?:[-+.0-9eE]++|true|false|null)(?=[ \t\r\n,:}\]]))*+')
"""Matches the same tokens, and literals, up to a bracket, or a string or word that may continue."""

# Matches the part of a string's content in which each escape and each pair of surrogates is complete. The text after it
# is the beginning of an escape or of a pair. An escape that JSON does not have counts as complete.
whole_escapes = matcher(
    r"(?:[^\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F]|\Z)"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}[^0-9a-fA-F]))*"
)
_replace_escapes = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
).sub


def unescape(text: str) -> str:
    """Return the text that the content of a JSON string means. An escape that JSON does not have means itself."""
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return _replace_escapes(_unescape_one, text)


def _unescape_one(escape: re.Match[str]) -> str:
    try:
        return str(json.loads(f'"{escape[0]}"', strict=False))
    except ValueError:
        return escape[0]


# Facts about calls.

FIELD = "field"  # the following text is a key, or the name of the tool
RAW = "raw"  # the following text is arguments: an object or an array
TEXT = "text"  # the following text is a string that holds the JSON of the arguments

BEGIN, ARGUMENTS, NAME, PIECE, END = "begin", "arguments", "name", "piece", "end"
CALL, BLAME = "call", "blame"
Fact: TypeAlias = tuple[str, Any]
"""A fact about a call, and its value.

BEGIN: the place where a call begins, or a value in its place. ARGUMENTS: the place where its arguments begin. NAME: the
name of the tool. PIECE: a piece of its arguments, as JSON. END: the place where it ends. CALL: the tool of a call whose
JSON does not name it. BLAME: the message of an error.
"""

_NAMES = frozenset(NAME_FIELDS)
_ARGUMENTS = frozenset(ARGUMENT_FIELDS)
_MAX_FIELD = 256  # characters of a key or a name that is read early; a longer name is read with the complete call


class ScanState(Enum):
    """Why the scanner returned."""

    OPEN = "open"  # the value continues after the text
    ENDED = "ended"  # the value is complete
    BROKEN = "broken"  # the next token cannot be JSON
    DEEP = "deep"  # the value nests deeper than the limit; returned once, and scanning may continue
    LINE = "line"  # a line feed inside a string follows, and the dialect has asked for these


OPEN, ENDED, BROKEN, DEEP, LINE = ScanState  # an attribute of an enumeration is a call before Python 3.12


class JsonScanner:
    """Scans one JSON object or array, for every cut of its text."""

    def __init__(self, *, depth: int, lines: bool = False) -> None:
        """Allow `depth` levels of nesting. With `lines`, return at line feeds in strings."""
        self._limit, self._lines = depth, lines
        self._patterns = patterns = IN_LINE_OF_STRING if lines else IN_STRING
        self._inside, self._leaves = patterns.inside, patterns.leaves
        # The position in the value.
        self._stack: list[str] = []  # the open brackets
        self._beyond = 0  # how many brackets beyond the limit are open
        self.outer = 0  # tokens at this depth and above may say something of a call
        self._word: str | None = None  # the beginning of a number or a literal, which may continue
        self._numeric = True  # it is a number
        self.in_string = False
        self.string_begin = -1  # the place where the last string begins
        self.escaped = False  # the next character belongs to the string: it follows a back-slash,
        self.over_line = False  # or it is the line feed that the last `scan` returned for
        self.leaves: Callable[[str], Any] = always  # finds nothing in text that only continues the open string
        self.passes = False  # `pass_over` may be called
        # The calls.
        self.facts: list[Fact] = []  # the facts since the caller has cleared them
        self._calls = 0  # the depth of calls: 0, or 1 in an array
        self._expects = True  # in an array: an element may begin
        self._first = True  # in an array: no element has begun
        self._field: str | None = None  # the key of the value that follows
        self._named = self._has_arguments = False
        self.members = -1  # the depth of the members of a call
        self.key = True  # the next string at that depth is a key
        self.want = ""  # what the following text is: FIELD, RAW, TEXT or nothing of interest
        self.wanted_depth = 0  # the depth of RAW arguments
        self._escape = ""  # the beginning of an escape in TEXT
        self.kept: list[str] = []  # the pieces of a FIELD

    @property
    def depth(self) -> int:
        """How many brackets are open."""
        return len(self._stack) + self._beyond

    def pass_over(self, text: str, place: int) -> bool:
        """Read all of `text`, at `place`, if it holds no bracket and no fact about a call. Returns whether it was read.

        Such text continues a string, or it is strings, numbers and separators deep in the value.
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
        """Return the place after the character that belongs to the open string in any case."""
        skips = self.over_line or not (self._lines and text[at] == "\n")
        self.escaped = self.over_line = False
        return at + skips

    def _add_to_word(self, text: str) -> None:
        self._word = ((self._word or "") + text)[:LONGEST_WORD]
        self._numeric = self._numeric and numeric(text) is not None

    def scan(self, reader: Reader) -> ScanState:
        """Read the text of `reader`. Returns the reason why it stopped.

        One loop handles all kinds of tokens, because most pieces of text hold one or two, and a function call costs
        more than a token.
        """
        stack = self._stack
        text, at, base = reader.text, reader.at, reader.base
        taken = at  # text before it has been taken, if it is wanted
        end = len(text)
        depth = len(stack)
        simple: bool | None = None  # whether strings end at the next quote; found when a string is met
        state = OPEN
        while at < end:
            if self.in_string:
                if self.escaped:
                    at = self._skip_escaped(text, at)
                if simple is None:
                    simple = "\\" not in text and not (self._lines and "\n" in text)
                if simple:  # the same as `inside`, at half the cost
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
                        if self.want == FIELD:  # the same as `take` and `end_value`: a small call is mostly keys
                            self.kept.append(text[taken:at])
                            field = "".join(self.kept)
                            if self.key and len(field) <= _MAX_FIELD and "\\" not in field and depth == self.members:
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
                elif char == "\\":  # the escaped character has not arrived, or is a line feed
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
                run_end = run(text, at).end()
                if run_end > at:
                    last = text.rfind('"', at, run_end)
                    if last > at and (first := text.rfind('"', at, last)) >= 0:
                        self.string_begin = base + first
                    at = run_end
                    continue
            if char == '"':
                if depth == self.members and self.key:  # the same as `begin_value`
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
                if self._beyond:  # beyond the limit, every bracket closes
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
            elif char in WORD_BEGINS:
                if shallow and not self.begin_value("", depth, base + at):
                    state = BROKEN
                    break
                self._word, self._numeric = "", True
            else:
                state = BROKEN
                break
        want = self.want
        if want and at > taken:
            if want == RAW:  # the same as `take`, here and below
                self.facts.append((PIECE, text[taken:at]))
            elif want == FIELD and not self.kept:
                self.kept.append(text[taken:at])
            else:
                self.take(text[taken:at])
        if not self.in_string:
            self.leaves = always
            self.passes = self._numeric and depth > self.outer
        elif want in (TEXT, FIELD):  # escapes matter in these
            self.leaves = always if self.escaped or self._escape else self._patterns.leaves_plain
            self.passes = False
        else:
            self.leaves = always if self.escaped else self._leaves
            self.passes = True
        reader.at = at
        return state

    def _end_word(self, place: int) -> ScanState:
        """End the word. Returns BROKEN if neither JSON nor its usual extensions have such a token."""
        known = self._numeric or self._word in WORDS
        self._word, self._numeric = None, True
        if known and len(self._stack) <= self.outer:
            self.end_value(len(self._stack), place)
        return OPEN if known else BROKEN

    # The outermost levels.

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Record a value or a key that begins at `depth`, with the character `first`, which is "" for a word.

        Returns False if JSON allows no value here.
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
        """Record the end of a value at `depth`. Returns False if JSON does not allow it to end here."""
        want, self.want = self.want, ""
        if want == FIELD:  # a member of a call
            kept = "".join(self.kept)
            text = self._read_field() if "\\" in kept or len(kept) > _MAX_FIELD else kept
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
            self.facts.append((PIECE, self._escape))
            self._escape = ""
        elif depth < self.outer:  # the end of `function`
            self.outer = self.members = depth
            self.key, self._field = False, None
        return True

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Record a comma or a colon at `depth`. Returns False if JSON allows none here.

        An unexpected token between two calls of an array begins a malformed call, so that it is reported.
        """
        allowed = mark == "," and depth == self._calls > 0 and not self._expects
        self._expects = True
        if not allowed:
            self.facts.append((BEGIN, place))
        return allowed

    def take(self, text: str) -> None:
        """Record a piece of the text that is wanted."""
        if self.want == FIELD:
            if len(self.kept) <= _MAX_FIELD:
                self.kept.append(text[: _MAX_FIELD + 1])
        elif self.want == RAW:
            self.facts.append((PIECE, text))
        else:
            text = self._escape + text
            whole = whole_escapes(text, 0).end()
            self._escape = text[whole:]
            if whole:
                self.facts.append((PIECE, unescape(text[:whole])))

    def _read_field(self) -> str | None:
        """Return the key or the name that has ended, or None if it is too long."""
        text = "".join(self.kept)
        return None if len(text) > _MAX_FIELD else unescape(text)


class Arguments(JsonScanner):
    """Scans the arguments of a call whose name stands elsewhere: a JSON object, or a string that holds one."""

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Record the object or the string. Other values are not arguments."""
        if first not in ("{", '"'):
            return False
        self.facts.append((ARGUMENTS, place))
        self.want = RAW if first == "{" else TEXT
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """Record the end."""
        if self.want == TEXT:
            self.facts.append((PIECE, self._escape))
            self._escape = ""
        self.want = ""
        self.facts.append((END, place))
        return True


# JSON values that hold their calls in other ways: under the name of the tool, or inside a container.

KEY, COLON, VALUE, AFTER_VALUE = "key", "colon", "value", "after value"
"""What may come next in an object."""


class CallsUnderNames(JsonScanner):
    """Calls with the name as the key and the arguments as the value: `[{"get_weather": {"city": "Paris"}}]`.

    An object with several keys is several calls. Only the arguments are decoded later, so this class checks all the
    rest.
    """

    def __init__(self, *, depth: int, lines: bool = False) -> None:
        super().__init__(depth=depth, lines=lines)
        self._next = KEY
        self._object = 0  # the place where the object begins
        self._begun = False  # a call of the object has begun

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Begin the array, an object in it, a name or its arguments."""
        if depth == 0 and first == "[":
            self._calls = self.outer = 1
        elif depth == self._calls:
            if not self._expects or first != "{":
                self.facts.append((BEGIN, place))
                return False
            self._expects = self._first = self._begun = False
            self._object, self._next = place, KEY
            self.outer = depth + 1
        elif self._next == KEY and first == '"':
            self.facts.append((BEGIN, place if self._begun else self._object))
            self._begun = True
            self.want, self.kept = FIELD, []
        elif self._next == VALUE:
            self.facts.append((ARGUMENTS, place))
            self.want = {"": "", '"': TEXT}.get(first, RAW)
            self.wanted_depth = depth
        else:
            return self._refuse(place)
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """End a name, its arguments, an object or the array."""
        want, self.want = self.want, ""
        if depth < self._calls:
            return self._first or not self._expects
        if depth == self._calls:
            self.outer = depth
            if self._next == KEY and not self._begun:
                self.facts += [(BEGIN, self._object), (BLAME, "the call names no tool"), (END, place)]
                return True
            return self._next == AFTER_VALUE
        if want == FIELD:
            name = self._read_field()
            self.facts.append((BLAME, "the name of the tool is too long") if name is None else (CALL, name))
            self._next = COLON
            return True
        if want == TEXT:
            self.facts.append((PIECE, self._escape))
            self._escape = ""
        self.facts.append((END, place))
        self._next = AFTER_VALUE
        return True

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Read a comma or a colon."""
        if depth == self._calls:
            return super().separate(mark, depth, place)
        if mark != {COLON: ":", AFTER_VALUE: ","}.get(self._next):
            return self._refuse(place)
        self._next = VALUE if mark == ":" else KEY
        return True

    def _refuse(self, place: int) -> bool:
        """Refuse what stands here. After a complete call it is a bad call of its own."""
        if self._next in (KEY, AFTER_VALUE):
            self.facts.append((BEGIN, place))
        return False


class CallsInContainer(JsonScanner):
    """Calls in an object: `{"tools": [{"tool": "get_weather", "arguments": {...}}]}`.

    One call, or an array of calls, may stand alone. The first key distinguishes a container from a call.
    """

    CONTAINERS = frozenset({"tools", "tool_calls"})

    def __init__(self, *, depth: int, lines: bool = False) -> None:
        super().__init__(depth=depth, lines=lines)
        self._in_container: bool | None = None  # None: not known yet
        self._place = 0  # where the object begins
        self._next = KEY

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Begin a value or a key."""
        if self._in_container is False or depth > 1:
            return super().begin_value(first, depth, place)
        if depth == 0 and first == "{":
            self._place, self.outer = place, 1
        elif depth == 0:
            self._in_container = False
            return super().begin_value(first, depth, place)
        elif self._next == KEY and first == '"' and self._in_container is None:
            self.want, self.kept = FIELD, []
        elif self._next == VALUE and first == "[":
            self._calls = self.outer = 2
        else:
            self.facts.append((BEGIN, place))
            return False
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """End a value or a key."""
        if self._in_container is False or depth > 1:
            return super().end_value(depth, place)
        if self.want == FIELD:
            self.want = ""
            self._take_first_key(self._read_field())
            return True
        if depth == 1:
            self.outer, self._next = 1, AFTER_VALUE
            return super().end_value(depth, place)
        if self._next == KEY:
            self.facts += [(BEGIN, self._place), (END, place)]
        return self._next in (KEY, AFTER_VALUE)

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Read a comma or a colon."""
        if self._in_container is False or depth > 1:
            return super().separate(mark, depth, place)
        if self._next == COLON and mark == ":":
            self._next = VALUE
            return True
        self.facts.append((BEGIN, place))
        return False

    def _take_first_key(self, key: str | None) -> None:
        """Decide by the first key whether the object is a container or a call."""
        self._in_container = key in self.CONTAINERS
        if self._in_container:
            self._next = COLON
        else:
            super().begin_value("{", 0, self._place)
            self._field = key
