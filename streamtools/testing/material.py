"""Texts for one dialect, good, bad and nearly: what the properties of `assert_laws` read. Needs hypothesis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from hypothesis import strategies as st

from streamtools.parsing.dialects import Dialect
from streamtools.testing.beginnings import examples, openers
from streamtools.testing.stumbling import CODE, JSON, MARKDOWN, PROSE, STRINGS, TAGS

KEYS: dict[str, dict[str, Any]] = {
    "a": {"type": "string"},
    "city": {"type": ["string", "null"]},
    "count": {"type": "integer"},
    "size": {"type": "number"},
    "loud": {"type": "boolean"},
    "words": {"type": "array", "items": {"type": "string"}},
}
"""The parameters of every tool that is declared where the caller declares none, with their JSON schemas."""

NAMES = ("f", "get_weather")

TOOLS = [{"name": name, "parameters": {"type": "object", "properties": KEYS}} for name in NAMES]

_HARMLESS = (
    "A sentence. ", "\n", "\n\n", "## Heading\n", "- item\n", "`code` ", "é ", "\r\n", "###: note\n", "~~ ", "{} ",
)  # fmt: skip

cuts = st.lists(st.integers(0, 300), min_size=1, max_size=6)
"""Places to cut a text at."""


class WrittenCall(NamedTuple):
    """A call as the dialect writes it."""

    text: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Document:
    """Prose and calls, in order, and what a reader should see of it."""

    parts: tuple[str | WrittenCall, ...]
    prose: str

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """What should be called."""
        return [(part.name, part.arguments) for part in self.parts if isinstance(part, WrittenCall)]


class Material:
    """What can be said in one dialect, where `tools` are declared: the names of their parameters by their own."""

    def __init__(
        self,
        dialect: Dialect,
        tools: Mapping[str, tuple[str, ...]],
        calls: st.SearchStrategy[tuple[str, dict[str, Any]]],
    ) -> None:
        self._openers = openers(dialect, dict(tools))
        self._at_start = any(opener.where == "start" for opener in self._openers)
        wholes = [
            *(text for each in self._openers for text in islice(examples((*each.parts, *each.ahead)), 5)),
            *(text for each in dialect.tags for text in islice(examples(each.parts), 3)),
            *(closing for each in dialect.tags for closing in (*each.closings, *each.before)),
        ]
        self.calls = calls.map(lambda call: WrittenCall(dialect.write_call(*call), *call))
        self.texts = self._texts(wholes)
        self.documents = self._documents()

    def _texts(self, wholes: Sequence[str]) -> st.SearchStrategy[str]:
        good = self.calls.map(lambda call: call.text)
        marks = st.sampled_from(wholes)
        halves = st.builds(lambda text, at: text[: 1 + at % len(text)], marks, st.integers(0, 99))
        in_code = st.builds(str.__add__, st.sampled_from(CODE), marks)
        bad = st.builds(_broken, good, st.integers(0, 400), st.sampled_from(["", '"', "}", "{", "x", "\n\n", "\x01"]))
        short = st.builds(lambda text, at: text[: at % (len(text) + 1)], good, st.integers(0, 400))
        mixed = st.sampled_from([*wholes, *JSON, *PROSE, *MARKDOWN, *TAGS])
        pieces = st.one_of(
            *(marks, halves, in_code, mixed, mixed, mixed, good, good, bad, short, st.text(max_size=3)),
            good.map(lambda text: f"\n{text}\n"),
        )
        texts = st.lists(pieces, min_size=1, max_size=10).map("".join)
        return st.builds(str.__add__, st.one_of(marks, good, bad), texts) if self._at_start else texts

    def _documents(self) -> st.SearchStrategy[Document]:
        """Prose without code or quotes, with good calls between, each on a line of its own."""
        before = _prose(("\n", " ", "\t") if self._at_start else _HARMLESS)
        pairs = st.lists(st.tuples(before, self.calls), max_size=3).map(chain.from_iterable)
        return st.builds(lambda parts, last: self._document([*parts, "\n" + last]), pairs, _prose(_HARMLESS))

    def _document(self, parts: Sequence[str | WrittenCall]) -> Document:
        shown = ""
        for part in parts:
            if isinstance(part, str):
                shown += part
                continue
            begun = (each for each in self._openers if re.match(each.marker.search_pattern(), part.text))
            for _ in range(next((each.line_feeds for each in begun), 0)):
                shown = shown.removesuffix("\n")
            shown += "\0"  # which no line feed before it belongs to
        return Document(tuple(parts), shown.replace("\0", ""))


def _prose(parts: Sequence[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts), max_size=3).map(lambda chosen: "".join(chosen) + "\n")


def _broken(text: str, at: int, instead: str) -> str:
    at = at % (len(text) + 1)
    return text[:at] + instead + text[at + 1 :]


def usual_calls() -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Names and arguments for `TOOLS`, of every type, with strings that are meant to be misread."""
    strings = st.sampled_from(STRINGS) | st.text(max_size=3).filter(str.isprintable)
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
