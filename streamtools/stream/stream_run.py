"""Connects the parts of one run: the machine, the step runner, the stages and the buffer.

`StreamRun.read` reads source events and feeds them to the machine. The machine returns UI events. The stages process
them in order, and the buffer keeps them for the consumer. `ToolStream` starts the task that calls `read`.
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

_BATCH = 256  # number of events that `Observation` reports to the observer in one call


class EventStage(Protocol):
    """Processes events between the machine and the buffer.

    The stages are the judge, the telemetry, the collector, and the rules for arguments.
    """

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Process `events`, and return the events for the next stage.

        A stage may buffer events and return them from a later call.
        """


class StreamRun:
    """Feeds the machine, runs the calls, and puts events into the buffer.

    The task that drives the run calls these methods. Tools call `send`, and the judge calls `emit`, in other tasks.
    """

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
        """The pending calls and decisions of an earlier run. None if this run does not resume a run."""
        self._judge = judge
        self._argument_rules = argument_rules
        self._observation: Observation | None = None
        self._stages: list[EventStage] = [stage for stage in (judge, collector, argument_rules) if stage is not None]
        self._scope: anyio.CancelScope | None = None  # cancelling it stops the run; None before `begin`
        self._stop_reason: Stop = "time_limit"

    def open(self) -> AbstractContextManager[None]:
        """Allow reading from the buffer, and emit the `start` event.

        Returns a context manager. The caller starts the task of the run inside it.
        """
        self.buffer.open()
        resumed = self.resumed.trace if self.resumed else ""
        observed = observing.begin(self.machine.run_id, self.machine, resumed)
        if observed is not None:
            self._observation = Observation(observed)
            self._stages.insert(self._stages.index(self.collector), self._observation)
        self.emit(self.machine.start())
        return observing.surrounding(observed)

    def begin(self, tools: TaskGroup) -> None:
        """Start the time limit of the run.

        `tools` is the task group of the tools. Cancelling its scope stops the run.
        """
        self._scope = tools.cancel_scope
        if (left := self.steps.guards.begin(now := anyio.current_time())) is not None:
            self._scope.deadline = now + left
        if self._judge is not None:
            self._judge.begin(tools, self.emit, self._refuse)

    # These methods pass events to the consumer.

    def emit(self, events: Sequence[UIEvent]) -> bool:
        """Pass events through the stages to the buffer. Return True if the source must wait before the next batch.

        An empty sequence releases the buffered events that a stage may now return.
        """
        for stage in self._stages:
            events = stage.take(events)
        must_wait = self.buffer.put(events)
        return must_wait or self.collector.is_too_large or (self._judge is not None and self._judge.is_behind)

    async def send(self, event: UIEvent) -> None:
        """Emit an event of a tool.

        A `Progress` event skips the stages, so the result does not contain it. After it, this waits for room in the
        buffer.
        """
        if type(event) is not Progress:
            self.emit((event,))
            return
        if self._judge is not None:
            self._judge.gate.number(event)
        self.buffer.put((event,))
        await self.wait_for_room()

    async def wait_for_room(self) -> None:
        """Wait until the judge and the buffer have room for more events. If the result is too large, stop the run."""
        if self.collector.is_too_large and self._scope is not None and not self._scope.cancel_called:
            self._stop_reason = "size_limit"
            self._scope.cancel()
        if self._judge is not None:
            await self._judge.catch_up()
        await self.buffer.wait_for_room()

    async def wait_for_approval(self) -> None:
        """Wait until the judge has approved all text.

        If the judge refuses a piece, this never returns: the run is cancelled.
        """
        if self._judge is not None:
            await self._judge.wait_for_decisions()

    @property
    def unapproved_text(self) -> str:
        """The text that waits for a decision of the judge; empty without a judge."""
        return "" if self._judge is None else self._judge.gate.text

    def _refuse(self) -> None:
        self.machine.refuse_text()
        if self._scope is not None:
            self._scope.cancel()

    # These methods read source events and feed them to the machine.

    async def resume(self, tools: TaskGroup) -> None:
        """Run the pending calls of the earlier run, if this run resumes a run."""
        if self.resumed is None:
            return
        calls = self.resumed.calls
        self.collector.resume(calls)
        self.emit(self.machine.resume(calls))
        self.emit(await self.steps.run_calls(tools, self.send) if self.steps.executes else self.steps.settle())
        await self.wait_for_approval()

    async def read(self, source: EventSource, tools: TaskGroup) -> None:
        """Read `source` to its end, and run its calls. Eager calls run in the task group `tools`."""
        self.machine.source = source
        self.collector.read_from(source)
        take = self._taker(tools)
        if self._observation is not None:
            await self._observation.read(source, take)
        else:
            await read_into(source, take)
        if self.steps.running:  # eager calls of a turn whose end the source did not report
            self.emit(await self.steps.end())
        await self.wait_for_approval()

    def _taker(self, tools: TaskGroup) -> TakeBatch:
        """Return a function that feeds one batch of source events to the machine.

        The function returns True if the run needs no more source events. If it has to wait for room or to run calls,
        it returns an awaitable of that bool instead.
        """
        machine, steps, feed, emit = self.machine, self.steps, self.machine.feed, self.emit

        def take(batch: Sequence[SourceEvent]) -> Awaitable[bool] | bool:
            # Fast path: a list needs no `isinstance` with a union, which costs more than processing a delta.
            if type(batch) is not list and not isinstance(batch, list | tuple):
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

    # These methods end the run.

    def complete(self) -> None:
        """With a judge, emit the last events of the machine now, because the judge can still approve their text.

        Without a judge, `end` emits them.
        """
        if self._judge is not None:
            self.emit(self.machine.close())

    def end(self, failure: str | None) -> None:
        """Emit the events that end the run.

        `failure` is the name of the exception that the source raised. None means that the run is complete or was
        stopped.
        """
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
        """Emit `done` if the run has not emitted it, report the end to the observer, and close the buffer."""
        self._close_judge()
        self.emit(self.steps.end_calls())
        self.emit(self.machine.cancel())
        self.steps.check_limits()
        if self._observation is not None:
            self._observation.end()
        self.buffer.close()

    def _close_judge(self) -> None:
        """Stop the judge, and drop the text that it has not approved."""
        if self._judge is not None:
            self._judge.end()
            self.emit(())


class Observation:
    """A stage that reports one run to its observer.

    It reports events in batches, because a report for each delta is slow. It reports the first text of a request
    immediately.
    """

    def __init__(self, observed: observing.ObservedRun) -> None:
        self.observed = observed
        self._unreported: list[UIEvent] = []
        self._awaits_text = False  # True from the start of a request until its first visible text
        self._awaits_batch = False  # True if the next batch of the source must be reported

    def take(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Record events for the next report. An empty batch means that the machine or the judge buffers text."""
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
        """Pass the recorded events to the observer."""
        if self._unreported:
            self.observed.events_shown(self._unreported)
            self._unreported = []

    async def read(self, source: EventSource, take: TakeBatch) -> None:
        """Read a source with `read_into`. Report the start of the request and the end of the answer."""
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
        """Report the remaining events and the end of the run."""
        self.report()
        self.observed.run_ended()
