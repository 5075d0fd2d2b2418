"""Derives, from the events in the log, the last events of a run whose process has crashed.

The derived events report only known facts. A call that the model was still writing ends as truncated. A call that has
not started is pending. A call that may have started ends with the outcome in the ledger, or with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from streamtools import events
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.stream.collector import Collector
from streamtools.stream.stored_result import StoredEnd
from streamtools.tools import CallLedger, ToolOutcome
from streamtools.tools.ledger import call_key

FindOutcome: TypeAlias = Callable[[ToolCall], "ToolOutcome | bool | None"]
"""Looks up a call in the ledger.

Returns the outcome of the call, True if the call has started but has no outcome, False if it has not started, and None
without a ledger.
"""

_PROCESS_ENDED = "the process of the run ended"


class LostRun:
    """A run whose process has crashed. `logged` are all events in its log.

    The events with a `seq` up to `copied` were copied from the waiting run that this run continues.
    """

    def __init__(self, logged: Sequence[events.UIEvent], copied: int = 0) -> None:
        steps = [event for event in logged if type(event) is events.StepStart and event.seq > copied]
        self.is_untouched = not steps or steps[0] is logged[-1]
        """Whether the model has answered nothing in this run."""
        # `_thinking`: whether the model is being asked which calls are needed (emulation). `_was_near_miss`: whether
        # the last event says that text which looked like a call was not one. The warning about it is then missing.
        self._has_events = self._failed = self._thinking = self._was_near_miss = False
        self._step: int | None = None  # the number of the open step
        self._writing: dict[str, bool] = {}  # unfinished calls; True if the call or its error is logged
        self._approval_requested: set[str] = set()
        self._running: set[str] = set()  # the ids of calls whose execution has started
        self._calls: dict[str, events.Call] = {}  # by id: the calls of the current step that have no result
        self._earlier_calls: list[events.Call] = []  # calls of earlier steps that have no result
        for event in logged:
            self._feed(event)

    def _feed(self, event: events.UIEvent) -> None:
        self._has_events = True
        self._was_near_miss = False
        match event:
            case events.StepStart(step):
                self._step = step
            case events.StepEnd():
                self._step = None
                self._earlier_calls += self._calls.values()
                self._calls.clear()
            case events.Thinking(active, None):
                self._thinking = active
            case events.Thinking(active, str(id)):
                if active:
                    self._writing[id] = False
                else:
                    self._was_near_miss = not self._writing.pop(id, True)
            case events.Call(call):
                self._calls[call.id] = event
                if call.id in self._writing:
                    self._writing[call.id] = True
            case events.ApprovalRequested(call):
                self._approval_requested.add(call.id)
            case events.Executing(call):
                self._running.add(call.id)
            case events.Executed(call):
                self._calls.pop(call.id, None)
            case events.Error(call_id=None):
                self._failed = True
            case events.Error(call_id=str(id), call=call):
                self._calls.pop(id, None)
                if call is None:
                    self._writing[id] = True

    def close(self, run_id: str, find_outcome: FindOutcome) -> list[events.UIEvent]:
        """Return the events that end the run. They have no seqs and end with `done`."""
        end: list[events.UIEvent] = [] if self._has_events else [events.Start(run_id)]
        if self._was_near_miss:
            end.append(events.Warning(Code.NEAR_MISS, "text that looked like a call was not one"))
        for id, is_logged in self._writing.items():
            if not is_logged:
                end.append(events.Error(Code.TRUNCATED, _PROCESS_ENDED + " while the call was written", call_id=id))
            end.append(events.Thinking(False, id))
        if self._thinking:
            end.append(events.Thinking(False))
        for id in list(self._calls):
            end += self._end_call(id, find_outcome(self._calls[id].call))
        if not self._failed:
            end.append(events.Error(Code.STREAM_INTERRUPTED, _PROCESS_ENDED))
        if self._step is not None:
            end.append(events.StepEnd(self._step, None))
        pending = [event.call for event in (*self._earlier_calls, *self._calls.values())]
        return [*end, events.Done("failed", None, None, pending)]

    def _end_call(self, id: str, outcome: ToolOutcome | bool | None) -> list[events.UIEvent]:
        """Return the last events of a call. A call that becomes pending has none, and stays in `_calls`."""
        call = self._calls[id].call
        if isinstance(outcome, ToolOutcome):
            del self._calls[id]
            start: list[events.UIEvent] = [] if id in self._running else [events.Executing(call)]
            return [*start, outcome.event(0)]
        if outcome is False or (outcome is None and id in self._approval_requested - self._running):
            if id not in self._running:
                return []
            del self._calls[id]
            text = f"{_PROCESS_ENDED} before the tool started"
            return [events.Error(Code.TOOL_CANCELLED, text, call_id=id, call=call)]
        del self._calls[id]
        text = f"{_PROCESS_ENDED}, and the effect of the tool is unknown"
        return [events.Error(Code.OUTCOME_UNKNOWN, text, call_id=id, call=call)]


async def outcomes_of(ledger: CallLedger, scope: str) -> dict[str, ToolOutcome | bool]:
    """Map the key of each recorded call to its outcome, or to True if it has started but has no outcome."""
    found: dict[str, ToolOutcome | bool] = {}
    page = await ledger.entries(scope)
    while page:
        found |= {call_key(entry.call): entry.outcome or True for entry in page}
        page = await ledger.entries(scope, after=page[-1])
    return found


def end_lost_run(
    logged: Sequence[events.UIEvent], run_id: str, outcomes: Mapping[str, ToolOutcome | bool] | None
) -> tuple[list[events.UIEvent], StoredEnd]:
    """Return all events of a run whose process has crashed, up to `done`, and the end of the run.

    `outcomes` are the recorded calls, as `outcomes_of` returns them; None without a ledger.
    """

    def find_outcome(call: ToolCall) -> ToolOutcome | bool | None:
        # A call that a ledger does not contain has not started.
        return None if outcomes is None else outcomes.get(call_key(call), False)

    closing, last = LostRun(logged).close(run_id, find_outcome), logged[-1].seq if logged else 0
    whole = [*logged, *(replace(event, seq=last + number) for number, event in enumerate(closing, 1))]
    collector = Collector(())
    collector.take(whole)
    return whole, StoredEnd(collector.read(), None, [], {})
