"""Markdown context: whether text is inside a code fence, a code span, or a quote.

People ask models to explain the syntax of calls, and models fence what they quote, so whether a marker counts depends
on the Markdown around it. This is the part of CommonMark that decides it, line by line and without look-ahead: what may
only become Markdown structure is never held back, only remembered.

A line is in one of the phases below. It begins in `INDENT`, reads indentation and list markers one by one, and is in
`BODY` as soon as it has shown what block it is. In a body only line feeds, back-ticks, back-slashes and the starts
of markers matter, and one regular expression jumps from one to the next. Lines that begin like ordinary text are not
read one character at a time: the expressions of `MarkerStarts` go over them, and leave the state that the steps
would leave.

Simpler than CommonMark on purpose: indentation alone is not code, a quote does not continue lazily, a code span ends
with its line, list markers are recognised by their shape alone.
"""

from __future__ import annotations

from streamtools.parsing.marker_starts import STRUCTURE, MarkerStarts
from streamtools.parsing.markers import Search
from streamtools.parsing.reader import matcher

BODY = 0  # the block of the line is known; the rest is its text
ESCAPE = 1  # an odd number of back-slashes: back-ticks right here open nothing
ESCAPED = 2  # back-ticks behind such back-slashes
TICKS = 3  # a run of back-ticks, which may go on
INDENT = 4  # nothing but indentation and list markers so far
BULLET = 5  # `-`, `*` or `+`: a list marker if a blank follows
ORDINAL = 6  # up to nine digits
DELIMITER = 7  # `.` or `)` behind digits: a list marker if a blank follows
TILDES = 8  # a run of tildes at the beginning of the line, which opens a fence if there are three
CLOSING = 9  # in a fence, a run of its character at the beginning of the line
CLOSED = 10  # the same, long enough, and blanks
CLOSED_CR = 11  # the same, and a carriage return
QUOTE = 12  # nothing but blanks behind the mark of a quote

LINE_START = 1  # a kind of place: only indentation stands before it in its line, no list marker
IN_CODE = 2  # the same: inside a fence, a code span or a quote

_BEHIND_CLOSING = (CLOSED, CLOSED_CR)
BEFORE_BODY = (INDENT, QUOTE)  # the line holds only indentation so far, list markers and the mark of a quote aside
_DIGITS = frozenset("0123456789")
_run_of_ticks = matcher(r"`*")


