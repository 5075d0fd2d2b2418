"""Runs the calls of a step, from the moment they may run to their outcomes.

Calls that may run while the model still writes run beside the stream. The calls of a complete turn run before anything
else is read. The step ends when all of them have ended, with one outcome for each call that has started, in call order.
A call that does not start is pending: because of a limit of the run, because a tool has ended the run, or because it
waits for a decision.

Nothing here refers to the stream, so there is no reference cycle: events are sent or returned to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools import observing
from streamtools.calls import ToolCall
from streamtools.events import UIEvent
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralising import restore
from streamtools.tools import ToolOutcome
from streamtools.tools.approvals import Approvals, Resumption, Suspension
from streamtools.tools.guards import GuardTracker
from streamtools.tools.runner import Runner, Send

_id_of = attrgetter("id")


class StepRunner:
    """Runs the calls that a machine makes runnable, within the limits of `guards`, and records outcomes step by step.

    If the stream `executes` no calls, no turn counts as failed. `resumed` is what an earlier run left. `make_runner` is
    called for the first calls, with the remaining options of a `Runner`: most runs have no calls. `record` gets the
    outcomes of each step.
    """

    def __init__(
        self,
        machine: StreamMachine,
        dialects: Sequence[Dialect],
        *,
        executes: bool,
        guards: GuardTracker,
        approvals: Approvals,
        resumed: Resumption | None,
        make_runner: Callable[..., Runner],
        record: Callable[[list[ToolOutcome]], object],
    ) -> None:
        self.running: list[ToolCall] = []
        """Calls of this step that were passed to the runner."""
        self.trace = ""
        """The `traceparent` of the run, for a run that resumes it."""
        self.machine = machine
        """The machine. The stream feeds it."""
        self.executes = executes
        self.guards = guards
        self._counts_tokens = guards.guards.tokens is not None
        self._approvals = approvals
        self._resumed = resumed
        self.dialects = dialects
        self._trusted = [dialect.id for dialect in dialects if dialect.has_nonce]
        self._make_runner = make_runner
        self._record = record
        self._runner: Runner | None = None
        self._outcomes: dict[str, ToolOutcome] = {}  # of the calls that have ended
        self._last_outcomes: list[ToolOutcome] = []  # of the step that has ended
        self._running_beside = 0  # batches of calls that run beside the stream
        self._all_ended: anyio.Event | None = None

    @property
    def runner(self) -> Runner:
        """Runs the calls of all steps."""
        if self._runner is None:  # made late: it refers to this object, and a run without calls then has no cycle
            self._runner = self._make_runner(
                number=self.machine.number,
                approvals=self._approvals,
                trusted=self._trusts,
                scope=self._run_id_of,
            )
        return self._runner

    async def run_calls(self, beside: TaskGroup, send: Send) -> list[UIEvent]:
        """Run the calls that may run. Return the last events of the step if it ends.

        While the turn continues, the calls run in the group `beside` the stream. After the turn, this waits for them.
        """
        machine, runner = self.machine, self._runner or self.runner
        calls = machine.take_runnable()
        admitted = self.guards.admit(calls, machine.tokens_used if self._counts_tokens else None)
        if admitted < len(calls):
            machine.leave_pending(calls[admitted:])
            calls = calls[:admitted]
        self.running += calls
        # The model may have repeated neutralized text in its arguments.
        calls = [replace(call, arguments=restore(call.arguments, dialects=self.dialects)) for call in calls]
        if not machine.awaits_outcomes:
            self._running_beside += 1
            beside.start_soon(self._run_beside, runner, calls, send)
            return []
        self._report_answered()
        self._keep(runner, calls, await runner.run(calls, send))
        return await self.end() if self._running_beside else self.end_calls() + self.settle()

    async def end(self) -> list[UIEvent]:
        """Wait for the calls that run beside the stream, and end the step. Return its last events."""
        if self._running_beside:
            self._report_answered()
            self._all_ended = anyio.Event()
            await self._all_ended.wait()
        return self.end_calls() + self.settle()

    def end_calls(self) -> list[UIEvent]:
        """Record one outcome for each call of the step, in call order. Return the closing events that were not sent.

        This does not wait: a call that has not ended counts as cancelled.
        """
        if self._runner is None:
            return []
        known, waiting = self._outcomes, self._approvals.suspended
        if waiting:
            self._put_back([call for call in self.running if call.id in waiting])
        unsent: list[UIEvent] = []
        if len(known) < len(self.running):
            outcomes, unsent = self._runner.close_calls([call for call in self.running if call.id not in known])
            known.update((outcome.call.id, outcome) for outcome in outcomes)
        self._last_outcomes = list(map(known.__getitem__, map(_id_of, self.running)))
        self._record(self._last_outcomes)
        self.running, self._outcomes = [], {}
        return unsent

    def settle(self) -> list[UIEvent]:
        """End the step after its calls, and check the limits of the run. Return the last events of the step."""
        events = self.machine.end_step()
        self.check_limits()
        return events

    def check_limits(self) -> None:
        """End the run if the step that has ended reaches a limit. Call this before the next source event."""
        ended = self.machine.take_ended_step()
        if ended is None:
            return
        if self.executes:
            self.guards.end_turn(self._last_outcomes, ended.malformed)
            self._last_outcomes = []
        if ended.continues:
            self.guards.count_tokens(self.machine.tokens_used if self._counts_tokens else None)
        if self.guards.why is not None:
            self.machine.end_run(self.guards.why)

    def suspend(self, pending: Sequence[ToolCall]) -> Suspension | None:
        """Return what a run with these pending calls waits for, None if no call waits for a decision."""
        questions = {**self._approvals.asked, **self._approvals.suspended}
        left = [questions[call.id] for call in pending if call.id in questions]
        return Suspension(run_id=self._run_id_of(left[0].call), questions=left, trace=self.trace) if left else None

    def _run_id_of(self, call: ToolCall) -> str:
        """Return the id of the run that made a call."""
        if self._resumed is not None and call.id in self._resumed.questions:
            return self._resumed.run_id
        return self.machine.run_id

    def _trusts(self, call: ToolCall) -> bool:
        """Return whether only the model can have written a call: a native call, or one with a nonce."""
        return (call.is_native or call.dialect in self._trusted) and call.id not in self.machine.salvaged

    def _report_answered(self) -> None:
        if (observed := observing.observed_run()) is not None:
            self.trace = observed.trace
            observed.answer_completed()

    async def _run_beside(self, runner: Runner, calls: list[ToolCall], send: Send) -> None:
        self._keep(runner, calls, await runner.run(calls, send))
        self._running_beside -= 1
        if self._all_ended is not None and not self._running_beside:
            self._all_ended.set()

    def _keep(self, runner: Runner, calls: list[ToolCall], outcomes: Sequence[ToolOutcome]) -> None:
        """Keep the outcomes of calls that have run. Calls that have not started are pending."""
        for outcome in outcomes:
            self._outcomes[outcome.call.id] = outcome
        if runner.stopped:
            self.guards.trip("tool_stop")
        if len(outcomes) < len(calls):
            self._put_back([call for call in calls if call.id not in self._outcomes])

    def _put_back(self, calls: list[ToolCall]) -> None:
        """Make calls that have not started pending."""
        self.machine.leave_pending(calls)
        pending = {call.id for call in calls}
        for call_id in pending:
            self._outcomes.pop(call_id, None)
        self.running = [call for call in self.running if call.id not in pending]
