"""Reads calls in the notation of the Gemma models: `call:get_weather{city:<|"|>Paris<|"|>,days:3}`.

Keys have no quotes. The mark around a string is a token, so the string needs no escapes. The models also write a quote
in a string as this mark. So a mark ends the string only if structure follows: a comma and a key, or the end of the
call. After a quote in the string, its brackets must also be closed. A call whose strings are ambiguous is an error.

The models also omit a comma, the first mark of a string or both, and use other quotes and separators. The name of a
tool may have a namespace, such as `default_api:get_weather`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from json.encoder import encode_basestring

from streamtools.errors import Code
from streamtools.parsing.bodies import read_close, warn_unclosed
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.keyword_calls import ArgumentReader, give_up
from streamtools.parsing.bodies.literals import PYTHON, PYTHON_WORDS, Quotes, Syntax, number, quoted
from streamtools.parsing.declared import Declared, Schema, Types
from streamtools.parsing.json_scanner import BROKEN, DEEP, ENDED, OPEN, ScanState
from streamtools.parsing.markers import BLANKS, LINE_END, TURN_ENDS, OneOf, Pattern, Some
from streamtools.parsing.reader import Closing, Word, white_space
from streamtools.parsing.span import Span

HEAD = Some(r"""^\s{}()\[\]<>"'`""", 1, 128)
"""The name of a tool in a marker, before a brace."""
_head = Word(r"""^{}()\[\]<>"'`\r\n""", 256)
_split_head = re.compile(r"(?:call(?=[\s:=]|\Z))?[\s:=]*(.*?)[\s:=]*").fullmatch
_key = Word(r"""^\x00-\x1f,:=\[\]{}"'<""", 256)
_LONGEST_BARE = 4096  # characters of a value without quotes
_bare = Word(r"""^\x00-\x1f,\[\]{}"<""", _LONGEST_BARE)
_SEPARATOR = Pattern(OneOf((":", "=", ":=", "=>")))
_CLOSERS = {"{": "}", "[": "]"}
_LOOKAHEAD = 256  # characters of white space and brackets after a mark
_LEVELS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_brackets = re.compile(r"[()\[\]{}]").findall
_TAIL = 96  # characters: longer than a key with white space around it
_key_at_end = re.compile(r"([,\s])\s*([^\W\d][\w.-]{0,63})\s*[:=]\s*\Z").search
_next_key = re.compile(r"[^\W\d][\w.-]{0,63}").match
_key_in_bare = re.compile(r"\s([^\W\d][\w.-]*)\s*:").search
_NUMBER = frozenset({"number", "integer"})


class GemmaCalls:
    """The grammar of one call."""

    def __init__(self, mark: str, opening: str, close: str, *, quotes: bool = False) -> None:
        """`mark` stands around strings, and the other two tags around the call. With `quotes`, the mark is also a
        quote in a string.
        """
        self.mark, self.quotes, self.close = mark, quotes, close
        self.mark_pattern, self.end_of_string = Pattern(mark), Closing(mark)
        self._close_pattern, self._opening = Pattern(close), Pattern(opening)
        self.after_call = Pattern(OneOf((close, opening, *TURN_ENDS)))
        self._closing, self._end_of_bare = Closing(close), Closing(close, before=(opening,), blank_line=True)
        self._json, self._rest_of_line = json_calls(close), Pattern(BLANKS, LINE_END)
        self.key_syntax = Syntax((Quotes(mark, escapes=False), Quotes('"'), Quotes("'")), words={})

    def __call__(self, span: Span) -> Generator[None, None, None]:
        """Read one call after its opening tag."""
        if (yield from span.peek()) == "{":
            yield from self._json(span)
        elif (yield from self._read(span, self._closing)):
            yield from span.peek()
            if not (yield from read_close(span, self.close, self._close_pattern, self._opening)):
                yield from give_up(span, BROKEN, -1, self._closing)

    def bare(self, span: Span) -> Generator[None, None, None]:
        """Read one call without its opening tag. Its closing tag may also be missing if its line ends."""
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
        """Read a call up to the end of its arguments. Returns False if it is malformed. The span is then closed."""
        span.begin_call(span.place)
        name = _read_name((yield from span.word(_head)), span.declared)
        char = yield from span.peek()
        arguments = _Arguments(self, span, span.declared.arguments(name), bare=bare)
        state = BROKEN if char else OPEN
        if name and char == "{":
            span.set_name(name)
            span.convert()
            state = yield from arguments.read()
        if state is ENDED:
            span.end_call()
        else:
            yield from give_up(span, state, arguments.string_begin, closing)
        return state is ENDED


