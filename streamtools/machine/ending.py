"""How a run ends: what is known of that so far, and the one reason that its `done` gives. Sans-IO.

The provider ends its answer, well or cut; the transport breaks, or the answer cannot be used, which is a fault; we stop
the run because of a bound of ours; or our caller leaves it. The first of these that holds is the reason:

    left, with no fault and no bound met, before it was complete    cancelled
    a fault                                                         failed
    a bound of ours                                                 stopped, and by which
    the last turn was cut                                           truncated
    otherwise                                                       finished

A transport that ends before the provider has said that the run is complete is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import force_setattr

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import Done, DoneReason, FollowUp, ProviderCompleted, StepSuperseded, UIEvent, Usage
from streamtools.machine.turn import STOPPED_AFTER_CALL, Turn

if TYPE_CHECKING:
    from streamtools.rules.rule import Rule

STOPPED_BY_RULE = "stopped_by_rule"
"""The finish reason of a turn that one of the `text_rules` ends."""

GUARD = "guard"
"""The finish reason of a run of which a judge has refused some text."""

PAUSE_TURN = "pause_turn"
"""Anthropic's word for a turn that goes on when it is sent back as it is."""

CALLS_MAY_RUN = frozenset(("stop", "tool_calls", STOPPED_AFTER_CALL, STOPPED_BY_RULE))
"""How a turn ends whose calls may run."""

_CUT = frozenset(("length", "content_filter", "cancelled"))  # the provider's doing: `done(cancelled)` would be ours


class EndedStep(NamedTuple):
    """A step that has ended without a fault: how many of its calls were malformed, and whether the run continues."""

    malformed: int
    continues: bool


@dataclass(slots=True)
class Ending:
    """What is known of the end of one run. It only keeps the state; the machine acts on it."""

    complete: bool = False
    """The terminator has come."""
    asked: bool = False
    """We have asked for another answer, of which nothing has come."""
    failed: bool = False
    why: str | None = None
    """What has stopped the run."""
    finish: str | None = None
    """How the last turn ended; None if it is not known."""
    raw_finish: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    """Of the last turn, as is the model."""
    model: str | None = None

    @property
    def is_certain(self) -> bool:
        """Whether the reason is certain already, whatever the provider still says."""
        return self.failed or bool(self.why)

    def begin_turn(self) -> None:
        """An answer begins, or goes on."""
        self.complete = self.asked = False
        self.response_id = self.model = None

    def end_turn(self, event: ProviderCompleted, finish: str | None, lost: bool) -> None:
        """The provider ends a turn, or we do with a `finish` of our own. Without any reason, it has finished with
        "stop".

        If a part of the turn is `lost`, it ends with "other", and no call runs: the reason may have been in it.
        """
        self.finish = finish or event.finish_reason or "stop"
        if self.finish == "stop" and lost and event.raw_finish_reason is None and finish is None:
            self.finish = "other"
        self.raw_finish = event.raw_finish_reason
        self.response_id, self.model = event.response_id, event.model
        self.complete = self.complete or event.ends_run

    def break_off_turn(self) -> None:
        """The open turn ends without a finish reason."""
        self.finish = self.raw_finish = self.response_id = self.model = None

    def end_by_rule(self, rule: Rule) -> tuple[Code, str, None] | None:
        """A rule has ended the open turn, well or with the fault that is returned."""
        if rule.action == "fail":
            self.break_off_turn()
            return Code.GUARD_FAILED, f"the answer holds what the rule {rule.name!r} forbids", None
        self.finish, self.complete = STOPPED_BY_RULE, True
        return None

    def end_chain(self, conversation_id: str | None) -> None:
        """The provider has ended the run, whose conversation has this id."""
        self.finish = self.finish or "stop"
        self.conversation_id = conversation_id
        self.complete = True

    def stop(self, why: str) -> None:
        """The run is stopped for a reason; the first one counts."""
        self.why = self.why or why

    def done(self, pending: list[ToolCall], *, left: bool) -> Done:
        """Return the last event of the run, which has come to this end, or was `left` before it came to any."""
        reason: DoneReason
        if left:
            reason = "cancelled"
        elif self.failed:
            reason = "failed"
        elif self.why:
            reason = "stopped"
        else:
            reason = "truncated" if self.finish in _CUT else "finished"
        finish = self.why or self.finish if reason == "stopped" else self.finish
        return Done(reason, finish, self.raw_finish, pending, self.conversation_id)


