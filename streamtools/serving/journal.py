"""Writes the events of one run into the event log (`Journal`), and reads them from it (`Attachment`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Never, Self, cast

import anyio
import anyio.lowlevel
from msgspec.structs import replace

from streamtools import observing
from streamtools.errors import AsyncOnly, check_kind
from streamtools.events import Done, Start, UIEvent, explain_attribute
from streamtools.logs import Logger
from streamtools.serving.event_log import MemoryEventLog, MemoryReader, ReadableLog, log_key
from streamtools.sources.read_pace import ReadPace
from streamtools.stream.reading import YIELD_EVERY, close
from streamtools.stream.stored_result import StoredEnd
from streamtools.stream.typed_items import TypedItems
from streamtools.tools.approvals import Decision
from streamtools.tools.ledger import RecoverableRun

log = Logger(__name__)


class Journal:
    """Writes the events of one run into its log, and holds the state that its attachments (readers) share."""

    def __init__(self, event_log: ReadableLog, owner: str, run_id: str) -> None:
        self.event_log = event_log
        self.key = log_key(owner, run_id)
        self.last = 0  # the seq of the last event of the run
        self.done: Done | None = None
        self.readable = anyio.Event()
        """Set when the log has an event of the run and can be read, or when the run has ended."""
        self.driven: RecoverableRun | None = None
        """The state that `tools/ledger.py` needs to run each call of the run at most once.

        None if no other process may take the run over.
        """
        self.pace = ReadPace()
        """The `max_rate` of the attachments, at which the provider's response may be read."""
        self._run_id = run_id

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken the run over."""
        return False

    def write(self, event: UIEvent) -> bool:
        """Write an event into the log. Returns whether the event is `done`.

        The written event has the next `seq` of the run. A run starts with a `start` that holds the id of the run. If
        the first event has another type, a `start` is written before it.
        """
        for numbered in self._number(event):
            self._append(numbered)
        return type(event) is Done

    async def copy(self, earlier: Iterable[UIEvent]) -> None:
        """Write the events of the waiting run that this run continues, with their `seq`."""
        for event in earlier:
            if event.seq > self.last:
                self.last = event.seq - 1
                self.write(event)

    def begin(self) -> None:
        """Called when the stream of the run is entered."""

    async def check_lease(self) -> None:
        """Raise `OwnerUnreachable` if another process may drive the run."""

    async def record_decision(self, call_id: str, decision: Decision) -> None:
        """Store a decision about a call, if another process may take the run over.

        Raises `OwnerUnreachable` if another process has already taken the run over.
        """

    async def flush(self) -> StoredEnd | None:
        """Wait until the log has all events. A log in memory has them immediately.

        A subclass for a shared log returns the end of the run if another process has ended it.
        """
        return None

    def _number(self, event: UIEvent) -> Sequence[UIEvent]:
        """Return the events to write for `event`: the event, or a `start` and the event. Each gets its `seq`."""
        events: tuple[UIEvent, ...]
        if self.last:
            events = (event if event.seq == self.last + 1 else replace(event, seq=self.last + 1),)
        elif isinstance(event, Start):
            events = (replace(event, run_id=self._run_id, seq=1),)
        else:
            events = (Start(self._run_id, seq=1), replace(event, seq=2))
        last = events[-1]
        self.last = last.seq
        if type(last) is Done:
            self.done = last
        return events

    def _append(self, event: UIEvent) -> None:
        cast("MemoryEventLog", self.event_log).add(self.key, event)
        self.readable.set()


class Attachment(AsyncOnly, TypedItems):
    """An asynchronous iterator over the events of a run, up to `done`. As a context manager, it detaches at the end.

    A reader does not affect the run: it may stop reading, raise an exception, read slowly or be garbage-collected. If a
    read is cancelled, no event is lost: the next read returns the same event. Reading raises the exceptions of the log,
    and `RunNotFound` for a run that is no longer kept. `items` yields the items of a typed answer.
    """

    def __init__(
        self, journal: Journal, after: int, leave: Callable[[Attachment], None], show: Callable[[Done], Awaitable[Done]]
    ) -> None:
        check_kind("after", after, int)
        self.position = after
        """The `seq` of the last event that was read. `run.attach(position)` reads the events after it."""
        self._pace = journal.pace
        self._pace.set_rate(id(self), None)
        self._journal, self._leave = journal, leave
        self._show = show  # returns the `done` to show
        self._waiting: set[anyio.CancelScope] = set()  # the scopes of the reads that wait
        self._events: AsyncIterator[UIEvent] | None = None
        self._memory: MemoryReader | None = None  # the same as `_events` if the log is in memory
        self._reads = 0  # the number of events that were requested
        self._detached = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        explain_attribute(error)
        await self.detach()

    def __aiter__(self) -> Self:
        if self._detached and self._reads:
            log.warning("events_already_read", advice="keep the events in a list, or attach again, to loop again")
        return self

    if not TYPE_CHECKING:  # if a type checker saw this method, it would not report an `await`

        def __await__(self) -> Never:
            raise TypeError("write `async with run.attach() as events:`, without `await`")

    async def __anext__(self) -> UIEvent:
        self._reads += 1
        if not self._reads % YIELD_EVERY:
            await anyio.lowlevel.checkpoint()
        try:
            event = await (self._next() if self._memory is None else anext(self._memory))
        except StopAsyncIteration:  # detached, run forgotten before `done`, or no event after `position`
            await self.detach()
            raise
        if type(event) is Done:
            await self._close_events()  # if the next line is cancelled, the next read starts before `done`
            event = await self._show(event)
            await self.detach()
        self.position = event.seq
        return event

    def _take_ready(self) -> Sequence[UIEvent]:
        """Return the next events that are available without waiting. `done` is never among them.

        Returns no events before the first `anext`, or if the log is not in memory.
        """
        events = () if self._memory is None else self._memory.take_ready()
        if events:
            self.position = events[-1].seq
        return events

    async def detach(self) -> None:
        """Stop reading. Reads that wait in other tasks end. The run continues."""
        self._detach()
        if not self._waiting:
            await self._close_events()
        for scope in self._waiting:  # a cancelled read closes the iterator of the log
            scope.cancel()

    aclose = detach

    def __del__(self) -> None:
        if not getattr(self, "_detached", True):
            self._detach()

    def _detach(self) -> None:
        if not self._detached:
            self._detached = True
            self._pace.remove(id(self))
            observing.report("readers", -1)
            self._leave(self)

    async def _next(self) -> UIEvent:
        """Return the next event of a log. If this is cancelled, the next read starts from the same position."""
        journal = self._journal
        while not self._detached:
            with anyio.CancelScope() as scope:
                self._waiting.add(scope)
                try:
                    if journal.readable.is_set():
                        return await self._read()
                    await journal.readable.wait()
                finally:
                    self._waiting.discard(scope)
        raise StopAsyncIteration

    async def _read(self) -> UIEvent:
        journal = self._journal
        if self._events is None:
            self._events = journal.event_log.read(journal.key, self.position)
            self._memory = self._events if isinstance(self._events, MemoryReader) else None
        try:
            return await anext(self._events)
        except (Exception, anyio.get_cancelled_exc_class()):
            await self._close_events()
            raise

    async def _close_events(self) -> None:
        events, self._events, self._memory = self._events, None, None
        await close(events, log_event="log_not_closed")
