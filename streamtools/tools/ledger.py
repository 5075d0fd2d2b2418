"""Prevents a call from running twice. A ledger records each call before its tool starts and after it has ended.

A process can die after a tool's side effect and before the result is in the history. The next process then reads the
ledger. There it finds either the outcome of the call, or a call that started and whose outcome is unknown. `run_once`
uses a ledger so that no call runs twice. After an unknown outcome, only a call of an idempotent tool runs again.

The process that runs a call holds a lease on the call and renews that lease. A second request for the same call waits
for the outcome. If the lease expires without an outcome, the outcome is unknown. Two calls are the same if they have
the same run (`scope`), id, name and arguments.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Protocol, Self, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused, Checked, Code, ToolCallFailed, ToolFailed, ToolTimeout, check_number
from streamtools.logs import Logger
from streamtools.tools.results import ToolOutcome, write

log = Logger(__name__)

CLOCK_SLACK = 3600.0
"""How many seconds an entry is kept after the expiry of the last suspension that names its call.

The clock of the approver may be slower than the clock of the ledger.
"""

T = TypeVar("T")


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The terms under which a call starts.

    `holder` is a unique name for this attempt to run the call. The holder renews the lease while the call runs. An
    empty name means that no lease is renewed, so other processes do not wait for the outcome. `until` is the time when
    the last suspension that names the call expires, in seconds since 1970. 0 means that no suspension names it. `epoch`
    is the number of processes that have executed ("driven") the run until now; see `CallLedger.fence`.
    """

    holder: str = ""
    until: float = math.inf
    epoch: int = 0


NO_LEASE = Claim()
"""The claim of a caller that does not renew its lease."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call in a ledger.

    `began` is when the call started. `ended` is when it ended, or None if no end is recorded. Both are in seconds since
    1970, and so is `until`, the time before which the entry is not deleted. `lease_left` is how many seconds remain of
    the holder's lease. `owner` is the user that the call belongs to. `outcome` is None while it is unknown. If `ended`
    is set and `outcome` is None, the holder abandoned the call, or the stored outcome cannot be read.
    """

    scope: str
    call: ToolCall
    began: float
    until: float
    ended: float | None = None
    lease_left: float = 0.0
    owner: str = ""
    outcome: ToolOutcome | None = None

    @property
    def is_running(self) -> bool:
        """Whether the lease is valid and no outcome is recorded."""
        return self.outcome is None and self.lease_left > 0

    @property
    def is_unknown(self) -> bool:
        """Whether the call started, no process runs it any more, and its outcome is unknown."""
        return self.outcome is None and not self.lease_left

    def with_result(self, result: object = None, *, error: str | None = None) -> ToolOutcome:
        """Return an outcome for `CallLedger.resolve`, with the `result` or the `error` that the caller has found out.

        Raises the exceptions of the serializer if the result cannot be serialized.
        """
        if error is not None:
            return ToolOutcome(call=self.call, text=write(error).text, error=Code.TOOL_FAILED, message=error)
        written = write(result)
        return ToolOutcome(call=self.call, result=written.value, text=written.text)


