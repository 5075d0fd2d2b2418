"""Shares runs between processes through Redis or Valkey.

    async with Runs(RedisStore("redis://localhost")) as runs:  # in each worker process
        run = await runs.find(run_id, owner=user)              # in any of these processes

One process drives a run: it reads the stream of the run and writes its events. Every process can find, read and stop
the run. The driving process holds a lease. If it does not renew the lease, another process continues the run or ends
it. A process that ends a run derives the last events of the run from the events in the log.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeAlias, cast

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec.structs import replace as set_seq

from streamtools import observing
from streamtools.errors import (
    Checked,
    Code,
    ConversationBusy,
    DecisionRefused,
    Draining,
    OwnerUnreachable,
    RunNotFound,
    TooManyRuns,
    check_function,
    check_methods,
    check_number,
    described,
)
from streamtools.events import Call, Done, Partial, Reasoning, StepStart, Text, UIEvent, Warning
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_protocol as scripts
from streamtools.serving.event_log import log_key, split_key
from streamtools.serving.journal import Journal
from streamtools.serving.leased_run import LeasedRun
from streamtools.serving.redis_process import END_TIMEOUT_S, RedisProcess
from streamtools.serving.redis_reader import read_run
from streamtools.serving.redis_server import RedisServer, StoreSettings, milliseconds
from streamtools.serving.run import NEXT, NO_CALL, Run, chain_of
from streamtools.serving.stored_vault import VaultReader, dump
from streamtools.stream import stored_result
from streamtools.stream.lost_run import PROCESS_ENDED, LostRun, end_lost_run, is_ending, missing_events, unknown_calls
from streamtools.stream.reading import Startable, awaited, close
from streamtools.stream.result import TurnResult
from streamtools.stream.stored_result import StoredEnd
from streamtools.tools import Decision, Question
from streamtools.tools.approvals import read_decision
from streamtools.tools.ledger import Entry, entries_of
from streamtools.tools.redis_client import Cipher, Unencrypted, Word, check_url, open_client

log = Logger(__name__)

Recover: TypeAlias = Callable[[LostRun], Awaitable[Startable | None] | Startable | None]
"""Gets a run whose process has crashed or has handed the run over. Returns a chat that continues the run, or None."""

_OWNER_LOST = "the process of the run no longer drives it, and another process has taken the run over"


class RedisStore(Checked):
    """Shares runs between processes: pass `RedisStore("redis://localhost")` to `Runs` in each process.

    `servers` is a URL, a client of redis-py, or a list of URLs. A server is Redis 6.2 or later, or Valkey, with or
    without Sentinel. `async with Runs(…)` raises ValueError for a Redis Cluster, because a cluster cannot read all runs
    with one blocking command. All keys start with `prefix`. A store runs on asyncio only.

    With several servers, all runs of a user are on one of them, so the loss of a server affects only its users. A hash
    of the user's id and of the URLs selects the server. User names and passwords in the URLs do not matter. After a
    change of the list, the earlier runs of some users are not found.

    The process that drives a run holds a lease of `lease` seconds, and renews it after a third of this time. When the
    lease has expired, another process continues the run, or ends it with `done(failed)`, or with `done(cancelled)`
    after a stop. When another process ends a run, a call that may have started gets the error `outcome_unknown`. If
    `Runs` has a `ledger`, the call gets the outcome that the ledger has recorded. Before the ledger is read, the old
    process is barred from starting more calls.

    `recover(lost)` is called for a run whose process has crashed or has handed the run over. It returns the chat that
    continues the run, `chat(…, continue_from=lost)`, or None to end the run. Readers stay connected, and get a
    `warning(owner_lost)`. At most `max_recoveries` crashes of a run are handled in this way. A lost run that continues
    a waiting run, and in which the model has not answered yet, is started again with the function `resume` of `Runs`.
    If `recover` or `resume` raises an exception, or takes longer than `max_outage` seconds, the run fails. But after
    `Draining`, `TooManyRuns` or `OwnerUnreachable`, a process tries again.

    A run is kept for `keep` seconds after its end, and a waiting run for `keep` seconds after its last question
    expires. This replaces the argument `keep` of `Runs`. The log of a run keeps the last `max_events` events, or a few
    more. While the server does not answer, runs continue for `max_outage` seconds, and readers wait for the same time.
    All processes with the same `prefix` must use the same settings.

    If the stream of a run has a `Vault`, the server gets placeholders instead of its values. One field of the run has
    the values. `vault_cipher` encrypts this field and users' decisions. It is an object such as
    `cryptography.fernet.Fernet(key)`.
    """

    def __init__(
        self,
        servers: object,
        *,
        prefix: str = "streamtools",
        lease: float = 15.0,
        keep: float = 600.0,
        max_events: int = 50_000,
        max_outage: float = 30.0,
        recover: Recover | None = None,
        max_recoveries: int = 3,
        vault_cipher: Cipher | None = None,
    ) -> None:
        for name, value in {"lease": lease, "keep": keep, "max_events": max_events, "max_outage": max_outage}.items():
            check_number(name, value)
        if not prefix or "{" in prefix:
            raise ValueError(f"`prefix` must not be empty or contain `{{`, got {prefix!r}.")
        self._servers = _by_name(servers)
        check_methods("vault_cipher", vault_cipher, "a cipher, such as Fernet(key)", "encrypt", optional=True)
        self._settings = StoreSettings(prefix, lease, keep, max_events, max_outage, vault_cipher or Unencrypted())
        check_number("max_recoveries", max_recoveries, 0, whole=True)
        check_function("recover", recover, "lost", optional=True)
        self._recover, self._max_recoveries = recover, max_recoveries
        self._connected: dict[str, RedisServer] = {}
        self.processes: dict[str, RedisProcess] = {}
        """Maps the name of a server to the `RedisProcess` that reads and writes its runs."""

    @property
    def lease(self) -> float:
        """Seconds without a renewal of the lease after which another process takes over a run."""
        return self._settings.lease

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[None]:
        """Connect to the servers for the time of the context. Raises ValueError for a Redis Cluster.

        Raises the error of the client if the only server does not answer. If one of several servers does not answer, a
        warning is logged.
        """
        async with AsyncExitStack() as stack:
            for name, url_or_client in self._servers.items():
                client = await stack.enter_async_context(open_client(url_or_client))
                try:
                    found = await client.execute("INFO", "cluster")
                except Exception as error:
                    if len(self._servers) == 1:
                        raise
                    log.warning("redis_unreachable", **loggable(error))
                else:
                    if b"cluster_enabled:1" in found:
                        raise ValueError("Redis Cluster is not supported. Pass the URLs of separate servers.")
                self._connected[name] = RedisServer(client, self._settings)
            yield

    def start(self, runs: Any, tasks: TaskGroup) -> None:
        """Start to share the runs of this process, and to take over runs whose lease has expired.

        `runs` is the `Runs` of this process, whose module imports this one.
        """
        self._runs, self._tasks = runs, tasks
        for name, server in self._connected.items():
            self.processes[name] = RedisProcess(server, tasks, self._answer, self._take_over)
            tasks.start_soon(self.processes[name].run)

    def read(self, key: str, /, after: int = 0) -> AsyncGenerator[UIEvent]:
        """Return a reader of the events of a run after the seq `after`. Implements `ReadableLog.read`."""
        return read_run(self._process_of(split_key(key)[0]), key, after)

    def _process_of(self, owner: str) -> RedisProcess:
        """Return the `RedisProcess` of the server that has the runs of a user."""
        assert self.processes, "pass the store to `Runs`, and write `async with Runs(…)`"
        return self.processes[server_of(owner, self._servers)]

    # The runs of this process.

    async def begin(self, run: Run, *, max_per_owner: int | None, last: str | None = None) -> None:
        """Store a new run of this process, and give it a journal that writes its events.

        Raises `ConversationBusy` if `last` is not None, and the last run of the conversation has another id. Raises
        `TooManyRuns` if the user has `max_per_owner` running runs. Raises ValueError if the user has a run with
        this id, `RunNotFound` if the run that the new run continues was deleted, and `OwnerUnreachable` if the server
        does not answer. The waiting runs that the new run continues are kept as long as the new run.
        """
        process, key = self._process_of(run.owner), log_key(run.owner, run.id)
        keys = process.server.keys
        leased = LeasedRun(key, run.id, run.owner, 1, process.id, keys.of_run(key).meta)
        names = keys.changed_by(run.owner, run.id)
        leased.vault = run._vault
        args: list[Word] = [leased.token, milliseconds(self.lease), key, run.id, max_per_owner or 0]
        args += [run.conversation or "", "any" if last is None else f"id:{last}"]
        args += ["note", leased.hide(json.dumps(run.note).encode()), "copied", run._copied]
        args += [] if leased.vault is None else ["vault", self._settings.cipher.encrypt(dump(leased.vault))]
        status = await process.server.retry("EVAL", scripts.BEGIN, len(names), *names, *args)
        if status == b"gone":
            raise RunNotFound(f"The run {run.id.removesuffix(NEXT)[:64]!r} is not kept any more.")
        if status == b"exists":
            raise ValueError(f"The owner already has a run {run.id!r}. Make a new chat for each run.")
        if status == b"busy":
            raise ConversationBusy("Another answer has just started.")
        if status == b"full":
            raise TooManyRuns(f"The user has reached {max_per_owner=}. Try later.", code="too_many_runs_of_owner")
        process.add_run(leased)
        self._bind_lease(run, process, leased)

    async def save(self, run: Run, done: Done) -> bool:
        """Check that the end of a run can be stored. Returns False if another process will end the run.

        The journal stores the end with `done`. Raises ValueError for invalid text, such as half a surrogate pair.
        """
        run._dump()
        return not run._is_cut

    def _bind_lease(self, run: Run, process: RedisProcess, leased: LeasedRun) -> None:
        """Bind a run to its lease, and give it a journal that writes to Redis."""
        leased.on_loss, leased.on_read, leased.is_driven = run._cancel, run._record_remote_reader, True
        leased.logs_first = self._recover is not None
        run._journal = RedisJournal(self, run, process, leased)
        run._is_stored, run._outlives_process = True, self._recover is not None or run.id.endswith(NEXT)

    # The runs of all processes.

    async def find(self, run_id: str, *, owner: str) -> RemoteRun:
        """Return a run that another process drives or has driven. Raises `RunNotFound` for an unknown run."""
        return await self._find(self._process_of(owner), run_id, owner)

    async def _find(self, process: RedisProcess, run_id: str, owner: str) -> RemoteRun:
        meta_key = process.server.keys.of_run(log_key(owner, run_id)).meta
        token, conversation, note, copied, result, stop = await process.server.retry(
            "HMGET", meta_key, "token", "conversation", "note", "copied", "ended", "stop"
        )
        if token is None:
            raise RunNotFound(f"There is no run {run_id[:64]!r}.")
        run = RemoteRun(self, process, run_id, owner, conversation=conversation.decode() or None)
        run._copied, run.stop_requested = int(copied), stop is not None
        if await run.load_end(result):
            run._finished.set()
        run.note = json.loads(await run._values.restore(note))
        return run

    async def latest(self, conversation: str, *, owner: str) -> str | None:
        """Return the id of the last run of the user `owner` in a conversation; None if there is none."""
        server = self._process_of(owner).server
        id = await server.retry("HGET", server.keys.of_owner(owner).conversations, conversation)
        return None if id is None else id.decode()

    async def list(self, owner: str, limit: int) -> list[str]:
        """Return the ids of the last `limit` runs of the user `owner`, the newest first, without expired runs."""
        kept, server = list[str](), self._process_of(owner).server
        index = server.keys.of_owner(owner).runs
        for id in await server.retry("ZREVRANGE", index, 0, limit - 1):
            if await server.retry("EXISTS", server.keys.of_run(log_key(owner, id.decode())).meta):
                kept.append(id.decode())
            else:
                await server.retry("ZREM", index, id)
        return kept

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Delete a run that has ended, and its log. The previous run of its conversation becomes the last one again."""
        server = self._process_of(owner).server
        of_owner, keys = server.keys.of_owner(owner), server.keys.of_run(log_key(owner, run_id))
        names = [of_owner.conversations, of_owner.runs, keys.meta, *keys]
        await server.retry("EVAL", scripts.FORGET, len(names), *names, run_id)

    async def decide(self, run: Run, call_id: str = "", decision: Decision | None = None) -> dict[str, Decision]:
        """Store a decision about a call of an ended run. An earlier decision about the call is kept.

        Returns the decisions about the run's calls. Raises `RunNotFound` if the run is not kept any more.
        """
        server = self._process_of(run.owner).server
        ids = [] if run.suspension is None else [NO_CALL, *(call.id for call in run.suspension.calls)]
        return await _decisions(server, log_key(run.owner, run.id), ids, call_id, decision)

    async def _answer(self, key: str, message: dict[str, Any]) -> dict[str, Any]:
        """Answer the request of another process about a run of this process."""
        run: Run | None = self._runs._running.get(key)
        if run is None or run._journal.is_lost or (message["kind"] in ("questions", "decide") and run._events is None):
            return {"over": True}
        match message["kind"]:
            case "stop":
                run._cancel(by_caller=True)
            case "wait":
                with suppress(Exception):  # only callers in this process get the exception of the run
                    await run.wait()
            case "questions":
                questions = msgspec.json.encode(await run.questions())
                return {"questions": msgspec.json.decode(cast("LeasedRun", run._journal.driven).hide(questions))}
            case "decide":
                try:
                    await run.decide(message["call_id"], msgspec.convert(message["decision"], Decision))
                except DecisionRefused as error:
                    return {"refused": str(error), "code": error.code}
        return {}

    # Runs whose lease has expired.

    async def _take_over(self, process: RedisProcess, key: str) -> None:
        """Claim a run whose lease has expired, and continue it with `recover` or `resume`, or end it."""
        may_continue = self._recover is not None or key.endswith(NEXT)
        # Another process can continue the run, or this process has lost the lease and still ends the run.
        if key in self._runs._running or (may_continue and not self._runs._may_start()):
            return
        claimed = await process.claim(key)
        if claimed is None:
            return
        epoch, last, crashes, silence_ms, has_crashed = claimed
        owner, run_id = split_key(key)
        leased = LeasedRun(key, run_id, owner, epoch, process.id, process.server.keys.of_run(key).meta)
        leased.written = last
        process.add_run(leased)
        try:
            recorded: dict[str, Entry] | None = None
            if (ledger := self._runs._ledger) is not None:
                await ledger.fence(run_id, epoch)  # the old process can start no more calls
                recorded = await entries_of(ledger, *chain_of(run_id))
            events, values = list[UIEvent](), VaultReader(process.server, key)
            await values.read()
            while page := await process.fetch(key, events[-1].seq if events else 0):
                events += page
            events = [*await values.restore_events(events)]
            leased.vault = values.vault
            _report_takeover(leased, events, recorded, bool(has_crashed), silence_ms / 1000)
            run = await self._find(process, run_id, owner)  # also if the list of servers has changed
            lost = LostRun(run_id, owner, run.conversation, run.note, crashes, events, recorded or {})
            lost = replace(lost, copied=run._copied, vault=leased.vault)
            if not run.stop_requested and await self._continue(process, leased, lost):
                return
            closing, result = end_lost_run(run_id, events, recorded, None if run.stop_requested else PROCESS_ENDED)
        except BaseException:
            process.remove_run(leased)  # stop renewing the lease, so that it expires and a process tries again
            raise
        done = closing.pop()
        _add_events(process, leased, closing)
        end = leased.hide(stored_result.dump(StoredEnd(result)))
        leased.final = done.seq, leased.hide(done.to_json().encode()), end
        process.write_soon(leased)

    async def _continue(self, process: RedisProcess, leased: LeasedRun, lost: LostRun) -> bool:
        """Start a run that continues a lost run, if `recover` or `resume` returns a stream.

        Adds events to `lost.events`. Returns False if the caller must end the run. Raises `Draining`, `TooManyRuns` and
        `OwnerUnreachable`: then a process may continue the run later.
        """
        events, calls = lost.events, [entry.call for entry in lost.recorded.values()]
        added = missing_events(events, calls) if events else []
        resumes = lost.id.endswith(NEXT) and not _has_answer([*events, *added], lost.copied)
        may_recover = self._recover is not None and not is_ending(events)
        if lost.attempt > self._max_recoveries or not (resumes or may_recover):
            return False
        stream: Startable | None = None
        try:
            if events and events[0].seq != 1:
                raise ValueError("Redis does not have the first events of the run any more. Set a higher `max_events`.")
            if lost.copied > leased.written:  # the log does not have all events of the waiting run
                waiting = await self._find(process, lost.id.removesuffix(NEXT), lost.owner)
                lost = replace(lost, events=(await waiting._log_for_next()).events)
            elif events:
                added.append(Warning(Code.OWNER_LOST, _OWNER_LOST))
                events += [set_seq(event, seq=leased.written + number) for number, event in enumerate(added, 1)]
                _add_events(process, leased, events[-len(added) :])
            with anyio.fail_after(self._settings.max_outage):
                if resumes:
                    stream = await self._runs._resume_lost(lost)
                elif self._recover is not None:
                    ids = [event.call.id for event in events if isinstance(event, Call)]
                    lost = replace(lost, decisions=await _decisions(process.server, leased.key, ids))
                    stream = await awaited(self._recover(lost))
            if stream is None or leased.is_fenced:
                await close(stream)
                if not leased.is_fenced:
                    log.warning("run_not_continued", run_id=leased.run_id, reason="`recover` returned None")
                return leased.is_fenced  # another process may have taken the run over meanwhile
            if leased.key in self._runs._running:  # a new run with the same id; it is refused soon
                raise OwnerUnreachable("This process cannot continue the run yet.")
            continued: Run = self._runs._take_over(stream, lost)
        except Exception as error:
            await close(stream)
            if isinstance(error, Draining | TooManyRuns | OwnerUnreachable):
                raise
            log.error("run_not_continued", error, run_id=leased.run_id)
            return False
        self._bind_lease(continued, process, leased)
        continued._journal.last = events[-1].seq if events else 0
        self._tasks.start_soon(continued._drive, self._runs._ledger, name=f"run {lost.id}")
        observing.report("runs.recovered")
        return True


