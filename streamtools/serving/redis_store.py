"""Runs that several processes share, in Redis or Valkey: each is driven by one, and found, read and stopped from all.

    async with Runs(RedisStore("redis://localhost")) as runs:  # in each worker
        run = await runs.find(run_id, owner=user)              # wherever it was started

Who drives a run holds a lease on it. If it does not come back, another process ends the run by what its log tells.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools.errors import DecisionRefused, OwnerUnreachable, RunNotFound, TooManyRuns
from streamtools.events import Done, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_scripts as scripts
from streamtools.serving.event_log import log_key
from streamtools.serving.journal import Journal
from streamtools.serving.lost_run import close_lost
from streamtools.serving.redis_log import Look, RedisReader, Settings, Tail
from streamtools.serving.redis_process import SETTLING, RedisProcess
from streamtools.serving.run import Attachment, Run
from streamtools.stream import stored_result
from streamtools.stream.result import Collector, TurnResult
from streamtools.tools import CallLedger, Decision, Question, ToolOutcome
from streamtools.tools.redis_client import RedisClient, open_client

log = Logger(__name__)


class RedisStore:
    """Where `Runs` of several processes keep what they share: `Runs(RedisStore("redis://localhost"))` in each of them.

    `url_or_client` is a URL, a client of redis-py (on asyncio) or of coredis (on trio, or asyncio), or a `RedisClient`
    of the user's; Redis 6.2 or later, or Valkey, on one server or behind Sentinel. A Redis Cluster is refused when the
    runs are entered, because one blocking read over all runs is not possible there. All keys begin with `prefix`.

    Who drives a run holds a lease of `lease` seconds and renews it at a third of that; when it has expired, any other
    process ends the run: its calls that may have begun are `outcome_unknown`, and `done` says `failed`. With the
    `ledger` that the tools have, it says of each call what is written there, and first fences off the owner. A run is
    kept for `keep` seconds behind its end, in place of what `Runs` says, and its log holds the last `length` events or
    a few more. While the server is away, runs go on for `patience` seconds, and readers wait as long.
    Processes that share a prefix share these values.
    """

    def __init__(
        self,
        url_or_client: object,
        *,
        prefix: str = "streamtools",
        lease: float = 15.0,
        keep: float = 600.0,
        length: int = 50_000,
        patience: float = 30.0,
        ledger: CallLedger | None = None,
    ) -> None:
        for name, value in {"lease": lease, "keep": keep, "length": length, "patience": patience}.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"{name} is a positive number, not {value!r}")
        if not prefix or "{" in prefix:
            raise ValueError(f"prefix is what the keys begin with, without braces, not {prefix!r}")
        self._given = url_or_client
        self._settings = Settings(prefix, lease, keep, length, patience)
        self._ledger = ledger
        self._client: RedisClient | None = None
        self._process: RedisProcess | None = None
        self._running: Mapping[str, Run] = {}

    @property
    def lease(self) -> float:
        """Seconds after which a process that does not come back has lost its runs."""
        return self._settings.lease

    @property
    def process(self) -> RedisProcess:
        """What talks to the server."""
        assert self._process is not None, "entered by `Runs`"
        return self._process

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        """Enter around the tasks that `start` begins. Raises what cannot be mended by waiting."""
        async with open_client(self._given) as client:
            if b"cluster_enabled:1" in await client.execute("INFO", "cluster"):
                raise ValueError(
                    "this is a Redis Cluster, which cannot read several runs at once: give a single server"
                )
            self._client = client
            yield

    def start(self, tasks: TaskGroup, running: Mapping[str, Run]) -> None:
        """Share the runs that are `running`, by their keys, and end those whose owner is gone."""
        assert self._client is not None
        self._running = running
        self._process = RedisProcess(self._client, tasks, self._settings)
        self._process.on_message = self._answer
        self._process.on_expired = self._take_over
        self._process.start()

    # An event log, for those who read.

    async def append(self, key: str, event: UIEvent, /) -> int:
        """See `EventLog`: write an event of a run that nobody else drives, and wait until it is there."""
        process = self.process
        if (tail := process.tails.get(key)) is None:
            owner, _, run_id = key.partition("/")
            tail = await self._begin(key, owner, run_id, lambda: None)
        if event.seq > tail.written:
            data = event.to_json().encode()
            if type(event) is Done:
                tail.final = event.seq, data, stored_result.store(TurnResult(reason=event.reason))
            else:
                tail.add(event.seq, data)
            tail.may_gap = not tail.written
            process.press(tail)
            with anyio.fail_after(SETTLING):
                await tail.wait_for(event.seq)
        return event.seq

    def read(self, key: str, /, after: int = 0) -> RedisReader:
        """See `EventLog`."""
        return RedisReader(self.process, key, after)

    # For `Runs`.

    async def begin(self, run: Run, *, most: int | None) -> None:
        """Write down a new run, of which its owner may have `most` that go on, and have it written here.

        Raises `TooManyRuns` and ValueError, and what the client raises.
        """
        key = log_key(run.owner, run.id)
        of = {"conversation": run.conversation, "note": run.note}
        tail = await self._begin(key, run.owner, run.id, run.cancel, most=most, **of)
        tail.on_read, tail.will_end = run.put_off, True
        run.write_into(RedisJournal(self, run, tail))

    async def _begin(
        self,
        key: str,
        owner: str,
        run_id: str,
        on_loss: Any,
        *,
        most: int | None = None,
        conversation: str | None = None,
        note: Any = None,
    ) -> Tail:
        process = self.process
        keys = process.keys(key)
        tail = Tail(key, run_id, owner, 1, process.id, on_loss)
        tail.place = keys.meta
        meta = ("owner", owner, "run_id", run_id, "note", json.dumps(note))
        names = (keys.meta, keys.lease, process.shared("running"), *process.of_owner(owner))
        said = await process.patiently(
            *("EVAL", scripts.BEGIN, len(names), *names),
            *(key, run_id, tail.token, int(self.lease * 1000), most or 0, conversation or "", *meta),
        )
        if said == b"there":
            raise ValueError(f"there is a run {run_id!r} already")
        if said == b"full":
            raise TooManyRuns(f"{most} runs of this owner's are going on, and no more are allowed at the same time")
        process.own(tail)
        return tail

    async def find(self, run_id: str, *, owner: str) -> Run:
        """Return a run that another process drives or has driven. Raises `RunNotFound`."""
        key = log_key(owner, run_id)
        meta = await self.process.patiently(
            "HMGET", self.process.keys(key).meta, "token", "conversation", "note", "ended"
        )
        if meta[0] is None:
            raise RunNotFound(f"there is no run {run_id[:64]!r}")
        run = StoredRun(self, run_id, owner, conversation=meta[1].decode() or None, note=json.loads(meta[2]))
        run.take_end(meta[3])
        return run

    async def latest(self, conversation: str, *, owner: str) -> str | None:
        """Return the id of the last run of a conversation."""
        id = await self.process.patiently("HGET", self.process.of_owner(owner)[1], conversation)
        return None if id is None else id.decode()

    async def list(self, owner: str, limit: int) -> list[str]:
        """Return ids of an owner's runs, the last first; those that are kept no more are left out, and forgotten."""
        runs = self.process.of_owner(owner)[0]
        found = list[str]()
        for id in await self.process.patiently("ZREVRANGE", runs, 0, limit - 1):
            if await self.process.patiently("EXISTS", self.process.keys(log_key(owner, id.decode())).meta):
                found.append(id.decode())
            else:
                await self.process.patiently("ZREM", runs, id)
        return found

    async def tail(self, key: str) -> tuple[int, bool]:
        """Return the `seq` of the last event of a run that is there, and whether the run has ended with it."""
        look = await self.process.look(key)
        if not look.token:
            raise RunNotFound("nothing is kept of this run")
        return look.last, look.is_over

    async def read_end(self, key: str) -> bytes | None:
        """Return what a run has come to, as it is stored."""
        ended: bytes | None = await self.process.patiently("HGET", self.process.keys(key).meta, "ended")
        return ended

    # What others ask of this process.

    async def _answer(self, key: str, message: dict[str, Any]) -> dict[str, Any]:
        run = self._running.get(key)
        if run is None:
            return {"over": True}
        match message["kind"]:
            case "stop":
                run.cancel()
            case "questions":
                return {"questions": msgspec.to_builtins(await run.questions())}
            case "decide":
                try:
                    await run.decide(message["call_id"], msgspec.convert(message["decision"], Decision))
                except DecisionRefused as error:
                    return {"refused": str(error)}
        return {}

    # Runs whose owner is gone.

    async def _take_over(self, key: str) -> None:
        process = self.process
        word, epoch, last = await process.claim(key)
        if word != b"claimed":
            return
        owner, run_id = (
            each.decode() for each in await process.patiently("HMGET", process.keys(key).meta, "owner", "run_id")
        )
        log.warning("run_taken_over", run_id=run_id, epoch=epoch)
        tail = Tail(key, run_id, owner, epoch, process.id, lambda: None)
        tail.written = last
        process.own(tail)
        try:
            known = await self._look_up(run_id, epoch)
            said = list[UIEvent]()
            while more := await process.fetch(key, said[-1].seq if said else 0):
                said += (event for _, event in more)
            end = [replace(event, seq=last + at) for at, event in enumerate(close_lost(run_id, said, known), 1)]
        except BaseException:
            process.tails.pop(key, None)  # and the lease expires once more
            raise
        collector = Collector(())
        collector.add((*said, *end))
        *before, done = end
        for event in before:
            tail.add(event.seq, event.to_json().encode())
        tail.final = done.seq, done.to_json().encode(), stored_result.store(collector.read())
        process.press(tail)

    async def _look_up(self, run_id: str, epoch: int) -> Any:
        """Fence the calls of a run off from its owner, and return what is known of them."""
        if self._ledger is None:
            return lambda call_id: None
        ledger = self._ledger
        await ledger.fence(run_id, epoch)
        found: dict[str, ToolOutcome | bool] = {}
        entry, page = None, await ledger.entries(run_id)
        while page:
            found |= {entry.call.id: entry.outcome or True for entry in page}
            entry = page[-1]
            page = await ledger.entries(run_id, after=entry)
        return lambda call_id: found.get(call_id, False)