class CallLedger(Protocol):
    """Records calls and their outcomes.

    Each method may be cancelled. It is then unknown whether the ledger was changed. If `begin` raises an exception, the
    call fails and its tool does not start.
    """

    @property
    def lease(self) -> float:
        """Seconds after which a lease expires unless its holder renews it.

        Infinity means that leases are not renewed, because the ledger ends together with the process of every holder.
        """

    @property
    def keep(self) -> float:
        """Seconds that entries are kept. A suspension that is older than this is refused as expired."""

    def of(self, owner: str) -> Self:
        """Return a view of this ledger for one user, the `owner`.

        The view records calls for this owner. It lists and changes only calls of this owner.
        """

    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        """Record that the call starts and return None. If the call has an entry, return it and change nothing.

        If several callers begin the same call concurrently, exactly one of them gets None. That caller gets None again
        if it repeats the request with the same holder, because the first response may have been lost. Raises
        `CallRefused` if the ledger is full, or if the epoch of the claim is older than the epoch of the run.
        """

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Renew the lease for `seconds`. With 0, the holder abandons the call, and the outcome becomes unknown."""

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Record the outcome, even after the lease has expired. An outcome that is already recorded is kept."""

    async def fence(self, scope: str, epoch: int) -> None:
        """From now on, refuse calls of the run if their claim has an older epoch.

        A process that takes over a run calls this method first. Only then can it conclude from a missing entry that a
        call has not run.
        """

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: Entry | None = None, limit: int = 100
    ) -> list[Entry]:
        """Return at most `limit` entries, oldest first.

        `scope` is the id of a run; None returns the entries of all runs. With `unknown=True`, only entries with an
        unknown outcome are returned. `after` is the last entry of the previous page.
        """

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Record the outcome of a call whose outcome was unknown. Returns False if no such call is recorded."""


class OwnerViews(Checked):
    """Implements `CallLedger.of`. A view is a shallow copy of the ledger with the name of its owner.

    Raises ValueError for a `lease` or a `keep`, in seconds, that is not a positive number.
    """

    _owner = ""
    _clock: Callable[[], float] | None = None
    """A function that returns seconds since 1970. Tests set it. By default, times come from the place of the calls."""

    def __init__(self, *, lease: float, keep: float) -> None:
        check_number("lease", lease)
        check_number("keep", keep)
        self.origin = object()  # all views of one ledger have the same one
        self.lease = lease
        self.keep = keep

    def of(self, owner: str) -> Self:
        """Return a view of this ledger for one user, the `owner`; see `CallLedger.of`."""
        view = object.__new__(type(self))  # `Checked` lets no object be made without the arguments of its constructor
        vars(view).update(vars(self), _owner=owner)
        return view


def call_key(call: ToolCall) -> str:
    """Return the key of a call within its run: its id and a digest of its name and arguments."""
    return f"{call.id}:{call.digest}"


# Running a call.

_FINISH_TIMEOUT_S = 5.0  # maximum time to record an outcome, even if the run is cancelled
_FIRST_POLL_S = 0.01  # first pause while another process runs the call; each further pause is twice as long
_LONGEST_POLL_S = 0.5

# Epoch for calls of an ended run that another run resumes. It is higher than every epoch of a process that drove it.
_RESUMED_EPOCH = 1 << 30

TAKEN_OVER = "its run has been taken over by another process"


class RecoverableRun(Protocol):
    """A run that this process drives and that another process may take over."""

    run_id: str
    epoch: int
    meta_key: str
    """The key of a Redis hash. Its field `token` names the driving process: `"<epoch>:<process id>"`."""

    async def is_lost(self) -> bool:
        """Return whether another process is known to have taken over the run."""


RECOVERABLE_RUN: ContextVar[RecoverableRun | None] = ContextVar("RECOVERABLE_RUN", default=None)
"""The run that makes the calls of the current task, or None if no other process can take over the run."""
RUN_LEDGER: ContextVar[tuple[str, CallLedger | None]] = ContextVar("RUN_LEDGER", default=("", None))
"""The id for the stream of the run that the current task drives, and the ledger of its `Runs`.

The id is empty if the stream continues a run, and so has its id. In the run's tools, the value is `("", None)`."""


def shared_ledger(given: CallLedger | None, shared: CallLedger | None) -> CallLedger | None:
    """Return the ledger of a chat: the one that it was `given`, or the one of its `Runs`. Raises ValueError for two."""
    origins = {getattr(each, "origin", None) for each in (given, shared) if each is not None}
    if len(origins) > 1:
        advice = "Pass the ledger only to Runs(ledger=…), and not to RunnerOptions."
        raise ValueError(f"The chat has another ledger than its `Runs`, so a call could run twice. {advice}")
    return shared if given is None else given


class OutcomeUnknown(ToolCallFailed):
    """Raised for a call that may have started earlier and whose outcome is unknown."""

    code = Code.OUTCOME_UNKNOWN

    @classmethod
    def of(cls, call: ToolCall) -> OutcomeUnknown:
        """Return the error of a call that has started before."""
        return cls(call.name, f"tool {call.name[:64]!r} was started for this call before, and its outcome is unknown")


async def entries_of(ledger: CallLedger, *scopes: str) -> dict[str, Entry]:
    """Return the entries of all calls of these runs in the ledger, by the key of the call."""
    found: dict[str, Entry] = {}
    for scope in scopes:
        page = await ledger.entries(scope)
        while page:
            found |= {call_key(entry.call): entry for entry in page}
            page = await ledger.entries(scope, after=page[-1])
    return found


