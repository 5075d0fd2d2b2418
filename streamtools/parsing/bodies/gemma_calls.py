"""Reads calls in the notation of the Gemma models: `call:get_weather{city:<|"|>Paris<|"|>,days:3}`.

Keys have no quotes. The mark around a string is a token, so the string needs no escapes. The models also write this
mark in place of a quote inside a string. So a mark ends the string only if structure follows: the next member or the
end of the call, maybe after closing brackets. If a string contains quotes, the brackets in the string must also be
balanced. A call whose strings are ambiguous is an error. A mark outside of a call shows that an earlier string ended
too early. So it turns the earlier calls of the turn into errors.

The models also omit a comma or the first mark of a string, and use other quotes and separators. The name of a
tool may have a namespace, such as `default_api:get_weather`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from json.encoder import encode_basestring

from streamtools.errors import Code
from streamtools.parsing.bodies import read_close, warn_unclosed
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.keyword_calls import ArgumentReader, broken_or_open, give_up
from streamtools.parsing.bodies.literals import PYTHON_WORDS, Brackets, number, quoted
from streamtools.parsing.bodies.values import JSON_TYPES, STRING, read_scalar
from streamtools.parsing.declared import Declared, Schema
from streamtools.parsing.json_scanner import BROKEN, DEEP, ENDED, OPEN, ScanState
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, TURN_ENDS, OneOf, Pattern, Some, any_partial
from streamtools.parsing.reader import Closing, Word, white_space
from streamtools.parsing.span import Span

HEAD = Some(r"""^\s{}()\[\]<>"'`""", 1, 128)
"""The name of a tool in a marker, before a brace."""
_head = Word(r"""^{}()\[\]<>"'`\r\n""", 256)
_split_head = re.compile(r"(?:call(?=[\s:=]|\Z))?[\s:=]*(.*?)[\s:=]*").fullmatch
_key = Word(r"""^\x00-\x1f\\,:=\[\]{}<""", 256)
_unquoted_key = re.compile(r"""(["']?)([^"']+)\1""").fullmatch
_LONGEST_BARE = 4096  # a value without quotes must be shorter than this number of characters
_bare = Word(r"""^\x00-\x1f,\[\]{}"<""", _LONGEST_BARE)
_SEPARATOR = Pattern(SPACES, OneOf((":", "=", ":=", "=>")))
_CLOSERS = {"{": "}", "[": "]"}
_LOOKAHEAD = 256  # the maximum number of characters of white space and brackets after a mark
_TAIL = 96  # how many last characters of a string are searched for a key with white space around it
_key_at_end = re.compile(r"([,\s])\s*([^\W\d][\w.-]{0,63})\s*[:=]\s*\Z").search
_COMMA = OneOf((",", ""))
_QUOTES = ("'", '"', "<")  # the first characters of the quotes around a key
_AROUND_KEY = ", \t\r\n\"':="
_closer = re.compile(r"\s*+(?:,\s*+)?([\]}])").match
_key_in_bare = re.compile(r"\s([^\W\d][\w.-]*)\s*:").search


