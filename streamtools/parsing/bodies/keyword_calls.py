"""Calls as Python writes them: `[get_weather(city="Paris", days=3), get_time()]`.

Calls are in a list or one on each line, with keyword arguments only: an argument without a name could be any of the
tool's. In a dialect with a closing tag, a call is reported at its closing parenthesis, since later text does not change
it. Behind text that is no call, the tag ends the span: a line inside a broken string may look like the next call.
Without a tag, the text behind a call decides whether it was code, and the next blank line ends broken text.

The Gemma models write one call with its keys and values in braces: `call:get_weather{city:<|"|>Paris<|"|>,days:3}`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from streamtools.errors import Code
from streamtools.parsing.bodies import Members
from streamtools.parsing.bodies.literals import Literals
from streamtools.parsing.bodies.syntax import PYTHON, PYTHON_WORDS, Quotes, Syntax
from streamtools.parsing.json_text import BROKEN, DEEP, ENDED, OPEN, State
from streamtools.parsing.markers import BLANKS, LINE_END, Pattern, Some
from streamtools.parsing.reader import Closing, Word, always
from streamtools.parsing.span import Body, Span

_PYTHON_CLASS = r"""^ \t\r\n()\[\]{}<>"'`=,;"""
NAME = Some(_PYTHON_CLASS, 1, 128)
"""The name of a tool, which may have dots in it; behind it comes a parenthesis."""

_name = Word(_PYTHON_CLASS, 128)
_STARS, _FENCE = Pattern("**"), Pattern("```")
_BLANK_LINE = Closing(blank_line=True)
_REST_OF_LINE = Pattern(BLANKS, LINE_END)


def pythonic_calls(opening: str = "", close: str = "", *, fenced: bool = False, loose: bool = False) -> Body:
    """Return the grammar of calls between two tags, or, without tags, of a list of them.

    If they are `fenced`, a fence of back-ticks may end before the closing tag. If they are `loose`, so are their
    literals.
    """
    syntax = replace(PYTHON, loose=close) if loose else PYTHON
    opener, closer = Pattern(opening), Pattern(close)
    end = Closing(close) if close else _BLANK_LINE

    def body(span: Span) -> Generator[None, None, None]:
        return _Calls(span, opener, closer, close, end, syntax, fenced=fenced).read()

    return body


class _Calls:
    """Reads the calls of one span."""

    def __init__(
        self, span: Span, opener: Pattern, closer: Pattern, close: str, end: Closing, syntax: Syntax, *, fenced: bool
    ) -> None:
        self._span, self._syntax = span, syntax
        self._opener, self._closer = opener, closer
        self._close, self._end = close, end
        self._fenced = fenced
        self._listed = False  # a bracket is open

    def read(self) -> Generator[None, None, None]:
        span = self._span
        self._listed = span.marker == "["
        if (yield from span.peek()) == "[":
            span.at += 1
            self._listed = True
            yield from span.peek()
        more = True
        while more:
            span.begin_call(span.place)
            literal = ArgumentReader(span, self._syntax)
            state = yield from _read_call(span, literal)
            if state is not ENDED:
                yield from give_up(span, state, literal, self._end)
                return
            span.end_call()
            more = yield from (self._tagged() if self._close else self._untagged())

    def _tagged(self) -> Generator[None, None, bool]:
        """Read what stands behind a call; return whether that is one more."""
        span = self._span
        span.finish()
        comma = False
        while (char := (yield from span.peek())) and ((char == "]" and self._listed) or (char in ",;" and not comma)):
            if char == "]":
                self._listed = False
            else:
                comma = True
            span.at += 1
        if char == "`" and self._fenced and (yield from span.accept(_FENCE)):
            char = yield from span.peek()
        found = yield from span.expect(self._closer, self._opener)
        if found == 0:
            span.close()
            return False
        if found < 0 and char and not span.at_end_in(self._close, "```" if self._fenced else self._close):
            if char == "[" and not self._listed:
                self._listed = True
                span.at += 1
                yield from span.peek()
            return True
        span.close()
        span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {self._close}")
        return False

    def _untagged(self) -> Generator[None, None, bool]:
        """Read what stands behind a call of a list; return whether that is one more."""
        span = self._span
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
        yield from span.until(self._end)
        span.close(Code.UNRECOGNISED_TOOL_CALL)
        return False


class ArgumentReader:
    """Reads literals from a span."""

    def __init__(self, span: Span, syntax: Syntax) -> None:
        self._span = span
        self._syntax = syntax
        self.string_begin = -1  # the place where the string begins that was read last

    def read(self, *, depth: int, named: bool = True) -> Generator[None, None, State]:
        """Read one value, which nests `depth` levels at most; write it to the call if it is `named`, and return how it
        ended.
        """
        span = self._span
        written: list[str] = span.current.pieces if named and span.current is not None else []
        write = span.write if named else lambda text: written.append(text) if span.stores else None
        literals = Literals(write, self._syntax, depth=depth, written=written)
        while True:
            span.at = literals.scan(span.text, span.at)
            if literals.string_at is not None:
                self.string_begin = span.base + literals.string_at
            if literals.state is not OPEN or span.ended:
                break
            span.leaves, span.take = literals.leaves, literals.take
            yield
            span.leaves, span.take = always, None
        if literals.unread:
            span.unread(literals.unread)
        if literals.fault is not None:
            span.blame(*literals.fault)
        return literals.state


