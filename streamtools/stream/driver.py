"""Drives a stream: enters it, reads it, and leaves it, in one task, even if it is stopped.

A run and a connection (`serving`) drive a `ToolStream`, or another iterator of events, with a `Driver`. A cancel scope
around entering or around reading stops the task. The task then leaves the stream as after a `break`, which closes the
source within a limited time.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

import anyio

from streamtools.events import UIEvent
from streamtools.logs import Logger
from streamtools.stream.reading import read_into

log = Logger(__name__)

Startable: TypeAlias = AbstractAsyncContextManager[AsyncIterable[UIEvent]]
"""What can run: a `ToolStream`, a chat, a replay, or a function with `@asynccontextmanager` that yields one."""


class Sink(Protocol):
    """Takes the events that a driver reads."""

    async def begin(self) -> None:
        """Called once the stream has been entered."""

    async def take(self, event: UIEvent, /) -> object:
        """Take the next event; return True to end the reading."""

    async def finish(self) -> None:
        """Called after the last event, before the stream is left. `cut` cancels this too."""


class Driver:
    """Drives one stream, in the task that calls `drive`; any task may call the other methods.

    With `shield`, cancelling the task does not reach the stream, and only `cut` ends it. A stream may hold cancel
    scopes and task groups of its own, so the shield is the outermost scope, opened before the stream is entered.
    Leaving the stream may take `closing` seconds.
    """

    def __init__(self, stream: Startable, *, shield: bool = False, closing: float = math.inf) -> None:
        self.events: AsyncIterable[UIEvent] | None = None
        """What the stream returned when it was entered."""
        self.is_exhausted = False
        """Whether all events have been read."""
        self.was_cut = False
        """Whether `cut` has been called."""
        self.stream = stream
        self._closing = closing
        self._whole = anyio.CancelScope(shield=shield)
        self._reading = anyio.CancelScope()
        self.scope = self._whole
        """The scope of the task, except while it leaves. Its deadline applies to entering and to reading."""

    @property
    def is_cut(self) -> bool:
        """Whether `cut` or a deadline ended entering or reading."""
        return self.was_cut or (self._whole if self.events is None else self._reading).cancel_called

    def cut(self, *, leaving: bool = False) -> None:
        """End entering or reading, so that the task leaves the stream; with `leaving`, end that too."""
        self.was_cut = True
        self.scope.cancel()
        if leaving:
            self._whole.cancel()

    async def drive(self, sink: Sink) -> None:
        """Enter, read to the end, and leave. Raises what the stream and the sink raise, after `sink.finish()`."""
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
