"""Calls in XTML, which is XML with tags made of tokens: `<|open|>argument key="days" type="number"<|sep|>1<|close|>…`.

Each argument has its type: a string is plain text, everything else is JSON. Without a type, the JSON schema of the tool
gives the value its type. All arguments may stand together as one JSON object in an element `json`.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from streamtools.parsing.bodies import (
    CallEnd,
    Members,
    cut_in_tag,
    cut_in_value,
    read_arguments,
    report_end,
    skip_broken,
)
from streamtools.parsing.bodies.values import TYPES, Value
from streamtools.parsing.bodies.xml_text import unescape
from streamtools.parsing.markers import SPACES, Marker, OneOf, Pattern
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Span

_CLOSE, _CLOSE_VALUE, _CLOSE_JSON = (f"<|close|>{name}<|sep|>" for name in ("call", "argument", "json"))
_AFTER_CALL = ("<|open|>call ", "<|close|>tools<|sep|>", "<|close|>message<|sep|>")
"""What follows a call, or stands in the place of its closing tag."""

_TAGS = ("<|open|>argument", "<|open|>json", _CLOSE, *_AFTER_CALL)
_TAG_PATTERNS = tuple(map(Pattern, _TAGS))
_SEPARATOR = Pattern("<|sep|>")
_END_OF_VALUE = Closing(
    Marker((_CLOSE_VALUE,), ahead=(SPACES, OneOf(_TAGS))),
    Marker((_CLOSE,), ahead=(SPACES, OneOf(_AFTER_CALL))),  # if the closing tag of the value is missing
    last=(_CLOSE,),
)
_END_OF_JSON = Pattern(_CLOSE_JSON)
_END_OF_BROKEN = Closing(_CLOSE, before=_AFTER_CALL)
_ATTRIBUTES = Word("^<", 4096)  # attributes contain no angle bracket: it is escaped there
# possessive, so that keys are read once
_find_attributes = re.compile(r"""(?<![^\s="'])([^\s="']++)\s*+=\s*+(?:"([^"]*)"|'([^']*)')""").findall


def xtml_call(span: Span) -> Generator[None, None, None]:
    """Read one call, from the end of `<|open|>call`."""
    end = yield from _read_call(span)
    yield from skip_broken(span, end, _END_OF_BROKEN)
    report_end(span, end, _CLOSE)


def _read_call(span: Span) -> Generator[None, None, CallEnd]:
    attributes = yield from _read_attributes(span)
    if attributes is None:
        return cut_in_tag(span, "<|sep|>")
    name = attributes.get("tool", "")
    span.call(name)
    schema = span.declared.arguments(name)
    members: Members | None = None
    while True:
        yield from span.peek()
        place = span.place
        found = yield from span.choose(*_TAG_PATTERNS)
        if found < 0 or (found < 2 and not span.in_call):  # something else, or more after the JSON of all arguments
            return cut_in_tag(span, *_TAGS)
        if found > 1:
            break
        attributes = yield from _read_attributes(span)
        if attributes is None:
            return cut_in_tag(span, "<|sep|>")
        if found == 1:
            if members is not None:
                return CallEnd.BROKEN
            broken = yield from _read_json(span)
            if broken is not None:
                return broken
            continue
        key = attributes.get("key")
        if key is None:
            return CallEnd.BROKEN
        members = members or Members(span)
        members.key(key)
        value = Value(schema.property(key), span, TYPES.get(attributes.get("type", "")))
        begin = span.place
        if not (yield from span.content(_END_OF_VALUE, value.take)):
            return cut_in_value(span, begin, _END_OF_VALUE)
        if not span.read_since(span.before_closing).startswith(_CLOSE_VALUE):
            span.go_back(span.before_closing)
        value.end()
    if span.in_call:
        (members or Members(span)).end()
        span.end_call()
    if found == 2:
        return CallEnd.CLOSED
    span.go_back(place)
    return CallEnd.UNCLOSED


def _read_json(span: Span) -> Generator[None, None, CallEnd | None]:
    """Read the JSON of all arguments and its closing tag. Returns how the call ends, if it ends in here."""
    if not (yield from span.peek()):
        return CallEnd.CUT
    end = yield from read_arguments(span)
    if end is not None:
        return end
    yield from span.peek()
    return None if (yield from span.accept(_END_OF_JSON)) else cut_in_tag(span, _CLOSE_JSON)


def _read_attributes(span: Span) -> Generator[None, None, dict[str, str] | None]:
    """Read the attributes and the end of an opening tag. Returns None if the tag does not end there."""
    text = yield from span.word(_ATTRIBUTES)
    if not (yield from span.accept(_SEPARATOR)):
        return None
    return {key: unescape(double or single) for key, double, single in _find_attributes(text)}
