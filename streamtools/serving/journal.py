"""Writes one run into its event log, whatever becomes of the log.

If the log fails, the run goes on: its tools are running, and a run without readers is nothing unusual. Events that
could not be written are missing in the log, which one `warning(resync)` before the next event says; if the log does
not recover before the end, the readers in this process get that warning and `done` from here.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Sequence

import anyio
from msgspec.structs import replace

from streamtools.events import Done, Start, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.serving.event_log import EventLog, MemoryEventLog, log_key, resync
from streamtools.stream.result import TurnResult
from streamtools.tools.ledger import Driven

log = Logger(__name__)

_PATIENCE = 10.0  # seconds that a log may take over one event; one that took longer is left alone for as long


class Journal:
    """Writes one run into its log, and holds what its readers need beside the log."""

    def __init__(self, events: EventLog, owner: str, run_id: str) -> None:
        self.log = events
        self.key = log_key(owner, run_id)
        self.last = 0  # the seq of the last event of the run
        self.logged = 0  # and of the last in the log
        self.done: Done | None = None
        self.begun = anyio.Event()  # there is something to read
        self.waiting: set[anyio.CancelScope] = set()  # the scopes of reads that wait for the log
        self.driven: Driven | None = None  # the run as one that another process may take over
        self.is_sure = type(events) is MemoryEventLog  # the log neither fails nor waits
        self._run_id = run_id
        self._is_closed = False
        self._missing = 0  # the seq of the last event that should be in the log and is not
        self._again = -math.inf  # when the log may be tried again

    async def write(self, event: UIEvent) -> bool:
        """Take note of what the run says, and return whether it is its end.

        The first is a `start` that names it, and each `seq` is one more.
        """
        if event.seq != self.last + 1 or not self.last:
            event = await self._adjust(event)
        self.last = event.seq
        if type(event) is Done:
            self.done = event
        if self.is_sure:
            await self.log.append(self.key, event)
            if not self.logged:
                self.begun.set()
            self.logged = self.last
        else:
            await self._try(event)
        return type(event) is Done

    def write_all(self, events: Sequence[UIEvent]) -> Awaitable[None] | None:
        """Write events of a `ToolStream` into a log that is sure: at once, if they are numbered as ours."""
        if events[0].seq != self.last + 1 or not isinstance(self.log, MemoryEventLog) or type(events[-1]) is Done:
            return self._write_each(events)
        self.log.extend(self.key, events)
        self.last = self.logged = events[-1].seq
        return None

    async def _write_each(self, events: Sequence[UIEvent]) -> None:
        for event in events:
            await self.write(event)

    async def look(self) -> tuple[int, bool]:
        """Return the `seq` of the last event that a reader gets, and whether it is `done`."""
        if self.done is not None and (self._is_closed or self.logged == self.done.seq):
            return self.done.seq, True
        return self.logged, False

    async def settle(self) -> TurnResult | None:
        """Wait until all is in the log; return what the run has come to, where another process has ended it."""
        return None

    def close(self) -> None:
        """Note that the run is over. Readers who wait for a `done` that could not be written wait no longer."""
        self.begun.set()
        if self._missing:
            for scope in self.waiting:
                scope.cancel()
        self._is_closed = True

    def rest(self, after: int) -> list[UIEvent]:
        """Return what a reader behind `after` gets that the log will never have: nothing, as a rule."""
        if self.done is None or not (self._is_closed and self._missing and self.logged <= after < self.done.seq):
            return []
        is_gap = max(after, self.logged) < self.done.seq - 1
        return [*([resync(self.done.seq - 1)] if is_gap else []), self.done]

    async def _adjust(self, event: UIEvent) -> UIEvent:
        if not self.last:
            if isinstance(event, Start):
                return replace(event, run_id=self._run_id, seq=1)
            await self.write(Start(self._run_id, seq=1))
        return replace(event, seq=self.last + 1)

    async def _try(self, event: UIEvent) -> None:
        if anyio.current_time() < self._again and type(event) is not Done:
            self._missing = event.seq
            return
        try:
            with anyio.fail_after(_PATIENCE, shield=True):  # half a write would be read as a whole one, or as none
                if self._missing:
                    await self.log.append(self.key, resync(self._missing))
                await self.log.append(self.key, event)
        except Exception as error:
            if not self._missing:
                log.warning("events_not_logged", run_id=self._run_id, **loggable(error))
            self._missing = event.seq
            if isinstance(error, TimeoutError):
                self._again = anyio.current_time() + _PATIENCE
        else:
            self._missing = 0
            self.logged = event.seq
            self.begun.set()
