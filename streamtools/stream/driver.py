"""Drives a stream: enters it, reads it, hands each item over, and leaves it, in one task, even if it is stopped.

`ToolStream` reads its source with `read_into`; `Driver` is how a run and a connection (`serving`) read a `ToolStream`
or another iterator of events.

The task is stopped by a cancel scope around entering or around reading. It then leaves the stream as after a `break`,
which closes the source behind it within a bounded time.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from streamtools.events import SourceEvent, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.tools.failures import is_failure

log = Logger(__name__)

Item = TypeVar("Item")

Startable: TypeAlias = AbstractAsyncContextManager[AsyncIterable[UIEvent]]
"""What can be run: a `ToolStream`, a chat, a replay, or a function with `@asynccontextmanager` that yields one."""


class EventSource(Protocol):
    """What a stream reads from: batches of source events, and a way to stop."""

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> Sequence[SourceEvent]: ...
    async def aclose(self) -> None: ...


class Flag:
    """What `anyio.Event` is, at a tenth of its memory until somebody waits; it is made anywhere, and set once."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: anyio.Event | None = None

    def is_set(self) -> bool:
        """Whether it has been set."""
        return self._is_set

    def set(self) -> None:
        """Wake all who wait."""
        self._is_set = True
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait until it has been set."""
        if self._is_set:
            await anyio.lowlevel.checkpoint()
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()


YIELD_EVERY = 256  # items of an iterable that never waits, between two checkpoints
CLOSING = 10.0  # seconds that closing may take


Take: TypeAlias = Callable[[Item], Awaitable[object] | bool]


async def read_into(items: AsyncIterable[Item], take: Take[Item], *, yield_every: int = YIELD_EVERY) -> bool:
    """Hand the items over one by one, until `take` returns True, at once or when it is awaited; return whether they
    ended before that.
    """
    count = 0
    async for item in items:
        over = take(item)
        if over is not False and (over is True or await over):
            return False
        count += 1
        if not count % yield_every:
            await anyio.lowlevel.checkpoint()
    return True


async def close(
    closable: object, *, seconds: float | None = None, complaint: str = "stream_not_closed", **of: str
) -> None:
    """Close an object that has `aclose`, shielded and within `seconds`; log a failure as `complaint`."""
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
    """Takes the events that a driver reads."""

    async def begin(self) -> None:
        """Called once the stream has been entered."""

    async def take(self, event: UIEvent, /) -> object:
        """Take the next event; return True to end the reading."""

    async def finish(self) -> None:
        """Called behind the last event, before the stream is left. `cut` cancels this too."""


class Driver:
    """Drives one stream, in the task that calls `drive`; the rest of it may be called from any task.

    With `shield`, cancelling the task does not reach the stream, and only `cut` ends it. A stream may hold cancel
    scopes and task groups of its own, so the shield is the outermost scope, opened before the stream is entered.
    Leaving the stream may take `closing` seconds.
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
        """The scope of the task except while it leaves; its deadline holds for entering and for reading."""

    @property
    def is_cut(self) -> bool:
        """Whether entering or reading was ended by `cut` or by a deadline."""
        return self.was_cut or (self._whole if self.events is None else self._reading).cancel_called

    def cut(self, *, leaving: bool = False) -> None:
        """End entering or reading, so that the task leaves the stream; with `leaving`, end that too."""
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
