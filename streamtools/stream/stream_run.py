"""One run: its machine, step runner, stages and buffer, connected.

A delta passes `StreamRun.read` (from the source), the machine, the stages, and the buffer, where the consumer reads
it. `ToolStream` owns the task that calls `read`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup

from streamtools import observing
from streamtools.errors import Code, UnreadableSource
from streamtools.events import Progress, SourceError, SourceEvent, SourceWarning, Text, UIEvent
from streamtools.machine.state_machine import StreamMachine
from streamtools.stream.collector import Collector
from streamtools.stream.event_buffer import EventBuffer
from streamtools.stream.reading import EventSource, read_into
from streamtools.stream.step_runner import StepRunner
from streamtools.tools.approvals import Resumption
from streamtools.tools.guards import Stop

if TYPE_CHECKING:  # few runs have these stages, and importing them takes time
    from streamtools.stream.argument_rules import ArgumentRules
    from streamtools.stream.text_judge import JudgeStage


TakeBatch: TypeAlias = Callable[[Sequence[SourceEvent]], Awaitable[bool] | bool]

_BATCH = 256  # events that are reported together


class EventStage(Protocol):
    """Sees or changes events between the machine and the buffer: judge, telemetry, collector, rules in arguments."""

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Return the events for the next stage. A stage may hold events back and return them from a later call."""


class StreamRun:
    """Feeds the machine, runs the calls, and shows events. Its methods are called in the task that drives the run."""

    def __init__(
        self,
        machine: StreamMachine,
        steps: StepRunner,
        collector: Collector,
        *,
        judge: JudgeStage | None,
        argument_rules: ArgumentRules | None,
        resumed: Resumption | None,
    ) -> None:
        self.machine = machine
        self.steps = steps
        self.collector = collector
        self.buffer = EventBuffer()
        self.resumed = resumed
        """What an earlier run left, if this run resumes one."""
        self._judge = judge
        self._argument_rules = argument_rules
        self._observation: Observation | None = None
        self._stages: list[EventStage] = [stage for stage in (judge, collector, argument_rules) if stage is not None]
        self._scope: anyio.CancelScope | None = None  # cancelled when the run has to stop
        self._stop_reason: Stop = "time_limit"

    def open(self) -> AbstractContextManager[None]:
        """Allow reading, and show the start of the run. Returns a context in which the task of the run starts."""
        self.buffer.open()
        resumed = self.resumed.trace if self.resumed else ""
        observed = observing.begin(self.machine.run_id, self.machine, resumed)
        if observed is not None:
            self._observation = Observation(observed)
            self._stages.insert(self._stages.index(self.collector), self._observation)
        self.emit(self.machine.start())
        return observing.surrounding(observed)

    def begin(self, tools: TaskGroup) -> None:
        """Start the clock of the run. Cancelling the scope of the group `tools` stops the run."""
        self._scope = tools.cancel_scope
        if (left := self.steps.guards.begin(now := anyio.current_time())) is not None:
            self._scope.deadline = now + left
        if self._judge is not None:
            self._judge.begin(tools, self.emit, self._refuse)

    # Events on their way to the consumer.

    def emit(self, events: Sequence[UIEvent]) -> bool:
        """Pass events through the stages to the buffer. Return whether the source has to wait.

        No events only release those that a stage holds back.
        """
        for stage in self._stages:
            events = stage.take(events)
        must_wait = self.buffer.put(events)
        return must_wait or self.collector.is_too_large or (self._judge is not None and self._judge.is_behind)

    async def send(self, event: UIEvent) -> None:
        """Emit an event of a tool. Progress waits for room, and is no part of the result."""
        if type(event) is not Progress:
            self.emit((event,))
            return
        if self._judge is not None:
            self._judge.gate.number(event)
        self.buffer.put((event,))
        await self.wait_for_room()

    async def wait_for_room(self) -> None:
        """Wait for the consumer and for the judge. A result that is too large stops the run."""
        if self.collector.is_too_large and self._scope is not None and not self._scope.cancel_called:
            self._stop_reason = "size_limit"
            self._scope.cancel()
        if self._judge is not None:
            await self._judge.catch_up()
        await self.buffer.wait_for_room()

    async def wait_for_approval(self) -> None:
        """Wait until the judge has approved all text. If it refuses some, this does not return: the run stops."""
        if self._judge is not None:
            await self._judge.wait_for_decisions()

    @property
    def unapproved_text(self) -> str:
        """The text that the judge holds back."""
        return "" if self._judge is None else self._judge.gate.text

    def _refuse(self) -> None:
        self.machine.refuse_text()
        if self._scope is not None:
            self._scope.cancel()

    # Source events on their way to the machine.

    async def resume(self, tools: TaskGroup) -> None:
        """Run the calls that an earlier run left."""
        if self.resumed is None:
            return
        calls = self.resumed.calls
        self.collector.resume(calls)
        self.emit(self.machine.resume(calls))
        self.emit(await self.steps.run_calls(tools, self.send) if self.steps.executes else self.steps.settle())
        await self.wait_for_approval()

    async def read(self, source: EventSource, tools: TaskGroup) -> None:
        """Read a source to its end, and run its calls in the group `tools`."""
        self.machine.source = source
        self.collector.read_from(source)
        take = self._taker(tools)
        if self._observation is not None:
            await self._observation.read(source, take)
        else:
            await read_into(source, take)
        if self.steps.running:  # eager calls of a turn that never became complete
            self.emit(await self.steps.end())
        await self.wait_for_approval()

    def _taker(self, tools: TaskGroup) -> TakeBatch:
        """Return a function that takes a batch of a source, and returns whether the run needs no more.

        It returns an awaitable only to wait for room or to run calls.
        """
        machine, steps, feed, emit = self.machine, self.steps, self.machine.feed, self.emit

        def take(batch: Sequence[SourceEvent]) -> Awaitable[bool] | bool:
            if type(batch) is not list and not isinstance(batch, list | tuple):  # the union costs more than a delta
                raise UnreadableSource(f"a source must yield lists of source events, got {type(batch).__name__}")
            events: list[UIEvent] = []
            rest = iter(batch)
            try:
                for source_event in rest:
                    events += feed(source_event)
                    if machine.runnable or (steps.running and machine.awaits_outcomes):
                        emit(events)
                        return run_calls([*rest])
                    if machine.ended_step is not None:
                        steps.check_limits()
            except BaseException:
                emit(events)
                raise
            return wait() if emit(events) else machine.stopped

        async def run_calls(rest: list[SourceEvent]) -> bool:
            await self.wait_for_approval()
            emit(await steps.run_calls(tools, self.send))
            if not isinstance(outcome := take(rest), bool):
                await outcome
            return await wait()

        async def wait() -> bool:
            await self.wait_for_room()
            return machine.stopped

        return take

    # The end of the run.

    def complete(self) -> None:
        """Show the last events while the judge can still approve them."""
        if self._judge is not None:
            self.emit(self.machine.close())

    def end(self, failure: str | None) -> None:
        """Show how the run ends: with a `failure` of the source, stopped, or complete."""
        self._close_judge()
        if failure is not None:
            fault = SourceError("the stream could not be read", Code.STREAM_INTERRUPTED, cause=failure)
            self.emit(self.machine.feed(fault))
            self.emit(self.steps.end_calls())
        elif self._scope is not None and self._scope.cancelled_caught:
            self.emit(self.steps.end_calls())
            self.emit(self.machine.stop(self._stop_reason))
        self.emit(self.machine.close())

    def finish(self) -> None:
        """End the run with its one `done`, and wake all readers."""
        self._close_judge()
        self.emit(self.steps.end_calls())
        self.emit(self.machine.cancel())
        self.steps.check_limits()
        if self._observation is not None:
            self._observation.end()
        self.buffer.close()

    def _close_judge(self) -> None:
        """Show no text that the judge has not approved."""
        if self._judge is not None:
            self._judge.end()
            self.emit(())


