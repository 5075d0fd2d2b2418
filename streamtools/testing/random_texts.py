"""Creates random texts in one dialect for `assert_laws`: valid calls, malformed calls and near misses.

A near miss is text that looks like a call but is not. This module needs hypothesis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Any, NamedTuple, TypeAlias

from hypothesis import strategies as st

from streamtools.parsing.declared import Signatures
from streamtools.parsing.dialect_set import openers
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.base import ENDS_OF_TURN
from streamtools.parsing.markers import Header, LineEnd, Maybe, OneOf, Part

# Pieces of random texts

JSON = (
    "{", "}", "[", "]", ",", ":", '"', '\\"', "\\", '"name"', '"f"', '{"name":"f"', '"arguments":', '"arguments":{',
    '"function":{', '"tool":"f"', '"args":', '"{\\"a\\":1}"', '{"a":1}', "null", "true", "-1", "1e999", "NaN", "'",
    "\\u00e9", "\\ud83d\\ude00", "\\ud83d", '"\n"', "\x00", "tru",
)  # fmt: skip

PROSE = (
    "x", "word ", " ", "  ", "\t", "é", "😀", "A sentence. ", "_", "9", ".", "<", "tool_call", "\ud83d", "\u2028",
    "name:",
)  # fmt: skip

MARKDOWN = (
    "\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "`", "``", "```", "```\n", "\n```json\n", "````\n", "> ", "\n> ", "- ",
    "\n1. ", "* ", "    ", "\\", "\\`", "\n# ", "|", "\n~~~\n",
)  # fmt: skip

CODE = ("`", "``", "\n```\n", "\n~~~\n", "\n> ", "\n- > ", "\n1. ```json\n  ", "\\\\`")
"""Beginnings of Markdown code and quotes, in which calls are not read."""

TAGS = (
    "<think>", "</think>", "<thi", "nk>", "<thinking>", "</thinking>", "<reasoning>", "[THINK]", "[/THINK]", "[/THI",
    "</thinking",
)  # fmt: skip

STRINGS = (
    "}", '"]}', "\\", "```", "\n\n", "\t\x01", "é😀", "", "'", '"', "\n", " x ", "\nx\n", "a, b", "-1", "2.50",
    "true", "null", "None", "[1]", '{"a": 1}', "&lt;&amp;", "<b>x</b>", "</", "]]>", "<![CDATA[", "\u2028", "0x1f",
)  # fmt: skip
"""Strings in arguments that a parser may misread."""


KEYS: dict[str, dict[str, Any]] = {
    "a": {"type": "string"},
    "city": {"type": ["string", "null"]},
    "count": {"type": "integer"},
    "size": {"type": "number"},
    "loud": {"type": "boolean"},
    "words": {"type": "array", "items": {"type": "string"}},
}
"""The parameters of the default tools, with their JSON schemas."""

NAMES = ("f", "get_weather")

TOOLS = [{"name": name, "parameters": {"type": "object", "properties": KEYS}} for name in NAMES]

Parts: TypeAlias = tuple[Part, ...]

# Prose that contains no marker and no code block
_HARMLESS = (
    "A sentence. ", "\n", "\n\n", "## Heading\n", "- item\n", "`code` ", "é ", "\r\n", "###: note\n", "~~ ", "{} ",
)  # fmt: skip

cuts = st.lists(st.integers(0, 300), min_size=1, max_size=6)
"""A strategy of positions at which a text is split."""


class CallInText(NamedTuple):
    """A call, and the text that the dialect writes for it."""

    text: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Document:
    """A text that consists of prose and calls. `prose` is the expected visible text."""

    parts: tuple[str | CallInText, ...]
    prose: str

    @property
    def text(self) -> str:
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The names and arguments of the expected calls."""
        return [(part.name, part.arguments) for part in self.parts if isinstance(part, CallInText)]


def examples(parts: Parts) -> Iterator[str]:
    """Yield short texts that match the marker."""
    return map("".join, product(*map(_examples_of_part, parts)))


def _examples_of_part(part: Part) -> Sequence[str]:
    match part:
        case str():
            return (part,)
        case LineEnd():
            return ("\n", "\r\n")
        case OneOf(words):
            return words
        case Maybe(inner):
            return ["", *examples(inner)]
        case Header():
            return ("", " x")
    character = next(char for char in map(chr, range(9, 0x3000)) if re.fullmatch(f"[{part.characters}]", char))
    return [character * count for count in range(part.least, min(part.most, part.least + 1) + 1)]


def markers(dialect: Dialect, signatures: Signatures) -> list[Parts]:
    """Return all markers and tags of a dialect, and their variants that begin with line feeds or a space.

    A parser may buffer the beginning of each of these texts.
    """
    found: list[Parts] = [tags for tags, _ in dialect.strays]
    for opener in openers(dialect, signatures):
        whole = (*opener.parts, *opener.ahead)
        found += [whole if not count else ("\n" * count, *whole) for count in range(opener.line_feeds + 1)]
    for tag in (*dialect.tags, *ENDS_OF_TURN):
        whole = (*tag.parts, *tag.ahead)
        found += [whole, *((closing,) for closing in (*tag.closings, *tag.before)), tag.closing_parts or whole]
        found += [("\n" * count, *whole) for count in range(1, tag.line_feeds + 1)]
    return [*found, *((" ", *parts) for parts in found)] if dialect.space_at_start else found


