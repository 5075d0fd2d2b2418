"""Converts literals of Python to JSON: `{'units': None}` becomes `{"units":null}`.

`Literals` converts text in pieces, as they arrive. It writes JSON as soon as the JSON is certain. It reads text only
once, except for a short token that is cut at the end of a piece. It checks the whole grammar. So the output for a
complete value is valid JSON, except for NaN and Infinity. It does not use `eval` or `ast`, because the input is the
output of a model.

The syntax may be loose. Numbers may then begin with zeros, and strings may contain unescaped quotes. An unescaped quote
counts as content if no structure, such as a comma or a bracket, follows it. The beginning of the string is then read
again. After the first unescaped quote, a quote ends the string only if all brackets in the string are closed. From then
on, the bracket or tag that ends the call also ends the reading of the value. So the string cannot contain the rest of
the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from json.encoder import encode_basestring

from streamtools.errors import Code
from streamtools.parsing.json_scanner import BROKEN, DEEP, ENDED, OPEN, WORDS
from streamtools.parsing.markers import SPACES, OneOf, Pattern, Some, beginning
from streamtools.parsing.reader import always, matcher, white_space

# The strings, escapes, words and numbers of Python and JSON. The literals of Python include those of JSON, except for
# the words true, false and null.

# NaN and Infinity are not valid JSON. They are forwarded unchanged, and decoding the complete call reports them.
PYTHON_WORDS = {word: word for word in WORDS} | {"True": "true", "False": "false", "None": "null"}
_WORDS = PYTHON_WORDS | {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

# Matches content without unescaped quotes and control characters. If JSON has its escapes, it may stay unchanged.
_is_json = re.compile(r'(?:[^"\\\x00-\x1f]++|\\.)*+').fullmatch
_escapes_and_texts = re.compile(r"\\.|[^\\]+", re.DOTALL).findall


@dataclass(frozen=True)
class Quotes:
    """One kind of quotes around a string."""

    mark: str
    """The text before and after the string."""
    raw: bool = False
    """True for a raw string, in which a back-slash does not begin an escape. A quote after a back-slash is content."""

    @cached_property
    def content(self) -> Callable[[str, int], re.Match[str]]:
        """Matches the content, including the escapes that have the same meaning in JSON.

        It stops before the mark, before another escape, and before a part of the mark at the end of the text. In a raw
        string, it stops before each back-slash.
        """
        return matcher(self._content)

    @cached_property
    def find_end(self) -> Callable[[str], object]:
        """Returns None if all of a text is certainly content."""
        return re.compile(f"(?!{self._content}\\Z)").match

    @property
    def _content(self) -> str:
        first, rest = re.escape(self.mark[0]), self.mark[1:]
        plain = rf"[^{first}\\]++"
        if not self.raw:
            plain += r'|\\[\\"/bfnrt]'  # these escapes have the same meaning in JSON
        if rest:  # the first character of the mark without the rest of the mark
            part = f"(?:{beginning(rest)})?" if len(rest) > 1 else ""
            plain += f"|{first}(?!{re.escape(rest)}|{part}\\Z)"
        return f"(?:{plain})*+"

    def convert(self, content: str) -> str:
        """Return content of a string, converted to content of a JSON string."""
        if content.isprintable() and '"' not in content and not (self.raw and "\\" in content):
            return content
        if self.raw or "\\" not in content:
            return quoted(content)
        if _is_json(content):
            return content
        return "".join(part if part[0] == "\\" else quoted(part) for part in _escapes_and_texts(content))


_MARKS = ('"""', "'''", '"', "'")  # a longer mark stands before the mark with which it begins
_QUOTES, _RAW_QUOTES = (tuple(Quotes(mark, raw) for mark in _MARKS) for raw in (False, True))


def _find_quotes(text: str, at: int, *, raw: bool, ended: bool = False) -> Quotes | bool:
    """Return the quotes at index `at`, or False if there are none. Returns True if more text must decide.

    With `raw=True`, an r precedes them. With `ended=True`, no more text follows.
    """
    for quotes in _RAW_QUOTES if raw else _QUOTES:
        if text.startswith(quotes.mark, at):
            return quotes
        if not ended and len(text) - at < len(quotes.mark) and quotes.mark.startswith(text[at:]):
            return True
    return False


_DIGITS = r"\d++(?:_\d++)*+"  # possessive quantifiers: no backtracking in a long number
# -1_000.5e-3
_decimal = re.compile(rf"([-+]?)({_DIGITS})?(\.)?({_DIGITS})?(?:[eE]([-+]?{_DIGITS}))?", re.ASCII).fullmatch
# 0xFF, 0o17 or 0b101
_prefixed = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F]{1,128}|[oO][0-7]{1,128}|[bB][01]{1,128})").fullmatch


