"""A ledger in a file of SQLite, which several processes may share.

Each entry is on the disk before it counts. Who finds the file locked looks again until the call's own time is over, and
holds up nobody meanwhile: SQLite itself never waits here, and the lock of a connection is held for one transaction.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from streamtools.tools.sql_ledger import SQLLedger, Transaction, taken_over

if TYPE_CHECKING:
    import sqlite3  # takes a while to load, and most processes need none

T = TypeVar("T")

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
                    done = _run(db, work())
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


def _run(db: sqlite3.Connection, work: Transaction[T]) -> T:
    given = None
    while True:
        try:
            statement = work.send(given)  # type: ignore[arg-type]  # None begins
        except StopIteration as end:
            done: T = end.value
            return done
        cursor = db.execute(*statement)
        given = cursor.fetchall(), cursor.rowcount


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
