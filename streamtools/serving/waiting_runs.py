"""Stores runs that wait for decisions in the ledger of their tools, so that they outlive this process.

Several processes may share the ledger. One of them continues a run, and holds a lease on it. If that process dies, the
same decision, made again, continues the run in another process. The ledger has the outcomes of the calls.
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
    """An ended run as the ledger stores it. `end` is the JSON of its end, and `events` is that of its events."""

    id: str
    conversation: str | None
    note: Any
    end: str
    events: list[str]


class WaitingRuns:
    """The runs in one ledger that wait for decisions, and the ended runs that continued them."""

    def __init__(self, ledger: SQLLedger) -> None:
        self._ledger = ledger
        self._holder = secrets.token_hex(8)  # the name of this process

    async def save(self, run: Run, seconds: float) -> None:
        """Store an ended run for some seconds. A failure is only logged."""
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

    async def decide(self, run: Run, call_id: str, decision: Any) -> dict[str, Any]:
        """Store the decision about a call, unless it is None or the call has one. Returns the decisions of the run."""

        def decide(state: RunState, now: float) -> RunState:
            if decision is None or call_id in state.decisions:
                return state
            return replace(state, decisions=state.decisions | {call_id: decision})

        return (await self._ledger.change_run(run.owner, run.id, decide)).decisions

    async def claim(self, run: Run, keep: float, *, seconds: float | None = None, holder: str | None = None) -> bool:
        """Let this process continue the run for `seconds`, by default a lease. Keep the run for `keep` seconds more.

        With another `holder`, this process gives the run up. Returns False if another process continues it.
        """
        until = min(self._ledger.lease if seconds is None else seconds, _FOREVER)

        def claim(state: RunState, now: float) -> RunState:
            if state.holder not in ("", self._holder) and state.held > now:
                return state
            return replace(state, holder=holder or self._holder, held=now + until, keep=keep + _KEEP_LONGER_S)

        return (await self._ledger.change_run(run.owner, run.id, claim)).holder == self._holder

    async def hold(self, run: Run, continuation: Run, keep: float) -> None:
        """Renew the lease on a run until its continuation has ended. Then store the continuation."""
        try:
            while not continuation.ended:
                with suppress(Exception), anyio.move_on_after(self._ledger.lease / 3):
                    await self.claim(run, keep)
                    await continuation.wait()
        finally:
            deadline = anyio.current_time() + _SAVE_TIMEOUT_S
            with suppress(Exception), anyio.CancelScope(deadline=deadline, shield=True):
                if continuation.result.reason == "cancelled":  # after a restart, the same decision continues the run
                    await self.claim(run, keep, seconds=0.0)
                elif continuation.suspension is None:  # otherwise it is stored already
                    await self.save(continuation, keep)
                    await self.claim(run, keep, seconds=_FOREVER, holder="ended")
