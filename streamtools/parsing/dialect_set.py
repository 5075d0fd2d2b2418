"""The markers of a set of dialects, grouped by where they are recognized. Parsers with equal options share a set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple, TypeAlias

from streamtools.parsing.bodies import rest_of_call
from streamtools.parsing.declared import Signatures
from streamtools.parsing.dialects import Dialect, Opener, Tag, others_as_near_misses
from streamtools.parsing.dialects.base import ENDS_OF_TURN
from streamtools.parsing.markdown import IN_CODE, LINE_START
from streamtools.parsing.marker_starts import MarkerStarts, starts_of
from streamtools.parsing.markers import Marker, Markers, Some
from streamtools.parsing.near_misses import NearMisses
from streamtools.parsing.reasoning import ReasoningEnd, ReasoningTags, RunMarkers

Meaning: TypeAlias = tuple[Opener | Tag, Dialect, int]
"""The meaning of a marker: its opener or tag, its dialect, and the number of white-space characters before the text of
the opener or tag. These characters belong to the marker.
"""

# The kind of a position is a sum of these bits. The module `markdown` defines two more, LINE_START and IN_CODE.
START = 4  # only white space precedes the position in the message
AFTER_CALL = 8  # only white space separates the position from the call before it
CALLS_ONLY = 16  # only markers of calls are recognized: no tags, and no tool results that the model wrote itself
ANY_CALL = 32  # a call precedes the position in the message
_INDENT = Some(r" \t", 1, 32)
_UNMARKED = "JSON of a declared tool without a marker is text"
_POSITION_BITS = {"line_start": LINE_START, "start": START, "after_call": AFTER_CALL}


class MarkerEntry(NamedTuple):
    """A marker that the parser searches for."""

    marker: Marker
    meaning: Meaning
    in_code: bool  # whether the marker is also recognized in code


class DialectSet:
    """The markers of a set of dialects, grouped by where they are recognized."""

    def __init__(
        self,
        dialects: tuple[Dialect, ...],
        in_code: str | None,
        reasoning: str,
        signatures: Signatures,
        calls_at: str = "start",
    ) -> None:
        """Collect the markers of `dialects`. `signatures` are the declared tools.

        `in_code`, `reasoning` and `calls_at` are the parser options of these names.
        """
        names = tuple(name for name, _ in signatures)
        self.by_position_kind: list[Markers[Meaning] | None] = [None for _ in range(2 * ANY_CALL)]
        self._entries: list[MarkerEntry] = []
        self._in_code = in_code
        ids = {dialect.id for dialect in dialects}
        reasoning_tags: dict[Tag, bool] = {}  # maps each opening tag to True if a space may precede it
        for dialect in dialects:
            even_in_code = (in_code or dialect.in_code) == "call"
            first_space = " " if dialect.space_at_start else ""
            for parts, end in dialect.strays:
                self._add(Opener(parts, rest_of_call(end), kind="rest", announces=False), dialect, even_in_code, "")
            for tag in dialect.tags:  # first the tags: a text that is a tag and an opener then counts as a tag
                if tag.closings:
                    reasoning_tags[tag] = dialect.space_at_start
                if not tag.closings or (reasoning != "off" and tag.where != "start"):
                    self._add(tag, dialect, even_in_code, first_space + "\n" if tag.closings else first_space)
            for opener in openers(dialect, signatures):
                if opener.unless_enabled in ids:
                    continue
                if calls_at == "anywhere":
                    opener = _anywhere(opener)
                self._add(opener, dialect, even_in_code, first_space)
        for tag in ENDS_OF_TURN if dialects else ():
            self._add(tag, dialects[0], any((in_code or dialect.in_code) == "call" for dialect in dialects), "")
        run = _run_markers(self._entries)
        calls = [entry for entry in self._entries if _is_call(entry) and not entry.meaning[2]]
        # Whether a line feed at the end of a delta must wait for more text, because a marker of a call may begin with a
        # line feed.
        self.waits_after_line_feed = any(_is_call(entry) and entry.marker.first == "\n" for entry in self._entries)
        self.tags = tags = ReasoningTags(run, reasoning_tags)
        self.reasoning_end: Callable[[Tag], ReasoningEnd] = cache(lambda tag: tags.find_end(tag.ends, tag.before))
        """Returns the `ReasoningEnd` that finds the end of the reasoning after an opening tag."""
        inline = [entry for entry in self._entries if entry.marker.where == "anywhere"]
        lines = [entry for entry in self._entries if entry.marker.where == "line_start"]
        anywhere = starts_of(entry.marker for entry in inline)
        if reasoning == "anywhere":
            anywhere |= {(first,) for first in self.tags.firsts}
        self.near_misses = near = _find_near_misses([*dialects, *others_as_near_misses(dialects)], calls, names)
        # The first characters of all markers and tags.
        self.firsts = {entry.marker.first for entry in self._entries} | {*self.tags.firsts}
        self.marker_starts = MarkerStarts(
            anywhere=anywhere | near.anywhere,
            line_start=starts_of(entry.marker for entry in lines) | near.line_start,
            in_code=starts_of(entry.marker for entry in inline if entry.in_code) | near.anywhere_in_code,
        )

    def _add(self, owner: Opener | Tag, dialect: Dialect, in_code: bool, spaces: str) -> None:
        """Add the marker of `owner`, and variants of it that begin with white space.

        `spaces` holds the white-space characters that may belong to the marker at the start of a message.
        """
        marker = owner.marker
        if dialect.in_code == "call" and marker.first.isalpha():  # in code, a word needs the option `in_code`
            in_code = in_code and self._in_code == "call"
        self._entries.append(MarkerEntry(marker, (owner, dialect, 0), in_code))
        for count in range(1, owner.line_feeds + 1):
            self._entries.append(MarkerEntry(marker.after_space("\n" * count), (owner, dialect, count), in_code))
        for space in spaces:
            self._entries.append(MarkerEntry(marker.after_space(space, where="start"), (owner, dialect, 1), in_code))

    def markers(self, kind: int) -> Markers[Meaning]:
        """Return the markers that are recognized at positions of a `kind`, which is a sum of the bits above."""
        markers = self.by_position_kind[kind]
        if markers is None:
            found = [(entry.marker, entry.meaning) for entry in self._entries if _is_recognized(entry, kind)]
            markers = self.by_position_kind[kind] = Markers(found)
        return markers


def _find_near_misses(dialects: list[Dialect], calls: list[MarkerEntry], names: tuple[str, ...]) -> NearMisses:
    """Return the near misses of `dialects`. `calls` are the call markers of the enabled dialects.

    `names` are the declared tools.
    """
    code = [
        (
            Marker(entry.marker.parts + entry.marker.ahead, where=entry.marker.where, not_after=entry.marker.not_after),
            f"a call of the dialect {entry.meaning[1].id} in code or a quote is text",
        )
        for entry in calls
        if not entry.in_code and entry.marker.where != "start"
    ]
    prose = [
        (near.marker, f"{near.message}: the text is not a call of the dialect {dialect.id}")
        for dialect in dialects
        for near in dialect.near
    ]
    if calls and names and not any(entry.marker.where == "start" and entry.marker.first in "{[" for entry in calls):
        from streamtools.parsing.dialects.json_with_name import unmarked_json  # few parsers use it

        unmarked = [opener.marker for opener in map(_anywhere, unmarked_json(names)) if opener.where != "start"]
        prose += [(replace(marker, parts=marker.parts + marker.ahead, ahead=()), _UNMARKED) for marker in unmarked]
    return NearMisses(prose, code)


def openers(dialect: Dialect, signatures: Signatures) -> Iterator[Opener]:
    """Yield the openers of a dialect, including the openers that depend on the declared tools."""
    yield from dialect.openers
    if dialect.openers_for is not None and signatures:
        yield from dialect.openers_for(tuple(name for name, _ in signatures))
    if dialect.openers_of is not None:
        for name, parameters in signatures:
            yield from dialect.openers_of(name, parameters)


def _anywhere(opener: Opener) -> Opener:
    """Return an opener that is also recognized after prose, for the option `calls_at="anywhere"`.

    An opener that begins with a brace or bracket is then recognized anywhere. A fence or a Python call is recognized at
    the start of a line. Other openers are unchanged. Those with `where="start"` begin with a word, a semicolon or an
    arrow, which are common in prose.
    """
    first = opener.marker.first
    if opener.where == "start" and (first == "`" or "(" in opener.ahead):
        return replace(opener, where="line_start" if first != "[" else "anywhere")
    return replace(opener, where="anywhere") if opener.where == "start" and first in "{[" else opener


def _is_recognized(entry: MarkerEntry, kind: int) -> bool:
    where = entry.marker.where
    here = where == "anywhere" or kind & _POSITION_BITS[where] > 0
    if isinstance(owner := entry.meaning[0], Opener) and owner.kind == "rest" and not kind & ANY_CALL:
        return False
    return here and (entry.in_code or not kind & IN_CODE) and (_is_call(entry) or not kind & CALLS_ONLY)


def _run_markers(entries: list[MarkerEntry]) -> RunMarkers:
    """Return the markers of a run of calls in reasoning: tags, then openers of calls."""
    openers, tags = list[tuple[Marker, Opener]](), list[tuple[Marker, Tag]]()
    for entry in entries:
        (owner, _, spaces), marker = entry.meaning, entry.marker
        if isinstance(owner, Tag):
            if owner.ends_turn or not (owner.closings or spaces):
                tags.append((marker, owner))
        elif owner.kind == "call" and not (spaces and marker.where == "start"):
            if marker.where == "line_start":
                openers.append((marker.after_space("\n", _INDENT, where="anywhere"), owner))
            if marker.where != "anywhere":  # such a call begins at the start of a line
                marker = replace(marker, where="anywhere", not_after=r"[^\n]")
            openers.append((marker, owner))
    return [*tags, *openers]


def _is_call(entry: MarkerEntry) -> bool:
    owner = entry.meaning[0]
    return isinstance(owner, Opener) and owner.kind == "call"


dialect_set_of = lru_cache(maxsize=64)(DialectSet)
