"""At most once: a ledger in which each call is written down before its tool begins.

What a tool does outside of this process cannot be undone, and no process survives everything. So a call is written down
before it is dispatched and again when it has ended. Who comes back after a crash reads there that it is done, and how,
or that it had begun and nobody knows the rest: such a call is not run again, and both the model and the interface get
that as its outcome.

Who runs a call holds a lease on it, and renews it. Whoever comes meanwhile, by a second click say, waits for the
outcome and gets the same; only a call whose holder does not come back has an unknown end.

A call is the same if it has the same id, name and arguments and belongs to the same run (`scope`).
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Protocol, Self

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused, Code, ToolCallFailed, ToolFailed, ToolTimeout
from streamtools.logs import Logger
from streamtools.tools.call import ToolOutcome, write

log = Logger(__name__)

SLACK = 3600.0
"""Seconds that an entry outlives the last suspension that names it: who decides may have a clock that is so far behind
the ledger's, and then takes the suspension for good so much longer."""

_PATIENCE = 5.0  # seconds in which an end has to be written down: a run that is stopped waits for it
_PAUSE = 0.01  # seconds between two looks at a call that another runs; each pause is twice as long as the last,
_LONGEST_PAUSE = 0.5  # and none is longer


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """On what terms a call begins.

    `holder` is unlike any other, and comes back within the ledger's `lease`; where it is empty, nobody does, and nobody
    waits. `until` is when the last suspension expires that names the call, in seconds since 1970; infinity is none.
    `epoch` counts who has driven the run, where one process takes runs over from another; see `CallLedger.fence`.
    """

    holder: str = ""
    until: float = math.inf
    epoch: int = 0


class Driven(Protocol):
    """A run that a process drives, until another takes it over. Stays inside the package."""

    run_id: str
    epoch: int
    place: str
    """The key in Redis under which its owner's token stands, which begins with the epoch."""

    async def is_lost(self) -> bool:
        """Whether another has taken it over, as far as that can be known now."""


TAKEN_OVER = "its run has been taken over by another process"

DRIVEN: ContextVar[Driven | None] = ContextVar("DRIVEN", default=None)
"""The run in whose task the calls are made, where other processes may take it over."""

_RESUMED = 1 << 30  # the epoch of calls of a run that has ended, which others resume: nobody drives that one any more

ON_NO_TERMS = Claim()
"""The claim of somebody who does not come back."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the ledger holds of a call; one without an `outcome` is not known to have ended.

    `held` is how many seconds its holder has left to come back: while there are some, the call is at work. The times
    are in seconds since 1970: one that has `ended` without an outcome was left by its holder, and none is forgotten
    before `until`.
    """

    scope: str
    call: ToolCall
    began: float
    until: float
    ended: float | None = None
    held: float = 0.0
    owner: str = ""
    outcome: ToolOutcome | None = None

    @property
    def is_at_work(self) -> bool:
        """Whether its holder may still end it."""
        return self.outcome is None and self.held > 0

    @property
    def is_unknown(self) -> bool:
        """Whether nobody runs the call, and nobody knows how it has ended."""
        return self.outcome is None and not self.held

    def with_result(self, result: object = None, *, error: str | None = None) -> ToolOutcome:
        """Return the outcome as somebody tells it who has found out: the `result`, or the `error` that came of it.

        Raises whatever writing the result as JSON raises.
        """
        written = write(result if error is None else error)
        return ToolOutcome(
            call=self.call,
            result=written.value if error is None else None,
            text=written.text,
            error=None if error is None else Code.TOOL_FAILED,
            message=error,
            elapsed=0.0,
        )


class CallLedger(Protocol):
    """Where calls are written down. What `begin` raises fails the call, which is not dispatched then; see `once`.

    Each method may be cancelled, and one that is waits for nothing more. What it was to write may be written or not.
    """

    @property
    def lease(self) -> float:
        """Seconds within which the holder of a call comes back; infinity for a ledger in memory, where it cannot die
        alone, and `begin` waits for nothing.
        """

    @property
    def keep(self) -> float:
        """Seconds that entries are kept. A suspension that is older is refused as expired, also one without an end."""

    def of(self, owner: str) -> Self:
        """Return this ledger as one owner's: what begins there is the owner's, and no other's is listed or changed."""

    async def begin(self, scope: str, call: ToolCall, claim: Claim = ON_NO_TERMS) -> Entry | None:
        """Write down that the call begins and return None; or return what is there of it, and write nothing.

        Of several that ask at the same time, exactly one gets None; it does so again if it asks again, since an answer
        may be lost. Raises `CallRefused` where there is no room, or the claim's epoch is older than the run's.
        """

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Renew the lease of a call for so many seconds; with 0, its holder leaves it and nobody knows its end."""

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Write down how a call has ended, also if its lease is over. What is written already stands."""

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse, from now on, each call of the run that begins under an older epoch.

        Who takes a run over does this before it says of any call that it was not run.
        """

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: Entry | None = None, limit: int = 100
    ) -> list[Entry]:
        """Return entries, the oldest first: those of one run, or of all; `unknown`: only those that nobody runs and
        whose end nobody knows. `after` is the last of the page before.
        """

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Write down how a call has ended whose end was unknown, and return True; False: there is no such entry."""

    async def prune(self, age: float | None = None) -> int:
        """Forget entries that ended so many seconds ago, or began where nobody knows more; return how many.

        None is `keep`. A call that somebody runs, or that a suspension may still name, is not forgotten.
        """


