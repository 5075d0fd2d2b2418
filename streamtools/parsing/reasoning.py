"""Reasoning: the text between tags such as `<think>` and `</think>`.

Calls in reasoning do not count, because models rehearse calls there that they then decide not to make. An exception are
the dialects whose models forget the closing tag. If the reasoning holds a call, one warning at its end says so. It
shows that a model puts its calls in the wrong place.

A run of such calls is read by `CallRun`, and the text after it decides. If more reasoning or the closing tag follows,
the calls were rehearsed, and their text is reasoning. If the message ends, they are calls, and the parser reads them
again as text after the reasoning. Until then no event reports them. A run is at most as long as one call may be. The
closing tag ends it inside a call too, because an unfinished call must not hide the answer. Inside a JSON string the tag
is text, if that JSON is completed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal

from streamtools.errors import Code
from streamtools.events import Markup, Reasoning, UIEvent, Warning
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Opener, Tag
from streamtools.parsing.json_scanner import JsonScanner
from streamtools.parsing.markers import Group, Marker, Markers, OneOf, Pattern, Search, any_partial, beginning
from streamtools.parsing.reader import always, not_white_space
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


TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
}
"""The default opening tags, and their closing tags."""

_INDENT = r"^[ \t]{0,32}"


class ReasoningTags:
    """The opening tags of reasoning, and how the reasoning after each of them ends."""

    def __init__(self, calls: Iterable[Marker], run: CallRunMarkers, dialect_tags: Mapping[Tag, bool]) -> None:
        """Configure the markers of `calls`, and of calls in reasoning that may count, and the tags of dialects.

        A dialect's tags for the start of a message count where the default tags do. If the value in `dialect_tags` is
        True, they also count with a space before them. The others count in other places. Their closing tags matter here
        if the prompt template wrote the opening tag.

        A closing tag in the place of an opening tag is hidden: the template had opened it, or a call ended it early.
        """
        self._calls, self._run = list(calls), run
        own = [tag for tag in dialect_tags if tag.where == "start"]
        prefilled = [*own, *(tag for tag in dialect_tags if tag.where != "start")]
        self.firsts = "".join(sorted({*(opening[0] for opening in TAGS), *(tag.marker.first for tag in own)}))
        ends = {tag: self.closing(tag.closings, tag.before) for tag in own}
        self._tags: list[tuple[Pattern, ReasoningEnd | None]] = [
            *((Pattern(opening), self.closing([closing])) for opening, closing in TAGS.items()),
            *((Pattern(*tag.parts), end) for tag, end in ends.items()),
        ]
        self._spaced = [(Pattern(" ", *tag.parts), end) for tag, end in ends.items() if dialect_tags[tag]]
        self._strays = [(Pattern(closing), None) for closing in TAGS.values()]
        self.any_closing = self.closing(
            [*TAGS.values(), *(closing for tag in prefilled for closing in tag.closings)],
            [before for tag in prefilled for before in tag.before],
            Pattern(OneOf((*TAGS, *(str(tag.parts[0]) for tag in prefilled if len(tag.parts) == 1)))),
        )

    @cached_property
    def _begins(self) -> Search:
        """Matches where one of the tags stands or may still stand."""
        tags = (*self._tags, *self._strays, *self._spaced)
        return re.compile(any_partial([pattern.parts for pattern, _ in tags])).match

    def closing(self, tags: Sequence[str], before: Iterable[str] = (), opening: Pattern | None = None) -> ReasoningEnd:
        """Return the end of reasoning at one of `tags`, or before one of the texts `before`."""
        return ReasoningEnd(tags, self._calls, [Marker((text,)) for text in before], self._run, opening)

    def at(
        self, text: str, at: int, ended: bool, *, strays: bool
    ) -> tuple[int, ReasoningEnd | None] | Literal[False] | None:
        """Return where the tag at this place ends, and its closing; None if one may still stand here, False if not.

        With `strays`, closing tags count too, and their closing is None. A space may belong to the tag after it.
        """
        if not ended and at < len(text) and self._begins(text, at) is None:  # saves a dozen searches
            return False
        undecided = False
        tags = self._spaced if text[at : at + 1] == " " else (*self._tags, *self._strays) if strays else self._tags
        for pattern, closing in tags:
            found = pattern.match(text, at, ended)
            if found:
                return found, closing
            undecided = undecided or found is None
        return None if undecided else False


class ReasoningEnd:
    """The end of a section of reasoning, and the markers of calls in it. Patterns are compiled on first use."""

    def __init__(
        self,
        tags: Sequence[str],
        calls: Sequence[Marker],
        before: Sequence[Marker],
        run: CallRunMarkers,
        opening: Pattern | None = None,
    ) -> None:
        """`tags` end it and are hidden. `before` end it and are read again. `calls` are reported, `run` may count.

        If the template has written the opening tag, the model may repeat it: `opening`.
        """
        self.opening = opening
        self._tags = sorted(set(tags), key=len)  # of two tags at one place, the one that is complete first
        self._calls, self._before, self._run = calls, list(dict.fromkeys(before)), run
        self._rehearsed = list(dict.fromkeys(marker for marker, _ in run.openers))
        self._enders = [*self._before, *self._rehearsed]
        self._firsts = {"\n", *(tag[0] for tag in self._tags), *(marker.first for marker in self._enders)}

    @cached_property
    def run(self) -> Markers[Opener | Tag]:
        """Finds calls that may count."""
        return self._run.compile()

    @cached_property
    def tags(self) -> re.Pattern[str]:
        """Finds a tag that ends it."""
        return re.compile("|".join(map(re.escape, self._tags)) or "(?!)")

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Finds an end: a tag (group 1), text that is read again (2), a call that may count (3), or their beginning."""
        whole = rf"\n?(?:{'|'.join(map(re.escape, self._tags))})"
        begun = "|".join(
            [
                rf"\n?(?:{'|'.join(map(beginning, self._tags))})",
                "\n",
                *(marker.begun_pattern() for marker in self._enders),
            ]
        )
        ahead, calling = (
            "|".join(marker.search_pattern() for marker in markers) or "(?!)"
            for markers in (self._before, self._rehearsed)
        )
        return re.compile(f"({whole})|(?=({ahead}))|(?=({calling}))|(?:{begun})\\Z").search

    @cached_property
    def watch(self) -> CallSearch | None:
        """Finds text that would be a call outside of reasoning."""
        watched = [marker for marker in self._calls if marker not in self._enders]
        return CallSearch(watched) if watched else None

    @cached_property
    def leaves(self) -> Callable[[str], object]:
        """Finds the first character of an end."""
        return _leaves(self._firsts)

    @cached_property
    def leaves_watching(self) -> Callable[[str], object]:
        """Finds the first character of an end or of a call."""
        return self.leaves if self.watch is None else _leaves(self._firsts | self.watch.firsts)

    def cuts(self, text: str, at: int) -> bool:
        """Return whether the text ends inside a call that may count, after its complete tag."""
        awaited = self.run.find(text, at, False)
        return isinstance(awaited, Group) and awaited.cut(text, at) is not None


