"""A run on Redis that this process drives: its lease, and the events that are not written yet.

Events of the last seconds are kept after they are written. A server that restarts without them gets them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from streamtools import observing

_MAX_BATCH_EVENTS = 64
_MAX_BATCH_BYTES = 1 << 22  # or one event
_KEEP_WRITTEN_S = 5.0  # a server that restarts may lose events of so many seconds
_LEASE_CHECK_INTERVAL_S = 0.02
_MAX_PENDING_EVENTS = 10_000  # during an outage
_MAX_PENDING_BYTES = 1 << 24


class OwnedRun:
    """The state of one run that this process drives."""

    def __init__(self, key: str, run_id: str, owner: str, epoch: int, process_id: str, meta_key: str) -> None:
        self.key = key
        self.run_id = run_id
        self.owner = owner
        self.epoch = epoch
        self.place = meta_key
        """The key whose field `token` names the owner."""
        self.written = 0
        """The seq of the last event on the server."""
        self.final: tuple[int, bytes, bytes] | None = None
        """The seq of `done`, `done` itself, and the result of the run."""
        self.finished = anyio.Event()
        """Set when everything is written, or nothing more will be."""
        self.ended_at: float | None = None
        """When the server confirmed the end."""
        self.is_fenced = False
        """Whether another process has taken the run over."""
        self.may_have_gap = False
        """Whether the next events may follow a gap."""
        self.needs_check = False
        """Whether the server seems to have lost events."""
        self.is_driven = False
        """Whether the run ends by itself in this process."""
        self.on_loss: Callable[[], object] = lambda: None
        """Ends the run: it cannot be written any more."""
        self.on_read: Callable[[], object] = lambda: None
        """Called from time to time while another process reads the run."""
        self.lease_until = 0.0
        """Local deadline until which the lease is certainly ours."""
        self.renew: Callable[[], Awaitable[object]]
        """Renews the lease, or finds out that it is lost."""
        self._process_id = process_id
        self._progress = anyio.Event()  # set when `written` or `is_fenced` changes
        self._pending: deque[tuple[int, bytes]] = deque()
        self._pending_size = 0
        self._written: deque[tuple[float, int, bytes]] = deque()  # with the time of writing
        self._written_size = 0

    @property
    def token(self) -> str:
        """The proof of ownership under which events are written."""
        return f"{self.epoch}:{self._process_id}"

    async def is_lost(self) -> bool:
        """Return whether another process has taken the run over. Waits while the lease is uncertain."""
        while not self.is_fenced and (self.needs_check or anyio.current_time() >= self.lease_until):
            with suppress(Exception):  # an outage ends by itself, or ends the run
                await self.renew()
            await anyio.sleep(_LEASE_CHECK_INTERVAL_S)
        return self.is_fenced

    @property
    def is_full(self) -> bool:
        """Whether so many events are pending that the run cannot continue."""
        return len(self._pending) > _MAX_PENDING_EVENTS or self._pending_size > _MAX_PENDING_BYTES

    @property
    def has_only_end(self) -> bool:
        """Whether only the end of the run has to be written."""
        return self.final is not None and not self._pending and self.ended_at is None and not self.is_fenced

    @property
    def is_dirty(self) -> bool:
        return bool(self._pending) or self.has_only_end or self.needs_check

    @property
    def is_done(self) -> bool:
        """Whether nothing has to be written any more, even if the server loses its last seconds."""
        return self.ended_at is not None and self.ended_at < anyio.current_time() - _KEEP_WRITTEN_S

    def add(self, seq: int, data: bytes) -> None:
        if not self.is_fenced:
            self._pending.append((seq, data))
            self._pending_size += len(data)

    def next_batch(self) -> list[tuple[int, bytes]]:
        """Return the events to write next. They stay pending."""
        batch, size = list[tuple[int, bytes]](), 0
        for entry in self._pending:
            size += len(entry[1])
            if batch and (size > _MAX_BATCH_BYTES or len(batch) == _MAX_BATCH_EVENTS):
                break
            batch.append(entry)
        return batch

    def confirm(self, last: int) -> None:
        """Record that the server has all events up to `last`."""
        now = anyio.current_time()
        while self._pending and self._pending[0][0] <= last:
            seq, data = self._pending.popleft()
            self._pending_size -= len(data)
            self._written.append((now, seq, data))
            self._written_size += len(data)
        self.written = last
        self.may_have_gap = False
        self._progress.set()
        self.forget_old()

    def confirm_end(self) -> None:
        """Record that the server has the end of the run."""
        self.ended_at = anyio.current_time()
        self.finished.set()

    async def wait_for(self, seq: int) -> None:
        """Wait until the server has the event `seq`, or another process has the run."""
        while self.written < seq and not self.is_fenced:
            self._progress = anyio.Event()
            await self._progress.wait()

    def forget_old(self) -> None:
        """Drop written events that a server would not lose."""
        oldest = anyio.current_time() - _KEEP_WRITTEN_S
        while self._written and (
            self._written[0][0] < oldest
            or len(self._written) > _MAX_PENDING_EVENTS
            or self._written_size > _MAX_PENDING_BYTES
        ):
            self._written_size -= len(self._written.popleft()[2])

    def rewind(self, last: int, epoch: int) -> None:
        """Write the events after `last` again, which the server has lost, under a new epoch."""
        self.ended_at = None
        while self._pending and self._pending[0][0] <= last:
            self._pending_size -= len(self._pending.popleft()[1])
        lost = [(seq, data) for _, seq, data in self._written if seq > last]
        self._written.clear()
        self._written_size = 0
        self._pending.extendleft(reversed(lost))
        self._pending_size += sum(len(data) for _, data in lost)
        self.written, self.epoch = last, epoch
        first = self._pending[0][0] if self._pending else self.final[0] if self.final else last + 1
        self.may_have_gap = first > last + 1

    def fence(self) -> None:
        """Record that another process has the run. Nothing more is written, and the run ends here."""
        self.is_fenced = True
        observing.count("fenced_appends")
        self._pending.clear()
        self._written.clear()
        self._pending_size = self._written_size = 0
        self.finished.set()
        self._progress.set()
        self.on_loss()
