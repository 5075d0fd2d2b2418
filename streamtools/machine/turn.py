"""Reads the turns of a model, one at a time: the text, the reasoning and the native calls. Sans-IO.

`Turn` feeds text to a `Parser`, and native calls to `NativeCalls`. At the end of a turn, some providers send the whole
text and all calls again. `reconcile` compares them with the deltas. A turn may contain calls in text and native calls.
Only one of the two kinds is used, so that no tool runs twice. `choose_calls` chooses the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.events import Call, Error, NativeToolCall, Text, Thinking, UIEvent, Warning, call_id_of
from streamtools.json_values import Rejected
from streamtools.machine.native_calls import NativeCalls
from streamtools.machine.output_text import OutputText
from streamtools.parsing import DIALECTS, Parser
from streamtools.parsing.call_events import BROKEN_OFF
from streamtools.parsing.dialects import Dialects, auto_as_near_misses, enabled_dialects, is_default
from streamtools.parsing.dialects.neutralizing import neutralize
from streamtools.parsing.options import ParserKeywords
from streamtools.typed import OutputType

_BLOCK = 16384  # the number of characters after which deltas are joined into one string

_AGENT_RUNS_TOOLS = "the agent runs its tools itself"
_TEXT_IS_USED = "the turn also contains calls in its text, and only these are used"
_NATIVE_IS_USED = "the turn also contains native calls, and only these are used"
_SALVAGED = "the provider could not parse the call; the model's text is used instead"
_NOT_RUN = "the provider could not read the call, and it was not run"


class ChosenCalls(NamedTuple):
    """The result of `Turn.choose_calls`.

    `calls` are the calls of the turn that are used. `events` reject the other calls, and may include a warning.
    `malformed` is the number of malformed calls.
    """

    calls: list[ToolCall]
    events: list[UIEvent]
    malformed: int


class Turn:
    """Reads the turns of a run, one at a time. The methods that read text or source events return UI events."""

    def __init__(
        self,
        dialects: Dialects,
        tools: Any,
        options: ParserKeywords,
        native_tool_calls: bool | None = None,
        output: OutputType | None = None,
        *,
        final: bool = False,
    ) -> None:
        """With `final`, calls in text may run before the turn is complete, so they are never turned into errors."""
        self._final = final
        self._declares_native = native_tool_calls
        self._switches_to_native = native_tool_calls is None and is_default(dialects)
        self._enabled = enabled_dialects(dialects, native_tool_calls)  # the dialects in which calls are read
        self._dialects = auto_as_near_misses() if native_tool_calls and is_default(dialects) else dialects
        self._tools = tools
        self._options = options
        parser = Parser(self._dialects, tools, **options)
        chosen = parser.options
        self._text_limit = chosen.limits.text
        self.native = NativeCalls(chosen)
        self._output = OutputText(output, chosen.limits) if output is not None else None
        self._set_parser(parser)
        self._continues = False  # the parser reads the rest of a turn that another model has begun
        self.has_rules = bool(chosen.text_rules)
        """True if there are text rules, for which text may be buffered."""
        self.applies_rules_to_reasoning = bool(chosen.reasoning_rules)
        self.redacts = any(rule.redacts for rule in chosen.text_rules)
        may_stop = chosen.after_call == "stop" or any(rule.action in ("stop", "fail") for rule in chosen.text_rules)
        self._most_room = 0 if final or may_stop else _BLOCK
        self.begin()
        self.room = 0
        """How many characters of text the machine may add without `feed_text`. 0 before and after a turn.

        It is never positive if text may end the turn, or if a call in text may run before the turn is complete.
        """

    def begin(self) -> None:
        """Reset for a new turn.

        If the caller has chosen neither dialects nor `native_tool_calls`, text is not searched for calls after a turn
        with a native call.
        """
        if self.native.count and not self.native.emulated:
            self._switch_to_native()
        if self._continues:
            self._set_parser(Parser(self._dialects, self._tools, **self._options))
            self._continues = False
        self.parser.reset()
        self.native.begin_turn()
        if self._output is not None:
            self._output.begin()
        self._completed: Parser | None = None  # the parser of the completed text, if the streamed text differs
        self._start_text("")

    def resume(self, calls: Sequence[ToolCall], output_fault: str = "") -> None:
        """Register `calls` of an earlier run that this run continues, so that new calls get other ids.

        `output_fault` is the fault of its last turn.
        """
        if output_fault and self._output is not None:
            self._output.fault = output_fault
        self.native.reserve(call.id for call in calls)
        if any(call.is_native for call in calls):
            self._switch_to_native()

    def feed_text(self, text: str) -> list[UIEvent]:
        """Read a delta of text."""
        self.deltas.append(text)
        self.room -= len(text) or 1
        if self.room <= self._most_room - _BLOCK:
            self._pack()
        return self.parse(text)

    def release_text(self) -> list[UIEvent]:
        """Return the buffered text. A marker that has begun in it does not continue in the next text.

        Called before a `Raw` event, so that the text is shown before the event.
        """
        return self._with_output(self.parser.release()) if self.parser.pending else []

    def filter(self, events: list[UIEvent], *, ends: bool = False) -> list[UIEvent]:
        """Apply the text rules to `events`. With `ends=True`, also return the text that the rules have buffered."""
        return self._with_output(self.parser.filter(events, ends=ends))

    def mark_gap(self) -> None:
        """Mark the open calls as damaged, because a part of the stream is missing."""
        self.parser.lose()
        self.native.mark_gap()

    def reconcile(self, text: str | None, calls: Sequence[NativeToolCall]) -> list[UIEvent]:
        """Return the events of the text and calls that were not streamed, but are in the provider's completed turn.

        `text` is None if the provider does not send the completed text.
        """
        events = [] if text is None else self._reconcile_text(text)
        return events + self.native.reconcile(calls) if calls else events

    def discard(self) -> list[UIEvent]:
        """End the open calls after the answer has broken off."""
        return [
            *self.parser.discard(),
            *map(self.parser.redact, self.native.close(Rejected(Code.SUPERSEDED, BROKEN_OFF))),
        ]

    def continue_after(self, shown: str | None) -> tuple[list[UIEvent], str]:
        """Prepare for another model, which continues the turn.

        `shown` is the text of the turn that was shown. Complete calls in the text are kept, and all other calls are
        rejected. If `shown` is None, or if the text with its calls cannot be restored, all calls are rejected. Returns
        the events that reject calls, and the text that the next model continues.
        """
        events = self.discard()
        kept = self.parser.calls
        written = self._text_with_calls(shown) if kept and shown is not None else shown
        if written is None:
            events += map(self.parser.redact, self.reject(kept, Code.SUPERSEDED, BROKEN_OFF))
            kept, written = [], shown or ""
        others = self.native.calls + (self._completed.calls if self._completed is not None else [])
        events += map(self.parser.redact, self.reject(others, Code.SUPERSEDED, BROKEN_OFF))
        self.native.begin_turn()
        written = self._replay(written, kept)
        self._completed = None
        self._start_text(written)
        return events, written

    def find_calls(self, generation: str) -> list[UIEvent]:
        """Return the events of the calls in `generation`, which is a text that the provider could not parse."""
        options: ParserKeywords = {**self._options, "in_reasoning": False}
        known = [item for id, item in DIALECTS.items() if item.auto is True or id in ("raw_json", "json_array")]
        dialects = {item.id: item for item in (*known, *self._enabled)}  # an enabled dialect may have a nonce
        parser = Parser(list(dialects.values()), self._tools, **options)
        events = parser.feed(generation) + parser.close()
        return _events_of(events, {call.id for call in parser.calls})

    def adopt(self, found: Sequence[UIEvent]) -> list[UIEvent]:
        """Add native calls for the calls that `find_calls` found. A call that the provider also sent is skipped.

        A call in a dialect that is not enabled may be a quotation that was not neutralized. Such a call becomes an
        error, which tells the model that the call was not run.
        """
        known = {call.fingerprint() for call in self.native.calls}
        duplicates = {event.call.id for event in found if isinstance(event, Call) and event.call.fingerprint() in known}
        new = [self._reject_unless_enabled(event) for event in found if call_id_of(event) not in duplicates]
        message = "the provider could not parse a call, which was then found in the model's text"
        return [
            Warning(Code.SALVAGED, message),
            *self.native.close(Rejected(Code.SUPERSEDED, _SALVAGED)),
            *self.native.adopt(new),
        ]

    def close(self) -> list[UIEvent]:
        """Return the last events of the text and of the open native calls, at the end of the turn."""
        self.room = 0
        events = self._with_output(self.parser.close())
        events += map(self.parser.redact, self.native.close()) if self.native.open else ()
        if self._output is not None:
            calls = self.parser.calls or self.parser.errors or self.native.count
            events += self._output.end(has_calls=bool(calls))
        return events

    @property
    def output_fault(self) -> str:
        """Why the text is not a valid value of the requested type; empty if it is valid, or no type is requested."""
        return "" if self._output is None else self._output.fault

    def choose_calls(self, *, self_contained: bool) -> ChosenCalls:
        """Choose which calls of the turn are used, and reject the others.

            native_tool_calls  calls in the turn                   calls that are used
            True, None         native, with or without text        the native calls
            True, None         in text only                        the calls in text
            False              in text, with or without native     the calls in text
            False              native only                         the native calls, with a warning

        With `self_contained=True`, no call is used, because the agent runs its tools itself. The table also applies to
        malformed calls.
        """
        written, faulty = self.parser.calls, len(self.parser.errors)
        if self._completed is not None:
            written, faulty = written + self._completed.calls, faulty + len(self._completed.errors)
        native, begun = self.native.calls, self.native.count
        malformed = faulty + begun - len(native)
        if self_contained:
            return ChosenCalls([], self.reject(written + native, Code.SUPERSEDED, _AGENT_RUNS_TOOLS), 0)
        if not begun or (self._declares_native is False and (written or faulty)):
            return ChosenCalls(written, self.reject(native, Code.SUPERSEDED, _TEXT_IS_USED), malformed)
        events = self.reject(written, Code.SUPERSEDED, _NATIVE_IS_USED)
        if self._declares_native is False and not self.native.emulated:
            message = "a model that is declared to make no native calls has made one"
            events.append(Warning(Code.UNDECLARED_NATIVE, message))
        return ChosenCalls(native, events, malformed)

    def reject(self, calls: Iterable[ToolCall], code: Code, message: str) -> list[UIEvent]:
        """Return an error event for each of `calls`, which are complete and are not used."""
        return [Error(code, message, call_id=call.id, call=call) for call in calls]

    def _set_parser(self, parser: Parser) -> None:
        self.parser = parser
        if self._final:
            parser.keep_calls()
        self.parse: Callable[[str], list[UIEvent]] = parser.feed
        """The function that converts a delta of text to events."""
        if (output := self._output) is not None:

            def parse(text: str) -> list[UIEvent]:  # a method would be a reference cycle
                parser.seq = 0  # the delta may have several events
                return output.add_to(parser.feed(text))

            self.parse = parse

    def _switch_to_native(self) -> None:
        """Stop searching text for calls, if the caller has chosen neither dialects nor `native_tool_calls`."""
        if self._switches_to_native:
            self._switches_to_native = False
            self._enabled = ()
            self._dialects = auto_as_near_misses(tags=True)
            self._set_parser(Parser(self._dialects, self._tools, **self._options))

    def _start_text(self, text: str) -> None:
        self.deltas = [text]
        """The last deltas of the text of this turn."""
        self.room = self._most_room
        self._blocks: list[str] = []  # the earlier deltas, in joined blocks
        self._length = 0  # the number of characters in all blocks, including blocks that were dropped

    def _pack(self) -> None:
        """Join the deltas into one block, which needs much less memory. A text over the limit is dropped."""
        block = "".join(self.deltas)
        self.deltas.clear()
        self.room = self._most_room
        self._length += len(block)
        if self._length > self._text_limit:
            self._blocks.clear()
        else:
            self._blocks.append(block)

    def _streamed_text(self) -> str | None:
        """Return the text of the turn. Returns None if it was dropped."""
        self._pack()
        return None if self._length > self._text_limit else "".join(self._blocks)

    def _with_output(self, events: list[UIEvent]) -> list[UIEvent]:
        return self._output.add_to(events) if self._output is not None else events

    def _replay(self, written: str, calls: Sequence[ToolCall]) -> str:
        """Make a new parser for the rest of the turn, and feed it the text `written`. The parser's events are dropped.

        `calls` are the complete calls in the text. If the text looks like other calls, it is neutralized, and is not
        fed to the parser. Returns the text.
        """
        options: ParserKeywords = {**self._options}
        options["in_reasoning"] = options.get("in_reasoning", False) and not written
        parser = Parser(self._dialects, self._tools, **options)
        read = parser.feed(written) + parser.release()
        # The calls were removed from the text, so the rest may look like a call that the model did not make.
        if len(parser.calls) != len(calls) or any(isinstance(event, Thinking) and not calls for event in read):
            parser = Parser(self._dialects, self._tools, **options)
            written = neutralize(written, self._enabled)
        parser.calls[:] = calls
        self._set_parser(parser)
        self._continues = True
        return written

    def _text_with_calls(self, shown: str) -> str | None:
        """Return the text of the turn with its complete calls, but without reasoning and tags.

        Returns None if the text was dropped, if its visible part differs from `shown`, or if parsing the text again
        gives other calls.
        """
        text = self._streamed_text()
        rules = [rule for rule in self._options.get("text_rules", ()) if not rule.restores]  # `shown` has placeholders
        options: ParserKeywords = {**self._options, "text_rules": rules}
        if text is None:
            return None
        for is_complete in (False, True):  # first parse the text as it arrived, then parse the result
            parser = Parser(self._dialects, self._tools, **options)
            events = parser.feed(text)
            events += parser.release() if is_complete else []
            if [call.fingerprint() for call in parser.calls] != [call.fingerprint() for call in self.parser.calls]:
                return None
            text = "".join(e.text if isinstance(e, Text) else e.call.raw if isinstance(e, Call) else "" for e in events)
            options = {**options, "in_reasoning": False}
        visible = "".join(event.text for event in events if isinstance(event, Text))
        pending = visible[len(shown) :]  # the beginning of a match or of a placeholder
        return text.removesuffix(pending) if visible == shown + pending and text.endswith(pending) else None

    def _reject_unless_enabled(self, event: UIEvent) -> UIEvent:
        if not isinstance(event, Call) or any(event.call.dialect == dialect.id for dialect in self._enabled):
            return event
        call = event.call
        return Error(Code.UNRECOGNISED_TOOL_CALL, _NOT_RUN, call_id=call.id, raw=call.raw, dialect=NATIVE)

    def _reconcile_text(self, text: str) -> list[UIEvent]:
        streamed = self._streamed_text()
        if streamed is None:
            return []
        if text.startswith(streamed):
            return self.parse(text[len(streamed) :])
        if text.strip() == streamed.strip():
            return []
        events = self._with_output(self.parser.close())
        message = "the provider's completed text differs from the streamed text; the streamed text is kept"
        events.append(Warning(Code.TEXT_MISMATCH, message))
        return events if self.parser.calls else events + self._read_completed(text)

    def _read_completed(self, text: str) -> list[UIEvent]:
        """Return the events of the calls in a completed text. The text itself is not shown.

        Events of malformed calls are included if the streamed text had no malformed call.
        """
        self._completed = parser = Parser(self._dialects, self._tools, **self._options)
        events = parser.feed(text) + parser.close()
        ids = {call.id for call in parser.calls}
        if not self.parser.errors:
            ids.update(error.call_id or "" for error in parser.errors)
        return _events_of(events, ids)


def _events_of(events: Iterable[UIEvent], ids: set[str]) -> list[UIEvent]:
    """Return the events whose call has one of the `ids`."""
    return [event for event in events if call_id_of(event) in ids]