class Observation:
    """A stage that reports one run to its observer. No single delta is reported, except the first."""

    def __init__(self, observed: observing.ObservedRun) -> None:
        self.observed = observed
        self._unreported: list[UIEvent] = []
        self._awaits_text = False  # a request has started, and none of its text has been shown
        self._awaits_batch = False

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Record events. An empty batch means that the machine or the judge holds text back."""
        if not events:
            self.observed.text_buffered()
            return events
        if self._awaits_text and any(type(event) is Text and not event.text.isspace() for event in events):
            self._awaits_text = False
            self.observed.text_shown()
        self._unreported += events
        if len(self._unreported) >= _BATCH:
            self.report()
        return events

    def report(self) -> None:
        """Report the recorded events."""
        if self._unreported:
            self.observed.events_shown(self._unreported)
            self._unreported = []

    async def read(self, source: EventSource, take: TakeBatch) -> None:
        """Read a source to its end, as `read_into` does, and report the start and the end of its answer."""
        self.observed.request_started(getattr(source, "origin", ()), source)
        self._awaits_text = self._awaits_batch = True

        def take_batch(batch: Sequence[SourceEvent]) -> Awaitable[bool] | bool:
            if self._awaits_batch and batch and not isinstance(batch[0], SourceError | SourceWarning):
                self._awaits_batch = self.observed.by_chunk
                self.observed.batch_received()
            return take(batch)

        raised: BaseException | None = None
        try:
            await read_into(source, take_batch)
        except BaseException as error:
            raised = error
            raise
        finally:
            self._awaits_text = False
            self.report()
            self.observed.source_read(raised)

    def end(self) -> None:
        """Report the end of the run."""
        self.report()
        self.observed.run_ended()
