"""Applies the option `text_rules` to the events of the parser.

Visible text goes through a `Matcher`, which buffers text that may become a match. A match cannot continue across a call
or reasoning, so buffered text is shown before the call or the reasoning. With `rules_in_reasoning`, reasoning goes
through a second matcher. Matches are also removed from the text in calls, errors and warnings. Matches of rules with
the action `mark` are kept there.

    filter.take(events)   # returns the filtered events
    filter.end(events)    # adds the buffered text, because an event other than text follows
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
    RuledReasoning,
    Text,
    Thinking,
    UIEvent,
    Warning,
)
from streamtools.json_values import with_texts
from streamtools.parsing.options import Options
from streamtools.parsing.prose import Prose
from streamtools.parsing.reader import always
from streamtools.rules.matcher import Match, Matcher, TextAndMatches, replace_matches, shown
from streamtools.rules.rule import Rule

_MAX_CACHED_LENGTH = 16  # the length of the longest delta whose kind is cached
_MAX_CACHED = 16_384  # the limit of cached deltas


QUIET, MAY_MATCH, CHANGES = range(3)
"""Kinds of deltas in prose. QUIET: no match and no marker begins in the delta. MAY_MATCH: a match may begin in it.

CHANGES: the parser must read it.
"""


class DeltaKinds(dict[str, int]):
    """A cache for the kinds of deltas. A lookup takes half the time of a search, and most tokens recur.

    Without this cache and `search_beginning`, prose with 20 literal rules costs 1.35 times as much.
    """

    def __init__(self, find_change: Callable[[str], object], begins: Callable[[str], object] | None) -> None:
        """`find_change` finds text that `Prose` must read. `begins` finds the possible beginning of a match.

        With `begins=None`, a match may begin in any text.
        """
        self._find_change = find_change
        self._either = None  # one search for both functions; None if they cannot be combined
        change, rule = (getattr(search, "__self__", None) for search in (find_change, begins))
        if isinstance(change, re.Pattern) and isinstance(rule, re.Pattern):  # others compile their pattern later
            self._either = re.compile(f"{change.pattern}|{rule.pattern}").search

    def __missing__(self, delta: str) -> int:
        if delta and self._either is not None and self._either(delta) is None:
            kind = QUIET
        else:
            kind = MAY_MATCH if delta and self._find_change(delta) is None else CHANGES
        if len(delta) <= _MAX_CACHED_LENGTH and self._find_change is not always:
            if len(self) >= _MAX_CACHED:
                self.clear()
            self[delta] = kind
        return kind


delta_kinds = lru_cache(maxsize=32)(DeltaKinds)
_ALL_CHANGE = delta_kinds(always, None)  # every delta is of the kind CHANGES


class TextFilter:
    """Applies the rules in `options` to the events of a turn. `begin` starts the next turn."""

    def __init__(self, options: Options) -> None:
        self._redacting = [rule for rule in options.text_rules if rule.redacts]
        self._keeps_written = options.history == "as_written"
        self._text = Matcher(options.text_rules)
        self._reasoning = Matcher(in_reasoning) if (in_reasoning := options.reasoning_rules) else None
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self.stopped_by: Rule | None = None
        """The rule that ended the turn, or None. After a rule has ended the turn, the filter returns no events."""
        self._find_change: Callable[[str], object] = always
        self._kinds = _ALL_CHANGE
        self._text.begin()
        if self._reasoning is not None:
            self._reasoning.begin()
        self._ended_at = 0  # the position in the text at which the matcher was last closed

    @property
    def pending(self) -> str:
        """The text that is buffered."""
        return self._text.pending

    def search(self, prose: Prose) -> Callable[[str], object]:
        """Return `feed_text`. While `prose` has pending text, return its `find_change` instead."""
        find_change = prose.find_change
        if find_change is not self._find_change and not prose.pending:
            begins = self._text.search_beginning if self._reasoning is None else None
            self._find_change, self._kinds = find_change, delta_kinds(find_change, begins)
        return find_change if prose.pending else self.feed_text

    def feed_text(self, text: str) -> list[UIEvent] | bool | None:
        """Fast path for `take`, at a third of its cost: return the events for a delta in prose.

        Returns None if the delta is shown unchanged, True if the parser must read it, and False after a rule has ended
        the turn.
        """
        kind, matcher = self._kinds[text], self._text
        if kind == QUIET and not matcher.pending:
            matcher.position += len(text)
            return None
        if kind == CHANGES:
            return self.stopped_by is None
        if self._reasoning is not None:
            return self.take((Text(text),))
        pieces = matcher.feed(text)
        if type(pieces) is str:
            return [Text(pieces)] if pieces else []
        events: list[UIEvent] = []
        self._show(pieces, events)
        return events

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Apply the rules to `events`. Returns the events that replace them."""
        out: list[UIEvent] = []
        for event in events:
            if isinstance(event, Text):
                self._end_reasoning(out)
                self._show(self._text.feed(event.text), out)
            elif isinstance(event, Reasoning) and self._reasoning is not None:
                self._end_text(out)
                self._show(self._reasoning.feed(event.text), out, Reasoning)
                ends = event.signature or event.id or event.redacted
                if ends:
                    self._end_reasoning(out)
                if (ends or event.own) and self.stopped_by is None:
                    # The signature fits only the original text, not the shown text.
                    signed = RuledReasoning("", 0, event.signature, event.id, event.redacted)
                    signed.set_written(replace(event, text=""))
                    out.append(signed)
            else:
                if isinstance(event, Thinking | Reasoning):
                    self.end(out)
                if self.stopped_by is None:
                    out.append(self.redact(event))
        return out

    def end(self, out: list[UIEvent]) -> None:
        """Add the buffered text to `out`, because an event other than text follows."""
        self._end_reasoning(out)
        self._end_text(out)

    def redact(self, event: UIEvent) -> UIEvent:
        """Return `event`. If it quotes text of the model, matches are removed from the quoted text."""
        if not self._redacting:
            return event
        match event:
            case Error(message=message, call_id=None, raw=None):  # the provider's message may quote the text
                return replace(event, message=self._without_matches(message))
            case FollowUp(messages):
                clean = with_texts(messages, self._without_matches)
                return event if clean == messages else self._replaced(event, messages, messages=clean)
            case Call(call) if call.raw:
                raw = self._without_matches(call.raw)
                return event if raw == call.raw else self._replaced(event, call.raw, call=replace(call, raw=raw))
            case Error(raw=str() as raw):
                clean = self._without_matches(raw, cut=event.code is Code.TOO_LARGE)
                return event if raw == clean else self._replaced(event, raw, raw=clean)
            case Warning(code, message, raw):  # for some codes, `raw` may hold half a match, so all of it is removed
                half = raw is None or code in (Code.NEAR_MISS, Code.BAD_FRAME, Code.SKIPPED)
                clean = None if half else self._without_matches(raw or "", cut=True)
                return replace(event, message=self._without_matches(message), raw=clean)
            case Raw(data, item=item):
                clean, kept = with_texts(data, self._without_matches), with_texts(item, self._without_matches)
                return event if (data, item) == (clean, kept) else self._replaced(event, event, data=clean, item=kept)
        return event

    def _replaced(self, event: Any, written: Any, **changes: Any) -> UIEvent:
        """Return the event with `changes`. With `history="as_written"`, it also stores the original text `written`."""
        changed: Any = replace(event, **changes)
        if self._keeps_written:
            changed.set_written(written)
        made: UIEvent = changed
        return made

    def _without_matches(self, text: str, *, cut: bool = False) -> str:
        """Return `text` without matches. With `cut`, also remove an incomplete match at its end."""
        if not cut:
            return shown(self._redacting, text)
        return replace_matches(Matcher(self._redacting).feed(text))

    def _end_text(self, out: list[UIEvent]) -> None:
        if self._text.position != self._ended_at:
            self._ended_at = self._text.position
            self._show(self._text.close(), out)

    def _end_reasoning(self, out: list[UIEvent]) -> None:
        if self._reasoning is not None and self._reasoning.pending:
            self._show(self._reasoning.close(), out, Reasoning)

    def _show(self, pieces: TextAndMatches, out: list[UIEvent], event: type[Text | Reasoning] = Text) -> None:
        """Add the events for text or reasoning, and for the matches in it. Add none after a rule has ended the turn."""
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            if self.stopped_by is not None:
                return
            if isinstance(piece, Match):
                self._report(piece, out, event)
            elif piece:
                out.append(event(piece))

    def _report(self, match: Match, out: list[UIEvent], event: type[Text | Reasoning]) -> None:
        """Add the event of a match to `out`, and the text that replaces the match."""
        rule, written, position = match
        text = rule.text_for(written)
        if rule.restores and text == written:
            message = f"the vault has no value for the placeholder {written}"
            out += [event(written), Warning(Code.UNKNOWN_PLACEHOLDER, message)]
            return
        fields = dict(rule.fields(written)) if rule.fields is not None else None
        where: Literal["text", "reasoning"] = "text" if event is Text else "reasoning"
        matched = Matched(rule.name, rule.action, position, len(written), len(text), fields, where=where)
        matched.set_match(written, written=self._keeps_written or event is Reasoning)
        out.append(matched)
        if text:
            out.append(event(text))
        if rule.action in ("stop", "fail"):
            self.stopped_by, self._kinds = rule, _ALL_CHANGE
