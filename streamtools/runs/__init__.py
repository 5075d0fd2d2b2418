"""Runs that outlive the connections that started them: each in a task of its own, readable from any position.

    async with Runs() as runs:  # for as long as the application runs
        run = await runs.start(chat(model, messages, tools=tools), owner=user)
        async with run.attach() as events:
            async for event in events:
                ...

A run writes its events into a log. A reader attaches, reads the log at its own pace, and detaches without any effect on
the run. Only `stop` ends the run for all of its readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools.loading import load_later
from streamtools.serving.event_log import EventLog, MemoryEventLog, log_key
from streamtools.serving.journal import Attachment
from streamtools.serving.run import Run
from streamtools.serving.runs import Runs
from streamtools.stream.driver import Startable

__all__ = ["Attachment", "EventLog", "MemoryEventLog", "RedisStore", "Run", "Runs", "Startable", "log_key"]

if TYPE_CHECKING:
    from streamtools.serving.redis_store import RedisStore
else:  # loaded on use, because few programs need it; a type checker would accept any name
    __getattr__, __dir__ = load_later(__name__, {"RedisStore": ".serving.redis_store"})
