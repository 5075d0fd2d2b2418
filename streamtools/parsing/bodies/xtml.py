"""Calls in XTML, whose tags are put together of tokens:

    <|open|>argument key="days" type="number"<|sep|>1<|close|>argument<|sep|>

Each argument says of what type it is: a string is the text as it stands, everything else is JSON. Where one says no
type, the tool's JSON schema does. All arguments may stand together as one JSON object instead, in an element `json`.
A call that lacks only its closing tag, because another call or the end of the calls stands there, is a call.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from xml.sax.saxutils import unescape

from streamtools.parsing.bodies.endings import End, settle
from streamtools.parsing.bodies.members import Members
from streamtools.parsing.bodies.values import NO_STRING, STRING, Value
from streamtools.parsing.closings import closing
from streamtools.parsing.json_text import State
from streamtools.parsing.markers import Pattern
from streamtools.parsing.reader import Word
from streamtools.parsing.span import Span

_CLOSE, _CLOSE_VALUE, _CLOSE_JSON = (f"<|close|>{each}<|sep|>" for each in ("call", "argument", "json"))
_OTHERS = ("<|open|>call ", "<|close|>tools<|sep|>", "<|close|>message<|sep|>")
"""What stands behind a call, or instead of its closing tag."""
_ARGUMENT, _JSON = "<|open|>argument", "<|open|>json"

_TAGS = (_ARGUMENT, _JSON, _CLOSE, *_OTHERS)
_PATTERNS = tuple(map(Pattern, _TAGS))
_SEP = Pattern("<|sep|>")
_END_OF_VALUE, _END_OF_JSON = closing(_CLOSE_VALUE), Pattern(_CLOSE_JSON)
_RESUME = closing(_CLOSE, before=_OTHERS)
_ATTRIBUTES = Word("^<", 4096)  # an angle bracket is escaped there
_each_attribute = re.compile(r"""(?<![^\s="'])([^\s="']++)\s*+=\s*+(?:"([^"]*)"|'([^']*)')""").findall  # keys read once
_TYPES = {each: frozenset((each,)) for each in (*STRING, *NO_STRING)}


def xtml_call(span: Span) -> Generator[None, None, None]:
    """Read one call, from behind `<|open|>call`."""
    end = yield from _read(span)
    if end is End.BROKEN or end is End.BROKEN_JSON:
        yield from span.recover_at(_RESUME)
    settle(span, end, _CLOSE)


def _read(span: Span) -> Generator[None, None, End]:
    """Read it to its end, or to where it is broken; return which that is."""
    attributes = yield from _read_attributes(span)
    if attributes is None:
        return _broken(span, "<|sep|>")
    name = attributes.get("tool", "")
    span.call(name)
    schema = span.declared.arguments(name)
    members: Members | None = None
    while True:
        yield from span.peek()
        place = span.place
        found = yield from span.choose(*_PATTERNS)
        if found < 0 or (found < 2 and not span.in_call):  # behind the JSON of all arguments
            return _broken(span, *_TAGS)
        if found > 1:
            break
        attributes = yield from _read_attributes(span)
        if attributes is None:
            return _broken(span, "<|sep|>")
        if found == 1:
            if members is not None:
                return End.BROKEN
            broken = yield from _read_json(span)
            if broken is not None:
                return broken
            continue
        key = attributes.get("key")
        if key is None:
            return End.BROKEN
        members = members or Members(span)
        members.key(key)
        value = Value(schema.property(key), span, said=_TYPES.get(attributes.get("type", "")))
        if not (yield from span.content(_END_OF_VALUE, value.take)):
            return End.CUT
        value.end()
    if span.in_call:
        (members or Members(span)).end()
        span.end_call()
    if found == 2:
        return End.CLOSED
    span.go_back(place)
    return End.UNCLOSED


def _read_json(span: Span) -> Generator[None, None, End | None]:
    """Read the JSON of all arguments, and its closing tag; return how the call ends, if it ends in here."""
    if not (yield from span.peek()):
        return End.CUT
    state = yield from span.arguments()
    if state is not State.ENDED:
        return End.CUT if state is State.OPEN else End.BROKEN_JSON
    yield from span.peek()
    return None if (yield from span.accept(_END_OF_JSON)) else _broken(span, _CLOSE_JSON)


def _read_attributes(span: Span) -> Generator[None, None, dict[str, str] | None]:
    """Read the attributes and the end of an opening tag; return None where it does not end so."""
    text = yield from span.word(_ATTRIBUTES)
    if not (yield from span.accept(_SEP)):
        return None
    entities = {"&quot;": '"', "&apos;": "'"}
    return {key: unescape(double or single, entities) for key, double, single in _each_attribute(text)}


def _broken(span: Span, *tags: str) -> End:
    """Return how a call ends where none of `tags` stands: nothing more comes, or something else does."""
    return End.CUT if span.at_end_in(*tags) else End.BROKEN
