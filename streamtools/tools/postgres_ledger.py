"""A ledger in PostgreSQL, which the processes of many machines share, and no failover of a cache can lose.

A call begins in one transaction that holds the row of its run, so that nothing can come between the look at the epoch
and the entry. Each transaction has a thread and a connection for itself. Who is cancelled cuts the connection under the
transaction and waits for nothing: a server that says nothing any more would keep a polite cancellation waiting too.
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

from streamtools.tools.sql_ledger import SQLLedger, Transaction, run_transaction, taken_over

try:
    import psycopg
except ImportError as error:
    raise ModuleNotFoundError(
        "PostgresLedger needs psycopg, which comes with the extra `postgres`: pip install 'streamtools[postgres]'",
        name=error.name,
    ) from error

T = TypeVar("T")

_CONNECTING = 10  # seconds, unless the user says something else: so long a thread may go on that nobody waits for

_MAKING = 7237970109966541  # any number that nobody else takes
_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {at}calls (
    scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
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
_FORGET = """
DELETE FROM {at}runs WHERE scope IN (SELECT scope FROM {at}runs WHERE since <= ?1 {free})
"""
_TAKE = """
INSERT INTO {at}runs AS known VALUES (?1, ?2, ?3)
ON CONFLICT (scope) DO UPDATE SET epoch = EXCLUDED.epoch, since = EXCLUDED.since WHERE known.epoch <= EXCLUDED.epoch
"""
_NOW = """
SELECT COALESCE(?1, extract(epoch FROM clock_timestamp()))::float8,
    set_config('idle_in_transaction_session_timeout', ?2, true),
    set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), true)
"""  # a process that is paused in a transaction holds a run no longer than its lease; what is lost has not been written


class PostgresLedger(SQLLedger):
    """A ledger in a database of PostgreSQL. Needs the extra `postgres`.

    `conninfo` is what libpq takes, a URL say; without a `connect_timeout`, that is ten seconds. The tables `calls` and
    `runs` are made in the `schema` where it has none. They hold the arguments and the results of tools. A process that
    dies is noticed when its `lease` is over, in seconds. Entries that have ended are kept for `keep` seconds; their
    number has no bound but the disk. At most `connections` are open, in one event loop: `async with`, or `aclose()`,
    closes those that wait. The time is that of the server, unless a `clock` tells seconds since 1970, to all processes
    the same.

    Raises what psycopg raises: `psycopg.ProgrammingError` for a `conninfo` that is none, and, when it is used,
    `psycopg.OperationalError` above all, where there is no server.
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
        self._options = {"connect_timeout": _CONNECTING, "cursor_factory": psycopg.RawCursor, "prepare_threshold": None}
        self._options |= known
        self._places = anyio.Semaphore(connections)
        self._idle: list[Any] = []  # connections
        self._has_tables = threading.Event()  # which all owners share

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections that wait, for all owners. May be repeated, and the ledger used again."""
        while self._idle:
            self._idle.pop().close()

    def _say(self, statement: str) -> str:
        return super()._say(statement).replace("?", "$")

    def _raise(self, scope: str, epoch: int) -> Transaction[None]:
        now = yield from self._now()
        yield self._say(_FORGET), (now - self.keep,)
        _, count = yield self._say(_TAKE), (scope, epoch, now)
        if not count:
            raise taken_over()

    def _now(self) -> Transaction[float]:
        moment = None if self._clock is None else self._clock()
        rows, _ = yield self._say(_NOW), (moment, str(max(1, round(self.lease * 1000))))
        now: float = rows[0][0]
        return now

    async def _do(self, work: Callable[[], Transaction[T]], *, reads: bool = False, withdraws: bool = False) -> T:
        attempt = _Attempt()
        async with self._places:
            try:
                transact = partial(self._transact, attempt, work)
                places = anyio.CapacityLimiter(1)  # of its own: a thread that was left holds up nobody
                return await anyio.to_thread.run_sync(transact, abandon_on_cancel=True, limiter=places)
            finally:
                attempt.leave()

    def _transact(self, attempt: _Attempt, work: Callable[[], Transaction[T]]) -> T:
        """A connection that was used before may have been closed meanwhile; then nothing is done, and another tries."""
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
                attempt.hold(connection)
                done = run_transaction(connection, self._with_tables(work))
                commits = True
                connection.commit()
                is_done = attempt.release()
                return done
            except psycopg.OperationalError:
                if commits or not was_used or not connection.broken or attempt.left:
                    raise
            finally:
                if is_done:
                    self._idle.append(connection)
                else:
                    attempt.release()
                    connection.close()

    def _with_tables(self, work: Callable[[], Transaction[T]]) -> Transaction[T]:
        """Return what `work` returns, where there are tables then."""
        if not self._has_tables.is_set():
            looks = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'runs'", (self._schema,)
            if not (yield looks)[0]:
                yield "SELECT pg_advisory_xact_lock($1)", (_MAKING,)  # of several, one makes them
                if not (yield looks)[0]:
                    yield _TABLES.format(at=self._at, schema=self._at[:-1]), None
        done = yield from work()
        self._has_tables.set()
        return done


class _Attempt:
    """One try at a transaction, in another thread than the task that waits for it, and may leave."""

    def __init__(self) -> None:
        self.left = False
        self._connection: Any = None
        self._lock = threading.Lock()

    def hold(self, connection: Any) -> None:
        """Note with which connection it is made. Raises TimeoutError where nobody waits for it any more."""
        with self._lock:
            if self.left:
                raise TimeoutError("nobody waits for this transaction any more")
            self._connection = connection

    def release(self) -> bool:
        """Give the connection up; return whether it may be used again."""
        with self._lock:
            self._connection = None
            return not self.left

    def leave(self) -> None:
        """End the transaction, if it goes on, by cutting its connection: who waits for the server there wakes up."""
        with self._lock:
            self.left = True
            if self._connection is not None:
                with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._connection.fileno())) as wire:
                    wire.shutdown(socket.SHUT_RDWR)
