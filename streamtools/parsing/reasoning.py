"""Reasoning: the text between tags such as `<think>` and `</think>`.

Calls in reasoning are not executed, because models rehearse calls there, and may then decide against them. If the
reasoning holds a call, one warning at the end of the reasoning reports it. The warning helps to find models that write
calls in the wrong place.

A call at the end of a message is an exception, because models forget the closing tag before a call. `CallRun` reads a
run, which is a sequence of calls in reasoning. The text after the run decides. If more reasoning or the closing tag
follows, the calls were rehearsed, and their text is reasoning. If the message ends after the run, the calls are real:
the parser reads them again as text after the reasoning. Until this is decided, no event reports the calls.

A run has at most `Limits.call` characters. The closing tag also ends a run inside an unfinished call, because that call
must not hide the answer. A closing tag inside a JSON string is text, if the model completes that JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

from streamtools.errors import Code
from streamtools.events import Markup, Reasoning, UIEvent, Warning
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Opener, Tag
from streamtools.parsing.json_scanner import JsonScanner
from streamtools.parsing.markers import Group, Marker, Markers, OneOf, Pattern
from streamtools.parsing.reader import always, matcher, not_white_space
from streamtools.parsing.span import Span

_MAX_CLOSING = 64  # the maximum number of characters of an incomplete closing tag
_indent = matcher(r"(?:\n[ \t]+)?")


RunMarkers: TypeAlias = Sequence[tuple[Marker, Opener | Tag]]
"""The markers in a run: tags of the chat template, some of which end the message, then the openers of calls."""


TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
}
"""The default opening tags of reasoning, and the closing tag of each."""


class ReasoningTags:
    """The opening tags of reasoning. Each tag has a `ReasoningEnd`, which finds the end of the reasoning after it."""

    def __init__(self, run: RunMarkers, dialect_tags: Mapping[Tag, bool]) -> None:
        """`run` holds the markers that may occur in a run of calls.

        `dialect_tags` maps each opening tag of a dialect to True if a space may precede the tag. Tags with
        `where="start"` are matched here, like the default tags. `DialectSet` matches the others. Reasoning that the
        prompt template has opened may end with any of the closing tags.

        A default closing tag in the position of an opening tag is hidden. The template may have opened the reasoning,
        or a call may have ended the reasoning early.
        """
        self._run = run
        at_start = [tag for tag in dialect_tags if tag.where == "start"]
        # The tags that a prompt template may have opened.
        prefilled = [*at_start, *(tag for tag in dialect_tags if tag.where != "start")]
        self.firsts = "".join(sorted({*(opening[0] for opening in TAGS), *(tag.marker.first for tag in at_start)}))
        ends = {tag: self.find_end(tag.ends, tag.before) for tag in at_start}
        begun: list[tuple[Marker, ReasoningEnd | None]] = [
            *((Marker((opening,)), self.find_end([Marker((closing,))])) for opening, closing in TAGS.items()),
            *((tag.marker, end) for tag, end in ends.items()),
        ]
        spaced = [(tag.marker.after_space(" "), end) for tag, end in ends.items() if dialect_tags[tag]]
        strays = [(Marker((closing,)), None) for closing in TAGS.values()]  # closing tags without an opening tag
        self._tags, self._spaced = Markers(begun), Markers[ReasoningEnd | None](spaced)
        self._tags_and_strays = Markers([*begun, *strays])
        self.any_closing = self.find_end(
            [*(Marker((closing,)) for closing in TAGS.values()), *(end for tag in prefilled for end in tag.ends)],
            [before for tag in prefilled for before in tag.before],
            Pattern(OneOf((*TAGS, *(str(tag.parts[0]) for tag in prefilled if len(tag.parts + tag.ahead) == 1)))),
        )

    def find_end(
        self, tags: Sequence[Marker], before: Iterable[str] = (), opening: Pattern | None = None
    ) -> ReasoningEnd:
        """Return a `ReasoningEnd` for the closing `tags`. The other parameters are those of `ReasoningEnd`."""
        return ReasoningEnd(tags, [Marker((text,)) for text in before], self._run, opening)

    def match(
        self, text: str, at: int, ended: bool, *, strays: bool
    ) -> tuple[ReasoningEnd | None, int] | Literal[False] | None:
        """Return the `ReasoningEnd` of the tag at index `at`, and the end of the tag. A space may belong to the tag.

        Returns None if more text is needed to decide, and False if there is no tag. With `strays`, closing tags are
        also recognized, and their `ReasoningEnd` is None.
        """
        if at == len(text):
            return False if ended else None
        tags = self._spaced if text[at] == " " else self._tags_and_strays if strays else self._tags
        return tags.match(text, at, ended)


class ReasoningEnd:
    """Finds the end of a section of reasoning, and the calls in it. Patterns are compiled on first use."""

    def __init__(
        self, tags: Sequence[Marker], before: Sequence[Marker], run: RunMarkers, opening: Pattern | None = None
    ) -> None:
        """`tags` are the closing tags, which are hidden. The reasoning also ends before one of the texts `before`.

        `run` holds the markers that may occur in a run of calls. `opening` is the opening tag that a model may repeat,
        if the template has already written it.
        """
        self.opening = opening
        # The shortest tag is first. So a tag is matched as soon as it is complete.
        self._tags = sorted(set(tags), key=lambda tag: len(tag.parts_pattern()))
        self._before = list(dict.fromkeys(before))
        self._run = run
        self._run_openers = list(dict.fromkeys(marker for marker, owner in run if not isinstance(owner, Tag)))
        self._ends_before = [*self._before, *self._run_openers]
        self._firsts = {"\n", *(marker.first for marker in (*self._tags, *self._ends_before))}

    @cached_property
    def run(self) -> Markers[Opener | Tag]:
        """Finds the markers of a run."""
        return Markers(self._run)

    @cached_property
    def tags(self) -> re.Pattern[str]:
        """Finds a closing tag."""
        return re.compile("|".join(tag.parts_pattern() for tag in self._tags) or "(?!)")

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Finds an end of the reasoning, or an incomplete end at the end of the text.

        The groups are: 1 for a closing tag, 2 for one of the texts `before`, 3 for a call.
        """
        whole = rf"\n?(?:{self.tags.pattern})"
        begun = "|".join(
            [
                rf"\n?(?:{'|'.join(tag.begun_pattern() for tag in self._tags)})",
                "\n",
                *(marker.begun_pattern() for marker in self._ends_before),
            ]
        )
        ahead = "|".join(marker.search_pattern() for marker in self._before) or "(?!)"
        calling = "|".join(marker.search_pattern() for marker in self._run_openers) or "(?!)"
        # The lookahead at the beginning is a fast path: with most characters, no end begins.
        begins = "[" + re.escape("".join(sorted(self._firsts))) + "]"
        return re.compile(rf"(?={begins})(?:({whole})|(?=({ahead}))|(?=({calling}))|(?:{begun})\Z)").search

    @cached_property
    def find_start(self) -> Callable[[str], object]:
        """Finds a character with which an end of the reasoning may begin."""
        return re.compile("[" + re.escape("".join(sorted(self._firsts))) + "]").search

    def ends_in_call_marker(self, text: str, at: int) -> bool:
        """Return whether the end of the text cuts off a call's marker at `at`. The tag of the marker is complete."""
        possible = self.run.find(text, at, False)
        return isinstance(possible, Group) and possible.cut(text, at) is not None


