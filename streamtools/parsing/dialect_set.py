"""The markers of a set of dialects, by the place where they count. A set is made once, and shared by parsers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from streamtools.parsing.declared import Signatures
from streamtools.parsing.dialects import Dialect, Opener, Tag, others_as_near_misses
from streamtools.parsing.markdown import IN_CODE, LINE_START
from streamtools.parsing.marker_starts import MarkerStarts, starts_of
from streamtools.parsing.markers import Marker, Markers
from streamtools.parsing.near_misses import NearMisses, json_call
from streamtools.parsing.reasoning import TAGS, CallRunMarkers, ReasoningEnd, ReasoningTags

Meaning: TypeAlias = tuple[Opener | Tag, Dialect, int]
"""The opener or the tag of a marker, its dialect, and how many characters of white space before it belong to it."""

# Kinds of places, as bits. Markdown adds its own, LINE_START and IN_CODE.
START = 4  # only white space stands before the place in the message
AFTER_CALL = 8  # only white space stands between a call and the place
CALLS_ONLY = 16  # forged results and tags do not count
_PLACES = {"line_start": LINE_START, "start": START, "behind_call": AFTER_CALL}


class MarkerEntry(NamedTuple):
    """A marker that the parser searches for."""

    marker: Marker
    meaning: Meaning
    in_code: bool  # it counts in code too


class DialectSet:
    """The markers of a set of dialects, by the place where they count."""

    def __init__(
        self,
        dialects: tuple[Dialect, ...],
        in_code: str | None,
        reasoning: str,
        signatures: Signatures,
        calls_at: str = "start",
    ) -> None:
        """Search for `dialects`. `signatures` are the declared tools. The other arguments are options of the parser."""
        names = tuple(name for name, _ in signatures)
        self.by_place: list[Markers[Meaning] | None] = [None for _ in range(2 * CALLS_ONLY)]
        self._closings: dict[Tag, ReasoningEnd] = {}
        self._entries: list[MarkerEntry] = []
        ids = {dialect.id for dialect in dialects}
        reasoning_tags: dict[Tag, bool] = {}  # those that open reasoning: may a space precede them
        for dialect in dialects:
            even_in_code = (in_code or dialect.in_code) == "call"
            first_space = " " if dialect.space_at_start else ""
            for tag in dialect.tags:  # before openers: a marker that is both is a tag
                if tag.closings:
                    reasoning_tags[tag] = dialect.space_at_start
                if not tag.closings or (reasoning != "off" and tag.where != "start"):
                    self._add(tag, dialect, even_in_code, first_space + "\n" if tag.closings else first_space)
            for opener in _openers(dialect, signatures, names):
                if opener.unless in ids:
                    continue
                if calls_at == "anywhere":
                    opener = _anywhere(opener)
                self._add(opener, dialect, even_in_code, first_space)
        run = _run(self._entries, {*TAGS.values(), *(closing for tag in reasoning_tags for closing in tag.closings)})
        calls = [entry for entry in self._entries if _is_call(entry) and not entry.meaning[2]]
        self.holds_line_feeds = any(_is_call(entry) and entry.marker.first == "\n" for entry in self._entries)
        outside = [entry.marker for entry in calls if entry.marker.where != "start"]
        self.tags = ReasoningTags(outside, run, reasoning_tags)
        inline = [entry for entry in self._entries if entry.marker.where == "anywhere"]
        lines = [entry for entry in self._entries if entry.marker.where == "line_start"]
        anywhere = starts_of(entry.marker for entry in inline)
        if reasoning == "anywhere":
            anywhere |= {(first,) for first in self.tags.firsts}
        self.near = near = _near_misses([*dialects, *others_as_near_misses(dialects)], calls, names)
        self.firsts = {entry.marker.first for entry in self._entries} | {*self.tags.firsts}
        self.starts = self.firsts | near.starts
        self.marker_starts = MarkerStarts(
            anywhere=anywhere | near.anywhere,
            line_start=starts_of(entry.marker for entry in lines) | near.line_start,
            in_code=starts_of(entry.marker for entry in inline if entry.in_code) | near.anywhere_in_code,
        )

    def _add(self, begins: Opener | Tag, dialect: Dialect, in_code: bool, at_start: str) -> None:
        """Add a marker, also with the white space that belongs to it. `at_start` may belong to it at the start."""
        marker = begins.marker
        self._entries.append(MarkerEntry(marker, (begins, dialect, 0), in_code))
        for count in range(1, begins.line_feeds + 1):
            self._entries.append(MarkerEntry(marker.after_space("\n" * count), (begins, dialect, count), in_code))
        for space in at_start:
            self._entries.append(MarkerEntry(marker.after_space(space, "start"), (begins, dialect, 1), in_code))

    def closing(self, tag: Tag) -> ReasoningEnd:
        """Return the end of the reasoning that a tag opens."""
        if tag not in self._closings:
            self._closings[tag] = self.tags.closing(tag.closings, tag.before)
        return self._closings[tag]

    def markers(self, place: int) -> Markers[Meaning]:
        """Return the markers that count in a kind of place, which is a sum of the bits above."""
        markers = self.by_place[place]
        if markers is None:
            found = [(entry.marker, entry.meaning) for entry in self._entries if _counts(entry, place)]
            markers = self.by_place[place] = Markers(found)
        return markers


def _near_misses(dialects: list[Dialect], calls: list[MarkerEntry], names: tuple[str, ...]) -> NearMisses:
    """Return the near misses of a set of dialects, whose markers of calls are `calls`."""
    code = [
        (
            Marker(entry.marker.parts + entry.marker.ahead, where=entry.marker.where, not_after=entry.marker.not_after),
            f"a call of the dialect {entry.meaning[1].id} in code or a quote is text",
        )
        for entry in calls
        if not entry.in_code and entry.marker.where != "start"
    ]
    prose = [
        (near.marker, f"{near.says}: the text is no call of the dialect {dialect.id}")
        for dialect in dialects
        for near in dialect.near
    ]
    if any(entry.marker.where == "start" and entry.marker.first in "{[" for entry in calls):
        names = ()
    if calls and names:
        prose.append(json_call(names))
    return NearMisses(prose, code, names)


def _openers(dialect: Dialect, signatures: Signatures, names: tuple[str, ...]) -> Iterator[Opener]:
    """Yield the openers of a dialect, with those that depend on the declared tools."""
    yield from dialect.openers
    if dialect.openers_for is not None and names:
        yield from dialect.openers_for(names)
    if dialect.openers_of is not None:
        for name, parameters in signatures:
            yield from dialect.openers_of(name, parameters)


def _anywhere(opener: Opener) -> Opener:
    """Return an opener that counts only at the start as one that counts after prose.

    This holds for openers that begin with a bracket or a fence, and for calls on their own line, as in Python. An
    opener that begins with a word or a semicolon is unchanged, because it is prose more often than not.
    """
    first = opener.marker.first
    if opener.where == "start" and (first == "`" or "(" in opener.ahead):
        return replace(opener, where="line_start" if first != "[" else "anywhere")
    return replace(opener, where="anywhere") if opener.where == "start" and first in "{[" else opener


def _counts(entry: MarkerEntry, place: int) -> bool:
    where = entry.marker.where
    here = where == "anywhere" or place & _PLACES[where] > 0
    return here and (entry.in_code or not place & IN_CODE) and (_is_call(entry) or not place & CALLS_ONLY)


def _run(entries: list[MarkerEntry], closings: set[str]) -> CallRunMarkers:
    """Return the markers of calls in reasoning that may count. `closings` are the tags that end reasoning."""
    openers, tags = list[tuple[Marker, Opener]](), list[tuple[Marker, Tag]]()
    for entry in entries:
        begins, dialect, line_feeds = entry.meaning
        if isinstance(begins, Opener):
            if _counts_in_reasoning(entry):
                openers.append((entry.marker, begins))
        elif line_feeds:
            continue
        elif dialect.in_reasoning == "call" and not begins.closings and "".join(map(str, begins.parts)) not in closings:
            tags.append((entry.marker, begins))
    return CallRunMarkers(openers, tags)


def _counts_in_reasoning(entry: MarkerEntry) -> bool:
    """Return whether the parser searches for it in reasoning."""
    return _is_call(entry) and entry.meaning[1].in_reasoning == "call" and entry.marker.where == "anywhere"


def _is_call(entry: MarkerEntry) -> bool:
    thing = entry.meaning[0]
    return isinstance(thing, Opener) and thing.kind == "call"


dialect_set_of = lru_cache(maxsize=64)(DialectSet)
