"""A run on Redis as `Runs` has it: how the process that drives it writes it, and how another finds it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol

import anyio
import msgspec

from streamtools.errors import DecisionRefused, OwnerUnreachable, RunNotFound
from streamtools.events import Done, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.serving.event_log import EventLog
from streamtools.serving.journal import Attachment, Journal
from streamtools.serving.redis_log import Look, RedisReader, Tail
from streamtools.serving.redis_process import SETTLING, RedisProcess
from streamtools.serving.run import Run
from streamtools.stream import stored_result
from streamtools.stream.result import TurnResult
from streamtools.tools import Decision, Question

log = Logger(__name__)


class Store(EventLog, Protocol):
    """What a run needs of its store."""

    @property
    def lease(self) -> float: ...
    @property
    def process(self) -> RedisProcess: ...
    async def read_end(self, key: str) -> bytes | None: ...


class RedisJournal(Journal):
    """Writes a run into Redis, at its own pace: the run waits only for its end to be there."""

    def __init__(self, store: Store, run: Run, tail: Tail, said: Iterable[UIEvent] = ()) -> None:
        super().__init__(store, run.owner, run.id)
        self.tail = self.driven = tail
        self.last = tail.written
        self._said = [type(event) for event in said]  # by an owner before, which this one does not say again
        self._store = store
        self._run = run
        self.begun.set()

    async def write(self, event: UIEvent) -> bool:
        if self._said and type(event) is self._said.pop(0):
            return False
        self._said.clear()
        return await super().write(event)

    async def _try(self, event: UIEvent) -> None:
        data = event.to_json().encode()
        if type(event) is Done:
            self.tail.final = event.seq, data, self._store_end()
        else:
            self.tail.add(event.seq, data)
        self._store.process.press(self.tail)
        if self.tail.is_full:
            self._run.cancel()

    def _store_end(self) -> bytes:
        run = self._run
        try:
            return stored_result.store(run.result, run.suspension, run.history)
        except Exception as error:  # and those who find it elsewhere get what the events tell
            log.warning("result_not_stored", run_id=run.id, **loggable(error))
            return stored_result.store(TurnResult(reason=self.done.reason if self.done else None))

    async def settle(self) -> TurnResult | None:
        """Wait until all is written; return what the run has come to, if another process has ended it."""
        with anyio.move_on_after(SETTLING) as scope:
            await self.tail.settled.wait()
        if scope.cancelled_caught:
            log.warning("end_not_written_yet", run_id=self.tail.run_id)
        if not self.tail.is_fenced:
            return None
        with anyio.move_on_after(SETTLING):
            try:
                ended = await self._store.read_end(self.key)
                return None if ended is None else stored_result.read(ended).result
            except Exception as error:
                log.debug("end_not_read", **loggable(error))
        return None


class _Log:
    """The log of a run that was found: what the run has come to is known before readers see `done`."""

    def __init__(self, run: StoredRun) -> None:
        self._run = run

    async def append(self, key: str, event: UIEvent, /) -> int:
        raise NotImplementedError("a run is written where it is driven")

    def read(self, key: str, /, after: int = 0) -> RedisReader:
        return RedisReader(self._run.store.process, key, after, self._run.learn_end)


class StoredRun(Run):
    """A run that another process drives, or has driven."""

    def __init__(self, store: Store, run_id: str, owner: str, *, conversation: str | None, note: Any) -> None:
        super().__init__(None, run_id, owner, store, conversation=conversation, note=note)
        self.store = store
        self.journal.log = _Log(self)
        self.journal.begun.set()
        self._key = self.journal.key

    def take_end(self, ended: bytes | None) -> bool:
        """Take note of what it has come to, if it has."""
        if ended is not None:
            self._result, suspension, history = stored_result.read(ended)
            self._waiting = None if suspension is None else (suspension, history)
        return ended is not None

    def end(self) -> None:
        """Take note that what is behind it is closed."""
        self._over.set()

    async def learn_end(self) -> None:
        """Take note of what it has come to, where that can be read."""
        if not self.ended:
            try:
                self.take_end(await self.store.read_end(self._key))
            except Exception as error:
                log.debug("end_not_read", **loggable(error))

    def attach(self, after: int = 0) -> Attachment:
        attachment = super().attach(after)
        if not self.ended:
            self.store.process.read[self._key] += 1
        return attachment

    def _lose_reader(self, attachment: Attachment) -> None:
        if id(attachment) in self._readers:
            self._readers.discard(id(attachment))
            read = self.store.process.read
            read[self._key] -= 1
            if read[self._key] <= 0:
                del read[self._key]

    async def wait(self) -> TurnResult:
        while not self.ended:
            look: Look = await self.store.process.look(self._key)
            if not look.token:
                raise RunNotFound(f"the run {self.id[:64]!r} is kept no more")
            if not look.is_over:
                async for _ in self.store.read(self._key, look.last):
                    pass
            if self.take_end(await self.store.read_end(self._key)):
                with suppress(OwnerUnreachable):  # within a lease, its owner leaves the stream, or is gone
                    await self.store.process.ask(self._key, {"kind": "wait"}, is_over=True)
                self.end()
        return self._result

    async def stop(self) -> None:
        fault: Exception | None = None
        with anyio.move_on_after(4 * self.store.lease):  # in which the run of an owner that is gone is ended as well
            while not self.ended:
                try:
                    await self.store.process.ask(self._key, {"kind": "stop"})
                except OwnerUnreachable as error:
                    fault = error
                except anyio.get_cancelled_exc_class():
                    self.store.process.tell(self._key, {"kind": "stop"})
                    raise
                with anyio.move_on_after(2 * self.store.lease):
                    await self.wait()
        if not self.ended:
            raise OwnerUnreachable("the run was told to stop, and has not ended yet") from fault

    def cancel(self, *, leaving: bool = False) -> None:
        raise NotImplementedError("a run that another process drives is stopped with `await run.stop()`")

    async def questions(self) -> list[Question]:
        answer = {} if self.ended else await self.store.process.ask(self._key, {"kind": "questions"})
        return msgspec.convert(answer.get("questions", []), list[Question])

    async def decide(self, call_id: str, decision: Decision) -> None:
        said = {"kind": "decide", "call_id": call_id, "decision": msgspec.to_builtins(decision)}
        answer = {"over": True} if self.ended else await self.store.process.ask(self._key, said)
        if answer.get("over"):
            raise DecisionRefused(f"call {call_id[:64]!r} waits for no decision: the run has ended")
        if "refused" in answer:
            raise DecisionRefused(answer["refused"])
