"""One run, driven by a task of its own, and its readers, which come and go without any effect on it.

The task writes each event into the log. The run ends by itself, by `stop`, or when its `Runs` close; its last events,
`done` above all, go into the log like the others.
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
from streamtools.stream.driver import Driver, Startable
from streamtools.stream.reading import close, read_into
from streamtools.stream.result import Collector, TurnResult
from streamtools.tools.at_most_once import DRIVEN_RUN
from streamtools.tools.decisions import Answer, Approve, Decidable, Decision, Deny, Question
from streamtools.tools.failures import is_failure
from streamtools.tools.suspension import Suspension

log = Logger(__name__)

_REST = 10_000  # events that are still read of a stream that was stopped


class Run:
    """A stream that is driven to its end, with or without readers. `Runs.start` makes it.

    Over a `RedisStore` it means the same in every process, and what needs an answer from the process that drives it is
    awaited; that raises `OwnerUnreachable` where none comes within the store's `lease`.

    `id` is that of its `start` event, and `owner` who may find it. `conversation` and `note` are what it was started
    with: `Runs.latest` finds it by the former, and the latter is whatever its application wants to find with it.
    """

    def __init__(
        self,
        stream: Startable | None,
        run_id: str,
        owner: str,
        events: EventLog,
        *,
        patience: float | None = None,
        on_end: Callable[[Run], None] = lambda run: None,
        conversation: str | None = None,
        note: Any = None,
    ) -> None:
        self.id = run_id
        self.owner = owner
        self.conversation = conversation
        self.note = note
        self._waiting: tuple[Suspension, list[Any]] | None = None  # what an ended run waits for, and its history
        self.mailbox: Mailbox | None = None
        """Takes results of its tools from clients, over any connection."""
        self.journal = Journal(events, owner, run_id)
        """What writes it; another is set before it is driven, and read."""
        self.supersedes: bool = getattr(stream, "supersedes", False)
        """Whether steps that have been shown may be superseded."""
        self._driver = None if stream is None else Driver(stream)  # until the run is over
        self._collector = None if stream is None else Collector(())  # for a stream that has no result of its own
        self._result = TurnResult()
        self._fault: BaseException | None = None
        self._raised_at: TracebackType | None = None
        self._on_end = on_end
        self._over = anyio.Event()
        self._patience = patience
        self._readers: set[int] = set()
        self._thread = threading.get_ident()
        self._wait_for_readers()

    def __repr__(self) -> str:
        return f"<Run {self.id} {'ended' if self.ended else 'goes on'}>"

    @property
    def ended(self) -> bool:
        """Whether the run has come to its end, and what is behind it is closed.

        Readers see `done` before this: `await run.wait()` before you read what the stream's own code has kept.
        """
        return self._over.is_set()

    @property
    def result(self) -> TurnResult:
        """What the run has come to so far; complete once it has ended."""
        if self._collector is not None:
            return self._collector.read()
        return result if isinstance(result := getattr(self._events, "result", None), TurnResult) else self._result

    @property
    def suspension(self) -> Suspension | None:
        """What the run waits for, once it has ended with calls that somebody has to decide about; None if nothing.

        It is kept with the run and found with it, by its owner alone: the way to resume what a client decides about.
        """
        if self._waiting is not None:
            return self._waiting[0]
        return getattr(self._events, "suspension", None) if isinstance(self._events, Decidable) else None

    @property
    def history(self) -> list[Any]:
        """The conversation to resume it with: that of a chat that goes on, or waits for somebody; else empty."""
        return list(getattr(self._events, "history", ()) if self._waiting is None else self._waiting[1])

    async def questions(self) -> list[Question]:
        """Return what the stream asks, with `ask="now"`, in that order."""
        return self._events.questions if isinstance(self._events, Decidable) else []

    async def decide(self, call_id: str, decision: Decision) -> None:
        """Say what becomes of a call that waits for it, and return when that counts; from any task of the event loop.

        Raises `DecisionRefused` if nothing waits for this, and so do `approve`, `deny` and `answer`.
        """
        if not isinstance(self._events, Decidable):
            raise DecisionRefused(f"call {call_id[:64]!r} waits for no decision: there is nothing that asks")
        self._events.decide(call_id, decision)

    async def approve(self, call_id: str, *, digest: str | None = None) -> None:
        """Let a call run that waits for it; with a `digest`, only if it is the one that was shown."""
        await self.decide(call_id, Approve(digest))

    async def deny(self, call_id: str, reason: str = "") -> None:
        """End a call that waits to be decided about; the model reads the reason."""
        await self.decide(call_id, Deny(reason))

    async def answer(self, call_id: str, result: Any = None, *, error: str | None = None) -> None:
        """Give the result of a call that was carried out elsewhere, or the `error` with which it failed there."""
        await self.decide(call_id, Answer(result, error))

    @property
    def _events(self) -> object:
        """What the stream gave when it was entered."""
        return self._driver and self._driver.events

    def attach(self, after: int = 0) -> Attachment:
        """Return an iterator of the events behind `after`, a `seq` (0: from the first), then of those to come.

        If events behind it are kept no more, or the run never came so far, there is first one `warning(resync)` with
        the `seq` of the last that was dropped, and then all that is kept. Raises TypeError for what is no number.
        Readers see `done` before the stream is left: `await run.wait()` before you read what its own code has kept.
        """
        attachment = Attachment(self.journal, after, self._lose_reader)
        self._readers.add(id(attachment))
        observing.count("readers")
        if after > 0:
            observing.count("resumes")
        if self._driver is not None:
            self._driver.scope.deadline = math.inf
        return attachment

    async def stop(self) -> None:
        """End the run for all its readers with `done(cancelled)`, and wait until what is behind it is closed.

        From any task. A run that has ended stays as it is; one that has said its end already is not changed by it.
        """
        self.cancel()
        await self._over.wait()

    def cancel(self, *, leaving: bool = False) -> None:
        """Have the run stopped, without waiting for it; its `leaving` of the stream too, if that takes too long."""
        if self._driver is not None:
            self._driver.cut(leaving=leaving)

    async def wait(self) -> TurnResult:
        """Return what the run has come to, once it has ended. Raises what its stream raised, apart from events."""
        await self._over.wait()
        if self._fault is not None:
            raise self._fault.with_traceback(self._raised_at)  # because each raising extends the traceback
        return self._result

    def _lose_reader(self, attachment: Attachment) -> None:
        self._readers.discard(id(attachment))
        if not self._readers and threading.get_ident() == self._thread:  # garbage may be collected in any thread
            self._wait_for_readers()

    def _wait_for_readers(self) -> None:
        if self._patience is not None and self._driver is not None:
            self._driver.scope.deadline = anyio.current_time() + self._patience

    # The task.

    def put_off(self) -> None:
        """Take note that the run is read elsewhere: it is not abandoned."""
        if not self._readers:
            self._wait_for_readers()

    async def drive(self) -> None:
        """Enter the stream, write its events into the log, and leave it."""
        assert self._driver is not None
        DRIVEN_RUN.set(self.journal.driven)
        try:
            await self._driver.drive(self)
        except BaseException as error:
            if not is_failure(error):
                raise
            self._fault, self._raised_at = error, error.__traceback__
            log.error("run_failed", error, run_id=self.id)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()

    async def give_up(self) -> None:
        """End a run whose task asyncio has cancelled before its first step, as it may at the end of a program."""
        try:
            await close(self._driver and self._driver.stream)
        finally:
            await self._end()

    async def begin(self) -> None:
        """See `Sink`."""
        if isinstance(getattr(self._events, "result", None), TurnResult):
            self._collector = None

    @property
    def take(self) -> Callable[[UIEvent], Coroutine[Any, Any, bool]]:
        """See `Sink`: write the event, and end behind `done`. As a rule, the journal does it alone."""
        return self.journal.write if self._collector is None and self._patience is None else self._write

    async def finish(self) -> None:
        """See `Sink`: the end is written when the stream has been left."""

    async def _write(self, event: UIEvent) -> bool:
        if self._collector is not None:
            self._collector.take((event,))
        is_last = await self.journal.write(event)
        if not self._readers and self._driver is not None and self._driver.scope.deadline == math.inf:
            self._wait_for_readers()  # the last reader was collected in another thread
        return is_last

    async def _end(self) -> None:
        """End the run with its one `done`, and wake all that wait."""
        stored: TurnResult | None = None
        try:
            await self._say_end()
            stored = await self.journal.settle()
        finally:  # a cancellation of asyncio's own ignores shields
            self.journal.close()
            self._result = self.result if stored is None else stored
            if (suspension := self.suspension) is not None:
                self._waiting = suspension, self.history
            self._driver = self._collector = None
            self._on_end(self)
            self._over.set()

    async def _say_end(self) -> None:
        driver = self._driver
        assert driver is not None
        if driver.is_cut and not driver.was_cut:
            log.info("run_abandoned", run_id=self.id)
        if self.journal.done is None and driver.events is not None:
            with anyio.CancelScope() as scope, suppress(Exception):  # of an iterable that cannot be read any more
                scope.cancel()  # only events that are there already are read
                await read_into(driver.events, self.take, yield_every=_REST)
        if self.journal.done is None:
            reason: DoneReason = "cancelled"
            if driver.is_exhausted or (self._fault is not None and not driver.is_cut):
                ours = self._fault is not None  # not a fault of the provider
                message = "the run failed on the server" if ours else "the stream ended before it was complete"
                await self._write(Error(Code.STREAM_INTERRUPTED, message))
                reason = "failed"
            await self._write(Done(reason, None, None, []))
        if isinstance(driver.events, AsyncGenerator):
            await close(driver.events)
