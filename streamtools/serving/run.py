"""One run: a separate task reads a stream and writes its events into a log. Any number of readers read this log.

A run ends when its stream ends, on `stop`, when it has had no reader for too long, or when its `Runs` object is closed.
Its last events, including `done`, are written to the event log.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Protocol, cast

import anyio
import msgspec

from streamtools import observing
from streamtools.errors import AsyncOnly, Checked, Code, DecisionRefused, OwnerUnreachable, RunNotFound
from streamtools.events import Done, DoneReason, Error, Start, StepEnd, UIEvent, Warning
from streamtools.logs import HIDE, Logger
from streamtools.serving.event_log import MemoryEventLog, ReadableLog
from streamtools.serving.journal import Attachment, Journal
from streamtools.stream import stored_result
from streamtools.stream.collector import Collector
from streamtools.stream.lost_run import LostRun, end_lost_run
from streamtools.stream.reading import Driver, Startable, close
from streamtools.stream.result import TurnResult
from streamtools.stream.stored_result import StoredEnd
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools.approvals import (
    STOPPED,
    Decidable,
    Decision,
    Deny,
    Question,
    Suspension,
    check_same,
    not_waiting,
    read_decision,
)
from streamtools.tools.cancellation import is_failure
from streamtools.tools.ledger import RECOVERABLE_RUN, RUN_LEDGER, CallLedger

log = Logger(__name__)

NEXT = "~"
"""The suffix in the id of a continuation (a run that continues a waiting run), after the id of the waiting run."""

_STORE_TIMEOUT_S = 10.0  # maximum time to store the end of a run, or to read the events of a waiting run
FAILED = "the run failed on the server"
_STOPPED = Deny(STOPPED)
NO_CALL = ""  # in place of a call id, if a run is stopped after all its calls were decided
_MAX_EVENTS_AFTER_STOP = 10_000  # the maximum number of events that a stopped stream may still return


def chain_of(run_id: str) -> list[str]:
    """Return the ids of the waiting runs that a run continues, the first one first, and then the id of the run."""
    first = run_id.rstrip(NEXT)
    return [first + NEXT * count for count in range(len(run_id) - len(first) + 1)]


class Place(Protocol):
    """Stores the runs that wait for decisions, and the decisions: a `RedisStore` or `WaitingRuns`."""

    async def save(self, run: Run, done: Done) -> bool: ...

    async def decide(self, run: Run, call_id: str = "", decision: Decision | None = None) -> dict[str, Decision]: ...


class Run(AsyncOnly, Checked, Decidable):
    """A stream that is read to its end, with or without readers. `Runs.start` creates it.

    With a `RedisStore`, every process can use the run through the same methods. Async methods may call the process that
    drives the run. They raise `OwnerUnreachable` if that process does not respond within the store's `lease`, or if
    Redis does not answer. `stop` waits up to four times the `lease`.

    `id` is the run id in the `start` event. Only lookups with the same `owner` find the run. `conversation` and `note`
    are the arguments of `Runs.start`. `Runs.latest` finds runs by `conversation`. `note` is any application value.
    """

    _other_names = dict.fromkeys(TurnResult.__dataclass_fields__, "write `run.result.{0}`")

    def __init__(
        self,
        stream: Startable | None,
        run_id: str,
        owner: str,
        event_log: ReadableLog,
        *,
        stop_when_abandoned: float | None = None,
        on_end: Callable[[Run], Awaitable[None]] | None = None,
        conversation: str | None = None,
        note: Any = None,
        lost: LostRun | None = None,
        place: Place | None = None,
    ) -> None:
        self.id = run_id
        self.owner = owner
        self.conversation = conversation
        self.note = note
        self._journal = Journal(event_log, owner, run_id)
        """Writes the events. A Redis store replaces it before `_drive`."""
        if stream is None:  # the log has the events of the run
            self._journal.readable.set()
        self._supersedes: bool = getattr(stream, "_supersedes", False)
        """Whether the stream may replace steps that readers have already received."""
        self._vault = getattr(stream, "vault", None if lost is None else lost.vault)
        """The `Vault` of the stream, or None. Before a context manager makes its chat, the vault of the lost run."""
        self._driver = None if stream is None else Driver(stream)  # None after the run has ended
        self._collector = None if stream is None else Collector(())  # None if the stream provides a `result`
        self._final = StoredEnd(TurnResult())  # complete after the run has ended
        self.decisions: Mapping[str, Decision] = {}
        """Maps call ids to the decisions that `Runs.decide` and `decide` have received for this run.

        If the run was stopped after its last decision, the id `""` maps to a `Deny`.
        """
        self._lost = lost  # the lost run that this run continues, or the log with which a new continuation begins
        self._copied = 0 if lost is None or lost.restarts else lost.copied
        """The `seq` of the last event that was copied from the waiting run; 0 if there is none, or after a restart."""
        self._restarts = 0
        """How often the continuation of this run was started before; see `LostRun.restarts`."""
        self._is_cut = False
        """True if the run ends in this process, and another process may continue it.

        This is so if this process shuts down, or has lost its lease in the ledger. It is also so if the store refused
        to store the end of the run, such as the end of an abandoned continuation.
        """
        self._continued: Run | None = None
        """A `RemoteRun` of the same run, set if another process has taken the run over and not ended it yet."""
        self._is_abandoned = False
        """True if the run was stopped because it had no reader for `stop_when_abandoned` seconds."""
        self._is_stored = False
        """Whether other processes find the run."""
        self._outlives_process = False
        """Whether another process drives the run, or continues it when this process closes."""
        self._next_log: LostRun | None = None
        """For a chat with `resume=run`: the log of the continuation, which begins with the events of this run."""
        self._predecessor: Run | None = None
        """The run that this run continues, if `Runs.decide` has started this run."""
        self._reports_entry = False
        """Whether `Runs` waits until the stream is entered, and raises the exception if it cannot be entered."""
        self._settled = anyio.Event()  # set after the stream is entered, and after the end of the run
        self._is_refused = False
        """Whether the stream could not be entered, and `Runs` reports this. The run then counts as not started."""
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._on_end = on_end
        self._place = place
        self._ledger: CallLedger | None = None
        """For a chat with `resume=run`: the ledger of `Runs`."""
        self._withheld: Done | None = None  # `done`, while it must not be written; see `_withholds`
        self._ends_as: DoneReason | None = None
        """The reason that replaces the one of the withheld `done`. The run then waits for no decision."""
        self._is_stopped = False  # whether a caller has stopped the run
        self._finished = anyio.Event()
        self._task: anyio.TaskInfo | None = None  # the task that drives the run
        self._stop_when_abandoned = stop_when_abandoned
        self._readers: set[int] = set()  # the `id` of each attachment, so that it can be garbage-collected
        self._thread = threading.get_ident()  # the thread of the event loop

    def __repr__(self) -> str:
        return f"<Run {self.id} {'ended' if self.ended else 'running'}>"

    if not TYPE_CHECKING:  # hidden from type checkers, so that they report a run in `for` or `await`

        def __aiter__(self) -> Never:
            raise TypeError("write `async with run.attach() as events:`, or `await run.wait()`")

        __iter__ = __await__ = __aenter__ = __aiter__
        __aexit__ = None  # Python looks it up before it calls `__aenter__`; with None, a run is not startable

    @property
    def ended(self) -> bool:
        """Whether the run has ended and its stream is closed.

        Readers of a chat receive `done` before that. If the stream is a context manager of the application, they
        receive `done` after its code.
        """
        return self._finished.is_set()

    @property
    def result(self) -> TurnResult:
        """The current result of the run. It is complete once the run has ended."""
        if self._collector is not None:
            return self._collector.read()
        result = getattr(self._events, "result", None)
        if isinstance(result, TurnResult):
            return result
        return replace(self._final.result, reason="cancelled") if self._is_withdrawn else self._final.result

    @property
    def suspension(self) -> Suspension | None:
        """The calls that await a decision after the run has ended; None if there are none.

        The suspension is stored with the run, and only lookups with the run's `owner` find it. Use it to resume the run
        after the client has decided.
        """
        if self._events is not None and self.result.reason != "waiting":
            return None  # a run that was stopped waits for no decision
        return getattr(self._events, "suspension", self._final.suspension)

    @property
    def next_id(self) -> str:
        """The id of the run that continues this run after the calls of this run have been decided."""
        return self.id + NEXT

    @property
    def _undecided(self) -> list[Question]:
        """The questions of `suspension` that have no decision and have not expired."""
        if self._is_withdrawn:
            return []
        questions, now = () if self.suspension is None else self.suspension.questions, time.time()
        return [each for each in questions if not (each.call.id in self.decisions or each.has_expired(now))]

    @property
    def history(self) -> list[Any]:
        """The messages with which to resume the chat. After the end, only a run that waits for decisions has them."""
        return list(getattr(self._events, "history", self._final.history))

    def _load(self, data: bytes | None) -> bool:
        """Set the end of the run from its stored form. Returns False if `data` is None."""
        if data is not None:
            self._final = stored_result.load(data)
            self.decisions = self._final.decisions
        return data is not None

    def _dump(self) -> bytes:
        """Return the stored form of the end of the run, for `load`."""
        return stored_result.dump(self._current_end())

    def _current_end(self) -> StoredEnd:
        if self._ends_as is not None:
            return StoredEnd(replace(self.result, reason=self._ends_as), decisions=self.decisions)
        suspension = self.suspension
        return StoredEnd(self.result, suspension, [] if suspension is None else self.history, self.decisions)

    def _keep_for(self, keep: float) -> float:
        """Return for how many seconds the ended run is kept: until its last question expires, plus `keep` seconds."""
        suspension = self._predecessor.suspension if self._is_refused and self._predecessor else self.suspension
        return keep + (0.0 if suspension is None else suspension.seconds_left(time.time()))

    async def questions(self) -> list[Question]:
        """Return the questions that wait for a decision, in order: of a running run, or of one that has ended."""
        if self._continued is not None:
            return await self._continued.questions()
        if isinstance(self._events, Decidable):
            return await self._events.questions()
        if self.suspension is not None:
            await self._sync_decisions()
        return self._undecided

    async def _sync_decisions(self, call_id: str = "", decision: Decision | None = None) -> None:
        """Store a decision about a call of the ended run, if there is one. Then read all decisions.

        Another process may have received some of them. Raises `RunNotFound` if the run is not stored any more.
        """
        if self._place is not None:
            self.decisions = await self._place.decide(self, call_id, decision)
        elif decision is not None:
            self.decisions = {**self.decisions, call_id: decision}

    async def decide(self, call_id: str, decision: Decision | bool) -> None:
        """Decide about a call that waits for a decision. Returns once the decision is in effect.

        True approves the call, and False denies it. The same decision, made again, has no effect, even after the end of
        the run. May be called from any task of the event loop. `decide`, `approve`, `deny` and `answer` raise
        `DecisionRefused` if the call does not wait for this kind of decision, or already has another decision. `decide`
        raises ValueError if `decision` is neither a decision nor a bool.
        """
        decision = read_decision(call_id, decision)
        if self._driver is not None:
            if self._lost is not None and self._events is None:
                raise OwnerUnreachable("The run is being taken over. Repeat the decision.")
            await self._journal.check_lease()
        if self._continued is not None:
            await self._continued.decide(call_id, decision)
        elif isinstance(self._events, Decidable):
            self._events.decide(call_id, decision)
            await self._journal.record_decision(call_id, decision)
            self.decisions = {**self.decisions, call_id: decision}
        elif call_id in self.decisions:
            check_same(call_id, self.decisions[call_id], decision)
        elif self._undecided:
            raise DecisionRefused("The run has ended: write `await runs.decide(run.id, call_id, decision, owner=…)`.")
        else:
            raise not_waiting(call_id, ())

    @property
    def _events(self) -> object:
        """The object that the stream's `__aenter__` returned. None before that, and after the run has ended."""
        return self._driver and self._driver.events

    def attach(self, after: int = 0) -> Attachment:
        """Return an iterator over the stored events with `seq` above `after`, then over new events.

        If events after `after` were dropped, or `after` is too high, the first event is `warning(resync)`. It has the
        `seq` of the last dropped event, or 0 if no event was dropped. All stored events follow. Raises TypeError if
        `after` is not an integer. Await `run.wait()` before you use state that the stream sets when it is closed.
        """
        if self._copied and self._copied < after <= self._copied + 2:
            after = self._copied  # the reader has read the end of the waiting run; this log does not contain that end
        attachment = Attachment(self._journal, after, self._on_detach, self._current_done)
        self._readers.add(id(attachment))
        observing.report("readers")
        if after > 0:
            observing.report("resumes")
        if self._driver is not None:
            self._driver.scope.deadline = math.inf
        return attachment

    async def _copied_until(self) -> int:
        """Return the `seq` of the last event that was copied from the waiting run, even by an earlier process."""
        return self._copied if self._lost is None else self._lost.copied

    async def _log_for_next(self) -> LostRun:
        """Return the log of the run that continues this one. It begins with the events before the last `step-end`.

        Raises the exceptions of the log, and TimeoutError.
        """
        events, length = list[UIEvent](), 0
        with anyio.fail_after(_STORE_TIMEOUT_S):
            async with self.attach() as attachment:
                async for event in attachment:
                    if type(event) is StepEnd:  # the last one is left out: the next run ends this step
                        length = len(events)
                    if type(event) is Start:
                        event = msgspec.structs.replace(event, run_id=self.next_id)
                    if not (type(event) is Warning and event.code == Code.RESYNC):
                        events.append(event)
        copied = events[length - 1].seq if length else 0
        lost = LostRun(self.next_id, self.owner, self.conversation, self.note, 0, events[:length], copied=copied)
        return replace(lost, vault=self._vault, restarts=self._restarts)

    async def stop(self) -> None:
        """End the run with `done(cancelled)` for all of its readers, and wait until its stream is closed.

        If the run has ended and waits for decisions, each open question is denied, and no run continues it. Otherwise,
        this has no effect on a run that has ended or has already sent `done`. May be called from any task.
        Raises RuntimeError in the context manager of the run, whose code is part of the run.
        """
        self._cancel(by_caller=True)
        await self._wait_finished()
        if self._continued is not None:
            await self._continued.stop()
        await self._withdraw()

    async def _withdraw(self) -> None:
        """Store that a waiting run was stopped. A continuation that has already started is not affected."""
        with suppress(RunNotFound):
            if self.suspension is not None:
                await self._sync_decisions()
                for call_id in [question.call.id for question in self._undecided] or [NO_CALL]:
                    await self._sync_decisions(call_id, _STOPPED)

    @property
    def _is_withdrawn(self) -> bool:
        """Whether the run was stopped while it waited for decisions or for its continuation."""
        return _STOPPED in self.decisions.values()

    async def _current_done(self, done: Done) -> Done:
        """Return the `done` of a run, with the reason `cancelled` if the run was stopped while it waited."""
        if done.reason != "waiting":
            return done
        with suppress(Exception), anyio.move_on_after(_STORE_TIMEOUT_S):  # without the store, the run still waits
            await self._sync_decisions()
        return msgspec.structs.replace(done, reason="cancelled", client=[]) if self._is_withdrawn else done

    def _cancel(self, *, cancel_cleanup: bool = False, by_caller: bool = False) -> None:
        """Stop the run without waiting for its end. With `cancel_cleanup`, also cancel the closing of its stream."""
        self._is_stopped |= by_caller
        if self._driver is not None:
            self._driver.cancel(cancel_cleanup=cancel_cleanup)

    def _cut(self) -> None:
        """Stop the run here, so that another process may continue it. A run that was stopped before stays stopped."""
        if self._driver is not None and not (self._has_done or self._driver.is_cancelled):
            self._is_cut = True
        self._cancel()

    @property
    def _has_done(self) -> bool:
        """Whether the run has its `done` event, even if `done` is not written yet."""
        return (self._withheld or self._journal.done) is not None

    async def wait(self) -> TurnResult:
        """Wait for the end of the run, and return its result. Raises the exception that the stream raised, if any.

        Also raises RuntimeError in the context manager of the run, whose code is part of the run.
        """
        await self._wait_finished()
        if self._continued is not None:
            return await self._continued.wait()
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)  # each `raise` extends the traceback of the exception
        return self.result

    async def _wait_entered(self) -> None:
        """If `Runs` reports the entry of the stream, wait for it. Raises the exception of a stream that refuses it."""
        if self._reports_entry:
            try:
                await self._settled.wait()
            except BaseException:
                self._reports_entry = False  # no caller gets the exception, so the run reports it
                raise
            if self._is_refused:
                await self.wait()

    async def _wait_finished(self) -> None:
        if self._task == anyio.get_current_task() and not self.ended:
            raise RuntimeError("The context manager of a run cannot wait for the end of this run. Use another task.")
        await self._finished.wait()

    def _on_detach(self, attachment: Attachment) -> None:
        self._readers.discard(id(attachment))
        # Garbage collection may call this method in another thread, where the timer must not be touched.
        if not self._readers and threading.get_ident() == self._thread:
            self._restart_abandoned_timer()

    def _restart_abandoned_timer(self) -> None:
        if self._stop_when_abandoned is not None and self._driver is not None:
            self._driver.scope.deadline = anyio.current_time() + self._stop_when_abandoned

    def _record_remote_reader(self) -> None:
        """Record that another process reads the run. So the run is not abandoned."""
        if not self._readers:
            self._restart_abandoned_timer()

    # The methods that the task of the run calls.

    async def _drive(self, ledger: CallLedger | None) -> None:
        """Enter the stream, write its events into the log, and leave the stream. An exception is stored for `wait`.

        The calls of the stream are recorded in the `ledger`.
        """
        assert self._driver is not None
        self._task = anyio.get_current_task()
        RECOVERABLE_RUN.set(self._journal.driven)
        # A chat that continues a run already has its id. `_checked` compares them.
        RUN_LEDGER.set((self.id if self._lost is None else "", ledger))
        try:
            if self._lost is not None:
                await self._journal.copy(event for event in self._lost.events if event.seq <= self._lost.copied)
                self._journal.last += self._lost.skip
            await self._driver.drive(self._take, begin=self._begin)
            done = self._withheld
            if self._driver.is_cut_off and done is not None and done.reason != "cancelled":
                self._ends_as = "failed"
        except BaseException as error:
            if not is_failure(error):
                self._cut()
                raise
            self._error, self._traceback = error, error.__traceback__
            self._ends_as = None if self._withheld is None else "failed"
            if self._reports_entry and self._events is None:
                self._is_refused, self._place = True, None  # no end is stored
            else:
                log.error("run_failed", error, run_id=self.id)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()

    async def _end_without_driving(self) -> None:
        """End a run whose task was cancelled by asyncio before the task started, such as at the end of a program."""
        self._cut()
        try:
            await close(self._driver and self._driver.stream)
        finally:
            await self._end()

    async def _begin(self) -> None:
        """Prepare for the events of the stream."""
        self._settled.set()
        self._predecessor = None
        if not self._readers:  # before this, `Runs.start` may not have returned
            self._restart_abandoned_timer()
        events = self._events
        if isinstance(getattr(events, "result", None), TurnResult):
            self._collector = None
        self._vault = getattr(events, "vault", self._vault)
        if (vault := self._vault) is not None:  # for the exception of the stream
            HIDE.set(lambda text: vault.replace(text, from_model=True))
        self._journal.begin()
        # A log that is not in memory may have readers in other processes, which this process does not know.
        if isinstance(self._journal.event_log, MemoryEventLog) and isinstance(events, ToolStream):
            events._run.pace = self._journal.pace  # from the next source on
        if getattr(type(events), "__anext__", None) is ToolStream.__anext__:
            # Without this, each delta would wake the task of the run: 7 % more instructions with one reader. A subclass
            # of ToolStream may override `__anext__` to change events, so its events are read by iteration.
            cast("ToolStream", events)._forward(self._write)

    async def _take(self, event: UIEvent, /) -> bool:
        """Write an event that was read by iteration. Returns whether it is `done`."""
        if self._collector is not None:
            self._collector.take((event,))
        is_last = self._withholds(event) or self._journal.write(event)
        self._check_readers()
        return is_last

    def _write(self, event: UIEvent) -> None:
        """Write an event that the stream forwards."""
        if not (type(event) is Done and self._withholds(event)):
            self._journal.write(event)
        self._check_readers()

    def _check_readers(self) -> None:
        if not self._readers and self._driver is not None and self._driver.scope.deadline == math.inf:
            # The garbage collector detached the last reader in another thread, so the timer starts here.
            self._restart_abandoned_timer()

    async def _end(self) -> None:
        """Write `done` if the stream has not sent it, and wake all waiting tasks."""
        stored: StoredEnd | None = None
        try:
            await self._write_end()
            if self._withheld is not None:
                await self._write_withheld(self._withheld)
            stored = await self._journal.flush()
        finally:  # asyncio's own cancellation ignores shields
            self._journal.readable.set()
            end = stored or self._current_end()
            self._final, self.decisions = end, end.decisions
            self._driver = self._collector = None
            try:
                if self._on_end is not None:
                    await self._on_end(self)
            finally:
                self._finished.set()
                self._settled.set()

    def _withholds(self, event: UIEvent) -> bool:
        """Withhold `done`, if something comes before it. Returns whether it was withheld.

        This is the code of the application's context manager, which may store the conversation, and the storing of a
        run that waits or that continues another run. So a crash can lose neither after a reader has received `done`.
        """
        if type(event) is Done and self._withheld is None:
            has_code = self._driver is not None and self._driver.stream is not self._events
            self._withheld = event if has_code or self._must_be_stored(event) else None
        return event is self._withheld

    def _must_be_stored(self, done: Done) -> bool:
        return self._place is not None and (done.reason == "waiting" or self.id.endswith(NEXT))

    async def _write_withheld(self, done: Done) -> None:
        """Write `done` after the end is stored. If it cannot be stored, or the stream has failed, write an error."""
        if not self._journal.last:
            self._journal.write(Start(self.id))
        if self._ends_as == "failed" and done.reason != "failed":
            done = await self._fail(done, FAILED)
        elif self._is_stopped and done.reason == "waiting":
            self._ends_as, done = "cancelled", msgspec.structs.replace(done, client=[])
        done = msgspec.structs.replace(done, seq=self._journal.last + 1, reason=self._ends_as or done.reason)
        if self._place is not None and self._must_be_stored(done):
            try:
                with anyio.fail_after(_STORE_TIMEOUT_S):
                    self._is_stored = await self._place.save(self, done)
                self._is_cut = not self._is_stored
            except Exception as error:
                log.error("run_not_stored", error, run_id=self.id)
                if done.reason == "waiting":
                    done = await self._fail(done, "the question about a call could not be stored")
        self._journal.write(done)

    async def _fail(self, done: Done, message: str) -> Done:
        """Write an error. Returns the `done` of the failed run."""
        self._ends_as = "failed"
        await self._take(Error(Code.STREAM_INTERRUPTED, message))
        return msgspec.structs.replace(done, reason="failed", seq=0, client=[])

    async def _write_end(self) -> None:
        """Write the events that a stopped stream still has. Add a missing `done`, after an error if the run failed."""
        driver = self._driver
        assert driver is not None
        self._is_abandoned = driver.is_cancelled and not driver.cancel_requested
        if self._is_abandoned:
            log.info("run_abandoned", run_id=self.id)
        if not self._has_done and driver.events is not None:
            with anyio.CancelScope() as scope, suppress(Exception):  # an iterable may refuse to be read again
                scope.cancel()  # read only the events that are available
                take, count = self._take, 0
                async for event in driver.events:
                    count += 1
                    if await take(event) or count == _MAX_EVENTS_AFTER_STOP:
                        break
        failed_here = self._error is not None
        message = FAILED if failed_here else "the stream ended before it was complete"
        if not self._has_done and (lost := self._lost) is not None and self._journal.last == lost.last + lost.skip:
            # The stream could not be entered, or it has no event.
            fault = None if driver.is_cancelled else message
            events, result = end_lost_run(self.id, lost.events, lost.recorded or None, fault)
            self._collector, self._final = None, self._final._replace(result=result)
            for event in events:
                await self._take(event)
        if not self._has_done:
            reason: DoneReason = "cancelled"
            if driver.is_exhausted or (failed_here and not driver.is_cancelled):
                await self._take(Error(Code.STREAM_INTERRUPTED, message))
                reason = "failed"
            await self._take(Done(reason, None, None, []))
        if isinstance(driver.events, AsyncGenerator):
            await close(driver.events)
