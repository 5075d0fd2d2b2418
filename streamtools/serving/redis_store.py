"""Runs that several processes share, in Redis or Valkey: each is driven by one, and found, read and stopped from all.

    async with Runs(RedisStore("redis://localhost")) as runs:  # in each worker
        run = await runs.find(run_id, owner=user)              # wherever it was started

Who drives a run holds a lease on it. If it does not come back, another process ends the run by what its log tells.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools.errors import DecisionRefused, RunNotFound, TooManyRuns
from streamtools.events import Done, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_scripts as scripts
from streamtools.serving.event_log import log_key
from streamtools.serving.lost_run import close_lost, is_untouched
from streamtools.serving.redis_log import Agreed, RedisReader, Tail
from streamtools.serving.redis_process import SETTLING, RedisProcess
from streamtools.serving.run import Run
from streamtools.serving.stored_run import RedisJournal, StoredRun
from streamtools.stream import stored_result
from streamtools.stream.driver import Startable
from streamtools.stream.reading import close
from streamtools.stream.result import Collector, TurnResult
from streamtools.tools import CallLedger, Decision, ToolOutcome
from streamtools.tools.redis_client import RedisClient, open_client

log = Logger(__name__)


BeginAgain: TypeAlias = Callable[[Run], Awaitable[Startable | None]]
"""Returns a stream that answers a run anew, or None."""

TakeUp: TypeAlias = Callable[[Startable, Run, Callable[[Run], object]], object]
"""Drives a stream as a run that was found; the last is what the new run is given to first."""


class RedisStore:
    """Where `Runs` of several processes keep what they share: `Runs(RedisStore("redis://localhost"))` in each of them.

    `url_or_client` is a URL, a client of redis-py (on asyncio) or of coredis (on trio, or asyncio), or a `RedisClient`
    of the user's; Redis 6.2 or later, or Valkey, on one server or behind Sentinel. A Redis Cluster is refused when the
    runs are entered, because one blocking read over all runs is not possible there. All keys begin with `prefix`.

    Who drives a run holds a lease of `lease` seconds and renews it at a third of that; when it has expired, any other
    process ends the run: its calls that may have begun are `outcome_unknown`, and `done` says `failed`. With the
    `ledger` that the tools have, it says of each call what is written there, and first fences off the owner. A run of
    which nothing was shown and no call had begun may be answered anew: by the stream that `on_owner_lost(run)` returns,
    which has the `run_id` of the run, once, and not where that is None. A run is
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
        on_owner_lost: BeginAgain | None = None,
    ) -> None:
        for name, value in {"lease": lease, "keep": keep, "length": length, "patience": patience}.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"{name} is a positive number, not {value!r}")
        if not prefix or "{" in prefix:
            raise ValueError(f"prefix is what the keys begin with, without braces, not {prefix!r}")
        self._given = url_or_client
        self._settings = Agreed(prefix, lease, keep, length, patience)
        self._ledger = ledger
        self._on_owner_lost = on_owner_lost
        self._client: RedisClient | None = None
        self._process: RedisProcess | None = None
        self._running: Mapping[str, Run] = {}
        self._take_up: TakeUp

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

    def start(self, tasks: TaskGroup, running: Mapping[str, Run], take_up: TakeUp) -> None:
        """Share the runs that are `running`, by their keys, and end or `take_up` those whose owner is gone."""
        assert self._client is not None
        self._running = running
        self._take_up = take_up
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
            tail = await self._begin(key, owner, run_id)
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
        self._write(run, await self._begin(key, run.owner, run.id, most=most, **of))

    def _write(self, run: Run, tail: Tail, said: Iterable[UIEvent] = ()) -> None:
        tail.on_loss, tail.on_read, tail.will_end = run.cancel, run.put_off, True
        run.journal = RedisJournal(self, run, tail, said)

    async def _begin(
        self,
        key: str,
        owner: str,
        run_id: str,
        *,
        most: int | None = None,
        conversation: str | None = None,
        note: Any = None,
    ) -> Tail:
        process = self.process
        keys = process.keys(key)
        tail = Tail(key, run_id, owner, 1, process.id, keys.meta)
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
        if run.take_end(meta[3]):
            run.end()
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

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Delete what is kept of a run that has ended."""
        await self.process.patiently("DEL", *self.process.keys(log_key(owner, run_id)))
        await self.process.patiently("ZREM", self.process.of_owner(owner)[0], run_id)

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
            case "wait":
                with suppress(Exception):  # which is raised by its own `wait`
                    await run.wait()
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
        tail = Tail(key, run_id, owner, epoch, process.id, process.keys(key).meta)
        tail.written = last
        process.own(tail)
        try:
            known = await self._look_up(run_id, epoch)
            said = list[UIEvent]()
            while more := await process.fetch(key, said[-1].seq if said else 0):
                said += (event for _, event in more)
            if is_untouched(said) and not known and await self._begin_anew(run_id, owner, tail, said):
                return
            closing = close_lost(run_id, said, lambda id: None if known is None else known.get(id, False))
            end = [replace(event, seq=last + at) for at, event in enumerate(closing, 1)]
        except BaseException:
            process.forget(tail)  # and the lease expires once more
            raise
        collector = Collector(())
        collector.take((*said, *end))
        *before, done = end
        for event in before:
            tail.add(event.seq, event.to_json().encode())
        tail.final = done.seq, done.to_json().encode(), stored_result.store(collector.read())
        process.press(tail)

    async def _begin_anew(self, run_id: str, owner: str, tail: Tail, said: Iterable[UIEvent]) -> bool:
        """Drive a run here that has shown nothing, if somebody wants that, and for the first time."""
        if self._on_owner_lost is None or tail.epoch > 2:
            return False
        lost = await self.find(run_id, owner=owner)
        stream: Startable | None = None
        try:
            stream = await self._on_owner_lost(lost)
            if stream is None or tail.is_fenced:  # meanwhile
                await close(stream)
                return tail.is_fenced
            self._take_up(stream, lost, lambda run: self._write(run, tail, said))
        except Exception as error:
            log.warning("run_not_begun_anew", run_id=run_id, **loggable(error))
            await close(stream)
            return False
        return True

    async def _look_up(self, run_id: str, epoch: int) -> dict[str, ToolOutcome | bool] | None:
        """Fence the calls of a run off from its owner, and return what is known of them: how each has ended, True for
        one that had begun; None where there is no ledger.
        """
        if self._ledger is None:
            return None
        await self._ledger.fence(run_id, epoch)
        found: dict[str, ToolOutcome | bool] = {}
        page = await self._ledger.entries(run_id)
        while page:
            found |= {entry.call.id: entry.outcome or True for entry in page}
            page = await self._ledger.entries(run_id, after=page[-1])
        return found
