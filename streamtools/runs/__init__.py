"""Runs that outlive the connections that asked for them: driven by tasks of their own, read from any position.

    async with Runs() as runs:  # for as long as the app lives
        run = await runs.start(chat(model, messages, tools=tools), owner=user)
        async with run.attach() as events:
            async for event in events:
                ...

`attach`, `detach` and `stop` are three verbs. A run is driven by a task of its own, and what it says goes into a log;
those who read, read the log, each at its own pace and from any position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools.loading import load_later
from streamtools.serving.event_log import EventLog, MemoryEventLog, log_key
from streamtools.serving.journal import Attachment
from streamtools.serving.run import Run
from streamtools.serving.run_group import Runs
from streamtools.stream.driver import Startable

__all__ = ["Attachment", "EventLog", "MemoryEventLog", "RedisStore", "Run", "Runs", "Startable", "log_key"]

if TYPE_CHECKING:
    from streamtools.serving.redis_store import RedisStore
else:  # loaded when it is used, as few use it; to a type checker it would say that every name is there
    __getattr__, __dir__ = load_later(__name__, {"RedisStore": ".serving.redis_store"})