def number(word: str, *, zeros: bool = False) -> str | None:
    """Return the JSON of a number, or None if `word` is not a number. With `zeros=True`, it may begin with zeros."""
    if _prefixed(word):
        return str(int(word, 0))
    found = _decimal(word)
    if found is None or (found[2] is None and found[4] is None):
        return None
    sign, whole, point, fraction, exponent = found.groups()
    whole = (whole or "0").replace("_", "")
    if len(whole) > 1 and whole[0] == "0":
        if not zeros:
            return None
        whole = whole.lstrip("0") or "0"
    text = ("-" if sign == "-" else "") + whole
    if point:
        text += "." + (fraction or "0").replace("_", "")
    return text + (f"e{exponent.replace('_', '')}" if exponent is not None else "")


_ESCAPED = dict(zip("abfnrtv\\\"'/", "\a\b\f\n\r\t\v\\\"'/", strict=True))
_HEX = "[0-9a-fA-F]"
# \x41, \u0041, \U0001f600, \101, a line end after the back-slash, or another character after it.
_escape = re.compile(
    rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U({_HEX}{{8}})|([0-7]{{3}}|[0-7]{{1,2}}(?=[^0-7]))"
    r"|(\r\n|\r(?=[^\n])|\n)|([^xuUN0-7\r\n]))"
).match
cut_escape = matcher(rf"\\(?:x{_HEX}?|u{_HEX}{{0,3}}|U{_HEX}{{0,7}}|[0-7]{{1,2}}|\r)?|")
"""Matches an incomplete escape, or nothing."""


def escape(text: str, at: int) -> tuple[str, int] | None:
    """Convert the escape at index `at` to content of a JSON string. Returns the content and the end of the escape.

    Returns None for an invalid or incomplete escape. Knows the escapes of JSON, and of Python except `\\N{…}`. The
    languages differ only in `\\/`, which means a slash, as in JSON. As in Python, the back-slash of an unknown escape
    is content.
    """
    found = _escape(text, at)
    if found is None:
        return None
    two, four, eight, octal, line, other = found.groups()
    if four is not None:
        return f"\\u{four}", found.end()  # unchanged, because two such escapes may be a surrogate pair
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
    """Return a piece of text, escaped as content of a JSON string."""
    return encode_basestring(text)[1:-1]


# The converter.

# The characters of a number or a literal word.
_word = matcher(r"""[^\x00-\x20,:()\[\]{}"'<>=]*""")
_WORD_LIMIT = 1024  # a longer number is an error
_OPENING = {"]": "[", "}": "{", ")": "("}

# The expected token: a value; an item or the end of an array; a key or the end of an object; a colon; a comma or end.
_VALUE, _ITEM, _KEY, _COLON, _NEXT = range(5)

_NEXT_ARGUMENT = Pattern(",", SPACES, Some(r"""^ \t\r\n()\[\]{}<>"'`=,;""", 0, 128), SPACES, OneOf(("=", ")")))
"""A comma after a string argument, with the name of the next argument or the end of the call."""
_GAP_LIMIT = 256  # the maximum length of the white space between a closing quote and the structure after it
_brackets = re.compile(r"[()\[\]{}]").finditer
# In JSON, each back-slash of the content is doubled. This removes the two, and the character after them.
_remove_escaped_slashes = re.compile(r"\\\\.", re.DOTALL).sub


