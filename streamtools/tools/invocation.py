"""Invokes the function of a tool with the arguments of one call, within a timeout.

The function may be sync, async or an async generator. A sync function runs in a thread, any other function in the
current task. Each value that a generator yields is reported as progress, except a `ToolResult`. The result of a
generator is the last value that it yielded.

A thread that runs code of the tool cannot be stopped. If its call ends early, the thread is abandoned. Its late result
is dropped.

Invalid arguments raise `ToolInputError`. An invalid result raises `ToolOutputError`. A timeout raises `ToolTimeout`.
Any other failure of the tool raises `ToolFailed`. An exception of `report` and a cancellation of the current task
propagate unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

import anyio
import anyio.to_thread

from streamtools.errors import ToolFailed, ToolInputError, ToolOutputError, ToolTimeout, described, place_of
from streamtools.tools.cancellation import is_failure
from streamtools.tools.context import Report, ToolContext
from streamtools.tools.results import ToolError, ToolResult, Written, write
from streamtools.tools.tool import Tool


class Thread:
    """The state of the thread of one call."""

    def __init__(self) -> None:
        self.is_abandoned = False
        """True if the call failed or was cancelled while the thread ran the tool."""
        self._is_working = False
        self._is_stopped = False  # True if the call failed or was cancelled before the thread returned a result
        self._lock = threading.Lock()

    def start_work(self) -> bool:
        """Mark the thread as working and return True, or return False if its call has ended. Called in the thread."""
        with self._lock:
            self._is_working = not self._is_stopped
            return self._is_working

    def end_work(self) -> None:
        """Mark the thread as done. Called in the thread."""
        with self._lock:
            self._is_working = False

    def stop(self) -> None:
        """Prevent the thread from starting its work. If it is working, mark it as abandoned. Called by the task."""
        with self._lock:
            self._is_stopped = True
            self.is_abandoned = self._is_working


async def run_in_thread(work: Callable[[], Any], thread: Thread) -> Any:
    """Run `work` in a thread and return its result.

    After a cancellation, the thread continues and its result is dropped. Each thread gets a new limiter, so that an
    abandoned thread does not block other calls. The runner limits the number of concurrent calls.
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


TIMEOUT = 60.0
"""The default timeout of a tool, in seconds."""


async def invoke(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext | None = None,
    *,
    timeout: float = TIMEOUT,
    thread: Thread | None = None,
) -> Written:
    """Call the function of a tool, and return its serialized result.

    `timeout` is the time limit in seconds, used if the tool has no timeout. Time spent in the context's `report` does
    not count. A `context` or a `thread` can be used for only one call. After the call, `thread.is_abandoned` says
    whether the call ended while its thread was working.

    Raises a subclass of `ToolCallFailed` if the call fails. If `report` raises an exception, the call raises it too,
    even if the tool has caught it.
    """
    context = ToolContext(name=tool.name) if context is None else context
    thread = Thread() if thread is None else thread
    try:
        args, kwargs = tool.read(arguments)
    except ToolInputError:
        raise
    except Exception as error:  # a bug in a validator of the application
        raise _failure(tool, error) from error
    if tool.context is not None:
        kwargs[tool.context] = context
    seconds = timeout if tool.timeout is None else tool.timeout
    scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
    reporter = context.report = _ProgressReporter(tool, context.report, scope)
    value: Any = None
    cause: BaseException | None = None
    try:
        with scope:
            value = await _call(tool, functools.partial(tool.function, *args, **kwargs), reporter, thread)
    except BaseException as error:
        cause = error
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:  # raised by a task group
            cause = cause.exceptions[0]
        if cause is not reporter.failure and not is_failure(error):
            raise
    finally:
        context.cancelled = True
    if reporter.failure is not None:
        raise reporter.failure
    if cause is None and not scope.cancelled_caught:
        return _write(tool, tool.write, value)
    if scope.cancel_called:
        raise ToolTimeout(tool.name, f"tool {tool.name!r} did not finish within {seconds:g} seconds") from cause
    raise _failure(tool, cause) from cause


class _ProgressReporter:
    """Serializes and reports the progress of a tool. The time limit of the call is paused while `report` waits."""

    def __init__(self, tool: Tool, report: Report, scope: anyio.CancelScope) -> None:
        self.failure: BaseException | None = None
        self._tool, self._report, self._scope = tool, report, scope
        self._waiting = 0
        self._seconds_left = math.inf

    async def __call__(self, progress: Any) -> None:
        with self._paused_clock():
            try:
                serialize = self._tool.write if self._tool._yields else write
                await self._report(_write(self._tool, serialize, progress).value)
            except Exception as error:
                self.failure = error
                raise

    @contextlib.contextmanager
    def _paused_clock(self) -> Iterator[None]:
        if not self._waiting:
            self._seconds_left = self._scope.deadline - anyio.current_time()
            self._scope.deadline = math.inf
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._scope.deadline = anyio.current_time() + self._seconds_left


def write_client_result(tool: Tool, value: Any) -> Written:
    """Serialize the result of a call that was executed elsewhere.

    Raises `ToolOutputError` if the result does not have the declared return type of the tool.
    """
    return _write(tool, lambda value: tool.write(tool.read_result(value)), value)


def _failure(tool: Tool, cause: BaseException | None) -> ToolFailed:
    text = str(cause) if isinstance(cause, ToolError) else ""
    return ToolFailed(tool.name, text or f"tool {tool.name!r} failed")


def _write(tool: Tool, write: Callable[[Any], Written], value: Any) -> Written:
    try:
        return write(value)
    except ToolOutputError:
        raise
    except Exception as error:
        error.add_note(f"{place_of(tool.function)} returned {described(value)}")
        problem = "cannot be written as JSON" + (": await the coroutine in it" if "coroutine" in str(error) else "")
        raise ToolOutputError(tool.name, f"the result of tool {tool.name!r} {problem}") from error


async def _call(tool: Tool, work: Callable[[], Any], report: Report, thread: Thread) -> Any:
    if tool._yields:
        return await _run_generator(work(), report)
    value = work() if tool.is_async else await run_in_thread(work, thread)
    return await value if inspect.isawaitable(value) else value


async def _run_generator(steps: AsyncGenerator[Any, None], report: Report) -> Any:
    value = None
    async with contextlib.aclosing(steps):
        async for value in steps:
            if not isinstance(value, ToolResult):
                await report(value)
    return value