async def run_once(
    ledger: CallLedger | None,
    scope: str,
    call: ToolCall,
    work: Callable[[], Awaitable[ToolOutcome]],
    *,
    tasks: TaskGroup,
    until: float | None,
    seconds: float,
    is_idempotent: bool = False,
) -> ToolOutcome:
    """Record the call, await `work()`, record its outcome and return it.

    If the ledger already holds the outcome of the call, return that outcome and do not start `work`. Without a ledger,
    only await `work()` and return its outcome.

    `until` is the time when the suspension that names the call expires, in seconds since 1970. None means that the call
    is new. `seconds` is the maximum time to wait for the ledger, or for another process that runs the call. `tasks` is
    the task group that renews the lease.

    Raises `OutcomeUnknown` if the call may have started earlier, and its outcome is unknown. With `is_idempotent=True`,
    a call whose entry has no outcome runs again instead. Raises `ToolTimeout` if another process runs the call and does
    not finish in time. Raises `ToolFailed` if the call could not be recorded, or if its run was taken over. In all
    these cases, `work` has not started. A failure to record the outcome is only logged. A later attempt then finds no
    outcome.
    """
    driven = RECOVERABLE_RUN.get()
    epoch = 0 if driven is None else driven.epoch if driven.run_id == scope else _RESUMED_EPOCH
    if driven is not None and driven.run_id == scope and await driven.is_lost():
        raise ToolFailed(call.name, f"tool {call.name[:64]!r} was not run: {TAKEN_OVER}")
    if ledger is None:
        return await work()
    claim = Claim(holder=os.urandom(8).hex(), until=until or 0.0, epoch=epoch)
    entry = await _begin(ledger, scope, call, claim, is_new=until is None, seconds=seconds)
    if entry is not None and entry.outcome is not None:
        return replace(entry.outcome, call=call)
    if entry is not None and not is_idempotent:
        raise OutcomeUnknown.of(call)
    renewing = anyio.CancelScope()
    if ledger.lease < math.inf:
        tasks.start_soon(_renew, ledger, scope, call, claim.holder, renewing)
    outcome: ToolOutcome | None = None
    try:
        outcome = await work()
        return outcome
    finally:
        try:
            await _finish(ledger, scope, call, claim.holder, outcome)
        finally:
            renewing.cancel()


async def _begin(
    ledger: CallLedger, scope: str, call: ToolCall, claim: Claim, *, is_new: bool, seconds: float
) -> Entry | None:
    """Return None if this process may run the call. Otherwise wait until no process runs it, and return its entry."""
    name, entry, pause = f"tool {call.name[:64]!r}", None, _FIRST_POLL_S
    try:
        with anyio.CancelScope(deadline=anyio.current_time() + seconds):
            while (entry := await ledger.begin(scope, call, claim)) and entry.is_running:
                await anyio.sleep(min(pause, entry.lease_left))
                pause = min(2 * pause, _LONGEST_POLL_S)
            return entry
        raise TimeoutError
    except CallRefused as error:
        raise ToolFailed(call.name, f"{name} was not run: {error}") from error
    except Exception as error:
        if entry is not None and isinstance(error, TimeoutError):
            text = f"{name} runs for this call in another process and did not finish within {seconds:g} seconds"
            raise ToolTimeout(call.name, text) from error
        if not is_new or entry is not None:  # an earlier attempt or another process may have run the call
            raise OutcomeUnknown(call.name, f"the ledger cannot tell whether {name} has run for this call") from error
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
    fault = "it took too long"
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


def read_entry(row: tuple[Any, ...], now: float) -> Entry:
    """Return the entry that a stored row describes at the time `now`.

    Unreadable data never allows a call to run, except a call of an idempotent tool. An outcome that cannot be read
    counts as unknown, and a lease that cannot be read counts as expired.
    """
    scope, key, owner, call, _, held, until, began, ended, outcome = row
    if ended is None and outcome is not None:
        ended = began
    return Entry(
        scope=scope,
        call=_decode(call, ToolCall) or ToolCall(id=key.rpartition(":")[0], name="", arguments={}, dialect=""),
        began=began,
        until=until,
        ended=ended,
        lease_left=max(0.0, held - now) if ended is None and isinstance(held, int | float) else 0.0,
        owner=owner,
        outcome=None if outcome is None else _decode(outcome, ToolOutcome),
    )


def _decode(written: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(written, type=kind)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return None
