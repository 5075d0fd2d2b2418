"""Prose: the visible text up to the next marker.

Text is shown immediately, except text that can still become a marker. `Prose.read` returns a marker as soon as the
marker is complete. The caller then reads the text after it. If pending text turns out not to be a marker, its first
character is shown, and the search continues at the next character.

`Visible` applies the option `after_call` to visible text. The option hides text after a call, or stops the turn there,
because weak models invent the result of the tool. With its default, `Prose` shows text without `Visible`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from streamtools.errors import Code
from streamtools.events import Markup, Text, Warning
from streamtools.parsing.bodies import cut_off
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.dialect_set import AFTER_CALL, ANY_CALL, CALLS_ONLY, START, DialectSet, Meaning
from streamtools.parsing.dialects import Opener
from streamtools.parsing.markdown import BEFORE_BODY, BODY, IN_CODE, Markdown
from streamtools.parsing.markers import Group, Markers
from streamtools.parsing.near_misses import NearMissCandidates
from streamtools.parsing.options import Options
from streamtools.parsing.reader import always, not_white_space
from streamtools.parsing.reasoning import ReasoningEnd


class Visible:
    """Shows or hides the text that is not a call."""

    def __init__(self, output: CallEvents, options: Options) -> None:
        self._output = output
        self._after_call = options.after_call
        self._limit = options.limits.call  # how many characters of hidden text are stored
        self.reset()

    def reset(self) -> None:
        """Begin a turn."""
        self._called = False  # whether the turn has had a call
        self._hidden: list[str] = []  # hidden text, up to the limit
        self._hidden_length = 0  # the length of all hidden text
        self.stopped = False  # whether text after a call has stopped the turn

    def show(self, text: str) -> None:
        """Show or hide text that is not a call, or stop the turn before it."""
        if self._called and self._after_call != "show":
            self._withhold(text)
        else:
            self._output.add(Text, text)

    def show_raw(self, text: str) -> bool:
        """Show the raw text of a malformed call. Returns True if the turn is stopped."""
        if self._called and self._after_call != "show":
            self._withhold(text)
            self.report_hidden()
        else:
            self._output.add(Text, text)
        return self.stopped

    @property
    def shows(self) -> bool:
        """Whether text is now shown. False if `after_call` hides it or stops the turn."""
        return not self._called or self._after_call == "show"

    @property
    def stops_at_text(self) -> bool:
        """Whether the next text other than white space stops the turn."""
        return self._called and self._after_call == "stop"

    def end_call(self) -> None:
        """Record that a call has ended. Text from here on is text after a call."""
        self._called = True

    def _withhold(self, text: str) -> None:
        """Hide text after a call, or stop the turn before it."""
        if self._after_call == "hide":
            if self._hidden_length < self._limit:
                self._hidden.append(text[: self._limit - self._hidden_length])
            self._hidden_length += len(text)
            return
        found = not_white_space(text)
        space = text[: found.start()] if found else text
        self.stopped = found is not None
        if space:
            self._output.add(Text, space)

    def report_hidden(self) -> None:
        """Report hidden text: before a call, a tag or a tool result, and at the end of the turn."""
        if self._hidden_length:
            raw = "".join(self._hidden)
            self._output.add(Warning, Code.HIDDEN_AFTER_CALL, "text after a call was hidden", raw=raw)
            if rest := self._hidden_length - len(raw):
                self._output.add(Warning, Code.SKIPPED, f"{rest} more characters after a call were hidden", count=rest)
        self._hidden, self._hidden_length = [], 0


_TOKEN: Final = re.compile("\n{0,2}+<[|\uff5c][^<>|\uff5c\\s]{1,64}[|\uff5c]>").match
"""Matches a special token of a chat template, such as `<|im_end|>`, with up to two line feeds before it.

The bars may be full-width. If the stream ends inside a marker that begins with a token, the incomplete marker is
hidden.
"""
_LINE_FEEDS_AFTER_REASONING: Final = 2  # how many line feeds after a closing tag are hidden with the tag


MarkerFound: TypeAlias = tuple[Opener | ReasoningEnd, str, str, str]
"""A complete marker: its meaning, the dialect's id, the text of the marker, and the text after it.

The meaning is the opener of a call or of a tool result that the model wrote. The meaning of the opening tag of
reasoning is the `ReasoningEnd` that finds the end of the reasoning. The id is then "".
"""

_MarkerAt: TypeAlias = tuple[Meaning | ReasoningEnd | None, int] | Literal[False] | None
"""The meaning of the marker at a position, and the position of its end.

