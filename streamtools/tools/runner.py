"""Executes the calls of a turn concurrently, within limits. Each call gets at most one outcome.

For a call that runs, the interface gets the event `executing`, then progress events, then `executed` or `error`. A
refused, denied or cancelled call may get only `error`. A suspended or pending call gets no closing event. The closing
events arrive in the order in which the tools finish. The outcomes, which include failures, are returned in call order.

Calls start in order, except calls that wait for a decision. Each call acquires a lock, `_start_lock`, before it starts.
A sequential tool waits until no other tool runs, and holds the lock until it has finished.

A call that needs a decision waits for it without blocking the other calls. Without an approver, only decisions from an
earlier run are used. A call without such a decision is suspended. With a ledger, each call is recorded before its tool
starts. A recorded call runs again only if its outcome is unknown and its tool is idempotent.

A run may be cancelled at any point. `close_calls` then immediately returns an outcome for each call, and the closing
events that were not sent.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools import observing
from streamtools.calls import ToolCall
from streamtools.errors import (
    Checked,
    Code,
    ToolCallFailed,
    ToolFailed,
    ToolOutputError,
    check_function,
    check_methods,
    check_number,
)
from streamtools.events import ApprovalRequested, Executing, Progress, UIEvent, Warning
from streamtools.logs import Logger
from streamtools.tools.approvals import Answer, Approvals, Approve, Deny, Need, Question, need_of
from streamtools.tools.cancellation import call_function, is_failure
from streamtools.tools.context import ToolContext
from streamtools.tools.invocation import Thread, invoke, write_client_result
from streamtools.tools.ledger import CallLedger, OutcomeUnknown, run_once
from streamtools.tools.registry import ToolRegistry
from streamtools.tools.results import ToolError, ToolOutcome, Written
from streamtools.tools.tool import Tool

log = Logger(__name__)

_EXCERPT_LENGTH = 1000  # maximum length of the excerpt that replaces a result that is too long for the model
_ERROR_LENGTH = 1000  # an error text of up to this length is sent to the model even if `limit` is lower


@dataclass(slots=True, eq=False, repr=False)
class Execution:
    """The state of one call while it runs.

    The model gets at most `limit` characters of a result; None means no limit.
    """

    call: ToolCall
    limit: int | None
    shown: bool = False  # whether this or a lost process has sent `executing`, or the call is being closed
    began: float | None = None  # when the tool started, by `perf_counter`
    thread: Thread = field(default_factory=Thread)
    # `run` looks the tool up in the registry, and `_decide` looks it up again after an approval. None: unknown tool.
    tool: Tool | None = None
    outcome: ToolOutcome | None = None
    unsent: list[UIEvent] = field(default_factory=list)  # closing events that are not sent yet; their `seq` is 0

    def end(self, outcome: ToolOutcome) -> None:
        """Set the outcome, and add the closing events."""
        self.outcome = outcome
        if outcome.abandoned:
            thread = f"the thread of tool {self.call.name[:64]!r}"
            self.unsent.append(
                Warning(Code.ABANDONED, f"{thread} cannot be stopped; its late result will be dropped", count=1)
            )
        self.unsent.append(outcome.event(0))

    def succeeded(self, tool: Tool, written: Written) -> ToolOutcome:
        """Return the outcome of a call whose tool returned a result."""
        message = written.value.get("message") if isinstance(written.value, dict) else None
        return ToolOutcome(
            call=self.call,
            result=written.value,
            text=self._shorten(written.text, self.limit),
            message=message if isinstance(message, str) and message else None,
            elapsed=self._elapsed(),
            stop=written.stop,
            neutralize=tool.neutralize,
        )

    def failed(self, code: Code, text: str, error: ToolCallFailed | None = None) -> ToolOutcome:
        """Return the outcome of a call that failed or never ran.

        `text` is the reason. `error` is the exception. It is None for a denied or cancelled call.
        """
        abandoned = self.thread.is_abandoned
        if abandoned:
            text += "; it could not be stopped and may still be running"
        # For an unknown tool, `text` lists all tools for the model. The interface gets a message without that list.
        message = f"no tool named {self.call.name[:64]!r}" if code is Code.UNKNOWN_TOOL else text
        return ToolOutcome(
            call=self.call,
            text=self._shorten(text, None if self.limit is None else max(self.limit, _ERROR_LENGTH)),
            error=code,
            message=message,
            elapsed=self._elapsed(),
            abandoned=abandoned,
            exception=error.__cause__ if isinstance(error, ToolFailed | ToolOutputError) and error.__cause__ else error,
        )

    def _shorten(self, text: str, limit: int | None) -> str:
        """Return the text for the model. If it is shortened, add a warning for the interface."""
        if limit is None or len(text) <= limit:
            return text
        warning = f"the result of tool {self.call.name[:64]!r} is too long for the model, which gets an excerpt"
        self.unsent.append(Warning(Code.RESULT_TOO_LONG, warning, count=len(text)))
        note = f"the result has {len(text)} characters, more than the limit of {limit}; request less of it"
        excerpt = text[: min(_EXCERPT_LENGTH, limit)]
        return f"{note}. It begins: {excerpt}" if excerpt else note

    def _elapsed(self) -> float:
        return 0.0 if self.began is None else perf_counter() - self.began


RESULT_LIMIT = 100_000
"""The default limit for the characters that the model gets of one result."""

Send: TypeAlias = Callable[[UIEvent], Awaitable[object]]
"""Delivers one event. An exception means that the event was not delivered."""

OnToolResult: TypeAlias = Callable[[ToolCall, ToolOutcome], object]
"""A function, possibly async, that receives the outcome of each call that was not cancelled.

