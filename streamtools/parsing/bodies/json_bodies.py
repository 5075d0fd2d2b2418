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
from streamtools.parsing.json_scanner import BROKEN, ENDED, OPEN, JsonScanner, ScanState
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
