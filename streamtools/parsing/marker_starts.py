"""The places where reading has to stop: starts of markers, and characters that mean something in Markdown.

Most text is ordinary: no marker begins in it, and it does not change the Markdown context. Line ends are included. For
each kind of text, one regular expression finds the first place where this is not certain. Two things keep false stops
rare. A marker is recognised by several first characters, not by one. A line end is skipped if the next line begins
like ordinary text. If the text is too short to decide, the search stops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from itertools import dropwhile, takewhile
from typing import Any, TypeAlias

from streamtools.parsing.markers import Marker, Part, Search, partial_pattern
from streamtools.parsing.reader import matcher

_FIXED = 5  # first characters of a marker that distinguish it from other text
_BLANKS = r"[ \t]{0,32}+"
_BLANK_LINES = r"[ \t\n]{0,32}+"
STRUCTURE = frozenset(">-*+0123456789~`\\ \t\n")  # characters with a meaning at the start of a line

Start: TypeAlias = tuple[str, ...]
"""The first character of a marker, and a pattern for each of the next characters."""


def starts_of(markers: Iterable[Marker]) -> set[Start]:
    """Return the start of each marker: its first fixed characters and, if those are few, the next fixed character.

    The next one matters: `###` also begins headings, which have no brace after it.
    """
    return {_start(marker) for marker in markers}


def _start(marker: Marker) -> Start:
    parts = marker.parts + marker.ahead
    fixed = "".join(map(str, takewhile(_is_fixed, parts)))[:_FIXED]
    first, others = re.escape(fixed[0]), fixed[1:]
    not_after = [f"(?<!{marker.not_after}{first})"] if marker.not_after else []
    begun = (fixed[0], *not_after, *map(re.escape, others))
    between: list[Part] = []
    for part in dropwhile(_is_fixed, parts) if len(fixed) < _FIXED else ():
        if isinstance(part, str):
            return (*begun, rf"(?:\Z|{partial_pattern((*between, part[0]))})")
        between.append(part)
    return begun


def _is_fixed(part: Part) -> bool:
    return isinstance(part, str)


class MarkerStarts:
    """The starts of the markers of a set of dialects, and searches for the text in which none of them begins."""

    def __init__(self, anywhere: Set[Start], line_start: Set[Start], in_code: Set[Start]) -> None:
        """The starts that count `anywhere`, at the start of a line, and in code."""
        self._in_code = _by_first(in_code)
        self._inline = _by_first(anywhere | in_code)
        self._all = _by_first(anywhere | in_code | line_start)
        self.firsts = frozenset(self._inline)
        self.indentation = matcher(" ?" if " " in self._all else " *")
        """Matches the indentation that is read in one step, from a space on."""
        self.inline = _match(self._inline)
        """Matches where a marker may begin in the middle of a line. A line feed is in the middle."""
        self.all = _match(self._all)
        """Matches where a marker may begin after the indentation of a line."""
        self.line_begin = re.compile(self._line()).match
        """Matches the indentation, list markers and first character of a line that is ordinary text."""
        self.text_search = self._search(self._inline, "`\\", _BLANK_LINES + self._line())
        """Finds the first place that may not be ordinary text."""
        self.in_code = self._later("in_code", lambda: _match(self._in_code))
        """Matches where a marker may begin in code."""
        self.fence_line_begin = self._later("fence_line_begin", lambda: re.compile(self._fence_line()).match)
        """Matches the same as `line_begin`, in a fence."""
        self.span_search = self._later("span_search", lambda: self._search(self._in_code, "`", "(?!)"))
        """Finds the same as `text_search`, in a code span. The next two do so in a fence and in a quote."""
        self.fence_search = self._later(
            "fence_search", lambda: self._search(self._in_code, "", _BLANK_LINES + self._fence_line())
        )
        self.quote_search = self._later("quote_search", self._make_quote_search)

    def _later(self, name: str, make: Callable[[], Search]) -> Search:
        """Return a search that compiles its pattern on the first call, and then replaces itself.

        A cached property would be slower, because CPython 3.11 does not specialise its lookup.
        """

        def first(*where: Any) -> re.Match[str] | None:
            if getattr(self, name) is first:
                setattr(self, name, make())
            made: Search = getattr(self, name)
            return made(*where)

        return first

    def _make_quote_search(self) -> Search:
        ordinary = rf"{_BLANKS}>[ \t>]{{0,8}}+(?:{self._ordinary(frozenset())})"
        return self._search(self._in_code, "", ordinary if ">" not in self._all else "(?!)")

    def _search(self, starts: dict[str, str], others: str, line: str) -> Search:
        """Return a search for starts, the characters `others`, and line feeds that no ordinary `line` follows."""
        # Each branch begins with a different character, so the expression jumps from one such character to the next.
        begun = self._inline.get("\n", "(?!)")
        feed = f"\n(?!(?!{begun}){line})"
        marks = [_head(first, rest) for first, rest in starts.items() if first not in {"\n", *others}]
        return re.compile("|".join([feed, *map(re.escape, others), *marks])).search

    def _line(self) -> str:
        bullets = "".join(sorted({*"-*+"} - self._all.keys()))
        bullet = f"[{re.escape(bullets)}]" if bullets else "(?!)"
        number = "(?!)" if self._all.keys() & {*"0123456789.)"} else "[0-9]{1,9}+"
        items = rf"(?:(?:{bullet}|{number}[.)])[ \t]{{1,8}}+){{0,4}}+"
        ordinary = self._ordinary(STRUCTURE)
        return rf"(?:{ordinary}|{_BLANKS}{items}(?:{ordinary}|{bullet}(?=\S)|{number}(?=[^\s.)0-9])))"

    def _fence_line(self) -> str:
        return f"{_BLANKS}(?:{self._ordinary(frozenset('`~'))})"

    def _ordinary(self, structure: Set[str]) -> str:
        """Return a pattern for a character that is not white space or `structure`, and begins no marker."""
        if self._all.keys() & {" ", "\t"}:
            return "(?!)"
        never = structure | {first for first in self._all if first.isspace()}
        begins = [f"{re.escape(first)}(?!{rest})" for first, rest in self._all.items() if first not in never]
        others = re.escape("".join(sorted(never | self._all.keys())))
        return "|".join([rf"[^\s{others}]", *begins])


def _match(starts: dict[str, str]) -> Search:
    """Return a search for a start, or for the beginning of a start at the end of the text."""
    return re.compile("|".join(_head(first, rest) for first, rest in starts.items()) or "(?!)").match


def _head(first: str, rest: str) -> str:
    return re.escape(first) + (f"(?={rest})" if rest else "")


def _by_first(starts: Set[Start]) -> dict[str, str]:
    """Return the pattern of the following characters, by first character."""
    return {
        first: _rest({start[1:] for start in starts if start[0] == first})
        for first in sorted({first for first, *_ in starts})
    }


def _rest(rests: Set[Start]) -> str:
    """Return a pattern for one of `rests`, or for the beginning of one of them at the end of the text."""
    if () in rests:
        return ""  # anything may follow
    firsts = sorted({rest[0] for rest in rests})
    branches = [first + _rest({rest[1:] for rest in rests if rest[0] == first}) for first in firsts]
    return "(?:" + "|".join([*branches, r"\Z"]) + ")"
