"""Defines `ToolStream`, which connects a source, a `StreamMachine` and tools to one asynchronous iterator of events.

`StreamRun` holds the parts of one run. It reads source events and feeds them to the machine, which returns UI events.
The stages process these events in order, and the buffer keeps them for the consumer.

A background task of the stream reads the source, feeds the machine and runs the tools. A bounded buffer separates this
task from the consumer. So a cancelled read or a `break` does not affect the run. If the consumer is slow, the source is
read more slowly. Leaving the `async with` ends the run: the tools stop, the response is closed, and `done` is emitted.

The iterator is a class and not an asynchronous generator, because the event loop may close a generator in another task
(PEP 789).
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from streamtools import observing
from streamtools.calls import ToolChoice
from streamtools.errors import AsyncOnly, Checked, ClosedError, UnreadableSource, check_kind, check_names
from streamtools.events import LARGE, Progress, Text, UIEvent, explain_attribute, weigh
from streamtools.logs import HIDE, Logger
from streamtools.machine.logged_run import LoggedRun
from streamtools.machine.state_machine import GUARD, StreamMachine
from streamtools.parsing.dialects import Dialects, choose_dialects, enabled_dialects
from streamtools.parsing.options import ParserOptions
from streamtools.sources.read_pace import ReadPace, current_pace
from streamtools.stream.collector import BATCH, Collector
from streamtools.stream.event_buffer import SMALL_TEXT, EventBuffer
from streamtools.stream.lost_run import LostRun
from streamtools.stream.options import (
    HOMES,
    ApprovalOptions,
    Decisions,
    OutputOptions,
    StreamOptions,
    TextOptions,
    output_type,
    parser_keywords,
)
from streamtools.stream.reading import YIELD_EVERY, EventSource, close
from streamtools.stream.report_stage import ReportStage
from streamtools.stream.result import TurnResult
from streamtools.stream.step_runner import StepRunner
from streamtools.stream.text_judge import JudgeStage
from streamtools.stream.typed_items import TypedItems
from streamtools.tools import ToolRegistry
from streamtools.tools.approvals import (
    Approvals,
    Decidable,
    DecidedRun,
    Decision,
    Question,
    Resumption,
    Suspension,
    read_resumption,
)
from streamtools.tools.cancellation import is_stray
from streamtools.tools.context import Completed
from streamtools.tools.guards import Guards, GuardTracker, Stop
from streamtools.tools.ledger import RUN_LEDGER, shared_ledger
from streamtools.tools.registry import ToolsLike
from streamtools.tools.runner import Runner, RunnerOptions
from streamtools.tools.tool_choice import check_choice, parse_choice

if TYPE_CHECKING:  # few runs have this stage, and importing it takes time
    from streamtools.stream.argument_rules import ArgumentRules

log = Logger(__name__)

LEFT_ELSEWHERE = (
    "a stream must be left in the task that entered it, and this is another task; if an asynchronous "
    "generator enters the stream, close the generator in the task that reads it (`async with aclosing(generator)`)"
)
_HOW_TO_READ = "in an async function, write `await stream`, or `async with stream as events:`"
_OTHER_NAMES = dict.fromkeys(TurnResult.__dataclass_fields__, "write `(await stream).{0}`, or `stream.result.{0}`")
_OTHER_NAMES |= dict.fromkeys(("stop", "cancel", "close"), "write `await stream.aclose()`")
_OTHER_NAMES |= dict.fromkeys(("run", "run_sync", "stream", "iter", "invoke", "ainvoke", "astream"), _HOW_TO_READ)
_OTHER_NAMES["reject"] = "write `stream.deny(…)`"
_BATCH_TYPES = (list, tuple)
DEFAULT_PARSER, DEFAULT_RUNNER, DEFAULT_TEXT = ParserOptions(), RunnerOptions(), TextOptions()


class ToolStream(AsyncOnly, Checked, Decidable, TypedItems):
    """One run of a model and its tools: an asynchronous context manager and an iterator of UI events.

    `source` is created with `streamtools.sources`. `tools` is a registry, tools, or plain functions. Without tools,
    events report the calls, and the calls stay `pending`. `tool_choice` is checked after the turn is complete, before a
    call runs. `native_tool_calls` is True if calls arrive in the provider's field for calls, and text is never a call.
    It is False if the model writes calls into its text, and None if this is unknown. `guards` limits the run.

    `output` is the type of the answer (a pydantic model, a dataclass, a TypedDict, a JSON schema) or an
    `OutputOptions`. The other options are in objects: `parser` for reading text, `runner` for running tools,
    `approvals` for decisions about calls, and `text` for changing or judging text before it is shown.

    The run ends at calls that need approval and at calls of client tools. `suspension` holds these calls. Pass it to
    another run as `resume`, with the decisions in `approvals`. Both runs must share a ledger. With
    `approvals=ApprovalOptions(ask="now")`, the run does not end but waits for `approve`, `deny` or `answer`.

    If the source raises an exception, the run ends with an error event. Then the exception is raised to the consumer
    at its next read, or on exit. Network errors are not raised, only reported as events. Enter and exit the stream in
    one task. Any task may call `aclose()`, which stops the run and waits for its end.

    `await stream` reads all events of the stream, and returns the `result`. If necessary, it enters the stream first.

    Raises ValueError for a value that is not allowed and for a `tool_choice` that no answer can satisfy. Raises
    TypeError for an unknown parameter or a value of the wrong type, `UnreadableSource` for an object that is not a
    source, and `DecisionRefused` for a decision that does not fit a waiting call.
    """

    _other_names = _OTHER_NAMES
    _is_unread = False  # True after the constructor, until the stream is entered or closed

    def __init__(
        self,
        source: EventSource,
        *,
        tools: ToolsLike | None = None,
        dialects: Dialects = None,
        native_tool_calls: bool | None = None,
        tool_choice: ToolChoice | str | Mapping[str, Any] | None = "auto",
        output: Any = None,
        guards: Guards | None = None,
        resume: Suspension | DecidedRun | str | None = None,
        run_id: str | None = None,
        parser: ParserOptions = DEFAULT_PARSER,
        runner: RunnerOptions = DEFAULT_RUNNER,
        approvals: ApprovalOptions | Decisions | None = None,
        text: TextOptions = DEFAULT_TEXT,
        **unknown: Never,
    ) -> None:
        check_names("ToolStream()", unknown, ("tools", *StreamOptions.__annotations__), HOMES)
        if isinstance(source, AsyncOnly) or not (hasattr(source, "__anext__") and hasattr(source, "aclose")):
            advice = "make one with `streamtools.sources`, such as sources.openai(response)"
            raise UnreadableSource(f"source must be a source, got {type(source).__name__}: {advice}")
        check_kind("parser", parser, ParserOptions)
        check_kind("runner", runner, RunnerOptions)
        check_kind("text", text, TextOptions)
        if text.judge is not None and runner.execute == "eager":
            raise ValueError("with a text judge, write execute='completed': 'eager' runs calls that it may refuse")
        check_kind("guards", guards, Guards, optional=True)
        check_kind("run_id", run_id, str, optional=True)
        if approvals is None or isinstance(approvals, Mapping):
            approvals = ApprovalOptions(decisions=approvals or {})
        check_kind("approvals", approvals, ApprovalOptions)
        if resume is not None and isinstance(resume, DecidedRun):
            run_id = resume.next_id
        if text.rules_in_arguments or text.vault is not None:
            from streamtools.stream.argument_rules import ArgumentRules

            parser = replace(parser, call_deltas=False)  # rules cannot match the raw JSON of deltas
        typed_answer = OutputOptions.of(output)
        self._is_typed = typed_answer.type is not None
        log: LostRun | None = getattr(resume, "_next_log", None)  # `Runs` sets it
        text = text.for_run(log)
        self.vault = text.vault
        """The copy of the vault of `text` that has the values of this stream. None without a vault."""
        registry = ToolRegistry.of(tools if tools is not None else ())
        choice = parse_choice(tool_choice)
        check_choice(choice, registry.names, eager=runner.execute == "eager")
        execute = "never" if tools is None else runner.execute
        for tool in registry if runner.state is None and execute != "never" else ():
            if tool.needs_state and not tool.client:
                raise ValueError(f"tool {tool.name!r} needs a state: write runner=RunnerOptions(state=...)")
        ledger = shared_ledger(runner.ledger, getattr(resume, "_ledger", None))
        resumed = read_resumption(resume, approvals.decisions, ledger)
        if resumed is not None and tools is None:
            names = ", ".join(call.name for call in resumed.suspension.calls)
            raise ValueError(f"`resume` runs calls of the tools {names}: write tools=[...]")
        self._source = source
        self._source_was_read = False
        self._approvals = Approvals(attended=approvals.ask == "now", timeout=approvals.timeout, resumed=resumed)
        machine = StreamMachine(
            dialects=dialects,
            tools=registry,
            execute=execute,
            native_tool_calls=native_tool_calls,
            self_contained=runner.self_contained,
            tool_choice=choice,
            run_id=run_id,
            output=output_type(typed_answer.type),
            **parser_keywords(parser, text, is_typed=self._is_typed),
        )
        tracker = GuardTracker(guards)
        judge = None if text.judge is None else JudgeStage(text.judge, machine.run_id)
        argument_rules = None
        if text.rules_in_arguments:
            argument_rules = ArgumentRules(text.rules)
        vault_rules = self._hide = None
        if text.vault is not None:
            from streamtools.stream.hiding import hide

            self._hide = partial(hide, text.vault)
            vault_rules = ArgumentRules([text.vault.rule()], restores=True)
            machine.hide = partial(text.vault.replace, from_model=True)
        show_call = argument_rules.show_call if argument_rules is not None and text.history == "as_shown" else None
        collector = Collector(
            enabled_dialects(dialects, native_tool_calls), max_size=tracker.guards.size, show_call=show_call
        )
        steps = StepRunner(
            machine,
            choose_dialects(dialects),  # the model may copy results into arguments; these dialects neutralized them
            executes=execute != "never",
            guards=tracker,
            approvals=self._approvals,
            resumed=resumed,
            make_runner=partial(Runner, registry, options=runner),
            record=collector.record,
            ledger=ledger,
            restore_values=(lambda call: call) if vault_rules is None else vault_rules.show_call,
        )
        self._run = StreamRun(machine, steps, collector, vault_rules, judge, argument_rules, resumed)
        if resumed is not None:
            calls = resumed.suspension.calls
            collector.resume(calls)
            if log is not None and log.events:
                self._run.restore(LoggedRun.of_decided(log.events, log.copied, calls), log)
            else:
                self._run.opening = machine.resume(calls)
        self._buffer = self._run.buffer
        self._task_id = 0  # id of the task that entered the stream
        self._scope: anyio.CancelScope | None = None  # cancelling it stops the background task; None before entering
        self._tasks: TaskGroup | None = None  # runs the background task
        self._finished: anyio.Event | None = None  # set after the run has ended and the source is closed
        self._is_unread = True

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._is_unread and not is_finalizing():  # at exit, logging may fail
            advice = "pass it to asgi.event_stream_response, or write `await stream` or `await runs.start(stream, ...)`"
            log.warning("stream_not_read", run_id=self.run_id, advice=advice)

    @property
    def run_id(self) -> str:
        """The id of the run. The `start` event also holds it."""
        return self._run.machine.run_id

    @property
    def result(self) -> TurnResult:
        """The current result of the run. It is complete after the `async with`.

        `result`, `output` and `suspension` raise `ClosedError` before the stream is entered.
        """
        return self._collector.read()

    @property
    def output(self) -> Any:
        """The typed answer while it arrives: plain data, not validated. `result.output` is the validated one."""
        self._collector.collect()
        return self._run.collector.draft.value

    @property
    def _collector(self) -> Collector:
        if self._tasks is None and not self._buffer.is_closed:
            self._is_unread = False  # the exception needs no log
            raise ClosedError(f"the stream has not been read yet; {_HOW_TO_READ}")
        return self._run.collector

    @property
    def suspension(self) -> Suspension | None:
        """The calls of the ended run that wait for a decision. None if no call waits."""
        return self._run.steps.suspend(self.result.pending)

    async def questions(self) -> list[Question]:
        """Return the questions that wait for a decision, in order. After the end, they are those of `suspension`."""
        suspension = self.suspension
        return self._approvals.questions or ([] if suspension is None else suspension.questions)

    def decide(self, call_id: str, decision: Decision | bool) -> Completed:
        """Decide about a waiting call. True approves it, and False denies it. The decision is immediately in effect.

        Raises `DecisionRefused` if the call does not wait for this kind of decision, and ValueError if `decision` has
        another type.
        """
        self._approvals.decide(call_id, decision)
        return Completed()

    # The consumer calls these methods.

    def __await__(self) -> Generator[Any, None, TurnResult]:
        return self._read_all().__await__()

    async def _read_all(self) -> TurnResult:
        async with self if self._tasks is None else nullcontext():
            while not self._buffer.is_exhausted:
                async for _ in self:
                    pass
        return self.result

    def __repr__(self) -> str:  # `asyncio.run(chat(...))` quotes it
        is_unread = self._tasks is None and not self._buffer.is_closed
        return f"<{type(self).__name__} {self.run_id}{f', not read yet; {_HOW_TO_READ}' if is_unread else ''}>"

    def __aiter__(self) -> Self:
        if self._buffer.is_exhausted:
            log.warning("events_already_read", run_id=self.run_id, advice="keep the events in a list to loop again")
        return self

    def __anext__(self) -> Awaitable[UIEvent]:
        return self._buffer.get()

    def _take_ready(self) -> Sequence[UIEvent]:
        """Return the buffered events without waiting, up to a limit of bytes."""
        return self._buffer.take_ready()

    @property
    def _pace(self) -> ReadPace:
        """The pace of the reads from the provider, which depends on the `max_rate` of the readers."""
        return self._run.pace

    def _forward(self, write: Callable[[UIEvent], object]) -> None:
        """Pass all events to `write`. Iteration then yields no events, and ends when the stream ends."""
        self._buffer.forward(write)

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._buffer.is_closed:
            raise ClosedError("a stream can be entered only once: pass it on without `async with`, or make a new one")
        self._is_unread = False
        self._task_id = anyio.get_current_task().id
        self._scope = anyio.CancelScope()
        self._finished = anyio.Event()
        self._tasks = await anyio.create_task_group().__aenter__()
        outer = HIDE.set(self._run.machine.hide or HIDE.get())
        with self._run.open():
            self._tasks.start_soon(self._drive, self._scope)  # it has a copy of the context
        HIDE.reset(outer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        assert self._scope is not None
        explain_attribute(error)
        if not self._buffer.is_closed:
            self._scope.cancel()
        if anyio.get_current_task().id != self._task_id:  # on trio, leaving the group here would wait forever
            await self.aclose()
            raise ClosedError(LEFT_ELSEWHERE)
        # Pass only a cancellation to the group. The group must distinguish asyncio's cancellation from a scope's.
        # The group would wrap any other exception in an exception group.
        is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        try:
            await self._tasks.__aexit__(kind if is_cancelled else None, error if is_cancelled else None, None)
        finally:
            if not self._buffer.is_closed:  # asyncio may cancel a task before its first step
                try:
                    await self._close_source()
                finally:
                    self._finish()
        if error is None:
            self._buffer.raise_error()

    async def aclose(self) -> None:
        """Stop the tools, close the response, and wait for both. The remaining events can still be read."""
        self._is_unread = False
        if self._scope is None or self._finished is None:
            self._buffer.close()
            await self._source.aclose()
        else:
            self._scope.cancel()
            await self._finished.wait()

    # These methods run in the background task.

    async def _drive(self, scope: anyio.CancelScope) -> None:
        """Read all sources, run the calls, and end the run, also after an exception. Cancelling `scope` ends the run
        early."""
        failure: BaseException | None = None  # it ended the run
        try:
            with scope:
                async with anyio.create_task_group() as tools:
                    try:
                        self._run.begin(tools)
                        await self._run.resume(tools)
                        while (source := await self._next_source()) is not None:
                            if source is not self._source:
                                await self._close_source()
                                self._source = source
                            await self._run.read(source, tools)
                        if self._run.judge is not None:  # it can still approve the last text
                            self._run.emit(self._run.machine.close())
                    except BaseException as error:
                        if isinstance(error, Exception):
                            self._buffer.fail(error)  # raised to the consumer; the group would wrap it
                        elif not is_stray(error):  # a stray cancellation (nothing cancelled this task) is not raised
                            raise
                        failure = error
                        tools.cancel_scope.cancel()
                self._run.end(failure)
        except BaseException as error:
            if not is_stray(error):
                raise
        finally:
            try:
                await self._close_source()
            finally:  # a cancellation by asyncio ignores the shield in `_close_source`
                self._finish()

    async def _next_source(self) -> EventSource | None:
        """Return the source to read next. None ends the run. A subclass may override this method.

        The background task calls it after the calls of an earlier run, and then after each source. An exception ends
        the run with an error event, and is raised to the consumer.

        A `ToolStream` reads one source. It reads no source while calls of the earlier run are pending, because new
        pending calls would mix with these calls.
        """
        if self._source_was_read or self._run.machine.pending:
            return None
        self._source_was_read = True
        return self._source

    async def _close_source(self) -> None:
        await close(self._source, log_event="source_not_closed", run_id=self.run_id)

    def _finish(self) -> None:
        self._run.close()
        if self._finished is not None:
            self._finished.set()


@dataclass(eq=False, repr=False)
class StreamRun:
    """Feeds the machine, runs the calls, and puts events into the buffer.

    The constructor of the stream calls `restore`, and the consumer calls `open`. The task that drives the run calls the
    other methods. If that task never started, the consumer calls `close`. Tools call `send`, and the judge calls
    `emit`, in other tasks.
    """

    machine: StreamMachine
    steps: StepRunner
    collector: Collector
    vault_rules: ArgumentRules | None
    """Restores the values of a vault in the arguments of calls. None without a vault."""
    judge: JudgeStage | None
    argument_rules: ArgumentRules | None
    resumed: Resumption | None
    """The pending calls and decisions of an earlier run. None if this run does not resume a run."""
    buffer: EventBuffer = field(default_factory=EventBuffer, init=False)
    pace: ReadPace = field(default_factory=ReadPace, init=False)
    logged: LoggedRun | None = field(default=None, init=False)
    """The state of the run in its log, if this stream continues a run. None otherwise."""
    opening: list[UIEvent] = field(default_factory=list, init=False)
    """The first events of a run that continues. Other runs begin with `start`."""
    _report_stage: ReportStage | None = field(default=None, init=False)
    _recorded_size: int = field(default=0, init=False)
    """The size in bytes of the events since `emit` last called `collect`, without small texts."""
    _scope: anyio.CancelScope | None = field(default=None, init=False)
    """Cancelling it stops the run. None before `begin`."""
    _stop_reason: Stop = field(default="time_limit", init=False)

    def __post_init__(self) -> None:
        # The stages between the machine and the buffer. A stage may buffer events and return them from a later call.
        first = (self.vault_rules, self.judge)
        self._stages: list[ArgumentRules | JudgeStage | ReportStage] = [stage for stage in first if stage is not None]
        self._recorded = self.collector.recorded

    def open(self) -> AbstractContextManager[None]:
        """Allow reading from the buffer, and emit the first events: `start`, or the events in `opening`.

        Returns a context manager. The caller starts the task of the run inside it. In a run of `Runs`, the stream gets
        the id of the run.
        """
        self.machine.run_id = RUN_LEDGER.get()[0] or self.machine.run_id
        self.buffer.open()
        observed = observing.begin(self.machine.run_id, self.machine.without_matches)
        if observed is not None:
            self._report_stage = ReportStage(observed)
            self._stages.append(self._report_stage)
        if self.vault_rules is not None:
            self.vault_rules.calls |= {call.id: (call, call) for call in self.machine.runnable}
        self.emit(self.opening or self.machine.start())
        return observing.surrounding(observed)

    def begin(self, tools: TaskGroup) -> None:
        """Start the time limit of the run, and the judge.

        `tools` is the task group of the tools. Cancelling its scope stops the run. Raises ValueError if the stream has
        another ledger than its `Runs`.
        """
        self.steps.ledger = shared_ledger(self.steps.ledger, RUN_LEDGER.get()[1])
        RUN_LEDGER.set(("", None))  # a chat in a tool is no part of the run
        self._scope = tools.cancel_scope
        if (seconds := self.steps.guards.guards.seconds) is not None:
            self._scope.deadline = anyio.current_time() + seconds
        if self.judge is not None:
            self.judge.begin(tools, self.emit, self._refuse)

    # These methods pass events to the consumer.

    def emit(self, events: Sequence[UIEvent]) -> bool:
        """Pass events through the stages to the buffer. Return True if the source must wait before the next batch.

        If `events` is empty, the stages still return buffered events that are ready.
        """
        for stage in self._stages:
            events = stage.take(events)
        size = 0
        for event in events:
            if type(event) is not Text or len(event.text) > SMALL_TEXT:
                size += weigh(event)
        self._recorded += events
        self._recorded_size += size
        if len(self._recorded) >= BATCH or self._recorded_size > LARGE:
            self.collector.collect()
            self._recorded_size = 0
        if self.argument_rules is not None:  # after recording: the result holds the original arguments
            events = [*map(self.argument_rules.show, events)]
        is_full = self.buffer.put(events, size)
        return is_full or self.collector.is_too_large or (self.judge is not None and self.judge.is_behind)

    async def send(self, event: UIEvent) -> None:
        """Emit an event of a tool. After a `Progress` event, wait until the judge and the buffer have room."""
        self.emit((event,))
        if type(event) is Progress:
            await self.wait_for_room()

    async def wait_for_room(self) -> None:
        """Wait until the judge and the buffer have room for more events. If the result is too large, stop the run."""
        if self.collector.is_too_large and self._scope is not None and not self._scope.cancel_called:
            self._stop_reason = "size_limit"
            self._scope.cancel()
        if self.judge is not None:
            await self.judge.catch_up()
        await self.buffer.wait_for_room()

    async def wait_for_judge(self) -> None:
        """Wait until the judge has approved all text.

        If the judge refuses a piece, this never returns: the run is cancelled.
        """
        if self.judge is not None:
            await self.judge.wait_for_decisions()

    def _refuse(self) -> None:
        self.machine.end_run(GUARD)
        if self._scope is not None:
            self._scope.cancel()

    # These methods read source events and feed them to the machine.

    async def resume(self, tools: TaskGroup) -> None:
        """Run the pending calls of the run that this run resumes, or the open calls of the lost run."""
        if self.machine.awaits_outcomes:
            self.emit(await self.steps.run_calls(tools, self.send) if self.steps.executes else self.steps.end_step())
            await self.wait_for_judge()

    def restore(self, logged: LoggedRun, lost: LostRun) -> None:
        """Continue a lost run from its log, and from the outcomes that the ledger holds for its calls.

        If the turn of the open step is not complete, the caller must switch the model.
        """
        self.logged = logged
        outcomes = self.collector.restore(logged, lost.recorded)
        self.opening = self.machine.restore(logged)
        if (step := logged.open) is not None and step.is_answered:
            if step.started and not self.steps.executes:
                raise ValueError("`continue_from` has calls that have started: write tools=[...]")
            self.steps.restore(step, outcomes, lost.decisions)

    async def read(self, source: EventSource, tools: TaskGroup) -> None:
        """Read `source` to its end, and run its calls.

        With `execute="eager"`, calls run in the task group `tools` while the model still writes.
        """
        machine, steps, feed, report_stage = self.machine, self.steps, self.machine.feed, self._report_stage
        machine.source = source
        current_pace.set(self.pace)
        self.collector.read_from(source)
        batches_read = 0
        with nullcontext() if report_stage is None else report_stage.reading(source):
            async for batch in source:
                if not isinstance(batch, _BATCH_TYPES):
                    kind = type(batch).__name__
                    advice = "make a source with `streamtools.sources`, such as sources.events([...])"
                    raise UnreadableSource(f"a source must yield lists of source events, got {kind}: {advice}")
                if report_stage is not None:
                    report_stage.take_batch(batch)
                events: list[UIEvent] = []
                try:
                    for source_event in batch:
                        events += feed(source_event)
                        if machine.runnable or machine.awaits_outcomes:
                            earlier, events = events, []
                            self.emit(earlier)
                            await self.wait_for_judge()
                            self.emit(await steps.run_calls(tools, self.send))
                        elif machine.ended_step is not None:
                            steps.check_limits()
                except BaseException:
                    self.emit(events)
                    raise
                if self.emit(events):
                    await self.wait_for_room()
                if machine.stopped:
                    break
                batches_read += 1
                if not batches_read % YIELD_EVERY:
                    await anyio.lowlevel.checkpoint()
        if steps.running:  # calls of a turn whose end the source did not report
            self.emit(await steps.end())
        await self.wait_for_judge()

    # These methods end the run.

    def end(self, failure: BaseException | None) -> None:
        """Emit the events that end the run.

        `failure` is the exception that ended the run. None means that the run is complete or was stopped.
        """
        self._close_judge()
        if failure is not None:
            log.warning("stream_failed", run_id=self.machine.run_id, cause=type(failure).__qualname__)
            self.emit(self.machine.fail("the run failed on the server"))
            self.emit(self.steps.end_calls())
        elif self._scope is not None and self._scope.cancelled_caught:
            self.emit(self.steps.end_calls())
            self.emit(self.machine.stop(self._stop_reason))
        self.emit(self.machine.close())

    def close(self) -> None:
        """Emit `done` if the run has not emitted it, report the end to the observer, and close the buffer."""
        self._close_judge()
        self.emit(self.steps.end_calls())
        self.emit(self.machine.cancel())
        self.steps.check_limits()
        if self._report_stage is not None:
            self._report_stage.end()
        self.buffer.close()

    def _close_judge(self) -> None:
        """Stop the judge, and drop the text that it has not approved."""
        if self.judge is not None:
            self.judge.end()
            self.emit(())
