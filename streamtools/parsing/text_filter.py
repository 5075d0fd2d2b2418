"""The stage after the parser that applies `text_rules` and `pace` to its events.

Visible text passes a `Matcher`, which buffers text that may become a match, and then a `SegmentBuffer`, if there is a
pace. Calls and reasoning end a match, so the buffered text is shown before them. With `rules_in_reasoning`, reasoning
passes a matcher of its own. Matches are also removed from raw calls, errors and warnings, unless all rules only mark.

    filter.take(events)   # the events that the reader sees
    filter.end(events)    # adds the buffered text: something other than text follows
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec.structs import replace

from streamtools.errors import Code
from streamtools.events import Call, Error, FollowUp, Matched, Raw, Reasoning, Text, Thinking, UIEvent, Warning
from streamtools.events.ui_events import RuledReasoning
from streamtools.json_values import with_texts
from streamtools.parsing.options import Options
from streamtools.parsing.reader import always
from streamtools.parsing.segments import SegmentBuffer
from streamtools.rules.automaton import automaton_of
from streamtools.rules.matcher import Match, Matcher, Pieces, in_place, shown
from streamtools.rules.rule import Rule

_SHORT = 16  # characters of a delta that is remembered
_MAX_KNOWN = 16_384  # such deltas


QUIET, MAY_MATCH, CHANGES = range(3)
"""Kinds of deltas in prose: nothing begins in it, a match may begin in it, or the parser has to read it."""


class DeltaKinds(dict[str, int]):
    """The kinds of deltas. A lookup costs half of a search, and most tokens recur."""

    def __init__(self, leaves: Callable[[str], object], begins: Callable[[str], object] | None) -> None:
        """`leaves` is the search of prose, and `begins` finds where a match may begin."""
        search: Any = leaves
        rules: Any = begins
        self._leaves = leaves
        self._either = None  # finds what either of them finds
        if begins is not None and isinstance(getattr(leaves, "__self__", None), re.Pattern):  # prose compiles it late
            self._either = re.compile(f"{search.__self__.pattern}|{rules.__self__.pattern}").search

    def __missing__(self, delta: str) -> int:
        if self._either is not None and self._either(delta) is None:
            kind = QUIET
        else:
            kind = MAY_MATCH if self._leaves(delta) is None else CHANGES
        if len(delta) <= _SHORT and self._leaves is not always:
            if len(self) >= _MAX_KNOWN:
                self.clear()
            self[delta] = kind
        return kind


delta_kinds = lru_cache(maxsize=32)(DeltaKinds)
_ALL_CHANGE = delta_kinds(always, None)


class TextFilter:
    """Applies the rules and the pace of `options` to the events of one turn after the other."""

    def __init__(self, options: Options) -> None:
        self._redacting = [rule for rule in options.text_rules if rule.redacts]
        self._keeps_written = options.history == "as_written"
        self._text = Matcher(automaton_of(options.text_rules))
        self._segments = SegmentBuffer(words=options.pace == "words") if options.pace != "as_it_comes" else None
        self._reasoning = Matcher(automaton_of(options.text_rules)) if options.rules_in_reasoning else None
        self._only_rules = self._segments is None and self._reasoning is None
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self.stopped_by: Rule | None = None
        """The rule that ended the turn. The filter shows nothing after that."""
        self._leaves: Callable[[str], object] = always
        self._kinds = _ALL_CHANGE
        self._text.begin()
        if self._segments is not None:
            self._segments.flush()
        if self._reasoning is not None:
            self._reasoning.begin()
        self._ended_at = 0  # the position in the text where a call or reasoning was seen last

    @property
    def pending(self) -> str:
        """Text that is buffered."""
        return (self._segments.pending if self._segments is not None else "") + self._text.pending

    def search(self, leaves: Callable[[str], object]) -> Callable[[str], object]:
        """Return a search that finds nothing in quiet text, and counts such text. `leaves` is the search of prose."""
        begins = self._text.begins if self._only_rules else None
        if leaves is not self._leaves:
            self._leaves, self._kinds = leaves, delta_kinds(leaves, begins)
        return always if leaves is always or begins is None else self._find

    def _find(self, text: str) -> object:
        if self._text.pending or self._kinds[text]:
            return True
        self._text.position += len(text)
        return None

    def feed_text(self, text: str) -> list[UIEvent] | None:
        """Return the events for text in prose, or None if the parser has to read it. A third of the cost of `take`."""
        if self._kinds[text] == CHANGES:
            return None
        if not self._only_rules:
            return self.take((Text(text),))
        pieces = self._text.feed(text)
        if type(pieces) is str:
            return [Text(pieces)] if pieces else []
        events: list[UIEvent] = []
        self._show(pieces, events)
        return events

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Return the events that the reader sees in place of `events`."""
        out: list[UIEvent] = []
        for event in events:
            if self.stopped_by is not None:
                break
            if isinstance(event, Text):
                self._end_reasoning(out)
                if self.stopped_by is None:
                    self._show(self._text.feed(event.text), out)
            elif isinstance(event, Reasoning) and self._reasoning is not None:
                self._end_text(out)
                if self.stopped_by is None:
                    self._think(event, self._reasoning, out)
            else:
                if isinstance(event, Thinking | Reasoning):
                    self.end(out)
                if self.stopped_by is None:
                    out.append(self.redact(event))
        return out

    def end(self, out: list[UIEvent]) -> None:
        """Add the buffered text to `out`, because something other than text follows."""
        if self.stopped_by is None:
            self._end_reasoning(out)
        if self.stopped_by is None:
            self._end_text(out)

    def redact(self, event: UIEvent) -> UIEvent:
        """Return the event without matches in the model's words that it repeats."""
        if not self._redacting:
            return event
        match event:
            case Error(message=message, call_id=None, raw=None):  # the provider's message may quote the text
                return replace(event, message=self._without(message))
            case FollowUp(messages):
                clean = with_texts(messages, self._without)
                return event if clean == messages else self._replaced(event, messages, messages=clean)
            case Call(call) if call.raw:
                raw = self._without(call.raw)
                return event if raw == call.raw else self._replaced(event, call.raw, call=replace(call, raw=raw))
            case Error(raw=str() as raw):
                clean = self._without(raw, cut=event.code is Code.TOO_LARGE)
                return event if raw == clean else self._replaced(event, raw, raw=clean)
            case Warning(code, message, raw):  # `raw` may hold half of a match: in a near miss, or next to a lost frame
                half = raw is None or code in (Code.NEAR_MISS, Code.BAD_FRAME, Code.SKIPPED)
                clean = None if half else self._without(raw or "", cut=True)
                return replace(event, message=self._without(message), raw=clean)
            case Raw(data, item=item):
                clean, kept = with_texts(data, self._without), with_texts(item, self._without)
                return event if (data, item) == (clean, kept) else self._replaced(event, event, data=clean, item=kept)
        return event

    def _replaced(self, event: Any, written: Any, **changes: Any) -> UIEvent:
        changed: Any = replace(event, **changes)
        if self._keeps_written:
            changed.set_written(written)
        made: UIEvent = changed
        return made

    def _without(self, text: str, *, cut: bool = False) -> str:
        """Return text without matches. If the text was `cut`, remove a match that its end may have begun, too."""
        if not cut:
            return shown(self._redacting, text)
        return in_place(Matcher(automaton_of(self._redacting)).feed(text))

    # Text.

    def _show(self, pieces: Pieces, out: list[UIEvent]) -> None:
        """Add the events for text and for the matches in it."""
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            if isinstance(piece, Match):
                self._flush_segments(out)
                self._report(piece, out, "text")
                if self.stopped_by is not None:
                    return
                continue
            text = piece if self._segments is None else self._segments.feed(piece)
            if text:
                out.append(Text(text))

    def _end_text(self, out: list[UIEvent]) -> None:
        if self._text.position != self._ended_at:
            self._ended_at = self._text.position
            self._show(self._text.close(), out)
        self._flush_segments(out)

    def _flush_segments(self, out: list[UIEvent]) -> None:
        if self._segments is not None and (text := self._segments.flush()):
            out.append(Text(text))

    # Reasoning.

    def _think(self, event: Reasoning, matcher: Matcher, out: list[UIEvent]) -> None:
        self._show_reasoning(matcher.feed(event.text), out)
        if self.stopped_by is None and (event.signature or event.id or event.redacted or event.own):
            self._end_reasoning(out)
            if self.stopped_by is None:  # the signature goes with the written reasoning, which stays in the process
                signed = RuledReasoning("", 0, event.signature, event.id, event.redacted)
                signed.set_written(replace(event, text=""))
                out.append(signed)

    def _show_reasoning(self, pieces: Pieces, out: list[UIEvent]) -> None:
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            if isinstance(piece, Match):
                self._report(piece, out, "reasoning")
                if self.stopped_by is not None:
                    return
            elif piece:
                out.append(Reasoning(piece))

    def _end_reasoning(self, out: list[UIEvent]) -> None:
        if self._reasoning is not None and self._reasoning.pending:
            self._show_reasoning(self._reasoning.close(), out)

    def _report(self, match: Match, out: list[UIEvent], where: Literal["text", "reasoning"]) -> None:
        """Add the event of a match, and the text that replaces it."""
        rule, written, position = match
        text = rule.text_for(written)
        fields = dict(rule.fields(written)) if rule.fields is not None else None
        matched = Matched(rule.name, rule.action, position, len(written), len(text), fields, where=where)
        matched.set_match(written, written=self._keeps_written or where == "reasoning")
        out.append(matched)
        if text:
            out.append(Text(text) if where == "text" else Reasoning(text))
        if rule.action in ("stop", "fail"):
            self.stopped_by, self._kinds = rule, _ALL_CHANGE
