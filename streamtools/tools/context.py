"""Defines the `ToolContext`, the object through which a running tool accesses its call.

The parameter that is annotated with this type receives it: `def search(query: str, context: ToolContext)`. The
parameter may have any name, and the model does not see it. Tools in coroutines and in threads get the same class. In a
thread, a tool may use the attributes of the context, and `progress`, which passes the data to the event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic

import anyio.from_thread
from typing_extensions import TypeVar

from streamtools.errors import Checked, StreamToolsError

State = TypeVar("State", default=Any)

Report = Callable[[Any], Awaitable[object]]
"""A function that receives progress, in the event loop. It waits while the consumer is slow."""


class CallEnded(StreamToolsError):
    """Raised by `ToolContext.progress()` in a thread whose call has ended."""


class Completed:
    """An awaitable that completes immediately."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


async def discard(value: Any) -> None:
    """Discard progress or an event that no consumer reads."""


class ToolContext(Checked, Generic[State]):
    """The call that a tool is running for.

    `call_id` is the id of the call, and `name` the name of its tool. `state` is the object that the application passed
    as `RunnerOptions.state`, for example a user or a database. `ToolContext[Session]` declares the type of `state`.

    >>> context = ToolContext(call_id="call_1", name="search", state={"user": "Ann"})
    >>> context.state["user"], context.cancelled
    ('Ann', False)
    """

    __slots__ = ("_loop_thread", "call_id", "cancelled", "name", "report", "state")

    def __init__(
        self,
        *,
        call_id: str = "",
        name: str = "",
        state: State = None,  # type: ignore[assignment]  # None is not an instance of `State`
        report: Report = discard,
    ) -> None:
        """Create a context. Call this in the thread of the event loop.

        `report` receives progress. A context without arguments can be passed to a tool in a test.
        """
        self.call_id = call_id
        self.name = name
        self.state = state
        self.cancelled = False
        """Whether the call has ended, for example because it timed out or its run was cancelled.

        A tool that runs in a thread should check it, because a thread cannot be stopped. A coroutine is cancelled.
        """
        self.report = report
        """The function that receives progress. It is called in the thread of the event loop."""
        self._loop_thread = threading.get_ident()

    def progress(self, data: Any) -> Awaitable[None]:
        """Send progress to the interface. The model does not see it. `data` is any value that JSON can express.

        In a coroutine, await the returned object. In a thread, a call is enough: the method returns when the progress
        is in the buffer of the run and the buffer has room. In a thread, the method raises `CallEnded` if the call has
        ended, so that the thread also ends.
        """
        if self.report is discard:
            return Completed()
        if threading.get_ident() == self._loop_thread:
            return self._send_progress(data)
        if not self.cancelled:
            anyio.from_thread.run(self._send_progress, data)
        if self.cancelled:
            raise CallEnded(f"the call of tool {self.name!r} has ended")
        return Completed()

    async def _send_progress(self, data: Any) -> None:
        if not self.cancelled:
            await self.report(data)
