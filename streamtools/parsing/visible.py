"""Visible text: shows text that is no call, and reports near misses in it.

Two policies change what is shown. `after_call` hides the text behind a call or stops there, because weak models invent
the result of the tool; `trim` removes white space next to a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS
from streamtools.errors import Code
from streamtools.events import Markup, Text, Warning
from streamtools.parsing.beginnings import beginnings_of
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, Marker, Markers, OneOf, Some
from streamtools.parsing.options import Options
from streamtools.parsing.reader import not_white_space


class Visible:
    """Shows released text where a policy is not the default."""

    def __init__(self, output: CallEvents, options: Options) -> None:
        self._output = output
        self._after_call = options.after_call
        self._trim = options.trim
        self._keep_markup = options.keep_markup
        self._limit = options.limits.call  # characters of hidden text, or of white space, that are kept
        self.reset()

    def reset(self) -> None:
        """Begin a turn."""
        self._behind_call = False  # nothing but white space since the last call
        self._called = False
        self._space: list[str] = []  # white space that a call may follow
        self._space_length = 0
        self._hidden: list[str] = []
        self._hidden_length = 0
        self.stopped = False

    def show(self, text: str) -> None:
        """Take text that is no call."""
        if self._called and self._after_call != "show":
            self._withhold(text)
        elif self._trim:
            self._show_trimmed(text)
        else:
            self._output.add(Text, text)

    def show_raw(self, text: str) -> bool:
        """Show the raw text of a malformed call; return whether the turn is stopped with it."""
        if self._called and self._after_call != "show":
            self._withhold(text)
            self._report_hidden()
        else:
            self._output.add(Text, text)
        return self.stopped

    @property
    def shows(self) -> bool:
        """Whether text is shown, and not hidden behind a call."""
        return not self._called or self._after_call == "show"

    @property
    def refuses(self) -> bool:
        """Whether the next text that is not white space stops the turn."""
        return self._called and self._after_call == "stop"

    def begin_call(self) -> None:
        """A call begins here."""
        self._report_hidden()
        self._drop(self._take_space())

    def end_call(self) -> None:
        """A call ended here."""
        self._called = self._behind_call = True

    def flush(self) -> None:
        """Release what is withheld: something other than text or a call comes here, or the turn ends."""
        self._report_hidden()
        if self._space:
            self._output.add(Text, self._take_space())

    def _withhold(self, text: str) -> None:
        if self._after_call == "hide":
            if self._hidden_length < self._limit:
                self._hidden.append(text[: self._limit - self._hidden_length])
            self._hidden_length += len(text)
            return
        found = not_white_space(text)
        space = text[: found.start()] if found else text
        self.stopped = found is not None
        if space:
            self._drop(space) if self._trim else self._output.add(Text, space)

    def _show_trimmed(self, text: str) -> None:
        if self._behind_call:
            found = not_white_space(text)
            self._drop(text[: found.start()] if found else text)
            if not found:
                return
            self._behind_call = False
            text = text[found.start() :]
        shown = text.rstrip(" \t\r\n")
        if shown:
            self._output.add(Text, self._take_space() + shown)
        self._keep_space(text[len(shown) :])

    def _keep_space(self, space: str) -> None:
        """Hold white space back; more of it than the limit is shown, whatever follows."""
        if space:
            self._space.append(space)
            self._space_length += len(space)
        if self._space_length > self._limit:
            kept = self._space_length % (self._limit + 1)  # as if it had come one by one
            text = self._take_space()
            self._output.add(Text, text[: len(text) - kept])
            self._keep_space(text[len(text) - kept :])

    def _take_space(self) -> str:
        space = "".join(self._space)
        self._space, self._space_length = [], 0
        return space

    def _drop(self, space: str) -> None:
        if space and self._keep_markup:
            self._output.add(Markup, space)

    def _report_hidden(self) -> None:
        if self._hidden_length:
            raw = "".join(self._hidden)
            self._output.add(Warning, Code.HIDDEN_AFTER_CALL, "text after a call was hidden", raw=raw)
            if rest := self._hidden_length - len(raw):
                self._output.add(Warning, Code.SKIPPED, f"{rest} characters after a call were skipped", count=rest)
        self._hidden, self._hidden_length = [], 0


# Near misses: text that looks like a call and is none. They are reported, so that the drift of a model can be counted.
#
# A near miss is text. It is shown at once, like all text, and the report comes behind the character that decides it,
# so nothing is held back for it. A candidate begins only at a character at which the search for markers stops anyway,
# and is one bounded pattern from there to its last character: a marker where markers do not count, a marker with a
# fault, or JSON of a declared tool: its name and then arguments, or, at the start of a message, its name within 256
# characters. What follows it is never looked at: no body is parsed in prose. Candidates that overlap are one
# occurrence, that of the first to be complete; and a turn reports no more of them than it may hold calls.

Look: TypeAlias = Callable[[str, int, bool], tuple[str, int] | Literal[False] | None]
"""Given a text, a place and whether the text has ended: what stands there and its end, None if it may, or False."""

Known: TypeAlias = tuple[Marker, str]
"""The marker of a near miss, and the message of its warning."""

NEVER: Final = 2**62
"""A place that no text comes to."""

_WINDOW = 256  # characters of JSON in which the name of a declared tool has to stand
_JSON_STARTS = "{`~"  # a brace, or a fence before it
_MARKERLESS = "the JSON of a declared tool without a marker is text"
_LABEL = (BLANKS, Some("A-Za-z0-9_+-", 0, 16), BLANKS, LINE_END, SPACES, "{")


class NearMisses:
    """What comes near to a call of a set of dialects, by where it stands."""

    def __init__(self, prose: Sequence[Known], code: Sequence[Known], names: Sequence[str]) -> None:
        """Take what is one in prose, what is one in code or a quote, and the tools whose JSON is one at the start."""
        self.looks, self.in_code_looks = (
            [
                _look([(marker, says) for marker, says in known if begins or marker.where == "anywhere"])
                for begins in (False, True)
            ]
            for known in (prose, code)
        )
        """How to look for them within a line, and where one begins; the same in code or a quote."""
        self.anywhere = beginnings_of(marker for marker, _ in prose if marker.where == "anywhere")
        self.line_start = beginnings_of(marker for marker, _ in prose if marker.where != "anywhere")
        self.in_code = beginnings_of(marker for marker, _ in code if marker.where == "anywhere")
        self._start = _look_at_start(names) if names else None
        self.starts = set(_JSON_STARTS) if names else set()

    def look_at_start(self, first: str) -> Look | None:
        """Return how to look for them at the start of a message whose `first` character this is."""
        return self._start if first in _JSON_STARTS else None


def json_of(names: Sequence[str]) -> Known:
    """Return the near miss that is an object whose first members are the name of one of these tools and arguments.

    One in an array, or on a line of its own, may be the call behind a marker that is a near miss itself.
    """
    key, tool, arguments = (
        OneOf(tuple(f'"{each}"' for each in words)) for words in (NAME_FIELDS, names, ARGUMENT_FIELDS)
    )
    parts = ("{", SPACES, key, SPACES, ":", SPACES, tool, SPACES, ",", SPACES, arguments, SPACES, ":")
    return Marker(parts, not_after=r"[\[\r\n]"), _MARKERLESS


def _look(known: Sequence[Known]) -> Look | None:
    return Markers(known).at if known else None


def _look_at_start(names: Sequence[str]) -> Look:
    """Return how to look for JSON, in a fence or not, in which one of `names` is soon said to be the tool's."""
    fences = [Marker((mark * 3, Some(mark, 0, 13), *_LABEL)) for mark in "`~"]
    fenced = Markers([(fence, None) for fence in fences]).at
    keys, tools = "|".join(NAME_FIELDS), "|".join(map(re.escape, names))
    named = re.compile(rf'\{{.{{0,{_WINDOW}}}?"(?:{keys})"\s{{0,8}}:\s{{0,8}}"(?:{tools})"', re.DOTALL).match

    def look(text: str, at: int, ended: bool) -> tuple[str, int] | Literal[False] | None:
        if text[at] != "{":
            found = fenced(text, at, ended)
            if not found:
                return found
            at = found[1] - 1
        end = at + _WINDOW
        if name := named(text, at, end):
            return _MARKERLESS, name.end()
        return False if ended or len(text) >= end else None

    return look


