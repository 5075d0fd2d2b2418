"""Stores waiting runs in the ledger of their tools, so that they outlive this process.

A waiting run has ended with calls that await a decision. Several processes may share the ledger. One of them continues
the run, and holds a lease on it. If that process dies, its lease expires, and another process may continue the run. No
decided call runs twice, because the ledger has its outcome. A call that the continuation made itself may run again.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from streamtools.errors import RunNotFound
from streamtools.events import UIEvent, read_ui_event
from streamtools.serving.event_log import MemoryReader
from streamtools.serving.run import Run
from streamtools.stream import stored_result
from streamtools.stream.reading import Startable
from streamtools.tools import Decision
from streamtools.tools.sql_ledger import RunState, SQLLedger

_POLL_S = 0.5  # pause between attempts to read a run that another process continues
_KEEP_LONGER_S = 60.0  # so that a run is kept at least until its lease is renewed
_LONGEST_LEASE_S = 1e9  # JSON has no infinity


class StoredRun(msgspec.Struct, frozen=True):
    """An ended run as the ledger stores it.

    `end` is the JSON of its result, its suspension and its history. `events` has the JSON of each event, with `done`.
    It is empty if an event log has them.
    """

    id: str
    conversation: str | None
    note: Any
    end: str
    events: list[str]


class EndedStream:
    """A stream that has ended in another process."""

    def __init__(self, stored: StoredRun) -> None:
        self.result, self.suspension, self.history, _ = stored_result.load(stored.end.encode())
        self._events = map(read_ui_event, stored.events)

    def __aiter__(self) -> AsyncIterator[UIEvent]:
        return self

    async def __anext__(self) -> UIEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration


class WaitingRuns:
    """The waiting runs in one ledger, and the ended runs that continued them."""

    def __init__(self, ledger: SQLLedger) -> None:
        self._ledger = ledger
        self._holder = secrets.token_hex(8)  # the name of this process

    async def save(self, run: Run, seconds: float) -> None:
        """Store a run for `seconds`, before its `done` is written.

        Its events are stored only if the event log is in memory.
        """
        events = list[str]()
        with suppress(RunNotFound):  # the events are not kept
            reader = run.journal.event_log.read(run.journal.key)
            while isinstance(reader, MemoryReader) and (event := reader.take()) is not None:
                events.append(event.to_json())
            if isinstance(reader, MemoryReader) and run.journal.held is not None:
                events.append(run.journal.held.to_json())
        end = stored_result.dump(run.result, run.suspension, run.history).decode()
        data = msgspec.json.encode(StoredRun(run.id, run.conversation, run.note, end, events))
        await self._ledger.save_run(run.owner, run.id, run.conversation, data, RunState(keep=seconds))

    async def find(self, owner: str, run_id: str | None, conversation: str | None = None) -> StoredRun | None:
        """Return the stored run with this id, or the last one of a conversation. Returns None if there is none."""
        data = await self._ledger.find_run(owner, run_id, conversation)
        return None if data is None else msgspec.json.decode(data, type=StoredRun)

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Delete a stored run, if there is one with this id."""
        await self._ledger.forget_run(owner, run_id)

    async def decide(self, run: Run, call_id: str = "", decision: Decision | None = None) -> dict[str, Decision]:
        """Store a decision about a call. Returns all decisions about calls of the run, by call id.

        Nothing is stored if `decision` is None, or if the call already has a decision. Raises `RunNotFound` if the run
        is not stored any more.
        """

        def decide(state: RunState, now: float) -> RunState:
            return replace(state, decisions={call_id: msgspec.to_builtins(decision), **state.decisions})

        state = await self._change(run, None if decision is None else decide)
        return msgspec.convert(state.decisions, dict[str, Decision])

    async def claim(self, run: Run, keep: float, *, seconds: float = math.inf) -> bool:
        """Take the lease on a run for `seconds`, at most for the lease time of the ledger. Returns False on failure.

        This fails if another process has a valid lease. With `seconds=0`, the lease ends immediately. If the lease
        changes, the run is then kept for `keep` seconds and one more minute. Raises `RunNotFound` if the run is not
        stored any more.
        """
        held_for = min(self._ledger.lease, seconds, _LONGEST_LEASE_S)

        def claim(state: RunState, now: float) -> RunState:
            if state.holder not in ("", self._holder) and state.held > now:
                return state
            return replace(state, holder=self._holder, held=now + held_for, keep=keep + _KEEP_LONGER_S)

        return (await self._change(run, claim)).holder == self._holder

    async def _change(self, run: Run, change: Callable[[RunState, float], RunState] | None) -> RunState:
        state = await self._ledger.change_run(run.owner, run.id, change)
        if state == RunState():
            raise RunNotFound(f"The run {run.id[:64]!r} is not kept any more.")
        return state

    @asynccontextmanager
    async def follow(
        self, run: Run, keep: float, resume: Callable[[Run], Awaitable[Startable]]
    ) -> AsyncIterator[AsyncIterable[UIEvent]]:
        """Wait for the process that continues `run`, and return its events. If it dies, continue the run here."""
        while (stored := await self.find(run.owner, run.next_id)) is None:
            if await self.claim(run, keep):
                break
            await anyio.sleep(_POLL_S)
        if stored is not None:
            yield EndedStream(stored)
        else:
            async with await resume(run) as events:
                yield events

    async def hold(self, run: Run, keep: float, continuation: Run) -> None:
        """Renew the lease on a run until its continuation has ended. If it was cancelled, the lease ends immediately.

        Then the same decisions can continue the run again.
        """
        try:
            while not continuation.ended:
                with suppress(Exception), anyio.move_on_after(self._ledger.lease / 3):
                    await self.claim(run, keep)
                    await continuation.wait()
        finally:
            if continuation.result.reason == "cancelled":
                with suppress(Exception), anyio.move_on_after(_POLL_S * 20, shield=True):
                    await self.claim(run, keep, seconds=0.0)
