"""What a tool may know of the call that it answers, and how it speaks up before it is done.

A function asks for it by annotation, under any name: `def search(query: str, context: ToolContext)`. The model is told
nothing of that parameter. One object serves coroutines and threads alike: what a thread may touch are plain attributes,
and progress, which is handed over to the event loop.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio.from_thread

from streamtools.errors import StreamToolsError

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    State = TypeVarWithDefault("State", default=Any)
else:
    State = TypeVar("State")

Report = Callable[[Any], Awaitable[object]]
"""Takes what a tool says while it works, in the event loop; waits while nobody reads."""


class CallEnded(StreamToolsError):
    """Raised by `progress()` in a thread whose call has ended without it: there is nobody left to tell."""


async def unheard(progress: Any) -> None:
    """Take progress that nobody waits for."""


class ToolContext(Generic[State]):
    """One call, as its tool sees it.

    `call_id` and `name` are those of the call; `state` is whatever the application passed for its tools (a user, a
    database), and `ToolContext[Session]` says of what type it is.

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
        state: State = None,  # type: ignore[assignment]  # as long as nobody passes one
        report: Report = unheard,
    ) -> None:
        """Make a context in the event loop's thread; without arguments, one to call a tool's function with by hand."""
        self.call_id = call_id
        self.name = name
        self.state = state
        self.cancelled = False
        """Whether nobody waits for this call any more: it ran out of time, or its run was left. For threads, which
        cannot be stopped, to look at; a coroutine is cancelled where it waits."""
        self.deadline = math.inf
        """When the call runs out of time, in seconds of `time.monotonic()`."""
        self.report = report
        """Takes progress in the event loop's thread."""
        self._loop_thread = threading.get_ident()

    @property
    def remaining(self) -> float:
        """The seconds that are left before the call runs out of time; never less than 0."""
        return max(0.0, self.deadline - time.monotonic())

    def progress(self, data: Any) -> Awaitable[None]:
        """Tell the interface how far the tool is; `data` is anything that can be written as JSON, not for the model.

        In a coroutine, await it. In a thread, just call it: it returns when the progress has been taken, and raises
        `CallEnded` if the call has ended meanwhile, so that the thread ends too.
        """
        if self.report is unheard:
            return _Taken()
        if threading.get_ident() == self._loop_thread:
            return self._tell(data)
        if not self.cancelled:
            anyio.from_thread.run(self._tell, data)
        if self.cancelled:
            raise CallEnded(f"the call of tool {self.name!r} has ended")
        return _Taken()

    async def _tell(self, data: Any) -> None:
        if not self.cancelled:
            await self.report(data)


class _Taken:
    """Awaits nothing: the progress of a thread has been taken when `progress` returns."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield
