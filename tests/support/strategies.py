"""Hypothesis strategies: texts that resemble calls, expected calls, and options to read them with.

A text consists of pieces that are difficult for parsers: halves of markers, JSON tokens in any order, fences, line
ends, prose, and whole calls, valid and malformed. `documents` consist of known prose and calls, so the expected result
is known.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TypeAlias

from hypothesis import strategies as st

from streamtools.limits import Limits
from streamtools.parsing.dialects import DIALECTS, Dialect
from streamtools.testing import random_texts
from streamtools.testing.random_texts import CODE, JSON, MARKDOWN, PROSE, STRINGS, TAGS, _broken, _prose
from tests.families import ENVELOPES, MARKERS, MARKUP, PLAIN, WITHOUT_BRACES
from tests.support.reference import begins_with, examples
from tests.support.variants import KNOWN, VARIANTS

Options: TypeAlias = dict[str, Any]
"""Keyword arguments of `Parser`."""

FAULTY = (
    '{"x":1}', '{"name":""}', '{"name":"f","args":3}', '{"name":"f","args":"["}', '{"name":"f","tool":"g"}',
    '{"name":"f","args":{"a":1,"a":2}}', '{"name":"f","args":{"a":[NaN]}}', '{"name":"f","args":{"a":12345678}}',
    '{"name":"f","args":{"a":"\\ud83d"}}', '{"name":"f","args":{"a":[[[[[[1]]]]]]}}', '{"name":f}', '{"name":"f}',
)  # fmt: skip
"""The JSON of malformed calls."""

NAMES = ("f", "get_weather", "météo", "a.b-c", "###:{")

KEYS = random_texts.KEYS | {
    "numbers": {"type": "array", "items": {"type": "number"}},
    "place": {
        "type": "object",
        "properties": {"x": {"type": "string"}, "y": {"type": "integer"}, "z": {"type": ["boolean", "null"]}},
    },
    "###:": {"type": "string"},
    "naïve": {"type": "string"},
    'q"': {"type": "string"},
    "\\": {"type": "string"},
    "free": {},
}
"""The parameters of every tool, with their JSON schemas."""

PLAIN_NAMES = ("f", "get_weather")
PLAIN_KEYS = ("a", "city", "count", "size", "loud", "words", "numbers", "place")


class _Tools(list[dict[str, Any]]):
    def __repr__(self) -> str:
        return "TOOLS"  # keeps the message of a failed test short


TOOLS = _Tools({"name": name, "parameters": {"type": "object", "properties": KEYS}} for name in NAMES)
"""The declared tools."""


class Written(NamedTuple):
    """A call, and its text in one dialect."""

    text: str
    name: str
    arguments: dict[str, Any]
    dialect: str

    @property
    def line_feeds(self) -> int:
        """The number of line feeds before the call that belong to it."""
        begun = (each for each in MARKERS[self.dialect] if begins_with(self.text, each.parts))
        return next((marker.line_feeds for marker in begun), 0)  # 0 for a tag of a template


@cache
def arguments(dialect: str, ids: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of all types, in any alphabet, which may contain markers and calls of dialects."""
    inner = [KNOWN[each].write_call("f", {"a": "}"}) for each in ids]
    markup = [part for each in ids for part in MARKUP[each]]
    strings = st.sampled_from(inner) | st.sampled_from(markup) | st.sampled_from(STRINGS) | st.text(max_size=3)
    strings = strings.filter(lambda text: text.isprintable() or not re.search("[\ud800-\udfff]", text))
    integers = st.sampled_from([0, 7, -1, 10**20])
    numbers = integers | st.sampled_from([2.5, -0.125, 1e-9, 1e22])
    scalars = strings | numbers | st.sampled_from([None, True, False])
    values: dict[str, st.SearchStrategy[Any]] = {
        "city": st.none() | strings.filter(lambda text: text.strip().lower() not in ("null", "none")),
        "count": integers,
        "size": numbers,
        "loud": st.booleans(),
        "words": st.lists(strings, max_size=2),
        "numbers": st.lists(numbers, max_size=3),
        "place": st.fixed_dictionaries(
            {}, optional={"x": strings, "y": integers, "z": st.sampled_from([None, True, False])}
        ),
    }
    if dialect in ENVELOPES:
        values["free"] = (
            scalars | st.lists(scalars, max_size=2) | st.fixed_dictionaries({"in": scalars, "}": st.lists(scalars)})
        )
    keys = [key for key in KEYS if (key in PLAIN_KEYS or dialect not in PLAIN) and (key in values or KEYS[key])]
    members = st.sampled_from(keys).flatmap(lambda key: st.tuples(st.just(key), values.get(key, strings)))
    return st.lists(members, max_size=3, unique_by=lambda member: member[0]).map(dict)


