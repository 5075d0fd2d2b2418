"""Runs sync functions and generators in threads, and accounts for the threads that outlive their call.

A thread cannot be stopped, only abandoned. An abandoned thread is counted until it ends. Then its late result is
dropped and logged.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

from streamtools.logs import Logger
from streamtools.tools.context import Report
from streamtools.tools.failures import is_failure
from streamtools.tools.results import ToolResult

log = Logger(__name__)


@dataclass(slots=True, eq=False)
class Threads:
    """How many abandoned threads still run (`left`), and how many have ended with a dropped result (`dropped`)."""

    left: int = 0
    dropped: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


@dataclass(slots=True, eq=False)
class Thread:
    """The thread of one call. `is_abandoned` is set if its call ended while it was working."""

    threads: Threads
    tool: str = ""
    call_id: str = ""
    is_abandoned: bool = False
    is_working: bool = False
    is_stopped: bool = False

    def start_work(self) -> bool:
        """Mark the thread as working, and return True; return False if its call has ended. Called in the thread."""
        with self.threads.lock:
            self.is_working = not self.is_stopped
            return self.is_working

    def end_work(self) -> None:
        """Mark the thread as done or waiting. Called in the thread."""
        with self.threads.lock:
            self.is_working = False
            if not self.is_abandoned:
                return
        try:  # log first: when `left` is 0, all log records exist
            log.warning("tool_result_dropped", tool=self.tool, call_id=self.call_id)
        finally:
            with self.threads.lock:
                self.threads.left -= 1
                self.threads.dropped += 1

    def stop(self) -> None:
        """Stop the thread at its next yield, and count it as abandoned if it is working. Called by the task."""
        with self.threads.lock:
            self.is_stopped = True
            if self.is_working:
                self.is_abandoned = True
                self.threads.left += 1


async def run_in_thread(work: Callable[[], Any], thread: Thread) -> Any:
    """Return the result of `work`. After a cancellation the thread continues alone, and its result is dropped.

    Each thread has its own limiter. The runner limits the calls, and an abandoned thread must not block other calls.
    """

    def boxed() -> tuple[Any]:  # a tuple, because trio refuses a function that returns a coroutine
        if not thread.start_work():
            return (None,)
        try:
            return (work(),)
        finally:
            thread.end_work()

    try:
        (value,) = await anyio.to_thread.run_sync(boxed, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    except BaseException:
        thread.stop()
        raise
    return value


async def run_generator_in_thread(work: Callable[[], Generator[Any, None, Any]], report: Report, thread: Thread) -> Any:
    """Run a generator in one thread. Reports what it yields, and returns its last value.

    Yielded values are passed to our task, so that nothing is reported after a cancellation. An abandoned generator ends
    at its next yield. One that waits at a yield ends immediately.
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
                if thread.is_abandoned:  # the event loop may be closed by now
                    return None
                if not isinstance(value, ToolResult):
                    thread.end_work()
                    anyio.from_thread.run(outbox.send, value)
                    if not thread.start_work():
                        return None

    async def work_in_thread() -> None:
        nonlocal result, failure
        with outbox:
            try:
                result = await run_in_thread(step_through, thread)
            except BaseException as error:
                if not is_failure(error):
                    raise
                failure = error  # raised below, outside of the exception group

    with inbox, outbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work_in_thread)
            async for value in inbox:
                await report(value)
    if failure is not None:
        raise failure
    return result