False if there is no marker, None if more text is needed to decide. In the tuple, the meaning None stands for a marker
that is only hidden: a closing tag without an opening tag, or a token of a chat template at the end of the stream.
"""

_NO_MARKER_AT_START: Final[tuple[int, _MarkerAt]] = (0, False)


class Prose:
    """Shows visible text and searches it for markers."""

    def __init__(self, dialects: DialectSet, options: Options, output: CallEvents, visible: Visible) -> None:
        self._dialects = dialects
        self._output = output
        self._visible = visible
        self.markdown = Markdown(dialects.marker_starts)
        self._candidates = NearMissCandidates()
        self._near_miss_limit = options.limits.calls  # how many near misses a turn may report
        self._waits_after_line_feed = dialects.waits_after_line_feed
        self._reads_reasoning, self._reasoning_anywhere = options.reasoning != "off", options.reasoning == "anywhere"
        self._keeps_markup = options.keep_markup
        self.direct = options.after_call == "show"  # text is shown without `Visible`
        self.find_change: Callable[[str], object] = always
        """A search for characters that `read` must see. If it returns None, the parser itself shows the delta.

        If it returns False, the delta was added to the pending text.
        """
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self._ended = False
        self.pending = ""  # text that may still become a marker
        # The markers that `pending` may become. None if `pending` must be searched again.
        self._possible: Group[Meaning] | None = None
        self._decided: _MarkerAt = None  # the marker that `_wait` has found at the start of the pending text
        self.last = ""  # the most recently shown text; its last character precedes the text that follows
        self._line_feeds = 0  # how many line feeds may still belong to the closing tag of reasoning before the text
        self._fresh = True  # only white space was read since the start, the end of reasoning, or the last call
        self._start = True  # whether markers for the start of a message may still be recognized
        self._after_call = False  # whether a call precedes the text
        self.find_change = always
        self.markdown.reset()
        self._candidates.begin(self._near_miss_limit)

    def begin_after_reasoning(self) -> None:
        """Begin the text after a closing tag of reasoning. Up to two line feeds after the tag are hidden."""
        self._fresh = self._start = True
        self._after_call = False
        self._line_feeds = _LINE_FEEDS_AFTER_REASONING
        self.last = ""
        self.markdown.reset()

    def resume(self, last: str, *, several_lines: bool) -> None:
        """Continue after a call. `last` is the last character of the call."""
        self.last = last
        if several_lines:  # the call has ended the Markdown line in which it began
            self.markdown.end_line()
        if last != "\n":
            self.markdown.phase = BODY
        self.find_change = always
        # If the next text stops the turn, markers for the start of a text are not recognized.
        self._fresh = self.direct or not self._visible.stops_at_text
        self._after_call = True

    def read(self, delta: str, ended: bool) -> MarkerFound | None:
        """Show all text that cannot become a marker. Returns the first complete marker, or None if there is none."""
        pending = self.pending
        text = pending + delta
        self._ended, candidates, markdown = ended, self._candidates, self.markdown
        firsts = self._dialects.firsts  # `seek` also stops at characters with which only near misses begin
        stopped_at_first = False
        first_marker: tuple[int, _MarkerAt] | None = None
        if candidates.open:
            candidates.resume(text, ended)
        if self._fresh:
            if self._line_feeds:
                text = self._skip_line_feeds(text)
        elif pending:
            # The last search stopped at the first pending character, because a marker may begin there. If the character
            # is a line feed, the text after it decides whether a marker may begin there. So `seek` is called again.
            stopped_at_first, decided, self._decided = pending[0] != "\n", self._decided, None
            if decided:
                first_marker = 0, decided
            elif decided is False and stopped_at_first:
                # Fast path: `_marker_at` would find no marker either. Without it, near-markers take 15 % longer.
                self._add_candidate(text, 0)
                first_marker = markdown.seek(text, markdown.step(text, 0), len(text)), False
        while True:
            at, found_marker = first_marker or (self._read_start(text) if self._fresh else _NO_MARKER_AT_START)
            end = len(text)
            if found_marker is False and at < end:
                if not stopped_at_first:
                    at = markdown.seek(text, at, end)
                while at < end:
                    if text[at] in firsts:
                        found_marker = self._marker_at(text, at)
                        if found_marker is not False:
                            break
                    self._add_candidate(text, at)
                    at = markdown.seek(text, markdown.step(text, at), end)
            if found_marker:
                found_or_rest = self._accept(text, at, *found_marker)
                if not isinstance(found_or_rest, str):
                    self.pending, self.find_change = "", always
                    return found_or_rest
                stopped_at_first, first_marker, text = False, None, found_or_rest
                continue
            if candidates.open or not self.direct:
                self._show(text[:at])
                if candidates.open:
                    candidates.pause(text, at)
                if self._visible.stopped:
                    text = ""
            elif at:
                self.last = shown = text[:at]
                self._output.events.append(Text(shown))
            self.pending = text[at:]
            self.find_change = always
            settled = not (self._fresh or candidates.open)
            if settled and self.pending and self._possible is not None:
                self.find_change = self._wait
            elif settled and at == end and markdown.phase == BODY and self.direct:
                self.find_change = markdown.search
            return None

    def _wait(self, delta: str) -> bool:
        """Fast path for `read`: try only the markers in `_possible`. It saves 20 % of a call with a long header.

        Returns False if more text is needed to decide: `delta` is then pending. Returns True if `read` must read
        `delta`.
        """
        possible, text = self._possible, self.pending + delta
        assert possible is not None
        if (in_header := possible.in_header) is None or in_header(text) is None:
            before = self.last[-1:]
            back = len(before)
            found = possible.find(before + text, back, False)
            if not isinstance(found, Group):
                self._decided = found and (found[0], found[1] - back)
                return True
            self._possible = found
        self.pending = text
        return False

    def _accept(self, text: str, at: int, meaning: Meaning | ReasoningEnd | None, end: int) -> MarkerFound | str | None:
        """Show the text before the marker between `at` and `end`. `meaning` is the meaning of the marker.

        Returns the marker, or only the text after it if the marker is just hidden. Returns None if the turn is stopped.
        """
        if at or self._candidates.open:
            self._show(text[:at])
        if self._candidates.open:
            self._candidates.clear()
        if self._visible.stopped:
            return None
        self._visible.report_hidden()
        rest = text[end:]
        closing: ReasoningEnd | None = None
        white = 0  # how many characters of white space belong to the marker
        if meaning is None or isinstance(meaning, ReasoningEnd):
            closing, white = meaning, text[at] == "\n"
        else:
            opener_or_tag, dialect, white = meaning
            if isinstance(opener_or_tag, Opener):
                if white:
                    self._hide(text[at : at + white])
                marker_at = at + white
                while at < marker_at:
                    at = self.markdown.step(text, at)  # the white space may hold line feeds
                self._start = opener_or_tag.where == "start"  # another call or tag of this kind may follow
                return opener_or_tag, dialect.id, text[marker_at:end], rest
            if opener_or_tag.closings:
                closing = self._dialects.reasoning_end(opener_or_tag)
        self._hide(text[at : at + white])
        self._hide(text[at + white : end])
        if closing is not None:
            return closing, "", text[at:end], rest
        if meaning is None:
            self.begin_after_reasoning()
            return self._skip_line_feeds(rest)
        return rest

    def _read_start(self, text: str) -> tuple[int, _MarkerAt]:
        """Search for a marker in the white space at the start of `text`, and directly after that white space.

        Returns the position and the meaning of the marker. If there is no marker, returns the next position where a
        marker may begin, and False.
        """
        found = not_white_space(text)
        first = found.start() if found else len(text)
        if found and text[first] not in self._dialects.firsts:  # ordinary text follows
            self._fresh = False
            return self.markdown.seek(text, 0, len(text)), False
        found_marker: _MarkerAt = False
        if first:  # the last character of the white space may belong to the marker after it
            at, found_marker = self._read_space(text, first - 1)
            if found_marker is not False:
                return at, found_marker
        if found:
            found_marker = self._tag_at(text, first)
            if not found_marker:
                marker = self._marker_at(text, first)
                # False if there is neither a tag nor a marker. None if one of the two is undecided, and no marker is
                # complete.
                found_marker = marker if marker or found_marker is False else None
            if found_marker is False:
                self._fresh = False
        return first, found_marker

    def _read_space(self, text: str, last: int) -> tuple[int, _MarkerAt]:
        """Search white space at the start for a marker. The white space ends with the character at `last`.

        That character may belong to the marker after it.
        """
        at, before = 0, text[:last]
        while at < last and (at := self.markdown.seek(before, at, last)) < last:
            found_marker = self._marker_at(text, at)
            if found_marker is not False:
                return at, found_marker
            at = self.markdown.step(before, at)
        # The last white space may belong to the reasoning tag after it.
        last_space = text[last] if self._reads_reasoning and self._start else ""
        tags = self._dialects.tags
        found_marker = tags.match(text, last, self._ended, strays=True) if last_space == " " else False
        if found_marker is False:
            found_marker = self._marker_at(text, last)
        if found_marker is False and last_space == "\n":  # the caller hides the line feed with the tag
            found_marker = tags.match(text, last + 1, self._ended, strays=True)
        return (self.markdown.step(text, last) if found_marker is False else last), found_marker

    def _marker_at(self, text: str, at: int) -> _MarkerAt:
        """Return the marker at index `at`. If more text is needed, `_possible` is set."""
        char = text[at]
        kind = self.markdown.position_kind(char)
        if char == "\n" and at + 1 == len(text) and self._waits_after_line_feed and not (kind & IN_CODE or self._ended):
            self._possible = None
            return None
        if self._fresh:
            kind |= (START if self._start else 0) | (AFTER_CALL if self._after_call else 0)
        if self._output.calls_begun and not self._output.final:
            kind |= ANY_CALL
        if not self.direct and self._visible.stops_at_text:
            kind |= CALLS_ONLY
        markers = self._dialects.by_position_kind[kind] or self._dialects.markers(kind)
        back = not at and self.last != ""  # whether the search needs the character before `text`
        found = markers.find(self.last[-1] + text, 1, self._ended) if back else markers.find(text, at, self._ended)
        if found is False and self._ended:
            cut = self._cut_at(markers, (self.last[-1] if back else "") + text, at + back)
            if cut:
                return cut[0], cut[1] - back
        if isinstance(found, Group):
            # A line feed rarely begins a marker. So `read` searches again from the line feed, without `_possible`.
            self._possible = None if self._reasoning_anywhere or (char == "\n" and found.shared_length) else found
            return None
        if (
            found is False
            and self._reasoning_anywhere
            and not (self._fresh or kind & IN_CODE or self._visible.stops_at_text)
        ):
            self._possible = None
            return self._tag_at(text, at)
        return found and (found[0], found[1] - back)

    def _cut_at(self, markers: Markers[Meaning], text: str, at: int) -> tuple[Meaning | None, int] | Literal[False]:
        """Return the meaning and the end of a marker at `at` that the end of the stream cuts off.

        Returns False, unless the text at `at` holds the complete tag of a call or a token of a chat template.
        """
        possible = markers.find(text, at, False)
        if not isinstance(possible, Group):
            return False
        meaning = possible.cut(text, at)
        if meaning is None:
            return (None, len(text)) if _TOKEN(text, at) else False
        opener, dialect, white = meaning
        assert isinstance(opener, Opener)  # only openers can be cut off
        return (replace(opener, body=cut_off, announces=True), dialect, white), len(text)

    def _tag_at(self, text: str, at: int) -> _MarkerAt:
        if not self._reads_reasoning or text[at] not in self._dialects.tags.firsts:
            return False
        return self._dialects.tags.match(text, at, self._ended, strays=self._fresh)

    # Candidates for near misses.

    def _add_candidate(self, text: str, at: int) -> None:
        if self._candidates.reports_left and (self.direct or self._visible.shows):
            near, kind = self._dialects.near_misses, self.markdown.position_kind(text[at])
            recognisers = near.in_code if kind & IN_CODE else near.in_prose
            if (recognise := recognisers[self.markdown.phase in BEFORE_BODY]) is not None:
                self._candidates.add(recognise, self.last, text, at, self._ended)

    # Showing text.

    def _show(self, text: str) -> None:
        """Show text, and report each near miss directly after its last character."""
        if self._candidates.open:
            at = 0
            for end, message, raw in self._candidates.report(len(text)):
                self._release(text[at:end])
                self._output.add(Warning, Code.NEAR_MISS, message, raw=raw)
                at = end
            text = text[at:]
        if text:
            self._release(text)

    def _release(self, text: str) -> None:
        """Show text without a report."""
        self.last = text
        if self.direct:
            self._output.events.append(Text(text))
        else:
            self._visible.show(text)

    def _hide(self, text: str) -> None:
        if text and self._keeps_markup:
            self._output.add(Markup, text)

    def _skip_line_feeds(self, text: str) -> str:
        """Return the text without the line feeds that belong to the closing tag before it."""
        rest = text[: self._line_feeds].lstrip("\n") + text[self._line_feeds :]
        count = len(text) - len(rest)
        self._hide("\n" * count)
        self._line_feeds = 0 if rest else self._line_feeds - count
        return rest
