"""Reads and closes a source or another asynchronous iterable."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from typing import Protocol, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from streamtools.events import SourceEvent
from streamtools.logs import Logger, loggable
from streamtools.tools.failures import is_failure

log = Logger(__name__)

YIELD_EVERY = 256
"""Number of items after which `read_into` lets other tasks run, because an iterable may never wait."""
CLOSE_TIMEOUT = 10.0
"""The default time limit of `close`, in seconds."""

Item = TypeVar("Item")


class EventSource(Protocol):
    """An asynchronous iterator of batches of source events. `aclose` stops it."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Sequence[SourceEvent]: ...
    async def aclose(self) -> None: ...


Take: TypeAlias = Callable[[Item], Awaitable[object] | bool]


async def read_into(items: AsyncIterable[Item], take: Take[Item], *, yield_every: int = YIELD_EVERY) -> bool:
    """Pass each item to `take` until `take` returns True or an awaitable of True.

    Returns True if all items were read, and False if `take` ended the reading. After every `yield_every` items, other
    tasks run.
    """
    count = 0
    async for item in items:
        is_done = take(item)
        if is_done is not False and (is_done is True or await is_done):
            return False
        count += 1
        if not count % yield_every:
            await anyio.lowlevel.checkpoint()
    return True


async def close(
    closable: object, *, seconds: float | None = None, complaint: str = "stream_not_closed", **fields: str
) -> None:
    """Call `aclose` of an object, if it has this method.

    The call is shielded from cancellation. It is cancelled after `seconds`; None means `CLOSE_TIMEOUT`. A failure is
    logged as the event `complaint` with `fields`.
    """
    aclose: Callable[[], Awaitable[object]] | None = getattr(closable, "aclose", None)
    if aclose is None:
        return
    with anyio.move_on_after(CLOSE_TIMEOUT if seconds is None else seconds, shield=True) as scope:
        try:
            await aclose()
        except BaseException as error:
            if not is_failure(error):
                raise
            log.warning(complaint, **fields, **loggable(error))
    if scope.cancelled_caught:
        log.warning(complaint, **fields, error="it takes too long")