class RunState:
    """What others ask of a run: whether it may go on, which of its calls may run, and the tokens that it has used.

    `StreamMachine` sets the state.
    """

    _ending: Ending
    _open: bool  # a turn has begun and not ended
    closed: bool  # `done` has gone out
    waiting: bool  # the turn is complete, and `settle` ends its step when its calls have been run
    stopped: bool  # we have ended the turn ourselves: the source is to be closed

    number: Callable[[], int]
    _parse: Callable[[str], list[UIEvent]]  # reads a delta of the open turn
    _step: int

    runnable: list[ToolCall]  # calls that may run now, until `take_runnable` returns them
    pending: list[ToolCall]  # calls that nobody has run
    usage: Usage | None  # of the turns that have ended
    _eager_native: bool  # complete native calls may run while their turn goes on
    _eager_text: bool  # those in text may
    _taken: list[ToolCall]
    _noticed: int  # how many calls of this turn have been added to `runnable` or `pending`
    _turn: Turn
    _usage: Usage | None  # of the turn that is open
    _flowing: bool  # a text delta needs nothing but to be remembered and parsed
    _earlier: list[tuple[str, Usage]]  # of models that broke off in this turn, and were not the last
    _lost: bool  # a part of the turn, or of what led to it

    # With more than thirty attributes, instances share no table of their keys, which costs a server with many runs: the
    # deltas of different runs then evict one another from the processor's cache.
    __slots__ = tuple(__annotations__)

    @property
    def may_go_on(self) -> bool:
        """Whether another request may follow: an answer has ended well, and nothing has stopped the run."""
        return self._is_complete and self._ending.finish in CALLS_MAY_RUN and not self._is_over

    @property
    def paused(self) -> bool:
        """Whether the provider has stopped in the middle of its turn, to go on when it is sent that back."""
        return self._is_complete and self._ending.raw_finish == PAUSE_TURN and not self._is_over

    def refuse(self) -> None:
        """Take note that what the provider has said is not shown to its end, because somebody refuses it."""
        self._ending.stop(GUARD)

    def go_on(self) -> None:
        """Take note that another request is to follow: until its answer is complete, the run is not."""
        self._ending.complete = self.stopped = False
        self._ending.asked = True

    def rest(self) -> None:
        """Take note that no other request follows after all."""
        self._ending.complete, self._ending.asked = True, False

    @property
    def _is_over(self) -> bool:
        return self.closed or self._ending.is_certain

    @property
    def _is_complete(self) -> bool:
        """Whether the provider has ended the run, and nothing of it is left to be done."""
        return self._ending.complete and not (self._open or self.waiting)

    @property
    def spent(self) -> int | None:
        """The tokens of the run so far, with those of the step that is open; None if no provider reports any."""
        turns = [usage for usage in (self.usage, self._usage) if usage is not None]
        return _sum(*(usage.total if usage.total is not None else _sum(usage.input, usage.output) for usage in turns))

    @property
    def held(self) -> int:
        """How many characters have been fed that nobody sees, because they may still become a call or a match."""
        return len(self._turn.parser.held)

    @property
    def salvaged(self) -> Collection[str]:
        """Ids of native calls that were found in a text which the provider could not read."""
        return self._turn.native.salvaged

    def clean(self, event: UIEvent) -> UIEvent:
        """Return an event as rules leave it, for what others show of the model's words."""
        return self._turn.parser.clean(event)

    def without_matches(self, value: Any) -> Any:
        """Return plain data as rules leave the texts in it, for what others keep of the model's words."""
        cleaned: Any = self.clean(FollowUp([value]))
        return cleaned.messages[0]

    def reserve(self, calls: Iterable[ToolCall]) -> None:
        """Take note of the calls of the conversation: the ids of others differ from theirs."""
        self._turn.native.reserve(call.id for call in calls)

    def take_runnable(self) -> list[ToolCall]:
        """Return the calls that may run now. The caller runs them and, once `waiting`, calls `settle`."""
        runnable, self.runnable = self.runnable, []
        self._taken += runnable
        return runnable

    def put_back(self, calls: Sequence[ToolCall]) -> None:
        """Make calls pending that `take_runnable` has returned and that have not run."""
        self.pending += calls

    @property
    def has_run(self) -> bool:
        """Whether a call of the turn has been given to whoever runs calls."""
        return bool(self._taken)

    def discard(self) -> list[UIEvent]:
        """End the calls that are being written: the answer has broken off, and its turn is to be completed as it is."""
        return self.numbered(self._turn.discard()) if self._open else []

    def go_on_behind(self, shown: str | None, model: str) -> tuple[list[UIEvent], str]:
        """Let a turn in which a `model` broke off go on with another answer, behind what was `shown` of it; return how
        calls of it end, and what the next model goes on with; with None, nothing. No call of it has run.
        """
        events, written = self._go_on_behind(shown, model)
        return self.numbered(events), written

    def _go_on_behind(self, shown: str | None, model: str) -> tuple[list[UIEvent], str]:
        self._lost = False
        if not self._open:
            return [], shown or ""
        if self._usage is not None:
            self._earlier.append((model, self._usage))
            self.usage = self._usage if self.usage is None else self.usage + self._usage
            self._usage = None
        self.pending = [call for call in self.pending if call.id not in self._turn.native.unanswerable]
        self.runnable, self._noticed = [], 0
        events, written = self._turn.go_on_behind(shown)
        self._parse = self._turn.feed
        return events, written

    def supersede(self, model: str) -> list[UIEvent]:
        """End the step of a turn in which a `model` broke off, and which counts for nothing; nothing of it has run."""
        if not self._open:
            return []
        events, _ = self._go_on_behind(None, model)
        return self.numbered([*events, *self._reset(), StepSuperseded(self._step)])

    def numbered(self, events: list[UIEvent]) -> list[UIEvent]:
        """Number events that leave the machine; return them."""
        number = self.number
        for event in events:
            force_setattr(event, "seq", number())
        return events

    def _reset(self) -> list[UIEvent]:
        """Break off the turn that is open."""
        raise NotImplementedError

    def _notice(self, calls: Sequence[ToolCall]) -> None:
        """Add new calls to `runnable`; those whose provider takes no result are pending."""
        for call in calls[self._noticed :]:
            (self.pending if call.id in self._turn.native.unanswerable else self.runnable).append(call)
        self._noticed = len(calls)


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
