"""`LoggedRun`: the state of a run, derived from the events in its log.

If the process of a run crashes, another process can continue the run from its log. The last step of the run is *open*
if the log has its start but not its end. The model was then still writing, or the calls of the step were running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.events import (
    ApprovalRequested,
    Call,
    Error,
    Executed,
    Executing,
    FollowUp,
    NativeToolCall,
    Partial,
    Raw,
    Reasoning,
    ReasoningDelta,
    SourceEvent,
    SourceRaw,
    StepEnd,
    StepStart,
    StepSuperseded,
    Text,
    TextDelta,
    Thinking,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
)

_NOT_OUTCOMES = (Code.SUPERSEDED, Code.TOOL_CHOICE_VIOLATION, Code.UNRECOGNISED_TOOL_CALL)
"""Codes of errors that reject a complete call. An error with another code is the outcome of the call."""


class LoggedStep:
    """The state of one step, derived from its logged events. Dictionaries have call ids as keys."""

    def __init__(self) -> None:
        self.calls: dict[str, ToolCall] = {}
        """The calls from `call` events, without the calls that an error rejected."""
        self.asked: dict[str, ApprovalRequested] = {}
        """The approval requests for calls."""
        self.started: set[str] = set()
        """The ids of the calls whose tools have started."""
        self.outcomes: dict[str, Executed | Error] = {}
        """The `executed` or `error` event of each call that has an outcome."""
        self.partials = 0
        """The number of `partial` events of the typed answer."""
        self._events: list[UIEvent] = []
        self._writing: dict[str | None, bool] = {}  # calls with active `thinking`; True if the call or error is logged
        self._is_near_miss = False  # True if the last event ended a near miss, and its warning is not logged
        self.is_answered = False
        """True if the turn of the model is complete or has failed. No model continues it."""

    def add(self, event: UIEvent) -> None:
        """Add the next event of the step."""
        self._events.append(event)
        self._is_near_miss = False
        match event:
            case Thinking(True, id):
                self._writing[id] = id is None
            case Thinking(False, id):
                self._is_near_miss = not self._writing.pop(id, True)
            case Call(call):
                self.calls[call.id] = call
                self._writing[call.id] = True
            case ApprovalRequested(call):
                self.asked[call.id] = event
            case Executing(call):
                self.started.add(call.id)
            case Executed(call):
                self.outcomes[call.id] = event
            case Error(code, call=ToolCall(id=id)) if code in _NOT_OUTCOMES:
                self.calls.pop(id, None)
            case Error(call=ToolCall(id=id)):
                self.outcomes[id] = event
            case Error(call_id=str(id)):
                self._writing[id] = True
            case Error():  # the run has failed
                self.is_answered = True
            case Partial(call_id=None):
                self.partials += 1
        if self.asked or self.started or self.outcomes or isinstance(event, UsageReport):
            self.is_answered = True

    def source_events(self) -> Iterator[SourceEvent]:
        """Yield source events for the logged text, reasoning, calls in `calls`, and `raw` events with a format."""
        for event in self._events:
            match event:
                case Text(text):
                    yield TextDelta(text)
                case Reasoning(text, _, signature, id, redacted, own):
                    yield ReasoningDelta(text, signature, id, redacted, own)
                case Call(call) if call.id in self.calls and call.dialect == NATIVE:
                    yield NativeToolCall(call.name, call.arguments, call.id, call.id)
                case Call(call) if call.id in self.calls:
                    yield TextDelta(call.raw)
                case Raw(data, _, str(format), about):
                    yield SourceRaw(data, format, about)

    def close_calls(self, code: Code, message: str) -> list[UIEvent]:
        """Return the events that end the calls with active `thinking`. A missing near-miss warning comes first.

        An error with `code` and `message` ends each of these calls that has no logged `call` or `error` event.
        """
        events: list[UIEvent] = []
        if self._is_near_miss:
            events.append(Warning(Code.NEAR_MISS, "text that looked like a call was not one"))
        for id, is_reported in self._writing.items():
            events += [] if is_reported else [Error(code, message, call_id=id)]
            events.append(Thinking(False, id))
        return events


class LoggedRun:
    """The state of a run after the logged `events`."""

    def __init__(self, events: Iterable[UIEvent]) -> None:
        self.events: list[UIEvent] = []
        self.seq = 0
        """The `seq` of the last event."""
        self.steps = 0
        """The number of the last step that has started."""
        self.open: LoggedStep | None = None
        """The open step."""
        self.finish_reason: str | None = None
        """The finish reason of the last step that has ended."""
        self.has_failed = False
        """True if the run has reported the failure that ends it."""
        self.awaits_answer = True
        """True if the run needs another answer of a model, and the step of this answer has not started."""
        self.output_fault = ""
        """Why the text of the last step is not a valid value of the requested type; empty if no warning says so."""
        self.pending: list[ToolCall] = []
        """The calls of ended steps that have no outcome."""
        self.earlier_calls: list[ToolCall] = []
        """The complete calls of the steps that have ended."""
        self.usage: Usage | None = None
        """The token usage of all turns."""
        self.call_ids: set[str] = set()
        """The ids of all calls, including incomplete calls."""
        for event in events:
            self.add(event)

    @classmethod
    def of_decided(cls, events: Sequence[UIEvent], copied: int, calls: Iterable[ToolCall]) -> LoggedRun:
        """Return the state of a run that continues a waiting run after decisions about its `calls`.

        The log begins with events of the waiting run. `copied` is the `seq` of the last of these events. From these
        events, the state contains only `calls`. The history of the run contains the rest.
        """
        before = cls(event for event in events if event.seq <= copied)
        logged = cls([StepStart(before.steps, seq=before.seq)])
        for call in calls:
            logged.add(Call(call, seq=before.seq))
            logged.add(Thinking(False, call.id, seq=before.seq))
        if logged.open is not None:
            logged.open.is_answered = True
        for event in events[len(before.events) :]:
            logged.add(event)
        return logged

    def add(self, event: UIEvent) -> None:
        """Add the next event of the run."""
        self.events.append(event)
        self.seq = event.seq
        if self.open is not None:
            self.open.add(event)
        match event:
            case StepStart(step):
                self.steps, self.open, self.awaits_answer, self.output_fault = step, LoggedStep(), False, ""
            case Warning(Code.INVALID_OUTPUT, message):
                self.output_fault = message
            case StepEnd(_, finish_reason):
                calls, outcomes = (self.open.calls, self.open.outcomes) if self.open is not None else ({}, {})
                self.earlier_calls += calls.values()
                self.pending += [call for call in calls.values() if call.id not in outcomes]
                self.open, self.finish_reason = None, finish_reason
            case FollowUp() | StepSuperseded():
                self.awaits_answer = True
            case Error(call_id=None, call=None):
                self.has_failed = True
            case Thinking(_, str(id)):
                self.call_ids.add(id)
            case UsageReport(usage):
                self.usage = usage if self.usage is None else self.usage + usage
