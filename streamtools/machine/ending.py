"""Records why a run ends, and makes its last event, `done`. Sans-IO.

`done` has one `reason`. The first row of this table whose condition is true gives it:

    condition                                                                          reason
    the caller left an incomplete run, before any fault or limit                       cancelled
    a fault: the transport broke, the provider failed, or its answer cannot be used    failed
    a limit of this process, a judge of the text, or a tool stopped the run            stopped
    the provider cut its last turn off                                                 truncated
    none of these                                                                      finished

It is a fault if the transport ends before the provider has completed the run.
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
"""The finish reason of a run that stopped because a judge refused its text."""

PAUSE_TURN = "pause_turn"
"""Anthropic's finish reason of a paused turn. The model continues it after the client sends it back unchanged."""

CALLS_MAY_RUN = frozenset(("stop", "tool_calls", STOPPED_AFTER_CALL, STOPPED_BY_RULE))
"""The finish reasons of turns whose calls may run."""

_CUT = frozenset(("length", "content_filter", "cancelled"))  # "cancelled" means: by the provider


class EndedStep(NamedTuple):
    """A step that has ended without a fault.

    `malformed` is the number of its malformed calls. `continues` is True if the run has another step.
    """

    malformed: int
    continues: bool


@dataclass(slots=True)
class Ending:
    """The facts that decide how one run ends."""

    complete: bool = False
    """True if the provider has completed the run."""
    requested: bool = False
    """True after another request was sent, until the first event of its answer arrives."""
    failed: bool = False
    stopped_by: str | None = None
    """The finish reason that names the limit, judge or tool that stopped the run. None if nothing has."""
    finish: str | None = None
    """The finish reason of the last turn. None if it is not known."""
    raw_finish: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    """The provider's id of the last turn."""
    model: str | None = None

    @property
    def is_certain(self) -> bool:
        """True if the reason of `done` no longer depends on the provider."""
        return self.failed or bool(self.stopped_by)

    def begin_turn(self) -> None:
        """Record that an answer begins or continues."""
        self.complete = self.requested = False
        self.response_id = self.model = None

    def end_turn(self, event: ProviderCompleted, finish: str | None, has_gap: bool) -> None:
        """Record the end of a turn. `finish` is its finish reason if this process ends the turn, and None otherwise.

        If the provider gives no reason, the reason is "stop". With `has_gap=True`, a part of the stream is missing, and
        the provider's reason may have been in it. The reason is then "other" instead of "stop", and no call runs.
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
        """Record that a limit stops the run. `why` becomes the finish reason if no other limit came first."""
        self.stopped_by = self.stopped_by or why

    def done(self, pending: list[ToolCall], *, left: bool) -> Done:
        """Return the last event of the run. `pending` holds the complete calls that did not run.

        `left` is True if the caller left the run before it ended.
        """
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
