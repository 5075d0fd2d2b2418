"""One turn of a model: what it says in text and natively, and which of its calls count. Sans-IO.

Text goes through the parser and native calls through `NativeCalls`. At the end of the turn the provider may send both
once more as a whole, which is compared with the deltas. A model may call in text and natively in the same turn; then
only the calls of one kind count, so that nothing runs twice. `choose` has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.events import Call, Error, NativeToolCall, Reasoning, ReasoningDelta, Text, Thinking, UIEvent, Warning
from streamtools.machine.native_calls import NativeCalls
from streamtools.parsing import DIALECTS, Parser
from streamtools.parsing.call_events import BROKEN_OFF
from streamtools.parsing.dialects import Dialects, auto_as_near_misses, enabled_dialects, unnamed
from streamtools.parsing.dialects.neutralising import neutralise
from streamtools.parsing.policies import Options, ParserKeywords

if TYPE_CHECKING:
    from streamtools.machine.output_text import OutputText
    from streamtools.typed import OutputType

STOPPED_AFTER_CALL = "stopped_after_call"
"""The finish reason of a turn that we end ourselves, as `after_call="stop"` asks for."""

_BLOCK = 64 * 1024
"""Characters of a turn's text that are kept in the pieces they came in; joined, they take a fraction of the room."""

_OF_AGENT = "the agent runs its tools itself"
_BY_TEXT = "the turn holds calls in its text, and those count"
_BY_NATIVE = "the turn holds native calls, and those count"
_SALVAGED = "the provider could not read the call; what the model wrote counts"
_UNREAD = "the provider could not read the call, and it was not run"


class Chosen(NamedTuple):
    """The calls of a turn that count, the events that end the others, and how many were malformed."""

    calls: list[ToolCall]
    events: list[UIEvent]
    malformed: int


