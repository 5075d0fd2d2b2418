"""Whether code that we called has failed, or we ourselves were told to stop: both come as exceptions, and look alike.

`SystemExit` is a failure, since a function that a model chose to call does not end the server, and on asyncio so is a
`CancelledError` that nobody sent to our task (the tool awaited something that was cancelled), which would otherwise end
the task without a word. `KeyboardInterrupt` and other exceptions outside `Exception` are meant for the program.
"""

from __future__ import annotations

import asyncio
import math

import anyio


def is_failure(error: BaseException) -> bool:
    """Return whether code that we called has failed, rather than we were told to stop. Call it where it was caught."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_failure, error.exceptions))
    if isinstance(error, asyncio.CancelledError):
        return is_stray(error)
    return isinstance(error, Exception | SystemExit | GeneratorExit)


def is_stray(error: BaseException) -> bool:
    """Return whether this is a `CancelledError` that nobody has sent to our task. Call it where it was caught."""
    return isinstance(error, asyncio.CancelledError) and not _told_to_stop()


def loggable(error: BaseException) -> dict[str, str]:
    """Return the type of an exception and the line that raised it, which is all that is safe to log of it.

    Of a group they are those of its first.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    place = "" if traceback is None else f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
    return {"error": type(error).__qualname__, "raised_at": place}


def _told_to_stop() -> bool:
    """Return whether asyncio is cancelling the current task, by itself or for a cancel scope around us."""
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return False  # trio has an exception of its own
    task = asyncio.current_task()
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)
