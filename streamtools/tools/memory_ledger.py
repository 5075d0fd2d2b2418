"""Implements a call ledger in the memory of one process, with a maximum size per owner and in total.

An owner is a user of the application. The ledger always keeps three kinds of entries: running calls, abandoned calls,
and ended calls that a suspension may still name. An approver may send a decision about such a call twice, and the
second one must find the entry. If these entries fill the ledger, it refuses new calls. All other entries are spare: the
oldest one is deleted when space is needed.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import TypeAlias

from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused
from streamtools.tools.ledger import CLOCK_SLACK, NO_LEASE, TAKEN_OVER, Claim, Entry, OwnerViews, call_key
from streamtools.tools.results import ToolOutcome

_EntryKey: TypeAlias = tuple[str, str]  # the id of the run, and the key of the call in the run


class MemoryLedger(OwnerViews):
    """A call ledger in memory.

    It holds at most `size` calls in total. At most `per_owner` of these are calls of one owner that cannot be deleted
    yet. An ended call that a suspension names is kept until the suspension expires, for at most `keep` seconds and
    one hour. An abandoned call is kept for `keep` seconds. Other ended calls are deleted when space is needed. `clock`
    returns seconds since 1970.
    """

    lease = math.inf  # the ledger and all holders are in one process

    def __init__(
        self,
        size: int = 10_000,
        *,
        per_owner: int = 1_000,
        keep: float = 604_800,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.keep = keep
        self._size = size
        self._per_owner = per_owner
        self._clock = clock
        self._entries: dict[_EntryKey, Entry] = {}
        self._holders: dict[_EntryKey, str] = {}  # the holders of running calls
        self._counts: Counter[str] = Counter()  # numbers of entries that are not spare, by owner
        self._expiring: list[tuple[float, _EntryKey]] = []  # heap of ended entries that are not spare, by expiry
        self._spare: dict[_EntryKey, None] = {}  # spare entries, oldest first
        self._epochs: dict[str, tuple[int, float]] = {}  # epoch of each run, and when it was set

    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        """Record that the call starts, or return its entry; see `CallLedger`.

        Raises `CallRefused` if the ledger is full, or if the epoch of the claim is too old.
        """
        at, now = (scope, call_key(call)), self._clock()
        self._delete_expired(now)
        if claim.epoch or self._epochs:
            self._raise_epoch(scope, claim.epoch, now)
        if (entry := self._entries.get(at)) is not None:
            return None if claim.holder and self._holders.get(at) == claim.holder else entry
        if self._owner and self._counts[self._owner] >= self._per_owner:
            raise CallRefused(f"its owner already has {self._per_owner:,} calls in the ledger; raise `per_owner`")
        if len(self._entries) >= self._size:
            if not self._spare:
                raise CallRefused(f"the ledger already holds {self._size:,} calls; raise `size`")
            self._drop(next(iter(self._spare)))
        until = max(now, min(claim.until, now + self.keep) + CLOCK_SLACK) if claim.until else now
        held = math.inf if claim.holder else 0.0
        self._entries[at] = Entry(scope=scope, call=call, began=now, until=until, held=held, owner=self._owner)
        self._counts[self._owner] += 1
        if claim.holder:
            self._holders[at] = claim.holder
        return None

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Abandon the call if `seconds` is 0. Otherwise do nothing, because the leases of this ledger never expire."""
        at = (scope, call_key(call))
        if seconds <= 0 and self._holders.get(at) == holder:
            self._end(at, None)

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Record the outcome of a call."""
        at = (scope, call_key(outcome.call))
        if at in self._entries and self._entries[at].outcome is None:
            self._end(at, outcome)

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse calls of the run whose claim has an older epoch; see `CallLedger`."""
        self._raise_epoch(scope, epoch, self._clock())

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: Entry | None = None, limit: int = 100
    ) -> list[Entry]:
        """Return entries, oldest first; see `CallLedger`."""
        found = sorted((entry.began, at) for at, entry in self._entries.items() if self._is_mine(entry))
        start = (after.began, (after.scope, call_key(after.call))) if after else (-math.inf, ("", ""))
        page = (self._entries[at] for began, at in found if (began, at) > start and scope in (None, at[0]))
        return list(islice((entry for entry in page if not unknown or entry.is_unknown), limit))

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Record the outcome of a call whose outcome was unknown. Returns False if no such call is recorded."""
        at = (scope, call_key(outcome.call))
        entry = self._entries.get(at)
        if entry is None or not entry.is_unknown or not self._is_mine(entry):
            return False
        self._end(at, outcome)
        return True

    async def prune(self, age: float | None = None) -> int:
        """Delete old entries, and return their number; see `CallLedger`."""
        now = self._clock()
        before = now - (self.keep if age is None else age)
        old = [
            at
            for at, entry in self._entries.items()
            if self._is_mine(entry) and not entry.held and entry.until <= now
            if (entry.began if entry.ended is None else entry.ended) <= before
        ]
        for at in old:
            self._drop(at)
        self._expiring[:] = [item for item in self._expiring if item[1] in self._entries]  # in place, for all views
        heapq.heapify(self._expiring)
        return len(old)

    def _is_mine(self, entry: Entry) -> bool:
        return not self._owner or entry.owner == self._owner

    def _raise_epoch(self, scope: str, epoch: int, now: float) -> None:
        """Record the epoch of a run. Raises `CallRefused` if the run has a later epoch."""
        known, _ = self._epochs.get(scope, (0, 0.0))
        if epoch < known:
            raise CallRefused(TAKEN_OVER)
        if epoch > known:
            self._epochs.pop(scope, None)
            self._epochs[scope] = (epoch, now)

    def _end(self, at: _EntryKey, outcome: ToolOutcome | None) -> None:
        """Record that a call has ended or was abandoned. An abandoned call may get its outcome later."""
        entry, now = self._entries[at], self._clock()
        self._holders.pop(at, None)
        is_spare = outcome is not None and entry.until <= now
        ended = now if entry.ended is None else entry.ended
        self._entries[at] = replace(entry, outcome=outcome, held=0.0, ended=ended)
        if entry.ended is not None:
            return
        if is_spare:
            self._spare[at] = None
            self._discount(entry.owner)
        else:
            until = entry.until if outcome is not None else max(entry.until, entry.began + self.keep)
            heapq.heappush(self._expiring, (until, at))

    def _delete_expired(self, now: float) -> None:
        """Delete expired entries and epochs, without visiting the others."""
        while self._expiring and self._expiring[0][0] <= now:
            self._drop(heapq.heappop(self._expiring)[1])
        while self._spare and self._entries[oldest := next(iter(self._spare))].began + self.keep <= now:
            self._drop(oldest)
        while self._epochs and self._epochs[oldest_run := next(iter(self._epochs))][1] + self.keep <= now:
            del self._epochs[oldest_run]

    def _drop(self, at: _EntryKey) -> None:
        entry = self._entries.pop(at)
        if at in self._spare:
            del self._spare[at]
        else:
            self._discount(entry.owner)

    def _discount(self, owner: str) -> None:
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
