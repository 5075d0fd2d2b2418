"""One run: a task of its own reads a stream and writes its events into a log, which any number of readers read.

The run ends by itself, by `stop`, or when its `Runs` close. Its last events, `done` above all, are logged like the
others.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any

import anyio

from streamtools import observing
from streamtools.errors import Code, DecisionRefused
from streamtools.events import Done, DoneReason, Error, UIEvent
from streamtools.logs import Logger
from streamtools.serving.event_log import EventLog
from streamtools.serving.journal import Attachment, Journal
from streamtools.serving.mailbox import Mailbox
from streamtools.stream.collector import Collector
from streamtools.stream.driver import Driver, Startable
from streamtools.stream.reading import close, read_into
from streamtools.stream.result import TurnResult
from streamtools.tools.approvals import Answer, Approve, Decidable, Decision, Deny, Question, Suspension
from streamtools.tools.at_most_once import DRIVEN_RUN
from streamtools.tools.failures import is_failure

log = Logger(__name__)

_YIELD_EVERY_AFTER_STOP = 10_000  # events: a stopped stream is read only as far as it does not wait


class Run:
    """A stream that is read to its end, with or without readers. `Runs.start` makes it.

    With a `RedisStore` a run behaves alike in every process. Methods that need an answer from the process that drives
    the run are awaited, and raise `OwnerUnreachable` if no answer arrives within the store's `lease`.

    `id` is that of the `start` event; only `owner` finds the run. `conversation` and `note` are those of `Runs.start`:
    `Runs.latest` finds the run by its conversation, and the note is any value of the application.
    """

    def __init__(
        self,
        stream: Startable | None,
        run_id: str,
        owner: str,
        events: EventLog,
        *,
        stop_when_abandoned: float | None = None,
        on_end: Callable[[Run], None] = lambda run: None,
        conversation: str | None = None,
        note: Any = None,
    ) -> None:
        self.id = run_id
        self.owner = owner
        self.conversation = conversation
        self.note = note
        self.mailbox: Mailbox | None = None
        """Receives results for its tools from clients, over any connection."""
        self.journal = Journal(events, owner, run_id)
        """Writes the events. A Redis store replaces it before `drive`."""
        self.supersedes: bool = getattr(stream, "supersedes", False)
        """Whether steps may be superseded after readers have seen them."""
        self._driver = None if stream is None else Driver(stream)  # until the end
        self._collector = None if stream is None else Collector(())  # unless the stream has a result of its own
        self._result = TurnResult()
        self._suspended: tuple[Suspension, list[Any]] | None = None  # of an ended run, with its history
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self._on_end = on_end
        self._finished = anyio.Event()
        self._stop_when_abandoned = stop_when_abandoned
        self._readers: set[int] = set()
        self._thread = threading.get_ident()
        self._restart_abandoned_timer()

    def __repr__(self) -> str:
        return f"<Run {self.id} {'ended' if self.ended else 'running'}>"

    @property
    def ended(self) -> bool:
        """Whether the run has ended and its stream is closed.

        Readers see `done` earlier: `await run.wait()` before you use state that the stream's own code has set.
        """
        return self._finished.is_set()

    @property
    def result(self) -> TurnResult:
        """The result of the run until now; complete once it has ended."""
        if self._collector is not None:
            return self._collector.read()
        return result if isinstance(result := getattr(self._events, "result", None), TurnResult) else self._result

    @property
    def suspension(self) -> Suspension | None:
        """The calls that await a decision after the run has ended; None if there are none.

        It is stored with the run, and only its owner finds it. Resume the run with it after the client has decided.
        """
        if self._suspended is not None:
            return self._suspended[0]
        return getattr(self._events, "suspension", None) if isinstance(self._events, Decidable) else None

    @property
    def history(self) -> list[Any]:
        """The conversation with which to resume a chat that continues or is suspended; otherwise empty."""
        return list(getattr(self._events, "history", ()) if self._suspended is None else self._suspended[1])

    async def questions(self) -> list[Question]:
        """Return the open questions of a stream with `ask="now"`, in order."""
        return self._events.questions if isinstance(self._events, Decidable) else []

    async def decide(self, call_id: str, decision: Decision) -> None:
        """Decide about a call that waits for it. Returns when the decision counts.

        May be called from any task of the event loop. `decide`, `approve`, `deny` and `answer` raise `DecisionRefused`
        if the call does not wait for such a decision.
        """
        if not isinstance(self._events, Decidable):
            raise DecisionRefused(f"call {call_id[:64]!r} waits for no decision: there is nothing that asks")
        self._events.decide(call_id, decision)

    async def approve(self, call_id: str, *, digest: str | None = None) -> None:
        """Let a call run. With `digest`, only if it is the call that was shown."""
        await self.decide(call_id, Approve(digest))

    async def deny(self, call_id: str, reason: str = "") -> None:
        """End a call without running it. The model reads the reason."""
        await self.decide(call_id, Deny(reason))

    async def answer(self, call_id: str, result: Any = None, *, error: str | None = None) -> None:
        """Give the result of a call that was carried out elsewhere, or the `error` with which it failed."""
        await self.decide(call_id, Answer(result, error))

    @property
    def _events(self) -> object:
        """The result of entering the stream."""
        return self._driver and self._driver.events

    def attach(self, after: int = 0) -> Attachment:
        """Return an iterator of the events after the `seq` `after` (0: from the first), then of new ones.

        If events after it are no longer kept, or the run has not reached it, the iterator first yields one
        `warning(resync)` with the `seq` of the last dropped event, then all events that are kept. Raises TypeError if
        `after` is not an integer. Readers see `done` before the stream is closed: `await run.wait()` before you use
        state that its own code has set.
        """
        attachment = Attachment(self.journal, after, self._on_detach)
        self._readers.add(id(attachment))
        observing.count("readers")
        if after > 0:
            observing.count("resumes")
        if self._driver is not None:
            self._driver.scope.deadline = math.inf
        return attachment

    async def stop(self) -> None:
        """End the run with `done(cancelled)` for all of its readers, and wait until its stream is closed.

        May be called from any task. A run that has ended, or has announced its end, does not change.
        """
        self.cancel()
        await self._finished.wait()

    def cancel(self, *, leaving: bool = False) -> None:
        """Stop the run without waiting. With `leaving`, also cancel the closing of its stream."""
        if self._driver is not None:
            self._driver.cut(leaving=leaving)

    async def wait(self) -> TurnResult:
        """Return the result of the run after its end. Raises what its stream raised instead of reporting an event."""
        await self._finished.wait()
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)  # each `raise` extends the traceback of the exception
        return self._result

    def _on_detach(self, attachment: Attachment) -> None:
        self._readers.discard(id(attachment))
        if not self._readers and threading.get_ident() == self._thread:  # garbage may be collected in any thread
            self._restart_abandoned_timer()

    def _restart_abandoned_timer(self) -> None:
        if self._stop_when_abandoned is not None and self._driver is not None:
            self._driver.scope.deadline = anyio.current_time() + self._stop_when_abandoned

    def note_reader_elsewhere(self) -> None:
        """Record that another process reads the run, so that it does not count as abandoned."""
        if not self._readers:
            self._restart_abandoned_timer()

    # The task.

    async def drive(self) -> None:
        """Enter the stream, write its events into the log, and leave it."""
        assert self._driver is not None
        DRIVEN_RUN.set(self.journal.driven)
        try:
            await self._driver.drive(self)
        except BaseException as error:
            if not is_failure(error):
                raise
            self._error, self._traceback = error, error.__traceback__
            log.error("run_failed", error, run_id=self.id)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()

    async def end_without_driving(self) -> None:
        """End a run whose task asyncio cancelled before its first step, as at the end of a program."""
        try:
            await close(self._driver and self._driver.stream)
        finally:
            await self._end()

    async def begin(self) -> None:
        """Use the result of the stream if it has one. See `streamtools.stream.driver.Sink`."""
        if isinstance(getattr(self._events, "result", None), TurnResult):
            self._collector = None

    @property
    def take(self) -> Callable[[UIEvent], Coroutine[Any, Any, bool]]:
        """Write an event; end after `done`. Usually the journal does this alone. See `Sink`."""
        return self.journal.write if self._collector is None and self._stop_when_abandoned is None else self._write

    async def finish(self) -> None:
        """Do nothing: `drive` writes the end after it has left the stream. See `Sink`."""

    async def _write(self, event: UIEvent) -> bool:
        if self._collector is not None:
            self._collector.take((event,))
        is_last = await self.journal.write(event)
        if not self._readers and self._driver is not None and self._driver.scope.deadline == math.inf:
            self._restart_abandoned_timer()  # the last reader was collected in another thread
        return is_last

    async def _end(self) -> None:
        """Write the only `done`, and wake all tasks that wait for the end."""
        stored: TurnResult | None = None
        try:
            await self._write_end()
            stored = await self.journal.flush()
        finally:  # a cancellation by asyncio ignores shields
            self.journal.close()
            self._result = self.result if stored is None else stored
            if (suspension := self.suspension) is not None:
                self._suspended = suspension, self.history
            self._driver = self._collector = None
            self._on_end(self)
            self._finished.set()

    async def _write_end(self) -> None:
        driver = self._driver
        assert driver is not None
        if driver.is_cut and not driver.was_cut:
            log.info("run_abandoned", run_id=self.id)
        if self.journal.done is None and driver.events is not None:
            with anyio.CancelScope() as scope, suppress(Exception):  # an iterable may refuse to be read again
                scope.cancel()  # read only the events that are available
                await read_into(driver.events, self.take, yield_every=_YIELD_EVERY_AFTER_STOP)
        if self.journal.done is None:
            reason: DoneReason = "cancelled"
            if driver.is_exhausted or (self._error is not None and not driver.is_cut):
                is_ours = self._error is not None  # not an error of the provider
                message = "the run failed on the server" if is_ours else "the stream ended before it was complete"
                await self._write(Error(Code.STREAM_INTERRUPTED, message))
                reason = "failed"
            await self._write(Done(reason, None, None, []))
        if isinstance(driver.events, AsyncGenerator):
            await close(driver.events)
