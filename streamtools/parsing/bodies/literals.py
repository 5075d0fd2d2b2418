"""Literals of a programming language, as JSON: `{'units': None, "days": (1, 2,)}` is `{"units":null,"days":[1,2]}`.

The strings and words of a language are parameters. Models mostly write those of Python, which include those of JSON but
for three words. `Literals` is a push converter: it takes text as it arrives, writes JSON as soon as that is certain,
and reads nothing twice but a token that is cut, which is bounded. It reads the whole grammar, so that it writes valid
JSON whatever it reads, and it never guesses. No `eval`, no `ast`: this is the output of a model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from json.encoder import encode_basestring

from streamtools.errors import Code
from streamtools.parsing.json_text import State
from streamtools.parsing.markers import beginning
from streamtools.parsing.reader import matcher, white_space

# NaN and Infinity are JSON for Python only: the decoding of a complete call names them.
JSON_WORDS = {word: word for word in ("true", "false", "null", "NaN", "Infinity", "-Infinity")}
PYTHON_WORDS = JSON_WORDS | {"True": "true", "False": "false", "None": "null"}

_is_json = re.compile(r'(?:[^"\\\x00-\x1f]++|\\.)*+').fullmatch
_pieces = re.compile(r"\\.|[^\\]+", re.DOTALL).findall


@dataclass(frozen=True)
class Quotes:
    """The marks around a string, and whether a back-slash in it begins an escape, or only protects a quote."""

    mark: str
    escapes: bool = True
    raw: bool = False

    @cached_property
    def content(self) -> Callable[[str, int], re.Match[str]]:
        """Matches content up to the mark, a beginning of it at the end of the text, or what needs a closer look."""
        return matcher(self._content)

    @cached_property
    def leaves(self) -> Callable[[str], object]:
        """Finds nothing in text that is content, whatever comes next."""
        return re.compile(f"(?!{self._content}\\Z)").match

    @property
    def _content(self) -> str:
        first, rest = re.escape(self.mark[0]), self.mark[1:]
        slash = r"\\" if self.escapes or self.raw else ""
        plain = f"[^{first}{slash}]++"
        if self.escapes:
            plain += r'|\\[\\"/bfnrt]'  # what means the same behind a back-slash in JSON as here
        if rest:  # a beginning of the mark that it is not
            begun = f"(?:{beginning(rest)})?" if len(rest) > 1 else ""
            plain += f"|{first}(?!{re.escape(rest)}|{begun}\\Z)"
        return f"(?:{plain})*+"

    def convert(self, content: str) -> str:
        """Return content as it stands inside a JSON string."""
        if content.isprintable() and '"' not in content and (self.escapes or "\\" not in content):
            return content
        if not self.escapes or "\\" not in content:
            return quoted(content)
        if _is_json(content):
            return content
        return "".join(each if each[0] == "\\" else quoted(each) for each in _pieces(content))


@dataclass(frozen=True)
class Syntax:
    """The forms of literals. Of quotes that begin with one another, the longest counts."""

    quotes: tuple[Quotes, ...]
    words: Mapping[str, str]
    """JSON for each word that is no number."""
    raw_quotes: tuple[Quotes, ...] = ()
    """Strings behind the letter r."""
    tuples: bool = False
    bare_keys: bool = False
    """Keys are what stands before the colon, and may be quoted; else they are strings or numbers."""
    bare_strings: bool = False
    """A value without quotes that is no word and no number is a string, up to the next comma, bracket or line."""

    @cached_property
    def firsts(self) -> frozenset[str]:
        """The characters with which a string begins."""
        return frozenset(quotes.mark[0] for quotes in self.quotes)

    def find_quotes(self, text: str, at: int, *, raw: bool = False, ended: bool = False) -> Quotes | bool:
        """Return what begins a string here, True if the text is too short to tell, or False if nothing does."""
        for quotes in self.raw_quotes if raw else self.quotes:
            if text.startswith(quotes.mark, at):
                return quotes
            if not ended and len(text) - at < len(quotes.mark) and quotes.mark.startswith(text[at:]):
                return True
        return False


_MARKS = ('"""', "'''", '"', "'")
PYTHON = Syntax(
    quotes=tuple(map(Quotes, _MARKS)),
    words=PYTHON_WORDS | {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"},
    raw_quotes=tuple(Quotes(mark, escapes=False, raw=True) for mark in _MARKS),
    tuples=True,
)
"""Literals of Python and of JSON."""

_DIGITS = r"\d++(?:_\d++)*+"  # possessive: digits that no point divides are not divided in every possible way
_decimal = re.compile(rf"([-+]?)({_DIGITS})?(\.)?({_DIGITS})?(?:[eE]([-+]?{_DIGITS}))?", re.ASCII).fullmatch
_prefixed = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F]{1,128}|[oO][0-7]{1,128}|[bB][01]{1,128})").fullmatch


