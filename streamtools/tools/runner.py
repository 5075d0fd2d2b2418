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
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import Code, ToolCallFailed, ToolFailed
from streamtools.events import ApprovalRequested, Executing, Progress, UIEvent, Warning
from streamtools.tools.context import ToolContext
from streamtools.tools.decider import Decider
from streamtools.tools.decisions import Answer, Approve, Deny, Question
from streamtools.tools.definition import Tool
from streamtools.tools.failures import is_failure, loggable
from streamtools.tools.invocation import TIMEOUT, invoke, take
from streamtools.tools.ledger import CallLedger, MemoryLedger, Unknown, once
from streamtools.tools.outcome import ToolOutcome, Written, message_of, shorten
from streamtools.tools.permissions import Need, need_of
from streamtools.tools.threads import Thread, Threads

if TYPE_CHECKING:
    from streamtools.tools.registry import ToolRegistry

log = structlog.get_logger(__name__)

RESULT_LIMIT = 100_000
"""Characters of one result that the model gets if nobody says otherwise."""

_OF_ERROR = 1000  # characters of an error that it gets in any case; what we say ourselves is shorter

Send: TypeAlias = Callable[[UIEvent], Awaitable[object]]
"""Delivers an event and returns, or raises and has not delivered it."""

OnToolResult: TypeAlias = Callable[[ToolCall, ToolOutcome], object]
"""Told of each outcome before the interface is; may be async. What it raises is logged and changes nothing."""


class _Account:
    """What is known of one call: when it began, its thread, how it ended, and what of that is still to be sent."""

    __slots__ = ("began", "endings", "has_begun", "outcome", "place", "thread")

    def __init__(self) -> None:
        self.has_begun = False
        self.began: float | None = None
        self.thread: Thread | None = None
        self.outcome: ToolOutcome | None = None
        self.endings: list[UIEvent] = []
        self.place: object | None = None  # what it holds of those that may work at the same time


