"""`ToolStream`: source, machine and tools as one asynchronous iterator.

A task of the stream reads the source, feeds the machine and runs the tools. A bounded buffer separates it from the
consumer. So a cancelled read, a `break`, or a consumer that never returns does not affect the run; a slow consumer
slows the provider. Leaving the `async with` ends the run: the tools stop, the response is closed, and `done` is sent.

The iterator is a class: the event loop would close an asynchronous generator in another task (PEP 789).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Never, Self

import anyio
from anyio.abc import TaskGroup

from streamtools.calls import ToolChoice
from streamtools.errors import ClosedError, UnreadableSource
from streamtools.events import UIEvent
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import Dialects, choose_dialects, enabled_dialects
from streamtools.parsing.options import ParserOptions
from streamtools.stream.collector import Collector
from streamtools.stream.options import (
    ApprovalOptions,
    Decisions,
    OutputOptions,
    RunnerOptions,
    StreamOptions,
    TextOptions,
    check_kind,
    parser_keywords,
    refuse_unknown,
)
from streamtools.stream.output import items_of, output_type
from streamtools.stream.reading import EventSource, close
from streamtools.stream.result import TurnResult
from streamtools.stream.step_runner import StepRunner
from streamtools.stream.stream_run import StreamRun
from streamtools.tools import ToolRegistry
from streamtools.tools.approvals import Approvals, Decidable, Decision, Question, Suspension, read_resumption
from streamtools.tools.failures import is_stray
from streamtools.tools.guards import Guards, GuardTracker
from streamtools.tools.invocation import Threads
from streamtools.tools.registry import ToolsLike
from streamtools.tools.runner import Runner
from streamtools.tools.tool_choice import check_choice, parse_choice

LEFT_ELSEWHERE = (
    "a stream must be left in the task that entered it, and this is another task; close an asynchronous generator "
    "around a stream where it is read (`async with aclosing(generator)`), or pass the stream itself to the reader"
)
DEFAULT_PARSER, DEFAULT_RUNNER, DEFAULT_TEXT = ParserOptions(), RunnerOptions(), TextOptions()


class ToolStream(Decidable):
    """One run, as an asynchronous context manager that is also the iterator of its UI events.

    `source` comes from `streamtools.sources`. `tools` is a registry, tools, or plain functions. Without tools, calls
    are reported and stay `pending`. `tool_choice` is checked on the complete turn, before a call runs.
    `native_tool_calls` says whether the model makes native calls; None means unknown. `guards` limits the run; streams
    that share a `GuardTracker` count as one run.

    `output` is the type of the answer (a pydantic model, a dataclass, a TypedDict, a JSON schema) or an
    `OutputOptions`. `parser`, `runner`, `approvals` and `text` are option objects. They say how text is read, how tools
    run, how calls are approved, and what is changed or judged before it is shown.

    Calls that need approval, and calls of client tools, end the run. `suspension` holds them. Another run continues
    with `resume` and with decisions in `approvals`. That needs a ledger that both runs share. With `ask="now"` the run
    waits for `approve`, `deny` or `answer` instead.

    An exception of the source itself, as opposed to its transport, ends the run with an error event. It is then raised
    to the consumer, or at the latest on exit. Enter and exit the stream in one task. `aclose()` may be called from any
    task: it stops the run and waits for its end.

    Raises ValueError for a value that is not allowed and for a `tool_choice` that no answer can satisfy, TypeError for
    an unknown parameter, `UnreadableSource` for an object that is no source, and `DecisionRefused` for a decision that
    does not fit.
    """

    def __init__(
        self,
        source: EventSource,
        *,
        tools: ToolsLike | None = None,
        dialects: Dialects = None,
        native_tool_calls: bool | None = None,
        tool_choice: ToolChoice | str | Mapping[str, Any] | None = "auto",
        output: Any = None,
        guards: Guards | GuardTracker | None = None,
        resume: Suspension | str | None = None,
        run_id: str | None = None,
        parser: ParserOptions = DEFAULT_PARSER,
        runner: RunnerOptions = DEFAULT_RUNNER,
        approvals: ApprovalOptions | Decisions | None = None,
        text: TextOptions = DEFAULT_TEXT,
        **unknown: Never,
    ) -> None:
        if unknown:
            refuse_unknown("ToolStream()", unknown, StreamOptions.__annotations__)
        if not (hasattr(source, "__anext__") and hasattr(source, "aclose")):
            kind = type(source).__name__
            raise UnreadableSource(f"source must be a source, got {kind}: make one with `streamtools.sources`")
        check_kind("parser", parser, ParserOptions)
        check_kind("runner", runner, RunnerOptions)
        check_kind("text", text, TextOptions)
        if text.judge is not None and runner.execute == "eager":
            raise ValueError(
                "a text judge may refuse a turn before its calls run; write execute='completed', not 'eager'"
            )
        approvals = ApprovalOptions.of(approvals)
        if text.rules_in_arguments:
            parser = replace(parser, call_deltas=False)  # rules read whole strings
        answer = OutputOptions.of(output)
        registry = ToolRegistry.of(tools if tools is not None else ())
        wish = parse_choice(tool_choice)
        check_choice(wish, registry.names, eager=runner.execute == "eager")
        execute = "never" if tools is None else runner.execute
        resumed = read_resumption(resume, approvals.decisions, runner.ledger)
        self._source = source
        self._was_read = False
        self._approvals = Approvals(attended=approvals.ask == "now", timeout=approvals.timeout, resumed=resumed)
        machine = StreamMachine(
            dialects=dialects,
            tools=registry,
            execute=execute,
            native_tool_calls=native_tool_calls,
            self_contained=runner.self_contained,
            tool_choice=wish,
            run_id=run_id,
            output=output_type(answer.type),
            **parser_keywords(parser, text),
        )
        tracker = GuardTracker.of(guards)
        judge = argument_rules = None
        if text.judge is not None:
            from streamtools.stream.text_judge import JudgeStage  # few runs have a judge

            judge = JudgeStage(text.judge, machine.run_id)
        if text.rules_in_arguments:
            from streamtools.stream.argument_rules import ArgumentRules  # loads all of the rules

            argument_rules = ArgumentRules(text.rules)
        shown_call = argument_rules.call if argument_rules is not None and text.history == "as_shown" else None
        collector = Collector(
            enabled_dialects(dialects, native_tool_calls), max_size=tracker.guards.size, shown_call=shown_call
        )
        steps = StepRunner(
            machine,
            choose_dialects(dialects),  # earlier results may have been written in any of them
            executes=execute != "never",
            guards=tracker,
            approvals=self._approvals,
            resumed=resumed,
            make_runner=partial(
                Runner,
                registry,
                concurrency=runner.concurrency,
                timeout=runner.timeout,
                result_limit=runner.result_limit,
                on_tool_result=runner.on_result,
                on_tool_error=runner.on_error,
                state=runner.state,
                ledger=runner.ledger,
            ),
            record=collector.record,
        )
        self._run = StreamRun(machine, steps, collector, judge=judge, argument_rules=argument_rules, resumed=resumed)
        self._buffer = self._run.buffer
        self._task_id = 0  # of the task that entered the stream
        self._scope: anyio.CancelScope | None = None  # around the task of the run
        self._tasks: TaskGroup | None = None
        self._finished: anyio.Event | None = None

    @property
    def run_id(self) -> str:
        """The id of the run, as in its `start` event."""
        return self._run.machine.run_id

    @property
    def result(self) -> TurnResult:
        """The result of the run. It is complete after the `async with`."""
        return self._run.collector.read()

    @property
    def output(self) -> Any:
        """The typed answer as plain data, as far as it has arrived. It is not validated, and never an instance.

        `result.output` is the validated instance, once the answer is complete and valid.
        """
        self._run.collector.collect()
        return self._run.collector.draft.value

    def items(self, kind: Any, *, path: Sequence[str | int] | None = None) -> AsyncIterator[Any]:
        """Yield the items of a list in the answer, each validated as a `kind` as soon as it closes.

        `path` is the path of the list; None means the first list of the answer. This reads the stream: other events are
        skipped. Invalid items are left out; the warning about the whole answer reports them.
        """
        return items_of(self, kind, path)

    @property
    def threads(self) -> Threads:
        """Threads of tools that could not be stopped: `left` still run, `dropped` ended too late."""
        return self._run.steps.runner.threads

    @property
    def suspension(self) -> Suspension | None:
        """The calls that wait for a decision, after the run has ended; None if no call waits."""
        return self._run.steps.suspend(self.result.pending)

    @property
    def questions(self) -> list[Question]:
        """The open questions, in the order in which they were asked."""
        return self._approvals.questions

    def decide(self, call_id: str, decision: Decision) -> None:
        """Decide about a waiting call. Raises `DecisionRefused` if the call does not wait for this decision."""
        self._approvals.decide(call_id, decision)

    # The consumer's side.

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[UIEvent]:
        return self._buffer.get()

    def take_ready(self) -> Sequence[UIEvent]:
        """Return the events that a read would not wait for, up to a limit of bytes."""
        return self._buffer.take_ready()

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._buffer.is_closed:
            raise ClosedError("a stream can be entered only once; make a new one")
        self._task_id = anyio.get_current_task().id
        self._scope = anyio.CancelScope()
        self._finished = anyio.Event()
        self._tasks = await anyio.create_task_group().__aenter__()
        with self._run.open():
            self._tasks.start_soon(self._drive, self._scope)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        assert self._scope is not None
        if not self._buffer.is_closed:
            self._scope.cancel()
        if anyio.get_current_task().id != self._task_id:  # on trio, the group would wait forever
            await self.aclose()
            raise ClosedError(LEFT_ELSEWHERE)
        # The group gets only a cancellation: it keeps asyncio's own cancellation apart from a scope's. It would wrap
        # other exceptions.
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
        """Stop the tools, close the response, and wait for both. Events that were not read can still be read."""
        if self._scope is None or self._finished is None:
            self._buffer.close()
            await self._source.aclose()
        else:
            self._scope.cancel()
            await self._finished.wait()

    # The task that drives the run.

    async def _drive(self, scope: anyio.CancelScope) -> None:
        failure: str | None = None  # the name of the exception that made the source unreadable
        try:
            with scope:
                async with anyio.create_task_group() as tools:
                    try:
                        self._run.begin(tools)
                        await self._read_sources(tools)
                    except BaseException as error:
                        if isinstance(error, Exception):
                            self._buffer.fail(error)  # the consumer gets it; the group would wrap it
                        elif not is_stray(error):  # the consumer would take a stray one for its own
                            raise
                        failure = type(error).__qualname__
                        tools.cancel_scope.cancel()
                self._run.end(failure)
        except BaseException as error:
            if not is_stray(error):
                raise
        finally:
            try:
                await self._close_source()
            finally:  # asyncio's own cancellation ignores shields
                self._finish()

    async def _read_sources(self, tools: TaskGroup) -> None:
        await self._run.resume(tools)
        while (source := await self._next_source()) is not None:
            if source is not self._source:
                await self._close_source()
                self._source = source
            await self._run.read(source, tools)
        self._run.complete()

    async def _next_source(self) -> EventSource | None:
        """Return the source to read next; None ends the run. The only method that a subclass may replace.

        It is called in the task of the run: first after the calls of an earlier run, then after each source. An
        exception ends the run with an error, and is raised to the consumer. A stream reads one source, and none while
        calls of the earlier run are pending: the pending calls of a run belong to one run.
        """
        if self._was_read or self._run.machine.pending:
            return None
        self._was_read = True
        return self._source

    async def _close_source(self) -> None:
        await close(self._source, complaint="source_not_closed", run_id=self.run_id)

    def _finish(self) -> None:
        self._run.finish()
        if self._finished is not None:
            self._finished.set()
