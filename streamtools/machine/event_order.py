"""Checks the order of the UI events of a run. Sans-IO.

Encoders and interfaces rely on this order. For example, no piece of a call arrives before the call has begun, steps do
not nest, and no event follows the end of the run. A `thinking` event with a call id reports that the model starts or
stops writing this call. Without a call id, the event reports another wait, such as for the decision of an emulation.
The run has a small state machine, and each call has another. docs/events.md describes both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamtools import events as ui_events
from streamtools.errors import EventOrderError
from streamtools.events import UI_EVENTS, UIEvent

SEQS_PER_ATTEMPT = 10_000_000
"""If the continuation of a waiting run starts again after a crash, its `seq` values skip a multiple of this number. So
none of them is that of another event that a reader has already received."""

# The states of a call. Error messages use these words after the id of the call.
_BEGUN, _NAMED, _REPORTED, _MALFORMED, _COMPLETE, _ASKED, _RUNNING, _LEFT, _ENDED = (
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
_UNFINISHED = (_BEGUN, _NAMED, _REPORTED, _MALFORMED)  # the states before the last `thinking` event of the call

_Transition = tuple[tuple[str, ...], str, str]
"""The states of a call in which an event is allowed, the next state, and the rule that the event breaks in other
states."""

_TRANSITIONS: dict[type[Any], _Transition] = {
    ui_events.CallStart: ((_BEGUN,), _NAMED, "a call is named once, while it is being written"),
    ui_events.CallDelta: ((_NAMED,), _NAMED, "arguments come after the call-start and before the call"),
    ui_events.Call: ((_BEGUN, _NAMED), _REPORTED, "a call is reported once, after the thinking event that begins it"),
    ui_events.ApprovalRequested: ((_COMPLETE,), _ASKED, "only a complete call of this step waits for approval, once"),
    ui_events.Executing: ((_COMPLETE, _ASKED), _RUNNING, "only a complete call of this step is run, once"),
    ui_events.Progress: ((_RUNNING,), _RUNNING, "only a running tool makes progress"),
    ui_events.Executed: ((_RUNNING,), _ENDED, "only a running tool returns a result, once"),
}
_MALFORMED_CALL: _Transition = (_BEGUN, _NAMED), _MALFORMED, "a call is malformed while it is being written"
_FAILED_CALL: _Transition = (_COMPLETE, _ASKED, _RUNNING), _ENDED, "a complete call ends once, in its step"

# The `type` of each event of a run or step, and of each event of a tool.
_RUNS = ("start", "step-start", "step-end", "step-superseded", "usage", "follow-up", "done")
_TOOLS = ("approval-requested", "executing", "progress", "executed")
_NEEDS_WARNING = "if a call turned out to be text, a warning follows"


def validate(events: Iterable[UIEvent], *, run: bool = True) -> None:
    """Check that `events` is the whole sequence of events of one run. Raises `EventOrderError` otherwise.

    With `run=False`, `events` must be the whole sequence of events of a `Parser`, from its first `feed` to its `close`.
    """
    grammar = Grammar(run=run)
    for event in events:
        grammar.feed(event)
    grammar.close()


class Grammar:
    """Checks the events of a run one by one. With `run=False`, it checks the events of a `Parser`.

    In this grammar, `a b` is a sequence, and `a | b` a choice. `?` means at most once, `*` any number, and `+` at least
    one. `of-call` is any event of a call after its first. `life` describes each call separately, because the events of
    several calls may be mixed.

    ```grammar
    run         = start aside* (resumed rest)? (step rest)* done
    resumed     = step-start call:again+ (usage | of-call | aside)* step-end
    step        = step-start (content | of-call | aside)* (usage | of-call | aside)* step-end
    rest        = step-superseded? (usage | aside)* (follow-up (usage | aside)*)?
    content     = text | partial | reasoning | markup | matched | thinking:begins
    aside       = warning | raw

    failed-run  = start aside* error aside* done
                | start aside* (resumed rest | step rest) (step rest)* error (usage | aside)* done
                | start aside* (resumed rest)? (step rest)* failed-step (usage | aside)* done
                | start aside* step-start call:again+ (usage | of-call | aside)* error
                  (usage | of-call | aside)* step-end (usage | aside)* done
    failed-step = step-start (content | of-call | aside)* (usage | of-call | aside)* error
                  (usage | of-call | aside)* step-end

    life        = thinking:begins (call-start call-delta*)? (complete | malformed)
                | thinking:begins thinking:ends
                | call:again outcome
    complete    = call thinking:ends outcome
    outcome     = approval-requested? ((executing progress*)? error:call | executing progress* executed)?
    malformed   = error:malformed thinking:ends
    ```
    """

    def __init__(self, *, run: bool = True) -> None:
        self._run = run
        self._position = 0
        self._event: UIEvent | None = None
        self._seq = 0
        self._step = 0
        self._step_is_open = not run  # always True for a parser
        self._answer_is_over = False  # the usage of this step was reported, or the step has no answer
        self._has_follow_up = False  # a follow-up came after the last step, and only one may come
        self._is_thinking = False  # `thinking` without a call id has begun and not ended
        self._needs_warning = False  # a call turned out to be text, so the next event must be a warning
        self._may_resume = False  # step 1 is open and has only `call` events, perhaps for calls of an earlier run
        self._failed = False
        self._done = False
        self._calls: dict[str, str] = {}  # maps the id of each call that has not ended to its state
        self._ids: set[str] = set()  # the ids of all calls that have begun

    def feed(self, event: UIEvent) -> None:
        """Check the next event. Raises `EventOrderError`, with the position and the broken rule."""
        self._position += 1
        self._event = event
        self._require(isinstance(event, UI_EVENTS), "it is not a UI event")
        self._require(not self._done, "nothing follows done")
        self._check_seq(event.seq)
        if not isinstance(event, ui_events.Call):
            self._may_resume = isinstance(event, ui_events.StepStart) and self._step == 0
        self._require(
            not self._run or (self._position == 1) == isinstance(event, ui_events.Start), "a run begins with one start"
        )
        self._require(not self._needs_warning or isinstance(event, ui_events.Warning), _NEEDS_WARNING)
        self._needs_warning = False
        self._require(self._run or event.type not in _RUNS + _TOOLS, "a parser reports nothing of runs and tools")
        if type(event) in _TRANSITIONS:
            self._read_call_event(event)
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
            self._check_thinking_ended("the text ends")

    # Events of the run and its steps.

    def _check_seq(self, seq: int) -> None:
        if self._position == 1:
            self._require(not self._run or seq in (0, 1), "the seq values of a run begin with 1, or all are 0")
        else:
            follows = self._seq + (self._seq > 0)
            is_new_attempt = self._seq > 0 and seq > follows and not (seq - follows) % SEQS_PER_ATTEMPT
            self._require(seq == follows or is_new_attempt, f"the seq after {self._seq} is {follows}")
        self._seq = seq

    def _read_run(self, event: UIEvent) -> None:
        match event:
            case ui_events.StepStart(step):
                self._require(not self._step_is_open, f"step {self._step} has not ended")
                self._require(not self._failed, "no step begins after the error that ends the run")
                rule = f"steps are numbered from 1, and the last was {self._step}"
                self._require(step == self._step + 1, rule)
                self._step += 1
                self._step_is_open, self._answer_is_over, self._has_follow_up = True, False, False
            case ui_events.StepEnd(step):
                self._check_open()
                self._require(step == self._step, f"only the open step can end, and that is step {self._step}")
                self._check_thinking_ended("the step ends")
                for call_id, state in self._calls.items():
                    rule = f"{call_id} {state}, and executions precede the end of their step"
                    self._require(state != _RUNNING, rule)
                self._calls = dict.fromkeys(self._calls, _LEFT)
                self._step_is_open = False
            case ui_events.StepSuperseded(step):
                has_just_ended = step == self._step and not (self._step_is_open or self._has_follow_up or self._calls)
                rule = "the step that has just ended may be superseded if none of its calls is left"
                self._require(has_just_ended, rule)
            case ui_events.UsageReport():
                self._require(self._step > 0, "usage belongs to a step, and no step has begun")
                self._answer_is_over = True
            case ui_events.FollowUp():
                is_between = self._step and not (self._step_is_open or self._has_follow_up or self._failed)
                self._require(is_between, "one follow-up may come between two steps")
                self._has_follow_up = True
            case ui_events.Done(reason, pending=pending):
                self._require(not self._step_is_open, f"step {self._step} has not ended")
                self._require(not self._is_thinking, "the thinking has not ended")
                rule = "done has the reason failed if and only if an error without a call came before"
                self._require(self._failed == (reason == "failed"), rule)
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
            self._require(event.active != self._is_thinking, "thinking begins and ends in turn")
            self._is_thinking = event.active
        elif event.active:
            self._check_answering()
            self._require(call_id not in self._ids, "the id of a call is unique")
            self._ids.add(call_id)
            self._calls[call_id] = _BEGUN
        else:
            state = self._state(call_id)
            rule = f"thinking ends after the call or its error, or if the call is text after all, and {call_id} {state}"
            self._require(state in (_REPORTED, _BEGUN, _MALFORMED), rule)
            self._needs_warning = state == _BEGUN
            self._move(call_id, _COMPLETE if state == _REPORTED else _ENDED)

    def _read_call_event(self, event: Any) -> None:
        call_id = event.call.id if hasattr(event, "call") else event.call_id
        if isinstance(event, ui_events.Call) and self._may_resume and call_id not in self._ids:
            self._ids.add(call_id)
            self._answer_is_over = True  # the step has no answer of the model
            self._calls[call_id] = _COMPLETE
        else:
            self._advance(call_id, _TRANSITIONS[type(event)])

    def _read_error(self, event: ui_events.Error) -> None:
        call_id, call = event.call_id, event.call
        self._require(call is None or call.id == call_id, "an error with a call has the id of the call")
        if call_id is None:
            self._require(not self._failed, "a run fails once")
            self._failed = True
        else:
            self._advance(call_id, _MALFORMED_CALL if call is None else _FAILED_CALL)

    def _advance(self, call_id: str, transition: _Transition) -> None:
        allowed, following, rule = transition
        self._check_open()
        state = self._state(call_id)
        self._require(state in allowed, f"{rule}, and {call_id} {state}")
        self._move(call_id, following)

    def _state(self, call_id: str) -> str:
        return self._calls.get(call_id, _ENDED if call_id in self._ids else "has not begun")

    def _move(self, call_id: str, state: str) -> None:
        self._calls[call_id] = state
        if state == _ENDED:
            del self._calls[call_id]

    def _check_open(self) -> None:
        rule = "no step is open" if self._step else "it belongs in a step, and no step has begun"
        self._require(self._step_is_open, rule)

    def _check_answering(self) -> None:
        self._check_open()
        self._require(not (self._failed or self._answer_is_over), "the answer is complete or has failed")

    def _check_thinking_ended(self, now: str) -> None:
        for call_id, state in self._calls.items():
            self._require(state not in _UNFINISHED, f"{now}, and {call_id} {state}")

    def _require(self, condition: object, rule: str) -> None:
        if not condition:
            raise EventOrderError(self._position, self._event, rule)
