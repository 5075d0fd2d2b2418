"""Distinguishes failures of called code from requests to stop the current task. Both are raised as exceptions.

On asyncio, a `CancelledError` may be a failure or a request to stop. If the current task was cancelled, the error must
propagate. If the called code awaited a different task that was cancelled, the error is a failure. Such an error must
not propagate, because it would silently end the current task. `SystemExit`, `KeyboardInterrupt` and most other
exceptions that do not inherit from `Exception` must propagate. Call the functions of this module in the `except` block
that caught the exception.
"""

from __future__ import annotations

import asyncio
import math

import anyio


def is_failure(error: BaseException) -> bool:
    """Return True if the exception is a failure of the called code. Otherwise, the exception must propagate."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_failure, error.exceptions))
    if isinstance(error, asyncio.CancelledError):
        return is_stray(error)
    return isinstance(error, Exception | GeneratorExit)


def is_stray(error: BaseException) -> bool:
    """Return whether this is a `CancelledError` although the current task was not cancelled."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return True  # trio cancels with a different exception
    task = asyncio.current_task()  # may be cancelled directly or by a cancel scope
    return anyio.current_effective_deadline() != -math.inf and (task is None or task.cancelling() == 0)
