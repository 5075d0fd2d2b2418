"""What the model thinks before it answers: text between tags, in a channel of its own.

Reasoning yields no calls, because models rehearse there what they then decide not to do; only of some dialects, whose
models forget the closing tag, calls at the end of a message count (`rehearsal`). What would have been a call outside is
reported once, at the end of the reasoning, so that a model which puts its calls in the wrong place can be
distinguished from one that makes none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Literal

from streamtools.errors import Code
from streamtools.events import Markup, Reasoning, UIEvent, Warning
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Opener, Tag
from streamtools.parsing.markers import Group, Marker, Markers, OneOf, Pattern, Search, any_partial, beginning
from streamtools.parsing.reader import always
from streamtools.parsing.rehearsal import Decision, Rehearsal, RunMarkers

TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
}
"""The tags that are recognised by default, with what closes them."""

_INDENT = r"^[ \t]{0,32}"


class ReasoningTags:
    """The opening tags, what closes each of them, and what would be a call between them."""

    def __init__(
        self,
        tags: Mapping[str, str],
        calls: Iterable[Marker],
        run: RunMarkers,
        *,
        own: Iterable[Tag] = (),
        spaced: Iterable[Tag] = (),
        others: Iterable[Tag] = (),
    ) -> None:
        """Take the tags, the markers of calls, and what calls in reasoning are made of that may count.

        A dialect's `own` tags count where these tags do; some are `spaced`, with a space before them. The `others`
        count in places of their own, and are known here for what closes them: where the opening tag was not seen, any
        of them may have been the one.

        A closing tag where an opening one counts closes nothing that was seen: the template had opened it, or a call
        ended it early. It only goes away.
        """
        self._calls, self._run = list(calls), run
        own = list(own)
        self.firsts = "".join(sorted({*(opening[0] for opening in tags), *(tag.marker.first for tag in own)}))
        self._tags: list[tuple[Pattern, ReasoningEnd | None]] = [
            (Pattern(opening), self.closing([closing])) for opening, closing in tags.items()
        ]
        self._tags += [(Pattern(*tag.parts), self.closing(tag.closings, tag.before)) for tag in own]
        self._spaced = [(Pattern(" ", *tag.parts), self.closing(tag.closings, tag.before)) for tag in spaced]
        self._strays = [(Pattern(closing), None) for closing in tags.values()]
        prefilled = [*own, *others]
        self.any_closing = self.closing(
            [*tags.values(), *(closing for tag in prefilled for closing in tag.closings)],
            [before for tag in prefilled for before in tag.before],
            Pattern(OneOf((*tags, *(str(tag.parts[0]) for tag in prefilled if len(tag.parts) == 1)))),
        )

    @cached_property
    def _begins(self) -> Search:
        """Matches where any of the tags stands or may yet stand."""
        tags = (*self._tags, *self._strays, *self._spaced)
        return re.compile(any_partial([pattern.parts for pattern, _ in tags])).match

    def closing(self, tags: Sequence[str], before: Iterable[str] = (), opening: Pattern | None = None) -> ReasoningEnd:
        """Return how reasoning ends that one of `tags` ends, or what comes `before` something else."""
        return ReasoningEnd(tags, self._calls, [Marker((each,)) for each in before], self._run, opening)

    def at(
        self, text: str, at: int, ended: bool, *, strays: bool
    ) -> tuple[int, ReasoningEnd | None] | Literal[False] | None:
        """Return where the tag at this place ends, and what closes it; None if one may yet stand here, False if not.

        With `strays` it may be a closing tag, which nothing closes. A space may belong to a tag behind it.
        """
        if not ended and at < len(text) and self._begins(text, at) is None:  # a dozen searches less
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
    """How a section of reasoning ends, and what would be a call in it. Compiled when wanted: few messages think so."""

    def __init__(
        self,
        tags: Sequence[str],
        calls: Sequence[Marker],
        before: Sequence[Marker],
        run: RunMarkers,
        opening: Pattern | None = None,
    ) -> None:
        """Take what ends it and is hidden, what would be a call, what ends it and is read again, and calls in it.

        Where the template has put the opening tag, the model may write an `opening` one again.
        """
        self.opening = opening
        self._tags = sorted(set(tags), key=len)  # of two at one place the one that is complete first
        self._calls, self._before, self._run = calls, list(dict.fromkeys(before)), run
        self._rehearsed = list(dict.fromkeys(marker for marker, _ in run.openers))
        self._enders = [*self._before, *self._rehearsed]
        self._firsts = {"\n", *(tag[0] for tag in self._tags), *(marker.first for marker in self._enders)}

    @cached_property
    def run(self) -> Markers[Opener | Tag]:
        """What finds calls in it that may count."""
        return self._run.find()

    @cached_property
    def tags(self) -> re.Pattern[str]:
        """Finds a tag that ends it."""
        return re.compile("|".join(map(re.escape, self._tags)) or "(?!)")

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Finds what ends it: a tag, what is read again, what may be a call; or what one of them may begin with."""
        whole = rf"\n?(?:{'|'.join(map(re.escape, self._tags))})"
        begun = "|".join(
            [rf"\n?(?:{'|'.join(map(beginning, self._tags))})", "\n", *(each.begun_pattern() for each in self._enders)]
        )
        ahead, calling = (
            "|".join(marker.search_pattern() for marker in each) or "(?!)" for each in (self._before, self._rehearsed)
        )
        return re.compile(f"({whole})|(?=({ahead}))|(?=({calling}))|(?:{begun})\\Z").search

    @cached_property
    def watch(self) -> CallSearch | None:
        """Finds what would be a call outside of it."""
        watched = [marker for marker in self._calls if marker not in self._enders]
        return CallSearch(watched) if watched else None

    @cached_property
    def leaves(self) -> Callable[[str], object]:
        """Finds a character that one of those that end it begins with."""
        return _leaves(self._firsts)

    @cached_property
    def leaves_watching(self) -> Callable[[str], object]:
        """Finds one with which it ends or something like a call begins."""
        return self.leaves if self.watch is None else _leaves(self._firsts | self.watch.firsts)

    def cuts(self, text: str, at: int) -> bool:
        """Whether a complete tag begins at a place with which a call begins that may count, and the text ends in it."""
        awaited = self.run.find(text, at, False)
        return isinstance(awaited, Group) and awaited.cut(text, at) is not None


