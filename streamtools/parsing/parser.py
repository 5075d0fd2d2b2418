"""Text in, events out: what the reader sees, what the model thought, and the calls that it wrote.

The parser is in one of three states: in prose, in reasoning, or in a span that a dialect has committed to. `feed` is
defined per character; how the text is cut into deltas changes only the number of events. Most deltas do not change the
state, so each state has a search (`_leaves`) that finds nothing in such a delta, and only the other deltas are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from streamtools.errors import ClosedError, Code, check_names
from streamtools.events import Call, CallDelta, Error, Reasoning, Text, UIEvent
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialect_set import dialect_set_of
from streamtools.parsing.dialects import Dialects, choose_dialects
from streamtools.parsing.policies import Options, OtherOptions, ParserKeywords
from streamtools.parsing.prose import MarkerFound, Prose
from streamtools.parsing.reader import always
from streamtools.parsing.reasoning import ReasoningEnd, ReasoningText
from streamtools.parsing.span import Span
from streamtools.parsing.visible import Visible

if TYPE_CHECKING:
    from streamtools.rules.matcher import Pieces
    from streamtools.rules.rule import Rule

_BLOCK: Final = 8192  # characters that are read at once: what follows a call is copied, for each of many calls
_GUARDED: Final = ("text_rules", "rules_in_reasoning", "history", "pace")  # options that are the guard's
_AGAIN: Final = 512  # the same, of text that is read once more

NO_TEXT = "decode bytes, or let `streamtools.sources` read the stream"
"""What to do with a delta that is no text."""


class Parser:
    """A push parser for the text of a model: `feed` it deltas, then `close` it; both return what is now certain.

    Nothing that a model writes makes it raise. `dialects` are ids, `Dialect` objects or `"auto"`, which None means,
    too; `()` enables none. `tools` are the declared tools, for dialects that read values by their schemas or calls by
    their names: a registry, a tool, a definition as a dict in the form of any provider, or several of these; a function
    is declared by `tool(function)`. The other parameters are those of `Options`.
    Raises TypeError for `tools` that declare nothing, ValueError for a dialect or a value that is unknown, ImportError
    for `repair` without its extra, `ClosedError` for a `feed` behind the end.

    >>> parser = Parser()
    >>> parser.feed("Hello "), parser.feed("##"), parser.feed(" World"), parser.close()
    ([Text(text='Hello ', seq=0)], [], [Text(text='## World', seq=0)], [])
    """

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Return one that keeps the `text_rules` and the `pace`, if there are any; no other pays for them."""
        guarded = bool(options.get("text_rules")) or options.get("pace", "as_it_comes") != "as_it_comes"
        if guarded and cls is not Parser:
            raise TypeError(f"{cls.__name__} is a subclass of Parser, which alone takes text_rules and a pace")
        made: Any = object.__new__(_GuardedParser if guarded else cls)
        return made  # type: ignore[no-any-return]

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
        meant = choose_dialects(dialects)
        signatures = self._declared.signatures(parameters=tools is not None and any(each.openers_of for each in meant))
        self._dialects = dialect_set_of(meant, chosen.in_code, chosen.reasoning, signatures, chosen.calls_at)
        self._output = CallEvents(chosen)
        self._visible = Visible(self._output, chosen)
        self._prose = Prose(self._dialects, chosen, self._output, self._visible)
        self._closed = self._ended = False
        self._leaves: Callable[[str], object] = always  # finds nothing in a delta that changes no state
        self._hidden: Span | ReasoningText | None = None  # takes such a delta, unless it is text for the reader
        self._shows = False  # such a delta is text for the reader
        self.reset()

    def feed(self, delta: str) -> list[UIEvent]:
        """Return the events that are certain now that `delta` has come."""
        leaves = self._leaves  # called as a variable: what looks like a method is looked up in the type first
        try:
            if leaves(delta) is None and delta:
                if self._shows:  # the commonest of all: text for the reader
                    self._prose.last = delta
                    return [Text(delta)]
                if (span := self._span) is not None and (room := span.room - len(delta)) >= 0:
                    span.room = room  # `Span.skim`, inlined: text inside a string
                    span.parts.append(delta)
                    if span.call_id is None:
                        new: list[UIEvent] = []
                        self._output.events = new
                        if (take := span.take) is not None:
                            take(delta)
                        return new
                    return [CallDelta(span.call_id, delta)]
                if self._hidden is not None and (skimmed := self._hidden.skim(delta)) is not None:
                    return skimmed
            elif not (delta or self._closed):
                return []
        except TypeError:
            if isinstance(delta, str):
                raise
            raise TypeError(f"a delta is a str, and not {type(delta).__name__}: {NO_TEXT}") from None
        if (size := len(delta)) > _BLOCK:
            return self._feed_in_blocks(delta)
        events: list[UIEvent] = []
        self._output.events = events
        if (span := self._span) is not None:
            if size <= span.room and span.read(delta, self._body):
                self._leaves = span.leaves
                return events
        elif self._prose.direct and self._reasoning is None and not self._closed:
            found = self._prose.read(delta, False)
            if found is None:
                self._leaves = self._prose.leaves
                return events
            return self._run(None, events, found)
        return self._run(delta, events)

    def close(self) -> list[UIEvent]:
        """Return the last events: what was held back is text now, and what is open is cut off. `reset` begins anew."""
        if self._closed:
            return []
        self._ended = True
        self._output.events = events = list[UIEvent]()
        self._run("", events)
        self._closed, self._hidden, self._leaves = True, None, always  # so that a later `feed` is noticed
        return events

    def release(self) -> list[UIEvent]:
        """Return what was held back as text: what comes next is no continuation of it. The turn goes on."""
        if self._closed or self._span is not None or self._reasoning is not None:
            return []
        self._ended = True
        self._output.events = events = list[UIEvent]()
        self._run("", events)
        self._ended = False
        return events

    def pause(self) -> list[UIEvent]:
        """Return what rules hold back: something else than text comes here, which ends a match."""
        return []

    def clean(self, event: UIEvent) -> UIEvent:
        """Return an event of others than the parser as rules leave it."""
        return event

    def think(self, thought: Reasoning) -> list[UIEvent]:
        """Return reasoning of others than the parser as rules leave it, behind the text that it ends."""
        return [thought]

    def discard(self) -> list[UIEvent]:
        """End the call that is being written, if there is one, as superseded. Nothing but `close` comes behind this."""
        self._output.events = events = list[UIEvent]()
        if self._span is not None:
            self._span.discard()
        return events

    def lose(self) -> None:
        """Mark a gap: a part of the text is missing here, and a call around it is an error."""
        if self._span is not None:
            self._span.lose()
        elif self._reasoning is not None:
            self._reasoning.lose()

    @property
    def held(self) -> str:
        """Text that has been fed and may still become a marker."""
        return self._reasoning.held if self._reasoning is not None else self._prose.held

    @property
    def stopped(self) -> bool:
        """Whether text behind a call (`after_call="stop"`) or a rule has ended the answer: nothing later is read."""
        return self._visible.stopped

    @property
    def prose(self) -> Prose | None:
        """What says which text is shown as it is, while text is prose."""
        return self._prose if self._shows else None

    def reset(self) -> None:
        """Begin a new turn, in whatever state the last one is."""
        self._closed = self._ended = False
        self._span: Span | None = None
        self._body: Iterator[None] = iter(())  # the grammar that reads the span
        self._reasoning: ReasoningText | None = None
        self._visible.reset()
        self._output.begin()
        self.stopped_by: Rule | None = None
        """The rule that has ended the answer."""
        self.calls = self._output.calls
        """The calls of this turn so far."""
        self.errors = self._output.errors
        """The malformed calls of this turn so far; of more than the limit of calls, the first ones."""
        self._prose.begin()
        self._run(None, [])
        if self._options.in_reasoning:
            self._think(self._dialects.tags.any_closing, opened=False)

    def _feed_in_blocks(self, delta: str) -> list[UIEvent]:
        # Not a part of `feed`, whose variables would be cells then: a sixth of the cost of a delta of prose.
        return [event for at in range(0, len(delta), _BLOCK) for event in Parser.feed(self, delta[at : at + _BLOCK])]

    def _in_blocks(self, text: str, events: list[UIEvent]) -> str:
        """Read text that is read once more, up to its last block; return that."""
        ended, last = self._ended, max(0, len(text) - 1) // _AGAIN * _AGAIN
        if last:
            self._ended = False
            for at in range(0, last, _AGAIN):
                self._run(text[at : at + _AGAIN], events)
            self._ended = ended
        return text[last:]

    def _run(self, text: str | None, events: list[UIEvent], found: MarkerFound | None = None) -> list[UIEvent]:
        """Read text that may change the state, or the text behind a marker that was `found`; add to `events`."""
        if self._closed:
            raise ClosedError("the parser is closed; call reset() before the next turn")
        prose, visible = self._prose, self._visible
        while True:
            span = self._span
            if span is not None and span.finished:  # text goes on behind it
                self._span = None
                if span.calls.found and not prose.direct:  # else nothing depends on it
                    visible.end_call()
                at, text = span.at, span.text
                prose.resume(text[at - 1] if at else span.last, several_lines=span.several_lines)
                text = text[at:]
                if len(text) > _AGAIN:
                    text = self._in_blocks(text, events)
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
                    known = dialect if begun.kind == "call" else None
                    self._span = span = Span(
                        marker, known, self._output, self._declared, visible.show_raw, begun.announces
                    )
                    self._body = begun.body(span)
                    if not hasattr(self._body, "__next__"):
                        raise TypeError(f"the body of opener {begun.parts[0]!r} is no generator")
            elif text is None:
                break
            elif self._reasoning is not None:
                text = self._read_reasoning(self._reasoning, text)
                if text is not None:
                    text = self._in_blocks(text, events)
            else:
                found = prose.read(text, self._ended)
                text = None
        if self._ended and not prose.direct:  # else nothing is withheld
            visible.flush()
        # Choose the search for deltas that change no state, and what takes them.
        self._hidden = None
        self._shows, self._leaves = False, always
        if self._span is not None:
            self._hidden, self._leaves = self._span, self._span.leaves
        elif self._reasoning is None:
            self._leaves, self._shows = prose.leaves, True
        elif not self._reasoning.held:
            self._hidden, self._leaves = self._reasoning, self._reasoning.leaves
        return events

    def _think(self, closing: ReasoningEnd, *, opened: bool = True) -> None:
        keep_markup = self._options.keep_markup
        self._reasoning = ReasoningText(closing, self._output, self._declared, keep_markup=keep_markup, opened=opened)

    def _read_reasoning(self, reasoning: ReasoningText, delta: str) -> str | None:
        rest = reasoning.read(delta, self._ended)
        if rest is not None or self._ended:
            reasoning.close()
            self._reasoning = None
            self._prose.begin_behind_reasoning()
        return rest

    def _read_span(self, span: Span, text: str) -> bool:
        """Read a span on; return whether it goes on behind `text`."""
        span.ended = self._ended
        while len(text) > span.room and span.stores:
            room = span.room
            if not span.read(text[:room], self._body):
                span.text += text[room:]
                return False
            text = text[room:]
            if span.stores and not span.room:  # no other limit has been met, and no call has been handed out
                span.exceed(Code.TOO_LARGE)
        return span.read(text, self._body)