class Markdown:
    """The block and the code span in which the text is.

    `seek` goes to where a marker might begin, `step` goes over one character, and `place` returns the kind of place. In
    the `BODY` of a line, `search` finds nothing in text that changes no state.
    """

    __slots__ = (
        "_column",
        "_digits",
        "_fence_column",
        "_fence_run",
        "_line_begin",
        "_listed",
        "_may_begin",
        "_opening",
        "_quoted",
        "_run",
        "_starts",
        "_ticks",
        "fence",
        "phase",
        "search",
    )  # fmt: skip

    search: Search

    def __init__(self, starts: MarkerStarts) -> None:
        self._starts = starts
        self.reset()

    def reset(self) -> None:
        """Begin a text."""
        self.phase = INDENT
        self.fence = ""  # the character of the open fence
        self._fence_run = 0
        self._fence_column = 0
        self._opening = 0  # length of the run of back-ticks that makes this line open a fence, if no more of them come
        self._run = 0
        self._digits = 0
        self._column = 0
        self._listed = False  # list markers have been seen in this line
        self._quoted = False
        self._ticks = 0  # length of the run that has opened a code span
        self._choose()

    def place(self, char: str) -> int:
        """Return the kind of place in which `char` comes next, a sum; of a line feed it is that of the next line."""
        if char == "\n":
            in_code = self.phase not in _BEHIND_CLOSING if self.fence else self._opening > 0
            return LINE_START | IN_CODE if in_code else LINE_START
        line_start = LINE_START if self.phase == INDENT and not self._listed else 0
        return line_start | IN_CODE if self.fence or self._ticks or self._quoted else line_start

    def seek(self, text: str, at: int, end: int) -> int:
        """Move over `text` from `at` to the next character that may begin a marker; return its place, or `end`."""
        starts = self._starts
        while at < end:
            phase = self.phase
            if phase == BODY:
                search = self.search
                found = search(text, at, end)
                if found is None:
                    return end
                at = found.start()
                char = text[at]
                if char in starts.firsts and self._may_begin(text, at):
                    return at
                if char == "\n":  # as `step` would, and a line ends more often than anything else happens
                    self.end_line()
                    at += 1
                    continue
                if char == "`" and text[at + 1 : at + 2] not in ("", "`") and not (self.fence or self._quoted):
                    self._opening = 0  # as `step` would over a single one: code spans have little else
                    if self._ticks < 2:
                        self._ticks = 1 - self._ticks
                        self.search = starts.span_search if self._ticks else starts.text_search
                    at += 1
                    continue
            elif phase == INDENT:
                found = self._line_begin(text, at, end)
                if found is not None:
                    self.phase = BODY
                    at = found.end()
                    continue
                if starts.all(text, at):
                    return at
            elif phase == QUOTE:
                if starts.all(text, at):
                    return at
            elif phase in _BEHIND_CLOSING and text[at] == "\n" and starts.inline(text, at):
                return at
            at = self.step(text, at)
        return end

    def step(self, text: str, at: int) -> int:
        """Move over the character at `at`, or over none if it only ends a phase; return the place behind."""
        char = text[at]
        phase = self.phase
        if phase == BODY:
            if char == "\n":
                self.end_line()
            elif char == "`" and not (self.fence or self._quoted):
                self._run = 0
                return self._step_over_ticks(text, at)
            elif char == "\\" and not (self.fence or self._quoted or self._ticks):
                self.phase = ESCAPE
            return at + 1
        if phase == INDENT:
            if char not in STRUCTURE:
                self.phase = BODY
                return at + 1
            if char == " ":
                behind = self._starts.indentation(text, at).end()
                self._column += behind - at
                return behind
            if char == "`" and not self.fence:
                self._run, self._opening = 0, -1
                return self._step_over_ticks(text, at)
            return at + self._read_indent(char)
        if phase == TICKS and char == "`":
            return self._step_over_ticks(text, at)
        return at + _READ[phase](self, char)

    def _step_over_ticks(self, text: str, at: int) -> int:
        behind = _run_of_ticks(text, at).end()
        self._run += behind - at
        self.phase = TICKS
        if behind < len(text):  # no more of them come
            self._read_ticks(text[behind])
        return behind

    def end_line(self) -> None:
        """Move over the end of a line."""
        self.phase = INDENT
        if self._quoted or self._ticks or self._opening:
            if self._opening > 0:
                self.fence, self._fence_run, self._fence_column = "`", self._opening, self._column
            self._quoted = False
            self._ticks = self._opening = 0
            self._choose()
        self._column = 0
        self._listed = False

    def _choose(self) -> None:
        starts = self._starts
        if self.fence:
            self.search, self._line_begin = starts.fence_search, starts.fence_line_begin
            self._may_begin = starts.in_code  # with a line feed, too: the next line is in the fence as well
            return
        self._line_begin, self._may_begin = starts.line_begin, starts.inline
        if self._quoted:
            self.search = starts.quote_search
        else:
            self.search = starts.span_search if self._ticks else starts.text_search

    def _read_indent(self, char: str) -> bool:
        if char == "\t":
            self._column += 4 - self._column % 4
        elif char == "\n":
            self.end_line()
        elif self.fence:
            if char != self.fence or self._column > self._fence_column + 3:
                self.phase = BODY  # and its first character is read: what begins there has been looked for
                return True
            self.phase, self._run = CLOSING, 1
        elif char == "~":
            self.phase, self._run = TILDES, 1
        elif char == ">":
            self.phase, self._quoted = QUOTE, True
            self._choose()
        elif char in "-*+":
            self.phase = BULLET
        elif char in _DIGITS:
            self.phase, self._digits = ORDINAL, 1
        else:
            self.phase = BODY  # at a back-slash, which is read there
            return False
        return True

    def _read_run(self, char: str) -> bool:
        if char in _RUNS[self.phase]:
            return True
        self.phase = BODY
        return False

    def _read_ticks(self, char: str) -> bool:
        run = self._run
        self._opening = run if self._opening < 0 and run >= 3 else 0
        if not self._ticks:
            self._ticks = run
        elif self._ticks == run:
            self._ticks = 0
        self.phase = BODY
        self._choose()
        return False

    def _read_escape(self, char: str) -> bool:
        self.phase = ESCAPED if char == "`" else BODY
        return char in "`\\"

    def _read_list_marker(self, char: str) -> bool:
        if self.phase == ORDINAL:
            if char in _DIGITS and self._digits < 9:
                self._digits += 1
                return True
            if char in ".)":
                self._column += self._digits
                self.phase = DELIMITER
                return True
        elif char in " \t\n":
            self._column += 1
            self._listed = True
            self.phase = INDENT
            return False
        self.phase = BODY
        return False

    def _read_tildes(self, char: str) -> bool:
        if char == "~":
            self._run += 1
            return True
        if self._run >= 3:
            self.fence, self._fence_run, self._fence_column = "~", self._run, self._column
            self._choose()
        self.phase = BODY
        return False

    def _read_closing(self, char: str) -> bool:
        if self.phase == CLOSING:
            if char == self.fence:
                self._run += 1
                return True
            self.phase = CLOSED if self._run >= self._fence_run else BODY
            return False
        if char == "\n":
            self.fence = ""
            self._choose()
            self.end_line()
            return True
        if self.phase == CLOSED and char in " \t\r":
            self.phase = CLOSED_CR if char == "\r" else CLOSED
            return True
        self.phase = BODY
        return False


_RUNS = {ESCAPED: "`", QUOTE: " \t>"}
"""The characters that leave a phase as it is, where any other is the text of the line."""

_READ = {
    ESCAPE: Markdown._read_escape,
    ESCAPED: Markdown._read_run,
    TICKS: Markdown._read_ticks,
    BULLET: Markdown._read_list_marker,
    ORDINAL: Markdown._read_list_marker,
    DELIMITER: Markdown._read_list_marker,
    TILDES: Markdown._read_tildes,
    CLOSING: Markdown._read_closing,
    CLOSED: Markdown._read_closing,
    CLOSED_CR: Markdown._read_closing,
    QUOTE: Markdown._read_run,
}