class Turn:
    """Reads one turn after the other; every method returns the events that it makes certain.

    A caller may feed a delta that fits into `room` by itself: it subtracts the length, appends the delta to `deltas`,
    and feeds it to `parser`. All other text goes to `read`.
    """

    def __init__(
        self,
        dialects: Dialects,
        tools: Any,
        options: ParserKeywords,
        native_tool_calls: bool | None = None,
        output: OutputType | None = None,
    ) -> None:
        self._may_turn_native = native_tool_calls is None and unnamed(dialects)
        self._enabled = enabled_dialects(dialects, native_tool_calls)
        self._dialects = auto_as_near_misses() if native_tool_calls and unnamed(dialects) else dialects
        self._tools = tools
        self._options = options
        chosen = Options(**options)
        self._limit = chosen.limits.text
        self.parser = self._make_parser()
        self._replaced = False  # the parser reads the rest of a turn of which another model gave the beginning
        self.native = NativeCalls(chosen)
        self.output: OutputText | None = None
        if output is not None:
            from streamtools.machine.output_text import OutputText  # here, because few streams have a type

            self.output = OutputText(output, chosen.limits)
        self.ruled = bool(chosen.text_rules) or chosen.pace != "as_it_comes"
        self.thinks = chosen.rules_in_reasoning and self.ruled
        """Whether reasoning is read by rules."""
        self.redacts = any(rule.redacts for rule in chosen.text_rules)
        ends = any(rule.action in ("stop", "fail") for rule in chosen.text_rules)
        self.may_stop = ends or chosen.after_call == "stop"
        """Whether text may end the turn."""
        self.begin()

    def begin(self) -> None:
        """Reset for a new turn. After a native call of the model, text is no longer searched for calls."""
        if self.native.output.count and not self.native.emulated:
            self._turn_native()
        if self._replaced:
            self.parser, self._replaced = self._make_parser(), False
        self.parser.reset()
        self.native.begin_turn()
        if self.output is not None:
            self.output.begin()
        self._apart: Parser | None = None  # reads a completed text whose calls are not in the deltas
        self.deltas: list[str] = []
        self._blocks: list[str] = []  # the earlier deltas, joined
        self.room = min(_BLOCK, self._limit)  # characters that the deltas may still have; negative if it is too long
        self._spare = self._limit - self.room  # characters left for later blocks

    def resume(self, calls: Sequence[ToolCall]) -> None:
        """Register calls of an earlier run that this one continues."""
        self.native.reserve(call.id for call in calls)
        if any(call.is_native for call in calls):
            self._turn_native()

    def _turn_native(self) -> None:
        """Search text for no more calls, from the next turn on, unless dialects or the kind of calls are declared."""
        if self._may_turn_native:
            self._may_turn_native = False
            self._enabled = ()
            self._dialects = auto_as_near_misses(tags=True)
            self.parser = self._make_parser()

    def _make_parser(self) -> Parser:
        return Parser(self._dialects, self._tools, **self._options)

    def read(self, text: str) -> list[UIEvent]:
        """Read a delta, for which `room` may not suffice."""
        self.room -= len(text)
        if self.room < 0:
            self._begin_block()
        if self.room >= 0:
            self.deltas.append(text)
        return self.feed(text)

    @property
    def feed(self) -> Callable[[str], list[UIEvent]]:
        """What returns what the parser reads in a text, and what that adds to the output; until the parser changes."""
        if self.output is None:
            return self.parser.feed
        self.output.parse = self.parser.feed
        return self.output.feed

    @property
    def stopped(self) -> str | None:
        """The finish reason with which the text has ended its turn before the provider has; None if it has not."""
        return STOPPED_AFTER_CALL if self.parser.stopped else None

    def _with_output(self, events: list[UIEvent]) -> list[UIEvent]:
        return self.output.add_to(events) if self.output is not None else events

    def settle(self) -> list[UIEvent]:
        """Return the text that is held back, which no marker can continue: something else of the provider's follows."""
        return self._with_output(self.parser.release()) if self.parser.held else []

    def pause(self) -> list[UIEvent]:
        """Return the text that rules hold back, and what that adds to the output: something else than text follows."""
        return self._with_output(self.parser.pause())

    def think(self, event: ReasoningDelta) -> list[UIEvent]:
        """Return what rules leave of reasoning, behind the text that they held back."""
        thought = Reasoning(event.text, 0, event.signature, event.id, event.redacted, event.own)
        return self._with_output(self.parser.think(thought))

    def lose(self) -> None:
        """Mark the calls that are open as damaged: a part of the stream is missing."""
        self.parser.lose()
        self.native.lose()

    def reconcile(self, text: str | None, calls: Sequence[NativeToolCall]) -> list[UIEvent]:
        """Compare the completed text and calls that the provider sends with what it streamed."""
        events = [] if text is None or self.room < 0 else self._reconcile_text(text)
        return events + self.native.reconcile(calls) if calls else events

    def discard(self) -> list[UIEvent]:
        """End the calls that are being written: the answer breaks off."""
        return [*self.parser.discard(), *map(self.parser.clean, self.native.give_up(BROKEN_OFF))]

    def go_on_behind(self, shown: str | None) -> tuple[list[UIEvent], str]:
        """Go on with another answer behind the text that was `shown`; return how calls end, and what was written.

        Complete calls in the text stand there, and count; all others end. With None all of them do.
        """
        events = self.discard()
        kept = self.parser.calls
        written = self._written(shown) if kept and shown is not None else shown
        if written is None:
            events += map(self.parser.clean, self.refuse(kept, Code.SUPERSEDED, BROKEN_OFF))
            kept, written = [], shown or ""
        others = self.native.calls + (self._apart.calls if self._apart is not None else [])
        events += map(self.parser.clean, self.refuse(others, Code.SUPERSEDED, BROKEN_OFF))
        self.native.begin_turn()
        written = self._go_on_behind(written, kept)
        self._apart = None
        self.deltas, self._blocks = [written], []
        self.room, self._spare = min(_BLOCK, self._limit - len(written)), 0
        return events, written

    def _go_on_behind(self, written: str, calls: Sequence[ToolCall]) -> str:
        """Read what comes as the rest of a text that has been read, and holds these calls; that makes no events. Return
        the text as the next model may repeat it.
        """
        options: ParserKeywords = {**self._options}
        options["in_reasoning"] = options.get("in_reasoning", False) and not written
        self.parser = Parser(self._dialects, self._tools, **options)
        read = self.parser.feed(written) + self.parser.release()
        # What looks like a call without what stood in it is none.
        if len(self.parser.calls) != len(calls) or any(isinstance(event, Thinking) and not calls for event in read):
            self.parser = Parser(self._dialects, self._tools, **options)
            written = neutralise(written, self._enabled)
        self.parser.calls[:] = calls
        self._replaced = True
        return written

    def _written(self, shown: str) -> str | None:
        """Return the text of the turn with its complete calls, and without reasoning and markup, of which this much was
        `shown`; None if it cannot be told, or is read otherwise without them.
        """
        if self.room < 0:
            return None
        text, options = "".join(self._blocks + self.deltas), self._options
        for shows_all in (False, True):  # as it came, and as it is written
            apart = Parser(self._dialects, self._tools, **options)
            events = apart.feed(text)
            events += apart.release() if shows_all else []
            if [call.fingerprint() for call in apart.calls] != [call.fingerprint() for call in self.parser.calls]:
                return None
            text = "".join(e.text if isinstance(e, Text) else e.call.raw if isinstance(e, Call) else "" for e in events)
            options = {**options, "in_reasoning": False}
        return text if "".join(event.text for event in events if isinstance(event, Text)) == shown else None

    def find_calls(self, generation: str) -> list[UIEvent]:
        """Return the events of the calls in the whole text of a model that the provider could not read."""
        options: ParserKeywords = {**self._options, "in_reasoning": False}
        known = (each for id, each in DIALECTS.items() if each.auto is True or id in ("raw_json", "json_array"))
        dialects = {each.id: each for each in (*known, *self._enabled)}  # ours may want a nonce
        apart = Parser(list(dialects.values()), self._tools, **options)
        events = apart.feed(generation) + apart.close()
        ids = {call.id for call in apart.calls}
        return [event for event in events if _call_id(event) in ids]

    def adopt(self, found: Sequence[UIEvent]) -> list[UIEvent]:
        """Add calls that `find_calls` has found as native ones, unless the provider has sent them as well.

        One in a dialect that is not enabled may be a quotation of what nobody has neutralised. It does not count: the
        model is asked to send it again.
        """
        known = {call.fingerprint() for call in self.native.calls}
        twice = {event.call.id for event in found if isinstance(event, Call) and event.call.fingerprint() in known}
        new = [self._refuse_disabled(event) for event in found if _call_id(event) not in twice]
        message = "the provider refused to read a call, which was found in what the model had written"
        warning = Warning(Code.SALVAGED, message)
        events = [warning, *self.native.give_up(_SALVAGED)]
        return events + self.native.adopt(new)

    def _refuse_disabled(self, event: UIEvent) -> UIEvent:
        if not isinstance(event, Call) or any(event.call.dialect == each.id for each in self._enabled):
            return event
        call = event.call
        return Error(Code.UNRECOGNISED_TOOL_CALL, _UNREAD, call_id=call.id, raw=call.raw, dialect=NATIVE)

    def close(self) -> list[UIEvent]:
        """End the text, and the native calls that are open."""
        events = self._with_output(self.parser.close())
        events += map(self.parser.clean, self.native.close()) if self.native.open else ()
        if self.output is not None:
            calls = self.parser.calls or self.parser.errors or self.native.output.count
            events += self.output.end(has_calls=bool(calls))
        return events

    def choose(self, *, declares_native: bool | None, self_contained: bool) -> Chosen:
        """Return which calls of the turn count.

            native calls are declared   the turn holds           what counts
            yes, or unknown             native calls             these
            yes, or unknown             calls in text alone      these
            no                          calls in text            these
            no                          native calls alone       these, with a warning
            whatever                    calls of an agent        none: it runs its tools itself

        A malformed call counts as one of its kind: the model uses that protocol, and learns what was wrong.
        """
        written, bad = self.parser.calls, len(self.parser.errors)
        if self._apart is not None:
            written, bad = written + self._apart.calls, bad + len(self._apart.errors)
        native, seen = self.native.calls, self.native.output.count
        malformed = bad + seen - len(native)
        if self_contained:
            return Chosen([], self.refuse(written + native, Code.SUPERSEDED, _OF_AGENT), 0)
        if not seen or (declares_native is False and (written or bad)):
            return Chosen(written, self.refuse(native, Code.SUPERSEDED, _BY_TEXT) if native else [], malformed)
        events = self.refuse(written, Code.SUPERSEDED, _BY_NATIVE)
        if declares_native is False and not self.native.emulated:
            message = "a model that is declared to make no native calls has made one"
            events.append(Warning(Code.UNDECLARED_NATIVE, message))
        return Chosen(native, events, malformed)

    def _reconcile_text(self, text: str) -> list[UIEvent]:
        deltas = "".join(self._blocks + self.deltas)
        if text.startswith(deltas):
            return self.feed(text[len(deltas) :])
        if text.strip() == deltas.strip():
            return []
        events = self._with_output(self.parser.close())
        message = "the provider's completed text differs from what it streamed; what was shown stands"
        events.append(Warning(Code.TEXT_MISMATCH, message))
        return events if self.parser.calls else events + self._read_apart(text)

    def _read_apart(self, text: str) -> list[UIEvent]:
        """Return the events of the calls in a text that is not shown; of malformed ones too, if none is known yet."""
        self._apart = apart = Parser(self._dialects, self._tools, **self._options)
        events = apart.feed(text) + apart.close()
        ids = {call.id for call in apart.calls}
        if not self.parser.errors:
            ids.update(error.call_id or "" for error in apart.errors)
        return [event for event in events if _call_id(event) in ids]

    def refuse(self, calls: Iterable[ToolCall], code: Code, message: str) -> list[UIEvent]:
        """Return the errors that end complete calls that do not count."""
        return [Error(code, message, call_id=call.id, call=call) for call in calls]

    def _begin_block(self) -> None:
        """Begin a new block of deltas; forget the text of the turn if it exceeds the limit."""
        granted = min(max(_BLOCK, -self.room), self._spare)
        self._spare -= granted
        self.room += granted
        self._blocks.append("".join(self.deltas))
        self.deltas.clear()
        if self.room < 0:
            self._blocks.clear()


def _call_id(event: UIEvent) -> str | None:
    call = getattr(event, "call", None)
    return call.id if isinstance(call, ToolCall) else getattr(event, "call_id", None)