class RedisJournal(Journal):
    """Writes a run into Redis, at its own pace: the run waits only for its end to be there."""

    def __init__(self, store: RedisStore, run: Run, tail: Tail) -> None:
        super().__init__(store, run.owner, run.id)
        self.tail = self.driven = tail
        self._store = store
        self._run = run
        self.begun.set()

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

    async def look(self) -> tuple[int, bool]:
        return await self._store.tail(self.key)

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


class StoredRun(Run):
    """A run that another process drives, or has driven."""

    def __init__(self, store: RedisStore, run_id: str, owner: str, *, conversation: str | None, note: Any) -> None:
        super().__init__(None, run_id, owner, store, conversation=conversation, note=note)
        self._store = store
        self._journal.begun.set()
        self._key = self._journal.key

    def take_end(self, ended: bytes | None) -> bool:
        """Take note of what it has come to, if it has."""
        if ended is None:
            return False
        self._result, suspension, history = stored_result.read(ended)
        self._waiting = None if suspension is None else (suspension, history)
        self._over.set()
        return True

    def attach(self, after: int = 0) -> Attachment:
        attachment = super().attach(after)
        if not self.ended:
            self._store.process.read[self._key] += 1
        return attachment

    def _lose_reader(self, attachment: Attachment) -> None:
        if id(attachment) in self._readers:
            self._readers.discard(id(attachment))
            read = self._store.process.read
            read[self._key] -= 1
            if read[self._key] <= 0:
                del read[self._key]

    async def tail(self) -> tuple[int, bool]:
        return await self._store.tail(self._key)

    async def wait(self) -> TurnResult:
        while not self.ended:
            look: Look = await self._store.process.look(self._key)
            if not look.token:
                raise RunNotFound(f"the run {self.id[:64]!r} is kept no more")
            if not look.is_over:
                async for _ in self._store.read(self._key, look.last):
                    pass
            self.take_end(await self._store.read_end(self._key))
        return self._result

    async def stop(self) -> None:
        fault: Exception | None = None
        with anyio.move_on_after(3 * self._store.lease):  # in which the run of an owner that is gone is ended as well
            while not self.ended:
                try:
                    await self._store.process.ask(self._key, {"kind": "stop"})
                except OwnerUnreachable as error:
                    fault = error
                with anyio.move_on_after(self._store.lease):
                    await self.wait()
        if not self.ended:
            raise OwnerUnreachable("the run was told to stop, and has not ended yet") from fault

    def cancel(self, *, leaving: bool = False) -> None:
        raise NotImplementedError("a run that another process drives is stopped with `await run.stop()`")

    async def questions(self) -> list[Question]:
        answer = {} if self.ended else await self._store.process.ask(self._key, {"kind": "questions"})
        return msgspec.convert(answer.get("questions", []), list[Question])

    async def decide(self, call_id: str, decision: Decision) -> None:
        said = {"kind": "decide", "call_id": call_id, "decision": msgspec.to_builtins(decision)}
        answer = {"over": True} if self.ended else await self._store.process.ask(self._key, said)
        if answer.get("over"):
            raise DecisionRefused(f"call {call_id!r} waits for no decision: the run has ended")
        if "refused" in answer:
            raise DecisionRefused(answer["refused"])