@st.composite
def calls(draw: st.DrawFn, dialect: str, ids: tuple[str, ...]) -> Written:
    """A valid call in one dialect. If the dialect writes JSON, the JSON may have another layout."""
    names = PLAIN_NAMES if dialect in PLAIN else NAMES[:-1] if dialect in WITHOUT_BRACES else NAMES
    name = draw(st.sampled_from(names))
    given = draw(arguments(dialect, ids))
    as_dialect = KNOWN[dialect].write_call(name, given)
    style = draw(st.integers(0, 3)) if dialect in ENVELOPES else 0
    if style == 0:
        return Written(as_dialect, name, given, dialect)
    name_key = draw(st.sampled_from(["name", "toolName", "tool", "tool_name"]))
    arguments_key = draw(st.sampled_from(["arguments", "parameters", "input", "args"]))
    written: Any = json.dumps(given) if style == 1 else given
    members = [(name_key, name), (arguments_key, written), ("note", "}")]
    body = dict(draw(st.permutations(members)))
    if style == 2:
        body = {"type": "function", "function": body}
    indent = draw(st.sampled_from([None, 1]))
    text = json.dumps(body, ensure_ascii=draw(st.booleans()), indent=indent)
    return Written(_with_json(as_dialect, text), name, given, dialect)


def _with_json(call: str, text: str) -> str:
    """Return a call with other JSON in it."""
    begin, end = call.index("{"), call.rindex("}") + 1
    return call[:begin] + text + call[end:]


@cache
def attempts(ids: tuple[str, ...]) -> st.SearchStrategy[str]:
    """A call, valid or malformed, inline or on separate lines."""
    good = st.one_of([calls(each, ids).map(lambda call: call.text) for each in ids])
    bad = st.builds(_broken, good, st.integers(5, 400), st.sampled_from(["", '"', "}", "{", "'", "x", "\n\n", "\x01"]))
    short = st.builds(lambda text, at: text[: at % len(text)], good, st.integers(5, 400))
    wrong = [_with_json(KNOWN[each].write_call("f", {}), text) for each in ids if each in ENVELOPES for text in FAULTY]
    faulty = st.sampled_from(wrong) if wrong else bad
    on_lines = st.one_of(good, faulty).map(lambda text: f"\n{text}\n")
    return st.one_of(good, good, on_lines, bad, faulty, short)


@cache
def beginnings(ids: tuple[str, ...]) -> st.SearchStrategy[str]:
    """The beginning of a marker. All lengths are equally likely."""
    whole = [text for each in ids for marker in MARKERS[each][:20] for text in islice(examples(marker.parts), 5)]
    lengths = st.integers(0, 7) | st.integers(0, 99)
    return st.builds(lambda text, at: text[: 1 + at % len(text)], st.sampled_from(whole), lengths)


@cache
def fragments(ids: tuple[str, ...]) -> st.SearchStrategy[str]:
    """One piece of a text."""
    markup = [part for each in ids for part in MARKUP[each]]
    mixed = st.sampled_from([*markup, *JSON, *PROSE, *MARKDOWN, *TAGS])
    marks = st.sampled_from(markup)
    in_code = st.builds(str.__add__, st.sampled_from(CODE), marks)
    return st.one_of(marks, beginnings(ids), in_code, mixed, mixed, mixed, mixed, attempts(ids), st.text(max_size=3))


