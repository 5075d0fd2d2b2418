"""Near misses: text that looks like a call but is not. They are reported, so that users can measure model errors.

A near miss is visible text, and is shown immediately. Its warning follows directly after the character that completes
it. So no text is delayed. The search for markers halts at each character with which a marker or a near miss may begin.
A near miss begins only there. Near misses have these forms. Each form is a pattern of limited length:

- a marker in code or a quote, where markers do not begin calls,
- a wrong variant of a marker that the dialect lists,
- JSON that names a declared tool but has no marker, unless a dialect such as `raw_json` is enabled.

A near miss does not depend on the text after it. If near misses overlap, only the first complete one is reported. The
limit of calls in a turn is also the limit of reported near misses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from streamtools.parsing.marker_starts import starts_of
from streamtools.parsing.markers import Group, Marker, Markers

_Found: TypeAlias = "tuple[str, int] | Literal[False] | Group[str]"
Recognise: TypeAlias = Callable[[str, int, bool], _Found]
"""A function that recognizes a near miss. Its arguments are a text, an index in it, and whether the stream has ended.

Returns the message and the end of the near miss at that index. Returns the group of possible near misses if more text
is needed to decide, and False if there is none.
"""

MissMarker: TypeAlias = tuple[Marker, str]
"""The marker of a near miss, and the message of its warning."""

_NEVER: Final = 2**62  # a position after the end of every text


class NearMisses:
    """The near misses of a set of dialects, grouped by where they are recognized."""

    def __init__(self, prose: Sequence[MissMarker], code: Sequence[MissMarker]) -> None:
        """`prose` and `code` are the near misses in prose and in code."""
        self.in_prose, self.in_code = (
            [
                _any_of([(marker, message) for marker, message in known if at_start or marker.where == "anywhere"])
                for at_start in (False, True)
            ]
            for known in (prose, code)
        )
        """Each attribute holds two functions. The first is for positions within a line, the second for its start.

        `in_code` is for code and quotes. None in place of a function means that no near miss can begin there.
        """
        self.anywhere = starts_of(marker for marker, _ in prose if marker.where == "anywhere")
        self.line_start = starts_of(marker for marker, _ in prose if marker.where != "anywhere")
        self.anywhere_in_code = starts_of(marker for marker, _ in code if marker.where == "anywhere")


def _any_of(known: Sequence[MissMarker]) -> Recognise | None:
    return Markers(known).find if known else None


class Candidate(msgspec.Struct, eq=False):
    """Text that may become a near miss.

    The text is `before`, followed by the current text from the index `origin` on. The candidate begins at the index
    `at` of that text.
    """

    recognise: Recognise
    before: str
    origin: int
    at: int


class NearMissCandidates:
    """The candidates of one turn, and the reports of complete near misses."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, limit: int) -> None:
        """Begin a turn that may report at most `limit` near misses."""
        self.reports_left = limit
        self.clear()

    def clear(self) -> None:
        """Drop all candidates and reports."""
        self._reports: list[tuple[int, str, str]] = []
        self._drop()
        self.open = False  # whether there is a candidate or a report

    def _drop(self) -> None:
        self._candidates: list[Candidate] = []
        self._found = ("", "")  # the message and the text of the first complete candidate
        self._end = _NEVER  # the index in the current text where that candidate ends

    def add(self, recognise: Recognise, last: str, text: str, at: int, ended: bool) -> None:
        """Add a candidate at the index `at` of `text`, if a near miss can begin there.

        `text` is the current text: the text that `Prose` reads now. `last` is the visible text before it.
        """
        if self._end <= at:
            self._complete(at)
            if not self.reports_left:
                return
        before = text[at - 1] if at else last[-1:]
        whole, place = (text, at) if at or not before else (before + text, 1)
        found = recognise(whole, place, ended)
        if found is not False:
            self._accept(Candidate(recognise, before, at, len(before)), found, whole, place)

    def report(self, shown: int) -> list[tuple[int, str, str]]:
        """Return the end, the message and the text of each near miss that ends at or before the index `shown`."""
        self._complete(shown)
        reports, self._reports = self._reports, []
        self.open = bool(self._candidates)
        return reports

    def _complete(self, at: int) -> None:
        """Report the near miss that ends at or before the index `at`. Drop all candidates that overlap with it."""
        if self._end <= at:
            self._reports.append((self._end, *self._found))
            self.reports_left -= 1
            self._drop()

    def resume(self, text: str, ended: bool) -> None:
        """Try the undecided candidates again with more text."""
        undecided = self._candidates
        self.clear()
        for candidate in undecided:
            whole = candidate.before + text[candidate.origin :]
            self._accept(candidate, candidate.recognise(whole, candidate.at, ended), whole, candidate.at)

    def pause(self, text: str, shown: int) -> None:
        """Store the text of the candidates before the index `shown`. The text after it stays current."""
        for candidate in self._candidates:
            candidate.before += text[candidate.origin : shown]
            candidate.origin = 0

    def _accept(self, candidate: Candidate, found: _Found, text: str, at: int) -> None:
        """Keep the candidate unless `found`, the result of its function for `text` and `at`, is False.

        If the candidate is complete and ends first, store it as the next report.
        """
        if found is False:
            return
        self._candidates.append(candidate)
        self.open = True
        if isinstance(found, tuple):
            message, end = found
            place = candidate.origin - len(candidate.before) + candidate.at + end - at
            if place < self._end:
                self._end, self._found = place, (message, text[at:end])
