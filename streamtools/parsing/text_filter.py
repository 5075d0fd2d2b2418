"""Applies the options `text_rules` and `pace` to the events of the parser.

Visible text goes through a `Matcher`, which buffers text that may become a match. If the option `pace` is set, the text
then goes through a `SegmentBuffer`. A match cannot continue across a call or reasoning, so buffered text is shown
before the call or the reasoning. With `rules_in_reasoning`, reasoning goes through a second matcher. Matches are also
removed from the text in calls, errors and warnings. Matches of rules with the action `mark` are kept there.

    filter.take(events)   # returns the filtered events
    filter.end(events)    # adds the buffered text, because an event other than text follows
"""

from __future__ import annotations

import re
import unicodedata
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
from streamtools.rules.automaton import automaton_of
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
        """`find_change` finds text that `Prose` must read. `begins` finds where a match may begin; None: anywhere."""
        self._find_change = find_change
        self._either = None  # one search that replaces both; None if they cannot be combined
        change, rule = (getattr(search, "__self__", None) for search in (find_change, begins))
        if isinstance(change, re.Pattern) and isinstance(rule, re.Pattern):  # a search may compile its pattern later
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
    """Applies the rules and the pace in `options` to the events of a turn. `begin` starts the next turn."""

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
        """The rule that ended the turn, or None. After a rule has ended the turn, the filter returns no events."""
        self._find_change: Callable[[str], object] = always
        self._kinds = _ALL_CHANGE
        self._text.begin()
        if self._segments is not None:
            self._segments.flush()
        if self._reasoning is not None:
            self._reasoning.begin()
        self._ended_at = 0  # the position in the text at which the matcher was last closed

    @property
    def pending(self) -> str:
        """The text that is buffered."""
        return (self._segments.pending if self._segments is not None else "") + self._text.pending

    def search(self, prose: Prose) -> Callable[[str], object]:
        """Return `feed_text`, or the `find_change` of `prose` if pending text lets no delta be shown unchanged."""
        find_change = prose.find_change
        if find_change is not self._find_change and not prose.pending:
            begins = self._text.search_beginning if self._only_rules else None
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
        if not self._only_rules:
            return self.take((Text(text),))
        pieces = matcher.feed(text)
        if type(pieces) is str:
            return [Text(pieces)] if pieces else []
        events: list[UIEvent] = []
        self._show(pieces, events)
        return events

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Apply the rules and the pace to `events`. Returns the events that replace them."""
        out: list[UIEvent] = []
        for event in events:
            if isinstance(event, Text):
                self._end_reasoning(out)
                self._show(self._text.feed(event.text), out)
            elif isinstance(event, Reasoning) and self._reasoning is not None:
                self._end_text(out)
                self._show(self._reasoning.feed(event.text), out, Reasoning)
                if event.signature or event.id or event.redacted or event.own:
                    self._end_reasoning(out)
                    if self.stopped_by is None:  # the signature fits only the original text, which is not shown
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
        return replace_matches(Matcher(automaton_of(self._redacting)).feed(text))

    def _end_text(self, out: list[UIEvent]) -> None:
        if self._text.position != self._ended_at:
            self._ended_at = self._text.position
            self._show(self._text.close(), out)
        self._flush_segments(out)

    def _end_reasoning(self, out: list[UIEvent]) -> None:
        if self._reasoning is not None and self._reasoning.pending:
            self._show(self._reasoning.close(), out, Reasoning)

    def _flush_segments(self, out: list[UIEvent]) -> None:
        if self._segments is not None and (text := self._segments.flush()) and self.stopped_by is None:
            out.append(Text(text))

    def _show(self, pieces: TextAndMatches, out: list[UIEvent], event: type[Text | Reasoning] = Text) -> None:
        """Add the events for text or reasoning, and for the matches in it. Add none after a rule has ended the turn."""
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            if self.stopped_by is not None:
                return
            if isinstance(piece, Match):
                if event is Text:
                    self._flush_segments(out)
                self._report(piece, out, event)
            else:
                text = piece if self._segments is None or event is Reasoning else self._segments.feed(piece)
                if text:
                    out.append(event(text))

    def _report(self, match: Match, out: list[UIEvent], event: type[Text | Reasoning]) -> None:
        """Add the event of a match to `out`, and the text that replaces the match."""
        rule, written, position = match
        text = rule.text_for(written)
        fields = dict(rule.fields(written)) if rule.fields is not None else None
        where: Literal["text", "reasoning"] = "text" if event is Text else "reasoning"
        matched = Matched(rule.name, rule.action, position, len(written), len(text), fields, where=where)
        matched.set_match(written, written=self._keeps_written or event is Reasoning)
        out.append(matched)
        if text:
            out.append(event(text))
        if rule.action in ("stop", "fail"):
            self.stopped_by, self._kinds = rule, _ALL_CHANGE


# The option `pace` splits text into whole words or graphemes, instead of the provider's tokens. A grapheme is an
# extended grapheme cluster of Unicode (UAX 29): a letter with its marks, a joined emoji, or a flag. The next character
# decides whether a grapheme has ended, so the last grapheme is always pending.

_MAX_PENDING = 64  # the limit of pending characters; a longer word is split
_JOINER = "\u200d"
_MARKS = frozenset(("Mn", "Me", "Mc"))


class SegmentBuffer:
    """Buffers text until a grapheme is complete. With `words`, it buffers text until a word is complete.

    In scripts without spaces, such as Chinese and Japanese, each character is a word.
    """

    def __init__(self, *, words: bool) -> None:
        self._words = words
        self.pending = ""
        """The last word or grapheme, which may continue."""

    def feed(self, text: str) -> str:
        """Add `text` to the buffer. Returns the words or graphemes that are now complete."""
        if not text:
            return ""
        before = len(self.pending)
        text = self.pending + text
        at = len(text)
        if not (self._words and text[-1:].isspace()):
            at -= 1
            while at > before and not self._ends(text, at):
                at -= 1
            if at <= before:
                at = before if before and self._ends(text, before) else 0
            at += (len(text) - at) // _MAX_PENDING * _MAX_PENDING
        self.pending = text[at:]
        return text[:at]

    def flush(self) -> str:
        """Return the pending text, because an event other than text follows."""
        pending, self.pending = self.pending, ""
        return pending

    def _ends(self, text: str, at: int) -> bool:
        """Return whether a word or a grapheme ends at the index `at`."""
        before, after = text[at - 1], text[at]
        if self._words and not (before.isspace() or _is_word(before) or _is_word(after)):
            return False
        return not _joined(text, at, before, after)


def _is_word(character: str) -> bool:
    """Return whether a character is a word by itself, in a script without spaces."""
    return "\u2e80" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff" or character >= "\U00020000"


def _joined(text: str, at: int, before: str, after: str) -> bool:
    """Return whether `before` and `after`, the characters around the index `at`, belong to one grapheme."""
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    if after in (_JOINER, "\u200c") or before == _JOINER or unicodedata.category(after) in _MARKS:
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":  # skin tones and tag characters
        return True
    if _is_half_flag(before) and _is_half_flag(after):
        begin = at
        while begin and _is_half_flag(text[begin - 1]):
            begin -= 1
        return (at - begin) % 2 == 1
    # Hangul: the parts of a syllable may arrive as separate characters.
    if "\u1100" <= before <= "\u115f":
        return "\u1100" <= after <= "\u11a7" or "\uac00" <= after <= "\ud7a3"
    return ("\u1160" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3") and "\u1160" <= after <= "\u11ff"


def _is_half_flag(character: str) -> bool:
    """Return whether a character is a regional indicator. Two of them are a flag."""
    return "\U0001f1e6" <= character <= "\U0001f1ff"
