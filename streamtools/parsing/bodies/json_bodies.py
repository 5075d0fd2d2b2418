"""Reads calls that are JSON: `{"name": ..., "arguments": {...}}`, one or several, or an array of them.

If there is a closing tag, white space and more JSON values may stand before it. If the JSON is malformed, or if other
text follows it, the span still ends at the tag. It also ends before a line that begins with the opening tag, so that a
valid call after a malformed one is read. No JSON string contains such a line, because JSON strings have no line feeds.
If only the closing tag of a call is missing, and another call begins or the message ends, the call is valid.

Without a closing tag, a call ends where its JSON ends. Malformed JSON ends with the next blank line at the latest.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache

from streamtools.errors import Code
from streamtools.parsing.bodies import CallEnd, Members, read_arguments, read_close, warn_unclosed
from streamtools.parsing.json_scanner import BROKEN, ENDED, OPEN, ScanState, unescape
from streamtools.parsing.markers import SPACES, Marker, Maybe, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Body, Span

_CONTAINER = Pattern(SPACES, "{", SPACES, OneOf(('"tools"', '"tool_calls"')), SPACES, ":", SPACES, "[")
"""The beginning of an object that contains an array of calls: `{"tools": [{"tool": "get_weather"}]}`."""


def json_calls(close: str = "", *, ends: Sequence[str] = (), contained: bool = False, whole: bool = False) -> Body:
    """Return the grammar of JSON calls.

    `close` is the closing tag, or "" for none. `ends` are tokens that end the message. Before one of them, the closing
    tag may be missing. With `contained`, an object may contain the array of calls. This needs a closing tag. With
    `whole`, the marker is the beginning of the JSON.
    """
    if close:
        return _TaggedJson(close, ends, contained)

    def body(span: Span) -> Generator[None, None, None]:
        if whole:
            span.rewind(0)
        yield from close_untagged(span, (yield from span.json()))

    return body


def close_untagged(span: Span, state: ScanState) -> Generator[None, None, None]:
    """Close a span without a closing tag, after its JSON value. `state` is the state in which the scanner stopped."""
    if state is ENDED:
        span.close()
    else:
        yield from close_unfinished(span, state, span.recover(), "array of calls lacks its end")


def close_unfinished(
    span: Span, state: ScanState, recovery: Generator[None, None, object], fault: str
) -> Generator[None, None, None]:
    """Close a span after JSON that is cut off or malformed. Complete calls of an array remain valid.

    `recovery` reads the rest of malformed JSON. `fault` says what a cut text lacks if no call is cut.
    """
    if state is BROKEN:
        yield from recovery
        span.close(Code.INVALID_JSON, survivors=True)
        return
    unclosed = span.calls.dialect is not None and not span.in_call
    span.close(Code.TRUNCATED, survivors=True)
    if unclosed:
        span.warn(Code.MISSING_CLOSE, f"the {fault}")


class _TaggedJson:
    """Reads JSON values up to a closing tag."""

    def __init__(self, close: str, ends: Sequence[str], contained: bool) -> None:
        self._close, self._contained = close, contained
        self._close_tag = Pattern(SPACES, close)
        self._ends = [Pattern(end) for end in ends]

    def __call__(self, span: Span) -> Generator[None, None, None]:
        opener, closing = _opener_and_closing(span.marker, self._close)
        while (state := (yield from self._read_value(span))) is ENDED:
            end_of_value = span.place
            if (yield from read_close(span, self._close, self._close_tag, opener, *self._ends)):
                return
            if (yield from span.peek()) not in "{[":
                yield from span.recover_at(closing)
                span.close(Code.INVALID_JSON)
                return
            span.rewind(end_of_value)
            span.finish()
        yield from close_unfinished(span, state, span.recover_at(closing), f"call lacks its closing {self._close}")

    def _read_value(self, span: Span) -> Generator[None, None, ScanState]:
        in_container = self._contained and (yield from span.accept(_CONTAINER))
        span.at -= in_container  # the bracket belongs to the array
        state = yield from span.json()
        if in_container and state is ENDED:
            char = yield from span.peek()
            span.at += char == "}"
            state = ENDED if char == "}" else BROKEN if char else OPEN
        return state


@lru_cache(maxsize=64)
def _opener_and_closing(marker: str, close: str) -> tuple[Pattern, Closing]:
    """Return the pattern of the opening tag, which begins another call, and the `Closing` of a malformed call."""
    opener = marker.strip()
    if opener.startswith(close):  # a fence of back-ticks: the opening tag begins with the closing tag
        return Pattern(opener), Closing(close)
    return Pattern(opener), Closing(close, Marker(("\n", Some(r" \t", 0, 32)), ahead=(opener,)))


_FIRST_NAME = Pattern("[", SPACES, "{", SPACES, '"')
_NEXT_NAMES = Pattern(SPACES, ",", SPACES, '"'), Pattern(SPACES, "}", SPACES, ",", SPACES, "{", SPACES, '"')
_END_OF_ARRAY = Pattern(SPACES, Maybe((",", SPACES)), Maybe(("}", SPACES)), "]")
_NAME, _COLON, _NULL = Word(r'^"\x00-\x1f'), Pattern('"', SPACES, ":"), Pattern(SPACES, "null")


def calls_under_names(opening: str, close: str) -> Body:
    """Return the grammar of an array of objects with the names of tools as keys: `[{"get_weather": {"city":
    "Paris"}}]`.

    An object with several keys holds several calls. `opening` and `close` are the tags around the array.
    """
    tags, closing = (Pattern(close), Pattern(opening)), Closing(close, before=(opening,))

    def read_member(span: Span) -> Generator[None, None, CallEnd | None]:
        """Read a call after the first quote of its name. Returns the `CallEnd` of a failed call, else None."""
        name = yield from span.word(_NAME)
        if not (yield from span.accept(_COLON)):
            return CallEnd.CUT if span.at_end_in(_COLON) else CallEnd.BROKEN_JSON
        span.set_name(unescape(name))
        if (yield from span.accept(_NULL)):
            Members(span).end()  # no arguments
            return None
        yield from span.peek()
        return (yield from read_arguments(span))

    def body(span: Span) -> Generator[None, None, None]:
        place, end = span.place, None
        found = yield from span.choose(_FIRST_NAME)
        while 0 <= found < len(_NEXT_NAMES) and end is None:
            span.begin_call(place)
            end = yield from read_member(span)
            place = span.place
            found = -1 if end is not None else (yield from span.choose(*_NEXT_NAMES, _END_OF_ARRAY))
        if end is None:  # the array has ended, the stream has ended, or other text follows
            yield from span.peek()
            if found >= 0 and (yield from read_close(span, close, *tags)):
                return
            end = CallEnd.CUT if span.at_end_in(*_NEXT_NAMES, _FIRST_NAME, _END_OF_ARRAY) else CallEnd.BROKEN_JSON
            if found < 0 and end is not CallEnd.CUT:
                span.begin_call(place)
        unclosed = end is CallEnd.CUT and not span.in_call
        if end is not CallEnd.CUT:
            yield from span.recover_at(closing)
        span.close(end.code, survivors=found < 0)
        if unclosed:
            warn_unclosed(span, close)

    return body


def chained_json(*begin: Part) -> Body:
    """Return the grammar of calls in a row without tags: `{"name": ...}; {"name": ...}`.

    `begin` holds the marker parts with which another call may begin. Each call is reported at its end. If another call
    follows, the white space and the semicolon between the calls are hidden. Otherwise they are text.
    """
    another = Pattern(SPACES, Maybe((";",)), SPACES, *begin)

    def body(span: Span) -> Generator[None, None, None]:
        while True:
            yield from span.peek()
            state = yield from span.json()
            if state is not ENDED:
                yield from close_untagged(span, state)
                return
            span.finish()
            end_of_call = span.place
            if not (yield from span.accept(another)):
                span.close()
                return
            span.go_back(end_of_call)
            if (yield from span.peek()) == ";":
                span.at += 1

    return body
