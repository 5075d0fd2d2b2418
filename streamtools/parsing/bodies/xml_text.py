"""Reads XML as models write it: the attributes of tags, and the text between tags.

This is not an XML parser. A tag like `<invoke name="f">`, `</invoke >` or `<br/>` is read only where a grammar expects
it. All other text is content. For example, the value of an argument may contain HTML or code, up to the closing tag of
the value. Each read has a limit, or reads each character only once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence

from streamtools.parsing.markers import SPACES, OneOf, Part, Pattern, Some
from streamtools.parsing.reader import Closing, Form, Reader, Word

BEFORE_ATTRIBUTE = Some(r" \t\r\n", 1, 32)
"""The white space between the name of a tag and its first attribute."""

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
    """Replace the five predefined entities of XML, such as `&lt;`, with their characters."""
    return _entity.sub(lambda entity: _ENTITIES[entity[1]], text)


def attribute(text: str) -> str:
    """Return `text` as the value of an attribute, escaped and in quotes."""
    return '"' + _special(lambda found: "&quot;" if found[0] == '"' else "&amp;", text) + '"'


def section(text: str) -> str:
    """Return `text` as the content of an element. With `<` or `&` in it, the result is a CDATA section."""
    if "<" not in text and "&" not in text:
        return text
    return "<![CDATA[" + text.replace("]]>", "]]]]><![CDATA[>") + "]]>"


def read_attributes(reader: Reader) -> Generator[None, None, tuple[dict[str, str], str]]:
    """Read the attributes and the end of a tag. Returns both. The end is ">", "/>", or "" if the tag does not end.

    Values stand in single quotes, in double quotes, or without quotes. If an attribute occurs twice, the first is used.
    """
    attributes: dict[str, str] = {}
    while True:
        char = yield from reader.peek()
        if char == ">":
            reader.at += 1
            return attributes, ">"
        if char == "/":
            return attributes, "/>" if (yield from reader.accept(_EMPTY)) else ""
        key = yield from reader.word(_KEY)
        if not key or not (yield from reader.accept(_SPACED_EQUALS)):
            return attributes, ""
        value = yield from _read_value(reader)
        if value is None:
            return attributes, ""
        attributes.setdefault(key, unescape(value))


def cut_in_attributes(reader: Reader) -> bool:
    """Return True, and read the rest of the text, if the stream ends in a tag, after its attributes."""
    cut = reader.ended and not reader.text[reader.at :].strip(" \t\r\n/")
    if cut:
        reader.at = len(reader.text)
    return cut


def _read_value(reader: Reader) -> Generator[None, None, str | None]:
    char = yield from reader.peek()
    if char not in _QUOTED:
        return (yield from reader.word(_BARE)) or None
    inside, quote = _QUOTED[char]
    yield from reader.accept(quote)
    value = yield from reader.word(inside)
    return value if (yield from reader.accept(quote)) else None


class Content:
    """The grammar of the content of an element, up to its closing tag."""

    def __init__(self, *end: Part, xml: bool = False, ends: Sequence[Form] = (), last: tuple[Part, ...] = ()) -> None:
        """Configure the closing tag `end`. With `xml=True`, entities and CDATA sections are decoded.

        By default, the content ends at the first closing tag. `ends` replaces this rule with other ends. `ends` and
        `last` have the same meaning as for `Closing`.
        """
        self._xml = xml
        self.closing = Closing(*(ends or (end,)), *((_BEGIN_SECTION, _ANY_ENTITY) if xml else ()), last=last)
        self._end = Pattern(SPACES, *end)

    def read(
        self, reader: Reader, take: Callable[[str], None], is_end: Callable[[str], object] = bool
    ) -> Generator[None, None, str]:
        """Pass the content to `take`, and read the closing tag. Returns the tag, or "" if the stream ends first.

        A tag for which `is_end` returns False is content. White space around a CDATA section is dropped.
        """
        if self._xml and (yield from reader.accept(_CDATA)):
            found = yield from self._read_section(reader, take, is_end)
            if found:
                return found
        while (yield from reader.content(self.closing, take)):
            found = reader.read_since(reader.before_closing)
            if found[0] == "&":
                take(_ENTITIES[found[1:-1]])
                continue
            if found.startswith("<!"):
                found = yield from self._read_section(reader, take, is_end)
                if found:
                    return found
            elif is_end(found):
                return found
            else:
                take(found)
        return ""

    def _read_section(
        self, reader: Reader, take: Callable[[str], None], is_end: Callable[[str], object]
    ) -> Generator[None, None, str]:
        """Read CDATA sections after the first `<![CDATA[`. Returns the closing tag after them, or "" for none."""
        while (yield from reader.content(_END_SECTION, take)):
            place = reader.place
            found = yield from reader.choose(self._end, _CDATA)
            if found == 0:
                text = reader.read_since(place)
                if is_end(text.strip()):
                    return text
                take(text)
            if found != 1:
                break
        return ""
