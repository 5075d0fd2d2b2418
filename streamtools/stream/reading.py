"""Reads and closes a source or another asynchronous iterable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, Self

import anyio

from streamtools.events import SourceEvent
from streamtools.logs import Logger, loggable
from streamtools.tools.failures import is_failure

log = Logger(__name__)

YIELD_EVERY = 256
"""Number of items after which a loop over an iterable lets other tasks run, because the iterable may never wait."""
CLOSE_TIMEOUT = 10.0
"""The default time limit of `close`, in seconds."""


class EventSource(Protocol):
    """An asynchronous iterator of batches of source events. `aclose` stops it."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Sequence[SourceEvent]: ...
    async def aclose(self) -> None: ...


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
