"""Reads calls in Python syntax.

A Python call looks like `[get_weather(city="Paris", days=3), get_time()]`. The calls are in a list, or each is on a
separate line. All arguments must have names, because the order of a tool's parameters is not defined. The arguments are
keyword arguments, or `**` and a dict.

If the dialect has a closing tag, each call is reported at its closing parenthesis. In this case, malformed text ends
only at the closing tag, because a line inside a broken string may look like a call. Without a closing tag, the text
after the closing parenthesis decides whether this is a call or code. Malformed text then ends at the next blank line.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from streamtools.errors import Code
from streamtools.parsing.bodies import Members, read_close
from streamtools.parsing.bodies.literals import Literals
from streamtools.parsing.json_scanner import BROKEN, DEEP, ENDED, OPEN, ScanState
from streamtools.parsing.markers import BLANKS, LINE_END, Pattern, Some
from streamtools.parsing.reader import Closing, Word, always
from streamtools.parsing.span import Body, Span

_NAME_CHARACTERS = r"""^ \t\r\n()\[\]{}<>"'`=,;"""
NAME = Some(_NAME_CHARACTERS, 1, 128)
"""The name of a tool in Python syntax, before a parenthesis. It may contain dots."""

_name = Word(_NAME_CHARACTERS, 128)
_STARS, _FENCE = Pattern("**"), Pattern("```")
_BLANK_LINE = Closing(blank_line=True)
_REST_OF_LINE = Pattern(BLANKS, LINE_END)


def is_writable(name: str) -> bool:
    """Return True if the name of a tool or an argument can be written in Python syntax."""
    return name != "" and _name.partial(name, 0).end() == len(name)


def pythonic_calls(opening: str = "", close: str = "", *, fenced: bool = False, loose: bool = False) -> Body:
    """Return the grammar of Python calls between two tags. Without `close`, the calls are in a list without tags.

    With `fenced=True`, the end of a code fence may precede the closing tag. With `loose=True`, which requires `close`,
    numbers may begin with zeros, and strings may contain unescaped quotes.
    """
    loose_until = close if loose else ""
    tags = (Pattern(close), Pattern(opening))
    closing = Closing(close) if close else _BLANK_LINE
    return lambda span: _PythonicCalls(span, _read_call, close, tags, closing, fenced).read(loose_until)


def python_dicts(span: Span) -> Generator[None, None, None]:
    """Read a list of dicts without tags. Each dict is a call: it holds the name and the arguments."""
    yield from _PythonicCalls(span, _read_dict).read()


def call_line(span: Span) -> Generator[None, None, None]:
    """Read one call that is alone on its line, from its marker on. If other text follows, the line is no call."""
    span.rewind(0)
    yield from _PythonicCalls(span, _read_call, alone=True).read()


@dataclass(slots=True)
class _PythonicCalls:
    """Reads all calls of one span."""

    _span: Span
    _read_one: Callable[[Span, ArgumentReader], Generator[None, None, ScanState]]
    _close: str = ""
    _tags: tuple[Pattern, ...] = ()
    _closing: Closing = _BLANK_LINE
    _fenced: bool = False
    alone: bool = False
    """Whether no other text may follow in the line of a call without a list."""
    _in_list: bool = False

    def read(self, loose_until: str = "") -> Generator[None, None, None]:
        span = self._span
        self._in_list = span.marker == "["
        if (yield from span.peek()) == "[":
            span.at += 1
            self._in_list = True
            yield from span.peek()
        another = True
        while another:
            span.begin_call(span.place)
            literals = ArgumentReader(span, loose_until)
            state = yield from self._read_one(span, literals)
            if state is not ENDED:
                yield from give_up(span, state, literals.string_begin, self._closing)
                return
            span.end_call()
            another = yield from (self._after_tagged() if self._close else self._after_untagged())

    def _after_tagged(self) -> Generator[None, None, bool]:
        """Read the text after a call in a dialect with tags. Returns True if another call follows."""
        span = self._span
        span.finish()
        comma = False
        while (char := (yield from span.peek())) and ((char == "]" and self._in_list) or (char in ",;" and not comma)):
            if char == "]":
                self._in_list = False
            else:
                comma = True
            span.at += 1
        if char == "`" and self._fenced and (yield from span.accept(_FENCE)):
            char = yield from span.peek()
        if (yield from read_close(span, self._close, *self._tags, cut=("```",) if self._fenced else ())):
            return False
        if char == "[" and not self._in_list:
            self._in_list = True
            span.at += 1
            yield from span.peek()
        return True

    def _after_untagged(self) -> Generator[None, None, bool]:
        """Read the text after a call in a list without tags. Returns True if another call follows."""
        span = self._span
        if not self._in_list:
            ends = not self.alone or (yield from span.accept(_REST_OF_LINE)) or (yield from span.at_turn_end())
            if not ends:
                yield from span.until(self._closing)
            span.close(None if ends else Code.UNRECOGNISED_TOOL_CALL)
            return False
        char = yield from span.peek()
        comma = char == ","
        if comma:
            span.at += 1
            char = yield from span.peek()
        if char == "]":
            span.at += 1
            span.close()
            return False
        if not char:
            span.close()
            span.warn(Code.MISSING_CLOSE, "the list of calls lacks its closing bracket")
            return False
        if comma:
            span.finish()
            return True
        yield from span.until(self._closing)
        span.close(Code.UNRECOGNISED_TOOL_CALL)
        return False


