"""Searches that find the next position at which a marker may begin or the Markdown context may change.

Most text is ordinary: no marker begins in it, and it does not change the Markdown context. Even most line ends are
ordinary. For each Markdown context, one regular expression finds the first position that is possibly not ordinary. Two
measures make false stops rare. A marker is recognized by several first characters, not by one. A line end is skipped if
the next line begins like ordinary text. If the text ends too early to decide, the search stops there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from itertools import dropwhile, takewhile
from typing import Any, TypeAlias

from streamtools.parsing.markers import Marker, Part, Search, partial_pattern
from streamtools.parsing.reader import matcher

_FIXED = 5  # how many first characters of a marker are compared
_BLANKS = r"[ \t]{0,32}+"
_BLANK_LINES = r"[ \t\n]{0,32}+"
STRUCTURE = frozenset(">-*+0123456789~`\\ \t\n")  # characters at the start of a line that may change the context

Start: TypeAlias = tuple[str, ...]
"""The first character of a marker, and patterns for the text after it, in order.

The patterns are a lookbehind for `not_after` if the marker has it, one pattern for each of the next characters, and
sometimes a pattern for further parts of the marker."""


def starts_of(markers: Iterable[Marker]) -> set[Start]:
    """Return the start of each marker: the characters of its first literal parts, at most five.

    If these are fewer than five characters, the start also holds a pattern up to the first character of the next
    literal. For example, the start of a marker `###`, `SPACES`, `{` holds the brace, because `###` also begins a
    heading.
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
    """The starts of the markers of several dialects, and searches for positions that are possibly not ordinary text."""

    def __init__(self, anywhere: Set[Start], line_start: Set[Start], in_code: Set[Start]) -> None:
        """Each argument holds the starts of markers: those recognized anywhere, at the start of a line, and in code."""
        self._starts_in_code = _by_first(in_code)
        self._starts_inline = _by_first(anywhere | in_code)
        self._all_starts = _by_first(anywhere | in_code | line_start)
        self.firsts = frozenset(self._starts_inline)
        """The first characters of the markers that may begin within a line."""
        self.indentation = matcher(" ?" if " " in self._all_starts else " *")
        """Matches the spaces at the start of a line, but at most one if a marker may begin with a space.

        Each of the other spaces is then tried as the beginning of a marker.
        """
        self.match_inline = _match(self._starts_inline)
        """Matches at a position within a line, or at the line feed at its end, if a marker may begin there."""
        self.match_at_line_start = _match(self._all_starts)
        """Matches if a marker may begin after the indentation of a line."""
        self.line_begin = re.compile(self._line()).match
        """Matches the indentation, list markers and first character of a line that is ordinary text."""
        self.text_search = self._search(self._starts_inline, "`\\", _BLANK_LINES + self._line())
        """Finds the first position that is possibly not ordinary text, outside of code and quotes."""
        self.match_in_code = self._on_first_use("match_in_code", lambda: _match(self._starts_in_code))
        """Matches if a marker may begin in code."""
        self.fence_line_begin = self._on_first_use("fence_line_begin", lambda: re.compile(self._fence_line()).match)
        """Matches the indentation and first character of an ordinary line in a code fence."""
        self.span_search = self._on_first_use("span_search", lambda: self._search(self._starts_in_code, "`", "(?!)"))
        """Like `text_search`, for a code span. The next two searches are for a code fence and for a quote."""
        self.fence_search = self._on_first_use(
            "fence_search", lambda: self._search(self._starts_in_code, "", _BLANK_LINES + self._fence_line())
        )
        self.quote_search = self._on_first_use("quote_search", self._make_quote_search)

    def _on_first_use(self, name: str, make: Callable[[], Search]) -> Search:
        """Return a search that compiles its pattern on the first call, and then replaces itself.

        Compiling all patterns at once would delay the first parser of a process by 15 ms, and with all dialects by 50.
        """

        def compile_first(*where: Any) -> re.Match[str] | None:
            if getattr(self, name) is compile_first:
                setattr(self, name, make())
            made: Search = getattr(self, name)
            return made(*where)

        return compile_first

    def _make_quote_search(self) -> Search:
        ordinary = rf"{_BLANKS}>[ \t>]{{0,8}}+(?:{self._ordinary(frozenset())})"
        return self._search(self._starts_in_code, "", ordinary if ">" not in self._all_starts else "(?!)")

    def _search(self, starts: dict[str, str], others: str, line: str) -> Search:
        """Return a search for the `starts`, the characters `others`, and line feeds before a line that is not ordinary.

        `line` is a pattern for the beginning of an ordinary line.
        """
        # Each branch begins with a different literal character, so `re` can skip all other characters quickly.
        begun = self._starts_inline.get("\n", "(?!)")
        feed = f"\n(?!(?!{begun}){line})"
        marks = [_head(first, rest) for first, rest in starts.items() if first not in {"\n", *others}]
        return re.compile("|".join([feed, *map(re.escape, others), *marks])).search

    def _line(self) -> str:
        """Return a pattern for the indentation, the list markers and the first character of an ordinary line."""
        bullets = "".join(sorted({*"-*+"} - self._all_starts.keys()))
        bullet = f"[{re.escape(bullets)}]" if bullets else "(?!)"
        number = "(?!)" if self._all_starts.keys() & {*"0123456789.)"} else "[0-9]{1,9}+"
        items = rf"(?:(?:{bullet}|{number}[.)])[ \t]{{1,8}}+){{0,4}}+"
        ordinary = self._ordinary(STRUCTURE)
        return rf"(?:{ordinary}|{_BLANKS}{items}(?:{ordinary}|{bullet}(?=\S)|{number}(?=[^\s.)0-9])))"

    def _fence_line(self) -> str:
        return f"{_BLANKS}(?:{self._ordinary(frozenset('`~'))})"

    def _ordinary(self, structure: Set[str]) -> str:
        """Return a pattern for a character that begins no marker, except white space and `structure`.

        It matches nothing if a marker may begin with a space or a tab.
        """
        if self._all_starts.keys() & {" ", "\t"}:
            return "(?!)"
        never = structure | {first for first in self._all_starts if first.isspace()}
        begins = [f"{re.escape(first)}(?!{rest})" for first, rest in self._all_starts.items() if first not in never]
        others = re.escape("".join(sorted(never | self._all_starts.keys())))
        return "|".join([rf"[^\s{others}]", *begins])


def _match(starts: dict[str, str]) -> Search:
    """Return a function that matches one of the starts, or an incomplete start at the end of the text."""
    return re.compile("|".join(_head(first, rest) for first, rest in starts.items()) or "(?!)").match


def _head(first: str, rest: str) -> str:
    return re.escape(first) + (f"(?={rest})" if rest else "")


def _by_first(starts: Set[Start]) -> dict[str, str]:
    """Map the first character of each start to a pattern of the characters after it."""
    return {
        first: _rest({start[1:] for start in starts if start[0] == first})
        for first in sorted({first for first, *_ in starts})
    }


def _rest(rests: Set[Start]) -> str:
    """Return a pattern for one of `rests`, or for an incomplete one at the end of the text."""
    if () in rests:
        return ""  # a start is complete, so the text after it does not matter
    firsts = sorted({rest[0] for rest in rests})
    branches = [first + _rest({rest[1:] for rest in rests if rest[0] == first}) for first in firsts]
    return "(?:" + "|".join([*branches, r"\Z"]) + ")"
