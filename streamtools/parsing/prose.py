"""Visible text on its way to the reader, up to the next marker.

Text is shown at once, except for what can still become a marker where it stands. A marker is committed to at the point
that its dialect names; before it, a candidate that fails shows its first character, and the rest is read again. What
comes behind the commit point is no business of prose: it is found, and told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from streamtools.errors import Code
from streamtools.events import Markup, UIEvent, Warning
from streamtools.parsing.armed import BEHIND_CALL, CALLS_ONLY, START, Armament, Armed
from streamtools.parsing.dialects import Dialect, Opener
from streamtools.parsing.markdown import BEFORE_BODY, BODY, IN_CODE, Markdown
from streamtools.parsing.marker_sets import Group
from streamtools.parsing.near_misses import Lookout
from streamtools.parsing.options import Options
from streamtools.parsing.output import Output
from streamtools.parsing.reader import always, not_white_space
from streamtools.parsing.reasoning import ReasoningEnd
from streamtools.parsing.visible import Visible

_BEHIND_REASONING: Final = 2  # line feeds that belong to a closing tag


class ReasoningBegun:
    """Reasoning begins, behind a tag; `rest` is the text behind it."""

    __slots__ = ("closing", "rest")

    def __init__(self, closing: ReasoningEnd, rest: str) -> None:
        self.closing = closing
        self.rest = rest


class CallBegun:
    """A call begins, or a result that the model forges; `rest` is the text behind the marker."""

    __slots__ = ("dialect", "marker", "opener", "rest")

    def __init__(self, opener: Opener, dialect: Dialect, marker: str, rest: str) -> None:
        self.opener = opener
        self.dialect = dialect
        self.marker = marker
        self.rest = rest


_Mark: TypeAlias = tuple[Armament | ReasoningEnd | None, int] | Literal[False] | None
"""What begins at a place, and the place behind its marker; None if something may yet begin there, False if nothing.

