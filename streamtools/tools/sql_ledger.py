"""Defines `SQLLedger`, the base of call ledgers in SQL databases, and the ledgers of SQLite: in a file and in memory.

Each operation is a function that takes a database connection. A ledger calls the function inside one transaction, and
may call it again after a failure.

The statements work in SQLite and PostgreSQL. They contain placeholders. `{prefix}` is the prefix of each table name.
`{lock}` is a clause that locks the selected rows. `{skip}` is a clause that skips rows that another transaction has
locked, and locks the others.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace
from tenacity import AsyncRetrying, retry, retry_if_exception, stop_after_delay, wait_random_exponential

from streamtools.calls import ToolCall
from streamtools.errors import AsyncOnly, CallRefused, RunNotFound
from streamtools.json_values import write_json
from streamtools.tools import ledger
from streamtools.tools.approvals import Decision
from streamtools.tools.results import ToolOutcome

if TYPE_CHECKING:
    import sqlite3  # imported late: it is slow to import, and few processes need it

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]

TABLES = """
CREATE TABLE IF NOT EXISTS {prefix}calls (
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
CREATE INDEX IF NOT EXISTS calls_ended ON {prefix}calls (ended);
CREATE INDEX IF NOT EXISTS calls_began ON {prefix}calls (began, scope, key);
CREATE TABLE IF NOT EXISTS {prefix}runs (scope text PRIMARY KEY, epoch int8 NOT NULL, since float8 NOT NULL);
CREATE INDEX IF NOT EXISTS runs_since ON {prefix}runs (since);
CREATE TABLE IF NOT EXISTS {prefix}waiting_runs (
    owner text NOT NULL,
    run_id text NOT NULL,
    conversation text,
    data bytea NOT NULL,
    state bytea NOT NULL,
    saved float8 NOT NULL,
    until float8 NOT NULL,
    PRIMARY KEY (owner, run_id)
);
"""
"""The statements that create missing tables. `{text}` is a text type whose values are ordered by their bytes.

In `calls`, `held` is the time when the lease expires, and `until` is the time before which the row is not deleted. In
`runs`, `since` is the time when `epoch` was recorded. `waiting_runs` has the runs that `Runs.decide` continues, and the
ended runs that continued them. There, `until` is the time when the row expires.
"""

_PRUNE_RUNS = "DELETE FROM {prefix}runs WHERE scope IN (SELECT scope FROM {prefix}runs WHERE since <= ?1 {skip})"
_RAISE_EPOCH = """
INSERT INTO {prefix}runs AS known VALUES (?1, ?2, ?3)
ON CONFLICT (scope) DO UPDATE SET epoch = EXCLUDED.epoch, since = EXCLUDED.since WHERE known.epoch <= EXCLUDED.epoch
"""
_SELECT = "SELECT * FROM {prefix}calls WHERE scope = ?1 AND key = ?2 {lock}"
_INSERT = "INSERT INTO {prefix}calls VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, NULL)"
_RENEW = "UPDATE {prefix}calls SET held = ?4 WHERE scope = ?1 AND key = ?2 AND holder = ?3 AND ended IS NULL"
_ABANDON = "UPDATE {prefix}calls SET ended = ?4 WHERE scope = ?1 AND key = ?2 AND holder = ?3 AND ended IS NULL"
_FINISH = "UPDATE {prefix}calls SET outcome = ?3, ended = COALESCE(ended, ?4) WHERE scope = ?1 AND key = ?2"
_DELETE_OLD = """
DELETE FROM {prefix}calls
WHERE (scope, key) IN (SELECT scope, key FROM {prefix}calls WHERE ended <= ?1 AND until <= ?2 {skip})
"""
_LIST = """
SELECT * FROM {prefix}calls
WHERE ?1 IN (owner, '') AND COALESCE(?2, scope) = scope AND (began, scope, key) > (?3, ?4, ?5)
ORDER BY began, scope, key LIMIT ?6
"""

_DELETE_WAITING = """
DELETE FROM {prefix}waiting_runs
WHERE until <= ?1 OR saved < (SELECT saved FROM {prefix}waiting_runs ORDER BY saved DESC LIMIT 1 OFFSET ?2)
"""
_INSERT_WAITING = "INSERT INTO {prefix}waiting_runs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING"
_FIND_WAITING = """
SELECT run_id, conversation, data FROM {prefix}waiting_runs
WHERE owner = ?1 AND (run_id = ?2 OR conversation = ?3 OR (?2 IS NULL AND ?3 IS NULL)) AND until > ?4
ORDER BY saved DESC LIMIT ?5
"""
# The id of a run that continues another one is the id of that run and `~`.
_FORGET_WAITING = "DELETE FROM {prefix}waiting_runs WHERE owner = ?1 AND rtrim(run_id, '~') = ?2"
_KEEP_WAITING = """
UPDATE {prefix}waiting_runs SET until = ?3 WHERE owner = ?1 AND rtrim(run_id, '~') = ?2 AND until < ?4
"""
_SELECT_STATE = "SELECT state FROM {prefix}waiting_runs WHERE owner = ?1 AND run_id = ?2 AND until > ?3 {lock}"
_SET_STATE = "UPDATE {prefix}waiting_runs SET state = ?3 WHERE owner = ?1 AND run_id = ?2"


class WaitingState(msgspec.Struct, frozen=True):
    """The changing part of a stored run: the decisions about its calls, and the process that continues it.

    `holder` names that process; "" if no process has continued the run. The lease of the process expires at
    `lease_until`, in seconds since 1970. `starts` is how often a process has started the continuation. `stop_requested`
    is True after a request to stop the continuation. `continued` is True if the continuation has ended and is stored.
    """

    decisions: dict[str, Decision] = {}
    holder: str = ""
    lease_until: float = 0.0
    starts: int = 0
    stop_requested: bool = False
    continued: bool = False


class SQLLedger(ledger.OwnerViews, AsyncOnly):
    """The base class of ledgers in SQL databases.

    A subclass creates the tables, provides the current time, runs the transactions, and has `aclose`.
    """

    _table_prefix = _lock_rows = _skip_locked = ""
    _max_runs = 1 << 62  # when more runs are stored, the oldest are deleted

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the ledger, also the ledgers that `of` returned."""

    async def begin(self, scope: str, call: ToolCall, claim: ledger.Claim = ledger.NO_LEASE) -> ledger.Entry | None:
        """Record that the call starts, or return its entry; see `CallLedger`.

        Raises `CallRefused` if the ledger is full, or if the epoch of the claim is too old.
        """
        key, written = ledger.call_key(call), write_json(call)

        def begin(db: Any) -> ledger.Entry | None:
            self._raise_epoch(db, scope, claim.epoch)
            now = self._now(db)
            if row := self._execute(db, _SELECT, scope, key).fetchone():
                entry = ledger.read_entry(row, now)
                return None if claim.holder and row[4] == claim.holder and entry.ended is None else entry
            held = now + self.lease if claim.holder else 0.0
            until = max(now, min(claim.until, now + self.keep) + ledger.CLOCK_SLACK) if claim.until else now
            self._execute(db, _DELETE_OLD, now - self.keep, now)
            self._make_room(db, now)
            self._execute(db, _INSERT, scope, key, self._owner, written, claim.holder, held, until, now)
            return None

        return await self._run(begin, undoable=True)

    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        """Renew the lease of a call for `seconds`. With 0, abandon the call."""

        def hold(db: Any) -> None:
            held = self._now(db) + max(0.0, seconds)
            self._execute(db, _RENEW if seconds > 0 else _ABANDON, scope, ledger.call_key(call), holder, held)

        await self._run(hold)

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Record the outcome of a call."""
        await self._finish(scope, outcome, lambda entry: True)

    async def fence(self, scope: str, epoch: int) -> None:
        """Refuse calls of the run if their claim has an older epoch; see `CallLedger`."""
        await self._run(lambda db: self._raise_epoch(db, scope, epoch))

    async def entries(
        self, scope: str | None = None, *, unknown: bool = False, after: ledger.Entry | None = None, limit: int = 100
    ) -> list[ledger.Entry]:
        """Return entries, oldest first; see `CallLedger`."""

        def list_entries(db: Any) -> list[ledger.Entry]:
            now = self._now(db)
            found: list[ledger.Entry] = []
            position = (-math.inf, "", "") if after is None else (after.began, after.scope, ledger.call_key(after.call))
            while len(found) < limit:
                rows = self._execute(db, _LIST, self._owner, scope, *position, limit).fetchall()
                page = [ledger.read_entry(row, now) for row in rows]
                found += [entry for entry in page if not unknown or entry.is_unknown]
                if len(rows) < limit:
                    break
                position = rows[-1][7], rows[-1][0], rows[-1][1]  # began, scope and key of the last row
            return found[:limit]

        return await self._run(list_entries, read_only=True)

    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        """Record the outcome of a call whose outcome was unknown. Returns False if no such call is recorded."""
        return await self._finish(
            scope, outcome, lambda entry: not entry.lease_left and self._owner in (entry.owner, "")
        )

    # Runs that wait for decisions. `streamtools.serving.waiting_runs` uses these methods.

    async def save_run(
        self, owner: str, run_id: str, conversation: str | None, data: bytes, keep: float, holder: str
    ) -> bool:
        """Store an ended run for `keep` seconds, and delete expired runs. Returns False if the run was not stored.

        A run is not stored if its id is already stored. A run that continues another run is stored only if `holder` is
        the last holder of the other run, and no other continuation is stored. All earlier runs of the chain are then
        kept as long as the new run.
        """

        def save(db: Any) -> bool:
            now = self._now(db)
            self._execute(db, _DELETE_WAITING, now, self._max_runs)
            if run_id.endswith("~"):
                state = self._state_of(db, owner, waiting := run_id.removesuffix("~"), now)
                if state is None or state.continued or state.holder != holder:
                    return False
                self._execute(db, _SET_STATE, owner, waiting, msgspec.json.encode(replace(state, continued=True)))
                self._execute(db, _KEEP_WAITING, owner, run_id.rstrip("~"), now + keep, math.inf)
            row = owner, run_id, conversation, data, msgspec.json.encode(WaitingState()), now, now + keep
            return bool(self._execute(db, _INSERT_WAITING, *row).rowcount)

        return await self._run(save, undoable=True)

    async def find_runs(
        self, owner: str, run_id: str | None = None, conversation: str | None = None, limit: int = 1
    ) -> list[Row]:
        """Return the id, conversation and data of the last stored runs: with this id, of a conversation, or of all."""

        def find(db: Any) -> list[Row]:
            return [*self._execute(db, _FIND_WAITING, owner, run_id, conversation, self._now(db), limit)]

        return await self._run(find, read_only=True)

    async def forget_run(self, run_id: str, *, owner: str) -> None:
        """Delete a stored run, the runs that it continues, and those that continue it."""
        await self._run(lambda db: self._execute(db, _FORGET_WAITING, owner, run_id.rstrip("~")))

    async def change_run(
        self, owner: str, run_id: str, change: Callable[[WaitingState, float], WaitingState] | None, keep: float = 0.0
    ) -> WaitingState:
        """Replace the state of a stored run by `change(state, now)`. Returns the new state.

        If the state changes, the runs of the chain are kept for at least `keep` more seconds. If `change` is None, the
        state does not change. Raises `RunNotFound` if the run is not stored.
        """

        def change_state(db: Any) -> WaitingState:
            now = self._now(db)
            state = self._state_of(db, owner, run_id, now)
            if state is None:
                raise RunNotFound(f"The run {run_id[:64]!r} is not kept any more.")
            changed = state if change is None else change(state, now)
            if changed != state:
                self._execute(db, _SET_STATE, owner, run_id, msgspec.json.encode(changed))
                self._execute(db, _KEEP_WAITING, owner, run_id.rstrip("~"), now + keep, now + keep)
            return changed

        return await self._run(change_state, read_only=change is None)

    def _state_of(self, db: Any, owner: str, run_id: str, now: float) -> WaitingState | None:
        row = self._execute(db, _SELECT_STATE, owner, run_id, now).fetchone()
        return msgspec.json.decode(row[0], type=WaitingState) if row else None

    async def _finish(self, scope: str, outcome: ToolOutcome, may_finish: Callable[[ledger.Entry], bool]) -> bool:
        """Record the outcome if the call has none and `may_finish` returns True for its entry.

        Returns True if the outcome was recorded.
        """
        primary_key, written = (scope, ledger.call_key(outcome.call)), write_json(outcome)

        def finish(db: Any) -> bool:
            now = self._now(db)
            row = self._execute(db, _SELECT, *primary_key).fetchone()
            if not row or (entry := ledger.read_entry(row, now)).outcome is not None or not may_finish(entry):
                return False
            self._execute(db, _FINISH, *primary_key, written, now)
            return True

        return await self._run(finish)

    def _raise_epoch(self, db: Any, scope: str, epoch: int) -> None:
        """Record the epoch of a run, and lock the row of the run. Raises `CallRefused` if the run has a later epoch.

        The epoch counts the processes that have driven the run. A later epoch belongs to a process that took the run
        over.
        """
        now = self._now(db)
        self._execute(db, _PRUNE_RUNS, now - self.keep)
        if not self._execute(db, _RAISE_EPOCH, scope, epoch, now).rowcount:
            raise CallRefused(ledger.TAKEN_OVER)

    def _make_room(self, db: Any, now: float) -> None:
        """Delete entries if the ledger is full. Raises `CallRefused` if it must keep all of them."""

    def _now(self, db: Any) -> float:
        """Return the current time, in seconds since 1970."""
        raise NotImplementedError

    async def _run(self, work: Callable[[Any], T], *, read_only: bool = False, undoable: bool = False) -> T:
        """Call `work` with a connection in one database transaction, commit it, and return the result of `work`.

        `read_only` is True if the transaction writes nothing. A cancellation takes effect immediately, even if the
        transaction is still running. With `undoable=True`, the transaction is then rolled back if possible. Otherwise,
        it may commit.
        """
        raise NotImplementedError

    def _execute(self, db: Any, statement: str, *parameters: Any) -> Any:
        """Execute a statement, and return its cursor."""
        return db.execute(self._sql(statement), parameters)

    def _sql(self, statement: str) -> str:
        return statement.format(prefix=self._table_prefix, lock=self._lock_rows, skip=self._skip_locked)


# The ledgers of SQLite.

_OPEN_TIMEOUT_S = 30.0
_PAUSE = wait_random_exponential(0.01, max=0.1)  # between attempts while the file is locked, in seconds

_IN_MEMORY = ":memory:"

_SET_UP = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
BEGIN;
{TABLES.format(prefix="", text="text")}
COMMIT
"""
_INDEXES = """
CREATE INDEX calls_of_owner ON calls (owner) WHERE outcome IS NULL;
CREATE INDEX ended_calls_of_owner ON calls (owner, until) WHERE outcome IS NOT NULL;
CREATE INDEX ended_calls ON calls (until) WHERE outcome IS NOT NULL;
"""
_COUNT_KEPT = """
SELECT (SELECT count(*) FROM calls WHERE owner = ?1 AND outcome IS NULL)
    + (SELECT count(*) FROM calls WHERE owner = ?1 AND outcome IS NOT NULL AND until > ?2)
"""
_DELETE_OLDEST = """
DELETE FROM calls WHERE (scope, key) IN (
    SELECT scope, key FROM calls WHERE outcome IS NOT NULL AND until <= ?1 ORDER BY until LIMIT 1
)
"""


class SQLiteLedger(SQLLedger):
    """A call ledger in the SQLite file `path`. The processes of one machine can share the file.

    `lease` is the time in seconds after which a process that does not renew its lease is considered dead. `keep` is the
    time in seconds that an entry is kept after its call has ended. The number of entries is not limited.

    Use it with `async with`, or call `close()`. The file holds the arguments and results of tools. A new file can be
    read only by the system user that created it. Raises OSError if the file cannot be created, and sqlite3.Error if it
    is not a database or not writable.
    """

    def __init__(self, path: str | os.PathLike[str], *, lease: float = 15.0, keep: float = 2_592_000) -> None:
        super().__init__(lease=lease, keep=keep)
        self._lock = threading.Lock()
        if path != _IN_MEMORY:
            if not Path(path).parent.is_dir():
                raise FileNotFoundError(f"make the folder of the ledger first: {Path(path).parent} does not exist")
            if Path(path).is_dir():
                raise IsADirectoryError(f"write the path of a file, such as calls.sqlite: {path} is a folder")
            Path(path).touch(0o600)
        self._connection = _open(path)

    def close(self) -> None:
        """Close the file, also for the ledgers that `of` returned. Calling it again has no effect."""
        with self._lock:
            self._connection.close()

    async def aclose(self) -> None:
        """Close the file, as at the end of `async with`; see `close`."""
        self.close()

    def _now(self, db: Any) -> float:
        return time.time() if self._clock is None else self._clock()

    async def _run(self, work: Callable[[Any], T], *, read_only: bool = False, undoable: bool = False) -> T:
        is_cancelled = False
        transact = partial(self._transact, work, read_only=read_only, is_undone=lambda: is_cancelled and undoable)
        retrying = AsyncRetrying(retry=retry_if_exception(_is_locked), wait=_PAUSE, sleep=anyio.sleep)
        limiter = anyio.CapacityLimiter(1)  # not shared: an abandoned thread must not block other calls
        try:
            done: T = await retrying(anyio.to_thread.run_sync, transact, abandon_on_cancel=True, limiter=limiter)
            return done
        finally:
            is_cancelled = True

    def _transact(
        self, work: Callable[[Any], T], *, read_only: bool, is_undone: Callable[[], bool] = lambda: False
    ) -> T:
        with self._lock:
            db = self._connection
            db.execute("BEGIN" if read_only else "BEGIN IMMEDIATE")
            try:
                done = work(db)
                db.execute("ROLLBACK" if is_undone() else "COMMIT")
                return done
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")


class MemoryLedger(SQLiteLedger):
    """A call ledger in the memory of this process.

    It holds at most `size` calls in total. When space is needed, the oldest entries are deleted, except kept calls.
    Kept calls are running calls, abandoned calls, and ended calls that a suspension may still name. An approver may
    send a decision about such an ended call twice, and the second decision must find the entry. At most `per_owner` of
    the kept calls belong to one owner, a user of the application. If kept calls reach one of these limits, the ledger
    refuses new calls. If about `size` waiting runs are stored, the oldest are deleted.

    `keep` is the time in seconds that an entry is kept after its call has ended.
    """

    def __init__(self, size: int = 10_000, *, per_owner: int = 1_000, keep: float = 604_800) -> None:
        super().__init__(_IN_MEMORY, lease=math.inf, keep=keep)  # all holders are in this process
        self._size = self._max_runs = size
        self._per_owner = per_owner
        self._connection.executescript(_INDEXES)

    def _make_room(self, db: Any, now: float) -> None:
        db.execute("DELETE FROM runs WHERE epoch = 0")  # runs that no process has fenced
        if self._owner:
            (count,) = db.execute(_COUNT_KEPT, (self._owner, now)).fetchone()
            if count >= self._per_owner:
                raise CallRefused(f"its owner already has {self._per_owner:,} calls in the ledger; raise `per_owner`")
        (count,) = db.execute("SELECT count(*) FROM calls").fetchone()
        if count >= self._size and not db.execute(_DELETE_OLDEST, (now,)).rowcount:
            raise CallRefused(f"the ledger already holds {self._size:,} calls; raise `size`")

    async def _run(self, work: Callable[[Any], T], *, read_only: bool = False, undoable: bool = False) -> T:
        return self._transact(work, read_only=read_only)


def _is_locked(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF in (5, 6)  # SQLITE_BUSY and SQLITE_LOCKED, with their extended codes


@retry(retry=retry_if_exception(_is_locked), wait=_PAUSE, stop=stop_after_delay(_OPEN_TIMEOUT_S), reraise=True)
def _open(path: str | os.PathLike[str]) -> sqlite3.Connection:
    """Open the file and create its tables. Retry while the file is locked.

    SQLite ignores its `timeout` in two cases, and fails immediately: while another process switches a new file to WAL
    mode, and while another process closes the last connection.
    """
    import sqlite3

    class Connection(sqlite3.Connection):
        def __del__(self) -> None:  # a ledger in memory is not closed explicitly
            self.close()

    db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False, factory=Connection)
    try:
        db.executescript(_SET_UP)
    except BaseException:
        db.close()
        raise
    return db
