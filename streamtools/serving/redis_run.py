"""Runs on Redis: how the process that drives a run writes it, and how other processes use it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

import anyio
import msgspec

from streamtools.errors import DecisionRefused, OwnerUnreachable, RunNotFound
from streamtools.events import Done, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.serving.attachment import Attachment
from streamtools.serving.event_log import EventLog
from streamtools.serving.journal import Journal
from streamtools.serving.owned_run import OwnedRun
from streamtools.serving.redis_process import END_TIMEOUT_S, RedisProcess
from streamtools.serving.redis_reader import RedisReader
from streamtools.serving.run import Run
from streamtools.stream import stored_result
from streamtools.stream.result import TurnResult
from streamtools.tools import Decision, Question

log = Logger(__name__)


class Store(EventLog, Protocol):
    """The parts of a `RedisStore` that a run needs."""

    @property
    def lease(self) -> float: ...
    @property
    def process(self) -> RedisProcess: ...
    async def read_result(self, key: str) -> bytes | None: ...


class RedisJournal(Journal):
    """Writes a run into Redis in the background. The run waits only for its end."""

    def __init__(self, store: Store, run: Run, owned: OwnedRun, events: Iterable[UIEvent] = ()) -> None:
        super().__init__(store, run.owner, run.id)
        self.driven = owned
        self.last = owned.written
        self._owned = owned
        self._logged_kinds = [type(event) for event in events]  # of an earlier owner; they are not written again
        self._store = store
        self._run = run
        self.readable.set()

    async def write(self, event: UIEvent) -> bool:
        if self._logged_kinds and type(event) is self._logged_kinds.pop(0):
            return False
        self._logged_kinds.clear()
        return await super().write(event)

    async def _append(self, event: UIEvent) -> None:
        data = event.to_json().encode()
        if type(event) is Done:
            self._owned.final = event.seq, data, self._store_result()
        else:
            self._owned.add(event.seq, data)
        self._store.process.write_soon(self._owned)
        if self._owned.is_full:
            self._run.cancel()

    def _store_result(self) -> bytes:
        run = self._run
        try:
            return stored_result.store(run.result, run.suspension, run.history)
        except Exception as error:  # other processes get the reason only
            log.warning("result_not_stored", run_id=run.id, **loggable(error))
            return stored_result.store(TurnResult(reason=self.done.reason if self.done else None))

    async def flush(self) -> TurnResult | None:
        with anyio.move_on_after(END_TIMEOUT_S) as scope:
            await self._owned.finished.wait()
        if scope.cancelled_caught:
            log.warning("end_not_written_yet", run_id=self._owned.run_id)
        if not self._owned.is_fenced:
            return None
        with anyio.move_on_after(END_TIMEOUT_S):
            try:
                result = await self._store.read_result(self.key)
                return None if result is None else stored_result.read(result).result
            except Exception as error:
                log.debug("end_not_read", **loggable(error))
        return None


class RemoteRun(Run):
    """A run that another process drives or has driven. It is the event log of its readers."""

    def __init__(self, store: Store, run_id: str, owner: str, *, conversation: str | None, note: Any) -> None:
        super().__init__(None, run_id, owner, self, conversation=conversation, note=note)
        self._store = store
        self._key = self.journal.key
        self.journal.readable.set()

    async def append(self, key: str, event: UIEvent, /) -> int:
        raise NotImplementedError("A run is written by the process that drives it.")

    def read(self, key: str, /, after: int = 0) -> RedisReader:
        """Read the events, and know the result before readers see `done`. See `EventLog`."""
        return RedisReader(self._store.process, key, after, self._fetch_result)

    def load_result(self, data: bytes | None) -> bool:
        """Use the stored result of the run, if it has one."""
        if data is not None:
            self._result, suspension, history = stored_result.read(data)
            self._suspended = None if suspension is None else (suspension, history)
        return data is not None

    def mark_finished(self) -> None:
        """Record that the owner has closed the stream."""
        self._finished.set()

    async def _fetch_result(self) -> None:
        if not self.ended:
            try:
                self.load_result(await self._store.read_result(self._key))
            except Exception as error:
                log.debug("end_not_read", **loggable(error))

    def attach(self, after: int = 0) -> Attachment:
        attachment = super().attach(after)
        if not self.ended:
            self._store.process.readers[self._key] += 1
        return attachment

    def _on_detach(self, attachment: Attachment) -> None:
        if id(attachment) in self._readers:
            self._readers.discard(id(attachment))
            readers = self._store.process.readers
            readers[self._key] -= 1
            if readers[self._key] <= 0:
                del readers[self._key]

    async def wait(self) -> TurnResult:
        while not self.ended:
            state = await self._store.process.run_state(self._key)
            if not state.token:
                raise RunNotFound(f"The run {self.id[:64]!r} is not kept any more.")
            if not state.is_over:
                async for _ in self._store.read(self._key, state.last):
                    pass
            if self.load_result(await self._store.read_result(self._key)):
                with suppress(OwnerUnreachable):  # the owner closes the stream within a lease, or is gone
                    await self._store.process.messages.ask(self._key, {"kind": "wait"}, also_ended=True)
                self.mark_finished()
        return self._result

    async def stop(self) -> None:
        unreachable: Exception | None = None
        messages = self._store.process.messages
        with anyio.move_on_after(4 * self._store.lease):  # enough to end the run of an owner that is gone
            while not self.ended:
                try:
                    await messages.ask(self._key, {"kind": "stop"})
                except OwnerUnreachable as error:
                    unreachable = error
                except anyio.get_cancelled_exc_class():
                    messages.ask_in_background(self._key, {"kind": "stop"})
                    raise
                with anyio.move_on_after(2 * self._store.lease):
                    await self.wait()
        if not self.ended:
            raise OwnerUnreachable("The run was asked to stop, but has not ended yet.") from unreachable

    def cancel(self, *, leaving: bool = False) -> None:
        raise NotImplementedError("Another process drives the run. Stop it with `await run.stop()`.")

    async def questions(self) -> list[Question]:
        answer = {} if self.ended else await self._store.process.messages.ask(self._key, {"kind": "questions"})
        return msgspec.convert(answer.get("questions", []), list[Question])

    async def decide(self, call_id: str, decision: Decision) -> None:
        request = {"kind": "decide", "call_id": call_id, "decision": msgspec.to_builtins(decision)}
        answer = {"over": True} if self.ended else await self._store.process.messages.ask(self._key, request)
        if answer.get("over"):
            raise DecisionRefused(f"call {call_id[:64]!r} waits for no decision: the run has ended")
        if "refused" in answer:
            raise DecisionRefused(answer["refused"])
