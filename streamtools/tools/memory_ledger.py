"""A ledger that is forgotten with the process, and that nobody can fill for the others.

What has to be kept is kept: a call that has begun, one that was left in the middle, and one that has ended while a
suspension may still name it, since a decision that is replayed must find it. These count, for each owner and in all,
and whoever has no room left is refused. What nobody can name any more only lies there while there is room.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from itertools import islice
from typing import TypeAlias

from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused
from streamtools.tools.call import ToolOutcome
from streamtools.tools.ledger import ON_NO_TERMS, SLACK, TAKEN_OVER, Claim, Entry, Owned, call_key

_At: TypeAlias = tuple[str, str]  # the run, and what tells the call from its others


class MemoryLedger(Owned):
    """A ledger of one process. It holds `size` calls in all, and `per_owner` of each owner that `of` names.

    A call that has ended is kept until the suspension that names it has expired, at most `keep` seconds from its
    beginning, and so is one that was left; other calls that have ended make room for new ones. `clock` tells seconds
    since 1970.
    """

    lease = math.inf  # who has begun a call here cannot die without the ledger

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
        self._entries: dict[_At, Entry] = {}
        self._holders: dict[_At, str] = {}  # of those that are at work
        self._known: dict[int, _At] = {}  # and where they are, by the ids of the objects: a digest is not for nothing
        self._counts: dict[str, int] = {}  # how many an owner has that count
        self._expiring: list[tuple[float, _At]] = []  # a heap of those that count and have ended, by when they go
        self._spare: dict[_At, None] = {}  # those that count no more, the oldest first
        self._epochs: dict[str, tuple[int, float]] = {}  # of runs, and since when, the oldest first

    async def begin(self, scope: str, call: ToolCall, claim: Claim = ON_NO_TERMS) -> Entry | None:
        """Write down that the call begins, or return what is there of it. Raises `CallRefused` where it is full."""
        at, now = (scope, call_key(call)), self._clock()
        self._forget(now)
        if claim.epoch or self._epochs:
            self._raise(scope, claim.epoch, now)
        if (entry := self._entries.get(at)) is not None:
            return None if claim.holder and self._holders.get(at) == claim.holder else entry
        if self._owner and self._counts.get(self._owner, 0) >= self._per_owner:
            raise CallRefused(f"its owner has {self._per_owner:,} calls in the ledger, which are all (`per_owner`)")
        if len(self._entries) >= self._size:
            if not self._spare:
                raise CallRefused(f"there are {self._size:,} calls in the ledger, which are all (`size`)")
            self._drop(next(iter(self._spare)))
        until = max(now, min(claim.until, now + self.keep) + SLACK) if claim.until else now
        held = math.inf if claim.holder else 0.0
        self._entries[at] = Entry(scope=scope, call=call, began=now, until=until, held=held, owner=self._owner)
        self._known[id(call)] = at  # the entry holds it, so that no other has this id
        if self._owner:
            self._count(self._owner, 1)
        if claim.holder:
            self._holders[at] = claim.holder
        return None

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Leave a call, with no `seconds`; otherwise it is held anyway."""
        at = (scope, call_key(call))
        if seconds <= 0 and self._holders.get(at) == holder:
            self._end(at, None)

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Write down how a call has ended."""
        at = self._known.get(id(outcome.call))
        if at is None or at[0] != scope:
            at = (scope, call_key(outcome.call))
        if at in self._entries and self._entries[at].outcome is None:
            self._end(at, outcome)

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse each call of the run that begins under an older epoch."""
        self._raise(scope, epoch, self._clock())

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: Entry | None = None, limit: int = 100
    ) -> list[Entry]:
        """Return entries, the oldest first; see `CallLedger`."""
        found = sorted((entry.began, at) for at, entry in self._entries.items() if self._is_mine(entry))
        start = (after.began, (after.scope, call_key(after.call))) if after else (-math.inf, ("", ""))
        page = (self._entries[at] for began, at in found if (began, at) > start and scope in (None, at[0]))
        return list(islice((each for each in page if not unknown or each.is_unknown), limit))

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Write down how a call has ended whose end was unknown, and return whether there is one."""
        at = (scope, call_key(outcome.call))
        entry = self._entries.get(at)
        if entry is None or not entry.is_unknown or not self._is_mine(entry):
            return False
        self._end(at, outcome)
        return True

    async def prune(self, age: float | None = None) -> int:
        """Forget what ended, or began, so many seconds ago, and nobody runs or can name; return how many."""
        now = self._clock()
        before = now - (self.keep if age is None else age)
        gone = [
            at
            for at, entry in self._entries.items()
            if self._is_mine(entry) and not entry.held and entry.until <= now
            if (entry.began if entry.ended is None else entry.ended) <= before
        ]
        for at in gone:
            self._drop(at)
        self._expiring[:] = [each for each in self._expiring if each[1] in self._entries]  # all views share it
        heapq.heapify(self._expiring)
        return len(gone)

    def _is_mine(self, entry: Entry) -> bool:
        return not self._owner or entry.owner == self._owner

    def _raise(self, scope: str, epoch: int, now: float) -> None:
        """Take note of the epoch of a run; raise `CallRefused` if it has a later one."""
        known, _ = self._epochs.get(scope, (0, 0.0))
        if epoch < known:
            raise CallRefused(TAKEN_OVER)
        if epoch > known:
            self._epochs.pop(scope, None)
            self._epochs[scope] = (epoch, now)

    def _end(self, at: _At, outcome: ToolOutcome | None) -> None:
        """Take note that nobody runs a call any more; one that was left before has its outcome only now."""
        entry, now = self._entries[at], self._clock()
        self._holders.pop(at, None)
        self._known.pop(id(entry.call), None)
        is_spare = outcome is not None and entry.until <= now
        ended = now if entry.ended is None else entry.ended
        self._entries[at] = replace(entry, outcome=outcome, held=0.0, ended=ended)
        if entry.ended is not None:
            return
        if is_spare:
            self._spare[at] = None
            if entry.owner:
                self._count(entry.owner, -1)
        else:
            until = entry.until if outcome is not None else max(entry.until, entry.began + self.keep)
            heapq.heappush(self._expiring, (until, at))

    def _forget(self, now: float) -> None:
        """Drop what has been kept for long enough: each is looked at once, when its time comes."""
        while self._expiring and self._expiring[0][0] <= now:
            self._drop(heapq.heappop(self._expiring)[1])
        while self._spare and self._entries[oldest := next(iter(self._spare))].began + self.keep <= now:
            self._drop(oldest)
        while self._epochs and self._epochs[oldest_run := next(iter(self._epochs))][1] + self.keep <= now:
            del self._epochs[oldest_run]

    def _drop(self, at: _At) -> None:
        entry = self._entries.pop(at)
        self._known.pop(id(entry.call), None)
        if at in self._spare:
            del self._spare[at]
        elif entry.owner:
            self._count(entry.owner, -1)

    def _count(self, owner: str, more: int) -> None:
        self._counts[owner] = self._counts.get(owner, 0) + more
        if not self._counts[owner]:
            del self._counts[owner]
