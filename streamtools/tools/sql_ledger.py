"""Ledgers in databases: what is said to them, as generators of statements, which any connection runs; and SQLite's.

A transaction yields a statement with its values and is sent the rows and how many there were. It knows neither threads
nor an event loop; who runs it decides that it is one transaction, and may run it again from its beginning. The
statements are what SQLite and PostgreSQL have in common: `{at}` stands before each table, and behind the
selection of rows that are about to change `{held}`, or `{free}` where rows that others change may be passed over.
"""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec

from streamtools.calls import ToolCall
from streamtools.errors import CallRefused
from streamtools.json_values import writable
from streamtools.tools.call import ToolOutcome
from streamtools.tools.ledger import ON_NO_TERMS, SLACK, TAKEN_OVER, Claim, Entry, Owned, call_key

if TYPE_CHECKING:
    import sqlite3  # takes a while to load, and most processes need none

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]
Transaction: TypeAlias = Generator[tuple[str, Sequence[Any] | None], tuple[list[Row], int], T]

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


class SQLLedger(Owned):
    """What ledgers in databases share. A subclass has the tables, tells the time, and runs transactions."""

    _at = _held = _free = ""

    def __init__(self, *, lease: float, keep: float) -> None:
        self.lease = lease
        self.keep = keep

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
            until = max(now, min(claim.until, now + self.keep) + SLACK) if claim.until else now
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


def run_transaction(connection: Any, transaction: Transaction[T]) -> T:
    """Return what a transaction returns, whose statements a connection executes; it is not committed by that."""
    given = None
    while True:
        try:
            statement = transaction.send(given)  # type: ignore[arg-type]  # None begins
        except StopIteration as end:
            done: T = end.value
            return done
        cursor = connection.execute(*statement)
        given = (cursor.fetchall() if cursor.description else []), cursor.rowcount


def taken_over() -> CallRefused:
    return CallRefused(TAKEN_OVER)


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


# The ledger in a file of SQLite, which several processes may share. Each entry is on the disk before it counts. Who
# finds the file locked looks again until the call's own time is over, and holds up nobody meanwhile: SQLite itself
# never waits here, and the lock of a connection is held for one transaction.

_OPENING = 30.0  # seconds in which a file that others open or write to has to be free once
_PAUSE = 0.005  # seconds between two looks at a file that is locked: each pause is twice as long as the last,
_LONGEST_PAUSE = 0.1  # and none is longer; all of them vary, so that processes do not meet again and again

_VERSION = 1
_TABLES = """
CREATE TABLE calls (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    owner TEXT NOT NULL,
    call BLOB NOT NULL,
    holder TEXT NOT NULL,
    held REAL NOT NULL,
    until REAL NOT NULL,
    began REAL NOT NULL,
    ended REAL,
    outcome BLOB,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX calls_ended ON calls (ended);
CREATE TABLE runs (scope TEXT PRIMARY KEY, epoch INTEGER NOT NULL, since REAL NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 1;
"""


class SQLiteLedger(SQLLedger):
    """A ledger in a file, which lasts, and which several processes of one machine may share.

    A process that dies is noticed when its `lease` is over, in seconds. Entries that have ended are kept for `keep`
    seconds; their number has no bound but the disk. `clock` tells seconds since 1970, to all processes the same.

    The file holds the arguments and the results of tools: it is made so that only its owner can read it. Raises OSError
    where no file can be made, sqlite3.Error for one that is no database or cannot be written, and ValueError for one
    of another version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lease: float = 15.0,
        keep: float = 2_592_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(lease=lease, keep=keep)
        self._clock = clock
        self._lock = threading.Lock()
        Path(path).touch(0o600)
        self._connection = _open(path)

    def close(self) -> None:
        """Close the file, for all owners. May be repeated."""
        with self._lock:
            self._connection.close()

    def _raise(self, scope: str, epoch: int) -> Transaction[None]:
        rows, _ = yield "SELECT epoch FROM runs WHERE scope = ?1", (scope,)
        known = rows[0][0] if rows else 0
        if epoch < known:
            raise taken_over()
        if epoch > known:
            now = self._clock()
            yield "DELETE FROM runs WHERE since <= ?1", (now - self.keep,)
            yield "INSERT OR REPLACE INTO runs VALUES (?1, ?2, ?3)", (scope, epoch, now)

    def _now(self) -> Transaction[float]:
        yield from ()
        return self._clock()

    async def _do(self, work: Callable[[], Transaction[T]], *, reads: bool = False, withdraws: bool = False) -> T:
        import sqlite3

        is_left = False

        def attempt() -> T:
            with self._lock:
                db = self._connection
                db.execute("BEGIN" if reads else "BEGIN IMMEDIATE")
                try:
                    done = run_transaction(db, work())
                    db.execute("ROLLBACK" if is_left and withdraws else "COMMIT")
                    return done
                finally:
                    if db.in_transaction:
                        db.execute("ROLLBACK")

        pause = _PAUSE
        try:
            while True:
                try:
                    places = anyio.CapacityLimiter(1)  # of its own: a thread that was left holds up nobody
                    return await anyio.to_thread.run_sync(attempt, abandon_on_cancel=True, limiter=places)
                except sqlite3.OperationalError as error:
                    if not _is_locked(error):
                        raise
                await anyio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - it only keeps processes apart
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            is_left = True


def _open(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Return a connection to a file that is ready.

    SQLite answers at once, however long it was told to wait, where several processes turn a new file to its log (WAL)
    at the same time, or one opens it while the last other closes it.
    """
    import sqlite3

    over = time.monotonic() + _OPENING
    while True:
        db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            _set_up(db)
            return db
        except BaseException as error:
            db.close()
            if not (isinstance(error, sqlite3.OperationalError) and _is_locked(error) and time.monotonic() < over):
                raise
        time.sleep(random.uniform(_PAUSE / 2, _PAUSE))  # noqa: S311 - as above


def _set_up(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    if not _version(db):
        db.execute("BEGIN IMMEDIATE")
        if not _version(db):  # nobody else was quicker
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone():
                raise ValueError("the file is a ledger of an earlier version, which this one cannot read")
            for statement in _TABLES.split(";"):
                db.execute(statement)
        db.execute("COMMIT")
    if _version(db) != _VERSION:
        raise ValueError(f"the file is a ledger of version {_version(db)}, and this is version {_VERSION}")


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def _is_locked(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (5, 6)  # SQLITE_BUSY and SQLITE_LOCKED, and their kinds
