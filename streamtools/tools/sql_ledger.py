"""A ledger in a database: what is said to it, as generators of statements, so that any kind of connection can run them.

A transaction yields a statement with its values and is sent the rows and how many there were. It knows neither threads
nor an event loop; who runs it decides that it is one transaction, and may run it again from its beginning. The
statements are what SQLite and PostgreSQL have in common: `{at}` stands before each table, and behind the
selection of rows that are about to change `{held}`, or `{free}` where rows that others change may be passed over.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, Self, TypeAlias, TypeVar

import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused
from streamtools.json_values import writable
from streamtools.tools.call import ToolOutcome
from streamtools.tools.ledger import ON_NO_TERMS, SLACK, Claim, Entry, call_key

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]
Transaction: TypeAlias = Generator[tuple[str, Sequence[Any]], tuple[list[Row], int], T]

_LOOK = "SELECT * FROM {at}calls WHERE scope = ?1 AND key = ?2 {held}"
_ADD = "INSERT INTO {at}calls VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, NULL)"
_RENEW = "UPDATE {at}calls SET held = ?4 WHERE scope = ?1 AND key = ?2 AND holder = ?3 AND ended IS NULL"
_LEAVE = "UPDATE {at}calls SET ended = ?4 WHERE scope = ?1 AND key = ?2 AND holder = ?3 AND ended IS NULL"
_FINISH = "UPDATE {at}calls SET outcome = ?3, ended = COALESCE(ended, ?4) WHERE scope = ?1 AND key = ?2"
_FORGET = """
DELETE FROM {at}calls
WHERE (scope, key) IN (SELECT scope, key FROM {at}calls WHERE ended <= ?1 AND until <= ?2 {free})
"""
_LIST = """
SELECT * FROM {at}calls
WHERE ?1 IN (owner, '') AND COALESCE(?2, scope) = scope AND (began, scope, key) > (?3, ?4, ?5)
ORDER BY began, scope, key LIMIT ?6
"""
_PRUNE = """
DELETE FROM {at}calls WHERE (scope, key) IN (
    SELECT scope, key FROM {at}calls
    WHERE ?1 IN (owner, '') AND (ended IS NOT NULL OR held <= ?2)
        AND until <= ?2 AND COALESCE(ended, began) <= ?3 {free}
)
"""


class SQLLedger:
    """What ledgers in databases share. A subclass has the tables, tells the time, and runs transactions."""

    _at = _held = _free = ""

    def __init__(self, *, lease: float, keep: float) -> None:
        self.lease = lease
        self.keep = keep
        self._owner = ""

    def of(self, owner: str) -> Self:
        """Return this ledger as one owner's: what begins there is the owner's, and no other's is listed or changed."""
        view = copy.copy(self)
        view._owner = owner
        return view

    async def begin(self, scope: str, call: ToolCall, claim: Claim = ON_NO_TERMS) -> Entry | None:
        """Write down that the call begins, or return what is there of it. Raises `CallRefused` for an older epoch."""
        key, written = call_key(call), encode(call)

        def begin() -> Transaction[Entry | None]:
            yield from self._raise(scope, claim.epoch)
            now = yield from self._now()
            rows, _ = yield self._say(_LOOK), (scope, key)
            if rows:
                entry = read_entry(rows[0], now)
                return None if claim.holder and rows[0][4] == claim.holder and entry.ended is None else entry
            held = now + self.lease if claim.holder else 0.0
            until = min(claim.until, now + self.keep) + SLACK if claim.until > now else now
            yield self._say(_ADD), (scope, key, self._owner, written, claim.holder, held, until, now)
            yield self._say(_FORGET), (now - self.keep, now)
            return None

        return await self._do(begin, withdraws=True)

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Renew the lease of a call for so many seconds; with 0, leave it."""

        def hold() -> Transaction[None]:
            now = yield from self._now()
            statement = _RENEW if seconds > 0 else _LEAVE
            yield self._say(statement), (scope, call_key(call), holder, now + max(0.0, seconds))

        await self._do(hold)

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Write down how a call has ended."""
        await self._finish(scope, outcome, lambda entry: True)

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse each call of the run that begins under an older epoch."""
        await self._do(lambda: self._raise(scope, epoch))

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: Entry | None = None, limit: int = 100
    ) -> list[Entry]:
        """Return entries, the oldest first; see `CallLedger`."""

        def look() -> Transaction[list[Entry]]:
            now = yield from self._now()
            found: list[Entry] = []
            place = (-math.inf, "", "") if after is None else (after.began, after.scope, call_key(after.call))
            while len(found) < limit:
                rows, _ = yield self._say(_LIST), (self._owner, scope, *place, limit)
                page = [read_entry(row, now) for row in rows]
                found += [each for each in page if not unknown or each.is_unknown]
                if len(rows) < limit:
                    break
                place = rows[-1][7], rows[-1][0], rows[-1][1]
            return found[:limit]

        return await self._do(look, reads=True)

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Write down how a call has ended whose end was unknown, and return whether there is one."""
        return await self._finish(scope, outcome, lambda entry: not entry.held and self._owner in (entry.owner, ""))

    async def prune(self, age: float | None = None) -> int:
        """Forget what ended, or began, so many seconds ago, and nobody runs or can name; return how many."""

        def prune() -> Transaction[int]:
            now = yield from self._now()
            before = now - (self.keep if age is None else age)
            _, count = yield self._say(_PRUNE), (self._owner, now, before)
            return count

        return await self._do(prune)

    async def _finish(self, scope: str, outcome: ToolOutcome, may: Callable[[Entry], bool]) -> bool:
        """Write down the outcome of a call that has none, if it `may` be; return whether it was."""
        at, written = (scope, call_key(outcome.call)), encode(outcome)

        def finish() -> Transaction[bool]:
            now = yield from self._now()
            rows, _ = yield self._say(_LOOK), at
            if not rows or (entry := read_entry(rows[0], now)).outcome is not None or not may(entry):
                return False
            yield self._say(_FINISH), (*at, written, now)
            return True

        return await self._do(finish)

    def _raise(self, scope: str, epoch: int) -> Transaction[None]:
        """Take note of the epoch of a run; raise `CallRefused` if it has a later one. The run is ours from then on."""
        raise NotImplementedError

    def _now(self) -> Transaction[float]:
        """Return the time, in seconds since 1970."""
        raise NotImplementedError

    async def _do(self, work: Callable[[], Transaction[T]], *, reads: bool = False, withdraws: bool = False) -> T:
        """Return what `work` returns, in one transaction that is committed then; it only `reads`, maybe.

        A wait is cancelled at once. What is done late counts, unless the work `withdraws`.
        """
        raise NotImplementedError

    def _say(self, statement: str) -> str:
        return statement.format(at=self._at, held=self._held, free=self._free)


def taken_over() -> CallRefused:
    """Return what is raised for an epoch that is over."""
    return CallRefused("its run has been taken over by another process")


def encode(value: ToolCall | ToolOutcome) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot hold
        return msgspec.json.encode(writable(msgspec.to_builtins(value)))


def read_entry(row: Row, now: float) -> Entry:
    """Return a row as it is now; where its outcome cannot be read, that is not known, and the call has ended.

    A lease that cannot be read is over.
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
