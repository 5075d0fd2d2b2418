"""Runs that several processes share, in Redis or Valkey: one process drives a run, and all can find, read and stop it.

    async with Runs(RedisStore("redis://localhost")) as runs:  # in each worker
        run = await runs.find(run_id, owner=user)              # in any of them

The process that drives a run holds a lease on it. If it does not renew the lease, another process ends the run, with
the events that the log implies.
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

from streamtools.errors import DecisionRefused, OwnerUnreachable, RunNotFound, TooManyRuns
from streamtools.events import Done, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_scripts as scripts
from streamtools.serving.event_log import log_key
from streamtools.serving.journal import Attachment, Journal
from streamtools.serving.lost_run import close_lost, is_untouched
from streamtools.serving.owned_run import OwnedRun
from streamtools.serving.redis_process import END_TIMEOUT_S, RedisProcess
from streamtools.serving.redis_reader import RedisReader
from streamtools.serving.redis_server import RedisServer, StoreSettings, milliseconds
from streamtools.serving.run import Run
from streamtools.stream import stored_result
from streamtools.stream.collector import Collector
from streamtools.stream.driver import Startable
from streamtools.stream.reading import close
from streamtools.stream.result import TurnResult
from streamtools.tools import CallLedger, Decision, Question, ToolOutcome
from streamtools.tools.redis_client import RedisClient, open_client

log = Logger(__name__)


Restart: TypeAlias = Callable[[Run], Awaitable[Startable | None]]
"""Returns a new stream for a lost run, or None."""

StartRun: TypeAlias = Callable[[Startable, Run, Callable[[Run], object]], object]
"""Starts a run of this process that continues a lost run, after passing it to a function."""


class RedisStore:
    """Shares the runs of several processes: `Runs(RedisStore("redis://localhost"))` in each of them.

    `url_or_client` is a URL, a client of redis-py or a `RedisClient`, for Redis 6.2 or later, or Valkey, on one server
    or with Sentinel. A Redis Cluster is refused when the runs are entered, because one blocking read over all runs is
    not possible there. All keys start with `prefix`.

    The process that drives a run holds a lease of `lease` seconds, and renews it after a third of them. When it has
    expired, any other process ends the run: calls that may have started are `outcome_unknown`, and `done` says
    `failed`. With the `ledger` of the tools, each call gets the outcome that is recorded there, after the old owner is
    fenced off. A run that has shown nothing and started no call may be answered again, once, by the stream that
    `on_owner_lost(run)` returns, which has the `run_id` of the run; None ends the run. A run is kept for `keep` seconds
    after its end, instead of the time of `Runs`, and its log has the last `length` events or a few more. While the
    server is away, runs continue for `patience` seconds, and readers wait as long. Processes that share a prefix must
    use the same values.
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
        on_owner_lost: Restart | None = None,
    ) -> None:
        for name, value in {"lease": lease, "keep": keep, "length": length, "patience": patience}.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"{name} must be a positive number, got {value!r}.")
        if not prefix or "{" in prefix:
            raise ValueError(f"`prefix` must be a string without braces, got {prefix!r}.")
        self._url_or_client = url_or_client
        self._settings = StoreSettings(prefix, lease, keep, length, patience)
        self._ledger = ledger
        self._on_owner_lost = on_owner_lost
        self._client: RedisClient | None = None
        self._process: RedisProcess | None = None
        self._running: Mapping[str, Run] = {}
        self._start_run: StartRun

    @property
    def lease(self) -> float:
        """Seconds after which a process without a sign of life has lost its runs."""
        return self._settings.lease

    @property
    def process(self) -> RedisProcess:
        """The tasks of this process on the server."""
        assert self._process is not None, "entered by `Runs`"
        return self._process

    @property
    def _server(self) -> RedisServer:
        return self.process.server

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        """Connect to the server, for the tasks of `start`. Raises ValueError for a Redis Cluster."""
        async with open_client(self._url_or_client) as client:
            if b"cluster_enabled:1" in await client.execute("INFO", "cluster"):
                raise ValueError(
                    "this is a Redis Cluster, which cannot read several runs at once: give a single server"
                )
            self._client = client
            yield

    def start(self, tasks: TaskGroup, running: Mapping[str, Run], start_run: StartRun) -> None:
        """Share the `running` runs, by key, and take over runs whose owner is gone."""
        assert self._client is not None
        self._running = running
        self._start_run = start_run
        server = RedisServer(self._client, self._settings)
        self._process = RedisProcess(server, tasks, self._answer, self._take_over)
        self._process.start()

    # The event log.

    async def append(self, key: str, event: UIEvent, /) -> int:
        """Write an event of a run that no process drives, and wait until the server has it. See `EventLog`."""
        process = self.process
        if (owned := process.owned.get(key)) is None:
            owner, _, run_id = key.partition("/")
            owned = await self._begin(key, owner, run_id)
        if event.seq > owned.written:
            data = event.to_json().encode()
            if type(event) is Done:
                owned.final = event.seq, data, stored_result.store(TurnResult(reason=event.reason))
            else:
                owned.add(event.seq, data)
            owned.may_have_gap = not owned.written
            process.write_soon(owned)
            with anyio.fail_after(END_TIMEOUT_S):
                await owned.wait_for(event.seq)
        return event.seq

    def read(self, key: str, /, after: int = 0) -> RedisReader:
        """Read a run. See `EventLog`."""
        return RedisReader(self.process, key, after)

    # The runs of this process.

    async def begin(self, run: Run, *, max_per_owner: int | None) -> None:
        """Store a new run of this process and write its events. Raises `TooManyRuns`, ValueError and client errors."""
        self._drive(run, await self._begin(log_key(run.owner, run.id), run.owner, run.id, run, max_per_owner))

    def _drive(self, run: Run, owned: OwnedRun, events: Iterable[UIEvent] = ()) -> None:
        owned.on_loss, owned.on_read, owned.is_driven = run.cancel, run.note_reader_elsewhere, True
        run.journal = RedisJournal(self, run, owned, events)

    async def _begin(
        self, key: str, owner: str, run_id: str, run: Run | None = None, max_per_owner: int | None = None
    ) -> OwnedRun:
        server = self._server
        keys = server.run_keys(key)
        owned = OwnedRun(key, run_id, owner, 1, self.process.id, keys.meta)
        meta = ("owner", owner, "run_id", run_id, "note", json.dumps(run and run.note))
        names = (keys.meta, keys.lease, server.shared_key("running"), *server.owner_keys(owner))
        status = await server.retry(
            *("EVAL", scripts.BEGIN, len(names), *names),
            *(key, run_id, owned.token, milliseconds(self.lease), max_per_owner or 0),
            *((run and run.conversation) or "", *meta),
        )
        if status == b"there":
            raise ValueError(f"The owner already has a run {run_id!r}.")
        if status == b"full":
            limit = max_per_owner
            raise TooManyRuns(f"{limit} runs of this owner are in progress; no more are allowed at the same time.")
        self.process.own(owned)
        return owned

    # The runs of all processes.

    async def find(self, run_id: str, *, owner: str) -> Run:
        """Return a run that another process drives or has driven. Raises `RunNotFound`."""
        meta_key = self._server.run_keys(log_key(owner, run_id)).meta
        token, conversation, note, result = await self._server.retry(
            "HMGET", meta_key, "token", "conversation", "note", "ended"
        )
        if token is None:
            raise RunNotFound(f"There is no run {run_id[:64]!r}.")
        run = RemoteRun(self, run_id, owner, conversation=conversation.decode() or None, note=json.loads(note))
        if run.load_result(result):
            run.mark_finished()
        return run

    async def latest(self, conversation: str, *, owner: str) -> str | None:
        """Return the id of the last run of a conversation."""
        id = await self._server.retry("HGET", self._server.owner_keys(owner).conversations, conversation)
        return None if id is None else id.decode()

    async def list(self, owner: str, limit: int) -> list[str]:
        """Return the ids of an owner's runs, the newest first. Removes runs from the index that are not kept."""
        index = self._server.owner_keys(owner).runs
        kept = list[str]()
        for id in await self._server.retry("ZREVRANGE", index, 0, limit - 1):
            if await self._server.retry("EXISTS", self._server.run_keys(log_key(owner, id.decode())).meta):
                kept.append(id.decode())
            else:
                await self._server.retry("ZREM", index, id)
        return kept

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Delete a run that has ended."""
        await self._server.retry("DEL", *self._server.run_keys(log_key(owner, run_id)))
        await self._server.retry("ZREM", self._server.owner_keys(owner).runs, run_id)

    async def read_result(self, key: str) -> bytes | None:
        """Return the stored result of a run, None if it has not ended."""
        result: bytes | None = await self._server.retry("HGET", self._server.run_keys(key).meta, "ended")
        return result

    async def _answer(self, key: str, message: dict[str, Any]) -> dict[str, Any]:
        """Answer the request of another process about a run of this process."""
        run = self._running.get(key)
        if run is None:
            return {"over": True}
        match message["kind"]:
            case "stop":
                run.cancel()
            case "wait":
                with suppress(Exception):  # `wait` raises it in this process
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
        status, epoch, last = await process.claim(key)
        if status != b"claimed":
            return
        meta_key = self._server.run_keys(key).meta
        owner, run_id = (field.decode() for field in await self._server.retry("HMGET", meta_key, "owner", "run_id"))
        log.warning("run_taken_over", run_id=run_id, epoch=epoch)
        owned = OwnedRun(key, run_id, owner, epoch, process.id, meta_key)
        owned.written = last
        process.own(owned)
        try:
            outcomes = await self._fence_calls(run_id, epoch)
            events = list[UIEvent]()
            while page := await process.fetch(key, events[-1].seq if events else 0):
                events += (event for _, event in page)
            if is_untouched(events) and not outcomes and await self._restart(run_id, owner, owned, events):
                return
            closing = close_lost(run_id, events, lambda id: None if outcomes is None else outcomes.get(id, False))
            end = [replace(event, seq=last + number) for number, event in enumerate(closing, 1)]
        except BaseException:
            process.disown(owned)  # so that the lease expires again
            raise
        collector = Collector(())
        collector.take((*events, *end))
        *before, done = end
        for event in before:
            owned.add(event.seq, event.to_json().encode())
        owned.final = done.seq, done.to_json().encode(), stored_result.store(collector.read())
        process.write_soon(owned)

    async def _restart(self, run_id: str, owner: str, owned: OwnedRun, events: Iterable[UIEvent]) -> bool:
        """Answer a lost run again if the application wants to, and if it was lost for the first time."""
        if self._on_owner_lost is None or owned.epoch > 2:
            return False
        lost = await self.find(run_id, owner=owner)
        stream: Startable | None = None
        try:
            stream = await self._on_owner_lost(lost)
            if stream is None or owned.is_fenced:  # the lease may have expired meanwhile
                await close(stream)
                return owned.is_fenced
            self._start_run(stream, lost, lambda run: self._drive(run, owned, events))
        except Exception as error:
            log.warning("run_not_begun_anew", run_id=run_id, **loggable(error))
            await close(stream)
            return False
        return True

    async def _fence_calls(self, run_id: str, epoch: int) -> dict[str, ToolOutcome | bool] | None:
        """Fence the old owner off from the ledger, and return the recorded calls: their outcomes, or True if started.

        Returns None without a ledger.
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


class RedisJournal(Journal):
    """Writes a run into Redis in the background. The run waits only for its end."""

    def __init__(self, store: RedisStore, run: Run, owned: OwnedRun, events: Iterable[UIEvent] = ()) -> None:
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

    def __init__(self, store: RedisStore, run_id: str, owner: str, *, conversation: str | None, note: Any) -> None:
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
            state = await self._store.process.server.run_state(self._key)
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
