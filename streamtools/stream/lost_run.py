"""Defines `LostRun`, a run whose process has crashed, and ends lost runs that no other process continues.

The last events of a lost run report only known facts. A call that the model was still writing ends as truncated. A call
that has not started is pending. A call that may have started ends with the outcome in the ledger, or with an unknown
outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import Call, CallStart, Error, Executed, Executing, SourceError, StepStart, Thinking, UIEvent
from streamtools.machine.event_order import SEQS_PER_ATTEMPT
from streamtools.machine.logged_run import LoggedRun
from streamtools.machine.state_machine import StreamMachine
from streamtools.stream.collector import Collector
from streamtools.stream.result import TurnResult
from streamtools.tools.approvals import Decision
from streamtools.tools.ledger import Entry, call_key

if TYPE_CHECKING:  # few runs have a vault
    from streamtools.rules.vault import Vault

PROCESS_ENDED = "the process of the run ended"


@dataclass(frozen=True)
class LostRun:
    """A run whose process has crashed. `chat(…, continue_from=lost)` continues it.

    `attempt` is the number of its processes that have crashed. `events` are the events in its log. If the run continues
    a waiting run, the events up to the seq `copied` are copies of the waiting run's events. `recorded` maps the key of
    each call of the run to its entry in the ledger. `decisions` maps call ids to decisions. `vault` is the
    vault of the run, whose values the chat loads; None if the run has no vault. `restarts` is how often a process has
    started this run before, if the events of these attempts were lost. The other attributes are those of the `Run`.
    """

    id: str
    owner: str
    conversation: str | None
    note: Any
    attempt: int
    events: list[UIEvent]
    recorded: Mapping[str, Entry] = field(default_factory=dict, repr=False)
    decisions: Mapping[str, Decision] = field(default_factory=dict, repr=False)
    copied: int = 0
    vault: Vault | None = None
    restarts: int = 0

    @property
    def skip(self) -> int:
        """How many values of `seq` are skipped before the first new event."""
        return self.restarts * SEQS_PER_ATTEMPT

    @property
    def last(self) -> int:
        """The `seq` of the last event; 0 if there is none."""
        return self.events[-1].seq if self.events else 0


def unknown_calls(events: Sequence[UIEvent], recorded: Mapping[str, Entry] | None) -> list[ToolCall]:
    """Return the calls that a lost run may have started, and whose outcome is unknown.

    `events` are the events in its log. `recorded` are its calls in the ledger, or None without a ledger.
    """
    if recorded is None:
        started = [event.call for event in events if isinstance(event, Executing)]
    else:
        started = [entry.call for entry in recorded.values() if entry.outcome is None]
    ended = {event.call.id for event in events if isinstance(event, Executed | Error) and event.call is not None}
    return [call for call in started if call.id not in ended]


def is_ending(events: Iterable[UIEvent]) -> bool:
    """Return whether the run has failed, or was stopped during an answer, so that only its end is missing."""
    logged = LoggedRun(events)
    return logged.has_failed or (logged.finish_reason is None and logged.open is None and not logged.awaits_answer)


def missing_events(logged_events: Sequence[UIEvent], calls: Iterable[ToolCall]) -> list[UIEvent]:
    """Return the events that a crashed process has not written about started calls.

    `calls` are the calls in the ledger.
    """
    logged, events = LoggedRun(logged_events), list[UIEvent]()
    step = logged.open
    for call in calls:
        if call.id in logged.call_ids:
            if step is not None and call.id in step.calls and call.id not in step.started | step.outcomes.keys():
                events.append(Executing(call))
            continue
        if step is None and not events:
            events.append(StepStart(logged.steps + 1))
        events += [Thinking(True, call.id), CallStart(call.id, call.name), Call(call), Thinking(False, call.id)]
        events.append(Executing(call))
    return events


def end_lost_run(
    run_id: str, events: Sequence[UIEvent], recorded: Mapping[str, Entry] | None, fault: str | None = PROCESS_ENDED
) -> tuple[list[UIEvent], TurnResult]:
    """Return the events that end the run, up to `done`, and its result.

    `events` are the events in its log. `recorded` are its calls in the ledger, as `entries_of` returns them, or None
    without a ledger. The run fails with the message `fault`. If `fault` is None, the run was stopped, and ends as
    cancelled.
    """
    logged, machine, collector = LoggedRun(events), StreamMachine(run_id=run_id), Collector(())
    step = logged.open
    if step is not None and step.calls:
        step.is_answered = True
    collector.restore(logged, recorded or {})
    closing = machine.restore(logged, Code.TRUNCATED, f"{PROCESS_ENDED} while the call was written")
    for call in machine.take_runnable():
        assert step is not None  # it has the call
        is_started = call.id in step.started
        end: list[UIEvent] = []
        if is_started or not logged.has_failed:
            end = _end_of_call(call, recorded, is_started=is_started, is_asked=call.id in step.asked)
        if not end:
            machine.leave_pending([call])
        closing += machine.number_all(end)
    if fault is None:
        machine.expect_answer()  # otherwise, a run that was stopped after a step would count as finished
        closing += machine.cancel()
    else:
        closing += machine.feed(SourceError(fault, Code.STREAM_INTERRUPTED)) + machine.close()
    collector.take(closing)
    return closing, collector.read()


def _end_of_call(
    call: ToolCall, recorded: Mapping[str, Entry] | None, *, is_started: bool, is_asked: bool
) -> list[UIEvent]:
    """Return the last events of a call. A call that becomes pending has none."""
    entry = None if recorded is None else recorded.get(call_key(call))
    if entry is not None and entry.outcome is not None:
        return [*([] if is_started else [Executing(call)]), entry.outcome.event(0)]
    # A call that a ledger does not contain has not started. Without a ledger, only an approval request proves this.
    if (recorded is not None or (is_asked and not is_started)) and entry is None:
        if not is_started:
            return []
        return [Error(Code.TOOL_CANCELLED, f"{PROCESS_ENDED} before the tool started", call_id=call.id, call=call)]
    text = f"{PROCESS_ENDED}, and the effect of the tool is unknown"
    return [Error(Code.OUTCOME_UNKNOWN, text, call_id=call.id, call=call)]
