"""One call of one tool, bounded in time, whatever kind of function it is.

Async functions run where we are, sync ones in a thread. Of generators each yield is progress, and the last thing said
is the result: what a sync generator returns, else what was yielded last (a `ToolResult` that is yielded is only that).

Three endings look alike and must not be confused. Our own clock ran out: `ToolTimeout`. Somebody stops *us*: that
passes through, or nothing could ever be stopped. The tool failed: `ToolFailed`; `failures` tells it from the others.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import anyio

from streamtools.errors import ToolFailed, ToolInputError, ToolOutputError, ToolTimeout
from streamtools.tools.context import Report, ToolContext
from streamtools.tools.definition import Tool
from streamtools.tools.failures import is_failure
from streamtools.tools.outcome import ToolError, ToolResult, Written
from streamtools.tools.threads import Thread, Threads, in_thread, last_in_thread

if TYPE_CHECKING:
    from streamtools.tools.signature import Arguments

TIMEOUT = 60.0
"""Seconds that a tool may take if nobody says otherwise."""


async def invoke(
    tool: Tool,
    arguments: Mapping[str, Any],
    context: ToolContext | None = None,
    *,
    timeout: float = TIMEOUT,
    thread: Thread | None = None,
) -> Written:
    """Return what the tool makes of the arguments, in the forms for the interface and for the model.

    `timeout` is in seconds, for tools without their own; while the context's `report` waits, the clock stands still.
    Raises `ToolCallFailed`, of the kind that tells what happened, and whatever `report` raises: progress that cannot be
    told ends the call, also where the tool takes no notice. `context` and `thread` serve one call; afterwards `thread`
    tells whether the tool has been left behind at work.
    """
    context = ToolContext(name=tool.name) if context is None else context
    thread = Thread(Threads(), tool.name) if thread is None else thread
    report = context.report
    args, kwargs = _arguments(tool, arguments)
    if tool.context is not None:
        kwargs[tool.context] = context
    seconds = timeout if tool.timeout is None else tool.timeout
    scope = anyio.CancelScope(deadline=anyio.current_time() + seconds)
    value: Any = None
    cause: BaseException | None = None
    untold: BaseException | None = None
    telling = 0
    left = math.inf

    async def told(progress: Any) -> None:
        nonlocal untold, telling, left
        if not telling:
            left = scope.deadline - anyio.current_time()
            scope.deadline = context.deadline = math.inf
        telling += 1
        try:
            await report(_written(tool, tool.write_progress, progress).value)
        except Exception as error:
            untold = error
            raise
        finally:
            telling -= 1
            if not telling:
                scope.deadline = anyio.current_time() + left
                context.deadline = time.monotonic() + left

    context.report = told
    context.deadline = time.monotonic() + seconds
    try:
        with scope:
            value = await _run(tool, functools.partial(tool.function, *args, **kwargs), told, thread)
    except BaseException as error:
        cause = _innermost(error)
        if cause is not untold and not is_failure(error):
            raise
    finally:
        context.cancelled = True
    if untold is not None:
        raise untold
    if cause is None and not scope.cancelled_caught:
        return _written(tool, tool.write, value)
    if scope.cancel_called:
        raise ToolTimeout(tool.name, f"tool {tool.name!r} did not end within {seconds:g} seconds") from cause
    raise _failure(tool, cause) from cause


def take(tool: Tool, value: Any) -> Written:
    """Return what came of a call that was carried out elsewhere, in the same forms. Raises `ToolOutputError`."""
    return _written(tool, lambda value: tool.write(tool.read_answer(value)), value)


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


def _written(tool: Tool, write: Callable[[Any], Written], value: Any) -> Written:
    try:
        return write(value)
    except ToolOutputError:
        raise
    except Exception as error:
        text = f"tool {tool.name!r} returned what cannot be written as JSON"
        raise ToolOutputError(tool.name, text) from error


async def _run(tool: Tool, work: Callable[[], Any], told: Report, thread: Thread) -> Any:
    if tool.yields:
        return await (_last_of(work(), told) if tool.is_async else last_in_thread(work, told, thread))
    value = work() if tool.is_async else await in_thread(work, thread)
    return await value if inspect.isawaitable(value) else value


async def _last_of(steps: AsyncGenerator[Any, None], told: Report) -> Any:
    value = None
    async with contextlib.aclosing(steps):
        async for value in steps:
            if not isinstance(value, ToolResult):
                await told(value)
    return value
