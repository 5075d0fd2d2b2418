"""Calls inside reasoning: a model rehearses them there, or it has forgotten to close its reasoning.

What follows the last of a run of calls decides. More reasoning, or the closing tag: all of them were rehearsed, and
their text is reasoning. The end of the message: they are calls, and are read once more, as what stands behind the
reasoning. Until then nothing is told of them. A run is not longer than one call may be, and the closing tag ends it in
a call, too: one that was not written to its end must not swallow the answer. Only in a string of JSON it is text, if
that JSON comes to its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Opener, Tag
from streamtools.parsing.json_text import JsonText
from streamtools.parsing.markers import Group, Marker, Markers
from streamtools.parsing.reader import not_white_space
from streamtools.parsing.span import Span

_LONGEST_CLOSING = 64  # characters of a tag that ends reasoning, but for the last one


class Decision(Enum):
    """What a run of calls has turned out to be."""

    CALLS = "calls"
    THOUGHTS = "thoughts"


@dataclass(frozen=True)
class RunMarkers:
    """What a run is made of: calls, and tags of the templates, of which those that end a message end it."""

    openers: Sequence[tuple[Marker, Opener]]
    tags: Sequence[tuple[Marker, Tag]]

    def find(self) -> Markers[Opener | Tag]:
        """Return what finds them."""
        return Markers[Opener | Tag]([*self.tags, *self.openers])


class Rehearsal:
    """Reads a run from its first marker on."""

    def __init__(
        self, markers: Markers[Opener | Tag], closing: re.Pattern[str], output: CallEvents, declared: Declared
    ) -> None:
        """Begin a run that ends with what `closing` finds."""
        self._markers = markers
        self._closing = closing
        self._before = ""  # the last characters of the call, in which the closing tag may begin
        self._tag: tuple[JsonText, int] | None = None  # JSON with the closing tag in a string, and where that stands
        self._output = CallEvents(output.options)  # nobody reads it
        self._declared = declared
        self._most = output.options.limits.call
        self._parts: list[str] = []  # what has been read of the run
        self._length = 0
        self._span: Span | None = None
        self._body: Iterator[None] = iter(())
        self._lost = False
        self.rest = ""
        """What has come and is not read: it may become the next call, or, once it is decided, follows the run."""

    @property
    def text(self) -> str:
        """What has been read of the run."""
        return "".join(self._parts)

    def lose(self) -> None:
        """Mark a gap: a part of the text is missing here, so that nothing of the run may be a call."""
        self._lost = True

    def read(self, text: str, ended: bool) -> Decision | None:
        """Read on; return what the run is, once that is certain."""
        room = self._most - self._length - len(self.rest)
        if len(text) > room:
            decision = self._read(text[: room + 1], False)
            if decision is None:
                self._take(self.rest)
                decision = Decision.THOUGHTS
                self.rest = ""
            self.rest += text[room + 1 :]
        else:
            decision = self._read(text, ended)
        return Decision.THOUGHTS if decision and self._lost else decision

    def _read(self, text: str, ended: bool) -> Decision | None:
        while True:
            if self._span is not None:
                decision, text = self._read_span(self._span, text, ended)
                if decision is not None:
                    return decision
                if self._span is not None:
                    return Decision.CALLS if ended else None
            text, self.rest = self.rest + text, ""
            found = not_white_space(text)
            begin = found.start() if found else len(text)
            self._take(text[:begin])
            text = text[begin:]
            if not text:
                return Decision.CALLS if ended else None
            mark = self._markers.find(text, 0, ended)
            if isinstance(mark, Group) or not mark:
                self.rest = text
                if ended and isinstance(self._markers.find(text, 0, False), Group):
                    return Decision.CALLS  # the message ends in the next one
                return None if mark else Decision.THOUGHTS
            thing, end = mark
            self._take(text[:end])
            if isinstance(thing, Opener):
                self._before, self._tag = "", None
                self._span = Span(text[:end], None, self._output, self._declared, bool)
                self._body = thing.body(self._span)
            elif thing.ends_turn:
                self.rest = text[end:]
                return Decision.CALLS
            text = text[end:]

    def _read_span(self, span: Span, text: str, ended: bool) -> tuple[Decision | None, str]:
        """Read a call on; return what the run is, if the reasoning ends in it, and the text behind the call."""
        while found := self._closing.search(self._before + text):
            end = found.end() - len(self._before)
            behind = self._read_on(span, text[:end], False) + text[end:]
            tag = self._length - len(found[0])
            lost = self._lost_tag(span)
            if lost is not None:
                return self._end_at(lost, behind), ""
            if self._span is None:
                return None, behind
            if span.scanner is None or not span.scanner.in_string:
                return self._end_at(tag, behind), ""
            if self._tag is None or self._tag[0] is not span.scanner:
                self._tag = span.scanner, tag
            self._before, text = "", behind
        self._before = (self._before + text)[-_LONGEST_CLOSING:]
        behind = self._read_on(span, text, ended)
        lost = self._lost_tag(span)
        return (None, behind) if lost is None else (self._end_at(lost, behind), "")

    def _lost_tag(self, span: Span) -> int | None:
        """Return where the closing tag stands that ends the reasoning after all, since its string was none."""
        json, place = self._tag or (None, 0)
        return place if json is not None and json is not span.scanner and (json.in_string or json.depth) else None

    def _end_at(self, place: int, behind: str) -> Decision:
        """End the reasoning with the closing tag at a place of the run; all from there on is not read."""
        self.rest = self.text[place:] + behind
        self._give_back(self._length - place)
        return Decision.THOUGHTS

    def _read_on(self, span: Span, text: str, ended: bool) -> str:
        """Read a call on; return the text behind it."""
        span.ended = ended
        self._output.events = []
        goes_on = span.read(text, self._body)
        behind = "" if goes_on else span.text[span.at :]
        self._take(text)
        if not goes_on:
            self._span = None
            self._give_back(len(behind))
        return behind

    def _give_back(self, count: int) -> None:
        """Take the last characters off what has been read."""
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
