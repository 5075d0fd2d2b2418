"""Reads XML as models write it: tags, the text between them, and arguments that are elements.

This is no XML parser. A tag like `<invoke name="f">`, `</invoke >` or `<br/>` is read only where a grammar looks for
one, and anything else is text: values hold HTML, code and so on, unchanged, up to the closing tag of the value. All
reads are bounded, or read each character once.

In `<city>Paris</city><days><item>1</item></days>`, the tags are the names. The schema says what an element is; where it
leaves a choice, the beginning of the element decides:

- a value that can be neither an object nor an array is the text up to its closing tag;
- an object holds an element for each member, or is JSON text;
- an array holds its elements, all of one name or named by their index; or it is JSON text; or it is one element of the
  array itself, and those of the same name that follow it are the others.

Without a schema, elements make an object, or an array if the first is an `item`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache
from json.encoder import encode_basestring
from typing import Final

from streamtools.errors import Code
from streamtools.parsing.bodies import End, begun, complete, cut_or_broken, settle, skip_rest
from streamtools.parsing.bodies.values import Value
from streamtools.parsing.declared import Schema
from streamtools.parsing.json_text import BROKEN, ENDED
from streamtools.parsing.markers import SPACES, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Form, Reader, Word
from streamtools.parsing.span import Span

GAP = Some(r" \t\r\n", 1, 32)

_KEY = Word(r"A-Za-z0-9_:.\-", 64)
_SPACED_EQUALS = Pattern(SPACES, "=", SPACES)
_EMPTY = Pattern("/", SPACES, ">")
_QUOTED = {quote: (Word(f"^{quote}", 1024), Pattern(quote)) for quote in "\"'"}
_BARE = Word(r"""^\s"'<>/=""", 1024)

_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_entity = re.compile(r"&(amp|lt|gt|quot|apos);")
_special = re.compile(r"&(?=(?:amp|lt|gt|quot|apos);)|\"").sub

_ANY_ENTITY: tuple[Part, ...] = ("&", OneOf(tuple(_ENTITIES)), ";")
_BEGIN_SECTION, _END_SECTION = "<![CDATA[", Closing("]]>")
_CDATA = Pattern(SPACES, _BEGIN_SECTION)


def unescape(text: str) -> str:
    """Return text with the characters of XML's own entities in their place."""
    return _entity.sub(lambda entity: _ENTITIES[entity[1]], text)


def read_attributes(reader: Reader) -> Generator[None, None, tuple[dict[str, str], str]]:
    """Read attributes and the end of their tag; return them, and which end that is: ">", "/>", or "" for none.

    Values stand in quotes of either kind, or in none. Of an attribute that comes twice the first counts.
    """
    found: dict[str, str] = {}
    while True:
        char = yield from reader.peek()
        if char == ">":
            reader.at += 1
            return found, ">"
        if char == "/":
            return found, "/>" if (yield from reader.accept(_EMPTY)) else ""
        key = yield from reader.word(_KEY)
        if not key or not (yield from reader.accept(_SPACED_EQUALS)):
            return found, ""
        value = yield from _read_value(reader)
        if value is None:
            return found, ""
        found.setdefault(key, unescape(value))


def _read_value(reader: Reader) -> Generator[None, None, str | None]:
    char = yield from reader.peek()
    if char not in _QUOTED:
        return (yield from reader.word(_BARE)) or None
    inside, quote = _QUOTED[char]
    yield from reader.accept(quote)
    value = yield from reader.word(inside)
    return value if (yield from reader.accept(quote)) else None


def attribute(text: str) -> str:
    """Return `text` as the value of an attribute, with its quotes."""
    return '"' + _special(lambda found: "&quot;" if found[0] == '"' else "&amp;", text) + '"'


class Content:
    """The text of an element up to its closing tag, as it is; with `xml`, entities and CDATA sections are read."""

    def __init__(self, *end: Part, xml: bool = False, ends: Sequence[Form] = (), last: tuple[Part, ...] = ()) -> None:
        """`end` is the closing tag, and `ends` are what counts as one where that is not enough: see `Closing`."""
        self._xml = xml
        self.closing = Closing(*(ends or (end,)), *((_BEGIN_SECTION, _ANY_ENTITY) if xml else ()), last=last)
        self._end = Pattern(SPACES, *end)

    def read(
        self, reader: Reader, take: Callable[[str], None], ends: Callable[[str], object] = bool
    ) -> Generator[None, None, str]:
        """Give the text to `take`, and read the closing tag; return it, or "" where none comes.

        What looks like one, and is none by what `ends` says, is text. White space around a CDATA section belongs to
        its marks.
        """
        if self._xml and (yield from reader.accept(_CDATA)):
            found = yield from self._end_section(reader, take, ends)
            if found:
                return found
        while (yield from reader.content(self.closing, take)):
            found = reader.read_since(reader.before_closing)
            if found[0] == "&":
                take(_ENTITIES[found[1:-1]])
                continue
            if found.startswith("<!"):
                found = yield from self._end_section(reader, take, ends)
                if found:
                    return found
            elif ends(found):
                return found
            else:
                take(found)
        return ""

    def _end_section(
        self, reader: Reader, take: Callable[[str], None], ends: Callable[[str], object]
    ) -> Generator[None, None, str]:
        """Read a section from behind its first mark; return the closing tag of the element, if it stands behind it."""
        while (yield from reader.content(_END_SECTION, take)):
            place = reader.place
            found = yield from reader.choose(self._end, _CDATA)
            if found == 0:
                text = reader.read_since(place)
                if ends(text.strip()):
                    return text
                take(text)
            if found != 1:
                break
        return ""


