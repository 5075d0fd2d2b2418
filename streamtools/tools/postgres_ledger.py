"""Implements a call ledger in a PostgreSQL database, which processes on several machines can share.

The start of a call is recorded in one transaction. The transaction locks the row of the run, so that no other process
takes over the run before the commit. Each transaction runs in a separate thread, on a separate connection. A cancelled
task shuts down the socket of its connection. It does not send a cancel request, because a server that does not respond
would also delay that request.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from streamtools.loading import require_packages
from streamtools.tools.sql_ledger import TABLES, SQLLedger, T

with require_packages("PostgresLedger"):
    import psycopg

_DEFAULTS: dict[str, Any] = {"connect_timeout": 10, "cursor_factory": psycopg.RawCursor, "prepare_threshold": None}
"""The defaults of a connection. The timeout also limits how long an abandoned thread runs while it connects."""

_CREATE_LOCK = 7237970109966541  # the key of an advisory lock, chosen arbitrarily
_NOW = """
SELECT COALESCE(?1, extract(epoch FROM clock_timestamp()))::float8,
    set_config('idle_in_transaction_session_timeout', ?2, true),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
"""  # a paused process must not lock a run for longer than its lease, and a reported commit must not be lost


class PostgresLedger(SQLLedger):
    """A call ledger in a PostgreSQL database. Needs the extra `postgres`.

    `conninfo` is a libpq connection string, for example a URL. Its `connect_timeout` defaults to ten seconds. The
    tables `calls`, `runs` and `waiting_runs` are created in `schema` if they are missing. They hold the arguments and
    results of tools, and the runs that wait for decisions.

    `lease` is the time in seconds after which a process that does not renew its lease is considered dead. `keep` is the
    time in seconds that an entry is kept after its call has ended. The number of entries is not limited. `connections`
    is the maximum number of open connections. If calls are cancelled while they connect, more connections may be open
    until `connect_timeout`. A ledger must be used in one event loop only. Use it with `async with`, or call `aclose()`,
    to close idle connections. Times come from the clock of the database server.

    Raises the errors of psycopg: `psycopg.ProgrammingError` for an invalid `conninfo`, and `psycopg.OperationalError`
    from its methods if the server cannot be reached.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "streamtools",
        lease: float = 15.0,
        keep: float = 2_592_000,
        connections: int = 4,
    ) -> None:
        super().__init__(lease=lease, keep=keep)
        self._schema = schema
        self._table_prefix = '"{}".'.format(schema.replace('"', '""'))
        self._lock_rows, self._skip_locked = "FOR UPDATE", "FOR UPDATE SKIP LOCKED"
        self._options = _DEFAULTS | psycopg.conninfo.conninfo_to_dict(conninfo)
        self._free_connections = anyio.Semaphore(connections)
        self._idle: list[Any] = []  # idle connections

    async def aclose(self) -> None:
        """Close the idle connections, also of the ledgers that `of` returned.

        The ledger can be used again afterwards.
        """
        while self._idle:
            self._idle.pop().close()

    def _sql(self, statement: str) -> str:
        return super()._sql(statement).replace("?", "$")

    def _now(self, db: Any) -> float:
        moment = None if self._clock is None else self._clock()
        now: float = self._execute(db, _NOW, moment, str(max(1, round(self.lease * 1000)))).fetchone()[0]
        return now

    async def _run(self, work: Callable[[Any], T], *, read_only: bool = False, undoable: bool = False) -> T:
        attempt = _Attempt()
        async with self._free_connections:
            try:
                transact = partial(self._transact, attempt, work)
                limiter = anyio.CapacityLimiter(1)  # not shared: an abandoned thread must not block other calls
                return await anyio.to_thread.run_sync(transact, abandon_on_cancel=True, limiter=limiter)
            finally:
                attempt.abort()

    def _transact(self, attempt: _Attempt, work: Callable[[Any], T]) -> T:
        """Run a transaction. If an idle connection turns out to be closed, retry with another connection."""
        while True:
            try:
                connection, was_used = self._idle.pop(), True
            except IndexError:
                connection, was_used = psycopg.Connection.connect(**self._options), False
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            commits = is_done = False
            try:
                attempt.use(connection)
                if not was_used:
                    self._create_tables(connection)
                done = work(connection)
                commits = True
                connection.commit()
                is_done = attempt.release()
                return done
            except psycopg.OperationalError:
                if commits or not was_used or not connection.broken or attempt.aborted:
                    raise
            finally:
                if is_done:
                    self._idle.append(connection)
                else:
                    attempt.release()
                    connection.close()

    def _create_tables(self, db: Any) -> None:
        """Create the tables if they are missing."""
        tables = TABLES.format(prefix=self._table_prefix, text='text COLLATE "C"')
        create = f"CREATE SCHEMA IF NOT EXISTS {self._table_prefix[:-1]};{tables}"
        # Only one process creates the tables. The others wait for its lock, and then find them.
        # `to_regclass` is no alternative to `pg_tables`: its cache does not have the new tables.
        for statement in (f"SELECT pg_advisory_xact_lock({_CREATE_LOCK})", create):
            found = db.execute("SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'runs'", (self._schema,))
            if not found.rowcount:
                db.execute(statement)


class _Attempt:
    """One attempt to run a transaction. It runs in a thread. The task that waits for the thread may abort it."""

    def __init__(self) -> None:
        self.aborted = False
        self._connection: Any = None
        self._lock = threading.Lock()

    def use(self, connection: Any) -> None:
        """Set the connection that the attempt uses. Raises TimeoutError if the attempt has been aborted."""
        with self._lock:
            if self.aborted:
                raise TimeoutError("the transaction was cancelled")
            self._connection = connection

    def release(self) -> bool:
        """Release the connection. Returns False if it must not be used again, because the attempt was aborted."""
        with self._lock:
            self._connection = None
            return not self.aborted

    def abort(self) -> None:
        """Abort the transaction by shutting down the socket. The thread then stops waiting for the server."""
        with self._lock:
            self.aborted = True
            if self._connection is not None:
                with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._connection.fileno())) as wire:
                    wire.shutdown(socket.SHUT_RDWR)
