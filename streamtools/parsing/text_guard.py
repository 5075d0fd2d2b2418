"""Rules on the text that a reader sees: between what a parser makes of the text and whoever reads its events.

Text goes through a matcher, which holds back what may become a match; calls and reasoning end it, and what was held
leaves before them. Reasoning may go through one of its own, which text ends. Whatever else an event holds of the
model's words is cleared of matches, unless the rules only mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

from msgspec.structs import replace

from streamtools.errors import Code
from streamtools.events import (
    Call,
    Error,
    FollowUp,
    Matched,
    Raw,
    Reasoning,
    Text,
    Thinking,
    UIEvent,
    Warning,
)
from streamtools.events.ui_events import RuledReasoning
from streamtools.json_values import with_texts
from streamtools.parsing.pace import Paced
from streamtools.parsing.policies import Options
from streamtools.parsing.reader import always
from streamtools.rules.automaton import automaton_of
from streamtools.rules.matcher import Found, Matcher, Pieces, in_place, shown
from streamtools.rules.rule import Rule

QUIET, MEETS, LEAVES = range(3)
"""What a delta is where rules read the text: nothing begins in it, a match may, or the parser has to look at it."""
_SHORT = 16  # characters of a delta of which it is kept what it is
_MOST = 16_384  # such deltas


class Deltas(dict[str, int]):
    """What deltas are, by their text. Most short ones come again, and a look costs less than a search."""

    def __init__(self, leaves: Callable[[str], object], begins: Callable[[str], object] | None) -> None:
        search: Any = leaves
        beside: Any = begins
        self._leaves = leaves
        self._quiet = None  # a search without groups, which jumps to either
        if begins is not None and isinstance(getattr(leaves, "__self__", None), re.Pattern):  # or it is yet to be made
            self._quiet = re.compile(f"{search.__self__.pattern}|{beside.__self__.pattern}").search

    def __missing__(self, delta: str) -> int:
        if self._quiet is not None and self._quiet(delta) is None:
            kind = QUIET
        else:
            kind = MEETS if self._leaves(delta) is None else LEAVES
        if len(delta) <= _SHORT and self._leaves is not always:
            if len(self) >= _MOST:
                self.clear()
            self[delta] = kind
        return kind


deltas_of = lru_cache(maxsize=32)(Deltas)
"""Makes one of the same searches once."""


class TextGuard:
    """Applies rules to the events of a turn and gives its text a pace."""

    def __init__(self, options: Options) -> None:
        self._redacting = [rule for rule in options.text_rules if rule.redacts]
        self._keeps = options.history == "as_written"
        self.matcher = Matcher(automaton_of(options.text_rules))
        self.paced: Paced | None = None
        """Holds back what is no whole word or grapheme, of what rules let through."""
        if options.pace != "as_it_comes":
            self.paced = Paced(words=options.pace == "words")
        self.thoughts = Matcher(automaton_of(options.text_rules)) if options.rules_in_reasoning else None
        """Looks for the rules in reasoning."""
        self.direct = self.matcher if self.paced is None and self.thoughts is None else None
        """The matcher, if text matters to it alone."""
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self.stopped_by: Rule | None = None
        """The rule that has ended the turn; nothing comes out any more."""
        self.matcher.begin()
        if self.paced is not None:
            self.paced.close()
        if self.thoughts is not None:
            self.thoughts.begin()
        self._ended = 0  # where a call or reasoning has come last

    @property
    def held(self) -> str:
        """Text that may become a match, and before it the beginning of a word or a grapheme."""
        return (self.paced.held if self.paced is not None else "") + self.matcher.held

    def deltas(self, leaves: Callable[[str], object]) -> Deltas:
        """Return what deltas are to a parser whose search this is, and to the rules."""
        return deltas_of(leaves, self.matcher.begins)

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Return what the reader sees of events."""
        out: list[UIEvent] = []
        for event in events:
            kind = type(event)
            if kind is Text:
                if self.thoughts is not None:
                    self._end_thoughts(out)
                if self.stopped_by is None:
                    self.show(self.matcher.feed(event.text), out)  # type: ignore[union-attr]  # as `kind` says
            elif kind is Reasoning and self.thoughts is not None:
                self._end_text(out)
                if self.stopped_by is None:
                    self._think(event, self.thoughts, out)
            else:
                if kind is Thinking or kind is Reasoning:
                    self.end(out)
                if self.stopped_by is None:
                    out.append(self.clean(event))
            if self.stopped_by is not None:
                break
        return out

    def end(self, out: list[UIEvent]) -> None:
        """End what may become a match: something else than text comes here. Add what was held."""
        self._end_thoughts(out)
        if self.stopped_by is None:
            self._end_text(out)

    def _end_thoughts(self, out: list[UIEvent]) -> None:
        if self.thoughts is not None and self.thoughts.held:
            self._show_thought(self.thoughts.close(), out)

    def _think(self, event: Any, thoughts: Matcher, out: list[UIEvent]) -> None:
        """Add what the reader sees of reasoning. What the provider has put beside it stays in the process."""
        self._show_thought(thoughts.feed(event.text), out)
        if self.stopped_by is None and (event.signature or event.id or event.redacted or event.own):
            self._end_thoughts(out)
            if self.stopped_by is None:
                last = RuledReasoning("", 0, event.signature, event.id, event.redacted)
                last.set_written(replace(event, text=""))
                out.append(last)

    def _show_thought(self, pieces: str | Pieces, out: list[UIEvent]) -> None:
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            if not isinstance(piece, Found):
                if piece:
                    out.append(Reasoning(piece))
                continue
            self._tell(piece, out, "reasoning")
            if self.stopped_by is not None:
                return

    def _end_text(self, out: list[UIEvent]) -> None:
        if self.matcher.position != self._ended:
            self._ended = self.matcher.position
            self.show(self.matcher.close(), out)
        self._show_waiting(out)

    def _show_waiting(self, out: list[UIEvent]) -> None:
        if self.paced is not None and (text := self.paced.close()):
            out.append(Text(text))

    def clean(self, event: UIEvent) -> UIEvent:
        """Return an event without matches in what it holds of the model's words beside the text."""
        if not self._redacting:
            return event
        match event:
            case Error(message=message, call_id=None, raw=None):  # of the provider's, which may quote
                return replace(event, message=self._without(message))
            case FollowUp(messages):
                clean = with_texts(messages, self._without)
                return event if clean == messages else self._instead(event, messages, messages=clean)
            case Call(call) if call.raw:
                raw = self._without(call.raw)
                return event if raw == call.raw else self._instead(event, call.raw, call=replace(call, raw=raw))
            case Error(raw=str() as raw):
                clean = self._without(raw, cut=event.code is Code.TOO_LARGE)
                return event if raw == clean else self._instead(event, raw, raw=clean)
            case Warning(code, message, raw):  # half of a match may be near a miss, or lost with a frame
                half = raw is None or code in (Code.NEAR_MISS, Code.BAD_FRAME, Code.SKIPPED)
                clean = None if half else self._without(raw or "", cut=True)
                return replace(event, message=self._without(message), raw=clean)
            case Raw(data, item=item):
                clean, kept = with_texts(data, self._without), with_texts(item, self._without)
                return event if (data, item) == (clean, kept) else self._instead(event, event, data=clean, item=kept)
        return event

    def _instead(self, event: Any, written: Any, **changes: Any) -> UIEvent:
        changed: Any = replace(event, **changes)
        if self._keeps:
            changed.set_written(written)
        made: UIEvent = changed
        return made

    def _without(self, text: str, *, cut: bool = False) -> str:
        if not cut:
            return shown(self._redacting, text)
        matcher = Matcher(automaton_of(self._redacting))
        return in_place(matcher.feed(text))

    def show(self, pieces: str | Pieces, out: list[UIEvent]) -> None:
        """Add what the reader sees of text and of matches in it."""
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            if not isinstance(piece, Found):
                text = piece if self.paced is None else self.paced.feed(piece)
                if text:
                    out.append(Text(text))
                continue
            self._show_waiting(out)
            self._tell(piece, out, "text")
            if self.stopped_by is not None:
                return

    def _tell(self, found: Found, out: list[UIEvent], where: Literal["text", "reasoning"]) -> None:
        """Add the event of a match, and what is shown in its place."""
        rule, match, position = found
        text = rule.text_for(match)
        fields = dict(rule.fields(match)) if rule.fields is not None else None
        matched = Matched(rule.name, rule.action, position, len(match), len(text), fields, 0, where)
        matched.set_match(match, written=self._keeps or where == "reasoning")
        out.append(matched)
        if text:
            out.append(Text(text) if where == "text" else Reasoning(text))
        if rule.action in ("stop", "fail"):
            self.stopped_by = rule
