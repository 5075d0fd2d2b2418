"""Converts the text of a model to events: visible text, reasoning, and the calls that the model wrote.

The parser is always in one of three states: prose, reasoning, or a span, which holds the text of a call. The cuts
between deltas change only how text is divided into events. Most deltas do not change the state. For each state, a fast
search recognizes these deltas, and only the rest is read in detail. One class handles each state. A fourth class may
change the events afterwards:

    Prose                  visible text up to the next marker
    ReasoningText          reasoning up to its closing tag
    Span                   a call, read by the grammar of its dialect
    TextFilter             changes the events after the parser; used only with `text_rules`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Unpack

from streamtools.errors import ClosedError, Code, check_names
from streamtools.events import Call, CallDelta, Error, Text, UIEvent
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialect_set import dialect_set_of
from streamtools.parsing.dialects import Dialects, choose_dialects
from streamtools.parsing.options import Options, ParserKeywords
from streamtools.parsing.prose import MarkerFound, Prose, Visible
from streamtools.parsing.reader import always
from streamtools.parsing.reasoning import ReasoningEnd, ReasoningText
from streamtools.parsing.span import Span

if TYPE_CHECKING:
    from streamtools.parsing.text_filter import TextFilter
    from streamtools.rules.rule import Rule

_BLOCK: Final = 8192  # how many characters are read in one step; after each tool call, the rest of the step is copied
_REREAD_BLOCK: Final = 512  # how many characters are read in one step when text is read a second time

HOW_TO_GET_TEXT = "decode bytes, or let `streamtools.sources` read the stream"
"""The advice at the end of the error message for a delta that is not a str."""


class Parser:
    """A push parser for the text of a model. `feed` and `close` return the events that later text cannot change.

    No text of a model raises an exception. `dialects` are ids, `Dialect` objects or `"auto"`. None means `"auto"`,
    and `()` enables no dialect. `tools` are the declared tools: a registry, a tool, a provider's definition as a dict,
    or several of these. Some dialects use the schemas of the tools to read values. Others recognize calls by the names
    of the tools. Declare a function with `tool(function)`. The other parameters are the fields of `Options`.

    Raises TypeError for a value in `tools` that declares no tool, such as a function. Raises ValueError for an unknown
    dialect or an invalid option. Raises ImportError if `repair=True` and the extra `repair` is not installed. `feed`
    raises `ClosedError` after `close`.

    >>> parser = Parser()
    >>> parser.feed("Hello "), parser.feed("##"), parser.feed(" World"), parser.close()
    ([Text(text='Hello ')], [], [Text(text='## World')], [])
    """

    def __init__(self, dialects: Dialects = None, tools: Any = None, **options: Unpack[ParserKeywords]) -> None:
        check_names("Parser()", options, ("dialects", "tools", *ParserKeywords.__annotations__))
        self.options = chosen = Options(**options)
        """The options, with their defaults."""
        self._declared = Declared(tools)
        enabled = choose_dialects(dialects)
        parameters = bool(self._declared.names) and any(dialect.openers_of for dialect in enabled)
        signatures = self._declared.signatures(parameters=parameters)
        self._dialects = dialect_set_of(enabled, chosen.in_code, chosen.reasoning, signatures, chosen.calls_at)
        self._output = CallEvents(chosen)
        self._visible = Visible(self._output, chosen)
        self._prose = Prose(self._dialects, chosen, self._output, self._visible)
        self._filter: TextFilter | None = None
        if chosen.text_rules:
            from streamtools.parsing.text_filter import TextFilter  # loads `streamtools.rules`, which few parsers use

            self._filter = TextFilter(chosen)
        self._closed = self._ended = False  # `_ended` is True while `close` or `release` reads the end of the text
        # `_search` returns None for a delta that does not change the state, and False for a delta that Prose has added
        # to its pending text. `TextFilter.feed_text` may return events.
        self._search: Callable[[str], object] = always
        # The next two attributes are for a delta in which `_search` finds nothing. In reasoning, `_skim` returns the
        # events of the delta. `_shows` is True if the delta is visible text that `Visible` does not change.
        self._skim: Callable[[str], list[UIEvent]] | None = None
        self._shows = False
        self.seq = 0
        """The `seq` of the only event of a delta that does not change the state. The other events have the `seq` 0.

        `StreamMachine` sets it before each delta, and numbers the other events itself.
        """
        self.reset()

    def feed(self, delta: str) -> list[UIEvent]:
        """Read `delta`. Return the events that later text cannot change."""
        # Fast path: a delta in which `_search` finds nothing does not change the state. Only this method and Prose set
        # `Prose.last`. This method itself adds the delta to an open span, because a call of `Span.read` would make a
        # delta of arguments 12 % slower.
        search = self._search  # calling a local variable is faster than calling an attribute
        try:
            found = search(delta)
            if found is None and delta:
                if self._shows:
                    self._prose.last = delta
                    return [Text(delta, self.seq)]
                if (span := self._span) is None:
                    if (skim := self._skim) is not None:
                        return skim(delta)
                elif (room := span.room - len(delta)) >= 0:
                    span.room = room
                    span.parts.append(delta)
                    if span.call_id is not None:
                        return [CallDelta(span.call_id, delta, self.seq)]
                    events: list[UIEvent] = []
                    self._output.events = events
                    if (take := span.take) is not None:
                        take(delta)
                    return events
            elif type(found) is list:  # from `TextFilter.feed_text`
                self._prose.last = delta
                return found
            elif not (found or self._closed):  # the delta is empty, pending, or after the end of the answer
                return []
        except TypeError:
            if isinstance(delta, str):
                raise
            raise TypeError(f"a delta must be a str, got {type(delta).__name__}: {HOW_TO_GET_TEXT}") from None
        if (size := len(delta)) > _BLOCK:
            return self._feed_in_blocks(delta)
        events = []
        self._output.events = events
        if (span := self._span) is not None:
            if size <= span.room and span.read(delta, self._body):
                self._search = span.find_change
            else:
                self._run(delta)
        elif self._shows:
            marker = self._prose.read(delta, False)
            if marker is None:
                prose, text_filter = self._prose, self._filter
                self._search = prose.find_change if text_filter is None else text_filter.search(prose)
            else:
                self._run(None, marker)
        else:
            self._run(delta)
        return events if self._filter is None else self.filter(events)

    def close(self) -> list[UIEvent]:
        """Return the last events of the turn. Pending text is shown as text, and an open call becomes an error.

        Call `reset` to begin a new turn.
        """
        if self._closed:
            return []
        self._ended = True
        self._output.events = events = list[UIEvent]()
        self._run("")
        self._closed, self._shows, self._skim, self._search = True, False, None, always  # `feed` then raises
        return self.filter(events, ends=True)

    def release(self) -> list[UIEvent]:
        """Return pending text as text, because the next text does not continue it. The turn continues."""
        if self.stopped_by is not None:
            return []
        self._output.events = events = list[UIEvent]()
        if not self._closed and self._span is None and self._reasoning is None:
            self._ended = True
            self._run("")
            self._ended = False
        return self.filter(events, ends=True)

    def discard(self) -> list[UIEvent]:
        """Drop pending text, and end an open call with the error `superseded`. Call only `close` after this."""
        self._output.events = events = list[UIEvent]()
        if (span := self._span) is not None:
            span.calls.discard("".join(span.parts) if span.stores else "")
        else:
            self._prose.begin()  # drops pending text, which may be the beginning of a marker
        return self.filter(events)

    def keep_calls(self) -> None:
        """Never turn a complete call into an error, because it may have run."""
        self._output.final = True

    def lose(self) -> None:
        """Record that the stream lost text at this position. A call around the gap becomes an error."""
        if self._span is not None:
            self._span.calls.lose()
        elif self._reasoning is not None:
            self._reasoning.lose()

    def reset(self) -> None:
        """Begin a new turn. The last turn may still be open."""
        self._closed = self._ended = False
        self._span: Span | None = None
        self._body: Iterator[None] = iter(())  # the grammar that reads the span
        self._reasoning: ReasoningText | None = None
        self._visible.reset()
        self._output.begin()
        if self._filter is not None:
            self._filter.begin()
            self._seen = 0, 0  # the numbers of calls and of errors that the filter has already returned
        self.calls = self._output.calls
        """The calls of this turn."""
        self.errors = self._output.errors
        """The error events of this turn's malformed calls. Their number is limited by `limits.calls`."""
        self._prose.begin()
        if self.options.in_reasoning:
            self._begin_reasoning(self._dialects.tags.any_closing, opened=False)
        self._run(None)

    @property
    def pending(self) -> str:
        """Text that was fed but not yet returned. It may become a marker, a match of a rule, or a part of a word."""
        text = self._reasoning.pending if self._reasoning is not None else self._prose.pending
        return text if self._filter is None else self._filter.pending + text

    @property
    def stopped_by(self) -> Rule | None:
        """The rule that has ended the answer, or None."""
        return self._filter.stopped_by if self._filter is not None else None

    @property
    def stopped(self) -> bool:
        """Whether a rule or, with `after_call="stop"`, text after a call has ended the answer. The rest is ignored."""
        return self.stopped_by is not None or self._visible.stopped

    # For events that are not made from the text.

    def redact(self, event: UIEvent) -> UIEvent:
        """Return `event`. If it quotes text of the model, matches of the rules are removed from the quoted text."""
        return event if self._filter is None else self._filter.redact(event)

    def filter(self, events: list[UIEvent], *, ends: bool = False) -> list[UIEvent]:
        """Apply `text_rules` to `events`. Returns the events that replace them.

        With `ends=True`, the result includes the text that rules have buffered, because an event other than text
        follows. Calls and errors after a rule has ended the answer are dropped.
        """
        if (text_filter := self._filter) is None:
            return events
        shown = text_filter.take(events)
        if ends:
            text_filter.end(shown)
        calls, errors = self._seen
        if len(self.calls) > calls or len(self.errors) > errors:
            new = {event.call.id for event in events if isinstance(event, Call)}
            calls = sum(call.id not in new for call in self.calls)  # earlier calls may have been withdrawn
            failed = [event for event in shown if isinstance(event, Error)]
            ended = {error.call_id for error in failed}
            made = (event.call for event in shown if isinstance(event, Call))
            self.calls[calls:] = [call for call in made if call.id not in ended]
            self.errors[errors:] = failed[: len(self.errors) - errors]
            self._seen = len(self.calls), len(self.errors)
        if text_filter.stopped_by is not None:
            self._search = text_filter.feed_text
        return shown

    # Reading.

    def _feed_in_blocks(self, delta: str) -> list[UIEvent]:
        # A separate function, because this comprehension in `feed` would make `feed` a sixth slower.
        self.seq = 0
        return [event for at in range(0, len(delta), _BLOCK) for event in self.feed(delta[at : at + _BLOCK])]

    def _reread(self, text: str) -> str:
        """Read text a second time, in blocks. Returns the last block without reading it."""
        ended, last = self._ended, max(0, len(text) - 1) // _REREAD_BLOCK * _REREAD_BLOCK
        if last:
            self._ended = False
            for at in range(0, last, _REREAD_BLOCK):
                self._run(text[at : at + _REREAD_BLOCK])
            self._ended = ended
        return text[last:]

    def _run(self, text: str | None, found: MarkerFound | None = None) -> None:
        """Read text that may change the state. With `text=None`, read from the marker `found` on, if any."""
        if self._closed:
            raise ClosedError("the parser is closed; call reset() before the next turn")
        prose, visible = self._prose, self._visible
        while True:
            span = self._span
            if span is not None and span.finished:  # continue with the text after the span
                self._span = None
                if span.calls.has_results and not prose.direct:  # with `direct`, `Visible` is not used
                    visible.end_call()
                prose.resume(span.last, several_lines=span.several_lines)
                text = span.text[span.at :] + span.rest
                if len(text) > _REREAD_BLOCK:
                    text = self._reread(text)
                text = text or None
            elif visible.stopped:
                break
            elif span is not None:
                if text is None:
                    break
                long_or_last = len(text) > span.room or self._ended
                if self._read_span(span, text) if long_or_last else span.read(text, self._body):
                    break
            elif found is not None:
                (meaning, dialect, marker, text), found = found, None
                if isinstance(meaning, ReasoningEnd):
                    self._begin_reasoning(meaning)
                    continue
                dialect_id = dialect if meaning.kind != "result" else None
                show_raw = visible.show_raw
                self._span = span = Span(marker, dialect_id, self._output, self._declared, show_raw, meaning.announces)
                self._body = meaning.body(span)
                if not hasattr(self._body, "__next__"):
                    raise TypeError(f"the body of the opener {meaning.parts[0]!r} must be a generator function")
            elif text is None:
                break
            elif self._reasoning is not None:
                text = self._read_reasoning(self._reasoning, text)
                if text is not None:
                    text = self._reread(text)
            else:
                found = prose.read(text, self._ended)
                text = None
        if self._ended and not prose.direct:  # with `direct`, `Visible` hides no text
            visible.report_hidden()
        text_filter = self._filter
        self._search, self._skim, self._shows = always, None, False
        if self._span is not None:
            self._search = self._span.find_change
        elif self._reasoning is None:
            self._search = prose.find_change if text_filter is None else text_filter.search(prose)
            self._shows = prose.direct
        elif not (reasoning := self._reasoning).pending:
            self._search = reasoning.find_change
            self._skim = reasoning.skim if text_filter is None else lambda delta: self.filter(reasoning.skim(delta))

    def _read_span(self, span: Span, text: str) -> bool:
        """Read the last text of the stream, or text beyond the limit of a call. Returns False if the span has ended."""
        span.ended = self._ended
        while len(text) > span.room and span.stores:
            room = span.room
            if not span.read(text[:room], self._body):
                span.rest += text[room:]
                return False
            text = text[room:]
            if span.stores and not span.room:  # no other limit was exceeded, and no `finish` has renewed the room
                span.exceed(Code.TOO_LARGE)
        return span.read(text, self._body)

    def _begin_reasoning(self, closing: ReasoningEnd, *, opened: bool = True) -> None:
        keep_markup = self.options.keep_markup
        self._reasoning = ReasoningText(closing, self._output, self._declared, keep_markup=keep_markup, opened=opened)

    def _read_reasoning(self, reasoning: ReasoningText, delta: str) -> str | None:
        rest = reasoning.read(delta, self._ended)
        if rest is not None or self._ended:
            reasoning.close()
            self._reasoning = None
            self._prose.begin_after_reasoning()
        return rest