class CallSearch:
    """What would be a call outside of reasoning, looked for once in text that comes in pieces."""

    def __init__(self, markers: Sequence[Marker]) -> None:
        complete = "|".join(marker.search_pattern() for marker in markers)
        lines = [marker for marker in markers if marker.where == "line_start"]
        begun = [marker.begun_pattern() for marker in markers if marker not in lines]
        begun += [f"{_INDENT}(?:{marker.begun_pattern()})" for marker in lines]
        self.firsts = {marker.first for marker in markers}
        """The characters with which one begins, or what stands before it."""
        begins = "[" + re.escape("".join(sorted(self.firsts))) + "]"
        if lines:
            begun.append(_INDENT)
            self.firsts.add("\n")
        self.search = re.compile(f"(?={begins}|^)(?:({complete})|(?:{'|'.join(begun)})\\Z)", re.MULTILINE).search
        self.complete = re.compile(complete, re.MULTILINE).search


def _leaves(characters: set[str]) -> Callable[[str], object]:
    return re.compile("[" + re.escape("".join(sorted(characters))) + "]").search


class ReasoningText:
    """Reads from behind an opening tag to the closing one."""

    __slots__ = (
        "_closing", "_declared", "_keep_markup", "_last", "_leaves", "_opened", "_opening", "_output", "_rehearsal",
        "_rehearsed", "_seen", "_watch", "held", "leaves",
    )  # fmt: skip

    def __init__(
        self, closing: ReasoningEnd, output: CallEvents, declared: Declared, *, keep_markup: bool, opened: bool
    ) -> None:
        """Begin behind an opening tag, if it was `opened` by one, or where the template has put that."""
        self._closing = closing
        self._declared = declared
        self._rehearsal: Rehearsal | None = None
        self._rehearsed = False  # a call has turned out to be reasoning
        self._output = output
        self._keep_markup = keep_markup
        self.held = ""  # text that may yet end it
        self._last = ""  # the character that has come last
        self._watch = closing.watch  # None once something has looked like a call
        self._seen = "\n"  # text that may become one, and the character before it
        self._opened = opened  # a line feed here belongs to the opening tag
        self._opening = closing.opening  # one here goes away
        at_once = self._watch is None and not opened and self._opening is None
        self.leaves: Callable[[str], object] = closing.leaves if at_once else always
        """Finds nothing in text that can be skimmed."""

    def skim(self, text: str) -> list[UIEvent]:
        """Take text in which neither a closing tag nor a call can end or begin."""
        self._last = self._seen = text[-1]
        return [Reasoning(text)]

    def lose(self) -> None:
        """Mark a gap: a part of the text is missing here."""
        if self._rehearsal is not None:
            self._rehearsal.lose()

    def read(self, delta: str, ended: bool) -> str | None:
        """Take text; return what follows the reasoning, or None if it has not ended."""
        while True:
            run = self._rehearsal
            if run is None:
                rest = self._read(delta, ended)
                run = self._begun()
                if run is None:
                    return rest
                delta = rest or ""
            decision = run.read(delta, ended)
            if decision is None:
                return None
            self._rehearsal, self.leaves = None, self._leaves
            if decision is Decision.CALLS:
                return run.text + run.rest
            self._rehearsed = True
            text = run.text.removesuffix("\n")  # what may belong to the closing tag
            self._show(text)
            delta = run.text[len(text) :] + run.rest

    def _begun(self) -> Rehearsal | None:
        return self._rehearsal

    def _show(self, text: str) -> None:
        seen = self._look(self._watch, self._seen + text) if self._watch is not None else ""
        self._output.events += self.skim(text)
        self._seen = seen

    def _read(self, delta: str, ended: bool) -> str | None:
        """Take text; return what follows the closing tag, or that of a rehearsal that begins, or None."""
        text, held, rest = self.held + delta, "", None
        if self._opening is not None:
            behind = self._opening.match(text, 0, ended)
            if behind is None:
                self.held = text
                return None
            self._opening, self._opened = None, behind is not False
            self.leaves = self._closing.leaves if self._watch is None and not behind else always
            if behind and self._keep_markup:
                self._output.add(Markup, text[:behind])
            text = text[behind or 0 :]
        if self._opened and text:
            self._opened = False
            self.leaves = self._closing.leaves if self._watch is None else always
            if text[0] == "\n":
                text = text[1:]
                if self._keep_markup:
                    self._output.add(Markup, "\n")
        last = self._last  # there are markers that may not follow every character
        found = self._closing.search(last + text, len(last))
        begin = found.start() - len(last) if found else len(text)
        if found and found.lastindex:
            rest = text[found.end() - len(last) :]
            if found.lastindex == 3:
                self._rehearsal = Rehearsal(self._closing.run, self._closing.tags, self._output, self._declared)
        elif not ended:
            held = text[begin:]
        elif found and self._closing.cuts(text, begin):  # the message ends in a call
            rest = text[begin:]
        shown = text[:begin] if rest is not None or held else text
        if shown:
            self._show(shown)
        if self._rehearsal is not None:
            self._leaves, self.leaves = self.leaves, always
        if found and found[1]:
            if found[1][0] == "\n":
                self._seen += "\n"  # it ends a line all the same
            if self._keep_markup:
                self._output.add(Markup, found[1])
        self.held = held
        return rest

    def close(self) -> None:
        """The reasoning ends here."""
        watch, alike = self._watch, self._closing.watch is not None
        if watch is not None:  # nothing has been found but beginnings, in which there may be something
            alike = watch.complete(self._seen, 1) is not None
        if alike or self._rehearsed:
            message = "the reasoning holds what would be a call outside of it"
            self._output.add(Warning, Code.CALL_IN_REASONING, message)

    def _look(self, watch: CallSearch, text: str) -> str:
        """Look for what would be a call, behind the first character; return what may yet be one, and what is before."""
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