Nothing begins with the closing tag of reasoning that nobody has seen begin.
"""

_HERE: Final[tuple[int, _Mark]] = (0, False)


class Prose:
    """Text that is shown, and what is held back of it."""

    def __init__(self, armed: Armed, options: Options, output: Output, visible: Visible) -> None:
        self._armed = armed
        self._output = output
        self._visible = visible
        self.markdown = Markdown(armed.heads)
        self._lookout = Lookout()
        self._near_misses = options.limits.calls  # as many are reported in a turn
        self._holds_line_feeds = armed.holds_line_feeds
        self._thinks, self._thinks_anywhere = options.reasoning != "off", options.reasoning == "anywhere"
        self._keeps_markup = options.keep_markup
        self._direct = options.after_call == "show" and not options.trim  # released text is shown as it is
        self.leaves: Callable[[str], object] = always  # see `choose`
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self._ended = False
        self.held = ""  # text that may yet become a marker
        self._awaited: Group[Armament] | None = None  # which of them; None where it may be something else
        self._met: tuple[int, _Mark] | None = None  # what `turn` has found in it
        self.last = ""  # the text that was shown last; its last character comes before what is read next
        self._line_feeds = 0  # how many more belong to the closing tag of the reasoning
        self._fresh = True  # nothing but white space since the start, or since a call
        self._start = True  # no other call than those that count only at the start of a message
        self._behind_call = False
        self.markdown.reset()
        self._lookout.begin(self._near_misses)

    def begin_behind_reasoning(self) -> None:
        """Begin a text behind a closing tag, to which the line feeds belong that follow it."""
        self._fresh = self._start = True
        self._behind_call = False
        self._line_feeds = _BEHIND_REASONING
        self.last = ""
        self.markdown.reset()

    def resume(self, last: str, *, several_lines: bool) -> None:
        """Go on behind a call, of which this is the `last` character."""
        self.last = last
        self.markdown.resume(last == "\n", several_lines=several_lines)
        self._fresh = self._direct or not self._visible.refuses
        self._behind_call = True

    def choose(self) -> bool:
        """Name what finds nothing in text that may be shown as it is; return whether `turn` may be asked at all."""
        even = self._direct and not self._line_feeds
        reads = not even or self.held or self._fresh or self._lookout.open or self.markdown.phase != BODY
        self.leaves = always if reads else self.markdown.search
        return even

    def turn(self, delta: str) -> list[UIEvent] | None:
        """Show text, and hold back what may become a marker; None if more is in it, which is for `read` to tell.

        A short way: every few deltas of prose end a line, and every few of Markdown mean something to it. What is held
        back may go on for many deltas, and then only the markers matter for which it is.
        """
        held, lookout = self.held, self._lookout
        text = held + delta if held else delta
        if lookout.open:
            lookout.resume(text, False)
        elif held and (awaited := self._awaited) is not None:
            begins, last, back = awaited.begun, awaited.last, awaited.back
            ahead = self.last[-1] + text if back else text
            begun = begins(ahead, back)
            if begun is not None:
                # Without the end of one none is complete, and the header of a channel goes on for twenty deltas.
                ends: object = begun.lastindex
                if last is not None:
                    ends = last(ahead, back) if awaited.final in delta else None
                found = awaited.choose(begun, ahead, back, False) if ends else None
                if found is None:
                    self.held = text
                    return []
                if found:
                    self.held, self._met = text, (0, (found[0], found[1] - back))
                    return None
        markdown, end = self.markdown, len(text)
        mark: _Mark = False
        if self._fresh:
            at, mark = self._read_start(text)
            if mark is False and at < end:
                at = markdown.seek(text, at, end)
        else:
            # What is held back begins where a marker may; only a line feed may turn out to end an ordinary line.
            at = 0 if held and held[0] != "\n" else markdown.seek(text, 0, end)
        if at < end and mark is False:
            at, mark = self._read_on(text, at)
        if mark or (lookout.open and lookout.has_due(at)):
            self.held, self._met = text, (at, mark)
            return None
        self.held = text[at:]
        if lookout.open:
            lookout.pause(text, at)
            self.leaves = always
        else:
            self.leaves = markdown.search if at == end and markdown.phase == BODY and not self._fresh else always
        if at < end:
            text = text[:at]
            if not text:
                return []
        self.last = text
        return [self._output.make_text(text)]

    def read(self, delta: str, ended: bool) -> CallBegun | ReasoningBegun | None:
        """Show what is certain to be text; return what begins behind it, or None if nothing does so far."""
        text = self.held + delta if self.held else delta
        self.held = ""
        self._ended = ended
        met, self._met = self._met, None
        if met is None:  # not what `turn` left
            if self._line_feeds:
                text = self._skip_line_feeds(text)
            if self._lookout.open:
                self._lookout.resume(text, ended)
        while True:
            at, mark = met or (self._read_start(text) if self._fresh else _HERE)
            met = None
            if mark is False and at < len(text):
                at = self.markdown.seek(text, at, len(text))
                if at < len(text):
                    at, mark = self._read_on(text, at)
            if not mark:
                if mark is None:
                    self._hold(text, at)
                else:
                    self._show(text)
                if self._lookout.open:
                    self._lookout.pause(text, at)
                return None
            thing, behind = mark
            if at or self._lookout.open:
                self._show(text[:at])
            if self._lookout.open:
                self._lookout.clear()
            if self._visible.stopped:
                return None
            if thing is None:
                self._visible.flush()
                self._hide(text[at:behind])
                self.begin_behind_reasoning()
                text = self._skip_line_feeds(text[behind:])
                continue
            if isinstance(thing, ReasoningEnd):
                return self._think(text[at:behind], thing, text[behind:])
            begins, dialect, line_feeds = thing
            if isinstance(begins, Opener):
                return self._open(begins, dialect, text, at, at + line_feeds, behind)
            if begins.closings:
                return self._think(text[at:behind], self._armed.closing(begins), text[behind:])
            self._visible.flush()
            self._hide(text[at:behind])
            text = text[behind:]

    def _read_start(self, text: str) -> tuple[int, _Mark]:
        """Read the white space at the start, and return what begins in it or behind it, with its place.

        Where nothing begins, that is the next place at which a marker may.
        """
        found = not_white_space(text)
        first = found.start() if found else len(text)
        ordinary = found is not None and text[first] not in self._armed.starts
        end = len(text) if ordinary else first
        at = 0
        mark: _Mark = False
        while at < end and (at := self.markdown.seek(text, at, end)) < first:
            mark = self._marker_at(text, at)
            if mark is not False:
                return at, mark
            at = self.markdown.step(text, at)
        if ordinary:
            self._fresh = False
            return at, False
        if found:
            mark = self._thought_at(text, first)
            if not mark:
                marker = self._marker_at(text, first)
                mark = marker if marker or mark is False else None
            if mark is False:
                self._fresh = False
                self._look_at_start(text, first)
        return first, mark

    def _read_on(self, text: str, at: int) -> tuple[int, _Mark]:
        """Read text from a place on where a marker may begin; return what begins there or behind it, with its place."""
        markdown, end = self.markdown, len(text)
        while at < end:
            mark = self._marker_at(text, at)
            if mark is False and self._thinks_anywhere and not self._visible.refuses:
                mark = not markdown.place(text[at]) & IN_CODE and self._thought_at(text, at)
            if mark is not False:
                return at, mark
            self._look(text, at)
            at = markdown.seek(text, markdown.step(text, at), end)
        return end, False

    # What begins at a place.

    def _marker_at(self, text: str, at: int) -> _Mark:
        self._awaited = None
        char = text[at]
        place = self.markdown.place(char)
        if char == "\n" and at + 1 == len(text) and self._holds_line_feeds and not (place & IN_CODE or self._ended):
            return None
        if self._fresh:
            place |= (START if self._start else 0) | (BEHIND_CALL if self._behind_call else 0)
        if not self._direct and self._visible.refuses:
            place |= CALLS_ONLY
        group = (self._armed.by_place[place] or self._armed.markers(place)).group(text, at)
        if group is None:
            return False
        if at or not self.last:
            found = group.at(text, at, self._ended)
        else:
            found = group.at(self.last[-1] + text, 1, self._ended)
            found = found and (found[0], found[1] - 1)
        if found is None and not (self._fresh or self._thinks_anywhere):
            self._awaited = group
        return found

    def _thought_at(self, text: str, at: int) -> _Mark:
        if not self._thinks or text[at] not in self._armed.tags.firsts:
            return False
        found = self._armed.tags.at(text, at, self._ended, strays=self._fresh)
        return found and (found[1], found[0])

    def _open(self, opener: Opener, dialect: Dialect, text: str, at: int, begin: int, behind: int) -> CallBegun:
        """Open a call that begins behind the line feeds from `at` to `begin`, which are markup."""
        if opener.kind == "call":
            if not self._direct:  # else nothing is withheld
                self._visible.begin_call()
        else:
            self._visible.flush()
        if begin > at:
            self._hide(text[at:begin])
        while at < begin:
            at = self.markdown.step(text, at)  # the line that they end is over
        self._start = opener.where == "start"
        return CallBegun(opener, dialect, text[begin:behind], text[behind:])

    def _think(self, tag: str, closing: ReasoningEnd, rest: str) -> ReasoningBegun:
        self._visible.flush()
        self._hide(tag)
        return ReasoningBegun(closing, rest)

    # What looks like something that begins, and does not.

    def _look(self, text: str, at: int) -> None:
        if self._lookout.left and (self._direct or self._visible.shows):
            markdown = self.markdown
            in_code = markdown.place(text[at]) & IN_CODE > 0
            look = self._armed.near.look(in_code=in_code, begins=markdown.phase in BEFORE_BODY)
            if look is not None:
                self._lookout.add(look, self.last, text, at, self._ended)

    def _look_at_start(self, text: str, at: int) -> None:
        if self._start and self._lookout.left and self._visible.shows and not self._lookout.open:
            look = self._armed.near.look_at_start(text[at])
            if look is not None:
                self._lookout.add(look, self.last, text, at, self._ended)

    # What becomes of text.

    def _hold(self, text: str, at: int) -> None:
        self._show(text[:at])
        self.held = "" if self._visible.stopped else text[at:]

    def _show(self, text: str) -> None:
        """Show text, and report the near misses in it, each behind its last character."""
        if self._lookout.open:
            at = 0
            for due, says, raw in self._lookout.report(len(text)):
                self._release(text[at:due])
                self._output.add(Warning, Code.NEAR_MISS, says, raw=raw)
                at = due
            text = text[at:]
        if text:
            self._release(text)

    def _release(self, text: str) -> None:
        self.last = text
        if self._direct:
            self._output.events.append(self._output.make_text(text))
        else:
            self._visible.show(text)

    def _hide(self, text: str) -> None:
        if text and self._keeps_markup:
            self._output.add(Markup, text)

    def _skip_line_feeds(self, text: str) -> str:
        """Take the line feeds behind a closing tag off the text: they belong to the tag."""
        rest = text[: self._line_feeds].lstrip("\n") + text[self._line_feeds :]
        count = len(text) - len(rest)
        self._hide("\n" * count)
        self._line_feeds = 0 if rest else self._line_feeds - count
        return rest
