"""Drives a stream: enters it, reads it, hands each item over, and leaves it, in one task, whoever stops it meanwhile.

The task is stopped by the cancel scope in which it is at that moment: while it enters, and while it reads. Then it
leaves as after a `break`, which closes what is behind the stream, and that has a bounded time to do so.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import structlog

from streamtools.events import UIEvent
from streamtools.tools.call import is_failure, loggable

log = structlog.get_logger(__name__)

Item = TypeVar("Item")

Startable: TypeAlias = AbstractAsyncContextManager[AsyncIterable[UIEvent]]
"""What can be run: a `ToolStream`, a chat, a replay, or a function with `@asynccontextmanager` that yields one."""

YIELD_EVERY = 256  # items of something that never waits, until others get their turn and a cancellation its chance
CLOSING = 10.0  # seconds that what was read may take to close


async def read_into(
    items: AsyncIterable[Item], take: Callable[[Item], Awaitable[object]], *, yield_every: int = YIELD_EVERY
) -> bool:
    """Hand the items over one by one, until `take` returns True; return whether they came to their end instead."""
    count = 0
    async for item in items:
        if await take(item):
            return False
        count += 1
        if not count % yield_every:
            await anyio.lowlevel.checkpoint()
    return True


async def close(
    closable: object, *, seconds: float | None = None, complaint: str = "stream_not_closed", **of: str
) -> None:
    """Close what can be closed, whoever is cancelled meanwhile, within `seconds`; what cannot be is logged."""
    aclose: Callable[[], Awaitable[object]] | None = getattr(closable, "aclose", None)
    if aclose is None:
        return
    with anyio.move_on_after(CLOSING if seconds is None else seconds, shield=True) as scope:
        try:
            await aclose()
        except BaseException as error:
            if not is_failure(error):
                raise
            log.warning(complaint, **of, **loggable(error))
    if scope.cancelled_caught:
        log.warning(complaint, **of, error="it takes too long")


class Sink(Protocol):
    """Who is handed the events."""

    async def begin(self) -> None:
        """Begin: the stream has been entered."""

    async def take(self, event: UIEvent, /) -> object:
        """Take the next event; True if nothing behind it is wanted."""

    async def finish(self) -> None:
        """End: there are no more, and the stream is left behind that. `cut` cancels this too."""


class Driver:
    """Drives one stream, in the task that calls `drive`; the rest of it may be called from any task.

    `shield` keeps away from the stream whoever cancels the task, so that nothing but `cut` ends it. A stream may hold
    cancel scopes and task groups of its own: so the shield is the outermost of them all, and is there before the stream
    is entered. It has `closing` seconds to be left.
    """

    def __init__(self, stream: Startable, *, shield: bool = False, closing: float = math.inf) -> None:
        self.events: AsyncIterable[UIEvent] | None = None
        """What the stream gave when it was entered."""
        self.is_exhausted = False
        """Whether the events came to their end by themselves."""
        self.was_cut = False
        """Whether `cut` has been called."""
        self.stream = stream
        self._closing = closing
        self._whole = anyio.CancelScope(shield=shield)
        self._reading = anyio.CancelScope()
        self.scope = self._whole
        """In which the task is, but for its leaving; a deadline of it holds for the entering and for the reading."""

    @property
    def is_cut(self) -> bool:
        """Whether the entering or the reading was ended, by `cut` or by a deadline."""
        return self.was_cut or (self._whole if self.events is None else self._reading).cancel_called

    def cut(self, *, leaving: bool = False) -> None:
        """End what the task is at, so that it leaves the stream; its `leaving` too, if that is asked for."""
        self.was_cut = True
        self.scope.cancel()
        if leaving:
            self._whole.cancel()

    async def drive(self, sink: Sink) -> None:
        """Enter, read to the end, and leave. Raises what the stream and the sink raise, behind `sink.finish()`."""
        with self._whole:
            async with self.stream as events:
                self.events = events
                self._reading.deadline, self._whole.deadline = self._whole.deadline, math.inf
                self.scope = self._reading
                try:
                    await self._read(events, sink)
                finally:
                    self._whole.deadline = anyio.current_time() + self._closing
        if self._whole.cancelled_caught and self._whole.deadline <= anyio.current_time():
            log.warning("stream_not_closed", error="it takes too long")

    async def _read(self, events: AsyncIterable[UIEvent], sink: Sink) -> None:
        fault: Exception | None = None
        with self._reading:
            await sink.begin()
            try:
                self.is_exhausted = await read_into(events, sink.take)
            except Exception as error:
                fault = error
        with anyio.CancelScope(shield=True) as self.scope:
            await sink.finish()
        if fault is not None:
            raise fault
