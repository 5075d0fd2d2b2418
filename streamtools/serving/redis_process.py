"""One process among those that share a Redis: what it writes, reads and says there, for all of its runs together.

Three tasks do it. One writes: what waits of all runs goes in one script, and while that is on its way more gathers, so
an event alone goes at once and many go together; who reads the run here gets it when the server has it. One listens, in
one blocking read on a connection of its own: to the stream of this process, in which others tell it something, and
which it wakes itself with, to the runs of others that are read here, and to those of its own whose readers lack some.
One renews the leases of its runs, and takes over those whose owner does not come back. No reader touches them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from streamtools.errors import ClosedError, OwnerUnreachable
from streamtools.events import UIEvent, read_ui_event
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_scripts as scripts
from streamtools.serving.event_log import log_key
from streamtools.serving.redis_log import Agreed, Feed, Look, Tail, read_entries
from streamtools.serving.redis_scripts import Keys, run_keys
from streamtools.serving.redis_talking import LONGEST, Talking
from streamtools.tools.redis_client import RedisClient, Word

log = Logger(__name__)

_AT_ONCE = 64  # runs that are written together
_RENEWED = 100  # and whose leases are renewed together
_PAGE = 256  # events that a reader who is behind gets at once
SETTLING = 10.0  # seconds in which the end of a run has to be written: whoever waits for it waits no longer


class RedisProcess(Talking):
    """Everything that one process does in Redis. `on_message` answers another, `on_expired` takes a run over."""

    def __init__(self, client: RedisClient, tasks: TaskGroup, settings: Agreed) -> None:
        super().__init__(client, tasks, settings)
        self.tails: dict[str, Tail] = {}
        """Of the runs that this process drives."""
        self.read = Counter[str]()
        """How many read a run here that another may stop when nobody does."""
        self.on_expired: Callable[[str], Awaitable[object]]
        self._feeds: dict[str, Feed] = {}
        self._dirty: dict[str, Tail] = {}
        self._more = anyio.Event()
        self._sweeps = 0.0  # from when on: after an outage all leases are over, and owners that live come first
        self._away: float | None = None  # since when the server is
        self._deaf: float | None = None  # and since when nothing is heard of it
        self._heard = "0-0"
        self._is_woken = False
        self._claiming: set[str] = set()

    def start(self) -> None:
        """Begin its tasks, which outlive a cancellation until what the runs say at their end is written."""
        self._tasks.start_soon(self._live)

    async def _live(self) -> None:
        with anyio.CancelScope(shield=True) as whole:
            self._tasks.start_soon(self._end_with, whole)
            async with anyio.create_task_group() as group:
                for task in (self._write, self._listen, self._tend):
                    group.start_soon(task)
        self._closed = ClosedError("the runs have been left: another process may still read them")
        for feed in self._feeds.values():
            feed.fail(self._closed)

    async def _end_with(self, whole: anyio.CancelScope) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(SETTLING, shield=True):
                for tail in [each for each in self.tails.values() if each.will_end or each.final]:
                    await tail.settled.wait()
            whole.cancel()

    def keys(self, key: str) -> Keys:
        return run_keys(self._set.prefix, key)

    def of_owner(self, owner: str) -> tuple[str, str, str]:
        """Return the keys of an owner: all runs, the last of each conversation, and those that go on."""
        stem = f"{self._set.prefix}:{{{log_key(owner, '')}}}:"
        return stem + "runs", stem + "conversations", stem + "running"

    # Writing.

    def own(self, tail: Tail) -> None:
        self.tails[tail.key] = tail
        tail.renew, tail.held = self._renew, anyio.current_time() + self._set.lease / 2  # it has been held for a while

    def forget(self, tail: Tail) -> None:
        """Take note that nothing more is written of a run here."""
        if self.tails.get(tail.key) is tail:
            del self.tails[tail.key]
            if tail.key in self._feeds:
                self._tasks.start_soon(self._wake)

    def press(self, tail: Tail) -> None:
        """Have written what is new in a tail, but not in one that is fenced: another may stand under its key."""
        if not tail.is_fenced:
            self._dirty[tail.key] = tail
            self._more.set()

    async def _write(self) -> None:
        pause = 0.05
        while True:
            if not self._dirty:
                self._more = anyio.Event()
                await self._more.wait()
            tails = [self._dirty.pop(key) for key in list(self._dirty)[:_AT_ONCE]]
            try:
                for tail in tails:
                    if tail.is_doubtful:
                        await self._reclaim(tail)
                await self._append([(tail, batch) for tail in tails if (batch := tail.batch())])
                if ending := [tail for tail in tails if tail.is_at_end]:
                    async with anyio.create_task_group() as group:
                        for tail in ending:
                            group.start_soon(self._end, tail)
            except Exception as error:
                self._note_away(error)
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST)
            else:
                self._away, pause = None, 0.05
            self._dirty |= {tail.key: tail for tail in tails if tail.is_dirty}

    async def _append(self, batches: list[tuple[Tail, list[tuple[int, bytes]]]]) -> None:
        if not batches:
            return
        names, args = list[str](), list[Word]()
        for tail, batch in batches:
            keys = self.keys(tail.key)
            names += (keys.log, keys.meta)
            args += (tail.token, batch[0][0], int(tail.may_gap), len(batch), *(data for _, data in batch))
        answers = await self.run_script(scripts.APPEND, names, self._set.length, *args)
        for (tail, batch), (word, last) in zip(batches, answers, strict=True):
            await self._settle(tail, word, last, batch)

    async def _end(self, tail: Tail) -> None:
        assert tail.final is not None
        seq, done, ended = tail.final
        keys = self.keys(tail.key)
        word, last = await self.run_script(
            scripts.END,
            (keys.log, keys.meta, keys.lease, self.shared("running"), *self.of_owner(tail.owner)),
            *(tail.token, self._ms(self._set.keep), tail.key, tail.run_id, seq, done, int(tail.may_gap), ended),
        )
        await self._settle(tail, word, last, [(seq, done)])
        if word == b"ok":
            tail.end()

    async def _settle(self, tail: Tail, word: bytes, last: int, events: list[tuple[int, bytes]]) -> None:
        """Take note of what the server has, and give it to who reads it here."""
        if word != b"ok":
            await self._reclaim(tail)
            return
        tail.settle(last)
        if (feed := self._feeds.get(tail.key)) is not None:
            new = [(seq, read_ui_event(data)) for seq, data in events if seq > feed.last]
            if new and new[0][0] == feed.last + 1:
                feed.add(new, tail.epoch)
            if not self._has_all(feed):
                await self._wake()

    async def _reclaim(self, tail: Tail) -> None:
        """Write again what the server has forgotten, as another owner than before; or lose a run that is another's."""
        word, epoch, last = await self.claim(tail.key, tail.token)
        tail.is_doubtful = False
        if word == b"claimed":
            log.warning("events_written_again", run_id=tail.run_id, behind=last)
            tail.rewind(last, epoch)
            self.press(tail)
        elif tail.ended is not None:  # and it is kept no more, or another has ended it as well
            self.forget(tail)
        elif not tail.is_fenced:
            log.warning("run_taken_over", run_id=tail.run_id)
            self.forget(tail)
            tail.fence()

    def _note_away(self, error: Exception) -> None:
        now = anyio.current_time()
        self._sweeps = now + self._set.lease / 2
        if self._away is None:
            self._away = now
            log.warning("redis_away", **loggable(error))
        for tail in self.tails.values():
            if tail.is_full or (now - self._away > self._set.patience and tail.batch()):
                tail.on_loss()

    async def claim(self, key: str, token: str = "") -> tuple[bytes, int, int]:
        """Take a run over, or with its token go on with one's own; returns what `CLAIM` does."""
        keys = self.keys(key)
        names = (keys.log, keys.meta, keys.lease, self.shared("running"))
        word, epoch, last = await self.run_script(scripts.CLAIM, names, self.id, self._ms(self._set.lease), key, token)
        return word, epoch, last

    # Reading.

    async def fetch(self, key: str, after: int) -> list[tuple[int, UIEvent]]:
        args = ("XRANGE", self.keys(key).log, f"{after + 1}-0", "+", "COUNT", _PAGE)
        return read_entries(await self.patiently(*args, seconds=self._set.patience))

    async def follow(self, key: str, look: Look) -> Feed:
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(key, self.keys(key).log.encode(), look)
        feed.readers += 1
        if feed.readers == 1 and not self._has_all(feed):
            try:
                await self._wake()
            except BaseException:
                self.leave(feed)
                raise
        return feed

    def _has_all(self, feed: Feed) -> bool:
        """Whether a feed has all that this process has written, and so gets what it writes next from itself."""
        tail = self.tails.get(feed.key)
        return tail is not None and tail.written == feed.last

    async def _wake(self) -> None:
        """Have what is read now be listened to; if the server is away, when it is back."""
        if not self._is_woken:
            self._is_woken = True
            try:
                await self._send(self.id, {"kind": "wake"})
            except BaseException as error:
                self._is_woken = False
                if not isinstance(error, Exception):
                    raise

    def leave(self, feed: Feed) -> None:
        feed.readers -= 1
        if not feed.readers and self._feeds.get(feed.key) is feed:
            del self._feeds[feed.key]

    async def _listen(self) -> None:
        pause = 0.05
        while True:
            try:
                async with self._client.connection() as connection:
                    for feed in list(self._feeds.values()):
                        last = feed.last
                        look = await self.look(feed.key, last)
                        if feed.last == last:
                            feed.check(look)
                    with anyio.fail_after(math.inf) as scope:
                        while True:
                            await self._hear(connection.execute, scope)
                            self._deaf, pause = None, 0.05
                            await anyio.lowlevel.checkpoint()  # who reads goes on before more is asked for
            except Exception as error:
                now = anyio.current_time()
                self._sweeps = now + self._set.lease / 2
                if self._deaf is None:
                    self._deaf = now
                    log.warning("redis_not_heard", **loggable(error))
                if now - self._deaf > self._set.patience:
                    for feed in list(self._feeds.values()):
                        feed.fail(OwnerUnreachable("the server that holds the run does not answer"))
                        self._feeds.pop(feed.key, None)
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST)

    async def _hear(self, execute: Callable[..., Awaitable[Any]], scope: anyio.CancelScope) -> None:
        feeds = {feed.name: feed for feed in self._feeds.values() if not self._has_all(feed)}
        mine = self._stream(self.id).encode()
        self._is_woken = False
        block = min(self._set.lease / 3, 5.0)
        places = (self._heard, *(f"{feed.last}-0" for feed in feeds.values()))
        scope.deadline = anyio.current_time() + block + 5.0
        answers = await execute("XREAD", "COUNT", 500, "BLOCK", self._ms(block), "STREAMS", mine, *feeds, *places)
        for name, entries in answers.items() if isinstance(answers, dict) else answers or ():
            if name == mine:
                self._heard = entries[-1][0].decode()
                for _, (_, message, *_) in entries:
                    self._take(message)
            elif new := [each for each in read_entries(entries) if each[0] > feeds[name].last]:
                feeds[name].add(new, int(entries[-1][1][0]))

    # Living.

    async def _tend(self) -> None:
        while True:
            try:
                await self._renew()
                for key in list(self.read):  # and its owner gets to know of it
                    await self._client.execute("SET", self.keys(key).readers, 1, "PX", self._ms(self._set.lease))
                if anyio.current_time() >= self._sweeps:
                    for key in await self.run_script(scripts.EXPIRED, (self.shared("running"),)):
                        self._tasks.start_soon(self._take_over, key.decode())
                self._away = None
            except Exception as error:
                self._note_away(error)
            await anyio.sleep(self._set.lease / 3)

    async def _renew(self) -> None:
        tails = list(self.tails.values())
        for start in range(0, len(tails), _RENEWED):
            some = tails[start : start + _RENEWED]
            names, args = [self.shared("running")], list[Word]()
            before = [(tail.token, tail.written) for tail in some]
            held = anyio.current_time() + self._set.lease
            for tail in some:
                names += self.keys(tail.key)[:4]
                args += (tail.token, tail.key)
            answers = await self.run_script(scripts.RENEW, names, self._ms(self._set.lease), *args)
            for tail, (token, written), (is_ours, last, is_read) in zip(some, before, answers, strict=True):
                tail.forget()
                if tail.is_done:
                    self.forget(tail)
                if token != tail.token or tail.is_fenced:
                    continue  # meanwhile it was claimed anew, or is another's
                if not is_ours or last < written:
                    tail.is_doubtful = True
                    self.press(tail)
                    continue
                tail.held = held
                if is_read:
                    tail.on_read()

    async def _take_over(self, key: str) -> None:
        if key in self.tails or key in self._claiming:
            return
        self._claiming.add(key)
        try:
            await self.on_expired(key)
        except Exception as error:  # another may do it, or we when the lease has expired once more
            log.warning("run_not_taken_over", **loggable(error))
        finally:
            self._claiming.discard(key)
