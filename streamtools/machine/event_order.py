"""Checks the order of the UI events of a run. Sans-IO.

Encoders and interfaces rely on this order. For example, no piece of a call arrives before the call has begun, steps do
not nest, and no event follows the end of the run. The run is a small state machine, and each call is another.
docs/events.md describes both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamtools import events as ui_events
from streamtools.errors import EventOrderError
from streamtools.events import UI_EVENTS, UIEvent

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
"""Maps each event of a call to the states in which it is allowed, the state after it, and the rule in errors."""

_OF_RUNS = ("start", "step-start", "step-end", "step-superseded", "usage", "follow-up", "done")
_OF_TOOLS = ("approval-requested", "executing", "progress", "executed")
_NEEDS_WARNING = "if a call turned out to be text, a warning follows"


def validate(events: Iterable[UIEvent], *, run: bool = True) -> None:
    """Check that `events` are all events of one run, in order. Raises `EventOrderError` otherwise.

    With `run=False`, they must be all events of a `Parser`, from its first `feed` to its `close`.
    """
    grammar = Grammar(run=run)
    for event in events:
        grammar.feed(event)
    grammar.close()


class Grammar:
    """Checks the events of a run one by one. With `run=False`, it checks the events of a `Parser`."""

    def __init__(self, *, run: bool = True) -> None:
        self._run = run
        self._place = 0
        self._event: UIEvent | None = None
        self._seq = 0
        self._step = 0
        self._open = not run  # a step is open
        self._over = False  # the answer of this step is complete, because its usage was reported
        self._continues = False  # the last step was followed by a follow-up, and no other step has begun
        self._waits = False  # a `thinking` event without a call id has begun and not ended
        self._needs_warning = False  # a call turned out to be text, and a warning must follow
        self._resumes = False  # the first step has begun, and has only complete calls of an earlier run
        self._failed = False
        self._done = False
        self._calls: dict[str, str] = {}  # maps the id of each call that has not ended to its state
        self._ids: set[str] = set()  # the ids of all calls that have begun

    def feed(self, event: UIEvent) -> None:
        """Check the next event. Raises `EventOrderError`, with its position and the rule, if it is not allowed."""
        self._place += 1
        self._event = event
        self._require(isinstance(event, UI_EVENTS), "it is not a UI event")
        self._require(not self._done, "nothing follows done")
        self._number(event.seq)
        if not isinstance(event, ui_events.Call):
            self._resumes = isinstance(event, ui_events.StepStart) and self._step == 0
        self._require(
            not self._run or (self._place == 1) == isinstance(event, ui_events.Start), "a run begins with one start"
        )
        self._require(not self._needs_warning or isinstance(event, ui_events.Warning), _NEEDS_WARNING)
        self._needs_warning = False
        self._require(self._run or event.type not in _OF_RUNS + _OF_TOOLS, "a parser reports nothing of runs and tools")
        if type(event) in _LIFE:
            self._read_life(event)
        elif isinstance(event, ui_events.Thinking):
            self._read_thinking(event)
        elif isinstance(event, ui_events.Error):
            self._read_error(event)
        else:
            self._read_run(event)

    def close(self) -> None:
        """Check that no event is missing at the end. Raises `EventOrderError` if a run or a call is still open."""
        self._event = None
        self._require(not self._needs_warning, _NEEDS_WARNING)
        if self._run:
            self._require(self._done, "a run ends with done")
        else:
            self._check_written("the text ends")

    # Events of the run and its steps.

    def _number(self, seq: int) -> None:
        if self._place == 1:
            self._require(not self._run or seq in (0, 1), "the numbers of a run begin with 1 or are all 0")
        else:
            follows = self._seq + (self._seq > 0)
            self._require(seq == follows, f"numbers rise by one, and {self._seq} was before")
        self._seq = seq

    def _read_run(self, event: UIEvent) -> None:
        match event:
            case ui_events.StepStart(step):
                self._require(not self._open, f"step {self._step} has not ended")
                self._require(not self._failed, "no step begins after the error that ends the run")
                numbered = f"steps are numbered from 1, and the last was {self._step}"
                self._require(step == self._step + 1, numbered)
                self._step += 1
                self._open, self._over, self._continues = True, False, False
            case ui_events.StepEnd(step):
                self._check_open()
                self._require(step == self._step, f"the step that ends is {self._step}")
                self._check_written("the step ends")
                for call_id, state in self._calls.items():
                    before = f"{call_id} {state}, and executions precede the end of their step"
                    self._require(state != _RUNNING, before)
                self._calls = dict.fromkeys(self._calls, _LEFT)
                self._open = False
            case ui_events.StepSuperseded(step):
                has_just_ended = step == self._step and not (self._open or self._continues or self._calls)
                rule = "the step that has just ended may be superseded if none of its calls is left"
                self._require(has_just_ended, rule)
            case ui_events.UsageReport():
                self._require(self._step > 0, "usage belongs to a step, and no step has begun")
                self._over = True
            case ui_events.FollowUp():
                is_between = self._step and not (self._open or self._continues or self._failed)
                self._require(is_between, "one follow-up may come between two steps")
                self._continues = True
            case ui_events.Done(reason, pending=pending):
                self._require(not self._open, f"step {self._step} has not ended")
                self._require(not self._waits, "the thinking has not ended")
                fails = "a run has an error without a call exactly if it fails"
                self._require(self._failed == (reason == "failed"), fails)
                rule = f"pending must be the calls that did not run: {', '.join(self._calls) or 'none'}"
                self._require(sorted(call.id for call in pending) == sorted(self._calls), rule)
                self._done = True
            case ui_events.Start() | ui_events.Warning() | ui_events.Raw():
                pass
            case _:
                self._check_answering()

    # Events of calls.

    def _read_thinking(self, event: ui_events.Thinking) -> None:
        call_id = event.call_id
        if call_id is None:
            self._require(event.active != self._waits, "thinking begins before it ends")
            self._waits = event.active
        elif event.active:
            self._check_answering()
            self._require(call_id not in self._ids, "the id of a call is unique")
            self._ids.add(call_id)
            self._calls[call_id] = _BEGUN
        else:
            state = self._state(call_id)
            rule = f"thinking ends when the written text is a call, an error or text, and {call_id} {state}"
            self._require(state in (_WHOLE, _BEGUN, _MALFORMED), rule)
            self._needs_warning = state == _BEGUN
            self._move(call_id, _COMPLETE if state == _WHOLE else _ENDED)

    def _read_life(self, event: Any) -> None:
        allowed, following, rule = _LIFE[type(event)]
        call_id = event.call.id if hasattr(event, "call") else event.call_id
        self._check_open()
        state = self._state(call_id)
        if isinstance(event, ui_events.Call) and self._resumes and call_id not in self._ids:
            self._ids.add(call_id)
            self._over = True  # this step has no answer of the model
            following = _COMPLETE
        else:
            self._require(state in allowed, f"{rule}, and {call_id} {state}")
        self._move(call_id, following)

    def _read_error(self, event: ui_events.Error) -> None:
        call_id, call = event.call_id, event.call
        if call_id is None:
            self._require(not self._failed, "a run fails once")
        else:
            self._check_open()
        self._require(call is None or call.id == call_id, "an error with a call has the id of the call")
        if call_id is None:
            self._failed = True
            return
        state = self._state(call_id)
        if call is None:
            rule = f"a call is malformed while it is being written, and {call_id} {state}"
            self._require(state in (_BEGUN, _NAMED), rule)
            self._move(call_id, _MALFORMED)
        else:
            rule = f"a complete call ends once, in its step, and {call_id} {state}"
            self._require(state in (_COMPLETE, _ASKED, _RUNNING), rule)
            self._move(call_id, _ENDED)

    def _state(self, call_id: str) -> str:
        return self._calls.get(call_id, _ENDED if call_id in self._ids else "has not begun")

    def _move(self, call_id: str, state: str) -> None:
        self._calls[call_id] = state
        if state == _ENDED:
            del self._calls[call_id]

    def _check_open(self) -> None:
        rule = "no step is open" if self._step else "it belongs into a step, and no step has begun"
        self._require(self._open, rule)

    def _check_answering(self) -> None:
        self._check_open()
        self._require(not (self._failed or self._over), "the answer is complete or has failed")

    def _check_written(self, what: str) -> None:
        for call_id, state in self._calls.items():
            self._require(state not in _WRITTEN, f"{what}, and {call_id} {state}")

    def _require(self, condition: object, rule: str) -> None:
        if not condition:
            raise EventOrderError(self._place, self._event, rule)
