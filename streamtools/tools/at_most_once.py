"""Runs each call at most once.

The call is recorded in a ledger before and after it runs. If the ledger already holds its outcome, that outcome is
returned and the call does not run.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused, Code, ToolCallFailed, ToolFailed, ToolTimeout
from streamtools.logs import Logger
from streamtools.tools.ledger import TAKEN_OVER, CallLedger, Claim, Entry
from streamtools.tools.results import ToolOutcome

log = Logger(__name__)

_FINISH_TIMEOUT_S = 5.0  # maximum time to record an outcome, even if the run is cancelled
_FIRST_POLL_S = 0.01  # first pause while another process runs the call; each further pause is twice as long
_LONGEST_POLL_S = 0.5

# Epoch for calls of an ended run that another run resumes. It is higher than every epoch of a process that drove it.
_RESUMED_EPOCH = 1 << 30


class DrivenRun(Protocol):
    """A run that this process drives and that another process may take over."""

    run_id: str
    epoch: int
    place: str
    """The Redis key of the token of the process that drives the run. The token starts with the epoch."""

    async def is_lost(self) -> bool:
        """Return whether another process is known to have taken over the run."""


DRIVEN_RUN: ContextVar[DrivenRun | None] = ContextVar("DRIVEN_RUN", default=None)
"""The run that makes the calls of the current task, or None if no other process can take over the run."""


class OutcomeUnknown(ToolCallFailed):
    """Raised for a call that started earlier and whose outcome is unknown."""

    code = Code.OUTCOME_UNKNOWN


async def run_once(
    ledger: CallLedger,
    scope: str,
    call: ToolCall,
    work: Callable[[], Awaitable[ToolOutcome]],
    *,
    tasks: TaskGroup,
    until: float | None,
    seconds: float,
) -> ToolOutcome:
    """Record the call, await `work()`, record its outcome and return it.

    If the ledger already holds the outcome of the call, return that outcome and do not start `work`.

    `until` is the time when the suspension that names the call expires, in seconds since 1970. None means that the call
    is new. `seconds` is the maximum time to wait for the ledger, or for another process that runs the call. `tasks` is
    the task group that renews the lease.

    Raises `OutcomeUnknown` if the call started earlier, or may have, and its outcome is unknown, `ToolTimeout` if
    another process runs the call and does not finish in time, and `ToolFailed` if the call could not be recorded. In
    these cases `work` has not started. A failure to record the outcome is only logged. A later attempt then raises
    `OutcomeUnknown`.
    """
    driven = DRIVEN_RUN.get()
    epoch = 0 if driven is None else driven.epoch if driven.run_id == scope else _RESUMED_EPOCH
    if driven is not None and driven.run_id == scope and await driven.is_lost():
        raise ToolFailed(call.name, f"tool {call.name[:64]!r} was not run: {TAKEN_OVER}")
    claim = Claim(holder=os.urandom(8).hex(), until=until or 0.0, epoch=epoch)
    entry = await _begin(ledger, scope, call, claim, is_new=until is None, seconds=seconds)
    if entry is not None:
        if entry.outcome is None:
            text = f"tool {call.name[:64]!r} had started with this call before, and its outcome is unknown"
            raise OutcomeUnknown(call.name, text)
        return replace(entry.outcome, call=call)
    renewing = anyio.CancelScope() if ledger.lease < math.inf else None
    if renewing is not None:
        tasks.start_soon(_renew, ledger, scope, call, claim.holder, renewing)
    outcome: ToolOutcome | None = None
    try:
        outcome = await work()
        return outcome
    finally:
        try:
            await _finish(ledger, scope, call, claim.holder, outcome)
        finally:
            if renewing is not None:
                renewing.cancel()


async def _begin(
    ledger: CallLedger, scope: str, call: ToolCall, claim: Claim, *, is_new: bool, seconds: float
) -> Entry | None:
    """Return None if this process may run the call. Otherwise wait until no process runs it, and return its entry."""
    name, entry, pause = f"tool {call.name[:64]!r}", None, _FIRST_POLL_S
    try:
        if ledger.lease == math.inf:  # a ledger in memory: skip the cancel scope, which costs more than the lookup
            entry = await ledger.begin(scope, call, claim)
            if entry is None or not entry.is_running:
                return entry
        with anyio.CancelScope(deadline=anyio.current_time() + seconds):
            while (entry := await ledger.begin(scope, call, claim)) and entry.is_running:
                await anyio.sleep(min(pause, entry.held))
                pause = min(2 * pause, _LONGEST_POLL_S)
            return entry
        raise TimeoutError
    except CallRefused as error:
        raise ToolFailed(call.name, f"{name} was not run: {error}") from error
    except Exception as error:
        if entry is not None and isinstance(error, TimeoutError):
            text = f"{name} runs with this call elsewhere and did not finish within {seconds:g} seconds"
            raise ToolTimeout(call.name, text) from error
        if not is_new or entry is not None:  # an earlier attempt or another process may have run the call
            raise OutcomeUnknown(call.name, f"the ledger cannot tell whether {name} has run with this call") from error
        raise ToolFailed(call.name, f"{name} was not run: its call could not be recorded in the ledger") from error


async def _renew(ledger: CallLedger, scope: str, call: ToolCall, holder: str, renewing: anyio.CancelScope) -> None:
    with renewing:
        while True:
            await anyio.sleep(ledger.lease / 3)
            try:
                with anyio.move_on_after(ledger.lease / 3):
                    await ledger.hold(scope, call, holder, ledger.lease)
            except Exception as error:  # the next attempt may succeed before the lease expires
                log.warning("lease_not_renewed", tool=call.name[:64], call_id=call.id, error=type(error).__qualname__)


async def _finish(ledger: CallLedger, scope: str, call: ToolCall, holder: str, outcome: ToolOutcome | None) -> None:
    """Record the outcome, or abandon the call if `outcome` is None. If the ledger fails, log the failure."""
    fault = "it takes too long"
    with anyio.CancelScope(deadline=anyio.current_time() + _FINISH_TIMEOUT_S, shield=True):
        try:
            if outcome is None:
                await ledger.hold(scope, call, holder, 0)
            else:
                # Drop the exception: its traceback would keep all frames of the call alive as long as the entry exists.
                await ledger.finish(scope, replace(outcome, exception=None))
            return
        except Exception as error:
            fault = type(error).__qualname__
        if outcome is not None:
            with contextlib.suppress(Exception):  # the first error is logged below
                await ledger.hold(scope, call, holder, 0)
    log.error("ledger_not_written", tool=call.name[:64], call_id=call.id, error=fault)