class Runner:
    """Executes calls with the tools of a registry, for one stream; several `run` at the same time share its limits.

    `stopped` is True once a tool has asked to end the run: no further call begins then. `threads` counts those that
    were left behind.
    """

    def __init__(
        self,
        registry: ToolRegistry,
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
        self._accounts: dict[str, _Account] = {}

    async def run(self, calls: Sequence[ToolCall], send: Send) -> list[ToolOutcome]:
        """Return the outcome of each call, in their order; `send` gets the events as they happen.

        A call that was left has no outcome, and neither has one that has not begun when a tool stops the run: it never
        does. What `send` raises ends the run, in an exception group. After that, and after a cancellation, there is
        `settle(calls)`.
        """
        if self._restore is not None:
            calls = [replace(call, arguments=self._restore(call.arguments)) for call in calls]
        for call in calls:
            self._accounts[call.id] = _Account()
        try:
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    need = await self._need_of(call)
                    if self.stopped:
                        break
                    if need == "nothing":
                        await self._begin(call, tasks, send)
                    else:
                        asked = anyio.Event()
                        tasks.start_soon(self._begin_when_decided, call, need, tasks, send, asked)
                        await asked.wait()
        finally:  # a task that is cancelled before its first step cannot do so itself
            for call in calls:
                self._give_place_back(self._accounts[call.id])
                self._note_end(call)
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
            account = self._accounts.setdefault(call.id, _Account())
            if account.outcome is None:
                text = f"tool {call.name[:64]!r} was cancelled before it ended"
                self._end(account, self._refused(call, account, Code.TOOL_CANCELLED, text))
            assert account.outcome is not None
            outcomes.append(account.outcome)
            unsent += [replace(event, seq=self._number()) for event in account.endings]
            account.endings.clear()
        return outcomes, unsent

    # When a call may begin.

    async def _need_of(self, call: ToolCall) -> Need:
        question = self._decider.asked.get(call.id)
        asked = None if question is None else question.approval
        return await need_of(self.registry.get(call.name), call, trusted=self._trusted(call), asked=asked)

    async def _begin(self, call: ToolCall, tasks: TaskGroup, send: Send) -> None:
        async with self._gate:
            tool = self.registry.get(call.name)
            sequential = tool is not None and tool.sequential
            if sequential:
                await self._wait_until_idle()
            account = self._accounts[call.id]
            await self._take_place(account)
            if self.stopped:
                self._give_place_back(account)  # others stand in line, to find the same
                return
            self._busy.add(call.id)
            await send(Executing(call, seq=self._number()))
            account.has_begun = True
            tasks.start_soon(self._work, call, account, send)
            if sequential:
                await self._wait_until_idle()

    async def _begin_when_decided(
        self, call: ToolCall, need: Need, tasks: TaskGroup, send: Send, asked: anyio.Event
    ) -> None:
        """Begin a call, or end it, when somebody has said what becomes of it; `asked` is set as soon as we wait."""
        try:
            await self._act(call, need, tasks, send, asked)
        finally:
            asked.set()

    async def _act(self, call: ToolCall, need: Need, tasks: TaskGroup, send: Send, asked: anyio.Event) -> None:
        account = self._accounts[call.id]
        if need == "native":
            text = f"tool {call.name!r} is not run for a call that is written into the text"
            await self._close(account, self._refused(call, account, Code.TOOL_DENIED, text), send)
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
                outcome = await self._once(call, account, lambda: self._refuse(call, account, text))
                if outcome.error is None and not account.has_begun:  # it has been allowed before, and run
                    await send(Executing(call, seq=self._number()))
                await self._close(account, outcome, send)
            case Answer():
                if not account.has_begun:
                    await send(Executing(call, seq=self._number()))
                outcome = await self._once(call, account, lambda: self._take(call, account, decision))
                await self._close(account, outcome, send)
            case Approve() if self.registry.find(call.name).client:  # and now it has to be carried out
                await self._act(call, "result", tasks, send, asked)
            case Approve():
                await self._begin(call, tasks, send)

    async def _take_place(self, account: _Account) -> None:
        place = object()
        await self._places.acquire_on_behalf_of(place)
        account.place = place

    def _give_place_back(self, account: _Account) -> None:
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

    async def _work(self, call: ToolCall, account: _Account, send: Send) -> None:
        try:
            account.began = self._clock()
            outcome = await self._once(call, account, lambda: self._execute(call, account, send))
            await self._close(account, outcome, send)
        finally:
            self._give_place_back(account)
            self._note_end(call)

    async def _close(self, account: _Account, outcome: ToolOutcome, send: Send) -> None:
        account.has_begun = True
        self._end(account, outcome)
        if outcome.stop:
            self.stopped = True
            self._decider.stop()
        self._give_place_back(account)
        await self._tell(outcome)
        while account.endings:
            await send(replace(account.endings[0], seq=self._number()))
            del account.endings[0]

    async def _once(self, call: ToolCall, account: _Account, work: Callable[[], Awaitable[ToolOutcome]]) -> ToolOutcome:
        """Return what comes of the call, which is not run again if it has been."""
        try:
            return await once(self._ledger, self._scope(call), call, work)
        except (ToolFailed, Unknown) as error:
            outcome = self._refused(call, account, error.code, str(error))
            _log_failure(outcome, error)
            return outcome

    async def _refuse(self, call: ToolCall, account: _Account, text: str) -> ToolOutcome:
        """Return what comes of a call that was denied."""
        return self._refused(call, account, Code.TOOL_DENIED, text)

    async def _take(self, call: ToolCall, account: _Account, answer: Answer) -> ToolOutcome:
        """Return what comes of a call that was carried out elsewhere."""
        tool = self.registry.find(call.name)
        try:
            if answer.error is not None:
                raise ToolFailed(call.name, answer.error)
            return self._succeeded(call, account, tool, take(tool, answer.result))
        except ToolCallFailed as error:
            return self._refused(call, account, error.code, str(error))

    async def _execute(self, call: ToolCall, account: _Account, send: Send) -> ToolOutcome:
        async def report(progress: Any) -> None:
            await send(Progress(call.id, progress, seq=self._number()))

        try:
            tool = self.registry.find(call.name)
            context = ToolContext(call.id, call.name, state=self._state, report=report)
            if not tool.is_async:
                account.thread = Thread(self.threads, call.name, call.id)
            written = await invoke(tool, call.arguments, context, timeout=self._timeout, thread=account.thread)
        except ToolCallFailed as error:
            outcome = self._refused(call, account, error.code, str(error))
            _log_failure(outcome, error)
            return outcome
        return self._succeeded(call, account, tool, written)

    def _succeeded(self, call: ToolCall, account: _Account, tool: Tool, written: Written) -> ToolOutcome:
        return ToolOutcome(
            call=call,
            result=written.value,
            text=self._shorten(call, account, written.text, self._result_limit),
            error=None,
            message=message_of(written.value),
            elapsed=self._elapsed(account),
            stop=written.stop,
            neutralise=tool.neutralise,
        )

    def _refused(self, call: ToolCall, account: _Account, code: Code, text: str) -> ToolOutcome:
        abandoned = account.thread is not None and account.thread.is_left
        if abandoned:
            text += "; it could not be stopped, and may still be at work"
        limit = None if self._result_limit is None else max(self._result_limit, _OF_ERROR)
        # Which tools there are helps the model, and is not for the reader.
        message = f"no tool named {call.name[:64]!r}" if code is Code.UNKNOWN_TOOL else text
        return ToolOutcome(
            call=call,
            result=None,
            text=self._shorten(call, account, text, limit),
            error=code,
            message=message,
            elapsed=self._elapsed(account),
            abandoned=abandoned,
        )

    def _shorten(self, call: ToolCall, account: _Account, text: str, limit: int | None) -> str:
        """Return what the model gets of a text, and note that the interface is to be told if that is not all."""
        short = shorten(text, limit)
        if short is not text:
            account.endings.append(_too_long(call, len(text)))
        return short

    def _end(self, account: _Account, outcome: ToolOutcome) -> None:
        account.outcome = outcome
        if outcome.abandoned:
            account.endings.append(_abandoned(outcome.call))
        account.endings.append(outcome.event(0))

    def _elapsed(self, account: _Account) -> float:
        return 0.0 if account.began is None else self._clock() - account.began

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


def _abandoned(call: ToolCall) -> Warning:
    message = f"the thread of tool {call.name[:64]!r} cannot be stopped and was left behind; its result will be dropped"
    return Warning(Code.ABANDONED, message, count=1)


def _too_long(call: ToolCall, length: int) -> Warning:
    message = f"the result of tool {call.name[:64]!r} is too long for the model, which was told so instead"
    return Warning(Code.RESULT_TOO_LONG, message, count=length)


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
