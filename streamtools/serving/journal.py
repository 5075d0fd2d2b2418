"""Writing of one run into its event log, even if the log fails.

If the log fails, the run continues, because its tools are running. Events that could not be written are missing in the
log, and one `warning(resync)` before the next event reports that. If the log does not recover before the end of the
run, the readers in this process get that warning and `done` from here.
"""

from __future__ import annotations

import math

import anyio
from msgspec.structs import replace

from streamtools.events import Done, Start, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.outputs.native_frames import SharedFrames
from streamtools.serving.event_log import EventLog, log_key, resync
from streamtools.serving.memory_log import MemoryEventLog
from streamtools.stream.result import TurnResult
from streamtools.tools.at_most_once import DrivenRun

log = Logger(__name__)

_LOG_TIMEOUT_S = 10.0  # for one event; after a timeout, the log is not called for as long


class Journal:
    """Writes one run into its log, and holds the state that its readers share."""

    def __init__(self, events: EventLog, owner: str, run_id: str) -> None:
        self.log = events
        self.key = log_key(owner, run_id)
        self.last = 0  # the seq of the last event of the run
        self.logged = 0  # the seq of the last event in the log
        self.done: Done | None = None
        self.readable = anyio.Event()
        """Set when the log has an event of the run, or the run has ended."""
        self.waiting_reads: set[anyio.CancelScope] = set()
        self.driven: DrivenRun | None = None
        """The run, if another process may take it over."""
        self.shared_frames = SharedFrames()
        self.in_memory = type(events) is MemoryEventLog  # such a log neither fails nor waits
        self._run_id = run_id
        self._closed = False
        self._last_missing = 0  # the seq of the last event that should be in the log
        self._retry_at = -math.inf  # when the log may be called after a timeout

    async def write(self, event: UIEvent) -> bool:
        """Write an event. Returns whether it is the end of the run.

        The first event becomes a `start` with the id of the run, and each `seq` is one higher than the last.
        """
        if event.seq != self.last + 1 or not self.last:
            event = await self._number(event)
        self.last = event.seq
        if type(event) is Done:
            self.done = event
        await self._append(event)
        return type(event) is Done

    async def flush(self) -> TurnResult | None:
        """Wait until the log has all events. Returns the result of the run if another process has ended it."""
        return None

    def close(self) -> None:
        """Record the end of the run, so that readers do not wait for a `done` that could not be written."""
        self.readable.set()
        if self._last_missing:
            for scope in self.waiting_reads:
                scope.cancel()
        self._closed = True

    def unlogged_end(self, after: int) -> list[UIEvent]:
        """Return the events after `after` that end the run and that the log will never have: none, unless it failed."""
        if self.done is None or not (self._closed and self._last_missing and self.logged <= after < self.done.seq):
            return []
        has_gap = max(after, self.logged) < self.done.seq - 1
        return [*([resync(self.done.seq - 1)] if has_gap else []), self.done]

    async def _number(self, event: UIEvent) -> UIEvent:
        if not self.last:
            if isinstance(event, Start):
                return replace(event, run_id=self._run_id, seq=1)
            await self.write(Start(self._run_id, seq=1))
        return replace(event, seq=self.last + 1)

    async def _append(self, event: UIEvent) -> None:
        if self.in_memory:
            await self.log.append(self.key, event)
        elif anyio.current_time() < self._retry_at and type(event) is not Done:
            self._last_missing = event.seq
            return
        else:
            try:
                with anyio.fail_after(_LOG_TIMEOUT_S, shield=True):  # the log must not keep half of an event
                    if self._last_missing:
                        await self.log.append(self.key, resync(self._last_missing))
                    await self.log.append(self.key, event)
            except Exception as error:
                if not self._last_missing:
                    log.warning("events_not_logged", run_id=self._run_id, **loggable(error))
                self._last_missing = event.seq
                if isinstance(error, TimeoutError):
                    self._retry_at = anyio.current_time() + _LOG_TIMEOUT_S
                return
        self._last_missing = 0
        self.logged = event.seq
        self.readable.set()
