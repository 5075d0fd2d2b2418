"""Defines the protocol of call ledgers. A ledger records each call before its tool starts and after it has ended.

A process can die after a tool's side effect and before its result is recorded. The next process then reads the ledger.
It finds either the outcome of the call, or a call that started and whose outcome is unknown. The module `at_most_once`
uses a ledger so that no call runs twice.

The process that runs a call holds a lease on the call and renews that lease. A second request for the same call waits
for the outcome. If the lease expires without an outcome, the outcome is unknown. Two calls are the same if they have
the same run (`scope`), id, name and arguments.
"""

from __future__ import annotations

import copy
import math
from typing import Any, Protocol, Self, TypeVar

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused, Code
from streamtools.json_values import writable
from streamtools.tools.results import ToolOutcome, write

CLOCK_SLACK = 3600.0
"""Seconds that an entry is kept after the last suspension that names its call has expired.

The clock of the approver may be slower than the clock of the ledger.
"""

T = TypeVar("T")


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The terms under which a call starts.

    `holder` is a unique name for this attempt to run the call. The holder renews the lease while the call runs. An
    empty name means that no lease is renewed, so other processes do not wait for the outcome. `until` is the time when
    the last suspension that names the call expires, in seconds since 1970. 0 means that no suspension names it. `epoch`
    is the number of processes that have driven the run until now; see `CallLedger.fence`.
    """

    holder: str = ""
    until: float = math.inf
    epoch: int = 0


NO_LEASE = Claim()
"""The claim of a caller that does not renew its lease."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call in a ledger.

    `began` is when the call started. `ended` is when it ended, or None while it runs. Both are in seconds since 1970,
    and so is `until`, the time before which the entry is not deleted. `held` is how many seconds remain of the holder's
    lease. `owner` is the user that the call belongs to. `outcome` is None while it is unknown. If `ended` is set and
    `outcome` is None, the holder abandoned the call.
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
    def is_running(self) -> bool:
        """Whether the holder may still report the outcome."""
        return self.outcome is None and self.held > 0

    @property
    def is_unknown(self) -> bool:
        """Whether the call started, no process runs it any more, and its outcome is unknown."""
        return self.outcome is None and not self.held

    def with_result(self, result: object = None, *, error: str | None = None) -> ToolOutcome:
        """Return an outcome for `CallLedger.resolve`, with the `result` or the `error` that the caller has found out.

        Raises the exceptions of the serializer if the result cannot be serialized.
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
    """Records calls and their outcomes.

    Each method may be cancelled. It is then unknown whether the ledger was changed. If `begin` raises an exception, the
    call fails and its tool does not start.
    """

    @property
    def lease(self) -> float:
        """Seconds after which a lease expires unless its holder renews it.

        Infinity means that the ledger ends together with the process of every holder, and that `begin` never waits.
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
        """From now on, refuse calls of the run whose claim has an older epoch.

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

    async def prune(self, age: float | None = None) -> int:
        """Delete old entries, and return their number.

        An entry is deleted if its call ended at least `age` seconds ago. A call that never ended and has no valid lease
        is deleted if it started at least `age` seconds ago. `age` defaults to `keep`. Running calls are kept, and so
        are calls that a suspension may still name.
        """


class OwnerViews:
    """Implements `CallLedger.of`. A view is a shallow copy of the ledger with the name of its owner."""

    _owner = ""

    def of(self, owner: str) -> Self:
        """Return a view of this ledger for one user, the `owner`; see `CallLedger.of`."""
        view = copy.copy(self)
        view._owner = owner
        return view


def call_key(call: ToolCall) -> str:
    """Return the key of a call within its run: its id and a digest of its name and arguments."""
    return f"{call.id}:{call.digest}"


def taken_over() -> CallRefused:
    """Return the error for a call of a run that another process has taken over."""
    return CallRefused(TAKEN_OVER)


TAKEN_OVER = "its run has been taken over by another process"


# Conversion of calls and outcomes to JSON and back, for ledgers in databases.


def encode(value: ToolCall | ToolOutcome) -> bytes:
    """Return a call or an outcome as JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold
        return msgspec.json.encode(writable(msgspec.to_builtins(value)))


def read_entry(row: tuple[Any, ...], now: float) -> Entry:
    """Return the entry that a stored row describes at the time `now`.

    Unreadable data never allows a call to run. An outcome that cannot be read counts as unknown, and a lease that
    cannot be read counts as expired.
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
        held=max(0.0, held - now) if ended is None and isinstance(held, int | float) else 0.0,
        owner=owner,
        outcome=None if outcome is None else _decode(outcome, ToolOutcome),
    )


def _decode(written: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(written, type=kind)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return None
