"""Literals of a programming language, as JSON: `{'units': None, "days": (1, 2,)}` is `{"units":null,"days":[1,2]}`.

`Literals` is a push converter: it takes text as it arrives, writes JSON as soon as that is certain, and reads nothing
twice but a token that is cut, which is bounded. It reads the whole grammar, so that it writes valid JSON whatever it
reads, and it never guesses. No `eval`, no `ast`: this is the output of a model.

A language that is written loosely has sets, which are arrays, and quotes in strings that nothing escapes. Such a quote
is one behind which no structure follows; from there on the string ends where the brackets in it balance as well, so
that it never swallows the end of the call that it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamtools.errors import Code
from streamtools.parsing.bodies.syntax import PYTHON, Quotes, Syntax, escape, escape_begun, number, quoted
from streamtools.parsing.json_text import BROKEN, DEEP, ENDED, OPEN
from streamtools.parsing.markers import SPACES, OneOf, Pattern, Some
from streamtools.parsing.reader import always, matcher, white_space

_word = matcher(r"""[^\x00-\x20,:()\[\]{}"'<>=]*""")
_bare_key = matcher(r"""[^\x00-\x1f,:\[\]{}"'<]*""")
_bare_string = matcher(r"""[^\x00-\x1f,\[\]{}"<]*""")
_LONGEST_WORD = 4096  # characters; more digits than Python reads
_CLOSES = {"]": "[", "}": "{", ")": "("}

# What comes next: a value; one or the end of the array; a key or the end of the object; a colon; a comma or the end.
_VALUE, _ITEM, _KEY, _COLON, _NEXT = range(5)

_ANOTHER = Pattern(",", SPACES, Some(r"""^ \t\r\n()\[\]{}<>"'`=,;""", 0, 128), SPACES, OneOf(("=", ")")))
"""What follows a string that is an argument, if a comma does: the name of the next one, or the end of the call."""
_GAP = 256  # characters of white space behind a quote, before the structure that makes it the end of a string
_brackets = re.compile(r"[()\[\]{}]").finditer
_behind_slashes = re.compile(r"\\\\.", re.DOTALL).sub  # in JSON, and what stands behind a back-slash in the content