class ReasoningText:
    """Reads reasoning from the end of its opening tag to its closing tag."""

    def __init__(
        self, closing: ReasoningEnd, output: CallEvents, declared: Declared, *, keep_markup: bool, opened: bool
    ) -> None:
        """Begin after the opening tag. With `opened=False`, the prompt template wrote that tag, not the model."""
        self._closing = closing
        self._declared = declared
        self._call_run: CallRun | None = None
        self._rehearsed = False  # whether a run of calls turned out to be reasoning
        self._output = output
        self._keep_markup = keep_markup
        self.pending = ""  # text that may still become an end of the reasoning
        self._last = ""  # the last character that was shown
        self._after_opening = opened  # whether the next line feed belongs to the opening tag
        self._opening = closing.opening  # an opening tag that the model may repeat now; it is then hidden

    @property
    def find_change(self) -> Callable[[str], object]:
        """A search that returns None for text that `skim` may show."""
        return always if self._after_opening or self._opening or self._call_run else self._closing.find_start

    def skim(self, text: str) -> list[UIEvent]:
        """Fast path for `read`: show text that holds no part of an end or of a call."""
        self._last = text[-1]
        return [Reasoning(text)]

    def lose(self) -> None:
        """Record that part of the text was lost at this position."""
        if self._call_run is not None:
            self._call_run.lose()

    def read(self, delta: str, ended: bool) -> str | None:
        """Read text. Returns the text after the reasoning, or None if the reasoning continues."""
        while True:
            run = self._call_run
            if run is None:
                rest = self._read(delta, ended)
                run = self._call_run
                if run is None:
                    return rest
                delta = rest or ""
            verdict = run.read(delta, ended)
            if verdict is None:
                return None
            self._call_run = None
            if verdict:
                return run.text + run.rest
            self._rehearsed = True
            text = run.text.removesuffix("\n")  # the line feed may belong to the closing tag
            if text:
                self._output.events += self.skim(text)
            delta = run.text[len(text) :] + run.rest

    def _read(self, delta: str, ended: bool) -> str | None:
        """Read text up to an end of the reasoning. Returns None if no end was found.

        After a closing tag, returns the text after the tag. At any other end, returns the text from that end on.
        """
        text, pending, rest = self.pending + delta, "", None
        if self._opening is not None:
            tag_end = self._opening.match(text, 0, ended)
            if tag_end is None:
                self.pending = text
                return None
            self._opening, self._after_opening = None, tag_end is not False
            if tag_end and self._keep_markup:
                self._output.add(Markup, text[:tag_end])
            text = text[tag_end or 0 :]
        if self._after_opening and text:
            self._after_opening = False
            if text[0] == "\n":
                text = text[1:]
                if self._keep_markup:
                    self._output.add(Markup, "\n")
        last = self._last  # some markers are not recognized after certain characters
        found = self._closing.search(last + text, len(last))
        begin = found.start() - len(last) if found else len(text)
        if found and found.lastindex:
            rest = text[found.end() - len(last) :]
            if found.lastindex == 3:
                begin = _indent(text, begin).end()
                rest = text[begin:]
                self._call_run = CallRun(self._closing, self._output, self._declared)
        elif not ended:
            pending = text[begin:]
        elif found and self._closing.ends_in_call_marker(text, begin):  # the message ends inside a call
            begin = _indent(text, begin).end()
            rest = text[begin:]
        shown = text[:begin] if rest is not None or pending else text
        if shown:
            self._output.events += self.skim(shown)
        if found and found[1] and self._keep_markup:
            self._output.add(Markup, found[1])
        self.pending = pending
        return rest

    def close(self) -> None:
        """End the reasoning. If it holds a call, add a warning."""
        if self._rehearsed:
            message = "the reasoning contains text that would be a call outside of it"
            self._output.add(Warning, Code.CALL_IN_REASONING, message)


