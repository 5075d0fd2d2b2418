"""The calls of the open step, from the moment at which they may run to their outcomes.

Calls that may run while the model is still speaking are run beside the stream, which goes on; those of a complete turn
are run before anything else is read. Either way the step ends when all of them have, with one outcome for each call
that has begun, in call order. A call that was held back is pending: by a bound of the run, by a tool that has ended
it, or because somebody has to decide about it first.

Nothing here refers to the stream, so that there is no reference cycle: events are sent or returned to the caller.
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
from streamtools.parsing.dialects.base import restore
from streamtools.tools import Runner, ToolOutcome
from streamtools.tools.approval import Approvals, Resumption, Suspension
from streamtools.tools.call_rules import Watch
from streamtools.tools.runner import Begun, Send, not_begun

_id_of = attrgetter("id")


class StepCalls:
    """Runs the calls that a machine lets run, within the bounds of a watch, and notes the outcomes, step by step.

    Where the stream `executes` no calls, no turn counts as failed. `resumed` is what an earlier run has left. The
    options that a runner still needs are given to `make_runner`, which is called for the first calls: most runs have
    none. `note` gets the outcomes of each step.
    """

    def __init__(
        self,
        make_machine: Callable[..., StreamMachine],
        dialects: Sequence[Dialect],
        *,
        executes: bool,
        watch: Watch,
        approvals: Approvals,
        resumed: Resumption | None,
        make_runner: Callable[..., Runner],
        note: Callable[[list[ToolOutcome]], object],
    ) -> None:
        self.running: list[ToolCall] = []
        """Calls of this step that the runner has been given."""
        self.trace = ""
        """Where the run stands for those who watch, for one that goes on with it."""
        self.machine = make_machine(guard=self._find_bound)
        """The machine, which calls `_find_bound` at the end of each step; the stream feeds it."""
        self._executes = executes
        self.watch = watch
        self._counts_tokens = watch.guards.tokens is not None
        self._approvals = approvals
        self._resumed = resumed
        self.dialects = dialects
        self._trusted = [dialect.id for dialect in dialects if dialect.has_nonce]
        self._make_runner = make_runner
        self._note = note
        self._runner: Runner | None = None
        self._outcomes: dict[str, ToolOutcome] = {}  # of those that have ended
        self._last_outcomes: list[ToolOutcome] = []  # of the step that has ended
        self._beside = 0  # runs of tools beside the stream
        self._all_run: anyio.Event | None = None
        self.begun: Begun = not_begun
        """What the runner asks for calls whose tools have begun early."""

    @property
    def runner(self) -> Runner:
        """What runs the calls of all steps."""
        if self._runner is None:  # made late: it refers to us, and a run without calls is then freed at once
            self._runner = self._make_runner(
                number=self.machine.number,
                approvals=self._approvals,
                trusted=self._trusts,
                scope=self._run_of,
                begun=self.begun,
            )
        return self._runner

    async def run_calls(self, beside: TaskGroup, send: Send) -> list[UIEvent]:
        """Run the calls that may run: in the group `beside` the stream while the turn goes on, and to the end of the
        step once the turn is complete; return how the step ends, if it does.
        """
        machine, runner = self.machine, self._runner or self.runner
        calls = machine.take_runnable()
        admitted = self.watch.admit(calls, machine.spent if self._counts_tokens else None)
        if admitted < len(calls):
            machine.put_back(calls[admitted:])
            calls = calls[:admitted]
        self.running += calls
        # The model may have repeated, in its arguments, what was done to texts that looked like calls.
        calls = [replace(call, arguments=restore(call.arguments, dialects=self.dialects)) for call in calls]
        if not machine.waiting:
            self._beside += 1
            beside.start_soon(self._run_beside, runner, calls, send)
            return []
        self._tell_answered()
        self._keep(runner, calls, await runner.run(calls, send))
        return await self.end() if self._beside else self.end_calls() + machine.settle()

    async def end(self) -> list[UIEvent]:
        """Wait for the tools that run beside the stream, and end the step; return how it ends."""
        if self._beside:
            self._tell_answered()
            self._all_run = anyio.Event()
            await self._all_run.wait()
        return self.end_calls() + self.machine.settle()

    def end_calls(self) -> list[UIEvent]:
        """Note one outcome for each call of the step, in call order; return the events that say so and are not out.

        This waits for nothing: what has not ended by now counts as cancelled.
        """
        if self._runner is None:
            return []
        known, waiting = self._outcomes, self._approvals.left
        if waiting:
            self._put_back([call for call in self.running if call.id in waiting])
        unsent: list[UIEvent] = []
        if len(known) < len(self.running):
            outcomes, unsent = self._runner.settle([call for call in self.running if call.id not in known])
            known.update((outcome.call.id, outcome) for outcome in outcomes)
        self._last_outcomes = list(map(known.__getitem__, map(_id_of, self.running)))
        self._note(self._last_outcomes)
        self.running, self._outcomes = [], {}
        return unsent

    def _find_bound(self, malformed: int, goes_on: bool) -> str | None:
        """Return why the run has to end with the step that has just ended, if a bound has been met.

        So many of its calls were `malformed`, and the run `goes_on` with another turn if nothing stops it.
        """
        if self._executes:
            self.watch.end_turn(self._last_outcomes, malformed)
            self._last_outcomes = []
        if goes_on:
            self.watch.count_tokens(self.machine.spent if self._counts_tokens else None)
        return self.watch.why

    def suspend(self, pending: Sequence[ToolCall]) -> Suspension | None:
        """Return what a run waits for that has ended with these calls pending; None if it waits for nobody."""
        questions = {**self._approvals.asked, **self._approvals.left}
        left = [questions[call.id] for call in pending if call.id in questions]
        return Suspension(run_id=self._run_of(left[0].call), questions=left, trace=self.trace) if left else None

    def _run_of(self, call: ToolCall) -> str:
        """Return the id of the run in which a call was made."""
        if self._resumed is not None and call.id in self._resumed.questions:
            return self._resumed.run_id
        return self.machine.run_id

    def _trusts(self, call: ToolCall) -> bool:
        """Return whether nobody but the model can have written a call: a native one, or one under a nonce."""
        return (call.is_native or call.dialect in self._trusted) and call.id not in self.machine.salvaged

    def _tell_answered(self) -> None:
        if (observed := observing.observed()) is not None:
            self.trace = observed.trace
            observed.answered()

    async def _run_beside(self, runner: Runner, calls: list[ToolCall], send: Send) -> None:
        self._keep(runner, calls, await runner.run(calls, send))
        self._beside -= 1
        if self._all_run is not None and not self._beside:
            self._all_run.set()

    def _keep(self, runner: Runner, calls: list[ToolCall], outcomes: Sequence[ToolOutcome]) -> None:
        """Keep what came of calls that have been run; those that have not begun are pending."""
        for outcome in outcomes:
            self._outcomes[outcome.call.id] = outcome
        if runner.stopped:
            self.watch.trip("tool_stop")
        if len(outcomes) < len(calls):
            self._put_back([call for call in calls if call.id not in self._outcomes])

    def _put_back(self, calls: list[ToolCall]) -> None:
        """Let calls that have not begun be pending."""
        self.machine.put_back(calls)
        held = {call.id for call in calls}
        for call_id in held:
            self._outcomes.pop(call_id, None)
        self.running = [call for call in self.running if call.id not in held]