def number(word: str) -> str | None:
    """Return a number as JSON, or None if `word` is none."""
    if _prefixed(word):
        return str(int(word, 0))
    found = _decimal(word)
    if found is None or (found[2] is None and found[4] is None):
        return None
    sign, whole, point, fraction, exponent = found.groups()
    whole = (whole or "0").replace("_", "")
    if len(whole) > 1 and whole[0] == "0":
        return None
    text = ("-" if sign == "-" else "") + whole
    if point:
        text += "." + (fraction or "0").replace("_", "")
    return text + (f"e{exponent.replace('_', '')}" if exponent is not None else "")


_ESCAPED = dict(zip("abfnrtv\\\"'/", "\a\b\f\n\r\t\v\\\"'/", strict=True))
_HEX = "[0-9a-fA-F]"
_escape = re.compile(
    rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U({_HEX}{{8}})|([0-7]{{3}}|[0-7]{{1,2}}(?=[^0-7]))"
    r"|(\r\n|\r(?=[^\n])|\n)|([^xuUN0-7\r\n]))"
).match
_escape_begun = matcher(rf"\\(?:x{_HEX}?|u{_HEX}{{0,3}}|U{_HEX}{{0,7}}|[0-7]{{1,2}}|\r)?|")


def escape(text: str, at: int) -> tuple[str, int] | None:
    """Return what the escape that begins here means, inside a JSON string, and its end; None if it is none.

    Python's and JSON's, which agree but for `\\/`: JSON's meaning counts. Like Python, an unknown one is itself.
    """
    found = _escape(text, at)
    if found is None:
        return None
    two, four, eight, octal, line, other = found.groups()
    if four is not None:
        return f"\\u{four}", found.end()  # as it is: two of them may make a pair
    if line is not None:
        meaning = ""
    elif other is not None:
        meaning = _ESCAPED.get(other, "\\" + other)
    else:
        code = int(octal, 8) if octal is not None else int(two or eight, 16)
        if code > 0x10FFFF:  # the last code point
            return None
        meaning = chr(code)
    return quoted(meaning), found.end()


def quoted(text: str) -> str:
    """Return a piece of text as it stands inside a JSON string."""
    return encode_basestring(text)[1:-1]


_word = matcher(r"""[^\x00-\x20,:()\[\]{}"'<>=]*""")
_bare_key = matcher(r"""[^\x00-\x1f,:\[\]{}"'<]*""")
_bare_string = matcher(r"""[^\x00-\x1f,\[\]{}"<]*""")
_LONGEST_WORD = 4096  # characters; more digits than Python reads
_CLOSES = {"]": "[", "}": "{", ")": "("}

# What comes next: a value; one or the end of the array; a key or the end of the object; a colon; a comma or the end.
_VALUE, _ITEM, _KEY, _COLON, _NEXT = range(5)
_OPEN = State.OPEN