class Literals:
    """Reads one value, and gives it to `write` as JSON."""

    __slots__ = (
        "_content", "_depth", "_element", "_expect", "_owed", "_pending", "_pieces", "_raw", "_shift", "_stack",
        "_string", "_syntax", "_undecided", "_word", "_write", "_written", "fault", "leaves", "state", "string_at",
        "unread",
    )  # fmt: skip

    def __init__(
        self, write: Callable[[str], None], syntax: Syntax = PYTHON, *, depth: int, written: Sequence[str] = ()
    ) -> None:
        """Read literals of `syntax` that nest `depth` levels at most; what a loose one has `written` is looked at."""
        self._write, self._written = write, written
        self._syntax = syntax
        self._depth = depth
        self._stack: list[str] = []  # what has opened each container; "(," is a tuple, by its comma, "{," a set
        self._undecided = False  # the last container is an object or a set; nothing is written until that is certain
        self._element = ""  # the first element of such a set, if it is no string
        self._expect = _VALUE
        self._owed = ""  # a comma, if another element comes
        self._pending = ""  # the beginning of a token that is not certain yet
        self._word: str | None = None  # the beginning of a number, a literal or a key without quotes, which may go on
        self._string: Quotes | None = None  # the string that is open
        self._content: _Content | None = None  # what stands in it, if its quotes may be in there unescaped
        self._raw = False  # an r has been read, and a quote comes next
        self._shift = 0  # from a place in the text that is read to one in the text that was given
        self._pieces: list[str] = []  # what is to be written
        self.leaves: Callable[[str], object] = always  # finds nothing in text that `take` may be given
        self.state = OPEN
        self.fault: tuple[Code, str] | None = None  # a word that is no literal; null is written in its place
        self.string_at: int | None = None  # where the last string begins in the text of the last `scan`, or before it
        self.unread = ""  # where the value is broken, what comes before the text and is no part of it after all

    def take(self, text: str) -> None:
        """Take text that only continues the open string: `leaves` finds nothing in it."""
        assert self._string is not None
        write = self._write
        write(self._string.convert(text))

    def scan(self, text: str, at: int = 0) -> int:
        """Read from a place as far as the value goes; return the place behind. A token that is cut counts as read."""
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
        self.leaves, string = always, self._string
        if string is not None and not (self._pending or self._undecided or (self._content and self._content.quoted)):
            self.leaves = string.leaves
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
        if self._pieces and not self._undecided:
            self._write("".join(self._pieces))
            self._pieces.clear()

    def _read_token(self, text: str, at: int) -> int:
        if not self._raw:
            at = white_space(text, at).end()
            if at == len(text):
                return at
        char = text[at]
        expect = self._expect
        if expect == _COLON and self._undecided:
            expect = self._decide(char)
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
        elif char == "(" and self._undecided:
            self._make_set()
            return self._open(char, at)
        elif expect != _KEY and (char in "[{" or (char == "(" and self._syntax.tuples)):
            return self._open(char, at)
        elif char in _CLOSES:
            return self._close(char, at)
        elif self._word_at(text, at) > at:
            return self._read_word("", text, at)
        self.state = BROKEN
        return at

    def _open(self, bracket: str, at: int) -> int:
        if len(self._stack) == self._depth:
            self.state = DEEP
            return at
        self._stack.append(bracket)
        if bracket == "{" and self._syntax.loose:
            self._flush()
            self._undecided, self._element = True, ""
        self._pieces.append(self._owed + ("{" if bracket == "{" else "["))
        self._owed = ""
        self._expect = _KEY if bracket == "{" else _ITEM
        return at + 1

    def _decide(self, char: str) -> int:
        """Take what follows the first key of an object, or the first element of a set; return what is expected."""
        if char in ",}":
            self._make_set()
            self._expect = _NEXT
        elif not self._pieces[-1]:  # what is no key
            self._expect = _NEXT
        else:
            self._undecided = False
        return self._expect

    def _make_set(self) -> None:
        """Make the last container a set."""
        self._undecided = False
        self._stack[-1] = "{,"
        self._pieces[0] = self._pieces[0][:-1] + "["
        if self._element:
            self._pieces[-1] = self._element

    def _close(self, bracket: str, at: int) -> int:
        """End the innermost container, if it can end here and the bracket is the right one."""
        opened = self._stack[-1] if self._stack else ""
        in_parentheses = opened == "(" and self._expect == _NEXT  # one value and no comma: no tuple in Python
        if self._expect in (_VALUE, _COLON) or not opened or _CLOSES.get(bracket) != opened[0] or in_parentheses:
            self.state = BROKEN
            return at
        self._stack.pop()
        self._undecided = False
        self._pieces.append("}" if opened == "{" else "]")
        self._owed = ""
        self._end_value()
        return at + 1

    def _end_value(self) -> None:
        self._expect = _NEXT
        if not self._stack:
            self.state = ENDED

    def _begin_string(self, quotes: Quotes) -> None:
        self._string = quotes
        self._raw = False
        self._pieces.append(self._owed + '"')
        self._owed, self._content = "", None
        if self._syntax.loose and len(quotes.mark) == 1:
            self._content = _Content(self._syntax.loose, len(self._written), sum(map(len, self._pieces)))

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
        if content is not None and content.quoted:
            lost = content.take(text[at:end])
            if lost is not None:
                self.state, end = BROKEN, at + lost
        if end > at:
            self._pieces.append(quotes.convert(text[at:end]))
        if self.state is BROKEN:
            return end
        if text.startswith(quotes.mark, end):
            if content is not None:
                gap = text[end + 1 : end + _GAP]
                behind = end + 1 + len(gap) - len(gap.lstrip(" \t\r\n"))
                if behind == len(text):
                    self._pending = text[end:]
                    return behind
                ends: int | bool | None = self._ends(content, text[behind])
                if ends and content.quoted and text[behind] == "," and not self._stack:
                    ends = _ANOTHER.match(text, behind, False)
                    if ends is None:
                        self._pending = text[end:]
                        return len(text)
                if not ends:
                    if not content.quoted:
                        self._flush()
                        content.begin("".join([*self._written[content.origin :], *self._pieces])[content.lead :])
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

    def _ends(self, content: _Content, behind: str) -> bool:
        """Whether a quote with this character `behind` it ends the string; at a bound it is white space."""
        follows = ",)]}" if self._expect != _KEY else ":,}" if self._undecided else ":"
        return behind in follows + " \t\r\n" and not (content.quoted and content.level)

    def _read_escape(self, quotes: Quotes, text: str, at: int) -> int:
        """Read an escape; in a raw string, a back-slash that keeps a quote from ending it, and is a part of it."""
        kept = (quoted(text[at : at + 2]), at + 2) if at + 1 < len(text) else None
        found = kept if quotes.raw else escape(text, at)
        if found is not None:
            self._pieces.append(found[0])
            return found[1]
        end = len(text) if quotes.raw else escape_begun(text, at).end()
        if end == len(text):
            self._pending = text[at:]
        else:
            self.state = BROKEN
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
            if self._undecided:
                self._element = self._syntax.words.get(word) or number(word, zeros=True) or ""
            if key is None and self._element:
                self._pieces.append("")
                self._expect = _COLON
                return
            if key is None:
                self.state = BROKEN
                return
            self._pieces.append(f'{self._owed}"{quoted(key)}"')
            self._expect = _COLON
        else:
            word = word.rstrip()
            value = self._syntax.words.get(word) or number(word, zeros=self._syntax.loose != "")
            if value is None and self._syntax.bare_strings and len(word) < _LONGEST_WORD:
                value = f'"{quoted(word)}"'
            elif value is None and self.fault is None:
                self.fault = Code.INVALID_ARGUMENTS, f"{word[:64]!r} is no literal"
            self._pieces.append(self._owed + (value or "null"))
            self._end_value()
        self._owed = ""


