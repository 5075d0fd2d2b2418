"""Calls inside reasoning: the model rehearses them there, or it has forgotten to close its reasoning.

The text after a run of calls decides. If more reasoning or the closing tag follows, the calls were rehearsed, and their
text is reasoning. If the message ends, they are calls, and the parser reads them again as text after the reasoning.
Until then no event reports them.

A run is at most as long as one call may be. The closing tag ends the run inside a call too, because an unfinished call
must not hide the answer. Inside a JSON string the tag is text, if that JSON is completed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Opener, Tag
from streamtools.parsing.json_scanner import JsonScanner
from streamtools.parsing.markers import Group, Marker, Markers
from streamtools.parsing.reader import not_white_space
from streamtools.parsing.span import Span

_LONGEST_CLOSING = 64  # characters of a closing tag, except the last one


class RunVerdict(Enum):
    """Whether a run consists of calls that count, or of reasoning."""

    CALLS = "calls"
    REASONING = "reasoning"


@dataclass(frozen=True)
class CallRunMarkers:
    """The markers in a run: openers of calls, and tags of templates, some of which end the message."""

    openers: Sequence[tuple[Marker, Opener]]
    tags: Sequence[tuple[Marker, Tag]]

    def compile(self) -> Markers[Opener | Tag]:
        """Return the search for them."""
        return Markers[Opener | Tag]([*self.tags, *self.openers])


class CallRun:
    """Reads a run of calls in reasoning, from its first marker on."""

    def __init__(
        self, markers: Markers[Opener | Tag], closing: re.Pattern[str], output: CallEvents, declared: Declared
    ) -> None:
        """Begin a run. `closing` finds the tag that ends the reasoning."""
        self._markers = markers
        self._closing = closing
        self._before = ""  # the last characters of the call, in which the closing tag may begin
        self._tag: tuple[JsonScanner, int] | None = None  # a closing tag in a string: the scanner, and the tag's place
        self._output = CallEvents(output.options)  # these events are dropped
        self._declared = declared
        self._limit = output.options.limits.call
        self._parts: list[str] = []  # the text that was read
        self._length = 0
        self._span: Span | None = None
        self._body: Iterator[None] = iter(())
        self._lost = False
        self.rest = ""
        """Unread text: it may become the next call or, after the verdict, it follows the run."""

    @property
    def text(self) -> str:
        """The text of the run that was read."""
        return "".join(self._parts)

    def lose(self) -> None:
        """Mark a gap: a part of the text is missing here, so no call of the run may count."""
        self._lost = True

    def read(self, text: str, ended: bool) -> RunVerdict | None:
        """Read text. Returns the verdict when it is certain."""
        room = self._limit - self._length - len(self.rest)
        if len(text) > room:
            verdict = self._read(text[: room + 1], False)
            if verdict is None:
                self._take(self.rest)
                verdict = RunVerdict.REASONING
                self.rest = ""
            self.rest += text[room + 1 :]
        else:
            verdict = self._read(text, ended)
        return RunVerdict.REASONING if verdict and self._lost else verdict

    def _read(self, text: str, ended: bool) -> RunVerdict | None:
        while True:
            if self._span is not None:
                verdict, text = self._read_call(self._span, text, ended)
                if verdict is not None:
                    return verdict
                if self._span is not None:
                    return RunVerdict.CALLS if ended else None
            text, self.rest = self.rest + text, ""
            found = not_white_space(text)
            begin = found.start() if found else len(text)
            self._take(text[:begin])
            text = text[begin:]
            if not text:
                return RunVerdict.CALLS if ended else None
            mark = self._markers.find(text, 0, ended)
            if isinstance(mark, Group) or not mark:
                self.rest = text
                if ended and isinstance(self._markers.find(text, 0, False), Group):
                    return RunVerdict.CALLS  # the message ends inside the next marker
                return None if mark else RunVerdict.REASONING
            meaning, end = mark
            self._take(text[:end])
            if isinstance(meaning, Opener):
                self._before, self._tag = "", None
                self._span = Span(text[:end], None, self._output, self._declared, bool)
                self._body = meaning.body(self._span)
            elif meaning.ends_turn:
                self.rest = text[end:]
                return RunVerdict.CALLS
            text = text[end:]

    def _read_call(self, span: Span, text: str, ended: bool) -> tuple[RunVerdict | None, str]:
        """Read text of a call. Returns the verdict if the reasoning ends inside it, and the text after the call."""
        while found := self._closing.search(self._before + text):
            end = found.end() - len(self._before)
            rest = self._feed(span, text[:end], False) + text[end:]
            tag = self._length - len(found[0])
            lost = self._lost_tag(span)
            if lost is not None:
                return self._end_at(lost, rest), ""
            if self._span is None:
                return None, rest
            if span.scanner is None or not span.scanner.in_string:
                return self._end_at(tag, rest), ""
            if self._tag is None or self._tag[0] is not span.scanner:
                self._tag = span.scanner, tag
            self._before, text = "", rest
        self._before = (self._before + text)[-_LONGEST_CLOSING:]
        rest = self._feed(span, text, ended)
        lost = self._lost_tag(span)
        return (None, rest) if lost is None else (self._end_at(lost, rest), "")

    def _lost_tag(self, span: Span) -> int | None:
        """Return the place of a closing tag that ends the reasoning after all, because its JSON was not completed."""
        json, place = self._tag or (None, 0)
        return place if json is not None and json is not span.scanner and (json.in_string or json.depth) else None

    def _end_at(self, place: int, rest: str) -> RunVerdict:
        """End the reasoning before the closing tag at a place of the run. The text from there on is unread."""
        self.rest = self.text[place:] + rest
        self._give_back(self._length - place)
        return RunVerdict.REASONING

    def _feed(self, span: Span, text: str, ended: bool) -> str:
        """Let the grammar of a call read text. Returns the text after the call."""
        span.ended = ended
        self._output.events = []
        continues = span.read(text, self._body)
        rest = "" if continues else span.text[span.at :]
        self._take(text)
        if not continues:
            self._span = None
            self._give_back(len(rest))
        return rest

    def _give_back(self, count: int) -> None:
        """Remove the last characters from the text that was read."""
        self._length -= count
        while count > 0:
            last = self._parts.pop()
            if len(last) > count:
                self._parts.append(last[:-count])
            count -= len(last)

    def _take(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._length += len(text)
