"""The protocol of call ledgers: each call is recorded before its tool starts, and again when it has ended.

A process can die between a tool's side effect and its result. A ledger that outlives the process tells the next one
that the call has ended, and how, or that it started and its outcome is unknown. `at_most_once` uses a ledger so that
no call runs twice.

The process that runs a call holds a lease on it and renews it. A second request for the same call waits for the
outcome. If the lease expires without an outcome, the outcome is unknown. Two calls are the same if they have the same
run (`scope`), id, name and arguments.
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
"""Seconds that an entry outlives the last suspension that names it: the approver's clock may lag behind the
ledger's."""

T = TypeVar("T")


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The terms under which a call starts.

    `holder` is a unique name of the process's attempt. It renews the lease while the call runs. An empty holder never
    does, so nobody waits for it. `until` is when the last suspension that names the call expires, in seconds since
    1970. `epoch` counts the processes that have driven the run; see `CallLedger.fence`.
    """

    holder: str = ""
    until: float = math.inf
    epoch: int = 0


NO_LEASE = Claim()
"""The claim of a caller that does not renew its lease."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call in a ledger.

    `held` is how many seconds remain of the holder's lease. Times are in seconds since 1970. An entry that has `ended`
    without an `outcome` was abandoned by its holder. No entry is deleted before `until`.
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
        """Return an outcome for `CallLedger.resolve`: the `result` that you have found out, or the `error`.

        Raises what serializing the result raises.
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
    """Where calls are recorded. Each method may be cancelled; its write may then have happened or not.

    An exception from `begin` fails the call, and its tool does not start.
    """

    @property
    def lease(self) -> float:
        """Seconds within which a holder renews its lease. Infinity means that no holder can die without the ledger, and
        `begin` never waits."""

    @property
    def keep(self) -> float:
        """Seconds that entries are kept. An older suspension is refused as expired."""

    def of(self, owner: str) -> Self:
        """Return a view for one owner: it records calls as the owner's, and lists and changes no other owner's."""

    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        """Record that the call starts and return None, or return the existing entry and write nothing.

        Of several concurrent callers exactly one gets None. If it calls again with the same holder, it gets None again,
        because the first response may have been lost. Raises `CallRefused` if the ledger is full or the claim's epoch
        is older than the run's.
        """

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Renew the lease for `seconds`. With 0 the holder abandons the call, and its outcome is unknown."""

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Record the outcome, also after the lease has expired. An existing outcome stays."""

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse from now on each call of the run that starts under an older epoch.

        A process that takes over a run does this before it decides that a call has not run.
        """

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: Entry | None = None, limit: int = 100
    ) -> list[Entry]:
        """Return entries, oldest first: those of one run, or of all runs.

        With `unknown`, only those whose outcome is unknown. `after` is the last entry of the previous page.
        """

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Record the outcome of a call whose outcome was unknown. Returns False if there is no such entry."""

    async def prune(self, age: float | None = None) -> int:
        """Delete entries that ended `age` seconds ago, or started then and are unknown; return how many.

        `age` defaults to `keep`. Running calls and calls that a suspension may still name are kept.
        """


class OwnerViews:
    """Implements `CallLedger.of`: a view is a shallow copy with the owner's name."""

    _owner = ""

    def of(self, owner: str) -> Self:
        """Return a view for one owner: it records calls as the owner's, and lists and changes no other owner's."""
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


# How ledgers outside the process store calls and outcomes.


def encode(value: ToolCall | ToolOutcome) -> bytes:
    """Return a call or an outcome as JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold
        return msgspec.json.encode(writable(msgspec.to_builtins(value)))


def read_entry(row: tuple[Any, ...], now: float) -> Entry:
    """Return the entry that a stored row describes at the time `now`.

    Unreadable data fails closed: an unreadable outcome makes the outcome unknown, an unreadable lease has expired.
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
