"""Stores waiting runs in the ledger of their tools, so that they outlive this process.

A waiting run has ended with calls that await a decision. Several processes may share the ledger. One of them continues
the run, and holds a lease on it. If that process dies, its lease expires, and another process may continue the run. No
decided call runs twice, because the ledger has its outcome. If the continuation has made calls of its own, it is not
started again, but ends with an error.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from streamtools.errors import RunNotFound
from streamtools.events import Done, UIEvent, read_ui_event
from streamtools.logs import Logger, loggable
from streamtools.serving.event_log import MemoryReader
from streamtools.serving.lost_run import end_lost_run, outcomes_of
from streamtools.serving.run import NEXT, EndedStream, Run
from streamtools.stream import stored_result
from streamtools.stream.reading import Startable
from streamtools.tools import Decision
from streamtools.tools.sql_ledger import RunState, SQLLedger

log = Logger(__name__)

_POLL_S = 0.5  # pause between attempts to read a run that another process continues
_KEEP_LONGER_S = 60.0  # so that a run is kept at least until its lease is renewed


class StoredRun(msgspec.Struct, frozen=True):
    """An ended run as the ledger stores it.

    `end` is the JSON of its result, its suspension and its history. `events` has the JSON of each event, with `done`.
    `copied` is the `seq` of the last event that was copied from the run before it, or 0.
    """

    id: str
    conversation: str | None
    note: Any
    end: str
    events: list[str]
    copied: int = 0


class WaitingRuns:
    """The waiting runs in one ledger, and the ended runs that continued them.

    A run is kept for `keep` seconds, after its questions have expired. `resume` returns the stream that continues a
    run.
    """

    def __init__(self, ledger: SQLLedger, keep: float, resume: Callable[[Run], Awaitable[Startable]]) -> None:
        self._ledger, self._keep, self._resume = ledger, keep, resume
        self._holder = secrets.token_hex(8)  # the name of this process

    async def save(self, run: Run, done: Done) -> bool:
        """Store the end of a run before its `done` is written. Returns whether the run is stored.

        A continuation is stored only if this process has the lease on the run that waited. If the user has stopped it
        here, the process with the lease is told to stop it. If it ends because this process closes, it is not stored.
        Then another process may continue the run that waited. Raises ValueError if a run that waits cannot be stored.
        """
        waiting = run.id.removesuffix(NEXT) if run.id.endswith(NEXT) else ""
        if run.is_stored:
            return True
        if run.is_cut and done.reason == "cancelled":
            await self._release(run.owner, waiting)
            return False
        events = list[str]()
        with suppress(RunNotFound):  # the events are not kept
            reader = run.journal.event_log.read(run.journal.key)
            while isinstance(reader, MemoryReader) and (event := reader.take()) is not None:
                events.append(event.to_json())
        stored = StoredRun(
            run.id, run.conversation, run.note, run.dump().decode(), [*events, done.to_json()], run.copied
        )
        data, keep = msgspec.json.encode(stored), run.keep_for(self._keep)
        is_stored = await self._ledger.save_run(
            run.owner, run.id, run.conversation, data, keep, waiting=waiting, holder=self._holder
        )
        if not is_stored and done.reason == "waiting":
            raise ValueError(f"The run {run.id[:64]!r} is already stored, or another process continues it.")
        if not is_stored and run.is_stopped:
            with suppress(RunNotFound):  # the run was forgotten
                await self._ledger.change_run(run.owner, waiting, lambda state, now: replace(state, stopped=True))
        return is_stored

    async def find(self, owner: str, run_id: str | None, conversation: str | None = None) -> StoredRun | None:
        """Return the stored run with this id, or the last one of a conversation. Returns None if there is none."""
        data = await self._ledger.find_run(owner, run_id, conversation)
        return None if data is None else msgspec.json.decode(data, type=StoredRun)

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Delete a stored run, the runs that it continues, and those that continue it."""
        await self._ledger.forget_run(run_id, owner=owner)

    async def decide(self, run: Run, call_id: str = "", decision: Decision | None = None) -> dict[str, Decision]:
        """Store a decision about a call. Returns all decisions about calls of the run, by call id.

        Nothing is stored if `decision` is None, if the call already has a decision, or if a process has continued the
        run. Raises `RunNotFound` if the run is not stored any more.
        """

        def decide(state: RunState, now: float) -> RunState:
            if decision is None or state.holder or call_id in state.decisions:
                return state
            return replace(state, decisions={**state.decisions, call_id: decision})

        return (await self._ledger.change_run(run.owner, run.id, None if decision is None else decide)).decisions

    async def start(self, run: Run) -> Startable:
        """Return the stream that continues a run: here, or in the process that continues it.

        After an exception, another process may continue the run.
        """
        return await self._continued(run) if self._holds(await self._claim(run)) else self._follow(run)

    def _holds(self, state: RunState) -> bool:
        return state.holder == self._holder and state.held > 0 and not state.ended

    async def _claim(self, run: Run) -> RunState:
        """Take the lease on a run, unless another process has a valid one or the continuation is stored.

        Returns the state of the run. Raises `RunNotFound` if the run is not stored any more.
        """

        def claim(state: RunState, now: float) -> RunState:
            if state.ended or (state.holder != self._holder and state.held > now):
                return state
            return replace(state, holder=self._holder, held=now + min(self._ledger.lease, 1e9))  # JSON has no infinity

        return await self._ledger.change_run(run.owner, run.id, claim, self._keep + _KEEP_LONGER_S)

    async def release(self, run: Run) -> None:
        """End the lease of this process, so that the same decisions can continue the run again."""
        await self._release(run.owner, run.id)

    async def _release(self, owner: str, run_id: str) -> None:
        def release(state: RunState, now: float) -> RunState:
            return replace(state, held=0.0) if self._holds(state) else state

        with suppress(RunNotFound), anyio.CancelScope(shield=True):
            await self._ledger.change_run(owner, run_id, release)

    async def _continued(self, run: Run) -> Startable:
        """Return the stream that continues a run on which this process has the lease."""
        try:
            state = await self._ledger.change_run(run.owner, run.id, None)
            run.decisions = state.decisions
            if not state.stopped and not await self._ledger.entries(run.next_id, limit=1):
                return await self._resume(run)
            assert run.suspension is not None
            outcomes = await outcomes_of(self._ledger, run.suspension.run_id)
            outcomes |= await outcomes_of(self._ledger, run.next_id)
            return EndedStream(*end_lost_run(await run.events_until_waiting(), run.next_id, outcomes))
        except BaseException:
            await self.release(run)
            raise

    @asynccontextmanager
    async def _follow(self, run: Run) -> AsyncIterator[AsyncIterable[UIEvent]]:
        """Wait for the process that continues `run`, and return its events. If it dies, continue the run here."""
        while True:
            if (stream := await self._try_to_continue(run)) is not None:
                break
            await anyio.sleep(_POLL_S)
        async with stream as events:
            yield events

    async def _try_to_continue(self, run: Run) -> Startable | None:
        """Return the stored continuation of a run, or continue the run here. Returns None while another process does.

        A failure of the ledger is logged, because it may pass. Raises `RunNotFound` if the run is not stored any more.
        """
        try:
            if (stored := await self.find(run.owner, run.next_id)) is not None:
                end = stored_result.load(stored.end.encode())
                return EndedStream(map(read_ui_event, stored.events), end, is_stored=True)
            is_held = self._holds(await self._claim(run))
        except RunNotFound:
            raise
        except Exception as error:
            log.debug("run_not_followed", run_id=run.id, **loggable(error))
            return None
        return await self._continued(run) if is_held else None

    async def hold(self, run: Run, continuation: Run) -> None:
        """Renew the lease on a run until its continuation has ended.

        The continuation is stopped if another process asks for it. If the lease is lost or the run was forgotten, the
        continuation ends here, and is not stored.
        """
        was_held = False
        while not continuation.has_done:
            try:
                state = await self._claim(run)
                if state.stopped:
                    continuation.cancel()
                elif was_held and not (self._holds(state) or state.ended):
                    continuation.cut()
                was_held = self._holds(state)
            except RunNotFound:
                continuation.cut()
            except Exception as error:
                log.debug("lease_not_renewed", run_id=run.id, **loggable(error))
            with suppress(Exception), anyio.move_on_after(self._ledger.lease / 3):
                await continuation.wait()
