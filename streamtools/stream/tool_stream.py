"""The pipeline as one asynchronous iterator: source, machine and tools, with one owner.

A task of the stream reads the source, feeds the machine and runs the tools; a bounded buffer stands between it and the
consumer. So a cancelled read, a `break`, and a consumer that never comes back do not affect the run; a slow one slows
the provider. Leaving the `async with` ends the run: the tools stop, the response is closed, and `done` is sent.

The iterator is a class: an asynchronous generator would be cleaned up in the task that happens to iterate (PEP 789).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Never, Self

import anyio
from anyio.abc import TaskGroup

from streamtools.calls import ToolChoice
from streamtools.errors import ClosedError, Code, UnreadableSource
from streamtools.events import SourceError, SourceEvent, UIEvent
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import Dialects, choose_dialects, enabled_dialects
from streamtools.parsing.policies import ParserOptions
from streamtools.stream.driver import EventSource, Flag, close
from streamtools.stream.handover import LEFT_ELSEWHERE
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
from streamtools.stream.step import StepCalls
from streamtools.stream.typed_output import TypedOutput, output_type
from streamtools.tools import Runner, ToolRegistry
from streamtools.tools.approvals import Approvals
from streamtools.tools.decisions import Decidable, Decision, Question
from streamtools.tools.failures import is_stray
from streamtools.tools.guards import Guards, GuardTracker, Stop
from streamtools.tools.registry import ToolsLike
from streamtools.tools.suspension import Suspension, read_resumption
from streamtools.tools.threads import Threads
from streamtools.tools.tool_choice import check_choice, parse_choice

DEFAULT_PARSER, DEFAULT_RUNNER, DEFAULT_TEXT = ParserOptions(), RunnerOptions(), TextOptions()


class ToolStream(TypedOutput, Decidable):
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
            raise UnreadableSource(f"{type(source)!r} is no source; `streamtools.sources` makes one of a response")
        check_kind("parser", parser, ParserOptions)
        check_kind("runner", runner, RunnerOptions)
        check_kind("text", text, TextOptions)
        if text.judge is not None and runner.execute == "eager":
            raise ValueError(
                "a text judge may refuse a turn before its calls run; write execute='completed', not 'eager'"
            )
        approvals = ApprovalOptions.of(approvals)
        answer = OutputOptions.of(output)
        registry = ToolRegistry.of(tools if tools is not None else ())
        wish = parse_choice(tool_choice)
        check_choice(wish, registry.names, eager=runner.execute == "eager")
        execute = "never" if tools is None else runner.execute
        self._resumed = read_resumption(resume, approvals.decisions, runner.ledger)
        super().__init__(enabled_dialects(dialects, native_tool_calls))
        self._source = source
        self._watch = GuardTracker.of(guards)
        self._most = self._watch.guards.size
        self._executes = execute != "never"
        self._approvals = Approvals(attended=approvals.ask == "now", timeout=approvals.timeout, resumed=self._resumed)
        self._step = StepCalls(
            StreamMachine(
                dialects=dialects,
                tools=registry,
                execute=execute,
                native_tool_calls=native_tool_calls,
                self_contained=runner.self_contained,
                tool_choice=wish,
                run_id=run_id,
                output=output_type(answer.type),
                **parser_keywords(parser, text),
            ),
            choose_dialects(dialects),  # in which earlier results may have been written, too
            executes=self._executes,
            watch=self._watch,
            approvals=self._approvals,
            resumed=self._resumed,
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
            note=self._collector.new.append,
        )
        self._machine = self._step.machine
        self._have_judged(text.judge, self.run_id)
        if text.rules_in_arguments:
            self._apply_to_arguments(text)
        self._ended = Flag()
        self._scope: anyio.CancelScope | None = None
        self._bound: anyio.CancelScope  # the run is driven in it until it has to stop, for the reason `_why`
        self._why: Stop = "time_limit"
        self._task = 0  # the id of the one that has entered it
        self._tasks: TaskGroup | None = None

    @property
    def run_id(self) -> str:
        """The id of the run, as in its `start` event."""
        return self._machine.run_id

    @property
    def threads(self) -> Threads:
        """How many threads of tools could not be stopped: `left` are still at work, `dropped` ended too late."""
        return self._step.runner.threads

    @property
    def suspension(self) -> Suspension | None:
        """What the run waits for, once it has ended: the calls that somebody has to decide about; None if none."""
        return self._step.suspend(self.result.pending)

    @property
    def questions(self) -> list[Question]:
        """What waits to be decided about now, in the order in which it was asked."""
        return self._approvals.questions

    def decide(self, call_id: str, decision: Decision) -> None:
        """Say what becomes of a call that waits for it. Raises `DecisionRefused` if nothing waits for this."""
        self._approvals.decide(call_id, decision)

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._over:
            raise ClosedError("a stream is entered once")
        self._task = anyio.get_current_task().id
        self._scope = anyio.CancelScope()
        self._tasks = await anyio.create_task_group().__aenter__()
        with self._open(self._machine, self._resumed.trace if self._resumed else ""):
            self._hand_out(self._machine.start())
            self._tasks.start_soon(self._produce, self._scope)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        assert self._scope is not None
        if not self._over:
            self._scope.cancel()
        if anyio.get_current_task().id != self._task:  # on trio, the group would wait for ever
            await self.aclose()
            raise ClosedError(LEFT_ELSEWHERE)
        # The group is shown a cancellation only: it keeps asyncio's own where a scope's follows. Others it would wrap.
        is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        try:
            await self._tasks.__aexit__(kind if is_cancelled else None, error if is_cancelled else None, None)
        finally:
            if not self._over:  # asyncio may cancel a task before its first step, which then is never taken
                try:
                    await self._close_source()
                finally:
                    self._finish()
        if error is None:
            self._raise_fault()

    async def aclose(self) -> None:
        """Stop the tools, close the response, and wait until both are done. What was not handed out still is."""
        if self._scope is None:
            self._over = True
            await self._source.aclose()
        else:
            self._scope.cancel()
            await self._ended.wait()

    # The task that drives the run.

    async def _produce(self, scope: anyio.CancelScope) -> None:
        unreadable: str | None = None  # the name of what made it so
        try:
            with scope:
                async with anyio.create_task_group() as tools:
                    self._bound = tools.cancel_scope
                    if (left := self._watch.begin(now := anyio.current_time())) is not None:
                        self._bound.deadline = now + left
                    try:
                        if self._judging is not None:
                            self._judging.begin(tools, self._hand_out, self._refuse)
                        take, step, reads = self._taker(tools), self._step, await self._resume(tools)
                        while True:
                            self._machine.source = self._source
                            self._collector.read_from(self._source)
                            if reads:
                                await self._read(self._source, take, self._machine)
                                if step.running:  # eager calls of a turn that never became complete
                                    self._hand_out(await step.end())
                            reads = True
                            await self._settle()
                            following = await self._follow()
                            if following is None:
                                break
                            await self._close_source()
                            self._source = following
                        if self._judging is not None:  # while there is somebody to ask about the last text
                            self._hand_out(self._machine.close())
                    except BaseException as error:
                        if isinstance(error, Exception):
                            self._fault = error  # and the group is not shown it: it would wrap it
                        elif not is_stray(error):  # which our consumer would take for its own
                            raise
                        unreadable = type(error).__qualname__
                        tools.cancel_scope.cancel()
                self._stop_judging()
                if self._bound.cancelled_caught and unreadable is None:
                    self._hand_out(self._step.end_calls())
                    self._hand_out(self._machine.stop(self._why))
                if unreadable is not None:
                    fault = SourceError("the stream could not be read", Code.STREAM_INTERRUPTED, cause=unreadable)
                    self._hand_out(self._machine.feed(fault))
                    self._hand_out(self._step.end_calls())
                self._hand_out(self._machine.close())
        except BaseException as error:
            if not is_stray(error):  # as one that came while we were stopped
                raise
        finally:
            try:
                await self._close_source()
            finally:  # asyncio's own cancellation knows no shields
                self._finish()

    def _finish(self) -> None:
        """End the run with its one `done`, and wake all that wait."""
        self._stop_judging()
        self._hand_out(self._step.end_calls())
        self._hand_out(self._machine.cancel())
        self._step.check_limits()
        self._end()
        self._ended.set()

    def _break_off(self) -> None:
        self._why = "size_limit"
        self._bound.cancel()

    def _refuse(self) -> None:  # the judge has refused some of the text
        self._machine.refuse_text()
        self._bound.cancel()

    def _taker(self, tools: TaskGroup) -> Callable[[Sequence[SourceEvent]], Awaitable[bool] | bool]:
        """Return what takes each batch of a source; it waits only for room, and for calls, which run in `tools`."""
        machine, step, feed, hand_out = self._machine, self._step, self._machine.feed, self._hand_out

        def take(batch: Sequence[SourceEvent]) -> Awaitable[bool] | bool:
            if type(batch) is not list and not isinstance(batch, list | tuple):  # the union costs more than a delta
                raise UnreadableSource(f"a source yields lists of source events, and this one {type(batch)!r}")
            events: list[UIEvent] = []
            rest = iter(batch)
            try:
                for source_event in rest:
                    events += feed(source_event)
                    if machine.runnable or (step.running and machine.awaits_outcomes):
                        hand_out(events)
                        return run(rest)
                    if machine.ended_step is not None:
                        step.check_limits()
            except BaseException:
                hand_out(events)
                raise
            return wait() if hand_out(events) else machine.stopped

        async def run(rest: Iterator[SourceEvent]) -> bool:
            events: list[UIEvent] = []
            try:
                await self._settle()
                hand_out(await step.run_calls(tools, self._send))
                for source_event in rest:
                    events += feed(source_event)
                    if machine.runnable or (step.running and machine.awaits_outcomes):
                        hand_out(events)
                        events = []
                        await self._settle()
                        hand_out(await step.run_calls(tools, self._send))
                    elif machine.ended_step is not None:
                        step.check_limits()
            finally:
                hand_out(events)
            return await wait()

        async def wait() -> bool:
            await self._wait_for_room()
            return machine.stopped

        return take

    async def _close_source(self) -> None:
        await close(self._source, complaint="source_not_closed", run_id=self.run_id)

    # The seam: what a stream of ours that goes on, such as a chat, does otherwise. It overrides the two methods below,
    # and no other private member of this class or of `Handover`; `tests/whole/test_layers.py` has which it may use.
    # `_watch`, whose limits each step is held to, is its own to set. Both methods are called in the
    # task that drives the run: what they raise ends the run with an error and is raised to the caller, and they may be
    # cancelled wherever they wait.

    async def _resume(self, tools: TaskGroup) -> bool:
        """Run what an earlier run has left open; return whether the source is read next, and not `_follow` asked.

        While anything of it stays open, nothing more is read: what is left at the end of a run is of one run. Called
        once, before anything is read. An override awaits this one first, and answers for itself what is read.
        """
        if self._resumed is not None:
            calls = self._resumed.calls
            self._collector.resume(calls)
            self._hand_out(self._machine.resume(calls))
            if self._executes:
                self._hand_out(await self._step.run_calls(tools, self._send))
            else:
                self._hand_out(self._step.settle())
        return not self._machine.pending

    async def _follow(self) -> EventSource | None:
        """Return the source that is read next, None at the end. In a run of one request there is no other.

        Called when a source has been read to its end and what could run has been run; whether its answer was complete
        is what `may_go_on` of the machine says. An override that returns a source has found it so and said `go_on` to
        the machine, and sees to it that a run has a last request; one that changes its mind says `rest`. Whoever called
        closes the source that was read, unless the override has, and the one that is returned.
        """
        return None
