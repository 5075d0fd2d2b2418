"""Sync tools in threads, so that they block nobody; a thread cannot be stopped, only left behind.

One that is left behind is told of and counted, until it ends, and then once more: what it returns so late is dropped.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import structlog

from streamtools.tools.context import Report
from streamtools.tools.failures import is_failure
from streamtools.tools.outcome import ToolResult

log = structlog.get_logger(__name__)


class Threads:
    """How many threads have been left behind: those that are still at work, and those whose result came too late."""

    __slots__ = ("dropped", "left", "lock")

    def __init__(self) -> None:
        self.left = 0
        self.dropped = 0
        self.lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Threads left={self.left} dropped={self.dropped}>"


class Thread:
    """The thread of one call; `is_left` once it has been left behind at work."""

    __slots__ = ("_call_id", "_is_stopped", "_is_working", "_threads", "_tool", "is_left")

    def __init__(self, threads: Threads, tool: str = "", call_id: str = "") -> None:
        self.is_left = False
        self._threads = threads
        self._tool = tool
        self._call_id = call_id
        self._is_working = False
        self._is_stopped = False

    def begin(self) -> bool:
        """Return, in the thread, whether to work, or to go on: it may have been stopped meanwhile."""
        with self._threads.lock:
            self._is_working = not self._is_stopped
            return self._is_working

    def end(self) -> None:
        """Take note, in the thread, that the work is done, or waits."""
        with self._threads.lock:
            self._is_working = False
            if not self.is_left:
                return
            self._threads.left -= 1
            self._threads.dropped += 1
        log.warning("tool_result_dropped", tool=self._tool, call_id=self._call_id)

    def leave(self) -> None:
        """Take note that nobody waits any more."""
        with self._threads.lock:
            self._is_stopped = True
            if self._is_working:
                self.is_left = True
                self._threads.left += 1


async def in_thread(work: Callable[[], Any], thread: Thread) -> Any:
    """Return the result of `work`. If we are stopped, the thread goes on alone, and what it says then is dropped.

    Its limiter is its own: the runner bounds the calls, and an abandoned thread holds no place that others wait for.
    """

    def boxed() -> tuple[Any]:  # trio refuses a function that returns a coroutine, which a lambda may well do
        if not thread.begin():
            return (None,)
        try:
            return (work(),)
        finally:
            thread.end()

    try:
        (value,) = await anyio.to_thread.run_sync(boxed, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    except BaseException:
        thread.leave()
        raise
    return value


async def last_in_thread(work: Callable[[], Generator[Any, None, Any]], told: Report, thread: Thread) -> Any:
    """Return the last word of a generator that lives in one thread from its start to its end.

    What it yields is handed over to our task, so that nothing is told after we were stopped. A thread that was left
    behind ends at its next yield; one that waits there is not at work, and ends at once.
    """
    outbox, inbox = anyio.create_memory_object_stream[Any](0)
    result: Any = None
    failure: BaseException | None = None

    def step_through() -> Any:
        value = None
        with contextlib.closing(work()) as steps:
            while True:
                try:
                    value = next(steps)
                except StopIteration as end:
                    return value if end.value is None else end.value
                if thread.is_left:  # and the event loop may be closed by now
                    return None
                if not isinstance(value, ToolResult):
                    thread.end()
                    anyio.from_thread.run(outbox.send, value)
                    if not thread.begin():
                        return None

    async def work_in_thread() -> None:
        nonlocal result, failure
        with outbox:
            try:
                result = await in_thread(step_through, thread)
            except BaseException as error:
                if not is_failure(error):
                    raise
                failure = error  # raised below: a task that ends with SystemExit would end the whole loop

    with inbox, outbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work_in_thread)
            async for value in inbox:
                await told(value)
    if failure is not None:
        raise failure
    return result
