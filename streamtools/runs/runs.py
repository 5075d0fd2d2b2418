"""All runs of an app, in one task group, which lives as long as the app does."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel
import structlog
from anyio.abc import TaskGroup

from streamtools.errors import ClosedError, RunNotFound, TooManyRuns
from streamtools.runs.log import EventLog, MemoryEventLog, log_key
from streamtools.runs.run import Run, Startable, close_unread

log = structlog.get_logger(__name__)


class Runs:
    """Starts runs, and finds them again for their owners. Enter it where the app begins, leave it where the app ends.

    What runs say goes into `log`, in memory unless another is given. `max_running` run at the same time. One that has
    ended is kept for `keep` seconds, and for less if `max_kept` have ended after it. A run that nobody reads, from its
    start or since its last reader has left, goes on to its end, or is stopped after `stop_when_abandoned` seconds;
    whoever waits for its result is no reader. When all is closed, streams have `grace` seconds to be left, and what
    they do then is cancelled. Raises ValueError for bounds that are none.

    A fault in one run is told by its events and raised by its `wait()`, and touches nothing else.
    """

    def __init__(
        self,
        log: EventLog | None = None,
        *,
        max_running: int = 1_000,
        keep: float = 600.0,
        max_kept: int = 1_000,
        stop_when_abandoned: float | None = None,
        grace: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value, least in (
            ("max_running", max_running, 1),
            ("max_kept", max_kept, 0),
            ("keep", keep, 0),
            ("grace", grace, 0),
        ):
            if not (isinstance(value, int | float) and value >= least):
                raise ValueError(f"{name} is a number of at least {least}, not {value!r}")
        if not (stop_when_abandoned is None or stop_when_abandoned >= 0):
            raise ValueError(f"stop_when_abandoned is a number of seconds, or None, not {stop_when_abandoned!r}")
        self.log: EventLog = MemoryEventLog(max_age=None, max_ended=None) if log is None else log
        self._max_running = max_running
        self._keep = keep
        self._max_kept = max_kept
        self._patience = stop_when_abandoned
        self._grace = grace
        self._clock = clock
        self._running: dict[str, Run] = {}  # by the key of the log
        self._ended: dict[str, tuple[float, Run]] = {}  # and when, in this order
        self._tasks: TaskGroup | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None or self._is_closed:
            raise ClosedError("runs are entered once")
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        try:
            await self.aclose()
        finally:
            self._tasks.cancel_scope.cancel()
            try:
                await self._tasks.__aexit__(None, None, None)  # the group is not shown the error: it would wrap it
            finally:
                async with AsyncExitStack() as stack:  # each of them, whatever another raises
                    for run in self._running.values():
                        stack.push_async_callback(run.give_up)

    @property
    def running(self) -> int:
        """How many runs go on."""
        return len(self._running)

    async def start(self, stream: Startable, *, owner: str) -> Run:
        """Return a run that drives `stream` in a task of its own, which enters it and leaves it.

        The run has the stream's `run_id`, or one that cannot be guessed. The stream is not waited for: what goes wrong
        when it is entered is told like all that comes later. If the run cannot be started, the stream is closed.
        Raises `TooManyRuns`; ClosedError before the runs are entered, and when they are closing; ValueError if this
        owner has a run of this id; TypeError for what cannot be entered.
        """
        try:
            await anyio.lowlevel.checkpoint_if_cancelled()
            run = self._admit(stream, owner)
        except BaseException:
            await close_unread(stream)
            raise
        assert self._tasks is not None
        self._tasks.start_soon(run.drive, name=f"run {run.id}")
        return run

    async def find(self, run_id: str, *, owner: str) -> Run:
        """Return a run that goes on or is kept. Raises `RunNotFound`, for the run of another owner as for none."""
        self._forget_old()
        key = log_key(owner, run_id)
        if key in self._running:
            return self._running[key]
        if key in self._ended:
            return self._ended[key][1]
        raise RunNotFound(f"there is no run {run_id[:64]!r}")

    async def aclose(self) -> None:
        """Stop all runs, wait until what is behind them is closed, and start no others. From any task."""
        self._is_closed = True
        running = list(self._running.values())
        for run in running:
            run.cancel()
        with anyio.move_on_after(self._grace) as patience:
            for run in running:
                await run.stop()
        if patience.cancelled_caught:
            for run in running:
                run.cancel(leaving=True)
            for run in running:
                await run.stop()

    def _admit(self, stream: Startable, owner: str) -> Run:
        if self._tasks is None or self._is_closed:
            raise ClosedError("runs are started inside `async with Runs() as runs:`")
        if not (hasattr(stream, "__aenter__") and hasattr(stream, "__aexit__")):
            raise TypeError(f"a run drives an asynchronous context manager, and {type(stream)!r} is none")
        self._forget_old()
        if len(self._running) >= self._max_running:
            raise TooManyRuns(f"{self._max_running} runs are going on, and no more are allowed at the same time")
        run_id = getattr(stream, "run_id", None) or "run_" + secrets.token_urlsafe(16)
        key = log_key(owner, run_id)
        if key in self._running or key in self._ended:
            raise ValueError(f"there is a run {run_id!r} already")
        run = Run(stream, run_id, owner, self.log, patience=self._patience, on_end=self._keep_ended)
        self._running[key] = run
        return run

    def _keep_ended(self, run: Run) -> None:
        key = log_key(run.owner, run.id)
        del self._running[key]
        self._ended[key] = (self._clock(), run)
        self._forget_old()

    def _forget_old(self) -> None:
        """Forget runs that ended too long ago, or that are too many. Each is looked at once, when it goes."""
        while self._ended:
            key, (ended, _) = next(iter(self._ended.items()))
            if len(self._ended) <= self._max_kept and self._clock() - ended < self._keep:
                break
            del self._ended[key]
            if isinstance(self.log, MemoryEventLog):
                self.log.forget(key)
