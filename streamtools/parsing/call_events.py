"""Creates the events of a turn's calls. The model may write a call in its text, or the provider may send it natively.

`CallEvents` reports each call in the same order: thinking(true), call-start when the name is certain, call-delta for
the arguments, a call or an error, and thinking(false). It also collects the calls and the errors of the turn. Each
`Parser` and each `NativeCalls` uses one `CallEvents`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress, count
from typing import TYPE_CHECKING

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import Call, CallDelta, CallStart, Error, Partial, Thinking, UIEvent
from streamtools.json_values import Rejected, compact
from streamtools.parsing.json_repair import MAX_IN_TURN
from streamtools.parsing.options import Options

if TYPE_CHECKING:
    from streamtools.parsing.value_reader import ValueReader

INCOMPLETE = "closing tags of arguments follow the call, so its arguments may be incomplete, and it was not run"
_END_OF_CALL = 512  # an upper bound for the length of the closing tags of a value and its call

BROKEN_OFF = "the model was interrupted, and another model continues the answer"


class CallDraft(msgspec.Struct, eq=False):
    """A call that the model is still writing. Positions count characters from the start of its span.

    A span is the text of a call, or of several calls, with their markers.
    """

    id: str
    begin: int = 0  # the position where the text of the call begins
    provider_id: str | None = None  # the id that the model or the provider gave the call
    json_begin: int = -1  # the position where the JSON begins; -1 before it has begun
    json_end: int = -1  # the position where the JSON ends; -1 before it has ended
    name: str | None = None  # for a call in text: the name, if it is outside of the JSON
    converted: bool = False  # whether `pieces`, and not the text of the span, hold the JSON of the arguments
    pieces: list[str] = []  # pieces of the arguments; msgspec copies the default for each call
    room: int = 0  # for a native call: how many more characters `pieces` may hold
    dropped: int | None = None  # how many characters exceeded the limit; None if the limit was not exceeded
    fault: Rejected | None = None  # the reason why the call is an error; None if there is none
    started: str = ""  # the name that call-start has reported; "" before call-start
    # Whether each piece of the arguments is reported by a call-delta only: call-start was sent, and partials are off.
    only_deltas: bool = False
    waiting: list[str] = []  # arguments that arrived before call-start
    value: ValueReader | None = None  # parses the arguments for the option `call_partials`; None before the first piece

    @property
    def complete(self) -> bool:
        """Whether the JSON of the call, or the text in place of the JSON, has ended."""
        return self.json_end >= 0


class CallEvents:
    """Collects the events of the current `feed`, and the calls and errors of the turn."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.call_deltas = options.call_deltas or options.call_partials  # whether arguments are reported as they arrive
        self.events: list[UIEvent] = []
        self.final = False  # whether complete calls may already have run; they are then never withdrawn
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self.calls: list[ToolCall] = []
        self.errors: list[Error] = []
        self.rejected: dict[str, int] = {}  # maps a dialect to the number of calls before its first error
        self.calls_begun = 0  # how many calls have begun in this turn
        self.repair_room = MAX_IN_TURN  # how many more characters of JSON may be repaired in this turn

    def add(self, event: Callable[..., UIEvent], *fields: object, **named: object) -> None:
        """Create an event of the class `event` with these fields, and add it to `events`."""
        self.events.append(event(*fields, **named))

    # The events of one call, in order.

    def begin_call(self, begin: int = 0, call_id: str | None = None, provider_id: str | None = None) -> CallDraft:
        """Report that the model begins a call, and return a draft. `begin` is the position of the call in the span.

        Without `call_id`, a new id is created.
        """
        call_id = call_id or self.options.new_id()
        self.events.append(Thinking(True, call_id))
        self.calls_begun += 1
        return CallDraft(call_id, begin, provider_id)

    def start_call(self, call: CallDraft, name: str) -> None:
        """Report the name of a call, and the arguments that arrived before it."""
        call.started = name
        call.only_deltas = self.options.call_deltas and not self.options.call_partials
        self.events.append(CallStart(call.id, name))
        if call.waiting:
            self.report_arguments(call, "".join(call.waiting))
            call.waiting.clear()

    def report_arguments(self, call: CallDraft, text: str) -> None:
        """Report a piece of a call's arguments, as JSON text. Pieces before the name wait for `start_call`."""
        if call.only_deltas:
            if text:
                self.events.append(CallDelta(call.id, text))
        elif not call.started:
            call.waiting.append(text)
        elif text:
            if self.options.call_deltas:
                self.events.append(CallDelta(call.id, text))
            if call.value is None:
                from streamtools.parsing.value_reader import ValueReader  # few streams use it

                call.value = ValueReader(limits=self.options.limits)
            self.events += [Partial(*added, call_id=call.id) for added in call.value.feed(text)]

    def complete_call(self, call: CallDraft, result: ToolCall) -> None:
        """Report that the call is complete. `result` is the parsed call."""
        if not call.started:
            self.start_call(call, result.name)
            # The model wrote name and arguments as one Python dict, so no piece has been reported.
            if call.converted and call.name is None and self.call_deltas:
                self.report_arguments(call, compact(result.arguments))
        self.calls.append(result)
        self.events += (Call(result), Thinking(False, call.id))

    def reject_call(self, call: CallDraft, fault: Rejected, raw: str, dialect: str) -> None:
        """Report that the call is an error. `fault` is the reason, and `raw` is the text of the call."""
        error = Error(fault.code, fault.message, call_id=call.id, raw=raw, dialect=dialect)
        self.rejected.setdefault(dialect, len(self.calls))
        if len(self.errors) <= self.options.limits.calls:  # limits the memory for a hostile stream
            self.errors.append(error)
        self.events += (error, Thinking(False, call.id))

    def withdraw(self, text: str, dialect: str) -> None:
        """Turn complete calls into errors, because `text` shows that a call may have ended inside a value.

        `text` is outside of a call, but begins with the closing tag of a value. The first call with arguments that has
        the same dialect, or the same tag near its end, may be incomplete. It becomes an error. All later calls become
        errors, too, because they may be parts of a value in this first call. If an earlier call of the dialect is
        malformed, it is the first call.
        """
        tag = text[: text.find(">") + 1] or text
        first = (call.arguments and (call.dialect == dialect or tag in call.raw[-_END_OF_CALL:]) for call in self.calls)
        begin = min(next(compress(count(), first), len(self.calls)), self.rejected.get(dialect, len(self.calls)))
        code = Code.UNRECOGNISED_TOOL_CALL
        errors = [
            Error(code, INCOMPLETE, call_id=call.id, dialect=call.dialect, call=call) for call in self.calls[begin:]
        ]
        self.errors += errors
        self.events += errors
        del self.calls[begin:]