class CallSearch:
    """A search for text that would be a call outside of reasoning. It works piece by piece."""

    def __init__(self, markers: Sequence[Marker]) -> None:
        complete = "|".join(marker.search_pattern() for marker in markers)
        lines = [marker for marker in markers if marker.where == "line_start"]
        begun = [marker.begun_pattern() for marker in markers if marker not in lines]
        begun += [f"{_INDENT}(?:{marker.begun_pattern()})" for marker in lines]
        self.firsts = {marker.first for marker in markers}
        """The first characters of such text, or of the white space before it."""
        begins = "[" + re.escape("".join(sorted(self.firsts))) + "]"
        if lines:
            begun.append(_INDENT)
            self.firsts.add("\n")
        self.search = re.compile(f"(?={begins}|^)(?:({complete})|(?:{'|'.join(begun)})\\Z)", re.MULTILINE).search
        self.complete = re.compile(complete, re.MULTILINE).search


def _leaves(characters: set[str]) -> Callable[[str], object]:
    return re.compile("[" + re.escape("".join(sorted(characters))) + "]").search


class ReasoningText:
    """Reads reasoning from the end of its opening tag to its closing tag."""

    def __init__(
        self, closing: ReasoningEnd, output: CallEvents, declared: Declared, *, keep_markup: bool, opened: bool
    ) -> None:
        """Begin after the opening tag. If it was not `opened` by the model, the template has written the tag."""
        self._closing = closing
        self._declared = declared
        self._call_run: CallRun | None = None
        self._rehearsed = False  # calls turned out to be rehearsed
        self._output = output
        self._keep_markup = keep_markup
        self.pending = ""  # text that may still become an end
        self._last = ""  # the last character that was shown
        self._watch = closing.watch  # None after a call was found
        self._seen = "\n"  # text that may still become a call, and the character before it
        self._opened = opened  # a line feed now belongs to the opening tag
        self._opening = closing.opening  # a repeated opening tag is hidden
        skims = self._watch is None and not opened and self._opening is None
        self.leaves: Callable[[str], object] = closing.leaves if skims else always
        """Finds nothing in text that `skim` accepts."""

    def skim(self, text: str) -> list[UIEvent]:
        """Show text in which no end and no call begins or ends."""
        self._last = self._seen = text[-1]
        return [Reasoning(text)]

    def lose(self) -> None:
        """Mark a gap: a part of the text is missing here."""
        if self._call_run is not None:
            self._call_run.lose()

    def read(self, delta: str, ended: bool) -> str | None:
        """Read text. Returns the text after the reasoning, or None if it has not ended."""
        while True:
            run = self._call_run
            if run is None:
                rest = self._read(delta, ended)
                run = self._current_run()
                if run is None:
                    return rest
                delta = rest or ""
            verdict = run.read(delta, ended)
            if verdict is None:
                return None
            self._call_run, self.leaves = None, self._leaves
            if verdict is RunVerdict.CALLS:
                return run.text + run.rest
            self._rehearsed = True
            text = run.text.removesuffix("\n")  # which may belong to the closing tag
            self._show(text)
            delta = run.text[len(text) :] + run.rest

    def _current_run(self) -> CallRun | None:
        return self._call_run

    def _show(self, text: str) -> None:
        seen = self._watch_for_calls(self._watch, self._seen + text) if self._watch is not None else ""
        self._output.events += self.skim(text)
        self._seen = seen

    def _read(self, delta: str, ended: bool) -> str | None:
        """Read text. Returns the text after the closing tag, or from a run of calls on, or None."""
        text, pending, rest = self.pending + delta, "", None
        if self._opening is not None:
            tag_end = self._opening.match(text, 0, ended)
            if tag_end is None:
                self.pending = text
                return None
            self._opening, self._opened = None, tag_end is not False
            self.leaves = self._closing.leaves if self._watch is None and not tag_end else always
            if tag_end and self._keep_markup:
                self._output.add(Markup, text[:tag_end])
            text = text[tag_end or 0 :]
        if self._opened and text:
            self._opened = False
            self.leaves = self._closing.leaves if self._watch is None else always
            if text[0] == "\n":
                text = text[1:]
                if self._keep_markup:
                    self._output.add(Markup, "\n")
        last = self._last  # some markers must not follow certain characters
        found = self._closing.search(last + text, len(last))
        begin = found.start() - len(last) if found else len(text)
        if found and found.lastindex:
            rest = text[found.end() - len(last) :]
            if found.lastindex == 3:
                self._call_run = CallRun(self._closing.run, self._closing.tags, self._output, self._declared)
        elif not ended:
            pending = text[begin:]
        elif found and self._closing.cuts(text, begin):  # the message ends inside a call
            rest = text[begin:]
        shown = text[:begin] if rest is not None or pending else text
        if shown:
            self._show(shown)
        if self._call_run is not None:
            self._leaves, self.leaves = self.leaves, always
        if found and found[1]:
            if found[1][0] == "\n":
                self._seen += "\n"  # it ends a line even though it is hidden
            if self._keep_markup:
                self._output.add(Markup, found[1])
        self.pending = pending
        return rest

    def close(self) -> None:
        """End the reasoning, and report the calls in it."""
        watch, alike = self._watch, self._closing.watch is not None
        if watch is not None:  # the text at the end may be a complete call
            alike = watch.complete(self._seen, 1) is not None
        if alike or self._rehearsed:
            message = "the reasoning holds what would be a call outside of it"
            self._output.add(Warning, Code.CALL_IN_REASONING, message)

    def _watch_for_calls(self, watch: CallSearch, text: str) -> str:
        """Search for a call after the first character. Returns text that may become one, with the character before."""
        found = watch.search(text, 1)
        begin = found.start() if found else len(text)
        if found is None:
            self.leaves = self._closing.leaves_watching
        elif found.lastindex is None:
            self.leaves = always
        else:
            self.leaves = self._closing.leaves
            self._watch = None
        return text[begin - 1 :]


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
