"""Calls that are JSON: `{"name": ..., "arguments": {...}}`, one or several, or an array of them.

With a closing tag, white space and further values may stand before it. Where the JSON is broken, or anything else
follows it, the tag ends the span all the same, and so does a line that begins with the opening tag: a good call behind
a bad one counts, and valid JSON has no line feed in a string that could be taken for it. A call that lacks only its
closing tag, because another one begins or the message ends there, is a call. Without a closing tag, the
call ends where its JSON does, and broken JSON at the next blank line at the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import TypeAlias

from streamtools.errors import Code
from streamtools.parsing.closings import Closing, closing
from streamtools.parsing.envelope import Envelope
from streamtools.parsing.json_text import BROKEN, ENDED, OPEN, State
from streamtools.parsing.markers import SPACES, Marker, Pattern, Some
from streamtools.parsing.span import Body, Span

MakeEnvelope: TypeAlias = Callable[[Span], Envelope]
"""Says how a value holds its calls."""


def json_calls(close: str = "", *, ends: Sequence[str] = (), envelope: MakeEnvelope = Envelope) -> Body:
    """Return the grammar; `close` is the closing tag, and `ends` end the message, where it may be missing."""
    return _Tagged(close, ends, envelope) if close else _Bare(envelope)


class _Bare:
    """One value, which ends the span."""

    def __init__(self, envelope: MakeEnvelope) -> None:
        self._envelope = envelope

    def __call__(self, span: Span) -> Generator[None, None, None]:
        state = yield from span.json(envelope=self._envelope(span))
        yield from close_bare(span, state)


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

    def __init__(self, close: str, ends: Sequence[str], envelope: MakeEnvelope) -> None:
        self._name = close
        self._envelope = envelope
        self._at_once, self._close = Pattern(SPACES, close), Pattern(close)
        self._ends = [Pattern(end) for end in ends]

    def __call__(self, span: Span) -> Generator[None, None, None]:
        while True:
            state = yield from span.json(envelope=self._envelope(span))
            if state is not ENDED:
                break
            if (yield from span.accept(self._at_once)):  # as a rule
                span.close()
                return
            opener, end = _edges(span.marker, self._name)
            behind = span.place
            char = yield from span.peek()
            place = span.place
            found = yield from span.choose(self._close, opener, *self._ends)
            if found == 0:
                span.close()
                return
            if found > 0:
                span.at = place - span.base
                self._close_unclosed(span)
                return
            if span.at_end_in(self._name):
                self._close_unclosed(span)
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

    def _close_unclosed(self, span: Span) -> None:
        span.close()
        self._warn(span)

    def _warn(self, span: Span) -> None:
        span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {self._name}")


@lru_cache(maxsize=64)
def _edges(marker: str, close: str) -> tuple[Pattern, Closing]:
    """Return what begins another call where this one is not closed, and what ends it where it is broken."""
    opener = marker.strip()
    if opener.startswith(close):  # of a fence of back-ticks
        return Pattern(opener), closing(close)
    return Pattern(opener), closing(close, Marker(("\n", Some(r" \t", 0, 32)), ahead=(opener,)))