class Literals:
    """Converts one value to JSON, piece by piece, and passes the JSON to `write`."""

    def __init__(
        self, write: Callable[[str], None], *, depth: int, loose_until: str = "", written: Sequence[str] = ()
    ) -> None:
        """Convert a literal that nests up to `depth` levels.

        `loose_until` is the closing tag of the call if the syntax is loose, and "" otherwise. `written` holds the
        pieces that `write` has received. A loose syntax reads them again.
        """
        self._write, self._written = write, written
        self._loose_until = loose_until
        self._depth = depth
        self._stack: list[str] = []  # the bracket of each open container; "(," is a tuple with a comma
        self._expect = _VALUE
        self._after_comma = ""  # a comma to write before the next element
        self._pending = ""  # the beginning of a cut token
        self._word: str | None = None  # the beginning of a number, a literal word or a key without quotes; None outside
        self._string: Quotes | None = None  # the quotes of the open string; None outside a string
        self._content: _LooseContent | None = None  # the content of the open string, if the syntax is loose
        self._raw = False  # an r has been read, and a quote follows
        self._shift = 0  # add it to an index in `_pending + text` to get the index in `text`
        self._pieces: list[str] = []  # JSON that is not written yet
        self.find_change: Callable[[str], object] = always  # returns None for text that `take` accepts
        self.state = OPEN
        self.fault: tuple[Code, str] | None = None  # the error of an unknown word, for which null is written
        self.string_at: int | None = None  # where the last string of the last `scan` begins; negative if in `_pending`
        self.unread = ""  # text of earlier scans that is not part of the value

    def take(self, text: str) -> None:
        """Fast path of `scan` for text that continues the open string. `find_change` must return None for it."""
        assert self._string is not None
        self._write(self._string.convert(text))

    def scan(self, text: str, at: int = 0) -> int:
        """Read `text` from index `at` to the end of the value. Returns the index after it.

        A token that is cut at the end of the text is read, and continues with the next text.
        """
        begin, self._shift = at, 0
        self.string_at = None
        if self._pending:
            self._shift = at - len(self._pending)
            text, at = self._pending + text[at:], 0
            self._pending = ""
        while at < len(text) and self.state is OPEN:
            if self._string is not None:
                at = self._read_string(self._string, text, at)
            elif self._word is not None:
                at = self._read_word(self._word, text, at)
            else:
                at = self._read_token(text, at)
        self._flush()
        self.find_change, string = always, self._string
        if string is not None and not (self._pending or (self._content and self._content.has_quote)):
            self.find_change = string.find_end
        place = at + self._shift
        if place < begin:  # the pending text is not the mark of a string
            self.unread = text[at : begin - self._shift]
        return max(place, begin)

    def end(self) -> None:
        """Read the end of the text, which may complete a number, a word or an empty string."""
        if self._word is not None:
            self._end_word(self._word)
        elif self._pending and self._string is None:
            quotes = _find_quotes(self._pending, 0, raw=self._raw, ended=True)
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
        if self._expect >= _COLON:
            if char != (":" if self._expect == _COLON else ","):
                return self._close(char, at)
            if char == ":":
                self._pieces.append(":")
                self._expect = _VALUE
            else:
                self._after_comma = ","
                if self._stack[-1] == "(":
                    self._stack[-1] = "(,"
                self._expect = _KEY if self._stack[-1] == "{" else _ITEM
            return at + 1
        if char in "\"'":
            quotes = _find_quotes(text, at, raw=self._raw)
            if isinstance(quotes, Quotes):
                self._begin_string(quotes)
                self.string_at = at + self._shift
                return at + len(quotes.mark)
            if quotes:
                self._pending = text[at:]
                return len(text)
        elif self._expect != _KEY and char in "[{(":
            return self._open(char, at)
        elif char in _OPENING:
            return self._close(char, at)
        elif _word(text, at).end() > at:
            return self._read_word("", text, at)
        self.state = BROKEN
        return at

    def _open(self, bracket: str, at: int) -> int:
        if len(self._stack) == self._depth:
            self.state = DEEP
            return at
        self._stack.append(bracket)
        self._pieces.append(self._after_comma + ("{" if bracket == "{" else "["))
        self._after_comma = ""
        self._expect = _KEY if bracket == "{" else _ITEM
        return at + 1

    def _close(self, bracket: str, at: int) -> int:
        """End the innermost container. If it cannot end here, or if the bracket is wrong, the state becomes BROKEN."""
        opened = self._stack[-1] if self._stack else ""
        in_parentheses = opened == "(" and self._expect == _NEXT  # one value without a comma is not a tuple
        if self._expect in (_VALUE, _COLON) or not opened or _OPENING.get(bracket) != opened[0] or in_parentheses:
            self.state = BROKEN
            return at
        self._stack.pop()
        self._pieces.append("}" if opened == "{" else "]")
        self._after_comma = ""
        self._end_value()
        return at + 1

    def _end_value(self) -> None:
        self._expect = _NEXT
        if not self._stack:
            self.state = ENDED

    def _begin_string(self, quotes: Quotes) -> None:
        self._string = quotes
        self._raw = False
        self._pieces.append(self._after_comma + '"')
        self._after_comma, self._content = "", None
        if self._loose_until and len(quotes.mark) == 1:
            self._content = _LooseContent(self._loose_until, len(self._written), sum(map(len, self._pieces)))

    def _end_string(self) -> None:
        self._string = None
        self._pieces.append('"')
        if self._expect == _KEY:
            self._expect = _COLON
        else:
            self._end_value()

    def _read_string(self, quotes: Quotes, text: str, at: int) -> int:
        end = quotes.content(text, at).end()
        content = self._content
        if content is not None and content.has_quote:
            call_end = content.take(text[at:end])
            if call_end is not None:  # the last character stays unread: the text after it must not change the state
                self.state, end = BROKEN, at + call_end - 1
        if end > at:
            self._pieces.append(quotes.convert(text[at:end]))
        if self.state is BROKEN:
            return end
        if text.startswith(quotes.mark, end):
            if content is not None:
                gap = text[end + 1 : end + _GAP_LIMIT]
                following = end + 1 + len(gap) - len(gap.lstrip(" \t\r\n"))
                if following == len(text):
                    self._pending = text[end:]
                    return following
                ends: int | bool | None = self._ends(content, text[following])
                if ends and content.has_quote and text[following] == "," and not self._stack:
                    ends = _NEXT_ARGUMENT.match(text, following, False)
                    if ends is None:
                        self._pending = text[end:]
                        return len(text)
                if not ends:
                    if not content.has_quote:
                        self._flush()
                        content.begin("".join([*self._written[content.piece :], *self._pieces])[content.offset :])
                    self._pieces.append(quoted(quotes.mark))
                    if content.lowest < 0:
                        self.state = BROKEN
                    return end + 1
            self._end_string()
            return end + len(quotes.mark)
        if text[end : end + 1] == "\\":
            return self._read_escape(quotes, text, end)
        self._pending = text[end:]
        return len(text)

    def _ends(self, content: _LooseContent, following: str) -> bool:
        """Return True if a quote before the character `following` ends the string."""
        structure = ",)]}" if self._expect != _KEY else ":"
        return following in structure + " \t\r\n" and not (content.has_quote and content.level)

    def _read_escape(self, quotes: Quotes, text: str, at: int) -> int:
        """Read an escape. In a raw string, the back-slash and the character after it are content."""
        raw = (quoted(text[at : at + 2]), at + 2) if at + 1 < len(text) else None
        found = raw if quotes.raw else escape(text, at)
        if found is not None:
            self._pieces.append(found[0])
            return found[1]
        end = len(text) if quotes.raw else cut_escape(text, at).end()
        if end == len(text):
            self._pending = text[at:]
        else:
            self.state = BROKEN
        return end

    def _read_word(self, word: str, text: str, at: int) -> int:
        end = _word(text, at).end()
        self._word = word = (word + text[at:end])[:_WORD_LIMIT]
        if end < len(text):
            if word in ("r", "R") and text[end] in "\"'":
                self._word, self._raw = None, True
            else:
                self._end_word(word)
        return end

    def _end_word(self, word: str) -> None:
        self._word, word = None, word.rstrip()
        value = _WORDS.get(word) or number(word, zeros=self._loose_until != "")
        if value is not None and len(word) == _WORD_LIMIT and self.fault is None:  # the rest of the number is dropped
            self.fault = Code.NUMBER_TOO_LONG, f"a number has more than {_WORD_LIMIT - 1} characters"
        if self._expect == _KEY:
            key = number(word) if value is not None else None
            if key is None:
                self.state = BROKEN
                return
            self._pieces.append(f'{self._after_comma}"{quoted(key)}"')
            self._expect = _COLON
        else:
            if value is None and self.fault is None:
                self.fault = Code.INVALID_ARGUMENTS, f"{word[:64]!r} is not a literal"
            self._pieces.append(self._after_comma + (value or "null"))
            self._end_value()
        self._after_comma = ""


