"""Stores waiting runs in the ledger of their tools, so that they outlive this process.

A waiting run has ended with calls that await a decision. Several processes may share the ledger. One of them continues
the run, and holds a lease on it. If that process dies, its lease expires. The same decision, made again, then continues
the run in another process. No call runs twice, because the ledger has the outcomes of the calls.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from streamtools.errors import RunNotFound
from streamtools.logs import Logger
from streamtools.serving.event_log import MemoryReader
from streamtools.serving.run import Run
from streamtools.stream import stored_result
from streamtools.tools.sql_ledger import RunState, SQLLedger

log = Logger(__name__)

_SAVE_TIMEOUT_S = 10.0
_KEEP_LONGER_S = 60.0  # so that a run is kept at least until its lease is renewed
_FOREVER = 1e18  # seconds; JSON has no infinity


class StoredRun(msgspec.Struct, frozen=True):
    """An ended run as the ledger stores it.

    `end` is the JSON of its result, its suspension and its history. `events` has the JSON of each event.
    """

    id: str
    conversation: str | None
    note: Any
    end: str
    events: list[str]


class WaitingRuns:
    """The waiting runs in one ledger, and the ended runs that continued them."""

    def __init__(self, ledger: SQLLedger) -> None:
        self._ledger = ledger
        self._holder = secrets.token_hex(8)  # the name of this process

    async def save(self, run: Run, seconds: float) -> None:
        """Store an ended run for `seconds`. A failure is only logged.

        Its events are stored only if the event log is in memory.
        """
        events = list[str]()
        with suppress(RunNotFound):  # the events are not kept
            reader = run.journal.event_log.read(run.journal.key)
            while isinstance(reader, MemoryReader) and (event := reader.take()) is not None:
                events.append(event.to_json())
        with anyio.CancelScope(deadline=anyio.current_time() + _SAVE_TIMEOUT_S, shield=True):
            try:
                end = stored_result.dump(run.result, run.suspension, run.history).decode()
                data = msgspec.json.encode(StoredRun(run.id, run.conversation, run.note, end, events))
                return await self._ledger.save_run(run.owner, run.id, run.conversation, data, RunState(keep=seconds))
            except Exception as error:
                log.error("run_not_stored", error, run_id=run.id)

    async def find(self, owner: str, run_id: str | None, conversation: str | None = None) -> StoredRun | None:
        """Return the stored run with this id, or the last one of a conversation. Returns None if there is none."""
        data = await self._ledger.find_run(owner, run_id, conversation)
        return None if data is None else msgspec.json.decode(data, type=StoredRun)

    async def forget(self, owner: str, run_id: str) -> None:
        """Delete a stored run, if there is one with this id."""
        await self._ledger.forget_run(owner, run_id)

    async def decide(self, run: Run, call_id: str, decision: Any) -> dict[str, Any]:
        """Store a decision about a call. Returns all decisions about calls of the run, by call id.

        Nothing is stored if `decision` is None, or if the call already has a decision.
        """

        def decide(state: RunState, now: float) -> RunState:
            if decision is None or call_id in state.decisions:
                return state
            return replace(state, decisions=state.decisions | {call_id: decision})

        return (await self._ledger.change_run(run.owner, run.id, decide)).decisions

    async def claim(self, run: Run, keep: float, *, seconds: float | None = None, holder: str | None = None) -> bool:
        """Take the lease on a run for `seconds`, by default the lease time of the ledger. Returns False on failure.

        This fails if another process has a valid lease, or if the run is not stored. With `seconds=0`, the lease ends
        immediately. With `holder`, that name gets the lease instead of this process, and False is returned. If the
        lease changes, the run is then kept for `keep` seconds and one more minute.
        """
        until = min(self._ledger.lease if seconds is None else seconds, _FOREVER)

        def claim(state: RunState, now: float) -> RunState:
            if state.holder not in ("", self._holder) and state.held > now:
                return state
            return replace(state, holder=holder or self._holder, held=now + until, keep=keep + _KEEP_LONGER_S)

        return (await self._ledger.change_run(run.owner, run.id, claim)).holder == self._holder

    async def hold(self, run: Run, continuation: Run, keep: float) -> None:
        """Renew the lease on a run until its continuation has ended. Then store the continuation.

        If the continuation was cancelled, it is not stored, and the lease ends.
        """
        try:
            while not continuation.ended:
                with suppress(Exception), anyio.move_on_after(self._ledger.lease / 3):
                    await self.claim(run, keep)
                    await continuation.wait()
        finally:
            deadline = anyio.current_time() + _SAVE_TIMEOUT_S
            with suppress(Exception), anyio.CancelScope(deadline=deadline, shield=True):
                if continuation.result.reason == "cancelled":  # the same decision can continue the run again
                    await self.claim(run, keep, seconds=0.0)
                elif continuation.suspension is None:  # `Runs` stores a continuation that waits again
                    await self.save(continuation, keep)
                    await self.claim(run, keep, seconds=_FOREVER, holder="ended")
