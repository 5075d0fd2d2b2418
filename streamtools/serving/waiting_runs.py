"""Stores waiting runs in the ledger of their tools, so that they outlive this process.

A waiting run has ended with calls that await a decision. Several processes may share the ledger. One of them continues
the run, and holds a lease on it. If that process dies, its lease expires, and another process may continue the run. No
decided call runs twice, because the ledger records each call. If the process died after the continuation had made new
calls, the continuation is not started again, but ends with an error.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from streamtools.errors import ClosedError, RunNotFound, check_methods
from streamtools.events import Done, UIEvent, read_ui_event
from streamtools.logs import Logger, loggable
from streamtools.rules.vault import Vault
from streamtools.serving.event_log import MemoryEventLog, MemoryReader
from streamtools.serving.run import Run
from streamtools.stream import stored_result
from streamtools.stream.lost_run import PROCESS_ENDED, end_lost_run
from streamtools.stream.result import TurnResult
from streamtools.stream.stored_result import StoredEnd
from streamtools.tools import Decision
from streamtools.tools.ledger import entries_of
from streamtools.tools.sql_ledger import SQLLedger, WaitingState

log = Logger(__name__)

_POLL_S = 0.5  # pause between attempts to read a run that another process continues
_RETRY_S = 5.0  # the additional pause after a failure
_LONGEST_LEASE_S = 15.0  # an upper limit, because the lease of a ledger in memory never expires
_KEEP_LONGER_S = 60.0  # so that a run is kept at least until its lease is renewed


class StoredRun(msgspec.Struct, frozen=True):
    """The data of an ended run that the ledger stores, besides the owner, the id and the conversation.

    `end` is the JSON of its result, its suspension and its history. `events` has the JSON of each event, with `done`.
    `vault_state` is the `state` of its vault, if it has one. `copied` is the `seq` of the last event that was copied
    from the waiting run, or 0.
    """

    note: Any
    end: str
    events: list[str]
    copied: int
    vault_state: Mapping[str, Any] | None = None


class WaitingRuns:
    """The waiting runs in one ledger, and the ended runs that continued them.

    A run is kept until its last question has expired, and then for `keep` seconds. Raises TypeError if `ledger` stores
    no runs.
    """

    def __init__(self, ledger: Any, keep: float) -> None:
        check_methods("ledger", ledger, "a ledger in a database, such as SQLiteLedger(path)", "find_runs")
        self._ledger: SQLLedger = ledger
        self._keep = keep
        self._lease = min(ledger.lease, _LONGEST_LEASE_S)
        self._holder = secrets.token_hex(8)  # the name of this process

    async def find(self, run_id: str, *, owner: str) -> Run:
        """Return a stored run. Raises `RunNotFound` if there is none with this id."""
        rows = await self._ledger.find_runs(owner, run_id)
        if not rows:
            raise RunNotFound(f"There is no run {run_id[:64]!r}.")
        row = rows[0]
        stored = msgspec.json.decode(row[2], type=StoredRun)
        log = MemoryEventLog(max_events=len(stored.events), max_bytes=None)
        run = Run(None, run_id, owner, log, conversation=row[1], note=stored.note, place=self)
        for event in stored.events:
            log.add(run._journal.key, read_ui_event(event))
        run._load(stored.end.encode())
        run._copied, run._is_stored = stored.copied, True
        run._vault = None if stored.vault_state is None else Vault(state=stored.vault_state)
        run._finished.set()
        return run

    async def latest(self, conversation: str, *, owner: str) -> str | None:
        """Return the id of the last stored run of the user `owner` in a conversation; None if there is none."""
        rows = await self._ledger.find_runs(owner, None, conversation)
        return rows[0][0] if rows else None

    async def list(self, owner: str, limit: int) -> list[str]:
        """Return the ids of the last `limit` stored runs of the user `owner`, the newest first."""
        return [row[0] for row in await self._ledger.find_runs(owner, limit=limit)]

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Delete a stored run, the runs that it continues, and the runs that continue it."""
        await self._ledger.forget_run(run_id, owner=owner)

    async def save(self, run: Run, done: Done) -> bool:
        """Store the end of a run before its `done` is written. Returns whether the run is stored.

        A continuation is stored only if this process has the lease on the run that waited. A cancelled continuation is
        not stored in two cases: it had no readers, or this process can no longer drive it. Then another process,
        perhaps one with a reader, may continue the run that waited. Raises ValueError if a run that waits cannot be
        stored.
        """
        if (run._is_cut or run._is_abandoned) and done.reason == "cancelled":
            return False
        reader = run._journal.event_log.read(run._journal.key)
        assert isinstance(reader, MemoryReader)
        events: Iterator[UIEvent] = iter(reader.take, None)
        is_stored = await self._store(run, [*events, done])
        if not is_stored and done.reason == "waiting":
            raise ValueError(f"The run {run.id[:64]!r} is already stored, or another process continues it.")
        return is_stored

    async def _store(self, run: Run, events: Sequence[UIEvent]) -> bool:
        """Store an ended run with all its events. Returns False if it is not stored."""
        written = [event.to_json() for event in events]
        vault_state = None if run._vault is None else run._vault.state
        stored = StoredRun(run.note, run._dump().decode(), written, run._copied, vault_state)
        data, keep = msgspec.json.encode(stored), run._keep_for(self._keep)
        return await self._ledger.save_run(run.owner, run.id, run.conversation, data, keep, self._holder)

    async def decide(self, run: Run, call_id: str = "", decision: Decision | None = None) -> dict[str, Decision]:
        """Store a decision about a call. Returns all decisions about calls of the run, by call id.

        Nothing is stored if `decision` is None, or if the call already has a decision. Raises `RunNotFound` if the run
        is not stored any more.
        """

        def decide(state: WaitingState, now: float) -> WaitingState:
            if decision is None or call_id in state.decisions:
                return state
            return replace(state, decisions={**state.decisions, call_id: decision})

        return (await self._ledger.change_run(run.owner, run.id, None if decision is None else decide)).decisions

    # The lease on a waiting run. Its holder continues the run.

    async def claim(self, run: Run, try_to_continue: Callable[[Run], Awaitable[Run]]) -> FollowedRun | None:
        """Take the lease on a waiting run, to continue it. Returns None if the caller must start the continuation.

        If the continuation is already stored, or another process has the lease, this returns a `FollowedRun`, which
        finds the continuation with `try_to_continue`. A continuation that was stopped or has made new calls is not
        started again, but stored as ended. Raises `RunNotFound` if the run is not stored any more.
        """
        followed = FollowedRun(run, self, try_to_continue)
        has_lease, state = await self._take_lease(run, starts=True)
        if not has_lease:
            return followed
        run._restarts, was_stopped = state.starts - 1, state.stop_requested
        calls = await entries_of(self._ledger, run.next_id)
        if not (calls or was_stopped):
            return None
        assert run.suspension is not None
        calls |= await entries_of(self._ledger, run.suspension.run_id)
        lost, event_log = await run._log_for_next(), run._journal.event_log
        closing, result = end_lost_run(lost.id, lost.events, calls, None if was_stopped else PROCESS_ENDED)
        ended = Run(None, lost.id, lost.owner, event_log, conversation=lost.conversation, note=lost.note, lost=lost)
        ended._load(stored_result.dump(StoredEnd(result)))
        await self._store(ended, [*lost.events, *(replace(event, seq=event.seq + lost.skip) for event in closing)])
        return followed

    async def keep_lease(self, run: Run, continuation: Run) -> None:
        """Renew the lease on a run until its continuation has ended.

        The continuation is stopped if another process has requested this. If the lease is lost or the run was
        forgotten, the continuation ends here, and is not stored.
        """
        while not continuation.ended:
            try:
                has_lease, state = await self._take_lease(run)
                if state.stop_requested:
                    continuation._cancel(by_caller=True)
                elif not has_lease:
                    continuation._cut()
            except RunNotFound:
                continuation._cut()
            except Exception as error:
                log.debug("lease_not_renewed", run_id=run.id, **loggable(error))
            with anyio.move_on_after(self._lease / 3):
                await continuation._finished.wait()

    async def stop(self, run: Run) -> None:
        """Ask the process that continues a run to stop the continuation."""
        with suppress(RunNotFound):
            await self._ledger.change_run(run.owner, run.id, lambda state, now: replace(state, stop_requested=True))

    async def _take_lease(self, run: Run, *, starts: bool = False) -> tuple[bool, WaitingState]:
        """Take or renew the lease. Do nothing if another process has a valid lease, or if the continuation is stored.

        `starts` is True if the continuation starts with this lease. Returns whether this process has the lease, and the
        state of the run. Raises `RunNotFound` if the run is not stored any more.
        """

        def take(state: WaitingState, now: float) -> WaitingState:
            if state.continued or (state.holder != self._holder and state.lease_until > now):
                return state
            return replace(state, holder=self._holder, lease_until=now + self._lease, starts=state.starts + starts)

        state = await self._ledger.change_run(run.owner, run.id, take, self._keep + _KEEP_LONGER_S)
        return state.holder == self._holder and not state.continued, state


