"""One turn of a model: what it says in text and natively, and which of its calls count. Sans-IO.

A turn has two mouths. Its text goes through the parser, and what the provider tells beside it through `NativeCalls`; at
its end the provider may tell both once more, whole, and that is compared with what came. A model may have called in
both ways. Then only the calls of one kind count, so that nothing is done twice; `choose` has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import (
    Call,
    Error,
    NativeToolCall,
    ToolCallDelta,
    ToolCallStart,
    UIEvent,
    Warning,
)
from streamtools.native import NativeCalls
from streamtools.parsing import DIALECTS, Parser
from streamtools.parsing.dialects import Dialect, Dialects
from streamtools.parsing.options import Options, ParserOptions

_BLOCK = 64 * 1024
"""Characters of a turn's text that are kept in the pieces they came in; joined, they take a fraction of the room."""

_OF_AGENT = "the agent runs its tools itself"
_BY_TEXT = "the turn holds calls in its text, and those count"
_BY_NATIVE = "the turn holds native calls, and those count"


class Chosen(NamedTuple):
    """The calls of a turn that count, the events that end the others, and how many were malformed."""

    calls: list[ToolCall]
    events: list[UIEvent]
    malformed: int


class Turn:
    """Reads one turn after the other; every method returns the events that it makes certain.

    `room` and `deltas` are for whoever feeds the text itself, delta by delta: what `room` still has for a delta may be
    appended to `deltas` and fed to the `parser`, and everything else is for `read`.
    """

    def __init__(self, dialects: Dialects, tools: Any, options: ParserOptions, number: Callable[[], int]) -> None:
        self._dialects = dialects
        self._tools = tools
        self._options = options
        self._number = number
        chosen = Options(**options)
        self._limit = chosen.limits.text
        self.parser = Parser(dialects, tools, number=number, **options)
        self.native = NativeCalls(chosen, number)
        self.begin()

    def begin(self) -> None:
        """Forget the last turn."""
        self.parser.reset()
        self.native.begin_turn()
        self._apart: Parser | None = None  # it has read a completed text whose calls the deltas do not hold
        self.deltas: list[str] = []
        self._blocks: list[str] = []  # what the deltas before held
        self.room = min(_BLOCK, self._limit)  # characters that the deltas may still hold; negative: there are too many
        self._spare = self._limit - self.room  # characters that blocks to come may hold

    def read(self, text: str) -> list[UIEvent]:
        """Read a piece of text, for which there may be no room."""
        self.room -= len(text)
        if self.room < 0:
            self._begin_block()
        if self.room >= 0:
            self.deltas.append(text)
        return self.parser.feed(text)

    def read_call(self, event: ToolCallStart | ToolCallDelta | NativeToolCall) -> list[UIEvent]:
        """Read what the provider tells of a native call."""
        if isinstance(event, ToolCallDelta):
            return self.native.add(event)
        return self.native.start(event) if isinstance(event, ToolCallStart) else self.native.finish(event)

    def lose(self) -> None:
        """Take note that a part of the stream is missing, whatever it held: a call that is open cannot be trusted."""
        self.parser.lose()
        self.native.lose()

    def reconcile(self, text: str | None, calls: Iterable[NativeToolCall]) -> list[UIEvent]:
        """Compare the provider's idea of the turn with what came."""
        events = [] if text is None or self.room < 0 else self._reconcile_text(text)
        return events + self.native.reconcile(calls)

    def find_calls(self, generation: str) -> list[UIEvent]:
        """Return what tells of the calls in a text that a model has written, whole, and its provider could not read."""
        options: ParserOptions = {**self._options, "in_reasoning": False}
        apart = Parser(_salvage(), self._tools, **options)
        events = apart.feed(generation) + apart.close()
        told = {call.id for call in apart.calls}
        return [event for event in events if _call_id(event) in told]

    def adopt(self, found: Sequence[UIEvent]) -> list[UIEvent]:
        """Take calls that were found so, unless the provider has told them: they are as good as native ones."""
        known = {call.fingerprint() for call in self.native.calls}
        twice = {event.call.id for event in found if isinstance(event, Call) and event.call.fingerprint() in known}
        new = [event for event in found if _call_id(event) not in twice]
        message = "the provider refused to read a call, which was found in what the model had written"
        warning = Warning(Code.SALVAGED, message, seq=self._number())
        told = [warning, *self.native.give_up()]
        return told + self.native.adopt(replace(event, seq=self._number()) for event in new)

    def close(self) -> list[UIEvent]:
        """End what is open."""
        return self.parser.close() + self.native.close()

    def choose(self, *, declares_native: bool | None, self_contained: bool) -> Chosen:
        """Return which calls of the turn count.

            native calls are declared   the turn holds           what counts
            yes, or unknown             native calls             these
            yes, or unknown             calls in text alone      these
            no                          calls in text            these
            no                          native calls alone       these, with a warning
            whatever                    calls of an agent        none: it runs its tools itself

        Calls that came malformed came, too: the model speaks that protocol, and is told what was wrong.
        """
        parsers = [self.parser] if self._apart is None else [self.parser, self._apart]
        written = [call for parser in parsers for call in parser.calls]
        bad = sum(len(parser.errors) for parser in parsers)
        native = self.native.calls
        malformed = bad + self.native.seen - len(native)
        if self_contained:
            return Chosen([], self._supersede(written + native, _OF_AGENT), 0)
        if not self.native.seen or (declares_native is False and (written or bad)):
            return Chosen(written, self._supersede(native, _BY_TEXT), malformed)
        events = self._supersede(written, _BY_NATIVE)
        if declares_native is False and not self.native.emulated:
            message = "a model that is declared to make no native calls has made one"
            events.append(Warning(Code.UNDECLARED_NATIVE, message, seq=self._number()))
        return Chosen(native, events, malformed)

    def _reconcile_text(self, text: str) -> list[UIEvent]:
        deltas = "".join(self._blocks + self.deltas)
        if text.startswith(deltas):
            return self.parser.feed(text[len(deltas) :])
        if text.strip() == deltas.strip():
            return []
        events = self.parser.close()
        message = "the provider's completed text differs from what it streamed; what was shown stands"
        events.append(Warning(Code.TEXT_MISMATCH, message, seq=self._number()))
        return events if self.parser.calls else events + self._read_apart(text)

    def _read_apart(self, text: str) -> list[UIEvent]:
        """Return the calls of a text that is not shown, and what is malformed in it unless that is known already."""
        self._apart = apart = Parser(self._dialects, self._tools, **self._options)
        events = apart.feed(text) + apart.close()
        told = {call.id for call in apart.calls}
        if not self.parser.errors:
            told.update(error.call_id or "" for error in apart.errors)
        return [replace(event, seq=self._number()) for event in events if _call_id(event) in told]

    def _supersede(self, calls: Iterable[ToolCall], message: str) -> list[UIEvent]:
        return [Error(Code.SUPERSEDED, message, call_id=call.id, call=call, seq=self._number()) for call in calls]

    def _begin_block(self) -> None:
        """Make room for what has been asked for, or forget the whole text if there is none."""
        granted = min(max(_BLOCK, -self.room), self._spare)
        self._spare -= granted
        self.room += granted
        self._blocks.append("".join(self.deltas))
        self.deltas.clear()
        if self.room < 0:
            self._blocks.clear()


def _salvage() -> list[Dialect]:
    """Return the dialects in which a call is looked for that a provider refused to read."""
    return [each for name, each in DIALECTS.items() if each.auto or name in ("raw_json", "json_array")]


def _call_id(event: UIEvent) -> str | None:
    call = getattr(event, "call", None)
    return call.id if isinstance(call, ToolCall) else getattr(event, "call_id", None)
