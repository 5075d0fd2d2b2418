"""The calls of the step that is open, from the moment at which they may run to the account of what came of each.

Calls that are due while the model is still speaking are run beside the stream, which goes on; those of a complete turn
are run before anything else is read. Either way the step ends when all of them have, with one outcome for each call
that has begun, in call order. A call that was held back is pending: by a bound of the run, by a tool that has ended
it, or because somebody has to decide about it first.

Nothing here knows the stream, which would then hold itself: events are sent to, or returned to, whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import anyio
from anyio.abc import TaskGroup

from streamtools.calls import NATIVE, ToolCall
from streamtools.events import UIEvent
from streamtools.machine import StreamMachine
from streamtools.parsing.dialects import Dialect
from streamtools.tools import Runner, ToolOutcome
from streamtools.tools.decider import Decider
from streamtools.tools.guards import Watch
from streamtools.tools.runner import Send
from streamtools.tools.suspension import Resumption, Suspension


class StepCalls:
    """Runs what is due to a machine, within the bounds of a watch, and accounts for it; one step after the other.

    Where the stream `executes` no calls, no turn counts as failed. `resumed` is what an earlier run has left. The
    options that a runner still needs are given to `make_runner`, which is called for the first calls: most runs have
    none. `note` is told the outcomes of each step.
    """

    def __init__(
        self,
        machine: StreamMachine,
        dialects: Sequence[Dialect],
        *,
        executes: bool,
        watch: Watch,
        decider: Decider,
        resumed: Resumption | None,
        make_runner: Callable[..., Runner],
        note: Callable[[Sequence[ToolOutcome]], object],
    ) -> None:
        self.running: list[ToolCall] = []
        """Calls of this step that the runner has been given."""
        self._machine = machine
        self._executes = executes
        self._watch = watch
        self._decider = decider
        self._resumed = resumed
        self._trusted = {NATIVE, *(dialect.id for dialect in dialects if dialect.has_nonce)}
        self._make_runner = make_runner
        self._note = note
        self._runner: Runner | None = None
        self._outcomes: dict[str, ToolOutcome] = {}  # of those that have ended
        self._of_last: list[ToolOutcome] = []  # of the step that has been accounted for
        self._beside = 0  # runs of tools beside the stream
        self._all_run: anyio.Event | None = None

    @property
    def runner(self) -> Runner:
        """What runs the calls of all steps."""
        if self._runner is None:
            self._runner = self._make_runner(
                number=self._machine.number, decider=self._decider, trusted=self._trusts, scope=self._run_of
            )
        return self._runner

    async def run_due(self, beside: TaskGroup, send: Send) -> list[UIEvent]:
        """Run what is due: in the group `beside` the stream while the turn goes on, and to the end of the step once the
        turn is complete; return how the step ends, if it does.
        """
        calls = self._machine.take_due()
        admitted = self._watch.admit(calls, self._machine.spent)
        self._machine.put_back(calls[admitted:])
        calls = calls[:admitted]
        runner = self.runner
        self.running += calls
        if not self._machine.waiting:
            self._beside += 1
            beside.start_soon(self._run_beside, runner, calls, send)
            return []
        await self._run(runner, calls, send)
        return await self.end()

    async def end(self) -> list[UIEvent]:
        """Wait for the tools that run beside the stream, and end the step; return how it ends."""
        if self._beside:
            self._all_run = anyio.Event()
            await self._all_run.wait()
        return self.account() + self._machine.settle()

    def account(self) -> list[UIEvent]:
        """Note one outcome for each call of the step, in call order; return the events that say so and are not out.

        This waits for nothing: what has not ended by now is told to be cancelled.
        """
        if self._runner is None:
            return []
        self._put_back([call for call in self.running if call.id in self._decider.left])
        left = [call for call in self.running if call.id not in self._outcomes]
        outcomes, unsent = self._runner.settle(left)
        self._outcomes.update((outcome.call.id, outcome) for outcome in outcomes)
        self._of_last = [self._outcomes[call.id] for call in self.running]
        self._note(self._of_last)
        self.running, self._outcomes = [], {}
        return unsent

    def find_bound(self, malformed: int, goes_on: bool) -> str | None:
        """Return why the run has to end with the step that has just been accounted for, if a bound has been met.

        So many of its calls were `malformed`, and the run `goes_on` with another turn if nothing stops it.
        """
        if self._executes:
            self._watch.end_turn(self._of_last, malformed)
            self._of_last = []
        if goes_on:
            self._watch.count_tokens(self._machine.spent)
        return self._watch.why

    def suspend(self, pending: Sequence[ToolCall]) -> Suspension | None:
        """Return what a run waits for that has ended with these calls pending; None if it waits for nobody."""
        questions = {**self._decider.asked, **self._decider.left}
        left = [questions[call.id] for call in pending if call.id in questions]
        return Suspension(run_id=self._run_of(left[0].call), questions=left) if left else None

    def _run_of(self, call: ToolCall) -> str:
        """Return the id of the run in which a call was made."""
        if self._resumed is not None and call.id in self._resumed.questions:
            return self._resumed.run_id
        return self._machine.run_id

    def _trusts(self, call: ToolCall) -> bool:
        """Return whether nobody but the model can have written a call: a native one, or one under a nonce."""
        return call.dialect in self._trusted and call.id not in self._machine.salvaged

    async def _run_beside(self, runner: Runner, calls: list[ToolCall], send: Send) -> None:
        await self._run(runner, calls, send)
        self._beside -= 1
        if self._all_run is not None and not self._beside:
            self._all_run.set()

    async def _run(self, runner: Runner, calls: list[ToolCall], send: Send) -> None:
        outcomes = await runner.run(calls, send)
        self._outcomes.update((outcome.call.id, outcome) for outcome in outcomes)
        if runner.stopped:
            self._watch.trip("tool_stop")
        self._put_back([call for call in calls if call.id not in self._outcomes])

    def _put_back(self, calls: list[ToolCall]) -> None:
        """Let calls that have not begun be pending."""
        if calls:
            self._machine.put_back(calls)
            held = {call.id for call in calls}
            self.running = [call for call in self.running if call.id not in held]