async def _decisions(
    server: RedisServer, key: str, ids: Sequence[str], call_id: str = "", decision: Decision | None = None
) -> dict[str, Decision]:
    """Store a decision about a call of a run, if there is one. Returns the decisions about the calls `ids`.

    Raises `RunNotFound` if the run is not kept any more.
    """
    written = b"" if decision is None else server.settings.cipher.encrypt(msgspec.json.encode(decision))
    found = await server.store(key, f"decision:{call_id}", written, read=[f"decision:{id}" for id in ids])
    if not found:
        raise RunNotFound("The run is not kept any more.")
    read = ((id, server.settings.cipher.decrypt(data)) for id, data in zip(ids, found, strict=False) if data)
    return {id: msgspec.json.decode(data, type=Decision) for id, data in read}


def server_of(owner: str, names: Iterable[str]) -> str:
    """Return the name of the server for the runs of a user: the one with the highest hash of the user and the name.

    If a server is added, users move only to this server. If a server is removed, only its users move.
    """
    return max(names, key=lambda name: sha256(log_key(owner, name).encode()).digest())


def _has_answer(events: Iterable[UIEvent], copied: int) -> bool:
    """Return whether the model has answered after `copied`, the seq of the last event of the waiting run."""
    new = [event for event in events if (not event.seq or event.seq > copied) and not isinstance(event, Warning)]
    return any(isinstance(event, StepStart) for event in new[:-1])


