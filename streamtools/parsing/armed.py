"""What a set of dialects looks for, and where it counts; made once for each set."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from streamtools.parsing.dialects import Dialect, Opener
from streamtools.parsing.markers import Markers
from streamtools.parsing.reasoning import TAGS, ReasoningTags

Armament: TypeAlias = tuple[Opener, Dialect]


class Armed:
    """What a set of dialects looks for; made once for each set."""

    def __init__(self, dialects: tuple[Dialect, ...], in_code: str | None, reasoning: str) -> None:
        self._entries = [
            (opener, dialect, (in_code or dialect.in_code) == "call")
            for dialect in dialects
            for opener in dialect.openers
        ]
        self._openers: dict[tuple[bool, bool, bool], Markers[Armament]] = {}
        self.tags = ReasoningTags(TAGS, [opener.marker for opener, _, _ in self._entries if opener.kind == "call"])
        self.line_start = "".join({opener.marker.first for opener, _, _ in self._entries})
        inline = [(opener, in_code) for opener, _, in_code in self._entries if opener.where == "anywhere"]
        self.anywhere = "".join({opener.marker.first for opener, _ in inline})
        self.in_code = "".join({opener.marker.first for opener, in_code in inline if in_code})
        if reasoning == "anywhere":
            self.anywhere += self.tags.firsts

    def openers(self, *, at_line_start: bool, in_code: bool, calls_only: bool) -> Markers[Armament]:
        """Return the markers that count in a place of this kind."""
        kind = (at_line_start, in_code, calls_only)
        if kind not in self._openers:
            self._openers[kind] = Markers(
                [
                    (opener.marker, (opener, dialect))
                    for opener, dialect, even_in_code in self._entries
                    if (at_line_start or opener.where == "anywhere")
                    and (even_in_code or not in_code)
                    and (opener.kind == "call" or not calls_only)
                ]
            )
        return self._openers[kind]


arm = lru_cache(maxsize=64)(Armed)
