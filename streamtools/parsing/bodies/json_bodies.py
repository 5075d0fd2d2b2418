"""Calls that are JSON: `{"name": ..., "arguments": {...}}`, one or several, or an array of them.

With a closing tag, white space and more values may stand before the tag. If the JSON is malformed, or if anything else
follows it, the tag still ends the span. So does a line that begins with the opening tag, so that a good call after a
bad one counts. No string contains such a line, because valid JSON has no line feed in a string. A call that lacks only
its closing tag, because another call begins or the message ends there, is a call.

Without a closing tag, the call ends where its JSON does. Malformed JSON ends with the next blank line at the latest.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import TypeAlias

from streamtools.errors import Code
from streamtools.parsing.bodies import read_close, warn_unclosed
from streamtools.parsing.json_scanner import (
    ARGUMENTS,
    BEGIN,
    BLAME,
    BROKEN,
    CALL,
    END,
    ENDED,
    FIELD,
    OPEN,
    PIECE,
    RAW,
    TEXT,
    JsonScanner,
    ScanState,
)
from streamtools.parsing.markers import SPACES, Marker, Maybe, Part, Pattern, Some
from streamtools.parsing.reader import Closing
from streamtools.parsing.span import Body, Span

Envelope: TypeAlias = type[JsonScanner]
"""The class that reads how a JSON value holds its calls."""


def json_calls(close: str = "", *, ends: Sequence[str] = (), envelope: Envelope = JsonScanner) -> Body:
    """Return the grammar of JSON calls.

    `close` is the closing tag. At one of `ends`, which end the message, it may be missing.
    """
    if close:
        return _TaggedJson(close, ends, envelope)

    def body(span: Span) -> Generator[None, None, None]:
        yield from close_untagged(span, (yield from span.json(envelope=envelope)))

    return body


def close_untagged(span: Span, state: ScanState) -> Generator[None, None, None]:
    """Close a span that ends with its JSON value. `state` is the state of the value."""
    if state is BROKEN:
        yield from span.recover()
        span.close(Code.INVALID_JSON, survivors=True)
        return
    unclosed = state is OPEN and not span.in_call
    span.close(None if state is ENDED else Code.TRUNCATED, survivors=True)
    if unclosed:
        span.warn(Code.MISSING_CLOSE, "the array of calls lacks its end")


class _TaggedJson:
    """Reads values up to the closing tag."""

    def __init__(self, close: str, ends: Sequence[str], envelope: Envelope) -> None:
        self._close = close
        self._envelope = envelope
        self._spaces_and_close, self._close_tag = Pattern(SPACES, close), Pattern(close)
        self._ends = [Pattern(end) for end in ends]

    def __call__(self, span: Span) -> Generator[None, None, None]:
        while (state := (yield from span.json(envelope=self._envelope))) is ENDED:
            if (yield from span.accept(self._spaces_and_close)):  # the usual case
                span.close()
                return
            opener, closing = _opener_and_closing(span.marker, self._close)
            end_of_value = span.place
            char = yield from span.peek()
            if (yield from read_close(span, self._close, self._close_tag, opener, *self._ends)):
                return
            if char not in "{[":
                yield from span.recover_at(closing)
                span.close(Code.INVALID_JSON)
                return
            span.rewind(end_of_value)
            span.finish()
        if state is OPEN:
            in_call = span.in_call
            span.close(Code.TRUNCATED, survivors=True)
            if not in_call:
                warn_unclosed(span, self._close)
        else:
            _, closing = _opener_and_closing(span.marker, self._close)
            yield from span.recover_at(closing)
            span.close(Code.INVALID_JSON, survivors=True)


@lru_cache(maxsize=64)
def _opener_and_closing(marker: str, close: str) -> tuple[Pattern, Closing]:
    """Return the opener of another call, and the end of a malformed call."""
    opener = marker.strip()
    if opener.startswith(close):  # of a fence of back-ticks
        return Pattern(opener), Closing(close)
    return Pattern(opener), Closing(close, Marker(("\n", Some(r" \t", 0, 32)), ahead=(opener,)))


def chained_json(begins: Sequence[Sequence[Part]]) -> Body:
    """Return the grammar of calls in a row without tags: `{"name": ...}; {"name": ...}`.

    Another call `begins` with one of these sequences. Each call is reported at its own end. White space and a semicolon
    after it are hidden if another call follows, and text otherwise.
    """
    another = [Pattern(SPACES, Maybe((";",)), SPACES, *begin) for begin in begins]

    def body(span: Span) -> Generator[None, None, None]:
        while True:
            yield from span.peek()
            state = yield from span.json()
            if state is not ENDED:
                yield from close_untagged(span, state)
                return
            span.finish()
            end_of_call = span.place
            if (yield from span.choose(*another)) < 0:
                span.close()
                return
            span.go_back(end_of_call)
            yield from span.peek()
            if span.text[span.at] == ";":
                span.at += 1

    return body


def from_its_marker(body: Body) -> Body:
    """Return a grammar that reads the marker too, because the marker is the beginning of the call."""

    def read(span: Span) -> Generator[None, None, None]:
        span.rewind(0)
        yield from body(span)

    return read


# JSON values that hold their calls in other ways: under the name of the tool, or inside a container.

KEY, COLON, VALUE, AFTER_VALUE = "key", "colon", "value", "after value"
"""What may come next in an object."""


class CallsUnderNames(JsonScanner):
    """Calls with the name as the key and the arguments as the value: `[{"get_weather": {"city": "Paris"}}]`.

    An object with several keys is several calls. Only the arguments are decoded later, so this class checks all the
    rest.
    """

    def __init__(self, *, depth: int, lines: bool = False) -> None:
        super().__init__(depth=depth, lines=lines)
        self._next = KEY
        self._object = 0  # the place where the object begins
        self._begun = False  # a call of the object has begun

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Begin the array, an object in it, a name or its arguments."""
        if depth == 0 and first == "[":
            self._calls = self.outer = 1
        elif depth == self._calls:
            if not self._expects or first != "{":
                self.facts.append((BEGIN, place))
                return False
            self._expects = self._first = self._begun = False
            self._object, self._next = place, KEY
            self.outer = depth + 1
        elif self._next == KEY and first == '"':
            self.facts.append((BEGIN, place if self._begun else self._object))
            self._begun = True
            self.want, self.kept = FIELD, []
        elif self._next == VALUE:
            self.facts.append((ARGUMENTS, place))
            self.want = {"": "", '"': TEXT}.get(first, RAW)
            self.wanted_depth = depth
        else:
            return self._refuse(place)
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """End a name, its arguments, an object or the array."""
        want, self.want = self.want, ""
        if depth < self._calls:
            return self._first or not self._expects
        if depth == self._calls:
            self.outer = depth
            if self._next == KEY and not self._begun:
                self.facts += [(BEGIN, self._object), (BLAME, "the call names no tool"), (END, place)]
                return True
            return self._next == AFTER_VALUE
        if want == FIELD:
            name = self._read_field()
            self.facts.append((BLAME, "the name of the tool is too long") if name is None else (CALL, name))
            self._next = COLON
            return True
        if want == TEXT:
            self.facts.append((PIECE, self._escape))
            self._escape = ""
        self.facts.append((END, place))
        self._next = AFTER_VALUE
        return True

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Read a comma or a colon."""
        if depth == self._calls:
            return super().separate(mark, depth, place)
        if mark != {COLON: ":", AFTER_VALUE: ","}.get(self._next):
            return self._refuse(place)
        self._next = VALUE if mark == ":" else KEY
        return True

    def _refuse(self, place: int) -> bool:
        """Refuse what stands here. After a complete call it is a bad call of its own."""
        if self._next in (KEY, AFTER_VALUE):
            self.facts.append((BEGIN, place))
        return False


class CallsInContainer(JsonScanner):
    """Calls in an object: `{"tools": [{"tool": "get_weather", "arguments": {...}}]}`.

    One call, or an array of calls, may stand alone. The first key distinguishes a container from a call.
    """

    CONTAINERS = frozenset({"tools", "tool_calls"})

    def __init__(self, *, depth: int, lines: bool = False) -> None:
        super().__init__(depth=depth, lines=lines)
        self._in_container: bool | None = None  # None: not known yet
        self._place = 0  # where the object begins
        self._next = KEY

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Begin a value or a key."""
        if self._in_container is False or depth > 1:
            return super().begin_value(first, depth, place)
        if depth == 0 and first == "{":
            self._place, self.outer = place, 1
        elif depth == 0:
            self._in_container = False
            return super().begin_value(first, depth, place)
        elif self._next == KEY and first == '"' and self._in_container is None:
            self.want, self.kept = FIELD, []
        elif self._next == VALUE and first == "[":
            self._calls = self.outer = 2
        else:
            self.facts.append((BEGIN, place))
            return False
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """End a value or a key."""
        if self._in_container is False or depth > 1:
            return super().end_value(depth, place)
        if self.want == FIELD:
            self.want = ""
            self._take_first_key(self._read_field())
            return True
        if depth == 1:
            self.outer, self._next = 1, AFTER_VALUE
            return super().end_value(depth, place)
        if self._next == KEY:
            self.facts += [(BEGIN, self._place), (END, place)]
        return self._next in (KEY, AFTER_VALUE)

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Read a comma or a colon."""
        if self._in_container is False or depth > 1:
            return super().separate(mark, depth, place)
        if self._next == COLON and mark == ":":
            self._next = VALUE
            return True
        self.facts.append((BEGIN, place))
        return False

    def _take_first_key(self, key: str | None) -> None:
        """Decide by the first key whether the object is a container or a call."""
        self._in_container = key in self.CONTAINERS
        if self._in_container:
            self._next = COLON
        else:
            super().begin_value("{", 0, self._place)
            self._field = key
