"""Runs the calls of a turn: at the same time, within limits, with exactly one outcome for each.

For each call the interface is sent `executing`, progress, and `executed` or `error`, in the order in which the tools
end; the outcomes come back in the order of the calls, as the model wants them. What a tool does wrong becomes its
outcome: a name and a code for the log, a sentence that gives nothing away for the model and the interface.

A run can be cancelled at any point. What has ended by then is kept, and `settle` accounts for the rest without waiting,
so that also a cancelled turn has one outcome and one closing event for each call.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import anyio
import structlog

from streamtools.calls import ToolCall
from streamtools.errors import Code, ToolCallFailed
from streamtools.events import Error, Executed, Executing, Progress, UIEvent
from streamtools.tools.invocation import TIMEOUT, invoke, is_failure
from streamtools.tools.outcome import ToolOutcome, message_of
from streamtools.tools.registry import ToolRegistry

log = structlog.get_logger(__name__)

Send: TypeAlias = Callable[[UIEvent], Awaitable[object]]
"""Delivers an event and returns, or raises and has not delivered it."""

OnToolResult: TypeAlias = Callable[[ToolCall, ToolOutcome], object]
"""Told of each outcome before the interface is; may be async. What it raises is logged and changes nothing."""


class _Account:
    """What is known of one call: when it was taken up, how it ended, whether that was sent."""

    __slots__ = ("began", "outcome", "sent")

    def __init__(self) -> None:
        self.began: float | None = None
        self.outcome: ToolOutcome | None = None
        self.sent = False


class Runner:
    """Executes calls with the tools of a registry, for one stream; several `run` at the same time share its limit."""

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        number: Callable[[], int],
        concurrency: int = 8,
        timeout: float = TIMEOUT,
        on_tool_result: OnToolResult | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`number` gives each event its `seq`; `timeout` is in seconds, for tools without their own."""
        self.registry = registry
        self._number = number
        self._timeout = timeout
        self._on_tool_result = on_tool_result
        self._clock = clock
        self._places = anyio.CapacityLimiter(concurrency)
        self._accounts: dict[str, _Account] = {}

    async def run(self, calls: Sequence[ToolCall], send: Send) -> list[ToolOutcome]:
        """Return the outcome of each call, in their order; `send` gets the events as they happen.

        What `send` raises ends the run, in an exception group. After that, and after a cancellation, `settle(calls)`.
        """
        places: list[object] = []
        for call in calls:
            self._accounts[call.id] = _Account()
        try:
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    place = object()
                    await self._places.acquire_on_behalf_of(place)
                    places.append(place)
                    await send(Executing(call, seq=self._number()))
                    tasks.start_soon(self._work, call, send, place, places)
        finally:  # a task that is cancelled before its first step cannot give its place back itself
            for place in places:
                self._places.release_on_behalf_of(place)
        outcomes, unsent = self.settle(calls)
        for event in unsent:  # of a task that was cancelled by its own tool, and not by us
            await send(event)
        return outcomes

    def settle(self, calls: Sequence[ToolCall]) -> tuple[list[ToolOutcome], list[Executed | Error]]:
        """Return one outcome for each call, in order, and the closing events that are still to be sent.

        For after a run. A call that has not ended is `tool_cancelled`, and so is one that `run` never saw. To settle
        again changes no outcome and has no more events.
        """
        outcomes: list[ToolOutcome] = []
        unsent: list[Executed | Error] = []
        for call in calls:
            account = self._accounts.setdefault(call.id, _Account())
            if account.outcome is None:
                text = f"tool {call.name[:64]!r} was cancelled before it ended"
                account.outcome = self._refused(call, account, Code.TOOL_CANCELLED, text)
            outcomes.append(account.outcome)
            if not account.sent:
                unsent.append(account.outcome.event(self._number()))
                account.sent = True
        return outcomes, unsent

    async def _work(self, call: ToolCall, send: Send, place: object, places: list[object]) -> None:
        account = self._accounts[call.id]
        account.began = self._clock()
        account.outcome = await self._execute(call, account, send)
        places.remove(place)
        self._places.release_on_behalf_of(place)
        await self._tell(account.outcome)
        await send(account.outcome.event(self._number()))
        account.sent = True

    async def _execute(self, call: ToolCall, account: _Account, send: Send) -> ToolOutcome:
        async def report(progress: Any) -> None:
            await send(Progress(call.id, progress, seq=self._number()))

        try:
            tool = self.registry.find(call.name)
            value, text = await invoke(tool, call.arguments, timeout=self._timeout, report=report)
        except ToolCallFailed as error:
            outcome = self._refused(call, account, error.code, str(error))
            _log_failure(outcome, error)
            return outcome
        return ToolOutcome(
            call=call, result=value, text=text, error=None, message=message_of(value), elapsed=self._elapsed(account)
        )

    def _refused(self, call: ToolCall, account: _Account, code: Code, text: str) -> ToolOutcome:
        # Which tools there are helps the model, and is not for the reader.
        message = f"no tool named {call.name[:64]!r}" if code is Code.UNKNOWN_TOOL else text
        return ToolOutcome(
            call=call, result=None, text=text, error=code, message=message, elapsed=self._elapsed(account)
        )

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
            log.warning("on_tool_result_failed", tool=outcome.call.name[:64], call_id=outcome.call.id, **_where(error))


def _log_failure(outcome: ToolOutcome, error: ToolCallFailed) -> None:
    """Log names, codes and times. No texts: they may hold what the user said, or what a tool must keep to itself."""
    log.warning(
        "tool_call_failed",
        tool=outcome.call.name[:64],
        call_id=outcome.call.id,
        code=error.code.value,
        elapsed=round(outcome.elapsed, 6),
        **({} if error.__cause__ is None else _where(error.__cause__)),
    )


def _where(error: BaseException) -> dict[str, str]:
    """Return the type of an exception and the line that raised it, which is all that is safe to log of it."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    place = "" if traceback is None else f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
    return {"error": type(error).__qualname__, "raised_at": place}