class CallRun:
    """Reads a run of calls in reasoning, from its first marker on. The module docstring describes a run."""

    def __init__(self, end: ReasoningEnd, output: CallEvents, declared: Declared) -> None:
        """Begin a run. `end` is the end of the reasoning."""
        self._markers, self._closing, self._find_end = end.run, end.tags, end.search
        self._turn_ended = False  # whether a token that ends the message follows the calls
        self._before = ""  # the last characters of the call's text, in which a closing tag may begin
        # The scanner of JSON that has a closing tag in a string, and the position of this tag.
        self._tag: tuple[JsonScanner, int] | None = None
        self._output = CallEvents(output.options)  # receives the events of the run; these are dropped
        self._declared = declared
        self._limit = output.options.limits.call
        self._parts: list[str] = []  # the text of the run that was read, in pieces
        self._length = 0
        self._span: Span | None = None
        self._body: Iterator[None] = iter(())
        self._lost = False
        self.rest = ""
        """The unread text. Before the verdict, it may become the next marker. After the verdict, it follows the run."""

    @property
    def text(self) -> str:
        """The text of the run that has been read."""
        return "".join(self._parts)

    def lose(self) -> None:
        """Record that part of the text was lost at this position. So no call of the run is executed."""
        self._lost = True

    def read(self, text: str, ended: bool) -> bool | None:
        """Read text. Returns True if the run consists of real calls, and False if its text is reasoning.

        Returns None if more text is needed to decide.
        """
        room = self._limit - self._length - len(self.rest)
        if len(text) > room:
            verdict = self._read(text[: room + 1], False)
            if verdict is None:
                self._take(self.rest)
                verdict = False
                self.rest = ""
            self.rest += text[room + 1 :]
        else:
            verdict = self._read(text, ended)
        return False if self._lost and verdict is not None else verdict

    def _read(self, text: str, ended: bool) -> bool | None:
        while True:
            if self._span is not None:
                verdict, text = self._read_call(self._span, text, ended)
                if verdict is not None:
                    return verdict
                if self._span is not None:
                    return True if ended else None
            text, self.rest = self.rest + text, ""
            found = not_white_space(text)
            begin = found.start() if found else len(text)
            self._take(text[:begin])
            text = text[begin:]
            if not text:
                return True if ended else None
            mark = self._markers.find(text, 0, ended)
            if isinstance(mark, Group) or not mark:
                self.rest = text
                if ended and isinstance(self._markers.find(text, 0, False), Group):
                    return True  # the message ends inside the next marker
                if mark:
                    return None
                found = self._find_end(text) if self._turn_ended else None
                if self._turn_ended and (found is None or found.start()):
                    return True
                return None if found and not (ended or found.lastindex) else False
            meaning, end = mark
            if isinstance(meaning, Tag) and (found := self._find_end(text)) and not found.start():
                ends = found.lastindex == 1 or (found.lastindex == 2 and not meaning.ends_turn)
                if ends:  # a tag of the chat template that also ends the reasoning
                    self.rest = text
                    return False
            self._take(text[:end])
            if isinstance(meaning, Opener):
                self._before, self._tag = "", None
                self._span = Span(text[:end], None, self._output, self._declared, bool)
                self._body = meaning.body(self._span)
            elif meaning.ends_turn:
                self._turn_ended = True
            text = text[end:]

    def _read_call(self, span: Span, text: str, ended: bool) -> tuple[bool | None, str]:
        """Read text of a call. Returns a verdict, as `CallRun.read` does, and the text after the call.

        The verdict is False if a closing tag ends the reasoning inside the call, otherwise None.
        """
        while found := self._closing.search(self._before + text):
            end = found.end() - len(self._before)
            rest = self._feed(span, text[:end], False) + text[end:]
            tag = self._length - len(found[0])
            tag_position = self._tag_in_broken_json(span)
            if tag_position is not None:
                return self._end_at(tag_position, rest), ""
            if self._span is None:
                return None, rest
            if span.open_json is None or not span.open_json.in_string:
                return self._end_at(tag, rest), ""
            if self._tag is None or self._tag[0] is not span.open_json:
                self._tag = span.open_json, tag
            self._before, text = "", rest
        self._before = (self._before + text)[-_MAX_CLOSING:]
        rest = self._feed(span, text, ended)
        tag_position = self._tag_in_broken_json(span)
        return (None, rest) if tag_position is None else (self._end_at(tag_position, rest), "")

    def _tag_in_broken_json(self, span: Span) -> int | None:
        """Return the position of a closing tag in a JSON string, if the JSON around it was not completed.

        That tag ends the reasoning. Returns None if there is no such tag.
        """
        json, position = self._tag or (None, 0)
        return position if json is not None and json is not span.open_json and (json.in_string or json.depth) else None

    def _end_at(self, position: int, rest: str) -> bool:
        """End the run before the closing tag at `position`. Returns False, because the run is reasoning.

        The text from `position` on becomes unread.
        """
        self.rest = self.text[position:] + rest
        self._remove_last(self._length - position)
        return False

    def _feed(self, span: Span, text: str, ended: bool) -> str:
        """Read text of a call with its grammar. Returns the text after the call."""
        span.ended = ended
        self._output.events = []
        continues = span.read(text, self._body)
        rest = "" if continues else span.text[span.at :] + span.rest
        self._take(text)
        if not continues:
            self._span = None
            self._remove_last(len(rest))
        return rest

    def _remove_last(self, count: int) -> None:
        """Remove the last `count` characters from the text of the run that has been read."""
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
