"""Finds the end of a JSON value, its nesting, and the calls in it, while the text arrives.

The scanner reads text piece by piece, and reads each character once. It checks tokens, not the grammar. It counts
brackets outside of strings to find the end of the value. An invalid token, such as a bare word, shows immediately that
the JSON is broken. Other errors are found later, when the complete value is decoded strictly.

A call is a JSON object, alone or in an array. Its name and its arguments are members of that object, or members of an
inner object under the key `function`. Only the outermost one to three levels can hold these members, so the scanner
checks every token there. It reports the calls and their parts to the span. `text_kind` is the kind of the text that it
is reading: a key or a name, or arguments. The reported name and arguments are early reports only: when the call is
complete, `streamtools.calls` reads the call from the decoded JSON. For a call in three pieces, the scanner does this:

    {"name": "add", "ar           begin_call(0), report_name("add"); then it reads a key (FIELD)
    guments": {"a": [1            report_arguments('{"a": [1'); then it reads arguments (RAW)
    , 2]}}                        report_arguments(', 2]}'), end_call(43); the value is complete (ENDED)

Most text is inside a string, or deep in the arguments. There are three ways to read text, the fastest first:

- `find_change` finds nothing, so the text only continues a string. The parser does not call the scanner.
- `pass_over` matches the whole text with one regular expression, deep in the value or inside a string with escapes.
- `scan` reads token by token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS
from streamtools.parsing.reader import Reader, always, matcher, white_space

# Tokens: patterns for strings, words and escapes, in text that arrives piece by piece.

WORD_BEGINS = frozenset("-+.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
WORDS = frozenset(("true", "false", "null", "NaN", "Infinity", "-Infinity"))
LONGEST_WORD = 16  # how many characters of a number or literal are stored; the longest literal has nine
NUMERIC = "-+.0123456789eE"
rest_of_word = matcher(r"[-+.0-9A-Za-z]*")
numeric = re.compile(r"[-+.0-9eE]*").fullmatch
json_number = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?").fullmatch
"""Matches a number. Group 1 is the fraction, and group 2 the exponent. A number without them is an integer."""


class StringPatterns(NamedTuple):
    """Patterns for the inside of a string.

    `inside` matches content. Each of the others searches a text for the end of the string, and returns None if the
    string continues after the text.
    """

    inside: Callable[[str, int], re.Match[str]]
    """Matches text up to the end of the string. An escape at the end of the text is matched only if it is complete."""
    find_end: Callable[[str], Any]
    """For text that does not begin inside an escape.

    Besides the closing quote, it finds an escaped back-slash, and a back-slash at the end.
    """
    find_end_after_escapes: Callable[[str], Any]
    """For text with any escapes. The text may end with a back-slash."""
    find_end_if_escaped: Callable[[str], Any]
    """For text whose first character is escaped by the back-slash before the text."""
    find_end_or_escape: Callable[[str], Any]
    """For text that is used unchanged if it contains no escape. It also finds each back-slash."""


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
"""Like `IN_STRING`, but a line feed ends `inside`, and each search also finds line feeds."""

# The next two patterns match a whole text that holds only strings, numbers and separators. Group 1 is at the beginning
# of the last complete string. One of three other groups shows how the text ends. Group 2: in a number. Group 3: at
# another character outside of a string. Group 4: inside a string, and the group is at the beginning of that string.
LAST_STRING, ENDS_IN_NUMBER, ENDS_IN_STRING = 1, 2, 4
_BETWEEN_STRINGS = r"[-+.0-9eE \t\r\n,:]*+"
_FROM_OUTSIDE = rf'{_BETWEEN_STRINGS}(?:()"[^"\\\n]*"{_BETWEEN_STRINGS})*+(?:(?<=[-+.0-9eE])(\Z)|(\Z)|()"[^"\\\n]*\Z)'
whole_text_from_string = re.compile(rf'[^"\\\n]*"{_FROM_OUTSIDE}').match
whole_text_from_outside = re.compile(_FROM_OUTSIDE).match

plain_tokens = matcher(r'(?:[ \t\r\n,:]++|"[^"\\\n]*"|(?:[-+.0-9eE]++|true|false|null)(?=[ \t\r\n,:}\]]))*+')
"""Matches separators, numbers, literals, and strings without escapes and line feeds.