@dataclass(slots=True, eq=False)
class _Content:
    """The content of a string in which quotes may stand unescaped."""

    _close: str
    origin: int  # the piece of what was written with which it begins,
    lead: int  # and how much of that comes before it
    _end: str = ""  # the last characters, in which the closing tag of the calls may begin
    level: int = 0  # brackets that are open in it
    lowest: int = 0  # the least that was; where that is negative, it holds no quote
    quoted: bool = False  # a quote stands in it

    def begin(self, text: str) -> None:
        """Take all that comes before the first quote, as JSON."""
        self.quoted = True
        self._count(text)
        if self.lowest < 0:  # in JSON a bracket that was escaped looks like one behind an escaped back-slash
            self.level = self.lowest = 0
            self._count(_behind_slashes("", text))

    def take(self, text: str) -> int | None:
        """Take a piece behind it; return the place behind which it is the end of the call, and no content after all."""
        lost = self._count(text)
        if lost is not None:
            return lost
        known = len(self._end)
        self._end += text
        found = self._end.find(self._close)
        self._end = self._end[1 - len(self._close) :]
        return found + len(self._close) - known if found >= 0 else None

    def _count(self, text: str) -> int | None:
        """Count brackets; return the place behind the first of them that closes what was opened outside."""
        lost = None
        for found in _brackets(text):
            self.level += 1 if found[0] in "([{" else -1
            if self.level < self.lowest:
                self.lowest = self.level
                lost = lost or found.end()
        return lost