class Brackets:
    """Counts the brackets in the content of a string."""

    level = 0
    """The number of open brackets."""
    lowest = 0
    """The lowest value of `level`. If it is negative, the content closes a bracket from outside the string."""

    def count(self, text: str) -> int | None:
        """Count the brackets in `text`. Returns the end of the first that closes a bracket from outside the string."""
        end = None
        for found in _brackets(text):
            self.level += 1 if found[0] in "([{" else -1
            if self.level < self.lowest:
                self.lowest = self.level
                end = end or found.end()
        return end


@dataclass(eq=False)
class _LooseContent(Brackets):
    """The content of a string that may contain unescaped quotes. It finds the closing tag of the call.

    If `lowest` is negative, an earlier quote has ended the string.
    """

    _close: str
    piece: int  # the index in `written` of the piece in which the content begins
    offset: int  # the number of characters before the content in that piece
    _tail: str = ""  # the last characters: they may begin the closing tag
    has_quote: bool = False  # the string contains an unescaped quote

    def begin(self, text: str) -> None:
        """Read the content before the first unescaped quote. `text` is its JSON."""
        self.has_quote = True
        self.count(text)
        if self.lowest < 0:  # ignore escaped brackets: JSON doubles the back-slash before them
            self.level = self.lowest = 0
            self.count(_remove_escaped_slashes("", text))

    def take(self, text: str) -> int | None:
        """Read the next piece of content. Returns the index in it at which the call ends, or None."""
        end = self.count(text)
        if end is not None:
            return end
        known = len(self._tail)
        self._tail += text
        found = self._tail.find(self._close)
        self._tail = self._tail[1 - len(self._close) :]
        return found + len(self._close) - known if found >= 0 else None
