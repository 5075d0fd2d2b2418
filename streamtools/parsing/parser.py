"""Text in, events out: what the reader sees, what the model thought, and the calls that it wrote.

The parser is in one of three states: in prose, in reasoning, or in a span that a dialect has committed to. `feed` is
defined per character; how the text is cut into deltas changes nothing but the number of events. Most deltas change
nothing else either, so each state names a search (`_leaves`) that finds nothing in a delta without consequences, and
only the other deltas are read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, Unpack

from streamtools.calls import ToolCall
from streamtools.errors import ClosedError, Code
from streamtools.events import CallDelta, Error, Text, UIEvent
from streamtools.parsing.armed import arm
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Dialects, choose_dialects
from streamtools.parsing.drafts import Drafts
from streamtools.parsing.json_text import OPEN
from streamtools.parsing.options import Options, OtherOptions
from streamtools.parsing.output import Output
from streamtools.parsing.prose import CallBegun, Prose
from streamtools.parsing.reader import always
from streamtools.parsing.reasoning import ReasoningEnd, ReasoningText
from streamtools.parsing.span import Span
from streamtools.parsing.visible import Visible

_BLOCK: Final = 8192  # characters that are read at once: what follows a call is copied, for each of many calls
_FINISHED: Final = object()


class Parser:
    """A push parser for the text of a model: `feed` it deltas, then `close` it; both return what is now certain.

    Nothing that a model writes makes it raise. `dialects` are ids, `Dialect` objects or `"auto"`; None arms the two
    defaults, `()` none. `tools` are the declared tools, for dialects that read values by their schemas or calls by
    their names: a registry, a tool, a definition as a dict in the form of any provider, or several of these; a function
    is declared by `tool(function)`. `number` gives events their `seq`. The other parameters are those of `Options`.
    Raises TypeError for `tools` that declare nothing, ValueError for a dialect or a value that is unknown, ImportError
    for `repair` without its extra, `ClosedError` for a `feed` behind the end.

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
        *,
        number: Callable[[], int] | None = None,
        **options: Unpack[OtherOptions],
    ) -> None:
        self._options = chosen = Options(in_reasoning=in_reasoning, call_deltas=call_deltas, **options)
        self._declared = Declared(tools)
        meant = choose_dialects(dialects)
        signatures = self._declared.signatures(parameters=any(dialect.openers_of for dialect in meant))
        self._armed = armed = arm(meant, chosen.in_code, chosen.reasoning, signatures)
        self._output = Output(number, chosen.new_id)
        self._number = number
        self._visible = Visible(self._output, chosen)
        self._prose = Prose(armed, chosen, self._output, self._visible)
        self._drafts = Drafts(chosen, self._output, self._visible.show_raw)
        self._closed = False
        self._ended = False
        self._leaves: Callable[[str], object] = always  # finds nothing in a delta without consequences
        self._hidden: Span | ReasoningText | None = None  # whoever takes such a delta, if not the reader
        self._shows: type[Text] | None = None  # what it becomes for the reader, where events have no numbers
        self._counts: Callable[[], int] | None = None  # what numbers it for the reader, where they have
        self._even = False  # what comes is likely to be text, and can be gone over by itself
        self._begin()

    def feed(self, delta: str) -> list[UIEvent]:
        """Return the events that are certain now that `delta` has come."""
        leaves = self._leaves  # called as a variable: what looks like a method is looked for in the type first
        if leaves(delta) is None and delta:
            shows = self._shows
            if shows is not None:  # the commonest of all: text for the reader
                self._prose.last = delta
                return [shows(delta)]
            number = self._counts
            if number is not None:
                self._prose.last = delta
                return [Text(delta, number())]
            span = self._span
            if span is not None and span.room >= len(delta):
                # The next is `skim` and `tell` in line: text inside a string.
                span.room -= len(delta)
                span.parts.append(delta)
                if span.told is None:
                    told: list[UIEvent] = []
                    take = span.take
                    if take is not None:
                        self._output.events = told
                        take(delta)
                    return told
                number = self._number
                return [CallDelta(span.told, delta) if number is None else CallDelta(span.told, delta, number())]
            if self._hidden is not None:
                events = self._hidden.skim(delta)
                if events is not None:
                    return events
        elif not (delta or self._closed):
            return []
        if len(delta) > _BLOCK:
            return self._feed_in_blocks(delta)
        span = self._span
        if span is not None:
            events = span.scan(delta)
            if events is not None:
                self._leaves = span.leaves or always
                return events if span.state is OPEN else self._run("", events)
        elif self._even:
            events = self._prose.turn(delta)
            if events is not None:
                self._leaves = self._prose.leaves
                return events
            delta = ""
        return self._run(delta, [])

    def close(self) -> list[UIEvent]:
        """Return the last events: what was held back is text now, and what is open is cut off. `reset` begins anew."""
        if self._closed:
            return []
        self._ended = True
        events = self._run("", [])
        self._closed = True
        self._hidden, self._leaves, self._even = None, always, False  # so that a later `feed` is noticed
        return events

    def reset(self) -> None:
        """Begin a new turn, whatever state the last one was left in. Events keep their numbers."""
        self._begin()

    def lose(self) -> None:
        """Take note that a part of the text is missing here: a call that is put together around it is an error."""
        if self._span is not None:
            self._span.lose()

    @property
    def held(self) -> str:
        """Text that has been fed and may still become a marker."""
        return self._reasoning.held if self._reasoning is not None else self._prose.held

    @property
    def stopped(self) -> bool:
        """Whether `after_call="stop"` has met text behind a call; nothing that comes later is read."""
        return self._visible.stopped

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of this turn so far."""
        return self._output.calls

    @property
    def errors(self) -> list[Error]:
        """The malformed calls of this turn so far; of more than the limit of calls, the first ones."""
        return self._output.errors

    def _begin(self) -> None:
        self._closed = False
        self._ended = False
        self._span: Span | None = None
        self._body: Generator[None, None, None] | None = None
        self._reasoning: ReasoningText | None = None
        self._hidden, self._leaves, self._even = None, always, False
        self._visible.reset()
        self._output.begin()
        self._prose.begin()
        if self._options.in_reasoning:
            self._think(self._armed.tags.any_closing)

    def _feed_in_blocks(self, delta: str) -> list[UIEvent]:
        # Apart from `feed`, whose variables would else be cells: a sixth of what a delta of prose costs.
        return [event for at in range(0, len(delta), _BLOCK) for event in self.feed(delta[at : at + _BLOCK])]

    def _run(self, delta: str, events: list[UIEvent]) -> list[UIEvent]:
        """Read a delta that may have consequences, and add what it makes certain to `events`."""
        if self._closed:
            raise ClosedError("the parser is closed; call reset() before the next turn")
        visible = self._visible
        self._output.events = events
        text: str | None = delta
        while text is not None and not visible.stopped:
            span = self._span
            if span is not None:
                text = self._advance(span, text) if len(text) <= span.room else self._read_span(span, text)
                if text is None and not self._ended:  # it goes on
                    self._hidden, self._leaves, self._even = span, span.leaves or always, False
                    self._shows = self._counts = None
                    return events
                if not text:  # there is nothing behind the span yet
                    break
            elif self._reasoning is not None:
                text = self._read_reasoning(self._reasoning, text)
            else:
                found = self._prose.read(text, self._ended)
                if found is None:
                    break
                text = found.rest
                if isinstance(found, CallBegun):
                    self._open(found)
                else:
                    self._think(found.closing)
        if self._ended:
            visible.flush()
        self._choose_search()
        return events

    def _choose_search(self) -> None:
        """Name the search that finds nothing in a delta without consequences."""
        self._hidden = self._shows = self._counts = None
        self._leaves = always
        self._even = False
        if self._span is not None:
            self._hidden, self._leaves = self._span, self._span.leaves or always
        elif self._reasoning is not None:
            if not self._reasoning.held:
                self._hidden, self._leaves = self._reasoning, self._reasoning.leaves
        else:
            self._even = self._prose.choose()
            self._leaves = self._prose.leaves
            self._counts = self._number
            if self._number is None:
                self._shows = Text

    # Reasoning.

    def _think(self, closing: ReasoningEnd) -> None:
        self._reasoning = ReasoningText(closing, self._output, keep_markup=self._options.keep_markup)

    def _read_reasoning(self, reasoning: ReasoningText, delta: str) -> str | None:
        rest = reasoning.read(delta, self._ended)
        if rest is not None or self._ended:
            reasoning.close()
            self._reasoning = None
            self._prose.begin_behind_reasoning()
        return rest

    # Calls.

    def _open(self, begun: CallBegun) -> None:
        self._drafts.open(begun.dialect.id)
        drafts = self._drafts if begun.opener.kind == "call" else None
        self._span = span = Span(begun.marker, drafts, self._options, self._output, self._declared)
        self._body = begun.opener.body(span)
        if not hasattr(self._body, "__next__"):
            raise TypeError(f"the body of opener {begun.opener.parts[0]!r} is no generator")

    def _read_span(self, span: Span, text: str) -> str | None:
        while len(text) > span.room and span.stores:
            room = span.room
            rest = self._advance(span, text[:room])
            if rest is not None:
                return rest + text[room:]
            text = text[room:]
            if span.stores and not span.room:  # no other limit has been met, and no call has been handed out
                span.exceed(Code.TOO_LARGE)
        return self._advance(span, text)

    def _advance(self, span: Span, text: str) -> str | None:
        """Let the grammar read `text`; return what follows the span, or None if it goes on."""
        assert self._body is not None
        span.ended = self._ended
        if text or self._ended:  # else it has just been scanned
            span.push(text)
        if next(self._body, _FINISHED) is not _FINISHED:
            return None
        self._span = self._body = None
        if self._drafts.count:
            self._visible.end_call()
        self._prose.resume(span.last, several_lines=span.several_lines)
        return span.text[span.at :]