class GemmaCalls:
    """The grammar of one call."""

    def __init__(self, mark: str, opening: str, close: str, *, quotes: bool = False) -> None:
        """`mark` is the mark around strings. `opening` and `close` are the tags around the call.

        With `quotes`, a mark in a string may also be a quote. Otherwise, such a mark makes the call an error.
        """
        self.mark, self.quotes, self.close = mark, quotes, close
        self.mark_pattern, self.end_of_string = Pattern(mark), Closing(mark)
        self._close_pattern, self._opening = Pattern(close), Pattern(opening)
        self.close_pattern = Pattern(SPACES, close)
        self.after_call = Pattern(OneOf((close, opening, *TURN_ENDS)))
        self.opening = opening
        self._closing, self._end_of_bare = Closing(close), Closing(close, before=(opening,), blank_line=True)
        self._json, self._rest_of_line = json_calls(close), Pattern(BLANKS, LINE_END)

    @cached_property
    def next_members(self) -> dict[str, Callable[..., re.Match[str] | None]]:
        """Maps the bracket of an object or an array to a function that matches the next member or element."""
        key = Some(r"^\W\d", 1, 1), Some(r"\w.-", 0, 63)
        keys = [key, *((quote, Some("^<", 0, 64), quote) for quote in ('"', "'", self.mark))]
        members = [(_COMMA, SPACES, *each, SPACES, OneOf((":", "="))) for each in keys]
        elements = [(_COMMA, SPACES, OneOf((self.mark, *"\"'{[-0123456789tfnTFN")))]
        return {"{": re.compile(any_partial(members)).match, "[": re.compile(any_partial(elements)).match}

    def __call__(self, span: Span) -> Generator[None, None, None]:
        """Read one call after its opening tag."""
        if (yield from span.peek()) == "{":
            yield from self._json(span)
        elif (yield from self._read(span, self._closing)) and not (
            yield from read_close(span, self.close, self.close_pattern, self._opening)
        ):
            yield from give_up(span, BROKEN, -1, self._closing)

    def bare(self, span: Span) -> Generator[None, None, None]:
        """Read one call without its opening tag. At the end of a line, the closing tag may be missing, too."""
        span.rewind(0)
        if not (yield from self._read(span, self._end_of_bare, bare=True)):
            return
        found = yield from span.choose(self._close_pattern, self._rest_of_line)
        if found < 0 and not (yield from span.at_turn_end()):
            yield from give_up(span, BROKEN, -1, self._end_of_bare)
            return
        span.close()
        if found:
            warn_unclosed(span, self.close)

    def _read(self, span: Span, closing: Closing, *, bare: bool = False) -> Generator[None, None, bool]:
        """Read a call up to the end of its arguments. Returns False, with a closed span, if it is malformed or cut."""
        span.begin_call(span.place)
        name = _read_name((yield from span.word(_head)), span.declared)
        char = yield from span.peek()
        arguments = _Arguments(self, span, bare=bare)
        state = broken_or_open(span)
        if name and char == "{":
            span.set_name(name)
            span.convert()
            state = yield from arguments.read(span.declared.arguments(name))
        if state is ENDED:
            span.end_call()
        else:
            yield from give_up(span, state, arguments.string_begin, closing)
        return state is ENDED


def _read_name(head: str, declared: Declared) -> str:
    """Return the name of the tool in the text before the arguments. Returns "" if there is none.

    The text may begin with `call:`. The rest is the name, which one or more namespaces may precede. Returns the longest
    end of the text that is the name of a declared tool. If there is none, returns the text after the last colon. A
    namespace ends with a letter, a digit or `_`. So `../get_weather` does not name the tool `get_weather`.
    """
    found = _split_head(head)
    path = found[1] if found is not None else ""
    if path in declared:
        return path
    ends = (path[each.end() :] for each in re.finditer(r"(?<=\w)[:./]", path))
    name = next((end for end in ends if end in declared), path.rpartition(":")[2])
    return "" if re.search(r"\s", name) else name


@dataclass(slots=True)
class _Container:
    """An open object or array."""

    bracket: str
    schema: Schema
    count: int = 0
    key_in_quotes: bool = False
    """True if the last key is in quotes or marks."""


