"""All runs of an application, in one task group that lives as long as the application.

So a run outlives the request that began it and the reader that left: it ends when its answer does, when it is stopped,
or with the application.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from streamtools.errors import ClosedError, Draining, RunNotFound, TooManyRuns
from streamtools.serving.event_log import Ended, EventLog, MemoryEventLog, log_key
from streamtools.serving.run import Run
from streamtools.serving.shutdown import Shutdown
from streamtools.stream.driver import Startable
from streamtools.stream.reading import close

if TYPE_CHECKING:
    from streamtools.serving.redis_store import RedisStore


class Runs:
    """Starts runs, and finds them again for their owners. Enter it where the app begins, leave it where the app ends.

    What runs say goes into `log`, in memory unless another is given; with a `RedisStore`, all processes over it share
    their runs. `max_running` run here at the same time, and `max_per_owner` of one owner. One that has ended is kept
    for `keep` seconds, and for less if `max_kept` have ended after it. A run that nobody reads, from its
    start or since its last reader has left, goes on to its end, or is stopped after `stop_when_abandoned` seconds;
    waiting for its result is no reading.

    When all is closed, or `shutdown` begins, no run is started any more, and those that go on have `drain` seconds to
    finish (those of `shutdown`, if there is one). What has not is stopped; streams have `grace` seconds to be left, and
    what they do then is cancelled. Raises ValueError for bounds that are none.

    A fault in one run is reported by its events and raised by its `wait()`, and touches nothing else.
    """

    def __init__(
        self,
        log: EventLog | RedisStore | None = None,
        *,
        max_running: int = 1_000,
        max_per_owner: int | None = None,
        keep: float = 600.0,
        max_kept: int = 1_000,
        stop_when_abandoned: float | None = None,
        drain: float | None = None,
        shutdown: Shutdown | None = None,
        grace: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        bounds = ("max_running", max_running, 1), ("max_kept", max_kept, 0), ("keep", keep, 0), ("grace", grace, 0)
        for name, value, least in bounds:
            if not (isinstance(value, int | float) and value >= least):
                raise ValueError(f"{name} is a number of at least {least}, not {value!r}")
        if not (stop_when_abandoned is None or stop_when_abandoned >= 0):
            raise ValueError(f"stop_when_abandoned is a number of seconds, or None, not {stop_when_abandoned!r}")
        if not (shutdown is None or drain is None):
            raise ValueError("the drain is that of the shutdown")
        if not (max_per_owner is None or max_per_owner >= 1):
            raise ValueError(f"max_per_owner is at least 1, or None, not {max_per_owner!r}")
        self.log: EventLog = MemoryEventLog(max_age=None, max_ended=None) if log is None else log
        self._store: RedisStore | None = None
        if not (log is None or isinstance(log, MemoryEventLog)):
            from streamtools.serving.redis_store import RedisStore  # loaded when it is used

            self._store = log if isinstance(log, RedisStore) else None
        self._max_running = max_running
        self._max_per_owner = max_per_owner
        self._patience = stop_when_abandoned
        if self._store is not None and stop_when_abandoned is not None:  # in which it hears of readers elsewhere
            self._patience = stop_when_abandoned + self._store.lease
        self._grace = grace
        self._shutdown = shutdown
        self._closing = Shutdown(shutdown.drain if shutdown is not None else drain or 0.0)
        self._running: dict[str, Run] = {}  # by the key of the log
        self._beginning: set[str] = set()  # those of them that the store has not written down yet
        self._kept: dict[str, Run] = {}  # those that have ended
        self._latest: dict[str, Run] = {}  # of each conversation, by its key for its owner
        self._owned: dict[str, dict[str, Run]] = {}  # of each owner, by their ids, the oldest first
        self._stack = AsyncExitStack()
        self._ended = Ended(max_kept, keep, clock)
        self._tasks: TaskGroup | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._is_closed:
            raise ClosedError("runs are entered once")
        if self._store is not None:
            await self._stack.enter_async_context(self._store.connect())
        self._tasks = await anyio.create_task_group().__aenter__()
        if self._store is not None:
            self._store.start(self._tasks, self._running, self._take_up)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        if error is not None:  # no orderly shutdown
            self._closing.end()
        shown: tuple[type[BaseException] | None, BaseException | None] = (None, None)
        try:
            if isinstance(error, anyio.get_cancelled_exc_class()):
                # The group waits for what is stopped: it keeps asyncio's own cancellation where that of a scope around
                # it follows. Other errors it would wrap.
                shown = (kind, error)
                self._stop_all()
            else:
                await self.aclose()
        finally:
            self._tasks.cancel_scope.cancel()
            try:
                await self._tasks.__aexit__(*shown, None)
            finally:
                async with self._stack as stack:  # each of them, whatever another raises
                    for run in self._running.values():
                        stack.push_async_callback(run.give_up)

    @property
    def running(self) -> int:
        """How many runs go on."""
        return len(self._running)

    async def start(self, stream: Startable, *, owner: str, conversation: str | None = None, note: Any = None) -> Run:
        """Return a run that drives `stream` in a task of its own, which enters it and leaves it.

        `conversation` is an id by which `latest` finds it, until another is started there; the client may choose it,
        because it is one of this owner's. `note` is kept with the run. The run has the stream's `run_id`, or one that
        cannot be guessed. The stream is not waited for: what goes wrong when it is entered is reported like all that
        comes later. If the run cannot be started, the stream is closed. Raises `TooManyRuns`; `Draining` when the runs
        are closing or the server is about to end, and ClosedError before they are entered; ValueError if this owner has
        a run of this id; TypeError for what cannot be entered.
        """
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            run = self._admit(stream, owner, conversation, note)
        except BaseException:
            await close(stream)
            raise
        if self._store is not None:
            key = log_key(owner, run.id)
            self._beginning.add(key)
            try:
                await self._store.begin(run, most=self._max_per_owner)
            except BaseException:
                del self._running[key]
                self._forget(run)
                await close(stream)
                raise
            finally:
                self._beginning.discard(key)
        assert self._tasks is not None
        self._tasks.start_soon(run.drive, name=f"run {run.id}")
        return run

    def _take_up(self, stream: Startable, lost: Run, prepare: Callable[[Run], object]) -> None:
        """Go on with a run of another process that is gone; raises what `start` does."""
        run = self._admit(stream, lost.owner, lost.conversation, lost.note, run_id=lost.id)
        prepare(run)
        assert self._tasks is not None
        self._tasks.start_soon(run.drive, name=f"run {run.id}")

    async def find(self, run_id: str, *, owner: str) -> Run:
        """Return a run that goes on or is kept. Raises `RunNotFound`, for the run of another owner as for none."""
        self._forget_old()
        key = log_key(owner, run_id)
        run = self._running.get(key) or self._kept.get(key)
        if run is None or key in self._beginning:
            if self._store is not None:
                return await self._store.find(run_id, owner=owner)
            raise RunNotFound(f"there is no run {run_id[:64]!r}")
        return run

    async def latest(self, conversation: str, *, owner: str) -> Run | None:
        """Return the last run of this owner's that was started in a conversation, while it goes on or is kept.

        None for the conversation of another owner, as for one that there is not.
        """
        self._forget_old()
        if self._store is not None:
            run_id = await self._store.latest(conversation, owner=owner)
            with suppress(RunNotFound):
                return None if run_id is None else await self.find(run_id, owner=owner)
            return None
        return self._latest.get(log_key(owner, conversation))

    async def list(self, owner: str, *, limit: int = 100) -> Sequence[Run]:
        """Return the last runs of an owner's that go on or are kept, the last that was started first.

        Their `conversation` and `note` are for a page that offers them.
        """
        self._forget_old()
        if self._store is None:
            return [*reversed(self._owned.get(owner, {}).values())][:limit]
        found = []
        for run_id in await self._store.list(owner, limit):
            with suppress(RunNotFound):
                found.append(await self.find(run_id, owner=owner))
        return found

    async def forget(self, run_id: str, *, owner: str) -> None:
        """Stop a run, and keep nothing of it any more. Raises what `find` and the run's `stop` do."""
        run = await self.find(run_id, owner=owner)
        await run.stop()
        self.let_go(run_id, owner=owner)
        if self._store is not None:
            await self._store.forget(run_id, owner=owner)

    def let_go(self, run_id: str, *, owner: str) -> None:
        """Keep a run of this process no more, if it has ended."""
        if (key := log_key(owner, run_id)) in self._kept:
            self._ended.discard(key)
            self._drop(key)

    async def aclose(self) -> None:
        """Start no other runs, let those that go on finish for as long as they may, stop them, and wait until what is
        behind them is closed. From any task.
        """
        self._is_closed = True
        await self._let_finish(list(self._running.values()))
        running = self._stop_all()
        with anyio.move_on_after(self._grace):
            for run in running:
                await run.stop()
        for run in running:  # where it still goes on
            run.cancel(leaving=True)
        for run in running:
            await run.stop()

    def _stop_all(self) -> Sequence[Run]:
        """Start no other runs, and have those that go on stop; return them."""
        self._is_closed = True
        running = list(self._running.values())
        for run in running:
            run.cancel()
        return running

    async def _let_finish(self, running: Sequence[Run]) -> None:
        """Wait until these have ended by themselves, or the drain is over."""
        shutdown = self._closing
        if self._shutdown is not None and self._shutdown.begun and not shutdown.over:
            shutdown = self._shutdown
        shutdown.begin()
        if shutdown.over:
            return
        async with anyio.create_task_group() as group:

            async def give_up() -> None:
                await shutdown.wait_over()
                group.cancel_scope.cancel()

            group.start_soon(give_up)
            for run in running:
                with suppress(Exception):  # it has been reported
                    await run.wait()
            group.cancel_scope.cancel()

    def _admit(
        self, stream: Startable, owner: str, conversation: str | None, note: Any, *, run_id: str | None = None
    ) -> Run:
        if self._is_closed or (self._shutdown is not None and self._shutdown.begun):
            raise Draining("the server is about to end, and starts no run any more")
        if self._tasks is None:
            raise ClosedError("runs are started inside `async with Runs() as runs:`")
        if not (hasattr(stream, "__aenter__") and hasattr(stream, "__aexit__")):
            raise TypeError(f"a run drives an asynchronous context manager, and {type(stream)!r} is none")
        self._forget_old()
        if len(self._running) >= self._max_running:
            raise TooManyRuns(f"{self._max_running} runs are going on, and no more are allowed at the same time")
        most = self._max_per_owner
        if most is not None and sum(not run.ended for run in self._owned.get(owner, {}).values()) >= most:
            raise TooManyRuns(f"{most} runs of this owner's are going on, and no more are allowed at the same time")
        of_stream = getattr(stream, "run_id", None)
        if run_id is not None and of_stream != run_id:
            raise ValueError(f"the stream goes on with another run: its run_id is {of_stream!r}, and not {run_id!r}")
        run_id = of_stream or "run_" + secrets.token_urlsafe(16)
        key = log_key(owner, run_id)
        if key in self._running or key in self._kept:
            raise ValueError(f"there is a run {run_id!r} already")
        run = Run(
            stream,
            run_id,
            owner,
            self.log,
            patience=self._patience,
            on_end=self._keep_ended,
            conversation=conversation,
            note=note,
        )
        self._running[key] = run
        self._owned.setdefault(owner, {})[run_id] = run
        if conversation is not None:
            self._latest[log_key(owner, conversation)] = run
        return run

    def _keep_ended(self, run: Run) -> None:
        key = log_key(run.owner, run.id)
        self._kept[key] = self._running.pop(key)
        self._ended.add(key)
        self._forget_old()

    def _forget_old(self) -> None:
        for key in self._ended.pop_old():
            self._drop(key)

    def _drop(self, key: str) -> None:
        self._forget(self._kept.pop(key))
        if isinstance(self.log, MemoryEventLog):
            self.log.forget(key)

    def _forget(self, run: Run) -> None:
        if run.conversation is not None and self._latest.get(log_key(run.owner, run.conversation)) is run:
            del self._latest[log_key(run.owner, run.conversation)]
        owned = self._owned[run.owner]
        del owned[run.id]
        if not owned:
            del self._owned[run.owner]
