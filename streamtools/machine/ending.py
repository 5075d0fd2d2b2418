"""How a run ends: the facts that are known about its end, and the one reason of its `done`. Sans-IO.

The provider completes or cuts its answer. The transport breaks, or the answer cannot be used: a fault. A limit of ours
stops the run. Or our caller leaves it. The first row that holds gives the reason:

    left without a fault or a limit, before it was complete     cancelled
    a fault                                                     failed
    a limit of ours, a judge, or a tool that ends the run       stopped
    the last turn was cut                                       truncated
    otherwise                                                   finished

A transport that ends before the provider has completed the run is a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from streamtools.calls import ToolCall
from streamtools.events import Done, DoneReason, ProviderCompleted
from streamtools.machine.turn import STOPPED_AFTER_CALL

STOPPED_BY_RULE = "stopped_by_rule"
"""The finish reason of a turn that one of the `text_rules` ends."""

GUARD = "guard"
"""The finish reason of a run whose text a judge has refused."""

PAUSE_TURN = "pause_turn"
"""Anthropic's reason for a turn that continues when it is sent back unchanged."""

CALLS_MAY_RUN = frozenset(("stop", "tool_calls", STOPPED_AFTER_CALL, STOPPED_BY_RULE))
"""The finish reasons of turns whose calls may run."""

_CUT = frozenset(("length", "content_filter", "cancelled"))  # "cancelled" by the provider; ours is `done(cancelled)`


class EndedStep(NamedTuple):
    """A step that has ended without a fault: how many of its calls were malformed, and whether the run continues."""

    malformed: int
    continues: bool


@dataclass(slots=True)
class Ending:
    """What is known about the end of one run."""

    complete: bool = False
    """The provider has completed the run."""
    requested: bool = False
    """We have sent another request, and nothing of its answer has arrived."""
    failed: bool = False
    stopped_by: str | None = None
    """The limit that has stopped the run."""
    finish: str | None = None
    """The finish reason of the last turn; None if it is not known."""
    raw_finish: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    """The provider's id of the last turn."""
    model: str | None = None

    @property
    def is_certain(self) -> bool:
        """Whether the reason of `done` no longer depends on the provider."""
        return self.failed or bool(self.stopped_by)

    def begin_turn(self) -> None:
        """Record that an answer begins or continues."""
        self.complete = self.requested = False
        self.response_id = self.model = None

    def end_turn(self, event: ProviderCompleted, finish: str | None, has_gap: bool) -> None:
        """Record that the provider ends a turn, or that we end it with a `finish` of our own.

        A turn without a reason has finished with "stop". If the stream has a gap, the reason may have been in it: the
        turn then ends with "other", and no call runs.
        """
        self.finish = finish or event.finish_reason or "stop"
        if self.finish == "stop" and has_gap and event.raw_finish_reason is None and finish is None:
            self.finish = "other"
        self.raw_finish = event.raw_finish_reason
        self.response_id, self.model = event.response_id, event.model
        self.complete = self.complete or event.ends_run

    def break_off_turn(self) -> None:
        """Record that the open turn ends without a finish reason."""
        self.finish = self.raw_finish = self.response_id = self.model = None

    def end_chain(self, conversation_id: str | None) -> None:
        """Record that the provider has completed the run and its conversation."""
        self.finish = self.finish or "stop"
        self.conversation_id = conversation_id
        self.complete = True

    def stop(self, why: str) -> None:
        """Record that a limit stops the run. The first limit counts."""
        self.stopped_by = self.stopped_by or why

    def done(self, pending: list[ToolCall], *, left: bool) -> Done:
        """Return the last event of the run. `left` means that the caller left the run before it ended."""
        reason: DoneReason
        if left:
            reason = "cancelled"
        elif self.failed:
            reason = "failed"
        elif self.stopped_by:
            reason = "stopped"
        else:
            reason = "truncated" if self.finish in _CUT else "finished"
        finish = self.stopped_by or self.finish if reason == "stopped" else self.finish
        return Done(reason, finish, self.raw_finish, pending, self.conversation_id)