def _by_name(servers: object) -> dict[str, object]:
    """Map the name of each server to its URL or client. The name is the URL without scheme, user name and password."""
    listed = servers if isinstance(servers, list | tuple) else [servers]
    if not listed or (len(listed) > 1 and not all(isinstance(each, str) for each in listed)):
        raise TypeError(f"`servers` must be a URL, a client of redis-py, or a list of URLs, got {described(servers)}")
    for each in listed:
        check_url(each)
    return {each.partition("://")[2].rpartition("@")[2] if isinstance(each, str) else "": each for each in listed}


def _report_takeover(
    leased: LeasedRun, events: Sequence[UIEvent], recorded: Mapping[str, Entry] | None, has_crashed: bool, gap: float
) -> None:
    """Log and count a run that this process has taken over. `recorded` are its calls in the ledger, if any.

    `has_crashed` is False if the run was handed over. `gap` is the time in seconds for which no process drove it.
    """
    unknown = unknown_calls(events, recorded)
    (log.warning if has_crashed else log.info)(
        "run_taken_over",
        run_id=leased.run_id,
        owner_hash=sha256(leased.owner.encode()).hexdigest()[:16],
        handed_over=not has_crashed,
        epoch=leased.epoch,
        gap=gap,
        steps=sum(type(event) is StepStart for event in events),
        unknown_calls=[f"{call.name[:64]}:{call.id}" for call in unknown],
    )
    observing.report("runs.lost" if has_crashed else "runs.handed_over")
    observing.report("calls.unknown", len(unknown))


