"""The `ToolContext`: how a running tool sees its call.

A function receives it by annotation, under any parameter name: `def search(query: str, context: ToolContext)`. The
model does not see that parameter. One class serves coroutines and threads: a thread only touches plain attributes and
`progress`, which passes the data to the event loop.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic

import anyio.from_thread
from typing_extensions import TypeVar

from streamtools.errors import StreamToolsError

State = TypeVar("State", default=Any)

Report = Callable[[Any], Awaitable[object]]
"""Receives progress in the event loop, and waits while the consumer is slow."""


class CallEnded(StreamToolsError):
    """Raised by `ToolContext.progress()` in a thread whose call has ended."""


async def discard(value: Any) -> None:
    """Discard progress or an event that no consumer reads."""


class ToolContext(Generic[State]):
    """The call that a tool is running for.

    `call_id` and `name` are those of the call. `state` is what the application passed as `tool_state`, for example a
    user or a database; `ToolContext[Session]` gives it a type.

    >>> context = ToolContext("call_1", "search", state={"user": "Ann"})
    >>> context.state["user"], context.cancelled, context.remaining
    ('Ann', False, inf)
    """

    __slots__ = ("_loop_thread", "call_id", "cancelled", "deadline", "name", "report", "state")

    def __init__(
        self,
        call_id: str = "",
        name: str = "",
        *,
        state: State = None,  # type: ignore[assignment]  # the default has no type of its own
        report: Report = discard,
    ) -> None:
        """Create a context, in the thread of the event loop. Without arguments it serves calls by hand, as in a test.

        `report` receives progress.
        """
        self.call_id = call_id
        self.name = name
        self.state = state
        self.cancelled = False
        """Whether the call has ended: it timed out, or the run was cancelled. A thread has to check it, because a
        thread cannot be stopped. A coroutine is cancelled instead."""
        self.deadline = math.inf
        """When the call times out, in seconds of `time.monotonic()`."""
        self.report = report
        """Receives progress, in the thread of the event loop."""
        self._loop_thread = threading.get_ident()

    @property
    def remaining(self) -> float:
        """Seconds until the call times out; never less than 0."""
        return max(0.0, self.deadline - time.monotonic())

    def progress(self, data: Any) -> Awaitable[None]:
        """Send progress to the interface; the model does not see it. `data` is anything that can be written as JSON.

        In a coroutine, await it. In a thread, just call it: it returns when the progress has been taken. There it
        raises `CallEnded` if the call has ended, so that the thread ends too.
        """
        if self.report is discard:
            return _Done()
        if threading.get_ident() == self._loop_thread:
            return self._send(data)
        if not self.cancelled:
            anyio.from_thread.run(self._send, data)
        if self.cancelled:
            raise CallEnded(f"the call of tool {self.name!r} has ended")
        return _Done()

    async def _send(self, data: Any) -> None:
        if not self.cancelled:
            await self.report(data)


class _Done:
    """An awaitable that completes immediately."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield
