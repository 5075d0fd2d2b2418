"""Markdown context: whether text is inside a code fence, a code span, or a quote.

Users ask models to explain the syntax of calls, and models quote calls in code. So the Markdown around a marker decides
whether the marker is a call. This module implements the necessary part of CommonMark, line by line and without
look-ahead. So Markdown never delays text: the state is stored, and the text is shown.

Each line passes through some of the phases below. It begins in `INDENT`, where indentation and list markers are read
one by one. It reaches `BODY` as soon as the kind of its block is known. In `BODY`, only line feeds, back-ticks,
back-slashes and the starts of markers matter. One regular expression finds the next of these characters. The
expressions of `MarkerStarts` skip lines that begin like ordinary text, with the same result as `step`.

Some rules are simpler than in CommonMark. Indentation alone is not code. A line without `>` ends a quote. A code span
ends with its line, and needs no closing back-ticks. A back-slash escapes a whole run of back-ticks. List markers are
recognized by their characters alone, without their context.
"""

from __future__ import annotations

from streamtools.parsing.marker_starts import STRUCTURE, MarkerStarts
from streamtools.parsing.markers import Search
from streamtools.parsing.reader import matcher

# The phases of a line. The characters that were read last decide the phase.
BODY = 0  # text of the line: the kind of its block is known
ESCAPE = 1  # an odd number of back-slashes: back-ticks after them open no code span
ESCAPED = 2  # back-ticks after an odd number of back-slashes
TICKS = 3  # a run of back-ticks, which may continue
INDENT = 4  # only indentation and list markers
BULLET = 5  # `-`, `*` or `+`: a list marker if white space follows
ORDINAL = 6  # up to nine digits
DELIMITER = 7  # `.` or `)` after digits: a list marker if white space follows
TILDES = 8  # a run of tildes at the start of the line: three or more open a fence
CLOSING = 9  # in a fence: a run of the fence character at the start of the line
CLOSED = 10  # in a fence: a run that is long enough to close the fence, and maybe white space
QUOTE = 11  # the `>` of a quote, and maybe spaces

# Kinds of positions, as bits.
LINE_START = 1  # only indentation precedes the position in its line, and no list marker
IN_CODE = 2  # the position is inside a fence, a code span or a quote

BEFORE_BODY = (INDENT, QUOTE)  # the line holds only indentation, list markers or the `>` of a quote
_DIGITS = frozenset("0123456789")
_run_of_ticks = matcher(r"`*")


