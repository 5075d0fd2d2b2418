"""Grammars of bodies: they read the text after a marker, one kind of body each, and dialects share them.

A grammar is a generator that takes a `Span`. It reads from the end of the marker to the end of the span and yields when
it needs more text. It reports where calls begin and end and their names. Arguments that are not JSON it writes to the
span as JSON text. It does not decode JSON: that happens once for all dialects, when a call is complete.

| module | bodies |
| --- | --- |
| `json_bodies` | JSON calls: one, an array, or several in a row |
| `named_json` | a name, and then the JSON of the arguments |
| `function_tags` | `<function=NAME><parameter=KEY>…`, and `<tool: NAME>` around text or JSON |
| `pairs` | `NAME<arg_key>KEY</arg_key><arg_value>…` |
| `invocations` | `<invoke name="NAME"><parameter name="KEY">…`, and the same with tokens |
| `elements` | `<NAME><KEY>…</KEY></NAME>` |
| `keyword_calls` | `NAME(KEY=…)`, and the notation of the Gemma models |
| `values`, `literals`, `xml_text` | how values and tags become JSON |

This module has the parts that the grammars share. Models forget closing tags: a call that lacks only its closing tag,
because something else begins there, is a call. A call that is cut off or malformed is an error, which ends with the
next tag of the dialect.
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
from streamtools.parsing.json_scanner import ENDED, OPEN
from streamtools.parsing.markers import Marker, Part, Pattern
from streamtools.parsing.reader import Closing
from streamtools.parsing.span import Body, Span

CutTag: TypeAlias = Callable[[str, int], "re.Match[str] | None"]


def cut_tag(*tags: tuple[Part, ...]) -> CutTag:
    """Return a function that matches the beginning of one of `tags` at the end of a text."""
    markers = [Marker(tag) for tag in tags]

    @cache
    def compiled() -> CutTag:
        return re.compile("|".join(marker.begun_pattern() for marker in markers)).match

    return lambda text, at: compiled()(text, at)


class CallEnd(Enum):
    """How a call ends."""

    CLOSED = "closed"
    UNCLOSED = "unclosed"  # something else begins in the place of its closing tag
    INSIDE = "inside"  # its closing tag came inside a value
    BROKEN = "broken"  # something stands where it has no place
    BROKEN_JSON = "broken JSON"
    CUT = "cut"  # the stream ends inside it

    @property
    def code(self) -> Code | None:
        """The error code. None if the call is good."""
        return _CODES.get(self)


_CODES = {
    CallEnd.INSIDE: Code.UNRECOGNISED_TOOL_CALL,
    CallEnd.BROKEN: Code.UNRECOGNISED_TOOL_CALL,
    CallEnd.BROKEN_JSON: Code.INVALID_JSON,
    CallEnd.CUT: Code.TRUNCATED,
}


def read_arguments(span: Span) -> Generator[None, None, CallEnd | None]:
    """Read the JSON object of all arguments. Returns None if it is complete, or else how the call ends."""
    state = yield from span.arguments()
    return None if state is ENDED else CallEnd.CUT if state is OPEN else CallEnd.BROKEN_JSON


def read_json_call(span: Span, close: Pattern, tag: str) -> Generator[None, None, CallEnd]:
    """Read the JSON of all arguments and the closing `tag`, whose pattern is `close`."""
    end = yield from read_arguments(span)
    if end is not None:
        return end
    yield from span.peek()
    if (yield from span.accept(close)):
        return CallEnd.CLOSED
    return CallEnd.UNCLOSED if span.at_end_in(tag) else CallEnd.BROKEN


def unclosed_if_cut(span: Span, end: CallEnd) -> CallEnd:
    """Return the end of a call whose arguments are complete: if the stream cut it, only its closing tag is missing."""
    if end is CallEnd.CUT:
        span.at = len(span.text)
        return CallEnd.UNCLOSED
    return end


def cut_or_broken(span: Span, *, cut: bool) -> CallEnd:
    """Return CUT after reading the rest of the text, or BROKEN."""
    if cut:
        span.at = len(span.text)
    return CallEnd.CUT if cut else CallEnd.BROKEN


def cut_in_tag(span: Span, *tags: str) -> CallEnd:
    """Return CUT if the stream ends here or inside one of `tags`, else BROKEN."""
    return CallEnd.CUT if span.at_end_in(*tags) else CallEnd.BROKEN


def skip_broken(span: Span, end: CallEnd, closing: Closing) -> Generator[None, None, bool]:
    """Read through `closing` if the call is malformed. Returns False if the stream ends in the call."""
    if end is CallEnd.CUT:
        return False
    return end not in (CallEnd.BROKEN, CallEnd.BROKEN_JSON) or (yield from span.recover_at(closing))


def cut_in_value(span: Span, begin: int, closing: Closing) -> CallEnd:
    """Return CUT for a call whose message ends in a value that began at `begin`.

    The value may hold a closing tag that did not count, because text follows it. That text is most likely the rest of
    the answer, not part of a file. So the call ends with the last such tag.
    """
    length = closing.lost(span.kept_since(begin)) if span.stores else None
    if length is not None:
        span.rewind(begin + length)
    return CallEnd.CUT


def report_end(span: Span, end: CallEnd, tag: str, *, last: bool = True) -> None:
    """Report the call that ends here. `tag` is its closing tag. Closes the span after the `last` call."""
    if last:
        span.close(end.code)
    else:
        span.finish(end.code)
    if end is CallEnd.UNCLOSED:
        warn_unclosed(span, tag)


def warn_unclosed(span: Span, tag: str) -> None:
    """Warn that the call lacks its closing `tag`."""
    span.warn(Code.MISSING_CLOSE, f"the call lacks its closing {tag}")


def read_close(span: Span, tag: str, *tags: Pattern, cut: tuple[str, ...] = ()) -> Generator[None, None, bool]:
    """Read the closing `tag` of a call and close the span. Returns False if something else stands here.

    The first of `tags` is the closing tag. If another one stands in its place, which is left unread, or if the stream
    ends here, in the tag or in one of `cut`, a warning says so.
    """
    found = yield from span.expect(*tags)
    if found < 0 and not span.at_end_in(tag, *cut):
        return False
    span.close()
    if found:
        warn_unclosed(span, tag)
    return True


class Members:
    """Writes the arguments of the last call, which arrive one by one, as a JSON object.

    A key that occurs twice is found when the call is complete.
    """

    def __init__(self, span: Span) -> None:
        span.convert()
        self._span = span
        self._first = True
        span.write("{")

    def key(self, name: str) -> None:
        """Begin a member. The caller then writes its value to the span as JSON text."""
        self._span.write(("" if self._first else ",") + encode_basestring(name) + ":")
        self._first = False

    def end(self) -> None:
        """End the object."""
        self._span.write("}")


def end_without_arguments(span: Span) -> None:
    """Complete the last call with an empty object as its arguments."""
    Members(span).end()
    span.end_call()


def text_calls(close: str, read: Callable[[str], tuple[str, Mapping[str, Any]]]) -> Body:
    """Return the grammar of a call that is no JSON, for dialects with a parser of their own.

    `read` takes the text between the opener and `close`. It returns the name of the tool and the arguments. If it
    raises ValueError, LookupError, TypeError or AttributeError, the text is no call (`unrecognised_tool_call`). A text
    argument becomes a number, say, if the schema of the tool says so. Nothing of the call is known before its end.
    """
    from streamtools.parsing.bodies.values import Value  # loaded on use: `import streamtools` loads this module

    end = Closing(close)

    def body(span: Span) -> Generator[None, None, None]:
        pieces: list[str] = []
        closed = yield from span.content(end, lambda piece: pieces.append(piece) if span.stores else None)
        if not (closed and span.stores):  # a limit has been reported already
            span.close(None if closed else Code.TRUNCATED)
            return
        try:
            name, arguments = read("".join(pieces))
            texts = {key: value if isinstance(value, str) else compact(value) for key, value in dict(arguments).items()}
        except (ValueError, LookupError, TypeError, AttributeError):
            span.close(Code.UNRECOGNISED_TOOL_CALL)
            return
        span.call(name)
        members, schema = Members(span), span.declared.arguments(name)
        for key, text in texts.items():
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
    """Return the grammar of a tool result that the model made up. It is hidden up to its closing tag."""
    end = Closing(close)

    def body(span: Span) -> Generator[None, None, None]:
        yield from span.until(end)
        span.close()

    return body


def wrapper(span: Span) -> Generator[None, None, None]:
    """Hide the opening tag around calls that have markers of their own."""
    span.close()
    yield from ()


def cut_off(span: Span) -> Generator[None, None, None]:
    """Report a call of which the stream brought only the tag."""
    span.close(Code.TRUNCATED)
    yield from ()
