"""Reads calls whose arguments are XML elements: `<f><city>Paris</city><days><item>1</item></days></f>`.

The outer tag has the name of the tool, and the inner tags have the names of its parameters. The schema gives each
element its type. If the schema allows several types, the beginning of the element decides:

- A value that is neither an object nor an array is the text up to its closing tag.
- An object has one element for each member. It may also be JSON text.
- An array has one element for each item. All items have the same name, or each has its index as the name. An array may
  also be JSON text. If the array itself has no element, its items are elements of the object, each with the name of
  the array.

Without a schema, a value that contains elements is an object, or an array if its first element is called `item`.

This is not an XML parser. A tag like `<invoke name="f">`, `</invoke >` or `<br/>` is read only where a grammar expects
it. All other text is content. For example, the value of an argument may contain HTML or code, up to the closing tag of
the value. Tags of the same name in it are balanced. Each read has a limit, or reads each character only once.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Final

from streamtools.errors import Code
from streamtools.parsing.bodies import CallEnd, Members, cut_in_tag, end_call, read_json_call
from streamtools.parsing.bodies.nesting import Level, NestedText, is_whole, unescape
from streamtools.parsing.bodies.values import Value
from streamtools.parsing.declared import Schema
from streamtools.parsing.markers import SPACES, Maybe, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Reader, Word
from streamtools.parsing.span import Span

BEFORE_ATTRIBUTE = Some(r" \t\r\n", 1, 32)
"""The white space between the name of a tag and its first attribute."""

_KEY = Word(r"A-Za-z0-9_:.\-", 64)
_SPACED_EQUALS = Pattern(SPACES, "=", SPACES)
END_OF_EMPTY = Pattern("/", SPACES, ">")
"""The end of a tag without content."""
_QUOTED = {quote: (Word(f"^{quote}", 1024), Pattern(quote)) for quote in "\"'"}
_BARE = Word(r"""^\s"'<>/=""", 1024)

# Finds a quote, or the ampersand of text that would be read as an entity.
_special = re.compile(r"&(?=(?:amp|lt|gt|quot|apos);)|\"").sub


def write_attribute(text: str) -> str:
    """Return `text` as the value of an attribute, escaped and in quotes."""
    return '"' + _special(lambda found: "&quot;" if found[0] == '"' else "&amp;", text) + '"'


def write_content(text: str) -> str:
    """Return `text` as the content of an element. With `<` or `&` in it, the result is a CDATA section."""
    if "<" not in text and "&" not in text:
        return text
    return "<![CDATA[" + text.replace("]]>", "]]]]><![CDATA[>") + "]]>"


def read_attributes(reader: Reader) -> Generator[None, None, tuple[dict[str, str], str]]:
    """Read a tag after its name. Returns its attributes and its end: ">", "/>", or "" if the tag does not end.

    Values are in single quotes, in double quotes, or without quotes. If an attribute occurs twice, the first is used.
    """
    attributes: dict[str, str] = {}
    while True:
        char = yield from reader.peek()
        if char == ">":
            reader.at += 1
            return attributes, ">"
        if char == "/":
            return attributes, "/>" if (yield from reader.accept(END_OF_EMPTY)) else ""
        key = yield from reader.word(_KEY)
        if not key or not (yield from reader.accept(_SPACED_EQUALS)):
            return attributes, ""
        value = yield from _read_value(reader)
        if value is None:
            return attributes, ""
        attributes.setdefault(key, unescape(value))


def _read_value(reader: Reader) -> Generator[None, None, str | None]:
    char = yield from reader.peek()
    if char not in _QUOTED:
        return (yield from reader.word(_BARE)) or None
    inside, quote = _QUOTED[char]
    yield from reader.accept(quote)
    value = yield from reader.word(inside)
    return value if (yield from reader.accept(quote)) else None


_NAME = Some(r"\w.:\-", 1, 128)
_AFTER_NAME = Some(r" \t\r\n/>", 1, 1)
_ITEM: Final = "item"
_SPACE = " \t\r\n"
_SPACES, _BRACKET = Pattern(SPACES), Pattern(SPACES, "[")
_CONTAINERS: Final = frozenset({"object", "array"})


@dataclass(slots=True)
class _Container:
    """An object or an array whose elements are being read."""

    name: str
    """The name of its tag."""
    schema: Schema
    array: bool
    count: int = 0
    """The number of items or members that have begun."""
    item_name: str = ""
    """In an array: the name of its items. In an object: the name of the repeated elements that are an array, or ""."""


