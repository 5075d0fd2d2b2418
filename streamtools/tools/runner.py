"""Runs the calls of a turn: at the same time, within limits, with exactly one outcome for each.

For each call the interface is sent `executing`, progress, and `executed` or `error`, in the order in which the tools
end; the outcomes come back in the order of the calls, as the model wants them. What a tool does wrong becomes its
outcome: a name and a code for the log, a sentence that gives nothing away for the model and the interface.

Calls begin in their order, one at a time, through one gate. A sequential tool keeps the gate until it has ended, and
begins only when nothing else is at work: what stands before it is done then, and what stands behind it has not begun.

A call that somebody has to allow, or that is carried out elsewhere, waits for that without standing in the way of the
others; or, where nobody is there to answer, it is left, with the question about it. Just before a tool begins, its call
is written down in the ledger, and one that stands there already is not run again.

A run can be cancelled at any point. What has ended by then is kept, and `settle` accounts for the rest without waiting,
so that also a cancelled turn has one outcome and one closing event for each call.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import Code, ToolCallFailed, ToolFailed
from streamtools.events import ApprovalRequested, Executing, Progress, UIEvent
from streamtools.tools.account import Account
from streamtools.tools.context import ToolContext
from streamtools.tools.decider import Decider
from streamtools.tools.decisions import Answer, Approve, Deny, Question
from streamtools.tools.definition import Tool
from streamtools.tools.failures import is_failure, loggable
from streamtools.tools.invocation import TIMEOUT, invoke, take
from streamtools.tools.ledger import CallLedger, MemoryLedger, Unknown, once
from streamtools.tools.outcome import ToolOutcome
from streamtools.tools.permissions import Need, need_of
from streamtools.tools.threads import Thread, Threads

log = structlog.get_logger(__name__)

RESULT_LIMIT = 100_000
"""Characters of one result that the model gets if nobody says otherwise."""

Send: TypeAlias = Callable[[UIEvent], Awaitable[object]]
"""Delivers an event and returns, or raises and has not delivered it."""

OnToolResult: TypeAlias = Callable[[ToolCall, ToolOutcome], object]
"""Told of each outcome before the interface is; may be async. What it raises is logged and changes nothing."""


class Tools(Protocol):
    """Where the tool of a call is looked up: a `ToolRegistry`."""

    def get(self, name: str) -> Tool | None: ...
    def find(self, name: str) -> Tool: ...


class Runner:
    """Executes calls with the tools of a registry, for one stream; several `run` at the same time share its limits.

    `stopped` is True once a tool has asked to end the run: no further call begins then. `threads` counts those that
    were left behind.
    """

    def __init__(
        self,
        registry: Tools,
        *,
        number: Callable[[], int],
        concurrency: int = 8,
        timeout: float = TIMEOUT,
        result_limit: int | None = RESULT_LIMIT,
        on_tool_result: OnToolResult | None = None,
        restore: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        state: Any = None,
        decider: Decider | None = None,
        trusted: Callable[[ToolCall], bool] = lambda call: True,
        ledger: CallLedger | None = None,
        scope: Callable[[ToolCall], str] = lambda call: "",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`number` gives each event its `seq`; `timeout` is in seconds, for tools without their own; `result_limit` is
        how many characters of a result the model gets. `restore` takes back, in the arguments of a call, what was done
        to texts that it may repeat; `state` is what tools find in their context.

        `decider` finds out about calls that need somebody's word; `trusted` tells those that nobody but the model can
        have written. Calls are written down in the `ledger` as those of the run that `scope` tells.
        """
        self.registry = registry
        self.stopped = False
        self.threads = Threads()
        self._number = number
        self._timeout = timeout
        self._result_limit = result_limit
        self._on_tool_result = on_tool_result
        self._restore = restore
        self._state = state
        self._decider = Decider() if decider is None else decider
        self._trusted = trusted
        self._ledger = MemoryLedger() if ledger is None else ledger
        self._scope = scope
        self._clock = clock
        self._places = anyio.CapacityLimiter(concurrency)
        self._gate = anyio.Lock(fast_acquire=True)
        self._busy: set[str] = set()  # ids of calls that have begun and not ended
        self._idle: anyio.Event | None = None
        self._accounts: dict[str, Account] = {}

    async def run(self, calls: Sequence[ToolCall], send: Send) -> list[ToolOutcome]:
        """Return the outcome of each call, in their order; `send` gets the events as they happen.

        A call that was left has no outcome, and neither has one that has not begun when a tool stops the run: it never
        does. What `send` raises ends the run, in an exception group. After that, and after a cancellation, there is
        `settle(calls)`.
        """
        if self._restore is not None:
            calls = [replace(call, arguments=self._restore(call.arguments)) for call in calls]
        accounts = [self._open(call) for call in calls]
        try:
            async with anyio.create_task_group() as tasks:
                for account in accounts:
                    need = await self._need_of(account.call)
                    if self.stopped:
                        break
                    if need == "nothing":
                        await self._begin(account, tasks, send)
                    else:
                        asked = anyio.Event()
                        tasks.start_soon(self._begin_when_decided, account, need, tasks, send, asked)
                        await asked.wait()
        finally:  # a task that is cancelled before its first step cannot do so itself
            for account in accounts:
                self._give_place_back(account)
                self._note_end(account.call)
        unasked = [call for call in calls if call.id not in self._decider.left]
        if self.stopped:
            unasked = [call for call in unasked if self._accounts[call.id].has_begun]
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
            account = self._accounts.get(call.id) or self._open(call)
            if account.outcome is None:
                text = f"tool {call.name[:64]!r} was cancelled before it ended"
                account.end(account.refused(Code.TOOL_CANCELLED, text))
            assert account.outcome is not None
            outcomes.append(account.outcome)
            unsent += [replace(event, seq=self._number()) for event in account.endings]
            account.endings.clear()
        return outcomes, unsent

    def _open(self, call: ToolCall) -> Account:
        account = self._accounts[call.id] = Account(call, self._result_limit, self._clock)
        return account

    # When a call may begin.

    async def _need_of(self, call: ToolCall) -> Need:
        question = self._decider.asked.get(call.id)
        asked = None if question is None else question.approval
        return await need_of(self.registry.get(call.name), call, trusted=self._trusted(call), asked=asked)

    async def _begin(self, account: Account, tasks: TaskGroup, send: Send) -> None:
        call = account.call
        async with self._gate:
            tool = self.registry.get(call.name)
            sequential = tool is not None and tool.sequential
            if sequential:
                await self._wait_until_idle()
            await self._take_place(account)
            if self.stopped:
                self._give_place_back(account)  # others stand in line, to find the same
                return
            self._busy.add(call.id)
            await send(Executing(call, seq=self._number()))
            account.has_begun = True
            tasks.start_soon(self._work, account, send)
            if sequential:
                await self._wait_until_idle()

    async def _begin_when_decided(
        self, account: Account, need: Need, tasks: TaskGroup, send: Send, asked: anyio.Event
    ) -> None:
        """Begin a call, or end it, when somebody has said what becomes of it; `asked` is set as soon as we wait."""
        try:
            await self._act(account, need, tasks, send, asked)
        finally:
            asked.set()

    async def _act(self, account: Account, need: Need, tasks: TaskGroup, send: Send, asked: anyio.Event) -> None:
        call = account.call
        if need == "native":
            text = f"tool {call.name!r} is not run for a call that is written into the text"
            await self._close(account, account.refused(Code.TOOL_DENIED, text), send)
            return

        async def tell(question: Question) -> None:
            if question.approval:
                digest = question.digest
                await send(ApprovalRequested(call, question.expires, seq=self._number(), digest=digest))
            elif self._decider.desk is not None:
                await send(Executing(call, seq=self._number()))
                account.has_begun = True
            asked.set()

        decision = await self._decider.decide(call, approval=need == "approval", tell=tell)
        match decision:
            case _ if self.stopped:
                return
            case Deny(reason):
                text = f"the call of tool {call.name!r} was denied{f': {reason}' if reason else ''}"
                outcome = await self._once(account, lambda: self._refuse(account, text))
                if outcome.error is None and not account.has_begun:  # it has been allowed before, and run
                    await send(Executing(call, seq=self._number()))
                await self._close(account, outcome, send)
            case Answer():
                if not account.has_begun:
                    await send(Executing(call, seq=self._number()))
                outcome = await self._once(account, lambda: self._take(account, decision))
                await self._close(account, outcome, send)
            case Approve() if self.registry.find(call.name).client:  # and now it has to be carried out
                await self._act(account, "result", tasks, send, asked)
            case Approve():
                await self._begin(account, tasks, send)

    async def _take_place(self, account: Account) -> None:
        place = object()
        await self._places.acquire_on_behalf_of(place)
        account.place = place

    def _give_place_back(self, account: Account) -> None:
        if account.place is not None:
            self._places.release_on_behalf_of(account.place)
            account.place = None

    async def _wait_until_idle(self) -> None:
        while self._busy:
            self._idle = anyio.Event()
            await self._idle.wait()

    def _note_end(self, call: ToolCall) -> None:
        self._busy.discard(call.id)
        if self._idle is not None and not self._busy:
            self._idle.set()
            self._idle = None

    # One call.

    async def _work(self, account: Account, send: Send) -> None:
        try:
            account.begin()
            outcome = await self._once(account, lambda: self._execute(account, send))
            await self._close(account, outcome, send)
        finally:
            self._give_place_back(account)
            self._note_end(account.call)

    async def _close(self, account: Account, outcome: ToolOutcome, send: Send) -> None:
        account.has_begun = True
        account.end(outcome)
        if outcome.stop:
            self.stopped = True
            self._decider.stop()
        self._give_place_back(account)
        await self._tell(outcome)
        while account.endings:
            await send(replace(account.endings[0], seq=self._number()))
            del account.endings[0]

    async def _once(self, account: Account, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
        """Return what comes of the call, which is not run again if it has been."""
        try:
            return await once(self._ledger, self._scope(account.call), account.call, work)
        except (ToolFailed, Unknown) as error:
            outcome = account.refused(error.code, str(error))
            _log_failure(outcome, error)
            return outcome

    async def _refuse(self, account: Account, text: str) -> ToolOutcome:
        """Return what comes of a call that was denied."""
        return account.refused(Code.TOOL_DENIED, text)

    async def _take(self, account: Account, answer: Answer) -> ToolOutcome:
        """Return what comes of a call that was carried out elsewhere."""
        call = account.call
        tool = self.registry.find(call.name)
        try:
            if answer.error is not None:
                raise ToolFailed(call.name, answer.error)
            return account.succeeded(tool, take(tool, answer.result))
        except ToolCallFailed as error:
            return account.refused(error.code, str(error))

    async def _execute(self, account: Account, send: Send) -> ToolOutcome:
        call = account.call

        async def report(progress: Any) -> None:
            await send(Progress(call.id, progress, seq=self._number()))

        try:
            tool = self.registry.find(call.name)
            context = ToolContext(call.id, call.name, state=self._state, report=report)
            if not tool.is_async:
                account.thread = Thread(self.threads, call.name, call.id)
            written = await invoke(tool, call.arguments, context, timeout=self._timeout, thread=account.thread)
        except ToolCallFailed as error:
            outcome = account.refused(error.code, str(error))
            _log_failure(outcome, error)
            return outcome
        return account.succeeded(tool, written)

    async def _tell(self, outcome: ToolOutcome) -> None:
        if self._on_tool_result is None:
            return
        try:
            told = self._on_tool_result(outcome.call, outcome)
            if inspect.isawaitable(told):
                await told
        except BaseException as error:
            if not is_failure(error):
                raise
            log.warning(
                "on_tool_result_failed", tool=outcome.call.name[:64], call_id=outcome.call.id, **loggable(error)
            )


def _log_failure(outcome: ToolOutcome, error: ToolCallFailed) -> None:
    """Log names, codes and times. No texts: they may hold what the user said, or what a tool must keep to itself."""
    log.warning(
        "tool_call_failed",
        tool=outcome.call.name[:64],
        call_id=outcome.call.id,
        code=error.code.value,
        elapsed=round(outcome.elapsed, 6),
        **({} if error.__cause__ is None else loggable(error.__cause__)),
    )
