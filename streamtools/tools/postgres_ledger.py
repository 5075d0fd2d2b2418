"""A ledger in PostgreSQL, shared by the processes of many machines, and as durable as the database.

A call starts in one transaction that locks the row of its run, so that the epoch cannot change between the check and
the insert. Each transaction has its own thread and connection. Cancellation closes the socket of the connection instead
of sending a cancel request, because a server that no longer responds would delay that request too.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

import anyio
import anyio.to_thread

from streamtools.tools.sql_ledger import TABLES, SQLLedger, Transaction, run_transaction

try:
    import psycopg
except ImportError as error:
    raise ModuleNotFoundError(
        "PostgresLedger needs psycopg: pip install 'streamtools[postgres]'", name=error.name
    ) from error

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 10  # also how long an abandoned thread may take to connect

_CREATE_LOCK = 7237970109966541  # an arbitrary advisory lock
_NOW = """
SELECT COALESCE(?1, extract(epoch FROM clock_timestamp()))::float8,
    set_config('idle_in_transaction_session_timeout', ?2, true),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
"""  # a paused process must not lock a run longer than its lease; a lost commit must not have been reported


class PostgresLedger(SQLLedger):
    """A call ledger in a PostgreSQL database. Needs the extra `postgres`.

    `conninfo` is a libpq connection string, for example a URL. Its `connect_timeout` defaults to ten seconds. The
    tables `calls` and `runs` are created in `schema` if they are missing. They hold the arguments and results of tools.
    The death of a process is detected when its `lease` expires, after so many seconds. Entries are kept for `keep`
    seconds after their call has ended. Their number is bounded by the disk alone. At most `connections` are open, in
    one event loop. `async with`, or `aclose()`, closes the idle ones. The time is the server's. A `clock` that returns
    seconds since 1970 replaces it, and must agree in all processes.

    Raises what psycopg raises: `psycopg.ProgrammingError` for an invalid `conninfo`, and `psycopg.OperationalError` on
    use if the server cannot be reached.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "streamtools",
        lease: float = 15.0,
        keep: float = 2_592_000,
        connections: int = 4,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__(lease=lease, keep=keep)
        self._schema = schema
        self._at = '"{}".'.format(schema.replace('"', '""'))
        self._held, self._free = "FOR UPDATE", "FOR UPDATE SKIP LOCKED"
        self._clock = clock
        known = psycopg.conninfo.conninfo_to_dict(conninfo)
        self._options = {
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "cursor_factory": psycopg.RawCursor,
            "prepare_threshold": None,
        }
        self._options |= known
        self._free_connections = anyio.Semaphore(connections)
        self._idle: list[Any] = []  # connections
        self._has_tables = threading.Event()  # shared by the views of all owners

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the idle connections, for all owners. The ledger may be used and closed again."""
        while self._idle:
            self._idle.pop().close()

    def _sql(self, statement: str) -> str:
        return super()._sql(statement).replace("?", "$")

    def _now(self) -> Transaction[float]:
        moment = None if self._clock is None else self._clock()
        rows, _ = yield self._sql(_NOW), (moment, str(max(1, round(self.lease * 1000))))
        now: float = rows[0][0]
        return now

    async def _do(self, work: Callable[[], Transaction[T]], *, reads: bool = False, withdraws: bool = False) -> T:
        attempt = _Attempt()
        async with self._free_connections:
            try:
                transact = partial(self._transact, attempt, work)
                limiter = anyio.CapacityLimiter(1)  # not shared: an abandoned thread must not block other calls
                return await anyio.to_thread.run_sync(transact, abandon_on_cancel=True, limiter=limiter)
            finally:
                attempt.abort()

    def _transact(self, attempt: _Attempt, work: Callable[[], Transaction[T]]) -> T:
        """Run a transaction. If a pooled connection turns out to be closed, retry with another one."""
        while True:
            connection = None
            with suppress(IndexError):
                connection = self._idle.pop()
            was_used = connection is not None
            if connection is None:
                connection = psycopg.Connection.connect(**self._options)
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            commits = is_done = False
            try:
                attempt.use(connection)
                done = run_transaction(connection, self._with_tables(work))
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

    def _with_tables(self, work: Callable[[], Transaction[T]]) -> Transaction[T]:
        """Create the tables if they are missing, then run `work`."""
        if not self._has_tables.is_set():
            exists = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'runs'", (self._schema,)
            if not (yield exists)[0]:
                yield "SELECT pg_advisory_xact_lock($1)", (_CREATE_LOCK,)  # one process creates the tables
                if not (yield exists)[0]:
                    schema = f"CREATE SCHEMA IF NOT EXISTS {self._at[:-1]};"
                    yield schema + TABLES.format(at=self._at, text='text COLLATE "C"'), None
        done = yield from work()
        self._has_tables.set()
        return done


class _Attempt:
    """One attempt at a transaction. It runs in a thread; the task that waits for it may abort it."""

    def __init__(self) -> None:
        self.aborted = False
        self._connection: Any = None
        self._lock = threading.Lock()

    def use(self, connection: Any) -> None:
        """Set the connection of the attempt. Raises TimeoutError if the attempt has been aborted."""
        with self._lock:
            if self.aborted:
                raise TimeoutError("the transaction was cancelled")
            self._connection = connection

    def release(self) -> bool:
        """Release the connection; return whether it may be reused."""
        with self._lock:
            self._connection = None
            return not self.aborted

    def abort(self) -> None:
        """Abort the transaction by shutting down its socket, which wakes up the thread that waits for the server."""
        with self._lock:
            self.aborted = True
            if self._connection is not None:
                with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._connection.fileno())) as wire:
                    wire.shutdown(socket.SHUT_RDWR)