def _add_events(process: RedisProcess, leased: LeasedRun, events: Sequence[UIEvent]) -> None:
    for event in events:
        leased.add(event.seq, leased.hide(event.to_json().encode()))
    process.write_soon(leased)


class RedisJournal(Journal):
    """Writes the events of a run to Redis in the background.

    `write` returns before the server has the event. At the end, `flush` waits until the server has all events, for
    `END_TIMEOUT_S` at most.
    """

    def __init__(self, store: RedisStore, run: Run, process: RedisProcess, leased: LeasedRun) -> None:
        super().__init__(self, run.owner, run.id)
        self.driven = leased
        self.last = leased.written
        self._leased = leased
        self._store = store
        self._process = process
        self._run = run
        self.readable.set()

    def read(self, key: str, /, after: int = 0) -> AsyncGenerator[UIEvent]:
        """Return a reader of the events of the run after the seq `after`."""
        return read_run(self._process, key, after)

    def begin(self) -> None:
        self._leased.vault = self._run._vault or self._leased.vault

    @property
    def is_lost(self) -> bool:
        return self._leased.is_fenced

    async def check_lease(self) -> None:
        with anyio.move_on_after(self._store.lease):
            if not await self._leased.is_lost():
                return
        raise OwnerUnreachable("Another process may drive the run. Repeat the decision.")

    async def record_decision(self, call_id: str, decision: Decision) -> None:
        written = self._process.server.settings.cipher.encrypt(msgspec.json.encode(decision))
        if not await self._process.server.store(self.key, f"decision:{call_id}", written, token=self._leased.token):
            raise OwnerUnreachable("Another process has taken the run over. Repeat the decision.")

    async def copy(self, earlier: Iterable[UIEvent]) -> None:
        """Write the events no faster than the server stores them: too many pending events would stop the run."""
        for event in earlier:
            await super().copy((event,))
            await self._leased.wait_for_room()

    def _append(self, event: UIEvent) -> None:
        if self._run._is_cut and self._run._outlives_process:
            self._leased.is_released = True
            self._process.write_soon(self._leased)
            return
        data = self._leased.hide(event.to_json().encode(), is_delta=isinstance(event, Text | Reasoning | Partial))
        if type(event) is Done:
            self._leased.keep = self._run._keep_for(self._process.server.settings.keep)
            self._leased.final = event.seq, data, self._leased.hide(self._dump_result())
        else:
            self._leased.add(event.seq, data)
        self._process.write_soon(self._leased)
        if self._leased.is_full:
            self._run._cancel()

    def _dump_result(self) -> bytes:
        run = self._run
        try:
            return run._dump()
        except Exception as error:  # other processes then receive a result that has only a reason
            log.warning("result_not_stored", run_id=run.id, **loggable(error))
            return stored_result.dump(StoredEnd(TurnResult(reason=self.done.reason if self.done else None)))

    async def flush(self) -> StoredEnd | None:
        with anyio.move_on_after(END_TIMEOUT_S) as scope:
            await self._leased.finished.wait()
        if scope.cancelled_caught:
            log.warning("end_not_written_yet", run_id=self._leased.run_id)
            self._run._is_cut = True
        if not self._leased.is_fenced:
            return None
        run = self._run
        remote = RemoteRun(self._store, self._process, run.id, run.owner, conversation=run.conversation)
        remote.note = run.note
        with anyio.move_on_after(END_TIMEOUT_S):
            if (end := await remote.fetch_end()) is not None:
                return end
        if not self._leased.is_released:
            run._continued = remote
        return None


