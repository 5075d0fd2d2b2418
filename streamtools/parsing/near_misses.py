"""What looked like a call and was none: reported, so that a model's drift can be counted.

A near miss is text. It is shown at once, like all text, and the report comes behind the character that decides it, so
nothing is held back for it. A candidate begins only at a character at which the search for markers stops anyway, and is
one bounded pattern from there to its last character: a marker where markers do not count, a marker with a fault, or, at
the start of a message, JSON that names a declared tool within 256 characters. What follows it is never looked at: no
body is parsed in prose. Candidates that overlap are one occurrence, that of the first to be complete; and a turn
reports no more of them than it may hold calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from streamtools.calls import NAME_FIELDS
from streamtools.parsing.marker_sets import Markers
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, Marker, Some

Look: TypeAlias = Callable[[str, int, bool], tuple[str, int] | Literal[False] | None]
"""Given a text, a place and whether the text has ended: what stands there and its end, None if it may, or False."""

Known: TypeAlias = tuple[Marker, str]
"""What comes near to a call, and what is said about it."""

NEVER: Final = 2**62
"""A place that no text comes to."""

_WINDOW = 256  # characters of JSON in which the name of a declared tool has to stand
_JSON_STARTS = "{`~"  # a brace, or a fence before it
_LABEL = (BLANKS, Some("A-Za-z0-9_+-", 0, 16), BLANKS, LINE_END, SPACES, "{")


class NearMisses:
    """What comes near to a call of a set of dialects, by where it stands."""

    def __init__(self, prose: Sequence[Known], code: Sequence[Known], names: Sequence[str]) -> None:
        """Take what is one in prose, what is one in code or a quote, and the tools whose JSON is one at the start."""
        self._looks = [
            _look([(marker, says) for marker, says in known if begins or marker.where == "anywhere"])
            for known in (prose, code)
            for begins in (False, True)
        ]
        self.anywhere = {marker.head for marker, _ in prose if marker.where == "anywhere"}
        self.line_start = {marker.head for marker, _ in prose if marker.where != "anywhere"}
        self.in_code = {marker.head for marker, _ in code if marker.where == "anywhere"}
        self._start = _look_at_start(names) if names else None
        self.starts = set(_JSON_STARTS) if names else set()

    def look(self, *, in_code: bool, begins: bool) -> Look | None:
        """Return how to look for them in code or a quote, or in prose, where a line `begins` or within one."""
        return self._looks[2 * in_code + begins]

    def look_at_start(self, first: str) -> Look | None:
        """Return how to look for them at the start of a message whose `first` character this is."""
        return self._start if first in _JSON_STARTS else None


def _look(known: Sequence[Known]) -> Look | None:
    return Markers(known).at if known else None


def _look_at_start(names: Sequence[str]) -> Look:
    """Return how to look for JSON, in a fence or not, in which one of `names` is soon said to be the tool's."""
    fences = [Marker((mark * 3, Some(mark, 0, 13), *_LABEL)) for mark in "`~"]
    fenced = Markers([(fence, None) for fence in fences]).at
    keys, tools = "|".join(NAME_FIELDS), "|".join(map(re.escape, names))
    named = re.compile(rf'\{{.{{0,{_WINDOW}}}?"(?:{keys})"\s{{0,8}}:\s{{0,8}}"(?:{tools})"', re.DOTALL).match
    message = "the JSON of a declared tool without a marker is text"

    def look(text: str, at: int, ended: bool) -> tuple[str, int] | Literal[False] | None:
        if text[at] != "{":
            found = fenced(text, at, ended)
            if not found:
                return found
            at = found[1] - 1
        end = at + _WINDOW
        if name := named(text, at, end):
            return message, name.end()
        return False if ended or len(text) >= end else None

    return look


class Candidate:
    """What may become a near miss: `before` and then the text at hand from `origin` on, in which it begins at `at`."""

    __slots__ = ("at", "before", "look", "origin")

    def __init__(self, look: Look, before: str, origin: int) -> None:
        self.look = look
        self.before = before
        self.at = len(before)
        self.origin = origin


class Lookout:
    """The candidates of one turn, and the reports about those that are complete."""

    __slots__ = ("_candidates", "_due", "_found", "_reports", "left", "open")

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, most: int) -> None:
        """Begin a turn that may report `most` of them."""
        self.left = most
        self.clear()

    def clear(self) -> None:
        """Forget the candidates: something that is no visible text stands here."""
        self._reports: list[tuple[int, str, str]] = []
        self._forget()
        self.open = False  # there is something to look for, or to report

    def _forget(self) -> None:
        self._candidates: list[Candidate] = []
        self._found = ("", "")  # of the first to be complete: what is said, and its text
        self._due = NEVER  # where that is

    def add(self, look: Look, last: str, text: str, at: int, ended: bool) -> None:
        """Take note of a candidate at a place of the text at hand, if one can stand there. `last` came before it."""
        if self._due <= at:
            self._settle(at)
            if not self.left:
                return
        before = text[at - 1] if at else last[-1:]
        whole, place = (text, at) if at or not before else (before + text, 1)
        found = look(whole, place, ended)
        if found is not False:
            self._take_in(Candidate(look, before, at), found, whole, place)

    def has_due(self, shown: int) -> bool:
        """Whether there is something to report in the text at hand up to `shown`."""
        return self._due <= shown or bool(self._reports)

    def report(self, shown: int) -> list[tuple[int, str, str]]:
        """Return those that are complete in the text at hand up to `shown`: their ends, what is said, their texts."""
        self._settle(shown)
        reports, self._reports = self._reports, []
        self.open = bool(self._candidates)
        return reports

    def _settle(self, at: int) -> None:
        """Make a report of what is complete before a place. Others that began before its end are the same one."""
        if self._due <= at:
            self._reports.append((self._due, *self._found))
            self.left -= 1
            self._forget()

    def resume(self, text: str, ended: bool) -> None:
        """Look again at what was not decided: this is the text at hand now."""
        waiting = self._candidates
        self.clear()
        for candidate in waiting:
            whole = candidate.before + text[candidate.origin :]
            self._take_in(candidate, candidate.look(whole, candidate.at, ended), whole, candidate.at)

    def pause(self, text: str, shown: int) -> None:
        """All of the text at hand has been read, and is forgotten but for what stands behind `shown`."""
        for candidate in self._candidates:
            candidate.before += text[candidate.origin : shown]
            candidate.origin = 0

    def _take_in(
        self, candidate: Candidate, found: tuple[str, int] | Literal[False] | None, text: str, at: int
    ) -> None:
        """Take note of what has been `found` for a candidate, at a place of a text that ends like the text at hand."""
        if found is False:
            return
        self._candidates.append(candidate)
        self.open = True
        if found is not None:
            says, end = found
            due = candidate.origin - len(candidate.before) + candidate.at + end - at
            if due < self._due:
                self._due, self._found = due, (says, text[at:end])
