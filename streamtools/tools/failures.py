"""Tells a failure of code that we called from a request to stop us. Both arrive as exceptions, and look alike.

On asyncio, a `CancelledError` that was not sent to our task is a failure: the tool awaited something that was
cancelled. Otherwise it would end the task silently. `SystemExit`, `KeyboardInterrupt` and other exceptions outside
`Exception` are for the program. Call both functions where the exception was caught.
"""

from __future__ import annotations

import asyncio
import math

import anyio


def is_failure(error: BaseException) -> bool:
    """Return whether the called code failed. If not, the exception must propagate."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_failure, error.exceptions))
    if isinstance(error, asyncio.CancelledError):
        return is_stray(error)
    return isinstance(error, Exception | GeneratorExit)


def is_stray(error: BaseException) -> bool:
    """Return whether this is a `CancelledError` that was not sent to our task."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return True  # trio has its own exception
    task = asyncio.current_task()  # it may have been cancelled directly, or by a cancel scope around us
    return anyio.current_effective_deadline() != -math.inf and (task is None or task.cancelling() == 0)