class RemoteRun(Run):
    """A run that another process drives or has driven. The object is also the log from which its readers read."""

    def __init__(
        self, store: RedisStore, process: RedisProcess, run_id: str, owner: str, *, conversation: str | None
    ) -> None:
        super().__init__(None, run_id, owner, self, conversation=conversation, place=store)
        self._outlives_process = True
        self.stop_requested = False
        """Whether a user has stopped the run. The driving process may have died before it could stop the run."""
        self._process = process
        self._key = self._journal.key
        self._values = VaultReader(process.server, self._key)
        """Restores the values of a vault."""
        process.readers[self] = self._readers

    def read(self, key: str, /, after: int = 0) -> AsyncGenerator[UIEvent]:
        """Return a reader that fetches the result of the run before it returns `done`."""
        return read_run(self._process, key, after, self.fetch_end)

    async def load_end(self, result: bytes | None) -> bool:
        """Read the vault of the run, and set the end of the run from its stored form. Returns False without one."""
        await self._values.read()
        self._vault = self._values.vault
        return self._load(result and await self._values.restore(result))

    async def fetch_end(self) -> StoredEnd | None:
        """Return the end of the run; None if it is not stored, or the server does not answer."""
        try:
            is_stored = self.ended or await self.load_end(await self._process.server.read_result(self._key))
        except Exception as error:
            log.debug("end_not_read", **loggable(error))
            return None
        return self._final if is_stored else None

    async def wait(self) -> TurnResult:
        while not self.ended:
            state = await self._process.server.run_state(self._key)
            if not state.epoch:
                raise RunNotFound(f"The run {self.id[:64]!r} is not kept any more.")
            if not state.is_over:
                async for _ in read_run(self._process, self._key, state.last):
                    pass
            if await self.load_end(await self._process.server.read_result(self._key)):
                with suppress(OwnerUnreachable):  # the driving process has crashed, or closes the stream too slowly
                    await self._process.messages.ask(self._key, {"kind": "wait"}, also_ended=True)
                self._finished.set()
        return self.result

    async def stop(self) -> None:
        if not self.ended:
            self._process.in_background(self._request_stop)  # also if the caller is cancelled
            with anyio.move_on_after(4 * self._process.server.settings.lease):  # enough to end a crashed process's run
                await self.wait()
            if not self.ended:
                raise OwnerUnreachable("The run was requested to stop, but has not ended yet.")
        await self._withdraw()

    async def _request_stop(self) -> None:
        """Store the request, for a process that takes the run over, and send it to the driving process."""
        await self._process.server.store(self._key, "stop", "1")
        for _ in range(4):
            with suppress(OwnerUnreachable):
                await self._process.messages.ask(self._key, {"kind": "stop"})
                return

    async def questions(self) -> list[Question]:
        answer = {"over": True} if self.ended else await self._process.messages.ask(self._key, {"kind": "questions"})
        if answer.get("over"):
            await self.load_end(await self._process.server.read_result(self._key))
            return await super().questions()
        written = await self._values.restore(msgspec.json.encode(answer["questions"]))
        return msgspec.json.decode(written, type=list[Question])

    async def decide(self, call_id: str, decision: Decision | bool) -> None:
        decision = read_decision(call_id, decision)
        request = {"kind": "decide", "call_id": call_id, "decision": msgspec.to_builtins(decision)}
        answer: dict[str, Any] = {"over": True} if self.ended else await self._process.messages.ask(self._key, request)
        if answer.get("over"):
            await self.load_end(await self._process.server.read_result(self._key))
            await super().decide(call_id, decision)
        elif "refused" in answer:
            raise DecisionRefused(answer["refused"], code=answer.get("code", "decision_refused"))
        self.decisions = {**self.decisions, call_id: decision}