def _read_name(head: str, declared: Declared) -> str:
    """Return the name of the tool in the text before the arguments. "" for none.

    It is the declared tool that the longest end of the text names, or the text after the last colon.
    """
    found = _split_head(head)
    path = found[1] if found is not None else ""
    ends = [path, *(path[each.end() :] for each in re.finditer(r"[:./]", path))]
    name = next((end for end in ends if end in declared), path.rpartition(":")[2])
    return "" if re.search(r"\s", name) else name


@dataclass(slots=True)
class _Container:
    """An open object or array."""

    bracket: str
    schema: Schema
    count: int = 0
    quoted_keys: bool = False


class _Arguments:
    """Reads the object of all arguments, and writes it as JSON."""

    def __init__(self, notation: GemmaCalls, span: Span, schema: Schema, *, bare: bool) -> None:
        self._notation, self._span, self._bare = notation, span, bare
        self._stack: list[_Container] = []
        self._schema = schema  # of the next value
        self._after_value = False
        self.string_begin = -1  # the position at which the last string begins; -1 before the first string

    def read(self) -> Generator[None, None, ScanState]:
        """Return ENDED after the object, else the state in which reading stopped."""
        span, stack = self._span, self._stack
        while True:
            char = yield from span.peek()
            if not char:
                return OPEN
            if char == "," and self._after_value:
                span.at += 1
                self._after_value = False
                continue
            if stack:
                container = stack[-1]
                if char == _CLOSERS[container.bracket]:
                    span.at += 1
                    span.write(char)
                    stack.pop()
                    self._after_value = True
                    if not stack:
                        return ENDED
                    continue
                if self._after_value and (container.bracket == "[" or (char in "\"'" and not container.quoted_keys)):
                    return BROKEN
                span.write("," if container.count else "")
                container.count += 1
                self._schema = container.schema.items
                if container.bracket == "{":
                    key = yield from self._read_key(container, char)
                    char = yield from span.peek()
                    if key is None or not char:
                        return BROKEN if char else OPEN
                    self._schema = container.schema.property(key)
            state = yield from self._read_value(char)
            if state is not ENDED:
                return state

    def _read_key(self, container: _Container, char: str) -> Generator[None, None, str | None]:
        """Read a key and the separator after it. Returns None for other text, and "" for a key in quotes."""
        span, self.string_begin = self._span, self._span.place
        container.quoted_keys = char in "<\"'"
        if container.quoted_keys:
            key = "" if (yield from ArgumentReader(span, self._notation.key_syntax).read(depth=0)) is ENDED else None
        else:
            key = (yield from span.word(_key)).strip() or None
            span.write(encode_basestring(key or ""))
        yield from span.peek()
        if key is None or not (yield from span.accept(_SEPARATOR)):
            return None
        span.write(":")
        return key

    def _read_value(self, char: str) -> Generator[None, None, ScanState]:
        span = self._span
        self._after_value = char not in _CLOSERS
        if char not in _CLOSERS:
            self.string_begin = span.place
            if (yield from span.accept(self._notation.mark_pattern)):
                return (yield from self._read_string())
            return (yield from (ArgumentReader(span, PYTHON).read(depth=1) if char in "\"'" else self._read_bare()))
        if len(self._stack) == span.depth:
            return DEEP
        span.at += 1
        span.write(char)
        self._stack.append(_Container(char, self._schema))
        return ENDED

    def _read_string(self) -> Generator[None, None, ScanState]:
        """Read a string after its first mark."""
        span = self._span
        self._quotes = 0  # how many quotes the string contains
        self._level = self._lowest = 0  # how many brackets are open in the string, outside of its quotes
        self._tail = ""  # the last characters of the string
        span.write('"')
        while (yield from span.content(self._notation.end_of_string, self._take)):
            while (ends := self._ends_string()) is None:
                yield
            if ends:
                span.write('"')
                return ENDED
            if not self._notation.quotes or self._follows_key():
                self._reject()
            self._quotes += 1
            span.write('\\"')
        return OPEN

    def _take(self, text: str) -> None:
        """Read a piece of a string."""
        if not self._quotes % 2:
            for bracket in _brackets(text):
                self._level += _LEVELS[bracket]
                self._lowest = min(self._lowest, self._level)
        self._tail = (self._tail + text)[-_TAIL:]
        self._span.write(quoted(text))

    def _follows_key(self) -> bool:
        """Return True if a key stands before the quote that was found, because the last mark of a string is missing."""
        found = _key_at_end(self._tail) if not (self._quotes % 2 or self._level > 0) else None
        known = self._stack[-1].schema.properties
        return found is not None and (found[2] in known or (found[1] == "," and not known))

    def _ends_string(self) -> bool | None:
        """Return whether the mark before the current position ends the string. None if more text must decide."""
        span, notation = self._span, self._notation
        text, undecided = span.text, False if span.ended else None
        closed = not self._quotes or self._level == self._lowest == 0
        depth = len(self._stack)
        end, at = span.at, white_space(text, span.at).end()
        while depth and text[at : at + 1] == _CLOSERS[self._stack[depth - 1].bracket]:
            depth, end = depth - 1, at + 1
            at = white_space(text, end).end()
        if at - span.at > _LOOKAHEAD:
            return False
        if self._bare and closed and not depth and "\n" in text[end:at]:
            return True
        after_call = notation.after_call.match(text, at, span.ended)
        if after_call is None or at == len(text):
            return span.ended or None
        if after_call:
            if closed or depth:
                return True
            at = white_space(text, after_call).end()
            mark = notation.mark_pattern.match(text, at, span.ended)
            if mark is None:
                return undecided
            return not mark and self._reject()
        if not depth:
            return span.ended and notation.close.startswith(text[at:])
        container = self._stack[depth - 1]
        comma = text[at] == ","
        if comma:
            at = white_space(text, at + 1).end()
            if at == len(text):
                return span.ended or None
            if text[at] == _CLOSERS[container.bracket]:
                return True
        mark = notation.mark_pattern.match(text, at, span.ended)
        if mark is None:
            return undecided
        if container.bracket == "[":
            if not comma:
                return mark is not False and self._reject()
            return closed and (mark is not False or text[at] in "\"'{[-0123456789tfnTFN")
        if container.quoted_keys and (mark or text[at] in "\"'"):
            return comma and closed
        return self._ends_before_key(container, at, comma=comma)

    def _ends_before_key(self, container: _Container, at: int, *, comma: bool) -> bool | None:
        """Return whether the string ends because of the key at `at`. None if more text must decide."""
        span = self._span
        text, key = span.text, _next_key(span.text, at)
        if key is None:
            return False
        at = white_space(text, key.end()).end()
        if at == len(text):
            return False if span.ended else None
        if text[at] not in ":=":
            return False
        known = container.schema.properties
        declared = not known or key[0] in known
        if comma:
            return not self._quotes or (declared and self._level == self._lowest == 0)
        missing_comma = not self._quotes and key.start() > span.at
        return (missing_comma and declared) or ((missing_comma or key[0] in known) and self._reject())

    def _reject(self) -> bool:
        """Turn the call into an error, because a mark may be the end of a string or a quote in it. Returns True."""
        self._span.fail_call(Code.INVALID_ARGUMENTS, "a quote in a string may also be the end of the string")
        return True

    def _read_bare(self) -> Generator[None, None, ScanState]:
        """Read a value without quotes, or a string without its first mark."""
        span, notation = self._span, self._notation
        text = yield from span.word(_bare)
        if not text:
            return BROKEN
        if len(text) == _LONGEST_BARE:
            span.fail_call(Code.INVALID_ARGUMENTS, "a value without quotes is too long")
        marked = yield from span.accept(notation.mark_pattern)
        container = self._stack[-1]
        key = _key_in_bare(text) if container.bracket == "{" else None
        if key is not None:
            known, before, after = container.schema.properties, text[: key.start()], text[key.end() :]
            if key[1] in known or (not known and (_literal(before.strip()) or (marked and not after.strip()))):
                span.unread(text[key.start() :] + notation.mark * marked)
                text, marked = before, False
            elif not known and (marked or not after[:1].isspace()):
                self._reject()
        if not marked:
            span.write(_convert(text.strip(), self._schema.types))
            return ENDED
        self._quotes = 0
        while (ends := self._ends_string()) is None:
            yield
        span.write(f'"{quoted(text)}"')
        return ENDED if ends else BROKEN


def _literal(word: str) -> str | None:
    """Return the JSON of a number or a literal word. None for other text."""
    return PYTHON_WORDS.get(word) or number(word)


def _convert(word: str, types: Types) -> str:
    """Return the JSON of a value without quotes. It is a string if its text, or only a string, has one of `types`."""
    literal = _literal(word)
    kinds = {"true": {"boolean"}, "false": {"boolean"}, "null": {"null"}}.get(literal or "", _NUMBER)
    return f'"{quoted(word)}"' if literal is None or ("string" in types and not types & kinds) else literal