class FollowedRun(Run):
    """A continuation that another process drives. The object is also the log from which its readers read.

    Readers get the events of the waiting run immediately. They get the later events when the continuation has ended, or
    while it runs in this process. `try_to_continue(waiting)` returns the continuation if it has ended. If the lease of
    the other process has expired, `try_to_continue` starts the continuation in this process and returns it. Otherwise
    it returns a `FollowedRun`.
    """

    def __init__(self, waiting: Run, store: WaitingRuns, try_to_continue: Callable[[Run], Awaitable[Run]]) -> None:
        super().__init__(None, waiting.next_id, waiting.owner, self, note=waiting.note)
        self.conversation = waiting.conversation
        self._waiting, self._store, self._try_to_continue = waiting, store, try_to_continue

    async def read(self, key: str, /, after: int = 0) -> AsyncIterator[UIEvent]:
        """Yield the events after the seq `after`."""
        for event in (await self._waiting._log_for_next()).events:
            if event.seq > after:
                after = event.seq
                yield event
        async with (await self._found()).attach(after) as events:
            async for event in events:
                if type(event) is Done:
                    await self.wait()
                yield event

    async def _copied_until(self) -> int:
        return (await self._waiting._log_for_next()).copied

    async def wait(self) -> TurnResult:
        if not self.ended:
            run = await self._found()
            with suppress(Exception):  # only other callers of `run.wait` get the exception
                await run.wait()
            self._final, self.decisions = run._final, run.decisions
            self._finished.set()
        return self._final.result

    async def stop(self) -> None:
        await self._store.stop(self._waiting)
        await self.wait()

    async def _found(self) -> Run:
        """Wait until the continuation is stored, or runs in this process. Retry after a failure, such as one of the
        ledger."""
        while True:
            try:
                run = await self._try_to_continue(self._waiting)
                if not isinstance(run, FollowedRun):
                    return run
            except (RunNotFound, ClosedError):
                raise
            except Exception as error:
                log.error("run_not_continued", error, run_id=self._waiting.id)
                await anyio.sleep(_RETRY_S)
            await anyio.sleep(_POLL_S)