class Elements:
    """The grammar of the elements in one call.

    `prefix` is the text before the angle bracket of each tag. With `xml=True`, entities and CDATA sections are decoded.
    """

    def __init__(self, prefix: str = "", *, xml: bool = False) -> None:
        self._prefix_length = len(prefix) + 1
        open_: tuple[Part, ...] = (prefix + "<", _NAME, _AFTER_NAME)
        close: tuple[Part, ...] = (prefix + "</", SPACES, _NAME, SPACES, ">")
        self.opening, self._close = Pattern(SPACES, *open_), Pattern(SPACES, *close)
        self._null = Pattern(SPACES, OneOf(("null", "None")), SPACES, *close)
        self._bracket = Pattern(SPACES, "<![CDATA[", SPACES, "[") if xml else _BRACKET
        self._prefix, self._xml = prefix, xml
        self._tags = Pattern(*open_[:-1], ">"), self._close

    def read(self, span: Span, root: str, schema: Schema) -> Generator[None, None, CallEnd]:
        """Read all arguments of a call, and its closing tag.

        `root` is the name of the call's tag. `schema` is the schema of the object of all arguments.
        """
        span.convert()
        span.write("{")
        stack = [_Container(root, schema, array=False)]
        while True:
            container = stack[-1]
            # `</s>` ends the message, unless it closes an element.
            yield from (span.peek() if container.name != "s" else span.accept(_SPACES))
            place = span.place
            found = yield from span.choose(self.opening, self._close)
            name = self._tag_name(span.read_since(place))
            if found < 0:
                return cut_in_tag(span, *self._tags)
            another_call = found == 0 and len(stack) == 1 and name == root and root not in schema.properties
            if another_call or (found == 1 and name != container.name):
                span.go_back(place)
                self._end_container(span, container)
                return CallEnd.BROKEN if len(stack) > 1 else CallEnd.UNCLOSED
            if found == 1:
                self._end_container(span, stack.pop())
                if not stack:
                    return CallEnd.CLOSED
                continue
            span.at -= 1  # the character after the name belongs to the attributes or to the end of the tag
            _, end = yield from read_attributes(span)
            if not end:
                return cut_in_tag(span, END_OF_EMPTY)
            inner = self._begin_element(span, container, name)
            if inner is None:
                return cut_in_tag(span, *self._tags)
            if end == "/>":
                self._write_empty(span, inner, "")
                continue
            broken = yield from self._read_element(span, stack, name, inner)
            if broken is not None:
                return broken

    def _tag_name(self, tag: str) -> str:
        return tag.strip(_SPACE)[self._prefix_length :].strip("/>" + _SPACE)

    def _begin_element(self, span: Span, container: _Container, name: str) -> Schema | None:
        """Write the comma and the key before the value of an element. Returns the schema of the value.

        Returns None if an element of this name is not allowed here.
        """
        comma = "," if container.count else ""
        container.count += 1
        if container.array:
            if container.count > 1 and name != container.item_name and name != str(container.count - 1):
                return None
            container.item_name = container.item_name or name
            span.write(comma)
            return container.schema.items
        inner = container.schema.property(name)
        if container.item_name == name:
            span.write(",")
            return inner.items
        if container.item_name:
            span.write("]")
            container.item_name = ""
        span.write(comma + encode_basestring(name) + ":")
        return inner

    def _read_element(
        self, span: Span, stack: list[_Container], name: str, schema: Schema
    ) -> Generator[None, None, CallEnd | None]:
        """Read the value of an element, or begin its container. Returns the `CallEnd` of a failed call, else None."""
        types = schema.types
        if types and not types & _CONTAINERS:
            return (yield from self._read_text(span, stack, name, schema))
        place = span.place
        found = yield from span.choose(self._close, self.opening, _BRACKET, self._bracket)
        before = span.read_since(place)
        inner = self._tag_name(before)
        if found == 0 and inner == name:
            self._write_empty(span, schema, before[: -len(before.lstrip(_SPACE))])
            return None
        container = stack[-1]
        if found == 1 and (
            "string" not in types or inner in schema.properties or (inner == _ITEM and "array" in types)
        ):
            span.go_back(place)
            return self._begin_container(span, stack, name, schema, inner)
        if found >= 0:
            span.go_back(place)
        # If only arrays are allowed, text is an item of an array without an element: `<tag>a</tag><tag>b</tag>`.
        is_item = types & (_CONTAINERS | {"string"}) == {"array"}
        if is_item and "null" in types and (yield from span.accept(self._null)):
            # `<tag>null</tag>` is null itself, if the schema allows it.
            word_and_tag = span.read_since(place).strip(_SPACE)
            is_item = self._tag_name(word_and_tag[len("null") :]) != name
            span.go_back(place)
        if is_item and found < 2 and not container.array and container.item_name != name:
            container.item_name = name
            span.write("[")
            schema = schema.items
        return (yield from self._read_text(span, stack, name, schema))

    def _begin_container(
        self, span: Span, stack: list[_Container], name: str, schema: Schema, first: str
    ) -> CallEnd | None:
        """Begin an object or an array. `first` is the name of its first element."""
        container, types = stack[-1], schema.types
        array = "array" in types and (first == _ITEM or "object" not in types)
        array = array or (not types and first == _ITEM)
        first_item = not container.array and container.item_name != name
        if array and first_item and first != _ITEM and first in schema.items.properties:
            container.item_name = name  # the element is not the array, but its first item
            span.write("[")
            schema, array = schema.items, False
        if len(stack) >= span.depth:
            if span.stores:
                span.exceed(Code.TOO_DEEP, span.place)
            return CallEnd.BROKEN
        stack.append(_Container(name, schema, array))
        span.write("[" if array else "{")
        return None

    def _end_container(self, span: Span, container: _Container) -> None:
        open_array = container.item_name and not container.array
        span.write(("]" if open_array else "") + ("]" if container.array else "}"))

    def _write_empty(self, span: Span, schema: Schema, text: str) -> None:
        """Write the value of an element that contains only white space. `text` is the white space."""
        if "string" in schema.types or not schema.types & _CONTAINERS:
            Value(schema, span).write(text)
        else:
            span.write("[]" if "array" in schema.types else "{}")

    def _read_text(
        self, span: Span, stack: list[_Container], name: str, schema: Schema
    ) -> Generator[None, None, CallEnd | None]:
        """Read a value without elements, up to its closing tag or the closing tag of the call."""
        value = Value(schema, span)
        text = text_in_element(stack[0].name, name, prefix=self._prefix, xml=self._xml)
        end = yield from text.read(span, value.take)
        if end is not CallEnd.CLOSED:
            return end
        value.end()
        return None


