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

from typing import TYPE_CHECKING

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import Done, DoneReason, ProviderCompleted

if TYPE_CHECKING:
    from streamtools.rules.rule import Rule

STOPPED_AFTER_CALL = "stopped_after_call"
"""The finish reason of a turn that we end ourselves, as `after_call="stop"` asks for."""

STOPPED_BY_RULE = "stopped_by_rule"
"""The finish reason of a turn that one of the `text_rules` ends."""

GUARD = "guard"
"""The finish reason of a run of which a judge has refused some text."""

INVALID_OUTPUT = "invalid_output"
"""The finish reason of a turn that we end because its text cannot become the `output` any more."""

PAUSE_TURN = "pause_turn"
"""Anthropic's word for a turn that goes on when it is sent back as it is."""

CALLS_MAY_RUN = frozenset(("stop", "tool_calls", STOPPED_AFTER_CALL, STOPPED_BY_RULE))
"""How a turn ends whose calls may run."""

_CUT = frozenset(("length", "content_filter", "cancelled"))  # the provider's doing: `done(cancelled)` would be ours


class Ending:
    """What is known of the end of one run. It only keeps the state; the machine acts on it."""

    __slots__ = (
        *("asked", "complete", "conversation_id", "failed", "finish", "model", "raw_finish", "response_id", "why"),
    )

    def __init__(self) -> None:
        self.complete = False
        """The terminator has come."""
        self.asked = False
        """We have asked for another answer, of which nothing has come."""
        self.failed = False
        self.why: str | None = None
        """What has stopped the run."""
        self.finish: str | None = None
        """How the last turn ended; None if it is not known."""
        self.raw_finish: str | None = None
        self.conversation_id: str | None = None
        self.response_id: str | None = None
        """Of the last turn, as is the model."""
        self.model: str | None = None

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

    def go_on(self) -> None:
        """Another request follows: until its answer is complete, the run is not."""
        self.complete, self.asked = False, True

    def rest(self) -> None:
        """No other request follows after all."""
        self.complete, self.asked = True, False

    def done(self, pending: list[ToolCall], seq: int, *, left: bool) -> Done:
        """Return the last event of the run, which has come to this end, or was `left` before it came to any."""
        reason: DoneReason
        if left:
            reason = "cancelled"
        elif self.failed:
            reason = "failed"
        elif self.why:
            reason = "stopped"
        else:
            stopped = self.finish == INVALID_OUTPUT
            reason = "stopped" if stopped else "truncated" if self.finish in _CUT else "finished"
        finish = self.why or self.finish if reason == "stopped" else self.finish
        return Done(reason, finish, self.raw_finish, pending, self.conversation_id, seq=seq)


class EndingRun:
    """Whether a run may go on with another request; `StreamMachine` sets the state."""

    __slots__ = ("_ending", "_open", "closed", "stopped", "waiting")

    _ending: Ending
    _open: bool  # a turn has begun and not ended
    closed: bool  # `done` has gone out
    waiting: bool  # the turn is complete, and `settle` ends its step when its calls have been run
    stopped: bool  # we have ended the turn ourselves: the source is to be closed

    @property
    def may_go_on(self) -> bool:
        """Whether another request may follow: an answer has ended well, and nothing has stopped the run."""
        return self._is_complete and self._ending.finish in (*CALLS_MAY_RUN, INVALID_OUTPUT) and not self._is_over

    @property
    def paused(self) -> bool:
        """Whether the provider has stopped in the middle of its turn, to go on when it is sent that back."""
        return self._is_complete and self._ending.raw_finish == PAUSE_TURN and not self._is_over

    def refuse(self) -> None:
        """Take note that what the provider has said is not shown to its end, because somebody refuses it."""
        self._ending.stop(GUARD)

    def go_on(self) -> None:
        """Take note that another request is to follow: until its answer is complete, the run is not."""
        self._ending.go_on()
        self.stopped = False

    def rest(self) -> None:
        """Take note that no other request follows after all."""
        self._ending.rest()

    @property
    def _is_over(self) -> bool:
        return self.closed or self._ending.is_certain

    @property
    def _is_complete(self) -> bool:
        """Whether the provider has ended the run, and nothing of it is left to be done."""
        return self._ending.complete and not (self._open or self.waiting)
