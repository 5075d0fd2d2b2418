"""Calls functions of the application, and distinguishes their failures from requests to stop the current task.

Failures and requests to stop are both raised as exceptions. On asyncio, a `CancelledError` may be either. If the
current task was cancelled, the error must propagate. If the called code awaited a different task that was cancelled,
the error is a failure. Such an error must not propagate, because it would silently end the current task. `SystemExit`,
`KeyboardInterrupt` and most other exceptions that do not inherit from `Exception` must propagate. Call `is_failure` and
`is_stray` in the `except` block that caught the exception.
"""

from __future__ import annotations

import asyncio
import math
from inspect import isawaitable
from typing import Any

import anyio

from streamtools.errors import check_result


async def call_function(name: str, function: Any, *arguments: Any, kinds: Any = object, expected: str = "") -> Any:
    """Call a function of the application, which may be async, and return its result.

    Raises TypeError if the result is not of the `kinds`. `name` and `expected` are the arguments of `check_result`.
    """
    returned = function(*arguments)
    result = await returned if isawaitable(returned) else returned
    check_result(name, function, result, kinds, expected)
    return result


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
