"""At most once: a book in which each call stands before its tool begins.

What a tool does outside of this process cannot be undone, and no process survives everything. So a call is written down
before it is dispatched and again when it has ended. Who comes back after a crash reads there that it is done, and how,
or that it had begun and nobody knows the rest: such a call is not run again, and both the model and the interface are
told so.

A call is the same if it has the same id, name and arguments and belongs to the same run (`scope`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import msgspec
import structlog
from msgspec.structs import replace

from streamtools.calls import ToolCall
from streamtools.errors import Code, ToolCallFailed, ToolFailed
from streamtools.surrogates import whole_strings
from streamtools.tools.outcome import ToolOutcome

log = structlog.get_logger(__name__)


_PATIENCE = 30.0  # seconds that a ledger may take, or one process waits for another that writes to the same


class Entry(msgspec.Struct, frozen=True):
    """What the book holds of a call that was there before; without an `outcome`, it had begun and is not known to have
    ended.
    """

    outcome: ToolOutcome | None


class CallLedger(Protocol):
    """Where calls are written down. What `begin` raises fails the call, which is not dispatched then; see `once`."""

    async def begin(self, scope: str, call: ToolCall) -> Entry | None:
        """Write down that the call begins and return None; or return what is there of it, and write nothing.

        Of several that ask at the same time, exactly one gets None.
        """

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Write down how a call has ended."""


class Unknown(ToolCallFailed):
    """The tool had begun with this call before, and nobody knows what it has done. Stays inside the package."""

    code = Code.OUTCOME_UNKNOWN


async def once(
    ledger: CallLedger, scope: str, call: ToolCall, work: Callable[[], Awaitable[ToolOutcome]]
) -> ToolOutcome:
    """Return what `work` makes of the call, written down before and after; or what was written down of it already.

    Raises `Unknown` for a call that had begun before, and `ToolFailed` where it could not be written down: then `work`
    has not been done. That its end could not be is only logged: the next to come finds it begun.
    """
    try:
        entry = await ledger.begin(scope, call)
    except Exception as error:
        text = f"tool {call.name[:64]!r} was not run: its call could not be written down"
        raise ToolFailed(call.name, text) from error
    if entry is not None:
        if entry.outcome is None:
            text = f"tool {call.name[:64]!r} had begun with this call before, and it is not known what it has done"
            raise Unknown(call.name, text)
        return replace(entry.outcome, call=call)
    outcome = await work()
    fault = "it takes too long"
    with anyio.move_on_after(_PATIENCE, shield=True):
        try:
            await ledger.finish(scope, outcome)
            return outcome
        except Exception as error:
            fault = type(error).__qualname__
    log.error("ledger_not_written", tool=call.name[:64], call_id=call.id, error=fault)
    return outcome


class MemoryLedger:
    """A book that is forgotten with the process. It holds the last `size` calls."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._entries: dict[tuple[str, str], Entry] = {}

    async def begin(self, scope: str, call: ToolCall) -> Entry | None:
        """Write down that the call begins, or return what is there of it."""
        key = (scope, call_key(call))
        if key in self._entries:
            return self._entries[key]
        while len(self._entries) >= self._size:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = Entry(None)
        return None

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Write down how a call has ended."""
        self._entries[scope, call_key(outcome.call)] = Entry(outcome)


_TABLE = """
CREATE TABLE IF NOT EXISTS calls (
    scope TEXT NOT NULL,
    call TEXT NOT NULL,
    tool TEXT NOT NULL,
    outcome BLOB,
    began TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    ended TEXT,
    PRIMARY KEY (scope, call)
) WITHOUT ROWID
"""
_BEGIN = "INSERT OR IGNORE INTO calls (scope, call, tool) VALUES (?, ?, ?)"
_LOOK = "SELECT outcome FROM calls WHERE scope = ? AND call = ?"
_FINISH = "UPDATE calls SET outcome = ?, ended = CURRENT_TIMESTAMP WHERE scope = ? AND call = ?"


class SQLiteLedger:
    """A book in a file of SQLite, which several processes may share. Each entry is on the disk before it counts.

    The file holds the results of tools: it is made so that only its owner can read it. Raises OSError where no file can
    be made, and sqlite3.Error for one that is no database, or cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import sqlite3  # takes a while to load, and most processes need none

        self._lock = threading.Lock()
        Path(path).touch(0o600)
        self._connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(_TABLE)
        except BaseException:
            self._connection.close()
            raise

    async def begin(self, scope: str, call: ToolCall) -> Entry | None:
        """Write down that the call begins, or return what is there of it."""
        return await anyio.to_thread.run_sync(self._begin, scope, call)

    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        """Write down how a call has ended."""
        await anyio.to_thread.run_sync(self._finish, scope, outcome)

    def close(self) -> None:
        """Close the file. May be repeated."""
        with self._lock:
            self._connection.close()

    def _begin(self, scope: str, call: ToolCall) -> Entry | None:
        key = call_key(call)
        with self._lock:
            if self._connection.execute(_BEGIN, (scope, key, call.name)).rowcount:
                return None
            (written,) = self._connection.execute(_LOOK, (scope, key)).fetchone()
        return Entry(None if written is None else msgspec.json.decode(written, type=ToolOutcome))

    def _finish(self, scope: str, outcome: ToolOutcome) -> None:
        with self._lock:
            self._connection.execute(_FINISH, (_to_json(outcome), scope, call_key(outcome.call)))


def _to_json(outcome: ToolOutcome) -> bytes:
    try:
        return msgspec.json.encode(outcome)
    except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot hold
        return msgspec.json.encode(whole_strings(msgspec.to_builtins(outcome)))


def call_key(call: ToolCall) -> str:
    """Return what tells a call from all others of its run: its id, and a digest of its name and arguments.

    >>> key = call_key(ToolCall(id="call_1", name="pay", arguments={"to": "Ann", "sum": 5}, dialect="native"))
    >>> key == call_key(ToolCall(id="call_1", name="pay", arguments={"sum": 5, "to": "Ann"}, dialect="native"))
    True
    >>> key == call_key(ToolCall(id="call_1", name="pay", arguments={"to": "Ann", "sum": 6}, dialect="native"))
    False
    """
    return f"{call.id}:{call.digest}"
