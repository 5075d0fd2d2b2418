"""One call of one tool, bounded in time, whatever kind of function it is.

Async functions run where we are, sync ones in a thread. Of generators each yield is progress, and the last thing said
is the result: what a sync generator returns, else what was yielded last (a `ToolResult` that is yielded is only that).

Three endings look alike and must not be confused. Our own clock ran out: `ToolTimeout`. Somebody stops *us*: that
passes through, or nothing could ever be stopped. The tool failed: `ToolFailed`, and this includes `SystemExit`, since a
function that a model chose to call does not end the server, and on asyncio a `CancelledError` that nobody sent to our
task (the tool awaited something that was cancelled), which would otherwise end the task without a word.
`KeyboardInterrupt` and other exceptions outside `Exception` pass: they are meant for the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

from streamtools.errors import ToolFailed, ToolInputError, ToolOutputError, ToolTimeout
from streamtools.tools.definition import Tool
from streamtools.tools.outcome import ToolError, ToolResult, Written
from streamtools.tools.signature import Arguments

TIMEOUT = 60.0
"""Seconds that a tool may take if nobody says otherwise."""

Report = Callable[[Any], Awaitable[object]]
"""Takes what a tool yields while it works, as plain values."""


async def invoke(tool: Tool, arguments: Mapping[str, Any], *, timeout: float, report: Report) -> Written:
    """Return what the tool makes of the arguments, in the forms for the interface and for the model.

    `timeout` is in seconds, for tools without their own; while `report` waits, the clock stands still. Raises
    `ToolCallFailed`, of the kind that tells what happened, and whatever `report` raises.
    """
    args, kwargs = _arguments(tool, arguments)
    seconds = timeout if tool.timeout is None else tool.timeout
    scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
    value: Any = None
    cause: BaseException | None = None
    unheard: BaseException | None = None

    async def told(progress: Any) -> None:
        nonlocal unheard
        left = scope.deadline - anyio.current_time()
        scope.deadline = math.inf
        try:
            await report(_written(tool, progress).value)
        except Exception as error:
            unheard = error
            raise
        scope.deadline = anyio.current_time() + left

    try:
        with scope:
            value = await _run(tool, functools.partial(tool.function, *args, **kwargs), told)
    except BaseException as error:
        cause = _innermost(error)
        if cause is not unheard and not is_failure(error):
            raise
    if unheard is not None and cause is unheard:
        raise unheard
    if cause is None and not scope.cancelled_caught:
        return _written(tool, value)
    if scope.cancel_called:
        raise ToolTimeout(tool.name, f"tool {tool.name!r} did not end within {seconds:g} seconds") from cause
    raise _failure(tool, cause) from cause


def is_failure(error: BaseException) -> bool:
    """Return whether code that we called has failed, rather than we were told to stop. Call it where it was caught."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_failure, error.exceptions))
    if isinstance(error, asyncio.CancelledError):
        return not _told_to_stop()
    return isinstance(error, Exception | SystemExit | GeneratorExit)


def _told_to_stop() -> bool:
    """Return whether asyncio is cancelling the current task, by itself or for a cancel scope around us."""
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return False  # trio has an exception of its own
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)


def _innermost(error: BaseException) -> BaseException:
    """Return the one exception that groups of one hold; a tool that uses a task group raises them."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _failure(tool: Tool, cause: BaseException | None) -> ToolFailed:
    text = str(cause) if isinstance(cause, ToolError) else ""
    return ToolFailed(tool.name, text or f"tool {tool.name!r} failed")


def _arguments(tool: Tool, arguments: Mapping[str, Any]) -> Arguments:
    try:
        return tool.read(arguments)
    except ToolInputError:
        raise
    except Exception as error:  # a validator of the user's own that breaks
        raise _failure(tool, error) from error


def _written(tool: Tool, value: Any) -> Written:
    try:
        return tool.write(value)
    except Exception as error:
        text = f"tool {tool.name!r} returned what cannot be written as JSON"
        raise ToolOutputError(tool.name, text) from error


async def _run(tool: Tool, work: Callable[[], Any], told: Report) -> Any:
    if tool.yields:
        return await (_last_of(work(), told) if tool.is_async else _last_in_thread(work, told))
    value = work() if tool.is_async else await _in_thread(work)
    return await value if inspect.isawaitable(value) else value


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Return the result of `work`. If we are stopped, the thread goes on alone, and what it says then is dropped.

    Its limiter is its own: the runner bounds the calls, and an abandoned thread holds no place that others wait for.
    """

    def boxed() -> tuple[Any]:  # trio refuses a function that returns a coroutine, which a lambda may well do
        return (work(),)

    (value,) = await anyio.to_thread.run_sync(boxed, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    return value


async def _last_of(steps: AsyncGenerator[Any, None], told: Report) -> Any:
    value = None
    async with contextlib.aclosing(steps):
        async for value in steps:
            if not isinstance(value, ToolResult):
                await told(value)
    return value


async def _last_in_thread(work: Callable[[], Generator[Any, None, Any]], told: Report) -> Any:
    """Return the last word of a generator that lives in one thread from its start to its end.

    What it yields is handed over to our task, so that nothing is told after we were stopped. A thread that was left
    behind ends at its next yield.
    """
    outbox, inbox = anyio.create_memory_object_stream[Any](0)
    result: Any = None
    failure: BaseException | None = None
    is_left = False

    def step_through() -> Any:
        value = None
        with contextlib.closing(work()) as steps:
            while True:
                try:
                    value = next(steps)
                except StopIteration as end:
                    return value if end.value is None else end.value
                if is_left:  # and the event loop may be closed by now
                    return None
                if not isinstance(value, ToolResult):
                    anyio.from_thread.run(outbox.send, value)

    async def work_in_thread() -> None:
        nonlocal result, failure
        with outbox:
            try:
                result = await _in_thread(step_through)
            except BaseException as error:
                if not is_failure(error):
                    raise
                failure = error  # raised below: a task that ends with SystemExit would end the whole loop

    try:
        with inbox, outbox:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work_in_thread)
                async for value in inbox:
                    await told(value)
    finally:
        is_left = True
    if failure is not None:
        raise failure
    return result
