"""The order of events, as a grammar that checks a run. Sans-IO.

Encoders and interfaces rely on this order. They need no case for a piece of a call that has not begun, for a step
inside a step, or for an event after the end of the run. The run with its steps is a small state machine, and so is each
call. docs/events.md describes both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from streamtools.errors import EventOrderError
from streamtools.events import UIEvent, ui_events

_BEGUN, _NAMED, _WHOLE, _MALFORMED, _COMPLETE, _ASKED, _RUNNING, _LEFT, _ENDED = (
    "is being written",
    "is being written and has its name",
    "is complete, and its thinking has not ended",
    "is malformed, and its thinking has not ended",
    "is complete",
    "waits for approval",
    "is running",
    "was left open by its step",
    "has ended",
)
_WRITTEN = (_BEGUN, _NAMED, _WHOLE, _MALFORMED)  # the states in which an interface shows a spinner

_LIFE: dict[type[Any], tuple[tuple[str, ...], str, str]] = {
    ui_events.CallStart: ((_BEGUN,), _NAMED, "a call is named once, while it is being written"),
    ui_events.CallDelta: ((_NAMED,), _NAMED, "arguments come after the call-start and before the call"),
    ui_events.Call: ((_BEGUN, _NAMED), _WHOLE, "a call is complete once, after its thinking"),
    ui_events.ApprovalRequested: ((_COMPLETE,), _ASKED, "only a complete call of this step waits for approval, once"),
    ui_events.Executing: ((_COMPLETE, _ASKED), _RUNNING, "only a complete call of this step is run, once"),
    ui_events.Progress: ((_RUNNING,), _RUNNING, "only a running tool makes progress"),
    ui_events.Executed: ((_RUNNING,), _ENDED, "only a running tool returns a result, once"),
}
"""The events of a call: the states in which each may happen, the state after it, and the rule."""


def validate(events: Iterable[UIEvent], *, run: bool = True) -> None:
    """Raise `EventOrderError` if these are not the events of one whole run, in order.

    With `run=False`, they are the events of a `Parser` from its first `feed` to its `close`.
    """
    grammar = Grammar(run=run)
    for event in events:
        grammar.feed(event)
    grammar.close()


class Grammar:
    """Checks the events of a run one by one. For events of a `Parser`, `run` is False."""

    def __init__(self, *, run: bool = True) -> None:
        self._run = run
        self._place = 0
        self._event: UIEvent | None = None
        self._seq = 0
        self._step = 0
        self._open = not run  # a step is open
        self._over = False  # the answer of this step is over: its usage was reported
        self._continues = False  # a follow-up was read, and no step has begun since
        self._waits = False  # thinking has begun without a call
        self._needs_warning = False  # a call turned out to be text, and a warning must follow
        self._resumes = False  # the first step holds only calls of an earlier run
        self._failed = False
        self._done = False
        self._calls: dict[str, str] = {}  # calls of this step and pending calls, with their states
        self._ids: set[str] = set()  # of all announced calls

    def feed(self, event: UIEvent) -> None:
        """Read an event. Raises `EventOrderError`, with the place and the rule, if it is not allowed here."""
        self._place += 1
        self._event = event
        read = _READERS.get(type(event))
        if read is None:
            self._refuse("it is no UI event")
        if self._done:
            self._refuse("nothing follows done")
        self._number(event.seq)
        if not isinstance(event, ui_events.Call):
            self._resumes = isinstance(event, ui_events.StepStart) and self._step == 0
        if self._run and (self._place == 1) != isinstance(event, ui_events.Start):
            self._refuse("a run begins with one start")
        if self._needs_warning and not isinstance(event, ui_events.Warning):
            self._refuse("if a call turned out to be text, a warning follows")
        self._needs_warning = False
        if not self._run and isinstance(event, _OF_RUNS):
            self._refuse("a parser reports nothing of runs and tools")
        read(self, event)

    def close(self) -> None:
        """Check the end of the events. Raises `EventOrderError` if a run, a step or a call is still open."""
        self._event = None
        if self._needs_warning:
            self._refuse("if a call turned out to be text, a warning follows")
        if self._run:
            if not self._done:
                self._refuse("a run ends with done")
        else:
            self._check_written("the text ends")

    # The run and its steps.

    def _number(self, seq: int) -> None:
        if self._place == 1:
            self._seq = seq
            if self._run and seq not in (0, 1):
                self._refuse("the numbers of a run begin with 1 or are all 0")
        elif self._seq == 0 != seq or seq != self._seq + (self._seq > 0):
            self._refuse(f"numbers rise by one, and {self._seq} was before")
        else:
            self._seq = seq

    def _read_anywhere(self, event: UIEvent) -> None:
        """Accept `start` (whose place has been checked), `warning` and `raw` in any state."""

    def _read_step_start(self, event: ui_events.StepStart) -> None:
        if self._open:
            self._refuse(f"step {self._step} has not ended")
        if self._failed:
            self._refuse("no step begins after the error that ends the run")
        if event.step != self._step + 1:
            self._refuse(f"steps are numbered from 1, and the last was {self._step}")
        self._step += 1
        self._open, self._over, self._continues = True, False, False

    def _read_step_end(self, event: ui_events.StepEnd) -> None:
        self._check_open()
        if event.step != self._step:
            self._refuse(f"the step that ends is {self._step}")
        self._check_written("the step ends")
        for call_id, state in self._calls.items():
            if state == _RUNNING:
                self._refuse(f"{call_id} {state}, and executions precede the end of their step")
        self._calls = dict.fromkeys(self._calls, _LEFT)
        self._open = False

    def _read_superseded(self, event: ui_events.StepSuperseded) -> None:
        if self._open or event.step != self._step or self._continues or self._calls:
            self._refuse("the step that has just ended may be superseded if none of its calls is left")

    def _read_content(self, event: UIEvent) -> None:
        self._check_open()
        if self._failed or self._over:
            self._refuse("the answer is complete or has failed")

    def _read_usage(self, event: ui_events.UsageReport) -> None:
        if not self._step:
            self._refuse("usage belongs to a step, and no step has begun")
        self._over = True

    def _read_follow_up(self, event: ui_events.FollowUp) -> None:
        if self._open or not self._step or self._continues or self._failed:
            self._refuse("one follow-up may come between two steps")
        self._continues = True

    def _read_done(self, event: ui_events.Done) -> None:
        if self._open:
            self._refuse(f"step {self._step} has not ended")
        if self._waits:
            self._refuse("the thinking has not ended")
        if self._failed != (event.reason == "failed"):
            self._refuse("a run has an error without a call exactly if it fails")
        pending = [call.id for call in event.pending]
        if sorted(pending) != sorted(self._calls):
            self._refuse(f"pending must be the calls that did not run: {', '.join(self._calls) or 'none'}")
        self._done = True

    # The calls.

    def _read_thinking(self, event: ui_events.Thinking) -> None:
        call_id = event.call_id
        if call_id is None:
            if event.active == self._waits:
                self._refuse("thinking begins before it ends")
            self._waits = event.active
        elif event.active:
            self._read_content(event)
            if call_id in self._ids:
                self._refuse("the id of a call is unique")
            self._ids.add(call_id)
            self._calls[call_id] = _BEGUN
        else:
            state = self._state(call_id)
            if state == _WHOLE:
                self._calls[call_id] = _COMPLETE
            elif state in (_BEGUN, _MALFORMED):
                self._needs_warning = state == _BEGUN
                del self._calls[call_id]
            else:
                self._refuse(f"thinking ends when the written text is a call, an error or text, and {call_id} {state}")

    def _read_life(self, event: Any) -> None:
        allowed, following, rule = _LIFE[type(event)]
        call_id = event.call.id if hasattr(event, "call") else event.call_id
        self._check_open()
        state = self._state(call_id)
        if isinstance(event, ui_events.Call) and self._resumes and call_id not in self._ids:
            self._ids.add(call_id)
            self._over = True  # the model has no answer in this step
            following = _COMPLETE
        elif state not in allowed:
            self._refuse(f"{rule}, and {call_id} {state}")
        self._move(call_id, following)

    def _read_error(self, event: ui_events.Error) -> None:
        call_id = event.call_id
        if call_id is None:
            if self._failed:
                self._refuse("a run fails once")
            if event.call is not None:
                self._refuse("an error with a call has the id of the call")
            self._failed = True
            return
        self._check_open()
        state = self._state(call_id)
        if event.call is None:
            if state not in (_BEGUN, _NAMED):
                self._refuse(f"a call is malformed while it is being written, and {call_id} {state}")
            self._move(call_id, _MALFORMED)
        else:
            if event.call.id != call_id:
                self._refuse("an error with a call has the id of the call")
            if state not in (_COMPLETE, _ASKED, _RUNNING):
                self._refuse(f"a complete call ends once, in its step, and {call_id} {state}")
            self._move(call_id, _ENDED)

    def _state(self, call_id: str) -> str:
        return self._calls.get(call_id, _ENDED if call_id in self._ids else "has not begun")

    def _move(self, call_id: str, state: str) -> None:
        if state == _ENDED:
            del self._calls[call_id]
        else:
            self._calls[call_id] = state

    def _check_open(self) -> None:
        if not self._open:
            self._refuse("it belongs into a step, and no step has begun" if not self._step else "no step is open")

    def _check_written(self, what: str) -> None:
        for call_id, state in self._calls.items():
            if state in _WRITTEN:
                self._refuse(f"{what}, and {call_id} {state}")

    def _refuse(self, rule: str) -> NoReturn:
        raise EventOrderError(self._place, self._event, rule)


_OF_RUNS = (
    ui_events.Start,
    ui_events.StepStart,
    ui_events.StepEnd,
    ui_events.StepSuperseded,
    ui_events.UsageReport,
    ui_events.FollowUp,
    ui_events.ApprovalRequested,
    ui_events.Executing,
    ui_events.Progress,
    ui_events.Executed,
    ui_events.Done,
)
_READERS: dict[type[Any], Callable[[Grammar, Any], None]] = {
    **dict.fromkeys((ui_events.Start, ui_events.Warning, ui_events.Raw), Grammar._read_anywhere),
    **dict.fromkeys((ui_events.Text, ui_events.Reasoning, ui_events.RuledReasoning), Grammar._read_content),
    **dict.fromkeys((ui_events.Matched, ui_events.Markup), Grammar._read_content),
    **dict.fromkeys((ui_events.Partial, ui_events.ValidPartial), Grammar._read_content),
    **dict.fromkeys(_LIFE, Grammar._read_life),
    ui_events.StepStart: Grammar._read_step_start,
    ui_events.StepEnd: Grammar._read_step_end,
    ui_events.StepSuperseded: Grammar._read_superseded,
    ui_events.UsageReport: Grammar._read_usage,
    ui_events.FollowUp: Grammar._read_follow_up,
    ui_events.Thinking: Grammar._read_thinking,
    ui_events.Error: Grammar._read_error,
    ui_events.Done: Grammar._read_done,
}