class _GuardedParser(Parser):
    """A parser whose events go through rules."""

    def __init__(self, *args: Any, **options: Any) -> None:
        from streamtools.parsing.text_guard import TextGuard  # loaded, with all of the rules, when it is used

        chosen: Any = {name: options[name] for name in _GUARDED if name in options}
        self._guard = TextGuard(Options(**chosen))
        self._leaves_met: Callable[[str], object] | None = None
        self._deltas: Mapping[str, int] = {}  # what deltas are to that, and to the rules
        super().__init__(*args, **options)

    def feed(self, delta: str) -> list[UIEvent]:
        guard = self._guard
        if (matcher := guard.direct) is not None and self._shows and delta:
            leaves = self._leaves
            if leaves is not self._leaves_met:
                self._leaves_met, self._deltas = leaves, guard.deltas(leaves)
            kind = self._deltas[delta]
            if not (kind or matcher.held):  # nothing begins in it: the commonest of all
                self._prose.last = delta
                matcher.position += len(delta)
                return [Text(delta)]
            if kind != 2:  # as in a parser without rules
                self._prose.last = delta
                shown = matcher.feed(delta)
                if type(shown) is str:
                    return [Text(shown)] if shown else []
                return self._show([], shown)
        return self._show(super().feed(delta) if guard.stopped_by is None else [])

    def close(self) -> list[UIEvent]:
        return self._show(super().close(), ends=True)

    def release(self) -> list[UIEvent]:
        return self._show(super().release(), ends=True) if self._guard.stopped_by is None else []

    def discard(self) -> list[UIEvent]:
        return self._show(super().discard())

    def pause(self) -> list[UIEvent]:
        return self._show([], ends=True)

    def think(self, thought: Reasoning) -> list[UIEvent]:
        return self._show([thought])

    def clean(self, event: UIEvent) -> UIEvent:
        return self._guard.clean(event)

    @property
    def held(self) -> str:
        return self._guard.held + super().held

    @property
    def stopped(self) -> bool:
        return self._guard.stopped_by is not None or super().stopped

    def reset(self) -> None:
        self._guard.begin()
        self._passed = 0, 0
        super().reset()

    def _show(self, events: list[UIEvent], pieces: str | Pieces = "", *, ends: bool = False) -> list[UIEvent]:
        """Return what is seen of events; calls and errors behind the end of the answer are none."""
        guard = self._guard
        shown = guard.take(events) if guard.stopped_by is None else []
        guard.show(pieces, shown)
        if ends and guard.stopped_by is None:
            guard.end(shown)
        calls, errors = self._passed
        if len(self.calls) > calls or len(self.errors) > errors:
            came = [event.call for event in shown if isinstance(event, Call)]
            failed = [event for event in shown if isinstance(event, Error)][: len(self.errors) - errors]
            self.calls[calls:], self.errors[errors:] = came, failed
            self._passed = len(self.calls), len(self.errors)
        if guard.stopped_by is not None:
            self.stopped_by, self._leaves = guard.stopped_by, always
        return shown
