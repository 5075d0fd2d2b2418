"""Runs the calls of each step and records their outcomes.

With `execute="eager"`, a call runs in a background task while the model still writes. Otherwise the calls run after
the turn is complete, and the next source event is read after they have ended. A step ends when all its calls have
ended. It has one outcome for each call that has started, in call order.

A call that does not start is pending. Either a limit of the run was reached, a tool has ended the run, or the call
waits for a decision.

`StepRunner` passes events to `send` or returns them. It has no reference to the stream, to avoid a reference cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools import observing
from streamtools.calls import ToolCall
from streamtools.events import UIEvent
from streamtools.machine.logged_run import LoggedStep
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralizing import restore
from streamtools.tools import CallLedger, ToolOutcome
from streamtools.tools.approvals import Approvals, Decision, Question, Resumption, Suspension
from streamtools.tools.guards import GuardTracker
from streamtools.tools.runner import Runner, Send


@dataclass(eq=False, repr=False)
class StepRunner:
    """Runs the runnable calls of a machine within the limits of `guards`.

    With `executes=False`, the stream runs no calls, and the guards do not count failed turns. `resumed` holds the
    pending calls of an earlier run. `make_runner` creates the `Runner` when the first calls run, because most runs have
    no calls. `record` is called with the outcomes of each step. The history may contain markers of `dialects` that
    were made harmless (neutralized).
    """

    machine: StreamMachine
    """The machine that finds the calls. `StreamRun` feeds it."""
    dialects: Sequence[Dialect]
    executes: bool
    guards: GuardTracker
    approvals: Approvals
    resumed: Resumption | None
    make_runner: Callable[..., Runner]
    record: Callable[[list[ToolOutcome]], object]
    ledger: CallLedger | None
    restore_values: Callable[[ToolCall], ToolCall]
    """Restores the values of a vault in the arguments of a call."""
    running: list[ToolCall] = field(default_factory=list, init=False)
    """The calls of the current step that were passed to the runner."""
    _runner: Runner | None = field(default=None, init=False)
    _restored: LoggedStep = field(default_factory=LoggedStep, init=False)
    """The step of a lost process that this run continues."""
    _outcomes: dict[str, ToolOutcome] = field(default_factory=dict, init=False)
    """The outcomes of the current step, by call id."""
    _last_outcomes: list[ToolOutcome] = field(default_factory=list, init=False)
    """The outcomes of the last step that has ended."""
    _background_tasks: int = field(default=0, init=False)
    """The number of background tasks, each of which runs one batch of calls."""
    _all_ended: anyio.Event | None = field(default=None, init=False)
    """Set when the last background task ends. None before `end`."""

    @property
    def runner(self) -> Runner:
        """The runner for the calls of all steps. The first access creates it."""
        # The runner refers to this object. Creating it late avoids a reference cycle in a run without calls.
        if self._runner is None:
            self._runner = self.make_runner(
                number=self.machine.number,
                approvals=self.approvals,
                trusted=self._trusts,
                scope=self._run_id_of,
                ledger=self.ledger,
                started=self._restored.started,
            )
        return self._runner

    def restore(self, step: LoggedStep, outcomes: Sequence[ToolOutcome], decisions: Mapping[str, Decision]) -> None:
        """Continue a step of a lost process. `outcomes` are the outcomes of its calls that have ended."""
        self._restored = step
        self.running = [outcome.call for outcome in outcomes]
        self._outcomes = {outcome.call.id: outcome for outcome in outcomes}
        questions = [
            Question(call=event.call, digest=event.digest, approval=True, expires=event.expires)
            for event in step.asked.values()
        ]
        self.approvals.restore(questions, step.started, decisions)

    async def run_calls(self, group: TaskGroup, send: Send) -> list[UIEvent]:
        """Run the calls that are runnable now. Return the last events of the step; [] if the step continues.

        While the turn continues, the calls run in a task of `group`, and `run_calls` returns immediately. After the
        turn, it waits until all calls have ended.
        """
        machine, runner = self.machine, self._runner or self.runner
        calls = machine.take_runnable()
        admitted = self.guards.admit(calls, machine.tokens_used)
        if admitted < len(calls):
            machine.leave_pending(calls[admitted:])
            calls = calls[:admitted]
        self.running += calls
        # The history contains neutralized text, and the model may have copied it into its arguments. Restore it.
        calls = [replace(call, arguments=restore(call.arguments, dialects=self.dialects)) for call in calls]
        calls = [*map(self.restore_values, calls)]
        if not machine.awaits_outcomes:
            self._background_tasks += 1
            group.start_soon(self._run_in_background, runner, calls, send)
            return []
        self._report_answer_end()
        self._store_outcomes(runner, calls, await runner.run(calls, send))
        return await self.end() if self._background_tasks else self.end_calls() + self.end_step()

    async def end(self) -> list[UIEvent]:
        """Wait for the calls in background tasks, and end the step. Return its last events."""
        if self._background_tasks:
            self._report_answer_end()
            self._all_ended = anyio.Event()
            await self._all_ended.wait()
        return self.end_calls() + self.end_step()

    def end_calls(self) -> list[UIEvent]:
        """Record the outcomes of the step, in call order. Does not wait for calls.

        A call that waits for a decision becomes pending. Any other call that has not ended gets a cancelled outcome.
        Returns the final events that were not sent.
        """
        if self._runner is None:
            return []
        known, waiting = self._outcomes, self.approvals.suspended
        if waiting:
            self._make_pending([call for call in self.running if call.id in waiting])
        unsent: list[UIEvent] = []
        if len(known) < len(self.running):
            outcomes, unsent = self._runner.close_calls([call for call in self.running if call.id not in known])
            known.update((outcome.call.id, outcome) for outcome in outcomes)
        self._last_outcomes = [known[call.id] for call in self.running]
        self.record(self._last_outcomes)
        self.running, self._outcomes = [], {}
        return unsent

    def end_step(self) -> list[UIEvent]:
        """End the step after its calls have ended, and check the limits of the run. Return its last events."""
        events = self.machine.end_step()
        self.check_limits()
        return events

    def check_limits(self) -> None:
        """If a step has ended, update the counts of the guards. End the run if a limit is reached.

        Call this before the next source event.
        """
        ended, self.machine.ended_step = self.machine.ended_step, None
        if ended is None:
            return
        if self.executes:
            self.guards.end_turn(self._last_outcomes, ended.malformed)
            self._last_outcomes = []
        if ended.continues:
            self.guards.check_tokens(self.machine.tokens_used)
        if self.guards.why is not None:
            self.machine.end_run(self.guards.why)

    def suspend(self, pending: Sequence[ToolCall]) -> Suspension | None:
        """Return the suspension of a run with these pending calls. Returns None if no call waits for a decision."""
        questions = {**self.approvals.asked, **self.approvals.suspended}
        found = [questions[call.id] for call in pending if call.id in questions]
        return Suspension(run_id=self._run_id_of(found[0].call), questions=found) if found else None

    def _run_id_of(self, call: ToolCall) -> str:
        """Return the id of the run in which the model made the call: the earlier run, or this one."""
        if self.resumed is not None and call.id in self.resumed.questions:
            return self.resumed.suspension.run_id
        return self.machine.run_id

    def _trusts(self, call: ToolCall) -> bool:
        """Return True if only the model can have written the call.

        Only the model can write native calls, and calls in a dialect with a nonce (a secret in its markers). Someone
        else may have written a salvaged call, which was found in text that the provider could not read.
        """
        has_nonce = any(dialect.has_nonce for dialect in self.dialects if dialect.id == call.dialect)
        return (call.is_native or has_nonce) and call.id not in self.machine.salvaged

    def _report_answer_end(self) -> None:
        if (observed := observing.observed_run()) is not None:
            observed.answer_completed()

    async def _run_in_background(self, runner: Runner, calls: list[ToolCall], send: Send) -> None:
        self._store_outcomes(runner, calls, await runner.run(calls, send))
        self._background_tasks -= 1
        if self._all_ended is not None and not self._background_tasks:
            self._all_ended.set()

    def _store_outcomes(self, runner: Runner, calls: list[ToolCall], outcomes: Sequence[ToolOutcome]) -> None:
        """Store the outcomes of `calls`. A call without an outcome has not started and becomes pending."""
        for outcome in outcomes:
            self._outcomes[outcome.call.id] = outcome
        if runner.stopped:
            self.guards.trip("tool_stop")
        if len(outcomes) < len(calls):
            self._make_pending([call for call in calls if call.id not in self._outcomes])

    def _make_pending(self, calls: list[ToolCall]) -> None:
        """Make these calls pending, and remove them from the step."""
        self.machine.leave_pending(calls, {id: each.approval for id, each in self.approvals.suspended.items()})
        pending = {call.id for call in calls}
        for call_id in pending:
            self._outcomes.pop(call_id, None)
        self.running = [call for call in self.running if call.id not in pending]
