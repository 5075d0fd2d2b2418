"""What one run writes into its log, and what those who read it have to know beside the log.

A log may fail, and the run goes on then: its tools are at work, its answer is wanted, and a run without readers is
nothing unusual. What could not be written is missing in the log, and is owned up to: by one `warning(resync)` before
the next event that can be written, or, where the log has not come back by the end, by what the readers in this process
are told beside it.
"""

from __future__ import annotations

import math

import anyio
import structlog
from msgspec.structs import replace

from streamtools.events import Done, Start, UIEvent
from streamtools.runs.log import EventLog, MemoryEventLog, log_key, resync
from streamtools.tools.failures import loggable

log = structlog.get_logger(__name__)

_PATIENCE = 10.0  # seconds that a log may take over one event; one that took longer is left alone for as long


class Journal:
    """The log of one run. `last` is the `seq` of the last event that the run has said, `logged` of those in the log."""

    def __init__(self, events: EventLog, owner: str, run_id: str) -> None:
        self.log = events
        self.key = log_key(owner, run_id)
        self.last = 0
        self.logged = 0
        self.done: Done | None = None
        self.begun = anyio.Event()
        """Is set once there is something to read."""
        self.waiting: set[anyio.CancelScope] = set()
        """In each of them, somebody waits for the log."""
        self._run_id = run_id
        self.is_sure = type(events) is MemoryEventLog
        """Whether the log neither fails nor waits."""
        self._is_closed = False
        self._missing = 0  # the seq of the last event that should be in the log and is not
        self._again = -math.inf  # when the log may be tried again

    async def write(self, event: UIEvent) -> None:
        """Take note of what the run says. The first is a `start` that names it, and each `seq` is one more."""
        if event.seq != self.last + 1 or not self.last:
            event = await self._adjust(event)
        self.last = event.seq
        if type(event) is Done:
            self.done = event
        if not self.is_sure:
            await self._try(event)
            return
        await self.log.append(self.key, event)
        if not self.logged:
            self.begun.set()
        self.logged = self.last

    def close(self) -> None:
        """Note that the run is over. Readers who wait for a `done` that could not be written wait no longer."""
        self.begun.set()
        if self._missing:
            for scope in self.waiting:
                scope.cancel()
        self._is_closed = True

    def rest(self, after: int) -> list[UIEvent]:
        """Return what a reader behind `after` is told that the log will never have: nothing, as a rule."""
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