class Material:
    """Strategies for texts and documents in one dialect. `signatures` are the declared tools."""

    def __init__(self, dialect: Dialect, signatures: Signatures) -> None:
        self.openers = [*openers(dialect, signatures)]
        # Some calls are read only at the start of the text.
        self._at_start = any(opener.where == "start" for opener in self.openers)
        whole_markers = [
            *(text for opener in self.openers for text in islice(examples((*opener.parts, *opener.ahead)), 5)),
            *(text for tag in dialect.tags for text in islice(examples(tag.parts), 3)),
            *(closing for tag in dialect.tags for closing in (*tag.closings, *tag.before)),
        ]
        begin, value, end = (call := dialect.write_call(NAMES[0], {"a": "VALUE"})).partition("VALUE")
        own = (begin, end, call, end + call, f"{end} {call}{begin}{value}") if end else ()
        self.calls = usual_calls(own).map(lambda call: CallInText(dialect.write_call(*call), *call))
        self.texts = self._texts(whole_markers)
        self.documents = self._documents()

    def _texts(self, whole_markers: Sequence[str]) -> st.SearchStrategy[str]:
        """Return a strategy of texts: joined pieces such as prose, parts of markers, and valid, broken or cut calls."""
        valid = self.calls.map(lambda call: call.text)
        marks = st.sampled_from(whole_markers)
        cut_marks = st.builds(lambda text, at: text[: 1 + at % len(text)], marks, st.integers(0, 99))
        in_code = st.builds(str.__add__, st.sampled_from(CODE), marks)
        bad = st.builds(_broken, valid, st.integers(0, 400), st.sampled_from(["", '"', "}", "{", "x", "\n\n", "\x01"]))
        cut_off = st.builds(lambda text, at: text[: at % (len(text) + 1)], valid, st.integers(0, 400))
        mixed = st.sampled_from([*whole_markers, *JSON, *PROSE, *MARKDOWN, *TAGS])
        pieces = st.one_of(
            *(marks, cut_marks, in_code, mixed, mixed, mixed, valid, valid, bad, cut_off, st.text(max_size=3)),
            valid.map(lambda text: f"\n{text}\n"),
        )
        texts = st.lists(pieces, min_size=1, max_size=10).map("".join)
        return st.builds(str.__add__, st.one_of(marks, valid, bad), texts) if self._at_start else texts

    def _documents(self) -> st.SearchStrategy[Document]:
        """Return a strategy of documents: prose without code blocks or quotes, with valid calls on separate lines."""
        prose = _prose(("\n", " ", "\t") if self._at_start else _HARMLESS)
        pairs = st.lists(st.tuples(prose, self.calls), max_size=3).map(chain.from_iterable)
        return st.builds(lambda parts, last: self._document([*parts, "\n" + last]), pairs, _prose(_HARMLESS))

    def _document(self, parts: Sequence[str | CallInText]) -> Document:
        shown = ""
        for part in parts:
            if isinstance(part, str):
                shown += part
                continue
            matching = (opener for opener in self.openers if re.match(opener.marker.search_pattern(), part.text))
            for _ in range(next((opener.line_feeds for opener in matching), 0)):
                shown = shown.removesuffix("\n")  # line feeds before the marker belong to the call
            shown += "\0"  # stands for a call, so that the next call does not remove line feeds before this call
        return Document(tuple(parts), shown.replace("\0", ""))


def _prose(parts: Sequence[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts), max_size=3).map(lambda chosen: "".join(chosen) + "\n")


def _broken(text: str, number: int, replacement: str) -> str:
    """Replace one character, or append `replacement`. `number` chooses the position."""
    index = number % (len(text) + 1)
    return text[:index] + replacement + text[index + 1 :]


def usual_calls(own: Sequence[str] = ()) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Return a strategy of tool names and arguments for `TOOLS`.

    The arguments have all types, and include strings that a parser may misread. `own` are more of these strings.
    """
    strings = st.sampled_from(STRINGS) | st.sampled_from(own or STRINGS) | st.text(max_size=3).filter(str.isprintable)
    integers = st.sampled_from([0, 7, -1, 10**20])
    values: dict[str, st.SearchStrategy[Any]] = {
        "a": strings,
        "city": st.none() | strings.filter(lambda text: text.strip().lower() not in ("null", "none")),
        "count": integers,
        "size": integers | st.sampled_from([2.5, -0.125, 1e-9, 1e22]),
        "loud": st.booleans(),
        "words": st.lists(strings, max_size=2),
    }
    members = st.sampled_from(list(values)).flatmap(lambda key: st.tuples(st.just(key), values[key]))
    arguments = st.lists(members, max_size=3, unique_by=lambda member: member[0]).map(dict)
    return st.tuples(st.sampled_from(NAMES), arguments)
