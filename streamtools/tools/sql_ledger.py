"""What ledgers in SQL databases share: transactions as generators of statements.

A transaction yields a statement with its parameters, and receives the rows and the row count. It knows neither threads
nor an event loop. The ledger that runs it makes it one database transaction, and may run it again from the start. The
statements work in SQLite and PostgreSQL alike. `{at}` is the prefix of each table. `{held}` locks the selected rows,
`{free}` locks them and skips rows that another transaction has locked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

from streamtools.calls import ToolCall
from streamtools.tools.ledger import (
    CLOCK_SLACK,
    NO_LEASE,
    Claim,
    Entry,
    OwnerViews,
    call_key,
    encode,
    read_entry,
    taken_over,
)
from streamtools.tools.results import ToolOutcome

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]
Transaction: TypeAlias = Generator[tuple[str, Sequence[Any] | None], tuple[list[Row], int], T]

TABLES = """
CREATE TABLE {at}calls (
    scope {text} NOT NULL,
    key {text} NOT NULL,
    owner text NOT NULL,
    call bytea NOT NULL,
    holder text NOT NULL,
    held float8 NOT NULL,
    until float8 NOT NULL,
    began float8 NOT NULL,
    ended float8,
    outcome bytea,
    PRIMARY KEY (scope, key)
);
CREATE INDEX calls_ended ON {at}calls (ended);
CREATE INDEX calls_began ON {at}calls (began, scope, key);
CREATE TABLE {at}runs (scope text PRIMARY KEY, epoch int8 NOT NULL, since float8 NOT NULL);
CREATE INDEX runs_since ON {at}runs (since);
"""
"""The tables. `{text}` is a text that is ordered by its bytes."""

_DELETE_OLD_RUNS = "DELETE FROM {at}runs WHERE scope IN (SELECT scope FROM {at}runs WHERE since <= ?1 {free})"
_RAISE_EPOCH = """
INSERT INTO {at}runs AS known VALUES (?1, ?2, ?3)
ON CONFLICT (scope) DO UPDATE SET epoch = EXCLUDED.epoch, since = EXCLUDED.since WHERE known.epoch <= EXCLUDED.epoch
"""
_SELECT = "SELECT * FROM {at}calls WHERE scope = ?1 AND key = ?2 {held}"
_INSERT = "INSERT INTO {at}calls VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, NULL)"
_RENEW = "UPDATE {at}calls SET held = ?4 WHERE scope = ?1 AND key = ?2 AND holder = ?3 AND ended IS NULL"
_ABANDON = "UPDATE {at}calls SET ended = ?4 WHERE scope = ?1 AND key = ?2 AND holder = ?3 AND ended IS NULL"
_FINISH = "UPDATE {at}calls SET outcome = ?3, ended = COALESCE(ended, ?4) WHERE scope = ?1 AND key = ?2"
_DELETE_OLD = """
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


