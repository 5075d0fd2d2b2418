"""Derives, from the events in the log, the last events of a run whose process has crashed.

The derived events report only known facts. A call that the model was still writing ends as truncated. A call that has
not started is pending. A call that may have started ends with the outcome in the ledger, or with an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from streamtools import events
from streamtools.errors import Code
from streamtools.stream.collector import Collector
from streamtools.stream.result import TurnResult
from streamtools.tools import CallLedger, ToolOutcome
from streamtools.tools.ledger import call_key

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
        # the last event ended a call without a `call` or an error. That text was a near miss, and its warning is
        # missing.
        self._failed = self._thinking = self._was_near_miss = False
        self._step: int | None = None  # the number of the open step
        self._writing: dict[str, bool] = {}  # unfinished calls; True if the call or its error is logged
        self._approval_requested: set[str] = set()
        self._running: set[str] = set()  # the ids of calls whose execution has started
        self._calls: dict[str, events.Call] = {}  # by id: the calls of the current step that have no result
        self._earlier_calls: list[events.Call] = []  # calls of earlier steps that have no result
        self._logged = logged
        for event in logged:
            self._feed(event)

    def _feed(self, event: events.UIEvent) -> None:
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

    def end(
        self, run_id: str, outcomes: Mapping[str, ToolOutcome | bool] | None, *, was_stopped: bool = False
    ) -> tuple[list[events.UIEvent], TurnResult]:
        """Return the events that end the run, up to `done`, and its result.

        `outcomes` are the recorded calls, as `outcomes_of` returns them; None without a ledger. The run ends as
        cancelled if it `was_stopped`, and as failed otherwise.
        """
        end: list[events.UIEvent] = [] if self._logged else [events.Start(run_id)]
        if self._was_near_miss:
            end.append(events.Warning(Code.NEAR_MISS, "text that looked like a call was not one"))
        for id, is_logged in self._writing.items():
            if not is_logged:
                end.append(events.Error(Code.TRUNCATED, _PROCESS_ENDED + " while the call was written", call_id=id))
            end.append(events.Thinking(False, id))
        if self._thinking:
            end.append(events.Thinking(False))
        for id in list(self._calls):
            # A call that a ledger does not contain has not started.
            outcome = None if outcomes is None else outcomes.get(call_key(self._calls[id].call), False)
            end += self._end_call(id, outcome)
        if not (was_stopped or self._failed):
            end.append(events.Error(Code.STREAM_INTERRUPTED, _PROCESS_ENDED))
        if self._step is not None:
            end.append(events.StepEnd(self._step, None))
        pending = [event.call for event in (*self._earlier_calls, *self._calls.values())]
        end.append(events.Done("cancelled" if was_stopped else "failed", None, None, pending))
        last = self._logged[-1].seq if self._logged else 0
        numbered = [replace(event, seq=seq) for seq, event in enumerate(end, last + 1)]
        collector = Collector(())
        collector.take([*self._logged, *numbered])
        return numbered, collector.read()

    def _end_call(self, id: str, outcome: ToolOutcome | bool | None) -> list[events.UIEvent]:
        """Return the last events of a call. A call that becomes pending has none, and stays in `_calls`."""
        is_running = id in self._running
        if not is_running and (outcome is False or (outcome is None and id in self._approval_requested)):
            return []
        call = self._calls.pop(id).call
        if isinstance(outcome, ToolOutcome):
            return [*([] if is_running else [events.Executing(call)]), outcome.event(0)]
        code, text = Code.OUTCOME_UNKNOWN, f"{_PROCESS_ENDED}, and the effect of the tool is unknown"
        if outcome is False:
            code, text = Code.TOOL_CANCELLED, f"{_PROCESS_ENDED} before the tool started"
        return [events.Error(code, text, call_id=id, call=call)]


async def outcomes_of(ledger: CallLedger, scope: str) -> dict[str, ToolOutcome | bool]:
    """Map the key of each recorded call to its outcome, or to True if it has started but has no outcome."""
    found: dict[str, ToolOutcome | bool] = {}
    page = await ledger.entries(scope)
    while page:
        found |= {call_key(entry.call): entry.outcome or True for entry in page}
        page = await ledger.entries(scope, after=page[-1])
    return found
