"""One run, driven by a task of its own, whoever reads it.

The task enters the stream, writes each event into the log, and leaves the stream. Readers come and go (`attach`,
`detach`) and have no part in it; what ends the run is its own end, `stop`, or the closing of what holds it. To stop it,
the reading of the stream is cancelled and the stream is left as after a `break`, which closes what is behind it; what
it still has to say then, its `done` above all, goes into the log like the rest.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import TypeAlias

import anyio
import anyio.lowlevel
import structlog

from streamtools.errors import Code, DecisionRefused
from streamtools.events import Done, DoneReason, Error, UIEvent
from streamtools.result import Collector, TurnResult
from streamtools.runs.attachment import Attachment
from streamtools.runs.journal import Journal
from streamtools.runs.log import EventLog
from streamtools.runs.mailbox import Mailbox
from streamtools.tools.decisions import Decidable, Decision, Question
from streamtools.tools.failures import is_failure, loggable

log = structlog.get_logger(__name__)

Startable: TypeAlias = AbstractAsyncContextManager[AsyncIterable[UIEvent]]
"""What can be run: a `ToolStream`, a chat, a replay, or a function with `@asynccontextmanager` that yields one."""

_STRETCH = 256  # events of a stream that never waits, until others get their turn and a stop its chance
_CLOSING = 10.0  # seconds that a generator of events may take to close
_REFUSED = 10.0  # seconds that a stream which nobody enters may take to close
_REST = 10_000  # events that a stream which was left may still have to say


class Run(Decidable):
    """A stream that is driven to its end, with or without readers. `Runs.start` makes it.

    `id` is that of its `start` event, and `owner` who may find it.
    """

    def __init__(
        self,
        stream: Startable,
        run_id: str,
        owner: str,
        events: EventLog,
        *,
        patience: float | None,
        on_end: Callable[[Run], None],
    ) -> None:
        self.id = run_id
        self.owner = owner
        self.mailbox: Mailbox | None = None
        """Where the results of its tools come from clients, over whichever connection; each may bring them."""
        self._journal = Journal(events, owner, run_id)
        self._stream: Startable | None = stream
        self._events: AsyncIterable[UIEvent] | None = None  # what the stream gave when it was entered
        self._collector: Collector | None = Collector(())  # for a stream that has no result of its own
        self._result = TurnResult()
        self._fault: BaseException | None = None
        self._raised_at: TracebackType | None = None
        self._is_exhausted = False
        self._on_end = on_end
        self._over = anyio.Event()
        self._whole = anyio.CancelScope()
        self._reading = anyio.CancelScope()
        self._scope = self._whole  # that in which the task is, and by which it is stopped
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
        result = getattr(self._events, "result", None)
        return result if isinstance(result, TurnResult) else self._result

    @property
    def questions(self) -> list[Question]:
        """What the stream waits to be told, with `ask="now"`, in the order in which it was asked."""
        asking = self._asking
        return asking.questions if asking is not None else []

    def decide(self, call_id: str, decision: Decision) -> None:
        """Say what becomes of a call that waits for it; from any task of the event loop.

        Raises `DecisionRefused` if nothing waits for this.
        """
        asking = self._asking
        if asking is None:
            raise DecisionRefused(f"call {call_id!r} waits for no decision: there is nothing that asks")
        asking.decide(call_id, decision)

    @property
    def _asking(self) -> Decidable | None:
        events: object = self._events
        return events if isinstance(events, Decidable) else None

    def attach(self, after: int = 0) -> Attachment:
        """Return an iterator of the events behind `after`, a `seq` (0: from the first), then of those to come.

        If events behind it are kept no more, or the run never came so far, there is first one `warning(resync)` with
        the `seq` of the last that was dropped, and then all that is kept. Raises TypeError for what is no number.

        Readers see `done` before the stream is left, and so before what stands behind the `yield` of a context manager
        has run: `await run.wait()` before you read what it has kept.
        """
        attachment = Attachment(self._journal, after, self._lose_reader)
        self._readers.add(id(attachment))
        self._scope.deadline = math.inf
        return attachment

    async def stop(self) -> None:
        """End the run for all its readers with `done(cancelled)`, and wait until what is behind it is closed.

        From any task. A run that has ended stays as it is; one that has said its end already is not changed by it.
        """
        self.cancel()
        await self._over.wait()

    def cancel(self, *, leaving: bool = False) -> None:
        """Have the run stopped, without waiting for it; its `leaving` of the stream too, if that takes too long."""
        self._scope.cancel()
        if leaving:
            self._whole.cancel()

    async def wait(self) -> TurnResult:
        """Return what the run has come to, once it has ended. Raises what its stream raised, apart from events."""
        await self._over.wait()
        if self._fault is not None:
            raise self._fault.with_traceback(self._raised_at)  # which grows with each raising
        return self._result

    # Readers.

    def _lose_reader(self, attachment: Attachment) -> None:
        self._readers.discard(id(attachment))
        if not self._readers and threading.get_ident() == self._thread:  # one may be collected in any thread
            self._wait_for_readers()

    def _wait_for_readers(self) -> None:
        if self._patience is not None and not self._over.is_set():
            self._scope.deadline = anyio.current_time() + self._patience

    # The task.

    async def drive(self) -> None:
        """Enter the stream, write what it says into the log, and leave it."""
        assert self._stream is not None
        try:
            with self._whole:
                async with self._stream as events:
                    self._events = events
                    if isinstance(getattr(events, "result", None), TurnResult):
                        self._collector = None
                    self._reading.deadline, self._whole.deadline = self._whole.deadline, math.inf
                    self._scope = self._reading
                    with self._reading:
                        await self._read(events)
        except BaseException as error:
            if not is_failure(error):
                raise
            self._fault, self._raised_at = error, error.__traceback__
            log.warning("run_failed", run_id=self.id, **loggable(error))
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()

    async def give_up(self) -> None:
        """End a run whose task asyncio has cancelled before its first step, as it may at the end of a program."""
        try:
            await close_unread(self._stream)
        finally:
            await self._end()

    async def _read(self, events: AsyncIterable[UIEvent]) -> None:
        readers, patience = self._readers, self._patience
        write = self._journal.write if self._collector is None else self._write
        count = 0
        async for event in events:
            await write(event)
            if type(event) is Done:
                return
            count += 1
            if not count % _STRETCH:
                await anyio.lowlevel.checkpoint()
            if patience is not None and not readers and self._reading.deadline == math.inf:
                self._wait_for_readers()
        self._is_exhausted = True

    async def _read_rest(self, events: AsyncIterable[UIEvent]) -> None:
        """Take what a stream that was left has said meanwhile; it is not waited for."""
        with anyio.CancelScope() as scope:
            scope.cancel()
            count = 0
            with suppress(Exception):  # of what cannot be read once it was left
                async for event in events:
                    await self._write(event)
                    count += 1
                    if type(event) is Done or count == _REST:
                        break

    async def _end(self) -> None:
        """Let the run have its one `done`, and everybody know."""
        try:
            await self._say_end()
        finally:  # asyncio's own cancellation knows no shields
            self._journal.close()
            self._result = self.result
            self._stream = self._events = self._collector = None
            self._on_end(self)
            self._over.set()

    async def _say_end(self) -> None:
        is_stopped = self._scope.cancel_called
        if is_stopped and self._scope.deadline <= anyio.current_time():
            log.info("run_abandoned", run_id=self.id)
        if self._journal.done is None and self._events is not None:
            await self._read_rest(self._events)
        if self._journal.done is None:
            reason: DoneReason = "cancelled"
            if self._is_exhausted or (self._fault is not None and not is_stopped):
                ours = self._fault is not None  # and nothing that a provider has done
                told = "the run failed on the server" if ours else "the stream ended before it was complete"
                await self._write(Error(Code.STREAM_INTERRUPTED, told))
                reason = "failed"
            await self._write(Done(reason, None, None, []))
        if isinstance(self._events, AsyncGenerator):
            with anyio.move_on_after(_CLOSING), suppress(Exception):
                await self._events.aclose()

    async def _write(self, event: UIEvent) -> None:
        await self._journal.write(event)
        if self._collector is not None:
            self._collector.add((event,))


async def close_unread(stream: object) -> None:
    """Close a stream that nobody will enter."""
    close = getattr(stream, "aclose", None)
    if close is None:
        return
    with anyio.move_on_after(_REFUSED, shield=True):
        try:
            await close()
        except BaseException as error:
            if not is_failure(error):
                raise
            log.warning("stream_not_closed", **loggable(error))
