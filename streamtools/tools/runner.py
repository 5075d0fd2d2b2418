"""Runs the calls of a turn: at the same time, within limits, with exactly one outcome for each.

For each call the interface is sent `executing`, progress, and `executed` or `error`, in the order in which the tools
end; the outcomes come back in the order of the calls, as the model wants them. What a tool does wrong becomes its
outcome: a name and a code for the log, a sentence that gives nothing away for the model and the interface.

Calls begin in their order, one at a time, through one gate. A sequential tool keeps the gate until it has ended, and
begins only when nothing else is at work: the calls before it are done then, and those behind it have not begun.

A call that somebody has to allow, or that is carried out elsewhere, waits for that without standing in the way of the
others; or, where nobody is there to answer, it is left, with the question about it. Just before a tool begins, its call
is written down in the ledger, and one that is there already is not run again.

A run can be cancelled at any point. What has ended by then is kept, and `settle` accounts for the rest without waiting,
so that also a cancelled turn has one outcome and one closing event for each call.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools import observing
from streamtools.calls import ToolCall
from streamtools.errors import Code, ToolCallFailed, ToolFailed
from streamtools.events import ApprovalRequested, Executing, Progress, UIEvent
from streamtools.logs import Logger
from streamtools.tools.approval import Answer, Approvals, Approve, Deny, Need, Question, need_of
from streamtools.tools.call import ToolContext, ToolError, ToolOutcome, is_failure
from streamtools.tools.invocation import TIMEOUT, Execution, Thread, Threads, invoke, take
from streamtools.tools.ledger import CallLedger, once
from streamtools.tools.memory_ledger import MemoryLedger
from streamtools.tools.tool import Tool

log = Logger(__name__)

RESULT_LIMIT = 100_000
"""Characters of one result that the model gets if nobody says otherwise."""

Send: TypeAlias = Callable[[UIEvent], Awaitable[object]]
"""Delivers an event and returns, or raises and has not delivered it."""

OnToolResult: TypeAlias = Callable[[ToolCall, ToolOutcome], object]
"""Gets each outcome before the interface does; may be async. What it raises is logged and changes nothing."""

OnToolError: TypeAlias = Callable[[ToolCall, BaseException], object]
"""Gets what a tool has raised, with its traceback, `ToolTimeout` if it did not end in time, and what its result raised
that cannot be written; no `ToolError`, with which a tool refuses, and no mistake of the model's. May be async. What it
raises is logged and changes nothing."""


class Tools(Protocol):
    """Where the tool of a call is looked up: a `ToolRegistry`."""

    def get(self, name: str) -> Tool | None: ...
    def find(self, name: str) -> Tool: ...


@dataclass(eq=False, repr=False, kw_only=True)
class Runner:
    """Executes calls with the tools of a registry, for one stream; several `run` at the same time share its limits.

    `number` gives each event its `seq`; `timeout` is in seconds, for tools without their own; `result_limit` is how
    many characters of a result the model gets; `state` is what tools find in their context.

    `approvals` asks about calls that need somebody's decision; `trusted` tells those that nobody but the model can have
    written. Calls are written down in the `ledger` as those of the run that `scope` tells.

    `stopped` is True once a tool has asked to end the run: no further call begins then. `threads` counts those that
    were left behind.
    """

    registry: Tools = field(kw_only=False)
    number: Callable[[], int]
    concurrency: int = 8
    timeout: float = TIMEOUT
    result_limit: int | None = RESULT_LIMIT
    on_tool_result: OnToolResult | None = None
    on_tool_error: OnToolError | None = None
    state: Any = None
    approvals: Approvals = field(default_factory=Approvals)
    trusted: Callable[[ToolCall], bool] = lambda call: True
    ledger: CallLedger | None = None
    scope: Callable[[ToolCall], str] = lambda call: ""
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self.stopped = False
        self.threads = Threads()
        self._ledger: CallLedger = MemoryLedger() if self.ledger is None else self.ledger
        self._places = anyio.CapacityLimiter(self.concurrency)
        self._gate = anyio.Lock(fast_acquire=True)
        self._busy: set[str] = set()  # ids of calls that have begun and not ended
        self._idle: anyio.Event | None = None
        self._executions: dict[str, Execution] = {}

    async def run(self, calls: Sequence[ToolCall], send: Send) -> list[ToolOutcome]:
        """Return the outcome of each call, in their order; `send` gets the events as they happen.

        A call that was left has no outcome, and neither has one that has not begun when a tool stops the run: it never
        does. What `send` raises ends the run, in an exception group. After that, and after a cancellation, there is
        `settle(calls)`.
        """
        executions = [self._open(call) for call in calls]
        try:
            async with anyio.create_task_group() as tasks:
                for each in executions:
                    call = each.call
                    question = self.approvals.asked.get(call.id)
                    asked = None if question is None else question.approval
                    each.tool = self.registry.get(call.name)
                    need = await need_of(each.tool, call, is_trusted=self.trusted, asked=asked)
                    if self.stopped:
                        break
                    if need == "nothing":
                        await self._begin(each, tasks, send)
                    else:
                        waits = anyio.Event()
                        tasks.start_soon(self._begin_when_decided, each, need, tasks, send, waits)
                        await waits.wait()
        finally:  # a task that is cancelled before its first step cannot do so itself
            for each in executions:
                self._release(each)
        unasked = [call for call in calls if call.id not in self.approvals.left]
        if self.stopped:
            unasked = [call for call in unasked if self._executions[call.id].shown]
        outcomes, unsent = self.settle(unasked)
        for event in unsent:  # of a task that was cancelled by its own tool, and not by us
            await send(event)
        return outcomes

    def settle(self, calls: Sequence[ToolCall]) -> tuple[list[ToolOutcome], list[UIEvent]]:
        """Return one outcome for each call, in order, and the closing events that are still to be sent.

        For after a run. A call that has not ended is `tool_cancelled`, and so is one that `run` never saw. To settle
        again changes no outcome and has no more events.
        """
        outcomes: list[ToolOutcome] = []
        unsent: list[UIEvent] = []
        for call in calls:
            execution = self._executions.get(call.id) or self._open(call)
            if execution.outcome is None:
                text = f"tool {call.name[:64]!r} was cancelled before it ended"
                execution.end(execution.failed(Code.TOOL_CANCELLED, text))
            assert execution.outcome is not None
            outcomes.append(execution.outcome)
            unsent += [replace(event, seq=self.number()) for event in execution.endings]
            execution.endings.clear()
        return outcomes, unsent

    def _open(self, call: ToolCall) -> Execution:
        execution = self._executions[call.id] = Execution(call, self.result_limit, self.clock)
        return execution

    # When a call may begin.

    async def _begin(self, execution: Execution, tasks: TaskGroup, send: Send) -> None:
        async with self._gate:
            sequential = execution.tool is not None and execution.tool.sequential
            if sequential:
                await self._wait_until_idle()
            place = object()
            await self._places.acquire_on_behalf_of(place)
            execution.place = place
            if self.stopped:
                self._give_place_back(execution)  # others stand in line, to find the same
                return
            self._busy.add(execution.call.id)
            await self._show(execution, send)
            tasks.start_soon(self._work, execution, tasks, send)
            if sequential:
                await self._wait_until_idle()

    async def _show(self, execution: Execution, send: Send) -> None:
        await send(Executing(execution.call, seq=self.number()))
        execution.shown = True

    async def _begin_when_decided(
        self, execution: Execution, need: Need, tasks: TaskGroup, send: Send, waits: anyio.Event
    ) -> None:
        """Begin a call, or end it, when somebody has decided about it; `waits` is set as soon as it waits for that."""
        try:
            await self._decide(execution, need, tasks, send, waits)
        finally:
            waits.set()

    async def _decide(self, execution: Execution, need: Need, tasks: TaskGroup, send: Send, waits: anyio.Event) -> None:
        call = execution.call
        if need == "native":
            text = f"tool {call.name!r} is not run for a call that is written into the text"
            await self._close(execution, execution.failed(Code.TOOL_DENIED, text), send)
            return

        async def tell(question: Question) -> None:
            if question.approval:
                digest = question.digest
                await send(ApprovalRequested(call, question.expires, seq=self.number(), digest=digest))
            elif self.approvals.attended:
                await self._show(execution, send)
            waits.set()

        async def deny(text: str) -> ToolOutcome:
            return execution.failed(Code.TOOL_DENIED, text)

        async def answer(given: Answer) -> ToolOutcome:
            tool = self.registry.find(call.name)
            try:
                if given.error is not None:
                    raise ToolFailed(call.name, given.error)
                return execution.succeeded(tool, take(tool, given.result))
            except ToolCallFailed as error:
                return execution.failed(error.code, str(error), error)

        decision = await self.approvals.decide(call, approval=need == "approval", tell=tell)
        match decision:
            case _ if self.stopped:
                return
            case Deny(reason):
                text = f"the call of tool {call.name!r} was denied{f': {reason}' if reason else ''}"
                outcome = await self._once(execution, tasks, lambda: deny(text))
                carried_out = need == "result" or outcome.error is None  # or allowed before, and run
                if carried_out and not execution.shown:
                    await self._show(execution, send)
                await self._close(execution, outcome, send)
            case Answer():
                if not execution.shown:
                    await self._show(execution, send)
                outcome = await self._once(execution, tasks, lambda: answer(decision))
                await self._close(execution, outcome, send)
            case Approve() if self.registry.find(call.name).client:  # and now it has to be carried out
                await self._decide(execution, "result", tasks, send, waits)
            case Approve():
                execution.tool = self.registry.get(call.name)
                await self._begin(execution, tasks, send)

    def _give_place_back(self, execution: Execution) -> None:
        if execution.place is not None:
            self._places.release_on_behalf_of(execution.place)
            execution.place = None

    def _release(self, execution: Execution) -> None:
        self._give_place_back(execution)
        self._busy.discard(execution.call.id)
        if self._idle is not None and not self._busy:
            self._idle.set()
            self._idle = None

    async def _wait_until_idle(self) -> None:
        while self._busy:
            self._idle = anyio.Event()
            await self._idle.wait()

    # One call.

    async def _work(self, execution: Execution, tasks: TaskGroup, send: Send) -> None:
        try:
            execution.began = self.clock()
            with observing.tool_runs(execution.call, execution.tool) as tell:
                outcome = await self._once(execution, tasks, lambda: self._execute(execution, send))
                tell(outcome)
            await self._close(execution, outcome, send)
        finally:
            self._release(execution)

    async def _execute(self, execution: Execution, send: Send) -> ToolOutcome:
        call = execution.call

        async def report(progress: Any) -> None:
            await send(Progress(call.id, progress, seq=self.number()))

        try:
            tool = execution.tool or self.registry.find(call.name)
            context = ToolContext(call.id, call.name, state=self.state, report=report)
            if not tool.is_async:
                execution.thread = Thread(self.threads, call.name, call.id)
            written = await invoke(tool, call.arguments, context, timeout=self.timeout, thread=execution.thread)
        except ToolCallFailed as error:
            return _logged(execution.failed(error.code, str(error), error))
        return execution.succeeded(tool, written)

    async def _once(
        self, execution: Execution, tasks: TaskGroup, work: Callable[[], Awaitable[ToolOutcome]]
    ) -> ToolOutcome:
        """Return what comes of the call, which is not run again if it has been."""
        call, tool = execution.call, execution.tool
        question = self.approvals.asked.get(call.id)
        until = None if question is None else question.expires or math.inf
        seconds = self.timeout if tool is None or tool.timeout is None else tool.timeout
        try:
            scope = self.scope(call)
            return await once(self._ledger, scope, call, work, tasks=tasks, until=until, seconds=seconds)
        except ToolCallFailed as error:
            return _logged(execution.failed(error.code, str(error), error))

    async def _close(self, execution: Execution, outcome: ToolOutcome, send: Send) -> None:
        execution.shown = True
        execution.end(outcome)
        if outcome.stop:
            self.stopped = True
            self.approvals.stop()
        self._give_place_back(execution)
        if self.on_tool_error is not None and outcome.exception is not None and _is_fault(outcome):
            await _tell("on_tool_error_failed", self.on_tool_error, outcome.call, outcome.exception)
        if self.on_tool_result is not None:
            await _tell("on_tool_result_failed", self.on_tool_result, outcome.call, outcome)
        while execution.endings:
            await send(replace(execution.endings[0], seq=self.number()))
            del execution.endings[0]


async def _tell(complaint: str, function: Callable[[ToolCall, Any], object], call: ToolCall, what: object) -> None:
    """Call a function of the application's, async or not; log what it raises."""
    try:
        returned = function(call, what)
        if inspect.isawaitable(returned):
            await returned
    except BaseException as error:
        if not is_failure(error):
            raise
        log.error(complaint, error, tool=call.name[:64], call_id=call.id)


def _is_fault(outcome: ToolOutcome) -> bool:
    """Return whether the tool is at fault: it raised, and not to refuse, or it took too long, or returned no value."""
    at_fault = outcome.error in (Code.TOOL_FAILED, Code.TOOL_TIMEOUT, Code.TOOL_OUTPUT)
    return at_fault and not isinstance(outcome.exception, ToolError | ToolFailed | None)


def _logged(outcome: ToolOutcome) -> ToolOutcome:
    """Log names, codes and times; the traceback of a tool that is at fault, and no arguments and results."""
    assert outcome.error is not None
    said = {"tool": outcome.call.name[:64], "call_id": outcome.call.id, "code": outcome.error.value}
    elapsed = round(outcome.elapsed, 6)
    if _is_fault(outcome) and outcome.error is not Code.TOOL_TIMEOUT:
        log.error("tool_call_failed", outcome.exception, **said, elapsed=elapsed)
    else:
        log.warning("tool_call_failed", **said, elapsed=elapsed)
    return outcome