class Literals:
    """Reads one value, and gives it to `write` as JSON."""

    __slots__ = (
        "_depth", "_expect", "_owed", "_pending", "_pieces", "_raw", "_shift", "_stack", "_string", "_syntax", "_word",
        "_write", "fault", "state", "string_at", "unread",
    )  # fmt: skip

    def __init__(self, write: Callable[[str], None], syntax: Syntax = PYTHON, *, depth: int) -> None:
        """Read literals of `syntax` that nest `depth` levels at most."""
        self._write = write
        self._syntax = syntax
        self._depth = depth
        self._stack: list[str] = []  # what has opened each container; "(," where a comma has made a tuple of it
        self._expect = _VALUE
        self._owed = ""  # a comma, if another element comes
        self._pending = ""  # the beginning of a token that is not certain yet
        self._word: str | None = None  # the beginning of a number, a literal or a key without quotes, which may go on
        self._string: Quotes | None = None  # the string that is open
        self._raw = False  # an r has been read, and a quote comes next
        self._shift = 0  # from a place in the text that is read to one in the text that was given
        self._pieces: list[str] = []  # what is to be written
        self.state = State.OPEN
        self.fault: tuple[Code, str] | None = None  # a word that is no literal; null is written in its place
        self.string_at: int | None = None  # where the last string begins in the text of the last `scan`, or before it
        self.unread = ""  # where the value is broken, what comes before the text and is no part of it after all

    @property
    def leaves(self) -> Callable[[str], object] | None:
        """What finds nothing in text that `take` may be given, or None where each character counts."""
        return self._string.leaves if self._string is not None and not self._pending else None

    def take(self, text: str) -> None:
        """Take text that only continues the open string: `leaves` finds nothing in it."""
        assert self._string is not None
        self._write(self._string.convert(text))

    def scan(self, text: str, at: int = 0) -> int:
        """Read from a place as far as the value goes; return the place behind. A token that is cut counts as read."""
        begin, self._shift = at, 0
        self.string_at = None
        if self._pending:
            self._shift = at - len(self._pending)
            text, at = self._pending + text[at:], 0
            self._pending = ""
        while at < len(text) and self.state is _OPEN:
            if self._string is not None:
                at = self._read_string(self._string, text, at)
            elif self._word is not None:
                at = self._read_word(self._word, text, at)
            else:
                at = self._read_token(text, at)
        self._flush()
        place = at + self._shift
        if place < begin:  # a cut mark that is none
            self.unread = text[at : begin - self._shift]
        return max(place, begin)

    def end(self) -> None:
        """Take note that no more text comes: a number or a word may end here, and so may an empty string."""
        if self._word is not None:
            self._end_word(self._word)
        elif self._pending and self._string is None:
            quotes = self._syntax.find_quotes(self._pending, 0, raw=self._raw, ended=True)
            if isinstance(quotes, Quotes) and self._pending == quotes.mark * 2:
                self._begin_string(quotes)
                self._end_string()
        self._pending = ""
        self._flush()

    def _flush(self) -> None:
        if self._pieces:
            self._write("".join(self._pieces))
            self._pieces.clear()

    def _read_token(self, text: str, at: int) -> int:
        if not self._raw:
            at = white_space(text, at).end()
            if at == len(text):
                return at
        char = text[at]
        expect = self._expect
        if expect >= _COLON:
            if char != (":" if expect == _COLON else ","):
                return self._close(char, at)
            if char == ":":
                self._pieces.append(":")
                self._expect = _VALUE
            else:
                self._owed = ","
                if self._stack[-1] == "(":
                    self._stack[-1] = "(,"
                self._expect = _KEY if self._stack[-1] == "{" else _ITEM
            return at + 1
        if char in self._syntax.firsts:
            quotes = self._syntax.find_quotes(text, at, raw=self._raw)
            if isinstance(quotes, Quotes):
                self._begin_string(quotes)
                self.string_at = at + self._shift
                return at + len(quotes.mark)
            if quotes:
                self._pending = text[at:]
                return len(text)
        elif expect != _KEY and (char in "[{" or (char == "(" and self._syntax.tuples)):
            return self._open(char, at)
        elif char in _CLOSES:
            return self._close(char, at)
        elif self._word_at(text, at) > at:
            return self._read_word("", text, at)
        self.state = State.BROKEN
        return at

    def _open(self, bracket: str, at: int) -> int:
        if len(self._stack) == self._depth:
            self.state = State.DEEP
            return at
        self._stack.append(bracket)
        self._pieces.append(self._owed + ("{" if bracket == "{" else "["))
        self._owed = ""
        self._expect = _KEY if bracket == "{" else _ITEM
        return at + 1

    def _close(self, bracket: str, at: int) -> int:
        """End the innermost container, if it can end here and the bracket is the right one."""
        opened = self._stack[-1] if self._stack else ""
        in_parentheses = opened == "(" and self._expect == _NEXT  # one value and no comma: no tuple in Python
        if self._expect in (_VALUE, _COLON) or not opened or _CLOSES.get(bracket) != opened[0] or in_parentheses:
            self.state = State.BROKEN
            return at
        self._stack.pop()
        self._pieces.append("}" if bracket == "}" else "]")
        self._owed = ""
        self._end_value()
        return at + 1

    def _end_value(self) -> None:
        self._expect = _NEXT
        if not self._stack:
            self.state = State.ENDED

    def _begin_string(self, quotes: Quotes) -> None:
        self._string = quotes
        self._raw = False
        self._pieces.append(self._owed + '"')
        self._owed = ""

    def _end_string(self) -> None:
        self._string = None
        self._pieces.append('"')
        if self._expect == _KEY:
            self._expect = _COLON
        else:
            self._end_value()

    def _read_string(self, quotes: Quotes, text: str, at: int) -> int:
        end = quotes.content(text, at).end()
        if end > at:
            self._pieces.append(quotes.convert(text[at:end]))
        if text.startswith(quotes.mark, end):
            self._end_string()
            return end + len(quotes.mark)
        if text[end : end + 1] == "\\":
            return self._read_escape(quotes, text, end)
        self._pending = text[end:]
        return len(text)

    def _read_escape(self, quotes: Quotes, text: str, at: int) -> int:
        """Read an escape; in a raw string, a back-slash that keeps a quote from ending it, and is a part of it."""
        kept = (quoted(text[at : at + 2]), at + 2) if at + 1 < len(text) else None
        found = kept if quotes.raw else escape(text, at)
        if found is not None:
            self._pieces.append(found[0])
            return found[1]
        end = len(text) if quotes.raw else _escape_begun(text, at).end()
        if end == len(text):
            self._pending = text[at:]
        else:
            self.state = State.BROKEN
        return end

    def _word_at(self, text: str, at: int) -> int:
        """Return where the word ends that stands here."""
        syntax = self._syntax
        if self._expect == _KEY:
            return (_bare_key if syntax.bare_keys else _word)(text, at).end()
        return (_bare_string if syntax.bare_strings else _word)(text, at).end()

    def _read_word(self, word: str, text: str, at: int) -> int:
        end = self._word_at(text, at)
        self._word = word = (word + text[at:end])[:_LONGEST_WORD]
        if end < len(text):
            if word in ("r", "R") and self._syntax.raw_quotes and text[end] in self._syntax.firsts:
                self._word, self._raw = None, True
            else:
                self._end_word(word)
        return end

    def _end_word(self, word: str) -> None:
        self._word = None
        if self._expect == _KEY:
            key = word.rstrip() if self._syntax.bare_keys else number(word)
            if key is None:
                self.state = State.BROKEN
                return
            self._pieces.append(f'{self._owed}"{quoted(key)}"')
            self._expect = _COLON
        else:
            word = word.rstrip()
            value = self._syntax.words.get(word) or number(word)
            if value is None and self._syntax.bare_strings and len(word) < _LONGEST_WORD:
                value = f'"{quoted(word)}"'
            elif value is None and self.fault is None:
                self.fault = Code.INVALID_ARGUMENTS, f"{word[:64]!r} is no literal"
            self._pieces.append(self._owed + (value or "null"))
            self._end_value()
        self._owed = ""