class _Arguments:
    """Reads the object of all arguments, and writes it as JSON."""

    def __init__(self, notation: GemmaCalls, span: Span, *, bare: bool) -> None:
        self._notation, self._span, self._bare = notation, span, bare
        self._stack: list[_Container] = []
        self._after_value = False
        self._loose = False  # whether the call has a string without marks and without quotes
        # The number of strings with an odd number of quotes, whose end may be wrong. A string counts twice if one of
        # its quotes follows a comma.
        self._odd = 0
        self._begun = 0  # how many strings lack their first mark
        self.string_begin = -1  # the position at which the last string begins; -1 before the first string

    def read(self, schema: Schema) -> Generator[None, None, ScanState]:
        """Read the object from its brace. Returns ENDED after its end, or else the state in which reading stopped."""
        span, stack = self._span, self._stack
        state = self._open("{", schema)
        while stack and state is ENDED:
            char = yield from span.peek()
            if char == "," and self._after_value:
                span.at += 1
                self._after_value = False
            elif char == _CLOSERS[stack[-1].bracket]:
                span.at += 1
                span.write(char)
                stack.pop()
                self._after_value = True
            elif self._after_value and stack[-1].bracket == "[":
                return broken_or_open(span)
            else:
                state = yield from self._read_member(stack[-1], char)
        if self._odd and state is ENDED:
            place = span.place
            if self._odd + self._begun > 1 or not (yield from span.accept(self._notation.close_pattern)):
                self._reject()
            span.rewind(place)
        return state

    def _open(self, bracket: str, schema: Schema) -> ScanState:
        span = self._span
        if len(self._stack) == span.depth:
            return DEEP
        span.at += 1
        span.write(bracket)
        self._stack.append(_Container(bracket, schema))
        self._after_value = False
        return ENDED

    def _read_member(self, container: _Container, char: str) -> Generator[None, None, ScanState]:
        """Read an element of an array, or a key and its value. `char` is the next character."""
        span, schema = self._span, container.schema.items
        self.string_begin = span.place
        comma = "," if container.count else ""
        container.count += 1
        if container.bracket == "{":
            container.key_in_quotes = char in _QUOTES
            key = yield from self._read_key(marked=char == self._notation.mark[0])
            if key is None or not (yield from span.accept(_SEPARATOR)):
                yield from span.peek()
                return broken_or_open(span)
            span.write(f"{comma}{encode_basestring(key)}:")
            if self._loose and (known := container.schema.properties) and key not in known:
                self._reject()
            schema = container.schema.property(key)
            char = yield from span.peek()
        else:
            span.write(comma)
        if char in _CLOSERS:
            return self._open(char, schema)
        self.string_begin, self._after_value = span.place, True
        if char == self._notation.mark[0] and (yield from span.accept(self._notation.mark_pattern)):
            return (yield from self._read_string())
        if char in ("'", '"'):
            return (yield from ArgumentReader(span).read(depth=1))
        return (yield from self._read_bare(container, schema))

    def _read_key(self, *, marked: bool) -> Generator[None, None, str | None]:
        """Read a key. `marked` is True if a mark may be next. Returns None if the key is malformed."""
        span, pieces = self._span, list[str]()
        if marked and (yield from span.accept(self._notation.mark_pattern)):
            ended = yield from span.content(self._notation.end_of_string, pieces.append)
            return "".join(pieces) if ended else None
        found = _unquoted_key((yield from span.word(_key)).strip())
        return found and found[2]

    def _read_string(self) -> Generator[None, None, ScanState]:
        """Read a string after its first mark."""
        span = self._span
        self._quotes = 0  # how many quotes the string contains
        self._brackets = Brackets()  # the brackets in the string, outside of its quotes
        self._after_comma = False  # whether a quote follows a comma; this quote may begin the next string
        self._nested = 0  # how many calls in the string are open
        self._pieces: list[str] = []  # the pieces of the string since the last mark
        span.write('"')
        while (yield from span.content(self._notation.end_of_string, self._take)):
            text = "".join(self._pieces)
            self._pieces.clear()
            if self._quotes:
                self._count(text)
            while (ends := self._ends_string()) is None:
                yield
            if ends:
                self._odd += self._quotes % 2 + (self._quotes % 2 and self._after_comma)
                span.write('"')
                return ENDED
            if not self._quotes:
                self._count(text)
            if not self._notation.quotes or self._follows_key(text):
                self._reject()
            self._after_comma = self._after_comma or (not self._quotes % 2 and text.rstrip().endswith(","))
            self._quotes += 1
            span.write('\\"')
        return OPEN

    def _count(self, text: str) -> None:
        """Count the brackets and the tags in a part of the string. The counts are needed only after the first quote."""
        if not self._quotes % 2:
            self._brackets.count(text)
        self._nested += text.count(self._notation.opening) - text.count(self._notation.close)

    def _take(self, text: str) -> None:
        """Read a piece of a string."""
        self._pieces.append(text)
        self._span.write(encode_basestring(text)[1:-1])

    def _follows_key(self, text: str) -> bool:
        """Return True if `text` ends with a key. The mark after it then begins another string: this one has no end."""
        found = _key_at_end(text[-_TAIL:]) if not (self._quotes % 2 or self._brackets.level > 0) else None
        known = self._stack[-1].schema.properties
        return found is not None and (found[2] in known or (found[1] == "," and not known))

    def _ends_string(self) -> bool | None:
        """Return whether the mark before the current position ends the string. Returns None if more text is needed.

        If the mark may be either the end or a quote, the call becomes an error.
        """
        span, notation = self._span, self._notation
        text, depth, at = span.text, len(self._stack), span.at
        balanced = not self._quotes or self._brackets.level == self._brackets.lowest == 0
        while depth and (closer := _closer(text, at)) and closer[1] == _CLOSERS[self._stack[depth - 1].bracket]:
            depth, at = depth - 1, closer.end()
        following = white_space(text, at).end()
        if following - span.at > _LOOKAHEAD:
            return False
        if self._bare and balanced and not depth and "\n" in text[at:following]:
            return True
        comma = text.startswith(",", following)
        after_call = not comma and notation.after_call.match(text, following, span.ended)
        if after_call is None or following == len(text):
            return span.ended or None
        if after_call and depth:  # an opening tag begins a call in the string
            return not text.startswith(notation.opening, following)
        if after_call and balanced and not self._quotes % 2:
            return True
        if after_call and self._nested > 0:  # the end of a call in the string
            return False
        if after_call:  # if a mark follows, the string contains the end of a call
            mark = notation.mark_pattern.match(text, white_space(text, after_call).end(), span.ended)
            return None if mark is None else not mark and (balanced or self._reject())
        if not depth:
            return span.ended and notation.close.startswith(text[following:])
        container = self._stack[depth - 1]
        found = notation.next_members[container.bracket](text, following)
        if found is None or not found.lastindex:
            return False if found is None or span.ended else None
        member = found[0]
        if container.bracket == "[":
            return balanced if comma else notation.mark in member and self._reject()
        key, known = member.replace(notation.mark, "").strip(_AROUND_KEY), container.schema.properties
        declared = key in known or not known
        if comma:
            in_quotes = member.lstrip(", \t\r\n")[0] in _QUOTES
            expected = container.key_in_quotes if in_quotes else declared
            return not self._quotes or (balanced and expected)
        # White space or a closing bracket follows, without a comma.
        spaced = not self._quotes and following > span.at
        return (spaced and declared) or ((spaced or key in known) and self._reject())

    def _reject(self) -> bool:
        """Turn the call into an error, because a mark may be the end of a string or a quote in it. Returns True."""
        self._span.fail_call(Code.INVALID_ARGUMENTS, "a quote in a string may also be the end of the string")
        return True

    def _read_bare(self, container: _Container, schema: Schema) -> Generator[None, None, ScanState]:
        """Read a value without quotes, or a string without its first mark."""
        span, notation = self._span, self._notation
        text = yield from span.word(_bare)
        if not text and notation.mark.startswith(span.text[span.at :]):  # the input has ended within a mark
            span.at = len(span.text)
        if not text:
            return broken_or_open(span)
        if len(text) == _LONGEST_BARE:
            span.fail_call(Code.INVALID_ARGUMENTS, "a value without quotes is too long")
        marked = yield from span.accept(notation.mark_pattern)
        key = _key_in_bare(text) if container.bracket == "{" else None
        if key is not None:
            known, before = container.schema.properties, text[: key.start()].strip()
            literal = before in PYTHON_WORDS or number(before)
            if key[1] in known or (literal and not known):
                types = container.schema.property(key[1]).types or STRING
                if not literal and text[key.end() :].strip() and (marked or "string" in types):
                    self._reject()
                span.unread(text[key.start() :] + notation.mark * marked)
                text, marked = before, False
            elif not known:
                self._reject()
        if not marked:
            types, word = schema.types or STRING | JSON_TYPES, text.strip()
            literal = read_scalar(word, types if "string" in types else types | {"null"})
            self._loose = self._loose or literal is None
            span.write(f'"{quoted(word)}"' if literal is None else literal)
            return ENDED
        self._begun += 1
        if self._loose:
            self._reject()
        self._quotes = 0
        while (ends := self._ends_string()) is None:
            yield
        span.write(f'"{quoted(text)}"')
        return ENDED if ends else BROKEN
