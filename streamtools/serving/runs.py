"""Starts and finds the runs of an application. Their tasks belong to one task group.

The task group is open while the application runs. So a run continues after the request that started it has ended, and
after its readers have left. It ends when its stream ends, when it is stopped, or when the application ends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableSequence, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from heapq import heappop, heappush
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from weakref import WeakValueDictionary

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from streamtools.errors import (
    AsyncOnly,
    Checked,
    ClosedError,
    ConversationBusy,
    DecisionRefused,
    Draining,
    OwnerUnreachable,
    RunNotFound,
    TooManyRuns,
    check_function,
    check_kind,
    check_methods,
    check_number,
)
from streamtools.logs import Logger
from streamtools.serving.event_log import MemoryEventLog, log_key
from streamtools.serving.run import NEXT, NO_CALL, Run
from streamtools.serving.shutdown import Shutdown
from streamtools.stream.lost_run import LostRun
from streamtools.stream.reading import Startable, awaited, check_startable, close
from streamtools.tools.approvals import EXPIRED, Answer, Decision, Deny, not_waiting, read_decision

if TYPE_CHECKING:
    from streamtools.serving.redis_store import RedisStore
    from streamtools.serving.waiting_runs import WaitingRuns
    from streamtools.tools.approvals import Suspension
    from streamtools.tools.ledger import CallLedger

log = Logger(__name__)

_RETRY_S = 30.0  # pause between attempts to continue a run whose questions have expired

Resume: TypeAlias = Callable[[Run], Awaitable[Startable] | Startable]
"""A function that takes a run whose calls have been decided, and returns the chat that continues it.

