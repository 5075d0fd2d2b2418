"""Conversations in a file of SQLite, from which the server that is started next goes on.

What the server knows stands in its memory; the file is written behind it, by a task of its own and in a thread, and is
read when the server starts, and for answers whose events are not in memory. Of a browser's cookie it holds a digest.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import anyio
import anyio.to_thread
from msgspec.structs import replace

from streamtools.events import UIEvent, read_ui_event
from streamtools.logs import Logger, loggable
from streamtools.outputs import native
from streamtools.runs import MemoryEventLog, Run
from streamtools.serving.lost_run import close_lost
from streamtools.stream import stored_result
from streamtools.stream.result import Collector, TurnResult

log = Logger(__name__)

_PAUSE = 0.25  # seconds between two writes
_UNSEEN = 1_000_000  # by how much the numbers of an end jump behind events that may have been shown and not written
_NUMBER = re.compile(rb"^id: (\d+)$", re.MULTILINE)
_VERSION = 2
_TABLES = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, owner TEXT NOT NULL, used REAL NOT NULL);
CREATE TABLE turns (
    place INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    conversation TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
    question TEXT NOT NULL,
    result BLOB,
    images TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX turns_conversation ON turns (conversation);
CREATE TABLE events (
    run TEXT NOT NULL REFERENCES turns (run) ON DELETE CASCADE,
    last INTEGER NOT NULL,
    frames BLOB NOT NULL,
    PRIMARY KEY (run, last)
) WITHOUT ROWID;
PRAGMA user_version = 2;
"""
_IMAGES = "ALTER TABLE turns ADD COLUMN images TEXT NOT NULL DEFAULT '[]'; PRAGMA user_version = 2;"
_ADD_EVENTS = "INSERT OR IGNORE INTO events SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM turns WHERE run = ?1)"

_Statement: TypeAlias = "tuple[str, Sequence[Any]]"


class EndedRun(NamedTuple):
    """A run of an earlier server."""

    id: str
    result: TurnResult
    ended: bool = True


class KeptTurn(NamedTuple):
    """A turn in the file, of the conversation with this id, which this owner used last at this time."""

    owner: str
    used: float
    conversation: str
    question: str
    run: EndedRun
    images: Sequence[str]


