"""Calls in a tag with the name of the tool: `<tool: bash>`, a line end, `ls`, a line end and `</tool>`.

The content is a JSON object of all arguments, or text if the tool declares one argument.
"""

from __future__ import annotations

from collections.abc import Generator

from streamtools.errors import Code
from streamtools.parsing.bodies import CallEnd, Members, read_arguments, report_end
from streamtools.parsing.bodies.values import Value
from streamtools.parsing.markers import SPACES, OneOf, Pattern
from streamtools.parsing.reader import Closing
from streamtools.parsing.span import Span

_OBJECT = Pattern("{", SPACES, OneOf(('"', "}")))
_LINE_FEED = Pattern("\n")


class NamedTag:
    """The grammar. The name is the end of the marker, after `opening`."""

    def __init__(self, opening: str, close: str) -> None:
        self._opening, self._close = opening, close
        self._close_tag, self._closing = Pattern(close), Closing(close)
        self._end_of_text = Closing(close, line_feed=True)

    def __call__(self, span: Span) -> Generator[None, None, None]:
        name = span.marker[len(self._opening) : -1].strip()
        span.call(name)
        yield from span.accept(_LINE_FEED)
        begin = span.place
        yield from span.peek()
        place = span.place
        if (yield from span.accept(_OBJECT)):
            span.go_back(place)
            end = yield from self._read_object(span)
        else:
            empty = (yield from span.expect(self._close_tag)) == 0
            end = yield from self._read_text(span, name, begin, empty=empty)
        report_end(span, end, self._close)

    def _read_object(self, span: Span) -> Generator[None, None, CallEnd]:
        end = yield from read_arguments(span)
        if end is CallEnd.CUT:
            return end
        if end is None:
            yield from span.peek()
            if (yield from span.accept(self._close_tag)):
                return CallEnd.CLOSED
            if span.at_end_in(self._close):
                return CallEnd.UNCLOSED
        yield from span.recover_at(self._closing)
        return end or CallEnd.BROKEN

    def _read_text(self, span: Span, name: str, begin: int, *, empty: bool) -> Generator[None, None, CallEnd]:
        schema, members = span.declared.arguments(name), Members(span)
        keys = list(schema.properties)
        if not (empty and not keys):
            span.rewind(begin)
            if len(keys) != 1 and name in span.declared:
                span.blame(Code.INVALID_ARGUMENTS, "text can only be the argument of a tool that has one")
            key = keys[0] if len(keys) == 1 else "content"
            members.key(key)
            value = Value(schema.property(key), span)
            if not (yield from span.content(self._end_of_text, value.take)):
                return CallEnd.CUT
            value.end()
        members.end()
        span.end_call()
        return CallEnd.CLOSED