@cache
def texts(ids: tuple[str, ...], *, max_size: int = 10) -> st.SearchStrategy[str]:
    """A text of up to `max_size` pieces.

    It may end at the beginning of a call. If calls count only at the start, it often begins with a call.
    """
    pieces = st.lists(fragments(ids), min_size=1, max_size=max_size).map("".join)
    rest = st.builds(str.__add__, pieces, st.just("") | st.just("") | st.just("") | beginnings(ids))
    if any(marker.where == "start" for each in ids for marker in MARKERS[each]):
        marks = st.sampled_from([part for each in ids for part in MARKUP[each]])
        return st.builds(str.__add__, st.one_of(marks, marks, attempts(ids)), rest)
    return rest


cuts = random_texts.cuts
"""Positions at which a text is split."""

AUTO = tuple(dialect.id for dialect in DIALECTS.values() if dialect.auto is True)
"""The values of `dialects` that enable many dialects."""


def enabled(ids: tuple[str, ...]) -> tuple[str | Dialect, ...] | Literal["auto"]:
    """Return the `dialects` option that enables a set of dialects."""
    return "auto" if ids == AUTO else tuple(VARIANTS.get(each, each) for each in ids)


@cache
def options(ids: tuple[str, ...]) -> st.SearchStrategy[Options]:
    """Options to read a text with."""
    limits = st.builds(
        Limits, call=st.integers(1, 80), depth=st.integers(1, 4), digits=st.integers(1, 5), calls=st.integers(0, 3)
    )
    return st.fixed_dictionaries(
        {
            "dialects": st.just(enabled(ids)),
            "tools": st.sampled_from([TOOLS, TOOLS, TOOLS, TOOLS, None]),
            "call_deltas": st.booleans(),
            "on_malformed": st.sampled_from(["error", "error", "text"]),
            "after_call": st.sampled_from(["show", "show", "show", "hide", "stop"]),
            "in_code": st.sampled_from([None, "text", "call"]),
            "reasoning": st.sampled_from(["start", "start", "anywhere", "off"]),
            "in_reasoning": st.sampled_from([False, False, False, False, True]),
            "call_partials": st.booleans(),
            "limits": st.just(Limits()) | limits,
        }
    )


@cache
def readings(ids: tuple[str, ...]) -> st.SearchStrategy[tuple[str, Options]]:
    """A text, and options to read it with."""
    return st.tuples(texts(ids), options(ids))


@dataclass(frozen=True)
class Document:
    """Prose and calls, in order."""

    parts: list[str | Written]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def prose(self) -> str:
        """The expected visible text, without the line feeds that templates write before calls."""
        shown = ""
        for part in self.parts:
            if isinstance(part, str):
                shown += part
            else:
                for _ in range(part.line_feeds):
                    shown = shown.removesuffix("\n")
                shown += "\0"  # stands for a call, so that the next call removes no line feeds before it
        return shown.replace("\0", "")

    @property
    def calls(self) -> list[tuple[str, str, dict[str, Any]]]:
        """What should be called, and how it is written."""
        return [(part.dialect, part.name, part.arguments) for part in self.parts if isinstance(part, Written)]


@cache
def documents(ids: tuple[str, ...]) -> st.SearchStrategy[Document]:
    """Prose without code or quotes, with valid calls on separate lines, or after white space if they must be first."""
    at_start = any(marker.where == "start" for each in ids for marker in MARKERS[each])
    before = _prose(("\n", " ", "\t") if at_start else random_texts._HARMLESS)
    call = st.one_of([calls(each, ids) for each in ids])
    pairs = st.lists(st.tuples(before, call), max_size=4).map(chain.from_iterable)
    return st.builds(lambda parts, last: Document([*parts, "\n" + last]), pairs, _prose(random_texts._HARMLESS))
