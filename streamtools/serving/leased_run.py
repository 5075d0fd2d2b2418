"""The state of a run whose lease this process holds. The events of the run are stored on a Redis server.

Written events are kept in memory for five more seconds. If the Redis server restarts and loses some of these events,
they are written again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from streamtools import observing
from streamtools.rules.vault import Vault
from streamtools.serving.stored_vault import hide

_MAX_BATCH_EVENTS = 64
_MAX_BATCH_BYTES = 1 << 22  # a batch with a single event may be larger
_KEEP_WRITTEN_S = 5.0  # a Redis server that restarts may lose the events of the last seconds
_LEASE_CHECK_INTERVAL_S = 0.02
_MAX_PENDING_EVENTS = 10_000  # the maximum number of pending events, and of written events that are kept
_MAX_PENDING_BYTES = 1 << 24


class LeasedRun:
    """The state of one run whose lease this process holds: the lease, and the events that must still be written.

    `owner` is the user to whom the run belongs. `epoch` starts at 1. It grows by 1 whenever a process claims the run:
    to take it over from a process that has crashed or handed it over, or to continue it after the server has lost
    events.
    """

    def __init__(self, key: str, run_id: str, owner: str, epoch: int, process_id: str, meta_key: str) -> None:
        self.key = key
        """The key of the log of the run, from `log_key`."""
        self.run_id = run_id
        self.owner = owner
        self.epoch = epoch
        self.meta_key = meta_key
        """The Redis key of the hash whose field `token` names the process that drives the run."""
        self.written = 0
        """The seq of the last event that the server has confirmed; 0 before the first one."""
        self.final: tuple[int, bytes, bytes] | None = None
        """The seq of `done`, the event `done` as JSON, and the stored result; None until the run ends."""
        self.keep = 0.0
        """The seconds for which a run with questions is kept, after its end."""
        self.finished = anyio.Event()
        """Set when the end of the run is written, or when this process has given up the run."""
        self.ended_at: float | None = None
        """The time at which the server confirmed the end of the run; None before that."""
        self.is_fenced = False
        """True after this process has given up the run. Nothing more is written then.

        It has handed the run over, or another process has taken it over, deleted it or ended it.
        """
        self.logs_first = False
        """True if the log must have all events of a call before its tool starts, so that the run can be continued."""
        self.is_released = False
        """True if this process hands the run over as soon as its events are written."""
        self.may_have_gap = False
        """True if events are lost, so that the server must accept a gap in the seqs before the next event."""
        self.needs_check = False
        """True if the server seems to have lost events or the token. The run must then be claimed again."""
        self.is_driven = False
        """True if this process runs the stream. False if it has taken the run over only to write its end."""
        self.on_loss: Callable[[], object] = lambda: None
        """Stops the run. Called when its events cannot be written any more."""
        self.on_read: Callable[[], object] = lambda: None
        """Called at each renewal of the lease if clients of other processes read the run.

        The run is then not treated as abandoned.
        """
        self.vault: Vault | None = None
        """The vault whose values are hidden in the data of the run."""
        self.stored_state: object = None
        """The `state` of the vault that the server has; None before that."""
        self.lease_until = 0.0
        """This process is certain to hold the lease until this time, on the clock of the event loop."""
        self.renew: Callable[[], Awaitable[object]]
        """Renews the leases of all runs of this process.

        Sets `needs_check` of a run if another process may hold its lease, or if the server has lost events.
        """
        self._process_id = process_id
        self._all_written = anyio.Event()  # a new event for each wait; set when no event is pending
        self._pending: deque[tuple[int, bytes]] = deque()
        self._pending_size = 0
        self._written: deque[tuple[float, int, bytes]] = deque()  # time of writing, seq and JSON of each kept event
        self._written_size = 0

    @property
    def token(self) -> str:
        """The token `"<epoch>:<process id>"`, which each script compares with the stored token before it writes."""
        return f"{self.epoch}:{self._process_id}"

    async def is_lost(self) -> bool:
        """Return whether another process has taken the run over. While the lease is uncertain, renew it and wait.

        With `logs_first`, also wait until the server has all events.
        """
        while not self.is_fenced:
            if self.needs_check or anyio.current_time() >= self.lease_until:
                with suppress(Exception):  # an outage either passes, or lasts too long and stops the run
                    await self.renew()
            elif not (self.logs_first and self._pending):
                break
            await self._wait_for_writes()
        return self.is_fenced

    async def wait_for_room(self) -> None:
        """Wait until the pending events are at most half of the limits, or another process has taken the run over."""
        while not self.is_fenced and (
            len(self._pending) > _MAX_PENDING_EVENTS / 2 or self._pending_size > _MAX_PENDING_BYTES / 2
        ):
            await self._wait_for_writes()

    async def _wait_for_writes(self) -> None:
        self._all_written = anyio.Event()
        with anyio.move_on_after(_LEASE_CHECK_INTERVAL_S):
            await self._all_written.wait()

    @property
    def is_full(self) -> bool:
        """Whether the pending events exceed a limit, so that the run must stop."""
        return len(self._pending) > _MAX_PENDING_EVENTS or self._pending_size > _MAX_PENDING_BYTES

    @property
    def has_only_end(self) -> bool:
        """Whether all events but `done` are written, and the run must end or be handed over next."""
        has_end = self.is_released or (self.final is not None and self.ended_at is None)
        return has_end and not self._pending and not self.is_fenced

    @property
    def is_dirty(self) -> bool:
        """Whether the writing task still has something to do for the run."""
        return bool(self._pending) or self.has_only_end or self.needs_check

    @property
    def is_safely_stored(self) -> bool:
        """Whether the end was confirmed so long ago that a restart of the server will not lose it."""
        return self.ended_at is not None and self.ended_at < anyio.current_time() - _KEEP_WRITTEN_S

    def hide(self, data: bytes, *, is_delta: bool = False) -> bytes:
        """Return JSON with placeholders instead of the values of the vault."""
        return data if self.vault is None else hide(self.vault, data, is_delta=is_delta)

    def add(self, seq: int, data: bytes) -> None:
        if not self.is_fenced:
            self._pending.append((seq, data))
            self._pending_size += len(data)

    def next_batch(self) -> list[tuple[int, bytes]]:
        """Return the events to write next, with their seqs. They remain pending until `confirm` is called."""
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
        if not self._pending:
            self._all_written.set()
        self.forget_old()

    def confirm_end(self) -> None:
        """Record that the server has the end of the run."""
        self.ended_at = anyio.current_time()
        self.finished.set()

    def forget_old(self) -> None:
        """Drop written events that a restart of the server will not lose, and the oldest events over the limits."""
        oldest = anyio.current_time() - _KEEP_WRITTEN_S
        while self._written and (
            self._written[0][0] < oldest
            or len(self._written) > _MAX_PENDING_EVENTS
            or self._written_size > _MAX_PENDING_BYTES
        ):
            self._written_size -= len(self._written.popleft()[2])

    def rewind(self, last: int, epoch: int) -> None:
        """Make the events after `last` pending again, under the new `epoch`. The server has lost these events."""
        self.ended_at = None
        self.stored_state = None
        events = [*((seq, data) for _, seq, data in self._written), *self._pending]
        self._written.clear()
        self._written_size = 0
        self._pending = deque((seq, data) for seq, data in events if seq > last)
        self._pending_size = sum(len(data) for _, data in self._pending)
        self.written, self.epoch = last, epoch
        first = self._pending[0][0] if self._pending else self.final[0] if self.final else last + 1
        self.may_have_gap = first > last + 1

    def fence(self) -> None:
        """Record that this process has given up the run. Drops the pending events and stops the run here."""
        self.is_fenced = True
        observing.report("fenced_appends")
        self._pending.clear()
        self._written.clear()
        self._pending_size = self._written_size = 0
        self.finished.set()
        self.on_loss()
