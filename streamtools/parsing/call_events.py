"""The events of a turn's calls, whether the model writes them in its text or natively.

`CallEvents` reports the life of a call in the order that interfaces rely on: thinking(true), call-start when the name
is certain, call-delta for the arguments, a call or an error, and thinking(false). It also collects the calls and the
errors of the turn. `Parser` and `NativeCalls` use one each.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from streamtools.calls import ToolCall, new_call_id
from streamtools.events import Call, CallDelta, CallStart, Error, Partial, Thinking, UIEvent
from streamtools.json_values import Rejected
from streamtools.parsing.json_repair import MAX_IN_TURN
from streamtools.parsing.options import Options

if TYPE_CHECKING:
    from streamtools.parsing.value_reader import ValueReader

_IDS = 16  # ids of one block of random bytes, because the system call is the main cost of an id

BROKEN_OFF = "the model broke off, and another one gives the answer"


class CallDraft(msgspec.Struct, eq=False):
    """A call that is being written. Places count from the beginning of its span."""

    id: str
    begin: int = 0
    provider_id: str | None = None
    json_begin: int = -1
    json_end: int = -1
    name: str | None = None  # in text, only if it stands outside of the JSON
    converted: bool = False  # `pieces` hold the JSON of the arguments, and the span does not
    pieces: list[str] = []  # msgspec copies the default for each call
    room: int = 0  # characters that `pieces` may still hold, in a native call
    dropped: int | None = None  # characters over the limit; None if there are none
    fault: Rejected | None = None  # the reason why it is an error
    started: str = ""  # the name that call-start has reported
    flows: bool = False  # call-start was reported, and arguments are reported as deltas only
    waiting: list[str] = []  # arguments that arrived before call-start
    value: ValueReader | None = None  # reads the arguments as a value, with `call_partials`

    @property
    def complete(self) -> bool:
        """Whether its JSON, or the value in place of it, has ended."""
        return self.json_end >= 0


class CallEvents:
    """The events of the current `feed`, and the calls and errors of the turn."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.call_deltas = options.call_deltas or options.call_partials  # arguments are reported while they arrive
        self.events: list[UIEvent] = []
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self.calls: list[ToolCall] = []
        self.errors: list[Error] = []
        # A block of ids is used for one turn only, so that a forked process does not make the same ids.
        new_id = self.options.new_id
        self.new_id = None if new_id is new_call_id else new_id
        self.count = 0  # calls that have begun
        self.repairs = MAX_IN_TURN  # characters that may still be repaired

    def add(self, event: Callable[..., UIEvent], *fields: object, **named: object) -> None:
        """Add an event."""
        self.events.append(event(*fields, **named))

    # The life of a call.

    def begin_call(self, begin: int = 0, call_id: str | None = None, provider_id: str | None = None) -> CallDraft:
        """Report that the model writes a call, which begins at a place of its span."""
        if not call_id:
            if self.new_id is None:  # made for the first call, because most turns have none
                self.new_id = _call_ids().__next__
            call_id = self.new_id()
        self.events.append(Thinking(True, call_id))
        self.count += 1
        return CallDraft(call_id, begin, provider_id)

    def start_call(self, call: CallDraft, name: str) -> None:
        """Report the name of a call, and the arguments that arrived before it."""
        call.started = name
        call.flows = self.options.call_deltas and not self.options.call_partials
        self.events.append(CallStart(call.id, name))
        if call.waiting:
            self.report_arguments(call, "".join(call.waiting))
            call.waiting.clear()

    def report_arguments(self, call: CallDraft, text: str) -> None:
        """Report a piece of a call's arguments, which is JSON. Pieces before the name are reported after it."""
        if call.flows:
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
        """Report a complete call."""
        if not call.started:
            self.start_call(call, result.name)
        self.calls.append(result)
        self.events += (Call(result), Thinking(False, call.id))

    def reject_call(self, call: CallDraft, fault: Rejected, raw: str, dialect: str) -> None:
        """Report a call that is an error."""
        error = Error(fault.code, fault.message, call_id=call.id, raw=raw, dialect=dialect)
        if len(self.errors) <= self.options.limits.calls:  # a hostile stream may hold any number of them
            self.errors.append(error)
        self.events += (error, Thinking(False, call.id))


def _call_ids() -> Iterator[str]:
    """Yield ids like those of `new_call_id`."""
    while True:
        block = secrets.token_urlsafe(_IDS * 9)  # nine bytes are twelve characters of base64
        for at in range(0, len(block), 12):
            yield "call_" + block[at : at + 12]