class SQLLedger(OwnerViews):
    """The base of ledgers in SQL databases. A subclass owns the tables and the clock, and runs the transactions."""

    _at = _held = _free = ""

    def __init__(self, *, lease: float, keep: float) -> None:
        self.lease = lease
        self.keep = keep

    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        """Record that the call starts, or return its entry. Raises `CallRefused` for an older epoch."""
        key, written = call_key(call), encode(call)

        def begin() -> Transaction[Entry | None]:
            yield from self._raise_epoch(scope, claim.epoch)
            now = yield from self._now()
            rows, _ = yield self._sql(_SELECT), (scope, key)
            if rows:
                entry = read_entry(rows[0], now)
                return None if claim.holder and rows[0][4] == claim.holder and entry.ended is None else entry
            held = now + self.lease if claim.holder else 0.0
            until = max(now, min(claim.until, now + self.keep) + CLOCK_SLACK) if claim.until else now
            yield self._sql(_INSERT), (scope, key, self._owner, written, claim.holder, held, until, now)
            yield self._sql(_DELETE_OLD), (now - self.keep, now)
            return None

        return await self._do(begin, withdraws=True)

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Renew the lease of a call for `seconds`; 0 abandons the call."""

        def hold() -> Transaction[None]:
            now = yield from self._now()
            statement = _RENEW if seconds > 0 else _ABANDON
            yield self._sql(statement), (scope, call_key(call), holder, now + max(0.0, seconds))

        await self._do(hold)

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Record the outcome of a call."""
        await self._finish(scope, outcome, lambda entry: True)

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse each call of the run that starts under an older epoch."""
        await self._do(lambda: self._raise_epoch(scope, epoch))

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: Entry | None = None, limit: int = 100
    ) -> list[Entry]:
        """Return entries, the oldest first; see `CallLedger`."""

        def list_entries() -> Transaction[list[Entry]]:
            now = yield from self._now()
            found: list[Entry] = []
            place = (-math.inf, "", "") if after is None else (after.began, after.scope, call_key(after.call))
            while len(found) < limit:
                rows, _ = yield self._sql(_LIST), (self._owner, scope, *place, limit)
                page = [read_entry(row, now) for row in rows]
                found += [entry for entry in page if not unknown or entry.is_unknown]
                if len(rows) < limit:
                    break
                place = rows[-1][7], rows[-1][0], rows[-1][1]
            return found[:limit]

        return await self._do(list_entries, reads=True)

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Record the outcome of a call whose outcome was unknown; return whether there is one."""
        return await self._finish(scope, outcome, lambda entry: not entry.held and self._owner in (entry.owner, ""))

    async def prune(self, age: float | None = None) -> int:
        """Delete old entries; see `CallLedger`."""

        def prune() -> Transaction[int]:
            now = yield from self._now()
            before = now - (self.keep if age is None else age)
            _, count = yield self._sql(_PRUNE), (self._owner, now, before)
            return count

        return await self._do(prune)

    async def _finish(self, scope: str, outcome: ToolOutcome, may_finish: Callable[[Entry], bool]) -> bool:
        """Record the outcome if the call has none and `may_finish` accepts its entry; return whether it did."""
        at, written = (scope, call_key(outcome.call)), encode(outcome)

        def finish() -> Transaction[bool]:
            now = yield from self._now()
            rows, _ = yield self._sql(_SELECT), at
            if not rows or (entry := read_entry(rows[0], now)).outcome is not None or not may_finish(entry):
                return False
            yield self._sql(_FINISH), (*at, written, now)
            return True

        return await self._do(finish)

    def _raise_epoch(self, scope: str, epoch: int) -> Transaction[None]:
        """Record the epoch of a run, and lock the run. Raises `CallRefused` if the run has a later epoch."""
        now = yield from self._now()
        yield self._sql(_DELETE_OLD_RUNS), (now - self.keep,)
        _, count = yield self._sql(_RAISE_EPOCH), (scope, epoch, now)
        if not count:
            raise taken_over()

    def _now(self) -> Transaction[float]:
        """Return the current time, in seconds since 1970."""
        raise NotImplementedError

    async def _do(self, work: Callable[[], Transaction[T]], *, reads: bool = False, withdraws: bool = False) -> T:
        """Run `work` in one transaction, commit it, and return its result. `reads`: it writes nothing.

        Cancellation takes effect immediately. A transaction that commits after it still counts, unless it `withdraws`.
        """
        raise NotImplementedError

    def _sql(self, statement: str) -> str:
        return statement.format(at=self._at, held=self._held, free=self._free)


def run_transaction(connection: Any, transaction: Transaction[T]) -> T:
    """Execute the statements of a transaction on a connection, without committing; return its result."""
    rows: tuple[list[Row], int] | None = None
    while True:
        try:
            statement = transaction.send(rows)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as end:
            done: T = end.value
            return done
        cursor = connection.execute(*statement)
        rows = (cursor.fetchall() if cursor.description else []), cursor.rowcount
