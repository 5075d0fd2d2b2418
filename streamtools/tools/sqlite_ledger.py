"""Implements a call ledger in an SQLite file, which several processes on one machine can share.

Each change is on disk before its method returns. SQLite's own waiting for locks is disabled. If the file is locked, the
transaction fails immediately and is retried after a pause. So neither the event loop nor other calls are blocked.
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

from streamtools.tools.sql_ledger import TABLES, SQLLedger, Transaction, run_transaction

if TYPE_CHECKING:
    import sqlite3  # imported late: it is slow to import, and few processes need it

T = TypeVar("T")

_OPEN_TIMEOUT_S = 30.0
_FIRST_PAUSE_S = 0.005  # first pause while the file is locked; each pause doubles, with jitter
_LONGEST_PAUSE_S = 0.1

_VERSION = 1


class SQLiteLedger(SQLLedger):
    """A call ledger in the SQLite file `path`. The processes of one machine can share it.

    `lease` is the time in seconds after which a process that does not renew its lease is considered dead. `keep` is the
    time in seconds that an entry is kept after its call has ended. The number of entries is not limited. `clock`
    returns seconds since 1970. The clocks of all processes must agree.

    The file holds the arguments and results of tools. A new file can be read only by the system user that created it.
    Raises OSError if the file cannot be created, sqlite3.Error if it is not a database or not writable, and ValueError
    if a different version of this library created it.
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
        """Close the file, also for all views of this ledger. Calling it again has no effect."""
        with self._lock:
            self._connection.close()

    def _now(self) -> Transaction[float]:
        yield from ()
        return self._clock()

    async def _do(self, work: Callable[[], Transaction[T]], *, reads: bool = False, withdraws: bool = False) -> T:
        import sqlite3

        is_cancelled = False

        def attempt() -> T:
            with self._lock:
                db = self._connection
                db.execute("BEGIN" if reads else "BEGIN IMMEDIATE")
                try:
                    done = run_transaction(db, work())
                    db.execute("ROLLBACK" if is_cancelled and withdraws else "COMMIT")
                    return done
                finally:
                    if db.in_transaction:
                        db.execute("ROLLBACK")

        pause = _FIRST_PAUSE_S
        try:
            while True:
                try:
                    limiter = anyio.CapacityLimiter(1)  # not shared: an abandoned thread must not block other calls
                    return await anyio.to_thread.run_sync(attempt, abandon_on_cancel=True, limiter=limiter)
                except sqlite3.OperationalError as error:
                    if not _is_locked(error):
                        raise
                await anyio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - jitter
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        finally:
            is_cancelled = True


def _open(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open the file and create its tables. Retry while the file is locked.

    SQLite ignores its `timeout` in two cases, and fails immediately: while another process switches a new file to WAL
    mode, and while another process closes the last connection.
    """
    import sqlite3

    deadline = time.monotonic() + _OPEN_TIMEOUT_S
    while True:
        db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            _set_up(db)
            return db
        except BaseException as error:
            db.close()
            if not (isinstance(error, sqlite3.OperationalError) and _is_locked(error) and time.monotonic() < deadline):
                raise
        time.sleep(random.uniform(_FIRST_PAUSE_S / 2, _FIRST_PAUSE_S))  # noqa: S311 - jitter


def _set_up(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    if not _version(db):
        db.execute("BEGIN IMMEDIATE")
        if not _version(db):  # still missing: no other process has created them
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'calls'").fetchone():
                raise ValueError("the file is a ledger of an earlier version; use a new file")
            for statement in TABLES.format(at="", text="text").split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {_VERSION}")
        db.execute("COMMIT")
    if _version(db) != _VERSION:
        raise ValueError(f"the file is a ledger of version {_version(db)}, expected version {_VERSION}; use a new file")


def _version(db: sqlite3.Connection) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def _is_locked(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in (5, 6)  # SQLITE_BUSY and SQLITE_LOCKED, with their extended codes