class ArgumentReader:
    """Reads literals from a span."""

    def __init__(self, span: Span, loose_until: str = "") -> None:
        """`loose_until` is the parameter of `Literals`."""
        self._span = span
        self._loose_until = loose_until
        self.string_begin = -1  # the position at which the last string begins; -1 before the first string

    def read(self, *, depth: int, named: bool = True, whole: bool = False) -> Generator[None, None, ScanState]:
        """Read one value, nested up to `depth` levels. Returns the state in which reading stopped.

        With `named=True`, the value is written to the call. Otherwise it is dropped, because it has no key. With
        `whole=True`, the value is the whole call, so it is written without reporting it as arguments.
        """
        span = self._span
        written: list[str] = call.pieces if named and (call := span.calls.current) is not None else []
        write = span.write if named and not whole else lambda text: written.append(text) if span.stores else None
        literals = Literals(write, depth=depth, loose_until=self._loose_until, written=written)
        while True:
            span.at = literals.scan(span.text, span.at)
            if literals.string_at is not None:
                self.string_begin = span.base + literals.string_at
            if literals.state is not OPEN or span.ended:
                break
            span.find_change, span.take = literals.find_change, literals.take
            yield
            span.find_change, span.take = always, None
        if literals.unread:
            span.unread(literals.unread)
        if literals.fault is not None:
            span.fail_call(*literals.fault)
        return OPEN if literals.state is BROKEN and (yield from span.at_turn_end()) else literals.state


def give_up(span: Span, state: ScanState, string_begin: int, closing: Closing) -> Generator[None, None, None]:
    """Close the span after a malformed call. `state` is the state in which reading stopped.

    If a quote is missing, the last string may have begun at the wrong position. So the search for `closing` begins at
    the start of that string, the position `string_begin`.
    """
    if state is OPEN:
        span.close(Code.TRUNCATED)
        return
    if state is DEEP:
        if span.stores:
            span.exceed(Code.TOO_DEEP, span.place)
    elif span.stores and 0 <= string_begin < span.place:
        span.rewind(string_begin)
    yield from span.until(closing)
    span.close(Code.UNRECOGNISED_TOOL_CALL)


def _read_call(span: Span, literals: ArgumentReader) -> Generator[None, None, ScanState]:
    """Read a call. Returns ENDED if it is complete, OPEN if the stream ends in it, else BROKEN or DEEP."""
    name = yield from span.word(_name)
    if not name or span.text[span.at : span.at + 1] != "(":
        return broken_or_open(span)
    span.at += 1
    span.set_name(name)
    if (yield from span.peek()) == "*" and (yield from span.accept(_STARS)):  # f(**{"a": 1})
        span.convert()
        if (yield from span.peek()) != "{":
            return broken_or_open(span)
        state = yield from literals.read(depth=span.depth)
        if state is not ENDED:
            return state
        if (yield from span.peek()) == ",":
            span.at += 1
        if (yield from span.peek()) != ")":
            return broken_or_open(span)
        span.at += 1
        return ENDED
    members = Members(span)
    while (char := (yield from span.peek())) != ")":
        if not char:
            return OPEN
        state = yield from _read_argument(span, literals, members)
        if state is not ENDED:
            return state
        char = yield from span.peek()
        if char == ",":
            span.at += 1
        elif char != ")":
            return broken_or_open(span)
    span.at += 1
    members.end()
    return ENDED


def _read_dict(span: Span, literals: ArgumentReader) -> Generator[None, None, ScanState]:
    """Read a call that is a dict. Returns the same states as `_read_call`."""
    if (yield from span.peek()) != "{":
        return broken_or_open(span)
    span.convert()
    return (yield from literals.read(depth=span.depth, whole=True))


def _read_argument(span: Span, literals: ArgumentReader, members: Members) -> Generator[None, None, ScanState]:
    """Read one argument. If it has no name, the call becomes an error."""
    name = yield from span.word(_name)
    char = yield from span.peek()
    if name and char == "=":
        span.at += 1
        members.key(name)
        yield from span.peek()
        return (yield from literals.read(depth=span.depth - 1))
    span.fail_call(Code.INVALID_ARGUMENTS, "an argument has no name")
    if name:
        return ENDED if char else OPEN
    return (yield from literals.read(depth=span.depth - 1, named=False))


def broken_or_open(span: Span) -> ScanState:
    """Return OPEN if the stream ends at this position, or BROKEN if other text follows."""
    return BROKEN if span.at < len(span.text) else OPEN
