"""The three tasks with which a process writes its runs to Redis, reads runs, and renews the leases of its runs.

The first task writes. One script appends the pending events of up to 64 runs. Events that arrive while the script runs
form the next batch. So under low load each event is sent immediately, and under high load many are sent together.
Readers in this process get an event after the server has confirmed it.

The second task reads several streams with one blocking command on a separate connection. The streams are the messages
to this process, the released runs, and logs. The task reads the log of each run that has readers in this process. It
does not read the log if this process writes the run, and the `Feed` of the readers has all written events. To change
the logs that the task reads, this process sends a `wake` message to itself. The message ends the blocking command.

The third task renews the leases of the runs that this process drives. It also takes over runs whose lease has expired.
The process of such a run has crashed, has shut down, or cannot reach the server.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from streamtools.errors import ClosedError, OwnerUnreachable
from streamtools.events import UIEvent, read_ui_event, weigh
from streamtools.logs import Logger, explained, loggable
from streamtools.serving import redis_protocol as scripts
from streamtools.serving.event_log import WaitingReaders, split_key
from streamtools.serving.leased_run import LeasedRun
from streamtools.serving.redis_protocol import RunState
from streamtools.serving.redis_server import FIRST_RETRY_S, LAST_RETRY_S, RedisMessages, RedisServer, milliseconds
from streamtools.serving.run import Run
from streamtools.serving.stored_vault import dump
from streamtools.tools.redis_client import Word

log = Logger(__name__)

_MAX_RUNS_PER_WRITE = 64
_MAX_RUNS_PER_RENEWAL = 100
_PAGE = 256  # maximum number of events that a slow reader fetches with one command
_MAX_TAKEOVER_DELAY_S = 1.0  # maximum pause between two checks for expired leases
_MAX_LISTEN_S = 5.0  # maximum duration of one blocking read
END_TIMEOUT_S = 10.0
"""Maximum number of seconds to wait until the end of a run is written or read. After that, the caller stops waiting."""

WINDOW = 512
"""Maximum number of events that a `Feed` keeps in memory for the readers of one run."""
WINDOW_BYTES = 1 << 22
"""Maximum size of the events in a `Feed`, in bytes. The last event is kept even if it is larger."""
_MAX_READ = 16  # maximum number of events that a reader takes in one call


class RedisProcess:
    """Writes and reads runs on the server, and renews leases, for one process.

    The key of a run is its `log_key`. `answer(key, request)` answers a request of another process about a run.
    `on_expired(process, key)` takes over a run if its lease has expired. `process` is this object.
    """

    def __init__(
        self,
        server: RedisServer,
        tasks: TaskGroup,
        answer: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
        on_expired: Callable[[RedisProcess, str], Awaitable[object]],
    ) -> None:
        self.server = server
        self.messages = RedisMessages(server, tasks, answer)
        self.id = self.messages.process_id
        self.leased: dict[str, LeasedRun] = {}
        """Maps the key of a run to its state, for each run that this process drives."""
        self.readers = WeakKeyDictionary[Run, set[int]]()
        """For each run that another process drives: its readers in this process."""
        self._settings = server.settings
        self._tasks = tasks
        self._on_expired = on_expired
        self._feeds: dict[str, Feed] = {}
        self._dirty: dict[str, LeasedRun] = {}  # by key: the runs for which the first task has something to do
        self._has_dirty = anyio.Event()
        # The earliest time of a takeover. In an outage, all leases expire. Live processes must then renew theirs first.
        self._take_over_from = 0.0
        self._renew_at = 0.0  # the time of the next renewal of the leases
        self._may_have_lost_events = False  # whether to compare the feeds with the server, which may have lost events
        self._last_message_id = "0-0"
        self._last_release_id = "$"

    async def run(self) -> None:
        """Run the three tasks.

        After a cancellation, they continue until the ends of the runs are written, for `END_TIMEOUT_S` at most.
        """
        with anyio.CancelScope(shield=True) as scope:
            self._tasks.start_soon(self._end_with_group, scope)
            async with self.server.client.connection() as self._execute, anyio.create_task_group() as group:
                group.start_soon(self._repeat, self._write, self._stop_unwritten)
                group.start_soon(self._repeat, self._listen, self._check_feeds)
                group.start_soon(self._repeat, self._keep_leases, self._stop_unwritten)
        self.server.closed = ClosedError("The runs have been closed. Another process may still read them.")
        for feed in self._feeds.values():
            feed.fail(self.server.closed)

    async def _repeat(self, step: Callable[[], Awaitable[None]], on_failure: Callable[[bool], None]) -> None:
        """Repeat the steps of one task. After a failure, postpone takeovers, and pause.

        `on_failure(is_long)` is called after each failure. `is_long` is True if all steps have failed for more than
        `max_outage` seconds.
        """
        pause, failing_since = FIRST_RETRY_S, math.inf
        while True:
            try:
                await step()
                pause, failing_since = FIRST_RETRY_S, math.inf
            except Exception as error:
                now = anyio.current_time()
                self._take_over_from = now + self._settings.lease / 2
                if failing_since == math.inf:
                    failing_since = now
                    log.warning("redis_unreachable", **loggable(error))
                on_failure(now - failing_since > self._settings.max_outage)
                await anyio.sleep(pause)
                # At most a third of the lease, so that this process renews its leases before another one takes over.
                pause = min(2 * pause, LAST_RETRY_S, self._settings.lease / 3)

    async def _end_with_group(self, scope: anyio.CancelScope) -> None:
        """When the task group is cancelled, wait for the ends of the runs, then cancel `scope`."""
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(END_TIMEOUT_S, shield=True):
                for run in [run for run in self.leased.values() if run.is_driven or run.final]:
                    await run.finished.wait()
            scope.cancel()

    # Writing.

    def add_run(self, run: LeasedRun) -> None:
        """Add a run whose lease this process has just acquired."""
        self.leased[run.key] = run
        run.renew = self._renew
        # Half of the lease, because some time has passed since it was acquired.
        run.lease_until = anyio.current_time() + self._settings.lease / 2

    def remove_run(self, run: LeasedRun) -> None:
        """Remove a run to which this process writes nothing more."""
        if self.leased.get(run.key) is run:
            del self.leased[run.key]
            if run.key in self._feeds:
                self._wake_listener()

    def write_soon(self, run: LeasedRun) -> None:
        """Schedule a run for writing. Ignores a fenced run, because another `LeasedRun` may have its key by now."""
        if not run.is_fenced:
            self._dirty[run.key] = run
            self._has_dirty.set()

    async def _write(self) -> None:
        """Do a step of the first task: write the pending events and the ends of runs."""
        if not self._dirty:  # waiting counts as a successful step, so a later failure starts a new outage
            self._has_dirty = anyio.Event()
            await self._has_dirty.wait()
            return
        runs = [self._dirty.pop(key) for key in list(self._dirty)[:_MAX_RUNS_PER_WRITE]]
        try:
            for run in runs:
                if run.needs_check:
                    await self._reclaim(run)
            await self._append([(run, batch) for run in runs if (batch := run.next_batch())])
            async with anyio.create_task_group() as group:
                for run in runs:
                    if run.has_only_end:
                        group.start_soon(self._release if run.is_released else self._write_end, run)
        finally:
            self._dirty |= {run.key: run for run in runs if run.is_dirty}

    async def _write_vault(self, run: LeasedRun) -> None:
        """Store the values of the vault of a run, if there are new ones."""
        if run.vault is not None and (state := run.vault.state) != run.stored_state:
            await self.server.store(run.key, "vault", self._settings.cipher.encrypt(dump(run.vault)), token=run.token)
            run.stored_state = state

    async def _append(self, batches: list[tuple[LeasedRun, list[tuple[int, bytes]]]]) -> None:
        if not batches:
            return
        names, args = list[str](), list[Word]()
        for run, batch in batches:
            await self._write_vault(run)
            names += self.server.keys.of_run(run.key)[:2]
            args += (run.token, batch[0][0], int(run.may_have_gap), len(batch), *(data for _, data in batch))
        replies = await self.server.run_script(scripts.APPEND, names, self._settings.max_events, *args)
        for (run, batch), last in zip(batches, replies, strict=True):
            await self._confirm(run, last, batch)

    async def _write_end(self, run: LeasedRun) -> None:
        assert run.final is not None
        await self._write_vault(run)
        seq, done, result = run.final
        last = await self.server.run_script(
            scripts.END,
            self.server.keys.changed_by(run.owner, run.run_id),
            *(run.token, milliseconds(max(self._settings.keep, run.keep)), run.key, run.run_id),
            *(seq, done, int(run.may_have_gap), result),
        )
        await self._confirm(run, last, [(seq, done)])
        if last:
            run.confirm_end()

    async def _release(self, run: LeasedRun) -> None:
        """End the lease of a run, so that another process can claim the run. Stop the run in this process."""
        keys = self.server.keys
        log, meta, _ = keys.of_run(run.key)
        names = (log, meta, keys.running, keys.released)
        await self.server.run_script(scripts.RELEASE, names, run.token, milliseconds(self._settings.keep), run.key)
        self.remove_run(run)
        run.fence()

    async def _confirm(self, run: LeasedRun, last: int, events: list[tuple[int, bytes]]) -> None:
        """Handle the reply to a write: pass the events to the readers in this process, or claim the run again.

        `last` is the last seq in the log, or 0 if the write was refused.
        """
        if not last:
            await self._reclaim(run)
            return
        run.confirm(last)
        if (feed := self._feeds.get(run.key)) is not None:
            new = [read_ui_event(data) for seq, data in events if seq > feed.last]
            if new and new[0].seq == feed.last + 1:
                feed.add(new, run.epoch)
            if not self._is_fed_here(feed):
                self._wake_listener()

    async def _reclaim(self, run: LeasedRun) -> None:
        """Claim a run of this process again, because the server has refused a write or has lost data.

        If the claim succeeds, the events that the server has lost are pending again, under a new epoch. Otherwise this
        process gives up the run, because another process drives it or the run has ended.
        """
        claimed = await self.claim(run.key, run.epoch)
        run.needs_check = False
        if claimed is not None:
            epoch, last, *_ = claimed
            log.warning("events_written_again", run_id=run.run_id, after=last)
            run.rewind(last, epoch)
            self.write_soon(run)
        elif run.ended_at is not None:  # the run was deleted, or another process has ended it as well
            self.remove_run(run)
        elif not run.is_fenced:
            log.warning("run_taken_over", run_id=run.run_id)
            self.remove_run(run)
            run.fence()

    def _stop_unwritten(self, is_long: bool) -> None:
        """Stop each run with too many pending events. After a long outage, stop each run with pending events."""
        for run in self.leased.values():
            if run.is_full or (is_long and run.next_batch()):
                run.on_loss()

    def in_background(self, function: Callable[..., Awaitable[object]], *args: object) -> None:
        """Call a function in the background. A failure is ignored."""

        async def call() -> None:
            with suppress(Exception):
                await function(*args)

        self._tasks.start_soon(call)

    async def claim(self, key: str, epoch: int | None = None) -> Sequence[int] | None:
        """Claim a run. Pass its `epoch` if this process already drives it. Returns the reply of the script `CLAIM`."""
        owner, run_id = split_key(key)
        times = milliseconds(self._settings.lease), milliseconds(self._settings.keep)
        args = self.id, *times, key, run_id, "" if epoch is None else epoch
        claimed: Sequence[int] | None
        claimed = await self.server.run_script(scripts.CLAIM, self.server.keys.changed_by(owner, run_id), *args)
        return claimed

    # Reading.

    async def fetch(self, key: str, after: int) -> list[UIEvent]:
        """Return the next events after the seq `after` from the log of a run. May return []."""
        args = ("XRANGE", self.server.keys.of_run(key).log, f"{after + 1}-0", "+", "COUNT", _PAGE)
        return read_entries(await self.server.retry(*args, seconds=self._settings.max_outage))

    def follow(self, key: str, state: RunState) -> Feed:
        """Return the feed of a run, and count the caller as a reader. `state` is the current state of the run."""
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(key, self.server.keys.of_run(key).log.encode(), state)
        feed.readers += 1
        if feed.readers == 1 and not self._is_fed_here(feed):
            self._wake_listener()
        return feed

    def leave(self, feed: Feed) -> None:
        """Stop counting the caller as a reader. Drops a feed without readers."""
        feed.readers -= 1
        if not feed.readers and self._feeds.get(feed.key) is feed:
            del self._feeds[feed.key]

    def _is_fed_here(self, feed: Feed) -> bool:
        """Return whether this process writes the run and the feed has all written events.

        The listener then does not read the log, because `_confirm` adds the next events to the feed.
        """
        run = self.leased.get(feed.key)
        return run is not None and run.written == feed.last

    def _wake_listener(self) -> None:
        """Make the listener read the logs of the current feeds.

        During an outage the message is not sent: the listener reads these logs when the server is back.
        """
        self.in_background(self.messages.send, self.id, {"kind": "wake"})

    def _check_feeds(self, is_long: bool) -> None:
        """Request a comparison of the feeds with the server. After a long outage, make their readers raise an error."""
        self._may_have_lost_events = True
        if is_long:
            for feed in self._feeds.values():
                feed.fail(OwnerUnreachable("The Redis server of the run does not answer."))
            self._feeds.clear()

    async def _listen(self) -> None:
        """Do a step of the second task: read messages, released runs, and logs. See `_is_fed_here`."""
        if self._may_have_lost_events:
            for feed in list(self._feeds.values()):
                last = feed.last
                state = await self.server.run_state(feed.key, last)
                if feed.last == last:
                    feed.compare(state)
            self._may_have_lost_events = False
        feeds = {feed.stream: feed for feed in self._feeds.values() if not self._is_fed_here(feed)}
        messages, released = self.server.keys.of_process(self.id).encode(), self.server.keys.released.encode()
        block = min(self._settings.lease / 3, _MAX_LISTEN_S)
        positions = (self._last_message_id, self._last_release_id, *(f"{feed.last}-0" for feed in feeds.values()))
        options = ("COUNT", 500, "BLOCK", milliseconds(block))
        with anyio.fail_after(block + 5.0):
            reply = await self._execute("XREAD", *options, "STREAMS", messages, released, *feeds, *positions)
        for stream, entries in reply.items() if isinstance(reply, dict) else reply or ():
            if stream == messages:
                self._last_message_id = entries[-1][0].decode()
                for _, (_, message, *_) in entries:
                    self.messages.receive(message)
            elif stream == released:
                self._last_release_id = entries[-1][0].decode()
                for _, (_, key, *_) in entries:
                    self._tasks.start_soon(self._take_over, key.decode())
            elif new := [event for event in read_entries(entries) if event.seq > feeds[stream].last]:
                feeds[stream].add(new, int(entries[-1][1][0]))
        await anyio.lowlevel.checkpoint()  # let the readers run

    # Leases.

    async def _keep_leases(self) -> None:
        """Do a step of the third task: renew leases, report readers to other processes, and take over expired runs."""
        if (now := anyio.current_time()) >= self._renew_at:
            await self._renew()
            for run, readers in list(self.readers.items()):
                if readers:  # the driving process sees this key when it renews the lease
                    key, lease = self.server.keys.of_run(run._journal.key).readers, milliseconds(self._settings.lease)
                    await self.server.client.execute("SET", key, 1, "PX", lease)
            self._renew_at = now + self._settings.lease / 3
        if anyio.current_time() >= self._take_over_from:
            for key in await self.server.run_script(scripts.EXPIRED, (self.server.keys.running,)):
                self._tasks.start_soon(self._take_over, key.decode())
        await anyio.sleep(min(self._settings.lease / 3, _MAX_TAKEOVER_DELAY_S))

    async def _renew(self) -> None:
        leased = list(self.leased.values())
        for start in range(0, len(leased), _MAX_RUNS_PER_RENEWAL):
            runs = leased[start : start + _MAX_RUNS_PER_RENEWAL]
            names, args = [self.server.keys.running], list[Word]()
            known = [(run.token, run.written) for run in runs]  # the state before the renewal
            lease_until = anyio.current_time() + self._settings.lease
            for run in runs:
                names += self.server.keys.of_run(run.key)
                args += (run.token, run.key)
            replies = await self.server.run_script(scripts.RENEW, names, milliseconds(self._settings.lease), *args)
            for run, (token, written), (last, is_read) in zip(runs, known, replies, strict=True):
                run.forget_old()
                if run.is_safely_stored:
                    self.remove_run(run)
                if token != run.token or run.is_fenced:
                    continue  # this process claimed the run again, or lost it, during the renewal
                if last < written:  # the server has lost events, or `last` is -1 because the token is wrong
                    run.needs_check = True
                    self.write_soon(run)
                    continue
                run.lease_until = lease_until
                if is_read:
                    run.on_read()

    async def _take_over(self, key: str) -> None:
        if key in self.leased:
            return
        try:
            await self._on_expired(self, key)
        except Exception as error:  # this or another process tries again when it finds the lease expired
            log.warning("run_not_taken_over", **explained(error))


class Feed:
    """The last events of a run, shared by all readers of the run in this process."""

    def __init__(self, key: str, stream: bytes, state: RunState) -> None:
        self.key = key
        self.stream = stream
        """The Redis key of the log of the run."""
        self.last = state.last
        """The seq of the last event that was added. Before an event is added, the last seq in the log."""
        self.written_by = state.written_by
        """The epoch under which the event `last` was written."""
        self.readers = 0
        self.losses = 0
        """How often the server lost or replaced events that were in this feed."""
        self.error: Exception | None = None
        self._events: deque[UIEvent] = deque()
        self._size = 0
        self.waiting = WaitingReaders()

    def add(self, events: list[UIEvent], written_by: int) -> None:
        """Add the next events. `written_by` is the epoch under which the last event was written."""
        for event in events:
            self._events.append(event)
            self._size += weigh(event)
            while len(self._events) > WINDOW or (self._size > WINDOW_BYTES and len(self._events) > 1):
                self._size -= weigh(self._events.popleft())
        self.last, self.written_by = events[-1].seq, written_by
        self.waiting.wake()

    def after(self, position: int) -> list[UIEvent] | None:
        """Return the next events after the seq `position`; None if the feed does not have them."""
        if not self._events or not self._events[0].seq - 1 <= position < self.last:
            return None
        newest_first = [*takewhile(lambda event: event.seq > position, reversed(self._events))]
        return newest_first[-_MAX_READ:][::-1]

    def compare(self, state: RunState) -> None:
        """If the server has lost or replaced the last event of the feed, drop all events and set `last` back.

        A server that was unreachable may have lost events, and may have received other events with the same seqs. If
        the log was only trimmed, the feed keeps its events. `state` was requested for the last event of the feed. If
        the server has this event with the same epoch, all earlier events are the same as well.
        """
        if not self.last or state.written_by == self.written_by or state.first > self.last:
            return
        if state.epoch == self.written_by:
            self.last = state.last
        else:  # if the run was claimed more than once, `claim_seq` may be too high
            self.last = min(state.claim_seq, state.last) if state.epoch == self.written_by + 1 else 0
        self._events.clear()
        self._size = 0
        self.losses += 1
        self.waiting.wake()

    def fail(self, error: Exception) -> None:
        """Make all readers of the feed raise `error`."""
        self.error = error
        self.waiting.wake()


def read_entries(entries: Iterable[Any]) -> list[UIEvent]:
    """Return the events in entries of a log."""
    return [read_ui_event(data) for _, (_, data) in entries]