@lru_cache(maxsize=256)
def text_in_element(root: str, name: str, *, prefix: str = "", xml: bool = False) -> NestedText:
    """Return the grammar of the text in the element `name` of the call `root`."""
    rest = Maybe((Some(r" \t\r\n/", 1, 1), Some("^<>", 0, 512)))
    levels = [
        Level((f"{prefix}<{tag}", rest, ">"), (f"{prefix}</", SPACES, tag, SPACES, ">"))
        for tag in dict.fromkeys((root, name))
    ]
    return NestedText(*levels, missing=0, xml=xml)


_ELEMENTS = Elements(xml=True)  # shared by all tools; its patterns are compiled on first use


class ElementCall:
    """The grammar of the calls of one tool. `name` is the name of the tool and of its tag.

    `first` are the beginnings of the tags of its parameters, without the bracket.
    """

    def __init__(self, name: str, first: tuple[str, ...]) -> None:
        self._name, self._first = name, Pattern(SPACES, "<", OneOf(first or ("/" + name,)))
        close: tuple[Part, ...] = ("</", SPACES, name, SPACES, ">")
        self._close, self._close_empty = Pattern(*close), Pattern(SPACES, *close)
        self._closing = Closing(close)

    def __call__(self, span: Span) -> Generator[None, None, None]:
        """Read the rest of a call after its opening tag, which may be an empty tag, such as `<f/>`."""
        span.set_name(self._name)
        if span.marker.endswith("/>") and (yield from is_whole(span, self._first, self._close_empty)):
            Members(span).end()
            span.close()
            return
        if (yield from span.peek()) == "{":
            end = yield from read_json_call(span, self._close)
        else:
            end = yield from _ELEMENTS.read(span, self._name, span.declared.arguments(self._name))
            end = CallEnd.BROKEN if end is CallEnd.UNCLOSED else end
            span.end_call()
        yield from end_call(span, end, f"</{self._name}>", self._closing)
