"""Grammars of bodies, the text behind a marker: each for one kind of body, shared by dialects.

A body reads a span from behind its marker to its end. It reports where calls begin and end and what their names are,
and writes their arguments as JSON text if they are not JSON. It does not read the JSON itself: that is done once, for
all dialects, when a call is complete.

This module has what the grammars share. Models forget closing tags: a call that lacks only its own, because something
else begins there, is a call all the same. A call that is cut or broken is an error, which ends with the next tag of the
dialect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from enum import Enum
from functools import cache
from json.encoder import encode_basestring
from typing import Any, TypeAlias

from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.parsing.markers import Marker, Part
from streamtools.parsing.reader import Closing
from streamtools.parsing.span import Body, Span

Begun: TypeAlias = Callable[[str, int], "re.Match[str] | None"]


def begun(*tags: tuple[Part, ...]) -> Begun:
    """Return what matches a beginning of one of `tags` at the end of a text."""
    markers = [Marker(tag) for tag in tags]

    @cache
    def compiled() -> Begun:
        return re.compile("|".join(marker.begun_pattern() for marker in markers)).match

    return lambda text, at: compiled()(text, at)


class End(Enum):
    """How a call ends."""

    CLOSED = "closed"
    UNCLOSED = "unclosed"  # something else begins where its closing tag should stand
    INSIDE = "inside"  # its closing tag came inside a value
    BROKEN = "broken"  # something stands in it that has no place there
    BROKEN_JSON = "broken JSON"
    CUT = "cut"

    @property
    def code(self) -> Code | None:
        """What is wrong with the call; None if it is one."""
        return _CODES.get(self)


_CODES = {
    End.INSIDE: Code.UNRECOGNISED_TOOL_CALL,
    End.BROKEN: Code.UNRECOGNISED_TOOL_CALL,
    End.BROKEN_JSON: Code.INVALID_JSON,
    End.CUT: Code.TRUNCATED,
}


def complete(span: Span, end: End) -> End:
    """Return how a call ends whose arguments are complete: where it is cut, it lacks its closing tag."""
    if end is End.CUT:
        span.at = len(span.text)
        return End.UNCLOSED
    return end


def cut_or_broken(span: Span, *, cut: bool) -> End:
    """Return how a call ends where something stands that has no place in it; if it is `cut`, that is read."""
    if cut:
        span.at = len(span.text)
    return End.CUT if cut else End.BROKEN


def skip_rest(span: Span, end: End, behind: Closing) -> Generator[None, None, bool]:
    """Read what is left of a call that is broken, to a closing `behind` it; return False if the stream ends in it."""
    if end is End.CUT:
        return False
    return end not in (End.BROKEN, End.BROKEN_JSON) or (yield from span.recover_at(behind))


def cut(span: Span, begin: int, closing: Closing) -> End:
    """Return how a call ends in whose value, from a place on, the message ends.

    If a closing tag stands in the value that did not count, since text follows it, that text is most likely the rest of
    the answer, and no part of a file that was being written: the call ends with the last such tag.
    """
    behind = closing.lost(span.kept_since(begin)) if span.stores else None
    if behind is not None:
        span.rewind(begin + behind)
    return End.CUT


def settle(span: Span, end: End, tag: str, *, last: bool = True) -> None:
    """Report the call that ends here, with `tag` as its closing tag; close the span if it is the `last`."""
    if last:
        span.close(end.code)
    else:
        span.finish(end.code)
    if end is End.UNCLOSED:
        span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {tag}")


class Members:
    """Writes the arguments of the last call of a span, which come one by one, as a JSON object.

    A key that comes twice is found when the call is complete.
    """

    def __init__(self, span: Span) -> None:
        span.convert()
        self._span = span
        self._first = True
        span.write("{")

    def key(self, name: str) -> None:
        """Begin a member; its value is written to the span next, as JSON text."""
        self._span.write(("" if self._first else ",") + encode_basestring(name) + ":")
        self._first = False

    def end(self) -> None:
        """The object is complete."""
        self._span.write("}")


def text_calls(close: str, read: Callable[[str], tuple[str, Mapping[str, Any]]]) -> Body:
    """Return the grammar of a call that is no JSON: `read` takes its whole text, and returns its name and arguments.

    The text is what stands between the opener and `close`. What `read` raises as ValueError, LookupError, TypeError or
    AttributeError says that it is no call (`unrecognised_tool_call`). An argument that is a text becomes what the
    schema of its tool says that it is, a number say. Nothing of the call is known before its end.
    """
    from streamtools.parsing.bodies.values import Value  # here, because few dialects need it

    end = Closing(close)

    def body(span: Span) -> Generator[None, None, None]:
        pieces: list[str] = []
        closed = yield from span.content(end, lambda piece: pieces.append(piece) if span.stores else None)
        if not (closed and span.stores):  # what is over the limit has been reported
            span.close(None if closed else Code.TRUNCATED)
            return
        try:
            name, arguments = read("".join(pieces))
            given = {key: each if isinstance(each, str) else compact(each) for key, each in dict(arguments).items()}
        except (ValueError, LookupError, TypeError, AttributeError):
            span.close(Code.UNRECOGNISED_TOOL_CALL)
            return
        span.call(name)
        members, schema = Members(span), span.declared.arguments(name)
        for key, text in given.items():
            members.key(key)
            if isinstance(arguments[key], str):
                value = Value(schema.property(key), span)
                value.take(text)
                value.end()
            else:
                span.write(text)
        members.end()
        span.end_call()
        span.close()

    return body


def forged_result(close: str) -> Body:
    """Return the grammar of a tool's result that the model writes itself: it is hidden up to its closing tag."""
    end = Closing(close)

    def body(span: Span) -> Generator[None, None, None]:
        yield from span.until(end)
        span.close()

    return body


def wrapper(span: Span) -> Generator[None, None, None]:
    """Read the opening tag around calls that have markers of their own: it is hidden, and begins none."""
    span.close()
    yield from ()


def cut_off(span: Span) -> Generator[None, None, None]:
    """Read a call of which the stream has brought no more than its tag."""
    span.close(Code.TRUNCATED)
    yield from ()
