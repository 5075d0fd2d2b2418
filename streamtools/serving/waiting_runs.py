"""Stores waiting runs in the ledger of their tools, so that they outlive this process.

A waiting run has ended with calls that await a decision. Several processes may share the ledger. One of them continues
the run, and holds a lease on it. If that process dies, its lease expires, and another process may continue the run. No
decided call runs twice, because the ledger has its outcome. If the continuation has made calls of its own, it is not
started again, but ends with an error.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from streamtools.errors import ClosedError, RunNotFound
from streamtools.events import Done, UIEvent, read_ui_event
from streamtools.logs import Logger, loggable
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
_LONGEST_LEASE_S = 15.0  # the lease of a ledger in memory never expires
_KEEP_LONGER_S = 60.0  # so that a run is kept at least until its lease is renewed


class StoredRun(msgspec.Struct, frozen=True):
    """An ended run as the ledger stores it, in addition to its owner, id and conversation.

    `end` is the JSON of its result, its suspension and its history. `events` has the JSON of each event, with `done`.
    `copied` is the `seq` of the last event that was copied from the run before it, or 0.
    """

    note: Any
    end: str
    events: list[str]
    copied: int


class WaitingRuns:
    """The waiting runs in one ledger, and the ended runs that continued them.

    A run is kept until its last question has expired, and then for `keep` seconds.
    """

    def __init__(self, ledger: SQLLedger, keep: float) -> None:
        self._ledger, self._keep = ledger, keep
        self._lease = min(ledger.lease, _LONGEST_LEASE_S)
        self._holder = secrets.token_hex(8)  # the name of this process

    async def find(self, run_id: str, *, owner: str) -> Run:
        """Return a stored run. Raises `RunNotFound` if there is none with this id."""
        row = await self._ledger.find_run(owner, run_id)
        if row is None:
            raise RunNotFound(f"There is no run {run_id[:64]!r}.")
        stored = msgspec.json.decode(row[2], type=StoredRun)
        log = MemoryEventLog(max_events=len(stored.events), max_bytes=None)
        run = Run(None, run_id, owner, log, conversation=row[1], note=stored.note)
        for event in stored.events:
            log.add(run.journal.key, read_ui_event(event))
        run.load(stored.end.encode())
        run.copied, run.is_stored = stored.copied, True
        run.mark_finished()
        return run

    async def latest(self, conversation: str, *, owner: str) -> str | None:
        """Return the id of the last stored run of the user `owner` in a conversation; None if there is none."""
        row = await self._ledger.find_run(owner, None, conversation)
        return None if row is None else row[0]

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Delete a stored run, the runs that it continues, and those that continue it."""
        await self._ledger.forget_run(run_id, owner=owner)

    async def save(self, run: Run, done: Done) -> bool:
        """Store the end of a run before its `done` is written. Returns whether the run is stored.

        A continuation is stored only if this process has the lease on the run that waited. If it is cut or abandoned,
        it is not stored: then another process, which may have a reader, may continue the run that waited. Raises
        ValueError if a run that waits cannot be stored.
        """
        if (run.is_cut or run.is_abandoned) and done.reason == "cancelled":
            return False
        reader, events = run.journal.event_log.read(run.journal.key), list[UIEvent]()
        assert isinstance(reader, MemoryReader)
        while (event := reader.take()) is not None:
            events.append(event)
        is_stored = await self._store(run, [*events, done])
        if not is_stored and done.reason == "waiting":
            raise ValueError(f"The run {run.id[:64]!r} is already stored, or another process continues it.")
        return is_stored

    async def _store(self, run: Run, events: Sequence[UIEvent]) -> bool:
        """Store an ended run with all its events. Returns False if it is not stored."""
        stored = StoredRun(run.note, run.dump().decode(), [event.to_json() for event in events], run.copied)
        data, keep = msgspec.json.encode(stored), run.keep_for(self._keep)
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

        Otherwise the continuation is stored, or another process has the lease. Then this returns a `FollowedRun`, which
        finds the continuation with `try_to_continue`. If the continuation was stopped or has made calls of its own, it
        is not started again, but stored as ended. Raises `RunNotFound` if the run is not stored any more.
        """
        state, followed = await self._take_lease(run), FollowedRun(run, self, try_to_continue)
        if not self._has_lease(state):
            return followed
        calls = await entries_of(self._ledger, run.next_id)
        if not (calls or state.stop_requested):
            return None
        assert run.suspension is not None
        calls |= await entries_of(self._ledger, run.suspension.run_id)
        earlier = await run.events_for_next()
        closing, result = end_lost_run(run.next_id, earlier, calls, None if state.stop_requested else PROCESS_ENDED)
        log, name, note = run.journal.event_log, run.conversation, run.note
        lost = Run(None, run.next_id, run.owner, log, conversation=name, note=note)
        lost.copied = earlier[-1].seq if earlier else 0
        lost.load(stored_result.dump(StoredEnd(result)))
        await self._store(lost, [*earlier, *closing])
        return followed

    async def keep_lease(self, run: Run, continuation: Run) -> None:
        """Renew the lease on a run until its continuation has ended.

        The continuation is stopped if another process has requested that. If the lease is lost or the run was
        forgotten, the continuation ends here, and is not stored.
        """
        while not continuation.ended:
            try:
                state = await self._take_lease(run)
                if state.stop_requested:
                    continuation.cancel()
                elif not self._has_lease(state):
                    continuation.cut()
            except RunNotFound:
                continuation.cut()
            except Exception as error:
                log.debug("lease_not_renewed", run_id=run.id, **loggable(error))
            with suppress(Exception), anyio.move_on_after(self._lease / 3):
                await continuation.wait()

    async def stop(self, run: Run) -> None:
        """Ask the process that continues a run to stop the continuation."""
        with suppress(RunNotFound):
            await self._ledger.change_run(run.owner, run.id, lambda state, now: replace(state, stop_requested=True))

    def _has_lease(self, state: WaitingState) -> bool:
        return state.holder == self._holder and not state.continued

    async def _take_lease(self, run: Run) -> WaitingState:
        """Take or renew the lease, unless another process has a valid one or the continuation is stored.

        Returns the state of the run. Raises `RunNotFound` if the run is not stored any more.
        """

        def take(state: WaitingState, now: float) -> WaitingState:
            if state.continued or (state.holder != self._holder and state.lease_until > now):
                return state
            return replace(state, holder=self._holder, lease_until=now + self._lease)

        return await self._ledger.change_run(run.owner, run.id, take, self._keep + _KEEP_LONGER_S)


class FollowedRun(Run):
    """A continuation that another process drives. The object is also the log from which its readers read.

    They get the events up to the question, and the others when the run has ended. `try_to_continue(waiting)` returns
    the continuation if it has ended. If the lease of the other process has expired, it starts and returns the
    continuation here. Otherwise it returns a `FollowedRun`.
    """

    def __init__(self, waiting: Run, store: WaitingRuns, try_to_continue: Callable[[Run], Awaitable[Run]]) -> None:
        super().__init__(None, waiting.next_id, waiting.owner, self, note=waiting.note)
        self.conversation = waiting.conversation
        self._waiting, self._store, self._try_to_continue = waiting, store, try_to_continue
        self.journal.readable.set()

    async def read(self, key: str, /, after: int = 0) -> AsyncIterator[UIEvent]:
        """Yield the events after the seq `after`."""
        for event in await self._waiting.events_for_next():
            if event.seq > after:
                after = event.seq
                yield event
        async with (await self._found()).attach(after) as events:
            async for event in events:
                if type(event) is Done:
                    await self.wait()
                yield event

    async def wait(self) -> TurnResult:
        if not self.ended:
            run = await self._found()
            with suppress(Exception):  # only other callers of `run.wait` get the exception
                await run.wait()
            self._final, self.decisions = run._final, run.decisions
            self.mark_finished()
        return self._final.result

    async def stop(self) -> None:
        await self._store.stop(self._waiting)
        await self.wait()

    async def _found(self) -> Run:
        """Wait until the run is stored, or runs in this process. Retry after a failure of the ledger or of `resume`."""
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
