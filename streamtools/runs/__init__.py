"""Runs that continue after the connection that started them has ended. Each run has its own task.

    async with Runs() as runs:  # for as long as the application runs
        run = await runs.start(chat(model, messages, tools=tools), owner=user)
        async with run.attach() as events:
            async for event in events:
                ...

A run writes its events into a log. A reader attaches to the run, reads the log from any position, and detaches. A slow
reader does not slow down the run. `Run.stop` ends the run for all of its readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools.loading import load_later
from streamtools.serving.event_log import MemoryEventLog, log_key
from streamtools.serving.journal import Attachment
from streamtools.serving.run import Run
from streamtools.serving.runs import Runs
from streamtools.stream.lost_run import LostRun
from streamtools.stream.reading import Startable

__all__ = ["Attachment", "LostRun", "MemoryEventLog", "RedisStore", "Run", "Runs", "Startable", "log_key"]

if TYPE_CHECKING:
    from streamtools.serving.redis_store import RedisStore

load_later(globals(), {"RedisStore": ".serving.redis_store"})