It may be asynchronous, or have `@asynccontextmanager` and yield the chat.
"""


class Runs(Checked, AsyncOnly):
    """Starts runs and finds them again. Enter it with `async with`. An `owner` is the user to whom a run belongs.

    - `store` has the events of the runs, by default in memory. With a `RedisStore`, all processes that use the same
      server share their runs.
    - `max_running` is the maximum number of runs that run in this process at the same time.
    - `max_per_owner` is the maximum number of runs of one user that run at the same time. None means no limit.
    - `keep` is the number of seconds for which an ended run is kept. A run that waits for decisions is kept for `keep`
      seconds after its last question expires. At most `max_kept` ended runs are kept.
    - `stop_when_abandoned`: a run that has had no reader for that many seconds is stopped. None means never. A caller
      that waits for the result is not a reader. With a `RedisStore`, its `lease` is added to this time.
    - `shutdown`: when it begins, no new run starts any more. The running runs have `drain` seconds to finish (default:
      0), or the `drain` of `shutdown`. Then the remaining runs are stopped. The end of the context also begins the
      shutdown. If an exception ends the context, the runs are stopped immediately.
    - `grace`: in a shutdown, a stopped stream has that many seconds to close. Then it is cancelled.
    - `resume` gets a waiting run when all its calls are decided or have expired, and returns the chat that continues
      the run, or a context manager that yields this chat. If `resume` fails or the context manager cannot be entered,
      the next request for the run tries again. When the last question has expired, the process in which the run waited
      also tries, at intervals.
    - `ledger` records the calls of all runs, so that none runs twice. Without a `RedisStore`, it also stores waiting
      runs with their events. In a `SQLiteLedger` or `PostgresLedger`, they outlive the process.
    - `clock` returns seconds.

    Raises ValueError for a limit that is out of range, and for both `drain` and `shutdown`. Also raises ValueError for
    `resume` with neither a `ledger` nor a `RedisStore`. Raises TypeError for another `store` than a `MemoryEventLog` or
    a `RedisStore`.

    If a run fails, its events report the error and `run.wait()` raises it. Other runs are not affected.
    """

    def __init__(
        self,
        store: MemoryEventLog | RedisStore | None = None,
        *,
        max_running: int = 1_000,
        max_per_owner: int | None = None,
        keep: float = 600.0,
        max_kept: int = 1_000,
        stop_when_abandoned: float | None = None,
        drain: float | None = None,
        shutdown: Shutdown | None = None,
        resume: Resume | None = None,
        ledger: CallLedger | None = None,
        grace: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = ("max_running", max_running, 1), ("max_kept", max_kept, 0), ("keep", keep, 0), ("grace", grace, 0)
        for name, value, minimum in limits:
            check_number(name, value, minimum)
        check_number("max_per_owner", max_per_owner, 1, optional=True)
        check_number("stop_when_abandoned", stop_when_abandoned, 0, optional=True)
        check_function("resume", resume, "run", optional=True)
        if not (shutdown is None or drain is None):
            raise ValueError("Pass `drain` or `shutdown`, not both.")
        self.log = MemoryEventLog() if store is None else store
        self._store = None if isinstance(self.log, MemoryEventLog) else self.log
        check_methods("store", self._store, "a MemoryEventLog() or a RedisStore(url)", "connect", optional=True)
        self._max_running = max_running
        self._max_per_owner = max_per_owner
        if self._store is not None and stop_when_abandoned is not None:
            stop_when_abandoned += self._store.lease  # other processes report their readers up to one lease late
        self._grace = grace
        self._shutdown = Shutdown(drain or 0.0) if shutdown is None else shutdown
        self._runs: dict[str, Run] = {}  # by log key: the running and the kept runs, in the order of their start
        self._running: dict[str, Run] = {}  # by log key: the runs that have not ended
        self._kept: dict[str, float] = {}  # by log key: the time until which an ended run is kept, in the order of ends
        self._expiring: list[tuple[float, str]] = []  # a heap of times and log keys from `_kept`, some of them outdated
        self._stack = AsyncExitStack()
        self._keep, self._max_kept, self._clock = keep, max_kept, clock
        self._tasks: TaskGroup | None = None
        self._was_entered = False
        self._resume, self._ledger = resume, ledger
        self._waiting: WaitingRuns | None = None
        check_methods("ledger", ledger, "a ledger, such as SQLiteLedger(path)", "begin", "finish", optional=True)
        if resume is not None and self._store is None:
            from streamtools.serving.waiting_runs import WaitingRuns

            if ledger is None:
                raise ValueError("`resume` needs a place for waiting runs: write Runs(resume=resume, ledger=ledger).")
            self._waiting = WaitingRuns(ledger, keep)
        self._place = self._store or self._waiting  # stores the runs that wait, and the decisions about their calls
        self._new_run = partial(
            Run, event_log=self.log, stop_when_abandoned=stop_when_abandoned, on_end=self._keep_ended, place=self._place
        )
        self._locks: WeakValueDictionary[object, anyio.Lock] = WeakValueDictionary()  # of conversations and `_chain_of`

    async def __aenter__(self) -> Self:
        if self._was_entered:
            raise ClosedError("Runs can be entered only once.")
        self._was_entered = True
        if self._store is not None:
            await self._stack.enter_async_context(self._store.connect())
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._stop_after_drain)
        if self._store is not None:
            self._store.start(self, self._tasks)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        if error is not None:  # do not wait for the runs to finish
            self._shutdown.end()
        passed: tuple[type[BaseException] | None, BaseException | None] = (None, None)
        try:
            if isinstance(error, anyio.get_cancelled_exc_class()):
                # Pass the cancellation to the task group. Otherwise asyncio's cancellation would be lost while the
                # group waits for the runs. Other exceptions are not passed, because the group would wrap them.
                passed = (kind, error)
                self._stop_all()
            else:
                await self.aclose()
        finally:
            self._tasks.cancel_scope.cancel()
            try:
                await self._tasks.__aexit__(*passed, None)
            finally:
                async with self._stack as stack:  # the stack calls all callbacks, even if one of them raises
                    for run in self._running.values():
                        stack.push_async_callback(run._end_without_driving)
                self._tasks = None

    @property
    def running(self) -> int:
        """The number of runs of this process that have not ended."""
        return len(self._running)

    async def start(
        self,
        stream: Startable,
        *,
        owner: str,
        conversation: str | None = None,
        exclusive: bool = False,
        note: Any = None,
    ) -> Run:
        """Start a run. A new task enters `stream`, reads its events and leaves it.

        `owner` is the id of the user. `conversation` is an id with which `latest` finds the run, until another run of
        the conversation starts. The client may choose it, because each user has separate conversations. With
        `exclusive`, the last run of the conversation must have ended, and wait for no decision. The same applies to its
        earlier runs in this process. `note` is any value to keep with the run. With a `RedisStore`, it must be a
        JSON value. The run has the `run_id` of the stream. With a context manager, it has a random id, which the stream
        gets when it is entered.

        With a context manager, `start` waits until it is entered, and raises its exception. There is then no run. A
        chat is entered later. If `start` raises, it closes the stream, unless a run has it. Raises `TooManyRuns` if a
        limit is reached. With `exclusive`, raises `ConversationBusy` if one of these runs is active, which includes the
        code of its context manager, or waits for decisions. A `RedisStore` knows the last run of all processes. Raises
        `Draining` after `shutdown` has begun or the context has started to end. Raises ClosedError before the context
        is entered, and for a stream that was already entered. Raises ValueError if the user already has a run with the
        same id, in this process or in the `RedisStore`, if the id ends with `~`, if `owner` is empty, or for
        `exclusive` without a `conversation`. Raises TypeError if `owner` or `conversation` is not a string, or if
        `stream` is not an asynchronous context manager.
        """
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            if owner == "":  # all users without a login would share their runs
                raise ValueError("`owner` must not be empty: pass the id of the user.")
            check_startable(stream)
            check_kind("the id of a conversation", conversation, str, optional=True)
            run_id = getattr(stream, "run_id", None) or "run_" + secrets.token_urlsafe(16)
            if run_id.endswith(NEXT):
                raise ValueError(f"The id of a run must not end with {NEXT!r}, got {run_id!r}.")
            run = self._new_run(stream, run_id, owner, conversation=conversation, note=note)
            run._reports_entry = getattr(stream, "run_id", None) is None
            if not exclusive:
                await self._start(run)
            elif conversation is None:
                raise ValueError("`exclusive` needs `conversation`, the id of the conversation.")
            else:
                async with self._locks.setdefault((owner, conversation), anyio.Lock()):
                    last = None if self._store is None else await self._store.latest(conversation, owner=owner)
                    await self._check_free(conversation, owner)
                    await self._start(run, last=last or "")
            await run._wait_entered()
            return run
        except BaseException:
            is_read = getattr(stream, "_task_id", False)  # by a run, or by the code that entered it
            if not is_read and not any(run._driver and run._driver.stream is stream for run in self._running.values()):
                await close(stream)
            raise

    async def _check_free(self, conversation: str, owner: str) -> None:
        """Raise `ConversationBusy` if a run of a conversation in this process, or its last run, is active or waits."""
        last = await self.latest(conversation, owner=owner)
        here = [run for run in self._runs_of(owner) if run.conversation == conversation]
        for run in here if last is None else [last, *here]:
            if run._journal.done is not None:  # readers have received it, and the stream is closing
                with suppress(Exception):
                    await run.wait()
            with suppress(RunNotFound):
                run = await self._continue_if_decided(run)
                if not run.ended:
                    raise ConversationBusy("The last answer is still in progress.")
                # After the decisions, a run waits until `resume` has returned its continuation.
                may_continue = run.suspension is not None and self._resume is not None
                if await run.questions() or (may_continue and not run._is_withdrawn):
                    raise ConversationBusy("A call waits for a decision.")

    async def _start(self, run: Run, *, last: str | None = None) -> None:
        """Start a run. `last` is the id that the last run of its conversation on Redis must have, or None for any."""
        limit = self._max_per_owner
        if limit is not None and sum(each.owner == run.owner for each in self._running.values()) >= limit:
            raise TooManyRuns(f"The user has reached max_per_owner={limit}. Try later.", code="too_many_runs_of_owner")
        tasks = self._admit(run)
        if self._store is not None:
            try:
                await self._store.begin(run, max_per_owner=limit, last=last)
            except BaseException:
                del self._running[run._journal.key]
                raise
        self._runs[run._journal.key] = run
        tasks.start_soon(run._drive, self._ledger, name=f"run {run.id}")

    def _take_over(self, stream: Startable, lost: LostRun) -> Run:
        """Return a run that continues `lost`, a run of a crashed process. Raises the exceptions of `start`."""
        run = self._continuation(stream, lost)
        self._forget(run._journal.key)  # if this process had lost the run
        self._admit(run)
        self._runs[run._journal.key] = run
        return run

    def _continuation(self, stream: Startable, lost: LostRun) -> Run:
        """Return the run of a stream that continues `lost`. Raises TypeError for the stream of another run."""
        if getattr(stream, "run_id", None) is None:  # a context manager, which makes the chat when it is entered
            check_startable(stream)
            stream = _checked(stream, lost)
        else:
            _check_continues(stream, lost)
        return self._new_run(stream, lost.id, lost.owner, conversation=lost.conversation, note=lost.note, lost=lost)

    async def _resume_lost(self, lost: LostRun) -> Startable:
        """Call `resume` again for a continuation whose process has crashed (`lost`)."""
        if self._resume is None:
            raise ValueError("`Runs` has no `resume`. Pass the function in each process that shares the runs.")
        run = await self._lookup(lost.id.removesuffix(NEXT), lost.owner)
        await run._sync_decisions()
        return await self._resumed(run, lost)

    async def _resumed(self, run: Run, log: LostRun) -> Startable:
        """Call `resume` with a waiting run, and return the chat that continues the run after the events in `log`."""
        assert self._resume is not None
        run._next_log, run._ledger = log, self._ledger
        return await awaited(self._resume(run))

    async def find(self, run_id: str, *, owner: str) -> Run:
        """Return a run of the user `owner`, or the run that continues it (the continuation).

        The continuation is started if all calls of the waiting run are decided or have expired, and no process has
        started it. Its log begins with the events of the waiting run. Raises `RunNotFound` if the user has no such run
        that is kept.
        """
        return await self._continue_if_decided(await self._lookup_waiting(run_id, owner))

    async def _lookup(self, run_id: str, owner: str) -> Run:
        """Return the run with this id, even if another run continues it."""
        self._forget_expired()
        run = self._runs.get(log_key(owner, run_id))
        if run is not None and (self._store is None or run._is_stored):
            return run
        if self._place is None:
            raise RunNotFound(f"There is no run {run_id[:64]!r}.")
        return await self._place.find(run_id, owner=owner)

    async def _lookup_waiting(self, run_id: str, owner: str) -> Run:
        """Return the run with this id. For the id of a continuation that is not stored, return the run that waits."""
        with suppress(RunNotFound):
            return await self._lookup(run_id, owner)
        return await self._lookup(run_id.removesuffix(NEXT), owner)

    async def _continue_if_decided(self, run: Run) -> Run:
        """If `run` waits, return the run that continues it, after starting that run if necessary. Else return `run`.

        Raises `RunNotFound` if the run is not stored any more. Any other failure is logged, and `run` is returned.
        """
        try:
            while self._place is not None and run.ended and run.suspension is not None:
                await run._sync_decisions()
                if self._resume is None or run._undecided:
                    break
                waiting, run = run, await self._continue(run)
                if run is waiting:
                    break
        except RunNotFound:
            self._forget(run._journal.key)
            raise
        except Exception as error:
            log.error("run_not_continued", error, run_id=run.id)
        return run

    async def _continue_when_expired(self, run: Run, suspension: Suspension) -> None:
        """Continue a waiting run when its last undecided question has expired, while the run is kept."""
        waiting = len(suspension.questions)  # the number of questions that had not expired at the last attempt
        while run._journal.key in self._kept:
            now = time.time()
            left = [each.expires - now for each in suspension.questions if each.expires and not each.has_expired(now)]
            if not left or len(left) < waiting:
                waiting = len(left)
                with suppress(RunNotFound):
                    if await self._continue_if_decided(run) is not run:
                        return
            await anyio.sleep(min([_RETRY_S, *left]))

    async def latest(self, conversation: str, *, owner: str) -> Run | None:
        """Return the last run of the user `owner` in a conversation, or its continuation.

        Like `find`, this starts the continuation if necessary. Returns None if no run of the user in this conversation
        is kept.
        """
        check_kind("the id of a conversation", conversation, str)
        run = next((each for each in self._runs_of(owner) if each.conversation == conversation), None)
        with suppress(RunNotFound):
            if self._place is None or (run is not None and not run._is_stored):
                return run
            run_id = await self._place.latest(conversation, owner=owner)  # another process may have a later run
            return None if run_id is None else await self.find(run_id, owner=owner)
        return None

    async def decide(self, run_id: str, call_id: str, decision: Decision | bool, *, owner: str) -> Run:
        """Decide about a call of a waiting run. Returns the run to read next.

        While other calls are undecided, the waiting run is returned. Its `decisions` holds the decisions that have
        arrived. The decision about the last call starts a new run, the continuation, with the chat that `resume`
        returns. The log of the continuation begins with the events of the waiting run. If the same decision is made
        again, the same run is returned. If the call is one of a continuation, the continuation gets the decision.

        Another process may drive the continuation. With a `RedisStore`, the readers of the returned run get each event
        immediately. Without a `RedisStore`, they get the new events after the continuation has ended. If the driving
        process crashes or shuts down, its lease expires. Another process may then start the continuation again. Without
        a `RedisStore`, this may also happen after the driving process has stopped the continuation for lack of readers.
        A continuation that was stopped by a caller or has made new calls is not started again. With a `RedisStore`,
        only `recover` can continue a continuation in which the model has answered.

        A question that has expired counts as denied. When the last question has expired, the process that drove the
        waiting run starts the continuation. If that process has shut down, the next `find` or `latest` in another
        process starts the continuation.

        If the run is still running (`ask="now"`), its chat gets the decision, as with `Run.decide`.

        Raises `DecisionRefused` if the call does not wait for this decision, already has another decision, or has
        expired. Raises ValueError if the run waits and `Runs` has no `resume`, and TypeError if `resume` returns a chat
        of another run. Also raises the exceptions of `find`, `start` and `resume`. If `resume` returns a context
        manager, `decide` waits until it is entered, and raises its exception.
        """
        given = read_decision(call_id, decision)
        try:
            return await self._decide(run_id, call_id, given, owner)
        except (DecisionRefused, OwnerUnreachable) as refused:
            # perhaps a call of an earlier run
            if refused.code in ("not_waiting", "unreachable") and run_id.endswith(NEXT):
                with suppress(RunNotFound):
                    return await self._decide(run_id.rstrip(NEXT), call_id, given, owner)
            raise

    async def _decide(self, run_id: str, call_id: str, given: Decision, owner: str) -> Run:
        """Decide about a call of a run, or of a run that continues it."""
        run = await self._lookup_waiting(run_id, owner)
        if run._has_done and not run.ended:
            with suppress(Exception):  # the run has already reported its error
                await run.wait()
        if run.suspension is None or not run.ended:
            await run.decide(call_id, given)
            return run
        if self._resume is None or self._place is None:
            hint = 'Runs(resume=…, ledger=…), or approvals=ApprovalOptions(ask="now") in the chat'
            raise ValueError(f"The run has ended, and only `resume` can continue it: write {hint}.")
        question = next((each for each in run.suspension.questions if each.call.id == call_id), None)
        fits = question is not None and (question.approval != isinstance(given, Answer) or isinstance(given, Deny))
        if not fits:  # the next run may have the question
            with suppress(RunNotFound):
                next_id = (await self._lookup(run.next_id, owner)).id
                try:
                    return await self._decide(next_id, call_id, given, owner)
                except DecisionRefused as refused:
                    if question is None or refused.code != "not_waiting":
                        raise
        if question is None:
            raise not_waiting(call_id, await run.questions())
        try:
            question.check(given)
        except DecisionRefused:
            await run._sync_decisions()
            question.check(given, run.decisions.get(call_id))  # a better reason
            raise
        made = Deny(EXPIRED) if question.has_expired(time.time()) else given
        await run._sync_decisions(call_id, made)
        question.check(given, run.decisions[call_id])
        return run if run._undecided else await self._continue(run)

    def _chain_of(self, run: Run) -> anyio.Lock:
        """Return the lock that a run shares with the runs that it continues and the runs that continue it."""
        return self._locks.setdefault(log_key(run.owner, run.id.rstrip(NEXT)), anyio.Lock())

    async def _continue(self, run: Run) -> Run:
        """Return the run that continues a waiting run. Starts this run if no process has started it.

        If `run` was stopped before, returns `run`.
        """
        started = self._runs.get(log_key(run.owner, run.next_id))
        if started is not None and started._task == anyio.get_current_task():
            return started  # its context manager asks before its `yield`, while the lock is held for its entry
        async with self._chain_of(run):
            with suppress(RunNotFound):
                return await self._lookup(run.next_id, run.owner)
            if run._is_withdrawn:
                return run
            if self._tasks is None:
                raise ClosedError("The runs have been closed. Another process may continue this one.")
            for question in () if run.suspension is None else run.suspension.questions:
                if question.call.id not in run.decisions:
                    await run._sync_decisions(question.call.id, Deny(EXPIRED))
            if self._waiting is not None and (followed := await self._waiting.claim(run, self._continue)):
                return followed
            log = await run._log_for_next()
            stream = await self._resumed(run, log)
            try:
                await run._sync_decisions()
                if NO_CALL in run.decisions:  # it was stopped meanwhile
                    await close(stream)
                    return run
                started = self._continuation(stream, log)
                started._predecessor, started._reports_entry = run, getattr(stream, "run_id", None) is None
                await self._start(started)
            except BaseException as error:
                await close(stream)
                with suppress(RunNotFound):
                    if isinstance(error, ValueError):  # another process has started it in the meantime
                        return await self._lookup(run.next_id, run.owner)
                raise
            if self._waiting is not None:
                self._tasks.start_soon(self._waiting.keep_lease, run, started)
            await started._wait_entered()
            if run._journal.key in self._kept:
                self._keep_run(run, self._keep)
            return started

    async def list(self, owner: str, *, limit: int = 100) -> Sequence[Run]:
        """Return the last `limit` runs of the user `owner` that are still kept, the newest first.

        Without a `RedisStore`, these are the runs of this process, and then the waiting runs that only the `ledger`
        has. To describe a run to the user, use its `conversation` and `note`.
        """
        found, known = list[Run](), [] if self._store is not None else [run.id for run in self._runs_of(owner)]
        stored = [] if self._place is None else await self._place.list(owner, limit)
        for run_id in [*dict.fromkeys([*known, *stored])][:limit]:
            with suppress(RunNotFound):
                run = await self._lookup(run_id, owner)
                if run.ended and run.suspension is not None:
                    await run._sync_decisions()
                found.append(run)
        return found

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Stop a run and delete it with its events. Raises the exceptions of `find` and `Run.stop`.

        The runs that this run continues, and the runs that continue it, are deleted too, because they have the same
        events. The calls stay in the ledger, so that none of them runs again.
        """
        last = await self._lookup_waiting(run_id, owner)
        async with self._chain_of(last):
            chain, each = list[Run](), last.id.rstrip(NEXT)
            while len(each) <= len(last.id) or (chain and chain[-1].next_id == each):
                with suppress(RunNotFound):
                    chain.append(await self._lookup(each, owner))
                    await chain[-1].stop()
                each += NEXT
            for run in reversed(chain):  # so that the run before the first is the last of its conversation again
                self._forget(run._journal.key)
                if self._place is not None:
                    await self._place.forget(run.id, owner=owner)

    async def aclose(self) -> None:
        """Wait for the running runs during the drain. Then stop the remaining runs, and wait for their end.

        No new run starts any more. May be called from any task.
        """
        self._shutdown.begin()
        for run in list(self._running.values()):
            await run._wait_finished()

    async def _stop_after_drain(self) -> None:
        """Stop all runs when the drain of the shutdown is over.

        This is a separate task, because the task that closes the runs may be cancelled while it waits for them. A
        cancel scope around that wait could swallow the cancellation on asyncio.
        """
        await self._shutdown.wait_over()
        self._stop_all()
        await anyio.sleep(self._grace)
        for run in self._running.values():
            run._cancel(cancel_cleanup=True)

    def _stop_all(self) -> None:
        if not all(run._has_done for run in self._running.values()):
            log.warning("runs_stopped", advice="set a longer `drain`, and enter `Runs` in the lifespan")
        for run in self._running.values():
            run._cut()

    def _may_start(self) -> bool:
        return not self._shutdown.begun and len(self._running) < self._max_running

    def _admit(self, run: Run) -> TaskGroup:
        """Add a new run to the running runs. Returns the group for its task. Raises the exceptions of `start`."""
        if self._shutdown.begun:
            raise Draining("The server is shutting down and starts no more runs.")
        if self._tasks is None:
            raise ClosedError("Start runs inside `async with Runs() as runs:`.")
        self._forget_expired()
        if not self._may_start():
            raise TooManyRuns(f"This process has reached max_running={self._max_running}. Wait for the end of a run.")
        if run._journal.key in self._running or run._journal.key in self._kept:
            raise ValueError(f"The owner already has a run {run.id!r}. Make a new chat for each run.")
        if run._driver is not None and getattr(run._driver.stream, "_task_id", False):
            raise ClosedError("The stream was already entered. Make a new one for each run.")
        self._running[run._journal.key] = run
        return self._tasks

    async def _keep_ended(self, run: Run) -> None:
        del self._running[run._journal.key]
        self._keep_run(run, run._keep_for(self._keep))
        may_continue = run._is_cut and (self._store is not None or run.id.endswith(NEXT))
        if run._is_refused and self._store is not None:
            with suppress(Exception):  # without the server, the run stays failed
                await self._store.forget(run.id, owner=run.owner)
        # Another process drives the run, or may continue it, or the run may be started again.
        if run._continued is not None or may_continue or run._is_refused:
            self._forget(run._journal.key)
        elif self._tasks is not None and self._resume is not None and (suspension := run.suspension) is not None:
            self._tasks.start_soon(self._continue_when_expired, run, suspension)
        self._forget_expired()

    def _keep_run(self, run: Run, seconds: float) -> None:
        self._kept[run._journal.key] = until = self._clock() + seconds
        heappush(self._expiring, (until, run._journal.key))
        if len(self._expiring) > 2 * len(self._kept) + 100:  # most are outdated
            self._expiring = sorted((until, key) for key, until in self._kept.items())

    def _runs_of(self, owner: str) -> MutableSequence[Run]:
        """Return the runs of a user in this process, the newest first."""
        check_kind("`owner`", owner, str)
        self._forget_expired()
        return [run for run in reversed(self._runs.values()) if run.owner == owner]

    def _forget_expired(self) -> None:
        now = self._clock()
        while self._expiring and self._expiring[0][0] <= now:
            until, key = heappop(self._expiring)
            if self._kept.get(key) == until:
                self._forget(key)
        while len(self._kept) > self._max_kept:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: str) -> None:
        """Forget the run with this log key, if it is a kept run."""
        if self._kept.pop(key, None) is not None:
            del self._runs[key]
            if isinstance(self.log, MemoryEventLog):
                self.log.forget(key)


def _check_continues(chat: object, lost: LostRun) -> None:
    if (run_id := getattr(chat, "run_id", None)) != lost.id:
        advice = "Make it with `continue_from=lost` in `recover`, and with `resume=run` in `resume`."
        raise TypeError(f"The chat must continue the run {lost.id!r}, but its run_id is {run_id!r}. {advice}")


@asynccontextmanager
async def _checked(stream: Startable, lost: LostRun) -> AsyncIterator[Any]:
    """Enter a context manager that yields the chat that continues `lost`. Raises TypeError for another chat."""
    async with stream as chat:
        _check_continues(chat, lost)
        yield chat