def give_up(span: Span, state: State, reader: ArgumentReader, end: Closing) -> Generator[None, None, None]:
    """Close the span, of which the last call came to an end that is none.

    Where a quote was missing, the string that was read last may have begun in the wrong place, so it is searched for
    the end of the span as well.
    """
    if state is OPEN:
        span.close(Code.TRUNCATED)
        return
    if state is DEEP:
        if span.stores:
            span.exceed(Code.TOO_DEEP, span.place)
    elif span.stores and 0 <= reader.string_begin < span.place:
        span.rewind(reader.string_begin)
    yield from span.until(end)
    span.close(Code.UNRECOGNISED_TOOL_CALL)


def _read_call(span: Span, literal: ArgumentReader) -> Generator[None, None, State]:
    """Read a call; return ENDED, OPEN at the end of the stream, or what else its text has come to."""
    name = yield from span.word(_name)
    if not name or span.text[span.at : span.at + 1] != "(":
        return _stuck(span)
    span.at += 1
    span.call(name)
    if (yield from span.peek()) == "*" and (yield from span.accept(_STARS)):
        span.convert()
        if (yield from span.peek()) != "{":
            return _stuck(span)
        state = yield from literal.read(depth=span.depth)
        return (yield from _end_of_list(span)) if state is ENDED else state
    members = Members(span)
    while (char := (yield from span.peek())) != ")":
        if not char:
            return OPEN
        state = yield from _read_argument(span, literal, members)
        if state is not ENDED:
            return state
        char = yield from span.peek()
        if char == ",":
            span.at += 1
        elif char != ")":
            return _stuck(span)
    span.at += 1
    members.end()
    return ENDED


def _read_argument(span: Span, literal: ArgumentReader, members: Members) -> Generator[None, None, State]:
    """Read one argument, which ought to have a name."""
    name = yield from span.word(_name)
    char = yield from span.peek()
    if name and char == "=":
        span.at += 1
        members.key(name)
        yield from span.peek()
        return (yield from literal.read(depth=span.depth - 1))
    span.blame(Code.INVALID_ARGUMENTS, "an argument has no name")
    if name:
        return ENDED if char else OPEN
    return (yield from literal.read(depth=span.depth - 1, named=False))


def _end_of_list(span: Span) -> Generator[None, None, State]:
    """Read the end of the arguments."""
    if (yield from span.peek()) == ",":
        span.at += 1
    if (yield from span.peek()) != ")":
        return _stuck(span)
    span.at += 1
    return ENDED


def _stuck(span: Span) -> State:
    """Return what it means that what comes next is not what should come."""
    return BROKEN if span.at < len(span.text) else OPEN


def call_line(span: Span) -> Generator[None, None, None]:
    """Read one call that has a line to itself, from where its marker begins: what stands behind it makes it code."""
    span.rewind(0)
    literal = ArgumentReader(span, PYTHON)
    state = yield from _read_call(span, literal)
    if state is not ENDED:
        yield from give_up(span, state, literal, _BLANK_LINE)
        return
    span.end_call()
    if (yield from span.accept(_REST_OF_LINE)):
        span.close()
        return
    yield from span.until(_BLANK_LINE)
    span.close(Code.UNRECOGNISED_TOOL_CALL)


def readable(name: str) -> bool:
    """Whether a tool or an argument of this name can be written."""
    return _name.matches(name)


# The Gemma models have a notation of their own: keys without quotes, and a delimiter around strings that is a token of
# its own, so that nothing inside needs an escape. Values in plain quotes, or in none, are what they fall back to.


def _gemma(mark: str) -> Syntax:
    quotes = (Quotes(mark, escapes=False), Quotes('"'), Quotes("'"))
    return Syntax(quotes, words=PYTHON_WORDS, bare_keys=True, bare_strings=True)


GEMMA, FUNCTION_GEMMA = _gemma('<|"|>'), _gemma("<escape>")

_GEMMA_CLASS = r"""^ \t\r\n(){}\[\]<>"'`=,;:"""
GEMMA_NAME = Some(_GEMMA_CLASS, 1, 128)
"""The name of a tool; behind it comes a brace."""

_gemma_name = Word(_GEMMA_CLASS, 128)


def gemma_call(syntax: Syntax, opening: str, close: str) -> Body:
    """Return the grammar of what follows `call:`, between two tags."""
    opener, closer, end = Pattern(opening), Pattern(close), Closing(close)

    def body(span: Span) -> Generator[None, None, None]:
        span.begin_call(span.place)
        span.call((yield from span.word(_gemma_name)))
        span.convert()
        arguments = ArgumentReader(span, syntax)
        state = yield from arguments.read(depth=span.depth)
        if state is not ENDED:
            yield from give_up(span, state, arguments, end)
            return
        span.end_call()
        char = yield from span.peek()
        found = yield from span.expect(closer, opener)
        if found == 0:
            span.close()
            return
        if found < 0 and char and not span.at_end_in(close):
            yield from give_up(span, BROKEN, arguments, end)
            return
        span.close()
        span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {close}")

    return body