class ConversationFile:
    """The file. Raises sqlite3.Error, OSError or ValueError for one that is none, or that another server uses."""

    def __init__(self, path: str) -> None:
        Path(path).touch(0o600)
        self.log = _Log(self)
        self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        self._todo: list[_Statement] = []
        self._said: dict[str, list[UIEvent]] = {}  # by run, and not written yet
        self._going: dict[str, Run] = {}
        self._news = anyio.Event()
        try:
            self._set_up()
        except BaseException:
            self._db.close()
            raise

    def turns(self) -> Iterator[KeptTurn]:
        """Yield what is there, of the conversation that was used last at last. What broke off gets an end."""
        rows = self._db.execute(
            "SELECT owner, used, conversation, question, run, result, images FROM turns JOIN conversations "
            "ON conversations.id = conversation ORDER BY used, place"
        )
        for owner, used, conversation, question, run, stored, images in rows.fetchall():
            try:
                result = self._end(run) if stored is None else stored_result.read(stored).result
            except ValueError as error:  # of a later version
                log.warning("result_not_read", **loggable(error))
                result = TurnResult(reason="failed")
            yield KeptTurn(owner, used, conversation, question, EndedRun(run, result), json.loads(images))

    def use(self, conversation: str, owner: str, used: float) -> None:
        use = "INSERT INTO conversations VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET used = excluded.used"
        self.do(use, conversation, owner, used)

    def add(self, conversation: str, question: str, run: Run, images: Sequence[str], gone: Sequence[str]) -> None:
        """Note a turn that has begun; the answers of these runs are in its conversation no more."""
        for each in gone:
            self.do("DELETE FROM turns WHERE run = ?", each)
        self.do("INSERT INTO turns VALUES (NULL, ?, ?, ?, NULL, ?)", run.id, conversation, question, json.dumps(images))
        self._going[run.id] = run

    def forget(self, conversation: str) -> None:
        self.do("DELETE FROM conversations WHERE id = ?", conversation)

    def hear(self, run: str, events: Sequence[UIEvent]) -> None:
        self._said.setdefault(run, []).extend(events)
        self._news.set()

    def do(self, statement: str, *values: Any) -> None:
        self._todo.append((statement, values))
        self._news.set()

    async def read(self, run: str, after: int) -> bytes:
        """Return the events of a run behind `after` as server-sent events."""
        rows = await anyio.to_thread.run_sync(partial(self._read, run, after))
        frames = (frame for row in rows for frame in row.split(b"\n\n"))
        return b"".join(
            frame + b"\n\n" for frame in frames if (number := _NUMBER.search(frame)) and int(number[1]) > after
        )

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write until this is left, and then the rest."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._write_on)
                yield
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._flush()
                self._db.close()

    async def _write_on(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await self._flush()
            await anyio.sleep(_PAUSE)
            if any(run.ended for run in self._going.values()):
                self._news.set()

    async def _flush(self) -> None:
        todo, said = self._todo, self._said
        self._todo, self._said = [], {}
        ended = [run for run in self._going.values() if run.ended]
        for run in ended:
            del self._going[run.id]
        with anyio.CancelScope(shield=True):
            try:
                await anyio.to_thread.run_sync(self._write, todo, said, [(run.id, run.result) for run in ended])
            except sqlite3.Error as error:  # the disk is full, perhaps: the conversations go on
                log.warning("conversations_not_written", **loggable(error))

    def _write(
        self, todo: list[_Statement], said: dict[str, list[UIEvent]], ended: list[tuple[str, TurnResult]]
    ) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for statement in todo:
                self._db.execute(*statement)
            for run, events in said.items():
                self._db.execute(_ADD_EVENTS, (run, events[-1].seq, b"".join(map(native().encode, events))))
            for run, result in ended:
                try:
                    stored = stored_result.store(result)
                except ValueError as error:
                    log.warning("result_not_kept", **loggable(error))
                else:
                    self._db.execute("UPDATE turns SET result = ? WHERE run = ?", (stored, run))
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _read(self, run: str, after: int) -> list[bytes]:
        rows = self._db.execute("SELECT frames FROM events WHERE run = ? AND last > ? ORDER BY last", (run, after))
        return [row for (row,) in rows.fetchall()]

    def _end(self, run: str) -> TurnResult:
        """End a run that the server's end has broken off, and return what it has come to."""
        lines = b"".join(self._read(run, 0)).split(b"\n")
        said = [read_ui_event(line[6:]) for line in lines if line.startswith(b"data: ")]
        end = list[UIEvent]()
        if not said or said[-1].type != "done":
            first = (said[-1].seq if said else 0) + _UNSEEN
            end = [replace(each, seq=first + at) for at, each in enumerate(close_lost(run, said, lambda _: None))]
        collector = Collector(())
        collector.add((*said, *end))
        result = collector.read()
        self._write([], {run: end} if end else {}, [(run, result)])
        return result

    def _set_up(self) -> None:
        for name in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "foreign_keys = ON", "secure_delete = ON"):
            self._db.execute(f"PRAGMA {name}")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if not version and self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise ValueError("it is the file of something else")
        if version not in (0, 1, _VERSION):
            raise ValueError(f"it is of version {version}, and this is version {_VERSION}")
        self._db.executescript("BEGIN IMMEDIATE;" + {0: _TABLES, 1: _IMAGES}.get(version, "") + "COMMIT;")


class _Log(MemoryEventLog):
    """The log of the runs, all of which is written down, too."""

    def __init__(self, kept: ConversationFile) -> None:
        super().__init__(max_age=None, max_ended=None)
        self._file = kept

    def extend(self, key: str, events: Sequence[UIEvent]) -> None:
        super().extend(key, events)
        self._file.hear(unquote(key.partition("/")[2]), events)