def section(text: str) -> str:
    """Return `text` as it stands in an element: in CDATA sections, where anything could be taken for a mark."""
    if "<" not in text and "&" not in text:
        return text
    return "<![CDATA[" + text.replace("]]>", "]]]]><![CDATA[>") + "]]>"


_NAME = Some(r"\w.:\-", 1, 128)
_BEHIND_NAME = Some(r" \t\r\n/>", 1, 1)
_ITEM: Final = "item"
_SPACE = " \t\r\n"
_BRACKET = Pattern(SPACES, "[")
_HOLDERS: Final = frozenset({"object", "array"})


@dataclass(slots=True)
class _Holder:
    """An object or an array that is being read."""

    name: str
    """The name of its tag."""
    schema: Schema
    array: bool
    count: int = 0
    """How many elements, or members, have begun."""
    elements: str = ""
    """In an array, the name of its elements; in an object, that of the array whose elements stand here."""


class Elements:
    """The grammar; `prefix` stands before the angle bracket of each tag. With `xml`, entities and CDATA are read."""

    def __init__(self, prefix: str = "", *, xml: bool = False) -> None:
        self._lead = len(prefix) + 1
        open_: tuple[Part, ...] = (prefix + "<", _NAME, _BEHIND_NAME)
        close: tuple[Part, ...] = (prefix + "</", SPACES, _NAME, SPACES, ">")
        self._open, self._close = Pattern(*open_), Pattern(*close)
        self._first_open, self._first_close = Pattern(SPACES, *open_), Pattern(SPACES, *close)
        self._null = Pattern(SPACES, OneOf(("null", "None")), SPACES, *close)
        self._bracket = Pattern(SPACES, "<![CDATA[", SPACES, "[") if xml else _BRACKET
        self._content = Content(*close, xml=xml)
        self._begun = begun((*open_[:-1], ">"), close)

    def read(self, span: Span, root: str, schema: Schema) -> Generator[None, None, End]:
        """Read the elements of the object that the arguments of a call are, and the closing tag of `root`."""
        span.convert()
        span.write("{")
        stack = [_Holder(root, schema, array=False)]
        while True:
            holder = stack[-1]
            yield from span.peek()
            place = span.place
            found = yield from span.choose(self._open, self._close)
            name = self._tag_name(span.read_since(place))
            if found < 0:
                return self._end_broken(span)
            another = found == 0 and len(stack) == 1 and name == root and root not in schema.properties
            if another or (found == 1 and name != holder.name):
                span.go_back(place)
                self._end_holder(span, holder)
                return End.BROKEN if len(stack) > 1 else End.UNCLOSED
            if found == 1:
                self._end_holder(span, stack.pop())
                if not stack:
                    return End.CLOSED
                continue
            span.at -= 1  # what stands behind the name
            _, end = yield from read_attributes(span)
            inner = self._begin_element(span, holder, name) if end else None
            if inner is None:
                return self._end_broken(span, tag=not end)
            if end == "/>":
                self._write_empty(span, inner, "")
                continue
            broken = yield from self._read_element(span, stack, name, inner)
            if broken is not None:
                return broken

    def _tag_name(self, tag: str) -> str:
        return tag.strip(_SPACE)[self._lead :].strip("/>" + _SPACE)

    def _begin_element(self, span: Span, holder: _Holder, name: str) -> Schema | None:
        """Write what comes before the value of an element; return its schema, or None if it has no place here."""
        comma = "," if holder.count else ""
        holder.count += 1
        if holder.array:
            if holder.count > 1 and name != holder.elements and name != str(holder.count - 1):
                return None
            holder.elements = holder.elements or name
            span.write(comma)
            return holder.schema.items
        inner = holder.schema.property(name)
        if holder.elements == name:
            span.write(",")
            return inner.items
        if holder.elements:
            span.write("]")
            holder.elements = ""
        span.write(comma + encode_basestring(name) + ":")
        return inner

    def _read_element(
        self, span: Span, stack: list[_Holder], name: str, schema: Schema
    ) -> Generator[None, None, End | None]:
        """Read the value of an element, or begin to; return how the call ends, if it ends in here."""
        types = schema.types
        if types and not types & _HOLDERS:
            return (yield from self._read_text(span, stack, name, schema))
        place = span.place
        found = yield from span.choose(self._first_close, self._first_open, _BRACKET, self._bracket)
        before = span.read_since(place)
        inner = self._tag_name(before)
        if found == 0 and inner == name:
            self._write_empty(span, schema, before[: -len(before.lstrip(_SPACE))])
            return None
        holder = stack[-1]
        if found == 1 and (
            "string" not in types or inner in schema.properties or (inner == _ITEM and "array" in types)
        ):
            span.go_back(place)
            return self._begin_holder(span, stack, name, schema, inner)
        if found >= 0:
            span.go_back(place)
        alone = types & (_HOLDERS | {"string"}) == {"array"}
        if alone and "null" in types and (yield from span.accept(self._null)):
            word_and_tag = span.read_since(place).strip(_SPACE)
            alone = self._tag_name(word_and_tag[len("null") :]) != name
            span.go_back(place)
        if alone and found < 2 and not holder.array and holder.elements != name:
            holder.elements = name
            span.write("[")
            schema = schema.items
        return (yield from self._read_text(span, stack, name, schema))

    def _begin_holder(self, span: Span, stack: list[_Holder], name: str, schema: Schema, first: str) -> End | None:
        """Begin an object or an array, whose first element is called `first`."""
        holder, types = stack[-1], schema.types
        array = "array" in types and (first == _ITEM or "object" not in types)
        array = array or (not types and first == _ITEM)
        alone = not holder.array and holder.elements != name
        if array and alone and first != _ITEM and first in schema.items.properties:
            holder.elements = name  # it is an element itself
            span.write("[")
            schema, array = schema.items, False
        if len(stack) >= span.depth:
            if span.stores:
                span.exceed(Code.TOO_DEEP, span.place)
            return End.BROKEN
        stack.append(_Holder(name, schema, array))
        span.write("[" if array else "{")
        return None

    def _end_holder(self, span: Span, holder: _Holder) -> None:
        span.write(("]" if holder.elements and not holder.array else "") + ("]" if holder.array else "}"))

    def _write_empty(self, span: Span, schema: Schema, text: str) -> None:
        """Write the value of an element that holds nothing but the white space `text`."""
        if "string" in schema.types or not schema.types & _HOLDERS:
            value = Value(schema, span)
            value.take(text)
            value.end()
        else:
            span.write("[]" if "array" in schema.types else "{}")

    def _read_text(
        self, span: Span, stack: list[_Holder], name: str, schema: Schema
    ) -> Generator[None, None, End | None]:
        """Read a value that holds no elements, up to its closing tag, or to that of the call."""
        ends = (name, stack[0].name)
        value = Value(schema, span)
        tag = yield from self._content.read(span, value.take, lambda tag: self._tag_name(tag) in ends)
        if not tag:
            return End.CUT
        value.end()
        return None if self._tag_name(tag) == name else End.INSIDE

    def _end_broken(self, span: Span, *, tag: bool = False) -> End:
        """Return how the call ends where something stands that has no place in it, or `tag` is none."""
        rest = span.text[span.at :]
        cut = not rest.strip(_SPACE + "/") if tag or not rest else self._begun(span.text, span.at) is not None
        return cut_or_broken(span, cut=span.ended and cut)