class Candidate(msgspec.Struct, eq=False):
    """What may become a near miss: `before` and then the text at hand from `origin` on, in which it begins at `at`."""

    look: Look
    before: str
    origin: int
    at: int


class NearMissCandidates:
    """The candidates of one turn, and the reports about those that are complete."""

    __slots__ = ("_candidates", "_end", "_found", "_reports", "left", "open")

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
        self._found = ("", "")  # of the first to be complete: the message, and its text
        self._end = NEVER  # where that ends

    def add(self, look: Look, last: str, text: str, at: int, ended: bool) -> None:
        """Take note of a candidate at a place of the text at hand, if one can stand there. `last` came before it."""
        if self._end <= at:
            self._settle(at)
            if not self.left:
                return
        before = text[at - 1] if at else last[-1:]
        whole, place = (text, at) if at or not before else (before + text, 1)
        found = look(whole, place, ended)
        if found is not False:
            self._take_in(Candidate(look, before, at, len(before)), found, whole, place)

    def report(self, shown: int) -> list[tuple[int, str, str]]:
        """Return those that are complete in the text at hand up to `shown`: their ends, what is said, their texts."""
        self._settle(shown)
        reports, self._reports = self._reports, []
        self.open = bool(self._candidates)
        return reports

    def _settle(self, at: int) -> None:
        """Make a report of what is complete before a place. Others that began before its end are the same one."""
        if self._end <= at:
            self._reports.append((self._end, *self._found))
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
            message, end = found
            place = candidate.origin - len(candidate.before) + candidate.at + end - at
            if place < self._end:
                self._end, self._found = place, (message, text[at:end])