The function is called before the interface receives the closing events of the call. Its exceptions are logged.
"""


@dataclass(frozen=True, kw_only=True)
class RunnerOptions(Checked):
    """Options for running tools. Raises ValueError for a value that is out of range.

    - `execute`: when calls run. `"completed"`: after the turn is complete. `"eager"`: as soon as the call is complete,
      if it is native (with `native_tool_calls=False`: in text). `"never"`: all calls stay `pending`.
    - `concurrency`: the maximum number of tools that run at the same time.
    - `timeout`: the time limit in seconds for each tool that does not set `timeout`.
    - `state`: an object for the tools, such as the user of the request. It is the `state` of each `ToolContext`.
    - `result_limit`: the model gets an excerpt of a result with more characters. Events hold the whole result. None
      means no limit.
    - `on_result`: called as `on_result(call, outcome)` for each call that was not cancelled. Its exceptions are only
      logged.
    - `ledger`: a store for calls and their outcomes. It prevents a call from running twice. In a run of `Runs`, the
      default is the `ledger` of `Runs`.
    - `self_contained`: True if the source is an agent that executes its tools itself. The stream then rejects each call
      of the agent.
    """

    execute: Literal["completed", "eager", "never"] = "completed"
    concurrency: int = 8
    timeout: float = 60.0
    state: Any = None
    result_limit: int | None = RESULT_LIMIT
    on_result: OnToolResult | None = None
    ledger: CallLedger | None = None
    self_contained: bool = False

    def __post_init__(self) -> None:
        check_number("concurrency", self.concurrency, 1, whole=True)
        check_number("result_limit", self.result_limit, 1, whole=True, optional=True)
        check_number("timeout", self.timeout)
        check_function("on_result", self.on_result, "call", "outcome", optional=True)
        check_methods("ledger", self.ledger, "a ledger, such as SQLiteLedger(path)", "begin", "finish", optional=True)


@dataclass(eq=False, repr=False, kw_only=True)
class Runner:
    """Executes the tool calls of one stream. Concurrent executions of `run` share the limits in `options`.

    - `number` returns the `seq` of the next event. `ledger` replaces the one of `options`, of which `execute` and
      `self_contained` are ignored, too.
    - `approvals` handles calls that need a decision. `trusted` returns True if the model certainly wrote the call.
    - `scope` returns the run id under which a call is recorded.
    - `started` holds the ids of calls that a lost process has started, and whose `executing` event was sent.

    `stopped` becomes True when a tool ends the run. From then on, no call starts.
    """

    registry: ToolRegistry = field(kw_only=False)
    number: Callable[[], int]
    options: RunnerOptions = field(default_factory=RunnerOptions)
    approvals: Approvals = field(default_factory=Approvals)
    trusted: Callable[[ToolCall], bool] = lambda call: True
    scope: Callable[[ToolCall], str] = lambda call: ""
    ledger: CallLedger | None = None
    started: Collection[str] = ()

    def __post_init__(self) -> None:
        self.stopped = False
        self._start_lock = anyio.Lock(fast_acquire=True)
        self._running: set[Execution] = set()
        self._has_ended = anyio.Event()  # set when a call ends; a new event for each wait
        self._executions: dict[str, Execution] = {}

    async def run(self, calls: Sequence[ToolCall], send: Send) -> list[ToolOutcome]:
        """Execute calls, and return their outcomes in call order. `send` gets the events as they happen.

        Two kinds of calls have no outcome: suspended calls, and calls that had not started when a tool stopped the run.
        If `send` raises, the other calls are cancelled, and the exception is raised, usually in an exception group.
        After an exception or a cancellation, call `close_calls`.
        """
        executions = [self._add_execution(call) for call in calls]
        try:
            async with anyio.create_task_group() as tasks:
                for execution in executions:
                    call = execution.call
                    question = self.approvals.asked.get(call.id)
                    asked_approval = None if question is None else question.approval
                    execution.tool = self.registry.get(call.name)
                    context = ToolContext(call_id=call.id, name=call.name, state=self.options.state)
                    need = await need_of(execution.tool, call, self.trusted, asked_approval, context)
                    if self.stopped:
                        break
                    if need == "nothing":
                        await self._start(execution, tasks, send)
                    else:
                        sent = anyio.Event()
                        tasks.start_soon(self._decide, execution, need, tasks, send, sent)
                        await sent.wait()
        finally:  # needed for a task that was cancelled before its first step
            for execution in executions:
                self._end_running(execution)
        closed = [call for call in calls if call.id not in self.approvals.suspended]
        if self.stopped:
            closed = [call for call in closed if self._executions[call.id].shown]
        outcomes, unsent = self.close_calls(closed)
        for event in unsent:  # closing events of a call whose tool has cancelled the task of the call
            await send(event)
        return outcomes

    def close_calls(self, calls: Sequence[ToolCall]) -> tuple[list[ToolOutcome], list[UIEvent]]:
        """Return one outcome for each call, in order, and the closing events that have not been sent.

        Use it after `run`. A call that has not finished, or that was never passed to `run`, gets the error
        `tool_cancelled`. If this method is called again, it returns the same outcomes and no events.
        """
        outcomes: list[ToolOutcome] = []
        unsent: list[UIEvent] = []
        for call in calls:
            execution = self._executions.get(call.id) or self._add_execution(call)
            if execution.outcome is None:
                text = f"tool {call.name[:64]!r} was cancelled before it finished"
                execution.end(execution.failed(Code.TOOL_CANCELLED, text))
            assert execution.outcome is not None
            outcomes.append(execution.outcome)
            unsent += [replace(event, seq=self.number()) for event in execution.unsent]
            execution.unsent.clear()
        return outcomes, unsent

    def _add_execution(self, call: ToolCall) -> Execution:
        execution = self._executions[call.id] = Execution(call, self.options.result_limit)
        execution.shown = call.id in self.started
        return execution

    # Starting a call.

    async def _start(self, execution: Execution, tasks: TaskGroup, send: Send) -> None:
        async with self._start_lock:
            runs_alone = execution.tool is not None and execution.tool.sequential
            await self._wait_until_running(0 if runs_alone else self.options.concurrency - 1)
            if self.stopped:
                return
            self._running.add(execution)
            await self._send_executing(execution, send)
            tasks.start_soon(self._run_to_end, execution, tasks, send)
            if runs_alone:
                await self._wait_until_running(0)

    async def _send_executing(self, execution: Execution, send: Send, *, client: bool = False) -> None:
        if not execution.shown:
            await send(Executing(execution.call, seq=self.number(), client=client))
        execution.shown = True

    async def _decide(self, execution: Execution, need: Need, tasks: TaskGroup, send: Send, sent: anyio.Event) -> None:
        """Wait for a decision, then start or end the call. Set `sent` when the question is sent or not needed."""
        call = execution.call

        async def show(question: Question) -> None:
            if question.approval:
                if not self.approvals.attended and self.ledger is None:
                    advice = "to continue after the decision, write Runs(resume=…, ledger=…) or RunnerOptions(ledger=…)"
                    log.warning("approval_without_ledger", tool=call.name, advice=advice)
                if call.id not in self.approvals.shown:
                    digest = question.digest
                    await send(ApprovalRequested(call, question.expires, seq=self.number(), digest=digest))
            elif self.approvals.attended:
                await self._send_executing(execution, send, client=True)
            sent.set()

        try:
            if need == "native":
                text = f"tool {call.name!r} runs only for native calls, and this call was written in the text"
                await self._close(execution, execution.failed(Code.TOOL_DENIED, text), send)
                return
            decision = await self.approvals.ask(call, approval=need == "approval", show=show)
            if decision is None or self.stopped:
                return
            if not isinstance(decision, Approve):
                outcome = await self._run_once(execution, tasks, lambda: self._apply(execution, decision))
                # If the denied call ran earlier, the ledger returned its recorded outcome, which usually has no error.
                was_executed = need == "result" or outcome.error is None
                if was_executed and not execution.shown:
                    await self._send_executing(execution, send)
                await self._close(execution, outcome, send)
            elif self.registry.find(call.name).client:  # approved: now wait for the result from the front end
                await self._decide(execution, "result", tasks, send, sent)
            else:
                execution.tool = self.registry.get(call.name)
                await self._start(execution, tasks, send)
        finally:
            sent.set()

    async def _apply(self, execution: Execution, decision: Deny | Answer) -> ToolOutcome:
        """Return the outcome of a call that was denied or executed elsewhere."""
        name = execution.call.name
        if isinstance(decision, Deny):
            reason = f": {decision.reason}" if decision.reason else ""
            return execution.failed(Code.TOOL_DENIED, f"the call of tool {name!r} was denied{reason}")
        tool = self.registry.find(name)
        try:
            if decision.error is not None:
                raise ToolFailed(name, decision.error)
            return execution.succeeded(tool, write_client_result(tool, decision.result))
        except ToolCallFailed as error:
            return execution.failed(error.code, str(error), error)

    async def _wait_until_running(self, count: int) -> None:
        """Wait until at most `count` calls run. Only the task that has the `_start_lock` waits."""
        await anyio.lowlevel.checkpoint()  # so that the tools start in the order of their calls
        while len(self._running) > count:
            self._has_ended = anyio.Event()
            await self._has_ended.wait()

    def _end_running(self, execution: Execution) -> None:
        self._running.discard(execution)
        self._has_ended.set()

    # Running a call.

    async def _run_to_end(self, execution: Execution, tasks: TaskGroup, send: Send) -> None:
        try:
            execution.began = perf_counter()
            with observing.tool_runs(execution.call, execution.tool) as report_outcome:
                outcome = await self._run_once(execution, tasks, lambda: self._execute(execution, send))
                report_outcome(outcome)
            await self._close(execution, outcome, send)
        finally:
            self._end_running(execution)

    async def _execute(self, execution: Execution, send: Send) -> ToolOutcome:
        call = execution.call

        async def report(progress: Any) -> None:
            await send(Progress(call.id, progress, seq=self.number()))

        try:
            is_idempotent = execution.tool is not None and execution.tool.idempotent
            if call.id in self.started and self.ledger is None and not is_idempotent:
                raise OutcomeUnknown.of(call)
            tool = execution.tool or self.registry.find(call.name)
            context = ToolContext(call_id=call.id, name=call.name, state=self.options.state, report=report)
            written = await invoke(tool, call.arguments, context, timeout=self.options.timeout, thread=execution.thread)
        except ToolCallFailed as error:
            return _logged(execution.failed(error.code, str(error), error))
        if written == (None, "null", False) and not tool._yields:
            try:
                tool.read_result(None)
            except ToolOutputError:
                log.warning("tool_returned_none", tool=tool.name, advice="its type has no None: is a `return` missing?")
        return execution.succeeded(tool, written)

    async def _run_once(
        self, execution: Execution, tasks: TaskGroup, work: Callable[[], Awaitable[ToolOutcome]]
    ) -> ToolOutcome:
        """Return the outcome of `work`, or the recorded outcome if the call has already run."""
        call, tool = execution.call, execution.tool
        question = self.approvals.asked.get(call.id)
        until = None if question is None else question.expires or math.inf
        seconds = self.options.timeout if tool is None or tool.timeout is None else tool.timeout
        try:
            return await run_once(
                self.ledger,
                self.scope(call),
                call,
                work,
                tasks=tasks,
                until=until,
                seconds=seconds,
                is_idempotent=tool is not None and tool.idempotent,
            )
        except ToolCallFailed as error:
            return _logged(execution.failed(error.code, str(error), error))

    async def _close(self, execution: Execution, outcome: ToolOutcome, send: Send) -> None:
        execution.shown = True
        execution.end(outcome)
        if outcome.stop:
            self.stopped = True
            self.approvals.stop()
        self._end_running(execution)
        if self.options.on_result is not None:
            await _notify(self.options.on_result, outcome)
        while execution.unsent:
            await send(replace(execution.unsent[0], seq=self.number()))
            del execution.unsent[0]


async def _notify(on_result: OnToolResult, outcome: ToolOutcome) -> None:
    """Call `on_result`, which may be async. Its exceptions are logged."""
    call = outcome.call
    try:
        await call_function("on_result", on_result, call, outcome)
    except BaseException as error:
        if not is_failure(error):
            raise
        log.error("on_tool_result_failed", error, tool=call.name[:64], call_id=call.id)


def _logged(outcome: ToolOutcome) -> ToolOutcome:
    """Return the outcome, and log it without arguments or results.

    The log has a traceback for a failure of the ledger, and for a bug of the tool: an invalid return value, or any
    exception except `ToolError`.
    """
    assert outcome.error is not None
    values: dict[str, Any] = {"tool": outcome.call.name[:64], "call_id": outcome.call.id, "code": outcome.error.value}
    values["parameters"] = getattr(outcome.exception, "parameters", ()) or None
    if outcome.error is Code.UNKNOWN_TOOL:  # the text lists the tools, and suggests one
        values["advice"] = outcome.text[:300]
    elapsed = round(outcome.elapsed, 6)
    without_cause = isinstance(outcome.exception, OutcomeUnknown) and outcome.exception.__cause__ is None
    is_expected = without_cause or isinstance(outcome.exception, ToolError | ToolFailed | None)
    if outcome.error in (Code.TOOL_FAILED, Code.TOOL_OUTPUT, Code.OUTCOME_UNKNOWN) and not is_expected:
        log.error("tool_call_failed", outcome.exception, **values, elapsed=elapsed)
    else:
        log.warning("tool_call_failed", **values, elapsed=elapsed)
    return outcome