It stops before anything else, and before a word at the end of the text.
"""

# Matches the content of a string, but not an escape or a surrogate pair that the end of the text cuts. An invalid
# escape is treated as complete.
whole_escapes = matcher(
    r"(?:[^\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F]|\Z)"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}[^0-9a-fA-F]))*"
)
# Replaces surrogate pairs of escapes, single `\u` escapes, and all other escapes.
_replace_escapes = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.", re.DOTALL
).sub


def unescape(text: str) -> str:
    """Decode the content of a JSON string. An invalid escape is kept unchanged."""
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


# Values of `JsonScanner.text_kind`: the kind of the text that is being read.
FIELD = "field"  # a key, or the name of the tool
RAW = "raw"  # the arguments as an object or an array
TEXT = "text"  # the arguments as a string whose content is JSON

_NAMES = frozenset(NAME_FIELDS)
_ARGUMENTS = frozenset(ARGUMENT_FIELDS)
_MAX_FIELD = 256  # the longest key or name that is reported early; a longer name is read with the complete call


class ScanState(Enum):
    """Why the scanner returned."""

    OPEN = "open"  # the value continues after the text
    ENDED = "ended"  # the value is complete
    BROKEN = "broken"  # the next token cannot be JSON
    DEEP = "deep"  # the value nests deeper than the limit; scanning may continue after this state
    LINE = "line"  # the next character is a line feed inside a string; returned only with `lines=True`


OPEN, ENDED, BROKEN, DEEP, LINE = ScanState  # variables, because `ScanState.OPEN` is slow before Python 3.12


class CallReports(Protocol):
    """The methods of `Span` with which a scanner reports calls. Positions count characters from the start of the span.

    A malformed value where a call should begin is also reported as the beginning of a call.
    """

    def begin_call(self, place: int) -> None: ...
    def begin_arguments(self, place: int) -> None: ...
    def report_name(self, name: str) -> None: ...
    def report_arguments(self, text: str) -> None: ...
    def end_call(self, place: int) -> None: ...


class JsonScanner:
    """Scans one JSON object or array. The result does not depend on where the text is cut into pieces."""

    def __init__(self, calls: CallReports, *, depth: int, lines: bool = False) -> None:
        """Report to `calls`. `depth` is the deepest nesting that is allowed.

        With `lines`, `scan` stops at each line feed in a string.
        """
        self._calls, self._limit, self._lines = calls, depth, lines
        self._patterns = IN_LINE_OF_STRING if lines else IN_STRING
        # The position in the value.
        self._stack: list[str] = []  # the open brackets
        self._beyond = 0  # how many of the open brackets are deeper than the limit
        self.outer = 0  # the deepest level at which tokens may belong to the structure of a call
        self._word: str | None = None  # the text of an unfinished number or literal; None outside of one
        self._numeric = True  # `_word` holds only characters that occur in numbers
        self.in_string = False
        self.string_begin = -1  # the position where the most recent string begins; -1 before the first string
        self.escaped = False  # the next character belongs to the open string, whatever it is
        self.over_line = False  # the next character is the line feed at which `scan` returned LINE
        self.find_change: Callable[[str], Any] = always  # returns None for text that only continues the open string
        self.can_pass_over = False  # whether `pass_over` may be called
        # The calls.
        self._call_depth = 0  # the depth at which calls begin: 0 for a single call, 1 in an array
        self._expects = True  # whether a value may begin at the depth `_call_depth`
        self._first = True  # whether the array is still empty
        self._field: str | None = None  # the most recent key of the call
        self._named = self._has_arguments = False  # whether the call has a name; whether it has arguments
        self.members = -1  # the depth of the keys of the current call; -1 outside of a call
        self.key = True  # the next string at the depth `members` is a key
        self.text_kind = ""  # the kind of the text that is being read: FIELD, RAW, TEXT, or "" for other text
        self.raw_depth = 0  # the depth at which RAW arguments begin
        self._escape = ""  # an incomplete escape at the end of the text, if `text_kind` is TEXT
        self.reports_arguments = True  # whether arguments have a `text_kind`, and are reported
        self.kept: list[str] = []  # the text of the FIELD that is being read, in pieces

    @property
    def depth(self) -> int:
        """How many brackets are open."""
        return len(self._stack) + self._beyond

    def pass_over(self, text: str, place: int) -> bool:
        """Fast path for `scan`: read all of `text`, which begins at the position `place`. Without it, long arguments
        take 15 to 50 % longer.

        The text is read if it only continues a string and has escapes. At a depth greater than `outer`, it is also read
        if it holds only numbers, separators, and strings without escapes and line feeds. Otherwise returns False, and
        reads nothing. Text that continues a string without escapes is the task of `find_change`.
        """
        if self.in_string and (self.escaped or "\\" in text):
            return self._pass_over_escapes(text)
        if len(self._stack) <= self.outer:
            return False
        found = whole_text_from_string(text) if self.in_string else whole_text_from_outside(text)
        if found is None:
            return False
        ends = found.lastindex
        if ends == ENDS_IN_STRING:
            self.in_string = True
            self.string_begin = place + found.start(ends)
            self._word = None
            self.find_change = self._patterns.find_end
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
        self.find_change = always
        return True

    def _pass_over_escapes(self, text: str) -> bool:
        find_end = self._patterns.find_end_if_escaped if self.escaped else self._patterns.find_end_after_escapes
        if find_end(text) is not None:
            return False
        if text[-1] == "\\":
            slashes = len(text) - len(text.rstrip("\\"))
            self.escaped = (slashes - (self.escaped and slashes == len(text))) % 2 == 1
        else:
            self.escaped = False
        self.find_change = always if self.escaped else self._patterns.find_end
        return True

    def scan(self, reader: Reader) -> ScanState:
        """Read the unread text of `reader`. Returns the reason why scanning stopped.

        One loop handles all kinds of tokens. Most pieces of text hold one or two tokens, and a function call costs
        more than reading a token.
        """
        stack = self._stack
        text, at, base = reader.text, reader.at, reader.base
        taken = at  # text with a kind (`text_kind`) has been recorded up to this index
        end = len(text)
        depth = len(stack)
        state = OPEN
        while at < end:
            if self.in_string:
                if self.escaped:  # a line feed is not skipped if it must be reported
                    at += self.over_line or not (self._lines and text[at] == "\n")
                    self.escaped = self.over_line = False
                at = self._patterns.inside(text, at).end()
                if at == end:
                    break
                char = text[at]
                if char == '"':
                    self.in_string = False
                    if depth <= self.outer:
                        self.end_value(depth, base + at + 1, text[taken:at])
                    at += 1
                    if not depth:  # the whole value is a string
                        state = ENDED
                        break
                elif char == "\\":  # the next character has not arrived, or is a line feed
                    self.escaped = True
                    at += 1
                else:
                    state = LINE
                    break
                continue
            if self._word is not None:
                word = rest_of_word(text, at)
                self._word = (self._word + word[0])[:LONGEST_WORD]
                self._numeric = self._numeric and numeric(word[0]) is not None
                at = word.end()
                if at < end:
                    state = self._end_word(base + at)
                    if state is not OPEN:
                        break
                continue
            char = text[at]
            shallow = depth <= self.outer
            if not shallow and char not in "{}[]":
                tokens_end = plain_tokens(text, at).end()
                if tokens_end > at:
                    last = text.rfind('"', at, tokens_end)
                    if last > at and (first := text.rfind('"', at, last)) >= 0:
                        self.string_begin = base + first
                    at = tokens_end
                    continue
            if char == '"':
                if shallow and not self.begin_value(char, depth, base + at):
                    state = BROKEN
                    break
                self.in_string = True
                self.string_begin = base + at
                at += 1
                if self.text_kind != RAW:
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
                kind = self.text_kind
                if shallow and not self.begin_value(char, depth, base + at):
                    state = BROKEN
                    break
                if self.text_kind != kind:
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
                if self._beyond:  # deeper than the limit, the kind of a closing bracket is not checked
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
                if self.text_kind == RAW and depth == self.raw_depth:
                    self._calls.report_arguments(text[taken:at])
                if depth == self.members:
                    self.text_kind = ""
                elif not self.end_value(depth, base + at):
                    state, at = BROKEN, at - 1  # the bracket stays unread: the text after it must not change the state
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
        kind = self.text_kind
        if kind and at > taken:
            self.take(text[taken:at])
        if not self.in_string:
            self.find_change = always
            self.can_pass_over = self._numeric and depth > self.outer
        elif kind in (TEXT, FIELD):  # text of these kinds is decoded, so `scan` must read every escape
            self.find_change = always if self.escaped or self._escape else self._patterns.find_end_or_escape
            self.can_pass_over = False
        else:
            self.find_change = always if self.escaped else self._patterns.find_end
            self.can_pass_over = True
        reader.at = at
        return state

    def _end_word(self, place: int) -> ScanState:
        """End a number or literal. Returns BROKEN for a word that is neither numeric nor one of `WORDS`."""
        known = self._numeric or self._word in WORDS
        self._word, self._numeric = None, True
        if known and len(self._stack) <= self.outer:
            self.end_value(len(self._stack), place)
        return OPEN if known else BROKEN

    # The outermost levels.

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Record that a value or a key begins at `depth`, at the position `place`.

        `first` is its first character, or "" for a number or a literal. Returns False if JSON allows no value there.
        """
        if depth == 0 and first == "[":
            self._call_depth = self.outer = 1
        elif depth == self._call_depth:
            if not self._expects:
                self._calls.begin_call(place)
                return False
            self._expects = self._first = False
            self.key, self._field, self._named, self._has_arguments = True, None, False, False
            if first == "{":
                self.outer = self.members = depth + 1
            self._calls.begin_call(place)
        elif depth < self.outer:
            return False
        elif first == '"' and (self.key or (self._field in _NAMES and not self._named)):
            self.text_kind, self.kept = FIELD, []
        elif self.key:
            return False
        elif self._field in _ARGUMENTS and first and not self._has_arguments:
            if self.reports_arguments:
                self.text_kind = TEXT if first == '"' else RAW
            self.raw_depth = depth
            self._has_arguments = True
        elif self._field == "function" and first == "{" and depth == self._call_depth + 1:
            self.outer = self.members = depth + 1
            self.key, self._field = True, None
        return True

    def end_value(self, depth: int, place: int, text: str = "") -> bool:
        """Record that a value ends at `depth`, at the position `place`. Returns False if JSON allows no end there.

        `text` is the last piece of a string.
        """
        kind = self.text_kind
        if kind == TEXT:
            self.take(text)
            self._calls.report_arguments(self._escape)
            self._escape = ""
        self.text_kind = ""
        if kind == FIELD:  # a key of a call, or the name of its tool, has ended
            kept = "".join(self.kept) + text
            if len(kept) > _MAX_FIELD:
                kept = ""
            elif "\\" in kept:
                kept = unescape(kept)
            if self.key:
                self._field = kept
            elif kept.strip():
                self._named = True
                self._calls.report_name(kept)
        elif depth < self._call_depth:
            return self._first or not self._expects
        elif depth == self._call_depth:
            self._calls.end_call(place)
            self.outer, self.members = depth, -1
        elif depth < self.outer:  # the object under the key `function` has ended
            self.outer = self.members = depth
            self.key, self._field = False, None
        return True

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Record the comma or colon `mark` at `depth`. Returns False if JSON does not allow it at the position `place`.

        A mark that is not allowed is reported as the beginning of a malformed call.
        """
        allowed = mark == "," and depth == self._call_depth > 0 and not self._expects
        self._expects = True
        if not allowed:
            self._calls.begin_call(place)
        return allowed

    def take(self, text: str) -> None:
        """Record a piece of text of the kind `text_kind`."""
        if self.text_kind == FIELD:
            if len(self.kept) <= _MAX_FIELD:
                self.kept.append(text[: _MAX_FIELD + 1])
        elif self.text_kind == RAW:
            self._calls.report_arguments(text)
        else:
            text = self._escape + text
            whole = whole_escapes(text, 0).end()
            self._escape = text[whole:]
            if whole:
                self._calls.report_arguments(unescape(text[:whole]))


class Arguments(JsonScanner):
    """Scans the arguments of a call whose name is outside of the JSON: an object, or a string that holds an object."""

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Record that the object or the string begins. Returns False for any other value."""
        if first not in ("{", '"'):
            return False
        self._calls.begin_arguments(place)
        if self.reports_arguments:
            self.text_kind = RAW if first == "{" else TEXT
        return True
