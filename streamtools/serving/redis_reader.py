"""Reads the events of a run on Redis.

The readers of one process share a `Feed`, which holds the last events of the run. A reader that needs older events
fetches these from the log on the server. So no events are kept in memory for slow readers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from streamtools.errors import RunNotFound
from streamtools.events import Done, UIEvent
from streamtools.serving.event_log import resync
from streamtools.serving.redis_process import RedisProcess
from streamtools.serving.stored_vault import VaultReader


async def read_run(
    process: RedisProcess, key: str, after: int, before_done: Callable[[], Awaitable[object]] | None = None
) -> AsyncGenerator[UIEvent]:
    """Yield the events of a run after the seq `after`. `ReadableLog.read` describes this.

    `before_done` is a function that is awaited before `done` is yielded.
    """
    state = await process.server.run_state(key)
    if not state.epoch:
        raise RunNotFound("This run does not exist, or is no longer kept.")
    if state.is_over and after == state.last:
        return
    feed, values = process.follow(key, state), VaultReader(process.server, key)
    try:
        await values.read()
        losses = feed.losses
        needs_resync = not state.first - 1 <= after <= state.last
        while True:
            if feed.error is not None:
                raise feed.error
            if feed.losses != losses:
                state = await process.server.run_state(key)
                losses = feed.losses
                needs_resync = after > feed.last or not state.epoch
            if needs_resync:
                after, needs_resync = max(state.first - 1, 0), False
                yield resync(after)
            events: Sequence[UIEvent] | None = feed.after(after)
            if events is None and after < feed.last:
                events = await process.fetch(key, after)
                if not events and not (await process.server.run_state(key)).epoch:  # the run was deleted
                    return
            if not events:
                if after >= feed.last:
                    await feed.waiting.wait()
                continue
            if events[0].seq > after + 1:  # the events between were dropped or never written
                yield resync(events[0].seq - 1)
            events = await values.restore_events(events)
            for event in events:
                if type(event) is Done and before_done is not None:
                    await before_done()
                yield event
            after = events[-1].seq
            if type(events[-1]) is Done:
                return
    finally:
        process.leave(feed)
