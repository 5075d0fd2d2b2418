"""Where reading has to stop: at the beginnings of markers, and at what means something to Markdown.

Most text is ordinary: no marker begins in it, and it leaves Markdown where it was, line ends and all. One regular
expression for each kind of text finds the first place in it of which that cannot be said. So that few places are looked
at for nothing, a marker is told by its head, its first characters and not one, and a line end does not count if the
line behind it is seen to begin like ordinary text. What the text at hand does not decide counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set
from typing import TypeAlias

from streamtools.parsing.reader import matcher

Match: TypeAlias = Callable[..., re.Match[str] | None]

_BLANKS = r"[ \t]{0,32}+"
_BLANK_LINES = r"[ \t\n]{0,32}+"
_STRUCTURE = frozenset(">-*+0123456789~`\\ \t\n")  # what means something at the beginning of a line


class Heads:
    """The heads of markers, and what text is like in which none of them begins."""

    def __init__(self, anywhere: Set[str], line_start: Set[str], in_code: Set[str]) -> None:
        """Take the heads that matter anywhere, at line starts, and also in code."""
        self._in_code = _by_first(in_code)
        self._inline = _by_first(anywhere | in_code)
        self._all = _by_first(anywhere | in_code | line_start)
        self.firsts = frozenset(self._inline)
        self.inline = _match(self._inline)
        """Matches where a marker may begin in the middle of a line; a line feed is one of its places."""
        self.in_code = _match(self._in_code)
        """Matches where one may begin in code."""
        self.all = _match(self._all)
        """Matches where one may begin behind the indentation of a line."""
        self.indentation = matcher(" ?" if " " in self._all else " *")
        """Matches what can be gone over at once where a space stands before the text of a line."""
        self.line_begin = re.compile(self._line()).match
        """Matches what a line of text begins with, indentation and list markers too, if it is ordinary text then."""
        self.fence_line_begin = re.compile(self._fence_line()).match
        """The same in a fence."""
        self.text_search = self._search(self._inline, "`\\", _BLANK_LINES + self._line())
        self.span_search = self._search(self._in_code, "`", "(?!)")
        self.fence_search = self._search(self._in_code, "", _BLANK_LINES + self._fence_line())
        self.quote_search = self._search(self._in_code, "", self._quote_line())

    def _search(self, heads: dict[str, str], others: str, line: str) -> Match:
        """Return what finds heads, `others`, and line feeds but for those behind which a `line` begins."""
        # Each begins with a character of its own: the expression then jumps from one of them to the next.
        begun = self._inline.get("\n", "(?!)")
        feed = f"\n(?!(?!{begun}){line})"
        marks = [_head(first, rest) for first, rest in heads.items() if first not in {"\n", *others}]
        return re.compile("|".join([feed, *map(re.escape, others), *marks])).search

    def _line(self) -> str:
        bullets = "".join(sorted({*"-*+"} - self._all.keys()))
        bullet = f"[{re.escape(bullets)}]" if bullets else "(?!)"
        number = "(?!)" if self._all.keys() & {*"0123456789.)"} else "[0-9]{1,9}+"
        items = rf"(?:(?:{bullet}|{number}[.)])[ \t]{{1,8}}+){{0,4}}+"
        ordinary = self._ordinary(_STRUCTURE)
        return rf"(?:{ordinary}|{_BLANKS}{items}(?:{ordinary}|{bullet}(?=\S)|{number}(?=[^\s.)0-9])))"

    def _fence_line(self) -> str:
        return f"{_BLANKS}(?:{self._ordinary(frozenset('`~'))})"

    def _quote_line(self) -> str:
        return rf"{_BLANKS}>[ \t>]{{0,8}}+(?:{self._ordinary(frozenset())})" if ">" not in self._all else "(?!)"

    def _ordinary(self, structure: Set[str]) -> str:
        """Return a pattern for a character that is not white space, not of the structure, and begins no marker."""
        if self._all.keys() & {" ", "\t"}:
            return "(?!)"
        never = structure | {first for first in self._all if first.isspace()}
        begins = [f"{re.escape(first)}(?!{rest})" for first, rest in self._all.items() if first not in never]
        others = re.escape("".join(sorted(never | self._all.keys())))
        return "|".join([rf"[^\s{others}]", *begins])


def _match(heads: dict[str, str]) -> Match:
    """Return what matches where a head stands, or the beginning of one at the end of the text."""
    return re.compile("|".join(_head(first, rest) for first, rest in heads.items()) or "(?!)").match


def _head(first: str, rest: str) -> str:
    return re.escape(first) + (f"(?={rest})" if rest else "")


def _by_first(heads: Set[str]) -> dict[str, str]:
    """Return a pattern for what may follow, by the first character of a head."""
    return {first: _rest({head[1:] for head in heads if head[0] == first}) for first in sorted({h[0] for h in heads})}


def _rest(rests: Set[str]) -> str:
    """Return a pattern for one of `rests`, or for the beginning of one at the end of the text."""
    if "" in rests:
        return ""  # whatever follows
    firsts = sorted({rest[0] for rest in rests})
    branches = [re.escape(first) + _rest({rest[1:] for rest in rests if rest[0] == first}) for first in firsts]
    return "(?:" + "|".join([*branches, r"\Z"]) + ")"