class Markdown:
    """The Markdown context of the current position: the block and the code span around it.

    `seek` moves to the next position where a marker may begin. `step` moves over a character or run. `position_kind`
    returns the kind of the position. In `BODY`, `search` returns None for text that does not change the state.
    """

    search: Search

    def __init__(self, starts: MarkerStarts) -> None:
        self._starts = starts
        self.reset()

    def reset(self) -> None:
        """Begin a new text."""
        self.phase = INDENT
        self.fence = ""  # the character of the open fence; "" outside of a fence
        self._fence_length = 0  # how many of these characters opened the fence
        self._fence_column = 0  # the indentation of the fence
        # The number of back-ticks at the start of the line. They open a fence unless another back-tick follows in the
        # line. The number is -1 while they are read, and 0 if they open no fence.
        self._opening_ticks = 0
        self._run = 0  # the length of the current run of back-ticks or fence characters
        self._digits = 0  # how many digits an ordinal has
        self._column = 0  # the current column, while the indentation is read
        self._listed = False  # whether the line has list markers
        self._quoted = False  # whether the line is a quote
        self._span_ticks = 0  # how many back-ticks opened the current code span; 0 outside of a code span
        self._choose_searches()

    def position_kind(self, char: str) -> int:
        """Return the kind of the current position, a sum of bits. `char` is the next character.

        A line feed has the kind of the next line, because a marker may begin with the line feed.
        """
        if char == "\n":
            in_code = self.phase != CLOSED if self.fence else self._opening_ticks > 0
            return LINE_START | IN_CODE if in_code else LINE_START
        line_start = LINE_START if self.phase == INDENT and not self._listed else 0
        return line_start | IN_CODE if self.fence or self._span_ticks or self._quoted else line_start

    def seek(self, text: str, at: int, end: int) -> int:
        """Move over `text` from `at` to the next character that may begin a marker. Returns its index, or `end`."""
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
                if char == "\n":  # Fast path for `step`: line feeds are the most frequent change
                    self.end_line()
                    at += 1
                    continue
                if char == "`" and text[at + 1 : at + 2] not in ("", "`") and not (self.fence or self._quoted):
                    # Fast path for `step`: most code spans begin with a single back-tick. It saves 10 % of a code span.
                    self._opening_ticks = 0
                    if self._span_ticks < 2:
                        self._span_ticks = 1 - self._span_ticks
                        self.search = starts.span_search if self._span_ticks else starts.text_search
                    at += 1
                    continue
            elif phase == INDENT:
                found = self._line_begin(text, at, end)
                if found is not None:
                    self.phase = BODY
                    at = found.end()
                    continue
                if starts.match_at_line_start(text, at):
                    return at
            elif phase == QUOTE:
                if starts.match_at_line_start(text, at):
                    return at
            elif phase == CLOSED and text[at] == "\n" and starts.match_inline(text, at):
                return at
            at = self.step(text, at)
        return end

    def step(self, text: str, at: int) -> int:
        """Move over a character, or a run of spaces or back-ticks, or only end the phase. Returns the next index."""
        char = text[at]
        phase = self.phase
        if phase == BODY:
            if char == "\n":
                self.end_line()
            elif char == "`" and not (self.fence or self._quoted):
                self._run = 0
                return self._step_over_ticks(text, at)
            elif char == "\\" and not (self.fence or self._quoted or self._span_ticks):
                self.phase = ESCAPE
            return at + 1
        if phase == INDENT:
            if char not in STRUCTURE:
                self.phase = BODY
                return at + 1
            if char == " ":
                end = self._starts.indentation(text, at).end()
                self._column += end - at
                return end
            if char == "`" and not self.fence:
                self._run, self._opening_ticks = 0, -1
                return self._step_over_ticks(text, at)
            return at + self._read_indent(char)
        if phase == TICKS and char == "`":
            return self._step_over_ticks(text, at)
        return at + _READ[phase](self, char)

    def _step_over_ticks(self, text: str, at: int) -> int:
        end = _run_of_ticks(text, at).end()
        self._run += end - at
        self.phase = TICKS
        if end < len(text):  # the run ends
            self._read_ticks(text[end])
        return end

    def end_line(self) -> None:
        """Move over the end of a line."""
        self.phase = INDENT
        if self._quoted or self._span_ticks or self._opening_ticks:
            if self._opening_ticks > 0:
                self.fence, self._fence_length, self._fence_column = "`", self._opening_ticks, self._column
            self._quoted = False
            self._span_ticks = self._opening_ticks = 0
            self._choose_searches()
        self._column = 0
        self._listed = False

    def _choose_searches(self) -> None:
        starts = self._starts
        if self.fence:
            self.search, self._line_begin = starts.fence_search, starts.fence_line_begin
            self._may_begin = starts.match_in_code  # a marker that begins with a line feed is in code too
            return
        self._line_begin, self._may_begin = starts.line_begin, starts.match_inline
        if self._quoted:
            self.search = starts.quote_search
        else:
            self.search = starts.span_search if self._span_ticks else starts.text_search

    # Each method below reads one character and returns True, or ends its phase before the character and returns False.

    def _read_indent(self, char: str) -> bool:
        if char == "\t":
            self._column += 4 - self._column % 4
        elif char == "\n":
            self.end_line()
        elif self.fence:
            if char != self.fence or self._column > self._fence_column + 3:
                self.phase = BODY  # `seek` has already searched for a marker at this character
                return True
            self.phase, self._run = CLOSING, 1
        elif char == "~":
            self.phase, self._run = TILDES, 1
        elif char == ">":
            self.phase, self._quoted = QUOTE, True
            self._choose_searches()
        elif char in "-*+":
            self.phase = BULLET
        elif char in _DIGITS:
            self.phase, self._digits = ORDINAL, 1
        else:
            self.phase = BODY  # the character is a back-slash, which the phase BODY reads
            return False
        return True

    def _read_run(self, char: str) -> bool:
        if char in _RUNS[self.phase]:
            return True
        self.phase = BODY
        return False

    def _read_ticks(self, char: str) -> bool:
        run = self._run
        self._opening_ticks = run if self._opening_ticks < 0 and run >= 3 else 0
        if not self._span_ticks:
            self._span_ticks = run
        elif self._span_ticks == run:
            self._span_ticks = 0
        self.phase = BODY
        self._choose_searches()
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
            self.fence, self._fence_length, self._fence_column = "~", self._run, self._column
            self._choose_searches()
        self.phase = BODY
        return False

    def _read_closing(self, char: str) -> bool:
        if self.phase == CLOSING:
            if char == self.fence:
                self._run += 1
                return True
            self.phase = CLOSED if self._run >= self._fence_length else BODY
            return False
        if char == "\n":
            self.fence = ""
            self._choose_searches()
            self.end_line()
            return True
        if char in " \t\r":
            return True
        self.phase = BODY
        return False


_RUNS = {ESCAPED: "`", QUOTE: " \t>"}
"""The characters that continue a phase. Any other character begins the phase BODY."""

# The method that reads a character in each phase. `step` itself reads BODY, INDENT, and back-ticks in TICKS.
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
    QUOTE: Markdown._read_run,
}
