"""The places where reading has to stop: beginnings of markers, and characters with a meaning in Markdown.

Most text is ordinary: no marker begins in it, and it does not change the Markdown context, line ends included. One
regular expression for each kind of text finds the first place where that is not certain. To find few places in vain,
a marker is recognised by its first characters and not by one, and a line end does not count if the next line begins
like ordinary text. Where the text is too short to decide, the place counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from itertools import dropwhile, takewhile
from typing import Any, TypeAlias

from streamtools.parsing.markers import Marker, Match, Part, partial_pattern
from streamtools.parsing.reader import matcher

_FIXED = 5  # first characters of a marker by which it is told from other text
_BLANKS = r"[ \t]{0,32}+"
_BLANK_LINES = r"[ \t\n]{0,32}+"
STRUCTURE = frozenset(">-*+0123456789~`\\ \t\n")  # what means something at the beginning of a line

Beginning: TypeAlias = tuple[str, ...]
"""The first character of a marker, and patterns for those behind it, one for each as far as markers have them alike."""


def beginnings_of(markers: Iterable[Marker]) -> set[Beginning]:
    """Return what tells each marker from other text: its first characters and, if those are few, the next that is
    fixed.

    Three hashes are the head of a call whose colon is missing, and of headings, which have no brace behind them.
    """
    return {_beginning(marker) for marker in markers}


def _beginning(marker: Marker) -> Beginning:
    parts = marker.parts + marker.ahead
    fixed = "".join(map(str, takewhile(_is_fixed, parts)))[:_FIXED]
    first, others = re.escape(fixed[0]), fixed[1:]
    behind = [f"(?<!{marker.not_after}{first})"] if marker.not_after else []
    begun = (fixed[0], *behind, *map(re.escape, others))
    between: list[Part] = []
    for part in dropwhile(_is_fixed, parts) if len(fixed) < _FIXED else ():
        if isinstance(part, str):
            return (*begun, rf"(?:\Z|{partial_pattern((*between, part[0]))})")
        between.append(part)
    return begun


def _is_fixed(part: Part) -> bool:
    return isinstance(part, str)


class MarkerBeginnings:
    """The beginnings of markers, and patterns of text in which none of them begins."""

    def __init__(self, anywhere: Set[Beginning], line_start: Set[Beginning], in_code: Set[Beginning]) -> None:
        """Take the beginnings that matter anywhere, at line starts, and also in code."""
        self._in_code = _by_first(in_code)
        self._inline = _by_first(anywhere | in_code)
        self._all = _by_first(anywhere | in_code | line_start)
        self.firsts = frozenset(self._inline)
        self.indentation = matcher(" ?" if " " in self._all else " *")
        """Matches indentation that can be read at once, from a space before the text of a line on."""
        self.inline = _match(self._inline)
        """Matches where a marker may begin in the middle of a line; a line feed is one of its places."""
        self.all = _match(self._all)
        """Matches where one may begin behind the indentation of a line."""
        self.line_begin = re.compile(self._line()).match
        """Matches what a line of text begins with, indentation and list markers too, if it is ordinary text then."""
        self.text_search = self._search(self._inline, "`\\", _BLANK_LINES + self._line())
        """Finds the first place that may not be ordinary."""
        self.in_code = self._later("in_code", lambda: _match(self._in_code))
        """Matches where one may begin in code."""
        self.fence_line_begin = self._later("fence_line_begin", lambda: re.compile(self._fence_line()).match)
        """Matches what `line_begin` does, in a fence."""
        self.span_search = self._later("span_search", lambda: self._search(self._in_code, "`", "(?!)"))
        """Finds what `text_search` does, in a code span; the next two in a fence, and in a quote."""
        self.fence_search = self._later(
            "fence_search", lambda: self._search(self._in_code, "", _BLANK_LINES + self._fence_line())
        )
        self.quote_search = self._later("quote_search", self._make_quote_search)

    def _later(self, name: str, make: Callable[[], Match]) -> Match:
        """Return what is made when it is first asked, and then takes its own place.

        Which a cached property is slower than: CPython 3.11 does not specialise the reading of one.
        """

        def first(*where: Any) -> re.Match[str] | None:
            if getattr(self, name) is first:
                setattr(self, name, make())
            made: Match = getattr(self, name)
            return made(*where)

        return first

    def _make_quote_search(self) -> Match:
        ordinary = rf"{_BLANKS}>[ \t>]{{0,8}}+(?:{self._ordinary(frozenset())})"
        return self._search(self._in_code, "", ordinary if ">" not in self._all else "(?!)")

    def _search(self, beginnings: dict[str, str], others: str, line: str) -> Match:
        """Return what finds beginnings, `others`, and line feeds but for those behind which a `line` begins."""
        # Each begins with a character of its own: the expression then jumps from one of them to the next.
        begun = self._inline.get("\n", "(?!)")
        feed = f"\n(?!(?!{begun}){line})"
        marks = [_head(first, rest) for first, rest in beginnings.items() if first not in {"\n", *others}]
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
        """Return a pattern for a character that is not white space, not of the structure, and begins no marker."""
        if self._all.keys() & {" ", "\t"}:
            return "(?!)"
        never = structure | {first for first in self._all if first.isspace()}
        begins = [f"{re.escape(first)}(?!{rest})" for first, rest in self._all.items() if first not in never]
        others = re.escape("".join(sorted(never | self._all.keys())))
        return "|".join([rf"[^\s{others}]", *begins])


def _match(beginnings: dict[str, str]) -> Match:
    """Return what matches where a head stands, or the beginning of one at the end of the text."""
    return re.compile("|".join(_head(first, rest) for first, rest in beginnings.items()) or "(?!)").match


def _head(first: str, rest: str) -> str:
    return re.escape(first) + (f"(?={rest})" if rest else "")


def _by_first(beginnings: Set[Beginning]) -> dict[str, str]:
    """Return a pattern for what may follow, by the first character."""
    return {
        first: _rest({each[1:] for each in beginnings if each[0] == first})
        for first in sorted({first for first, *_ in beginnings})
    }


def _rest(rests: Set[Beginning]) -> str:
    """Return a pattern for one of `rests`, or for the beginning of one at the end of the text."""
    if () in rests:
        return ""  # whatever follows
    firsts = sorted({rest[0] for rest in rests})
    branches = [first + _rest({rest[1:] for rest in rests if rest[0] == first}) for first in firsts]
    return "(?:" + "|".join([*branches, r"\Z"]) + ")"
