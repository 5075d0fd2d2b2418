"""The syntax of literals: how the strings, escapes, words and numbers of a language become JSON.

The quotes and the words are parameters. Models mostly write those of Python, which include those of JSON except for
three words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from json.encoder import encode_basestring

from streamtools.parsing.markers import beginning
from streamtools.parsing.reader import matcher

# Only Python reads NaN and Infinity as JSON. They pass here, and the decoding of the complete call reports them.
JSON_WORDS = {word: word for word in ("true", "false", "null", "NaN", "Infinity", "-Infinity")}
PYTHON_WORDS = JSON_WORDS | {"True": "true", "False": "false", "None": "null"}

_is_json = re.compile(r'(?:[^"\\\x00-\x1f]++|\\.)*+').fullmatch
_escapes_and_texts = re.compile(r"\\.|[^\\]+", re.DOTALL).findall


@dataclass(frozen=True)
class Quotes:
    """The marks around a string."""

    mark: str
    escapes: bool = True
    """Whether a back-slash begins an escape."""
    raw: bool = False
    """Whether a back-slash only keeps a quote from ending the string."""

    @cached_property
    def content(self) -> Callable[[str, int], re.Match[str]]:
        """Matches content up to the mark, to a part of the mark at the end of the text, or to an escape."""
        return matcher(self._content)

    @cached_property
    def leaves(self) -> Callable[[str], object]:
        """Returns None for text that is content, whatever comes next."""
        return re.compile(f"(?!{self._content}\\Z)").match

    @property
    def _content(self) -> str:
        first, rest = re.escape(self.mark[0]), self.mark[1:]
        slash = r"\\" if self.escapes or self.raw else ""
        plain = f"[^{first}{slash}]++"
        if self.escapes:
            plain += r'|\\[\\"/bfnrt]'  # escapes with the same meaning in JSON
        if rest:  # the first character of the mark, where the mark does not follow
            part = f"(?:{beginning(rest)})?" if len(rest) > 1 else ""
            plain += f"|{first}(?!{re.escape(rest)}|{part}\\Z)"
        return f"(?:{plain})*+"

    def convert(self, content: str) -> str:
        """Return content as it stands inside a JSON string."""
        if content.isprintable() and '"' not in content and (self.escapes or "\\" not in content):
            return content
        if not self.escapes or "\\" not in content:
            return quoted(content)
        if _is_json(content):
            return content
        return "".join(part if part[0] == "\\" else quoted(part) for part in _escapes_and_texts(content))


@dataclass(frozen=True)
class Syntax:
    """The forms of literals."""

    quotes: tuple[Quotes, ...]
    """The longest mark comes first among marks that begin with one another."""
    words: Mapping[str, str]
    """JSON for each word that is no number."""
    raw_quotes: tuple[Quotes, ...] = ()
    """Quotes after the letter r."""
    tuples: bool = False
    bare_keys: bool = False
    """Whether a key is the text before the colon, with or without quotes. Otherwise it is a string or a number."""
    bare_strings: bool = False
    """Whether a value without quotes may be a string. It goes up to a comma, a bracket or a line end."""
    loose: str = ""
    """The closing tag of calls that are written loosely.

    Their numbers may begin with zeros, sets are arrays, and quotes may stand in strings unescaped.
    """

    @cached_property
    def first_characters(self) -> frozenset[str]:
        """The characters with which a string begins."""
        return frozenset(quotes.mark[0] for quotes in self.quotes)

    def find_quotes(self, text: str, at: int, *, raw: bool = False, ended: bool = False) -> Quotes | bool:
        """Return the quotes that begin a string here, True if the text is too short to tell, or False for none."""
        for quotes in self.raw_quotes if raw else self.quotes:
            if text.startswith(quotes.mark, at):
                return quotes
            if not ended and len(text) - at < len(quotes.mark) and quotes.mark.startswith(text[at:]):
                return True
        return False


_PYTHON_MARKS = ('"""', "'''", '"', "'")
PYTHON = Syntax(
    quotes=tuple(map(Quotes, _PYTHON_MARKS)),
    words=PYTHON_WORDS | {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"},
    raw_quotes=tuple(Quotes(mark, escapes=False, raw=True) for mark in _PYTHON_MARKS),
    tuples=True,
)
"""Literals of Python and of JSON."""

_DIGITS = r"\d++(?:_\d++)*+"  # possessive, so that a long number is not split in every possible way
_decimal = re.compile(rf"([-+]?)({_DIGITS})?(\.)?({_DIGITS})?(?:[eE]([-+]?{_DIGITS}))?", re.ASCII).fullmatch
_prefixed = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F]{1,128}|[oO][0-7]{1,128}|[bB][01]{1,128})").fullmatch


def number(word: str, *, zeros: bool = False) -> str | None:
    """Return a number as JSON, or None if `word` is no number. With `zeros`, it may begin with zeros."""
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
_escape = re.compile(
    rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U({_HEX}{{8}})|([0-7]{{3}}|[0-7]{{1,2}}(?=[^0-7]))"
    r"|(\r\n|\r(?=[^\n])|\n)|([^xuUN0-7\r\n]))"
).match
cut_escape = matcher(rf"\\(?:x{_HEX}?|u{_HEX}{{0,3}}|U{_HEX}{{0,7}}|[0-7]{{1,2}}|\r)?|")
"""Matches an escape that more text may complete."""


def escape(text: str, at: int) -> tuple[str, int] | None:
    """Return the meaning of the escape here, as JSON string content, and its end. Returns None if it is no escape.

    Escapes are those of Python and JSON. The two differ only in `\\/`, which is read as in JSON. As in Python, an
    unknown escape means itself.
    """
    found = _escape(text, at)
    if found is None:
        return None
    two, four, eight, octal, line, other = found.groups()
    if four is not None:
        return f"\\u{four}", found.end()  # unchanged: two of them may make a surrogate pair
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