class Owned:
    """A ledger of which owners have views."""

    _owner = ""

    def of(self, owner: str) -> Self:
        """Return this ledger as one owner's: what begins there is the owner's, and no other's is listed or changed."""
        view = copy.copy(self)
        view._owner = owner
        return view


class Unknown(ToolCallFailed):
    """The tool had begun with this call before, and nobody knows what it has done. Stays inside the package."""

    code = Code.OUTCOME_UNKNOWN


async def once(
    ledger: CallLedger,
    scope: str,
    call: ToolCall,
    work: Callable[[], Awaitable[ToolOutcome]],
    *,
    tasks: TaskGroup,
    until: float | None,
    seconds: float,
) -> ToolOutcome:
    """Return what `work` makes of the call, written down before and after; or what was written down of it already.

    `until` is when the suspension that names the call expires, in seconds since 1970; None: the call is a new one. The
    ledger, and another that runs the call, have so many `seconds`; the lease is renewed in `tasks`.

    Raises `Unknown` for a call that had begun before, `ToolTimeout` where another does not end it in time, and
    `ToolFailed` where it could not be written down: then `work` has not been done. That its end could not be is only
    logged: the next to come finds it begun.
    """
    driven = DRIVEN.get()
    epoch = 0 if driven is None else driven.epoch if driven.run_id == scope else _RESUMED
    if driven is not None and driven.run_id == scope and await driven.is_lost():
        raise ToolFailed(call.name, f"tool {call.name[:64]!r} was not run: {TAKEN_OVER}")
    claim = Claim(holder=os.urandom(8).hex(), until=until or 0.0, epoch=epoch)
    entry = await _begin(ledger, scope, call, claim, is_new=until is None, seconds=seconds)
    if entry is not None:
        if entry.outcome is None:
            text = f"tool {call.name[:64]!r} had begun with this call before, and it is not known what it has done"
            raise Unknown(call.name, text)
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
            await _end(ledger, scope, call, claim.holder, outcome)
        finally:
            if renewing is not None:
                renewing.cancel()


async def _begin(
    ledger: CallLedger, scope: str, call: ToolCall, claim: Claim, *, is_new: bool, seconds: float
) -> Entry | None:
    """Return None once the call is ours to run, or its entry once nobody runs it."""
    name, entry, pause = f"tool {call.name[:64]!r}", None, _PAUSE
    try:
        if ledger.lease == math.inf:  # it waits for nothing, and a scope costs more than a look
            entry = await ledger.begin(scope, call, claim)
            if entry is None or not entry.is_at_work:
                return entry
        with anyio.CancelScope(deadline=anyio.current_time() + seconds):
            while (entry := await ledger.begin(scope, call, claim)) and entry.is_at_work:
                await anyio.sleep(min(pause, entry.held))
                pause = min(2 * pause, _LONGEST_PAUSE)
            return entry
        raise TimeoutError
    except CallRefused as error:
        raise ToolFailed(call.name, f"{name} was not run: {error}") from error
    except Exception as error:
        if entry is not None and isinstance(error, TimeoutError):
            text = f"{name} is run with this call elsewhere, and that has not ended within {seconds:g} seconds"
            raise ToolTimeout(call.name, text) from error
        if not is_new or entry is not None:  # others may have run it, or do
            raise Unknown(call.name, f"it could not be read whether {name} has been run with this call") from error
        raise ToolFailed(call.name, f"{name} was not run: its call could not be written down") from error


async def _renew(ledger: CallLedger, scope: str, call: ToolCall, holder: str, renewing: anyio.CancelScope) -> None:
    with renewing:
        while True:
            await anyio.sleep(ledger.lease / 3)
            try:
                with anyio.move_on_after(ledger.lease / 3):
                    await ledger.hold(scope, call, holder, ledger.lease)
            except Exception as error:  # the next time may be in time
                log.warning("lease_not_renewed", tool=call.name[:64], call_id=call.id, error=type(error).__qualname__)


async def _end(ledger: CallLedger, scope: str, call: ToolCall, holder: str, outcome: ToolOutcome | None) -> None:
    fault = "it takes too long"
    with anyio.CancelScope(deadline=anyio.current_time() + _PATIENCE, shield=True):
        try:
            if outcome is None:
                await ledger.hold(scope, call, holder, 0)
            else:
                # The traceback of an exception would keep all that has run the call for as long as the entry.
                await ledger.finish(scope, replace(outcome, exception=None))
            return
        except Exception as error:
            fault = type(error).__qualname__
        if outcome is not None:
            with contextlib.suppress(Exception):  # and it is over
                await ledger.hold(scope, call, holder, 0)
    log.error("ledger_not_written", tool=call.name[:64], call_id=call.id, error=fault)


def call_key(call: ToolCall) -> str:
    """Return what tells a call from all others of its run: its id, and a digest of its name and arguments."""
    return f"{call.id}:{call.digest}"