@cache
def _elements_in_xml() -> Elements:
    """Return the grammar, which is the same for all tools, and takes time to compile."""
    return Elements(xml=True)


class ElementCall:
    """The grammar of the calls of one tool, whose name is that of the tag around the elements."""

    def __init__(self, name: str) -> None:
        self._name = name
        close: tuple[Part, ...] = ("</", SPACES, name, SPACES, ">")
        self._close = Pattern(*close)
        self._closing = Closing(close)

    def end(self, span: Span) -> Generator[None, None, None]:
        """Read a call that is one tag."""
        span.call(self._name)
        span.convert()
        span.write("{}")
        span.end_call()
        span.close()
        yield from ()

    def read(self, span: Span) -> Generator[None, None, None]:
        """Read a call, from behind its opening tag."""
        span.call(self._name)
        char = yield from span.peek()
        if char == "{":
            end = yield from self._read_json(span)
        else:
            end = yield from _elements_in_xml().read(span, self._name, span.declared.arguments(self._name))
            end = End.BROKEN if end is End.UNCLOSED else end
            span.end_call()
        yield from skip_rest(span, end, self._closing)
        settle(span, end, f"</{self._name}>")

    def _read_json(self, span: Span) -> Generator[None, None, End]:
        state = yield from span.arguments()
        if state is not ENDED:
            return End.BROKEN_JSON if state is BROKEN else End.CUT
        span.end_call()
        if not (yield from span.peek()):
            return End.UNCLOSED
        if (yield from span.accept(self._close)):
            return End.CLOSED
        return complete(span, End.CUT) if span.at_end_in(f"</{self._name}>") else End.BROKEN
