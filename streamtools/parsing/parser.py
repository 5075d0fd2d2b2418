"""Text in, events out: visible text, reasoning, and the calls that the model wrote.

The parser is in one of three states: prose, reasoning, or a span that belongs to a dialect. `feed` is defined for each
character, so the cuts between deltas change only the number of events. Most deltas do not change the state. Each state
has a search that finds nothing in such a delta, and only the other deltas are read:

    Prose                  visible text up to the next marker
    ReasoningText          reasoning up to its closing tag
    Span                   a call, read by the grammar of its dialect
    TextFilter             the stage after the parser, only with `text_rules` or `pace`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Unpack

from streamtools.errors import ClosedError, Code, check_names
from streamtools.events import Call, CallDelta, Error, Reasoning, Text, UIEvent
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialect_set import dialect_set_of
from streamtools.parsing.dialects import Dialects, Opener, choose_dialects
from streamtools.parsing.options import Options, OtherOptions, ParserKeywords
from streamtools.parsing.prose import MarkerFound, Prose
from streamtools.parsing.reader import always
from streamtools.parsing.reasoning import ReasoningEnd, ReasoningText
from streamtools.parsing.span import Span
from streamtools.parsing.visible import Visible

if TYPE_CHECKING:
    from streamtools.parsing.text_filter import TextFilter
    from streamtools.rules.rule import Rule

_BLOCK: Final = 8192  # characters that are read in one step: the text after a call is copied, for each of many calls
_REREAD_BLOCK: Final = 512  # the same for text that is read a second time

NO_TEXT = "decode bytes, or let `streamtools.sources` read the stream"
"""Advice for a delta that is not a str."""


class Parser:
    """A push parser for the text of a model. `feed` and `close` return the events that are certain.

    Model output never raises. `dialects` are ids, `Dialect` objects or `"auto"`; None means `"auto"`, and `()` enables
    none. `tools` are the declared tools: a registry, a tool, a provider's definition as a dict, or several of these.
    Some dialects need them to read values by their schemas, or calls by their names. Declare a function by
    `tool(function)`. The other parameters are the fields of `Options`.

    Raises TypeError if `tools` declares nothing, ValueError for an unknown dialect or value, ImportError for `repair`
    without its extra, and `ClosedError` for a `feed` after `close`.

    >>> parser = Parser()
    >>> parser.feed("Hello "), parser.feed("##"), parser.feed(" World"), parser.close()
    ([Text(text='Hello ', seq=0)], [], [Text(text='## World', seq=0)], [])
    """

    def __init__(
        self,
        dialects: Dialects = None,
        tools: Any = None,
        in_reasoning: bool = False,
        call_deltas: bool = False,
        **options: Unpack[OtherOptions],
    ) -> None:
        check_names("Parser()", options, ("dialects", "tools", *ParserKeywords.__annotations__))
        self._options = chosen = Options(in_reasoning=in_reasoning, call_deltas=call_deltas, **options)
        self._declared = Declared(tools)
        enabled = choose_dialects(dialects)
        parameters = tools is not None and any(dialect.openers_of for dialect in enabled)
        signatures = self._declared.signatures(parameters=parameters)
        self._dialects = dialect_set_of(enabled, chosen.in_code, chosen.reasoning, signatures, chosen.calls_at)
        self._output = CallEvents(chosen)
        self._visible = Visible(self._output, chosen)
        self._prose = Prose(self._dialects, chosen, self._output, self._visible)
        self._filter: TextFilter | None = None
        if chosen.text_rules or chosen.pace != "as_it_comes":
            from streamtools.parsing.text_filter import TextFilter  # loads all of the rules, which few parsers use

            self._filter = TextFilter(chosen)
        self._closed = self._ended = False
        self._search: Callable[[str], object] = always  # finds nothing in a delta that does not change the state
        self._skim: Callable[[str], list[UIEvent]] | None = None  # returns the events for such a delta
        self._shows = False  # such a delta is visible text
        self.reset()

    def feed(self, delta: str) -> list[UIEvent]:
        """Return the events that are certain after `delta`."""
        # The fast path for a delta in which `_search` finds nothing: such a delta does not change the state. No other
        # code outside of Prose writes `Prose.last`. Inlining `Span.skim` makes a delta of arguments 12 % cheaper.
        search = self._search  # a local variable: Python looks up a method call in the type first
        try:
            if search(delta) is None and delta:
                if self._shows:
                    self._prose.last = delta
                    return [Text(delta)]
                if (span := self._span) is None:
                    if (skim := self._skim) is not None:
                        return skim(delta)
                elif (room := span.room - len(delta)) >= 0:
                    span.room = room
                    span.parts.append(delta)
                    if span.call_id is not None:
                        return [CallDelta(span.call_id, delta)]
                    events: list[UIEvent] = []
                    self._output.events = events
                    if (take := span.take) is not None:
                        take(delta)
                    return events
                elif (skimmed := span.skim(delta)) is not None:
                    return skimmed
            elif not (delta or self._closed):
                return []
        except TypeError:
            if isinstance(delta, str):
                raise
            raise TypeError(f"a delta must be a str, got {type(delta).__name__}: {NO_TEXT}") from None
        if len(delta) > _BLOCK:
            return self._feed_in_blocks(delta)
        if (text_filter := self._filter) is not None:
            if text_filter.stopped_by is not None:
                return []
            if self._shows and (shown := text_filter.feed_text(delta)) is not None:
                self._prose.last = delta
                return shown
        events = []
        self._output.events = events
        if (span := self._span) is not None:
            if len(delta) <= span.room and span.read(delta, self._body):
                self._search = span.leaves
            else:
                self._run(delta)
        elif self._prose.direct and self._reasoning is None and not self._closed:
            found = self._prose.read(delta, False)
            if found is None:
                leaves = self._prose.leaves
                self._search = leaves if self._filter is None else self._filter.search(leaves)
            else:
                self._run(None, found)
        else:
            self._run(delta)
        return events if text_filter is None else self._filtered(events)

    def close(self) -> list[UIEvent]:
        """Return the last events: pending text is text, and an open call is cut off. `reset` begins a new turn."""
        if self._closed:
            return []
        self._ended = True
        self._output.events = events = list[UIEvent]()
        self._run("")
        self._closed, self._shows, self._skim, self._search = True, False, None, always  # so `feed` notices the end
        return self._filtered(events, ends=True)

    def release(self) -> list[UIEvent]:
        """Return pending text as text, because the next text does not continue it. The turn goes on."""
        if self.stopped_by is not None:
            return []
        self._output.events = events = list[UIEvent]()
        if not self._closed and self._span is None and self._reasoning is None:
            self._ended = True
            self._run("")
            self._ended = False
        return self._filtered(events, ends=True)

    def discard(self) -> list[UIEvent]:
        """End the open call, if there is one, as superseded. Only `close` may follow."""
        self._output.events = events = list[UIEvent]()
        if self._span is not None:
            self._span.discard()
        return self._filtered(events)

    def lose(self) -> None:
        """Mark a gap: a part of the text is missing here, so a call around the gap is an error."""
        if self._span is not None:
            self._span.lose()
        elif self._reasoning is not None:
            self._reasoning.lose()

    def reset(self) -> None:
        """Begin a new turn, whatever the state of the last one."""
        self._closed = self._ended = False
        self._span: Span | None = None
        self._body: Iterator[None] = iter(())  # the grammar that reads the span
        self._reasoning: ReasoningText | None = None
        self._visible.reset()
        self._output.begin()
        if self._filter is not None:
            self._filter.begin()
            self._seen = 0, 0  # the calls and errors that have passed the filter
        self.calls = self._output.calls
        """The calls of this turn."""
        self.errors = self._output.errors
        """The malformed calls of this turn, at most as many as the limit of calls."""
        self._prose.begin()
        self._run(None)
        if self._options.in_reasoning:
            self._think(self._dialects.tags.any_closing, opened=False)
            self._choose_search()

    @property
    def pending(self) -> str:
        """Text that was fed and may still become a marker or, with rules or a pace, a match or a word."""
        text = self._reasoning.pending if self._reasoning is not None else self._prose.pending
        return text if self._filter is None else self._filter.pending + text

    @property
    def stopped_by(self) -> Rule | None:
        """The rule that has ended the answer."""
        return self._filter.stopped_by if self._filter is not None else None

    @property
    def stopped(self) -> bool:
        """Whether text after a call (`after_call="stop"`) or a rule has ended the answer. Later text is not read."""
        return self.stopped_by is not None or self._visible.stopped

    # For events that are not made from the text.

    def end_match(self) -> list[UIEvent]:
        """Return the text that the filter buffers, because an event that is not text follows."""
        return self._filtered([], ends=True)

    def filter_reasoning(self, event: Reasoning) -> list[UIEvent]:
        """Return the events that the reader sees in place of the provider's reasoning."""
        return self._filtered([event])

    def redact(self, event: UIEvent) -> UIEvent:
        """Return an event without matches in the model's words that it repeats."""
        return event if self._filter is None else self._filter.redact(event)

    def _filtered(self, events: list[UIEvent], *, ends: bool = False) -> list[UIEvent]:
        """Return the events that the reader sees. Calls and errors after the end of the answer do not count."""
        if (text_filter := self._filter) is None:
            return events
        shown = text_filter.take(events)
        if ends:
            text_filter.end(shown)
        calls, errors = self._seen
        if len(self.calls) > calls or len(self.errors) > errors:
            self.calls[calls:] = [event.call for event in shown if isinstance(event, Call)]
            failed = [event for event in shown if isinstance(event, Error)]
            self.errors[errors:] = failed[: len(self.errors) - errors]
            self._seen = len(self.calls), len(self.errors)
        if text_filter.stopped_by is not None:
            self._search = always
        return shown

    # Reading.

    def _feed_in_blocks(self, delta: str) -> list[UIEvent]:
        # A function of its own: a comprehension in `feed` would turn its variables into cells, a sixth of its cost.
        return [event for at in range(0, len(delta), _BLOCK) for event in self.feed(delta[at : at + _BLOCK])]

    def _reread(self, text: str) -> str:
        """Read text a second time, in blocks. Returns the last block, which is unread."""
        ended, last = self._ended, max(0, len(text) - 1) // _REREAD_BLOCK * _REREAD_BLOCK
        if last:
            self._ended = False
            for at in range(0, last, _REREAD_BLOCK):
                self._run(text[at : at + _REREAD_BLOCK])
            self._ended = ended
        return text[last:]

    def _run(self, text: str | None, found: MarkerFound | None = None) -> None:
        """Read text that may change the state, or the text after the marker that was `found`."""
        if self._closed:
            raise ClosedError("the parser is closed; call reset() before the next turn")
        prose, visible = self._prose, self._visible
        while True:
            span = self._span
            if span is not None and span.finished:  # text follows it
                self._span = None
                if span.calls.found and not prose.direct:  # otherwise nothing depends on it
                    visible.end_call()
                at, text = span.at, span.text
                prose.resume(text[at - 1] if at else span.last, several_lines=span.several_lines)
                text = text[at:]
                if len(text) > _REREAD_BLOCK:
                    text = self._reread(text)
                text = text or None
            elif visible.stopped:
                break
            elif span is not None:
                if text is None:
                    break
                long = len(text) > span.room or self._ended
                if self._read_span(span, text) if long else span.read(text, self._body):
                    break
            elif found is not None:
                (begun, dialect, marker, text), found = found, None
                if isinstance(begun, ReasoningEnd):
                    self._think(begun)
                else:
                    self._begin_span(begun, dialect, marker)
            elif text is None:
                break
            elif self._reasoning is not None:
                text = self._read_reasoning(self._reasoning, text)
                if text is not None:
                    text = self._reread(text)
            else:
                found = prose.read(text, self._ended)
                text = None
        if self._ended and not prose.direct:  # otherwise no text is withheld
            visible.flush()
        self._choose_search()

    def _choose_search(self) -> None:
        """Choose the search for deltas that do not change the state, and the function that returns their events."""
        self._search, self._skim, self._shows = always, None, False
        if self._span is not None:
            self._search = self._span.leaves
        elif self._reasoning is None:
            leaves = self._prose.leaves
            self._search, self._shows = leaves if self._filter is None else self._filter.search(leaves), True
        elif not self._reasoning.pending:
            self._search = self._reasoning.leaves
            self._skim = self._reasoning.skim if self._filter is None else self._skim_reasoning

    def _begin_span(self, opener: Opener, dialect: str, marker: str) -> None:
        known = dialect if opener.kind == "call" else None
        self._span = span = Span(marker, known, self._output, self._declared, self._visible.show_raw, opener.announces)
        self._body = opener.body(span)
        if not hasattr(self._body, "__next__"):
            raise TypeError(f"the body of the opener {opener.parts[0]!r} must be a generator function")

    def _read_span(self, span: Span, text: str) -> bool:
        """Read text that may be longer than the limit of a call. Returns whether the span continues after it."""
        span.ended = self._ended
        while len(text) > span.room and span.stores:
            room = span.room
            if not span.read(text[:room], self._body):
                span.text += text[room:]
                return False
            text = text[room:]
            if span.stores and not span.room:  # no other limit is exceeded, and no call has ended
                span.exceed(Code.TOO_LARGE)
        return span.read(text, self._body)

    def _think(self, closing: ReasoningEnd, *, opened: bool = True) -> None:
        keep_markup = self._options.keep_markup
        self._reasoning = ReasoningText(closing, self._output, self._declared, keep_markup=keep_markup, opened=opened)

    def _read_reasoning(self, reasoning: ReasoningText, delta: str) -> str | None:
        rest = reasoning.read(delta, self._ended)
        if rest is not None or self._ended:
            reasoning.close()
            self._reasoning = None
            self._prose.begin_after_reasoning()
        return rest

    def _skim_reasoning(self, delta: str) -> list[UIEvent]:
        assert self._reasoning is not None
        return self._filtered(self._reasoning.skim(delta))
