"""Calls that are JSON: `{"name": ..., "arguments": {...}}`, one or several, or an array of them.

With a closing tag, white space and further values may stand before it. Where the JSON is broken, or anything else
follows it, the tag ends the span all the same, and so does a line that begins with the opening tag: a good call behind
a bad one counts, and valid JSON has no line feed in a string that could be taken for it. A call that lacks only its
closing tag, because another one begins or the message ends there, is a call. Without a closing tag, the
call ends where its JSON does, and broken JSON at the next blank line at the latest.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import TypeAlias

from streamtools.errors import Code
from streamtools.parsing.json_parts import ARGUMENTS, BEGIN, BLAME, CALL, END, FIELD, PIECE, RAW, TEXT
from streamtools.parsing.json_text import BROKEN, ENDED, OPEN, JsonText, State
from streamtools.parsing.markers import SPACES, Marker, Maybe, Part, Pattern, Some
from streamtools.parsing.reader import Closing
from streamtools.parsing.span import Body, Span

Envelope: TypeAlias = type[JsonText]
"""The class that reads how a value holds its calls."""


def json_calls(close: str = "", *, ends: Sequence[str] = (), envelope: Envelope = JsonText) -> Body:
    """Return the grammar; `close` is the closing tag, and `ends` end the message, where it may be missing."""
    if close:
        return _Tagged(close, ends, envelope)

    def bare(span: Span) -> Generator[None, None, None]:
        yield from close_bare(span, (yield from span.json(envelope=envelope)))

    return bare


def close_bare(span: Span, state: State) -> Generator[None, None, None]:
    """Close a span that a JSON value ends, behind that value; `state` is what it has come to."""
    if state is BROKEN:
        yield from span.recover()
        span.close(Code.INVALID_JSON, survivors=True)
        return
    unclosed = state is OPEN and not span.in_call
    span.close(None if state is ENDED else Code.TRUNCATED, survivors=True)
    if unclosed:
        span.warn(Code.MISSING_CLOSE, "the array of calls lacks its end")


class _Tagged:
    """Values up to the closing tag."""

    def __init__(self, close: str, ends: Sequence[str], envelope: Envelope) -> None:
        self._name = close
        self._envelope = envelope
        self._at_once, self._close = Pattern(SPACES, close), Pattern(close)
        self._ends = [Pattern(end) for end in ends]

    def __call__(self, span: Span) -> Generator[None, None, None]:
        while True:
            state = yield from span.json(envelope=self._envelope)
            if state is not ENDED:
                break
            if (yield from span.accept(self._at_once)):  # as a rule
                span.close()
                return
            opener, end = _edges(span.marker, self._name)
            behind = span.place
            char = yield from span.peek()
            found = yield from span.expect(self._close, opener, *self._ends)
            if found >= 0 or span.at_end_in(self._name):
                span.close()
                if found != 0:
                    self._warn(span)
                return
            if char in "{[":
                span.rewind(behind)
                span.finish()
            else:
                yield from span.recover_at(end)
                span.close(Code.INVALID_JSON)
                return
        if state is OPEN:
            cut = span.in_call
            span.close(Code.TRUNCATED, survivors=True)
            if not cut:
                self._warn(span)
        else:
            _, end = _edges(span.marker, self._name)
            yield from span.recover_at(end)
            span.close(Code.INVALID_JSON, survivors=True)

    def _warn(self, span: Span) -> None:
        span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {self._name}")


@lru_cache(maxsize=64)
def _edges(marker: str, close: str) -> tuple[Pattern, Closing]:
    """Return what begins another call where this one is not closed, and what ends it where it is broken."""
    opener = marker.strip()
    if opener.startswith(close):  # of a fence of back-ticks
        return Pattern(opener), Closing(close)
    return Pattern(opener), Closing(close, Marker(("\n", Some(r" \t", 0, 32)), ahead=(opener,)))


# Calls that follow one another without tags: `{"name": ...}; {"name": ...}`.
#
# Each is reported at its own end. White space and a semicolon behind it are hidden if another call follows, and are
# text otherwise.


def chained_json(begins: Sequence[Sequence[Part]]) -> Body:
    """Return the grammar; another call `begins` with one of these, which are looked at and read again."""
    another = [Pattern(SPACES, Maybe((";",)), SPACES, *begin) for begin in begins]

    def chain(span: Span) -> Generator[None, None, None]:
        while True:
            yield from span.peek()
            state = yield from span.json()
            if state is not ENDED:
                yield from close_bare(span, state)
                return
            span.finish()
            behind = span.place
            if (yield from span.choose(*another)) < 0:
                span.close()
                return
            span.go_back(behind)
            yield from span.peek()
            if span.text[span.at] == ";":
                span.at += 1

    return chain


def from_its_marker(body: Body) -> Body:
    """Return the grammar that reads the marker too, where that is the beginning of the call."""

    def read(span: Span) -> Generator[None, None, None]:
        span.rewind(0)
        yield from body(span)

    return read


# JSON that holds its calls in ways of its own: under the tool's name, or inside a container.

KEY, COLON, VALUE, BEHIND = "key", "colon", "value", "behind"
"""What may come next in an object: BEHIND a value, a comma or the end."""


class CallsUnderNames(JsonText):
    """`[{"get_weather": {"city": "Paris"}}]`: the name is the key, and the arguments are its value.

    An object with several keys is several calls. Only the arguments are decoded later, so this judges all the rest.
    """

    __slots__ = ("_begun", "_object", "_turn")

    def __init__(self, *, depth: int, lines: bool = False) -> None:
        super().__init__(depth=depth, lines=lines)
        self._turn = KEY
        self._object = 0  # the place where the object begins
        self._begun = False  # it has a call

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Take note of the array, an object in it, a name or its arguments."""
        if depth == 0 and first == "[":
            self._calls = self.outer = 1
        elif depth == self._calls:
            if not self._expects or first != "{":
                self.facts.append((BEGIN, place))
                return False
            self._expects = self._first = self._begun = False
            self._object, self._turn = place, KEY
            self.outer = depth + 1
        elif self._turn == KEY and first == '"':
            self.facts.append((BEGIN, place if self._begun else self._object))
            self._begun = True
            self.want, self.kept = FIELD, []
        elif self._turn == VALUE:
            self.facts.append((ARGUMENTS, place))
            self.want = {"": "", '"': TEXT}.get(first, RAW)
            self.wanted_depth = depth
        else:
            return self._refuse(place)
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """Take note of the end of what began."""
        want, self.want = self.want, ""
        if depth < self._calls:
            return self._first or not self._expects
        if depth == self._calls:
            self.outer = depth
            if self._turn == KEY and not self._begun:
                self.facts.append((BEGIN, self._object))
                self.facts.append((BLAME, "the call names no tool"))
                self.facts.append((END, place))
                return True
            return self._turn == BEHIND
        if want == FIELD:
            self._end_field()
            self._turn = COLON
            return True
        if want == TEXT:
            self.facts.append((PIECE, self.held))
            self.held = ""
        self.facts.append((END, place))
        self._turn = BEHIND
        return True

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Take note of a comma or a colon."""
        if depth == self._calls:
            return super().separate(mark, depth, place)
        expected = {COLON: ":", BEHIND: ","}.get(self._turn)
        if mark != expected:
            return self._refuse(place)
        self._turn = VALUE if mark == ":" else KEY
        return True

    def _refuse(self, place: int) -> bool:
        """Behind a complete call, what does not belong there is a bad one of its own."""
        if self._turn in (KEY, BEHIND):
            self.facts.append((BEGIN, place))
        return False

    def _end_field(self) -> None:
        name = self._read_field()
        if name is None:
            self.facts.append((BLAME, "the name of the tool is too long"))
        else:
            self.facts.append((CALL, name))


class CallsInContainer(JsonText):
    """`{"tools": [{"tool": "get_weather", "arguments": {...}}]}`, or one call, or an array of calls.

    The first key tells a container from a call.
    """

    __slots__ = ("_in_container", "_place", "_turn")

    CONTAINERS = frozenset({"tools", "tool_calls"})

    def __init__(self, *, depth: int, lines: bool = False) -> None:
        super().__init__(depth=depth, lines=lines)
        self._in_container: bool | None = None  # not known
        self._place = 0  # where the object begins
        self._turn = KEY

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Take note of a value, or a key."""
        if self._in_container is False or depth > 1:
            return super().begin_value(first, depth, place)
        if depth == 0 and first == "{":
            self._place, self.outer = place, 1
        elif depth == 0:
            self._in_container = False
            return super().begin_value(first, depth, place)
        elif self._turn == KEY and first == '"' and self._in_container is None:
            self.want, self.kept = FIELD, []
        elif self._turn == VALUE and first == "[":
            self._calls = self.outer = 2
        else:
            self.facts.append((BEGIN, place))
            return False
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """Take note of the end of what began."""
        if self._in_container is False or depth > 1:
            return super().end_value(depth, place)
        if self.want == FIELD:
            self.want = ""
            self._begin(self._read_field())
            return True
        if depth == 1:
            self.outer, self._turn = 1, BEHIND
            return super().end_value(depth, place)
        if self._turn == KEY:
            self.facts.append((BEGIN, self._place))
            self.facts.append((END, place))
        return self._turn in (KEY, BEHIND)

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Take note of a comma or a colon."""
        if self._in_container is False or depth > 1:
            return super().separate(mark, depth, place)
        if self._turn == COLON and mark == ":":
            self._turn = VALUE
            return True
        self.facts.append((BEGIN, place))
        return False

    def _begin(self, key: str | None) -> None:
        """The first key of the object is known."""
        self._in_container = key in self.CONTAINERS
        if self._in_container:
            self._turn = COLON
        else:
            super().begin_value("{", 0, self._place)
            self._field = key
