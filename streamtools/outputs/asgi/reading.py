"""What a connection reads: a stream, a run, anything that gives UI events; opened, read and left in one task.

Two things are kept apart. *Leaving* is for a reader that has gone: what it read is closed, or a run goes on without it.
*Stopping* ends what is read, and the rest of it, its truthful `done` above all, is still read;
to what cannot say so itself, `done(cancelled)` is added here.

The task is shielded from whoever cancels the connection, because what a provider charges for has to be closed. It
listens to `leave` instead, and what it closes has a bounded time to do so: a stream may hold cancel scopes and task
groups of its own, so the shield has to be the outermost of them all and be there before the stream is entered.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, Protocol, TypeAlias

import anyio
import structlog

from streamtools.events import Done, UIEvent
from streamtools.runs import Run
from streamtools.stream import ToolStream
from streamtools.tools.decisions import Decidable

log = structlog.get_logger(__name__)

_CLOSING = 30.0  # seconds that a stream may take to close; a `ToolStream` bounds the closing of its source by itself

Readable: TypeAlias = "Run | AbstractAsyncContextManager[AsyncIterable[UIEvent]] | AsyncIterable[UIEvent]"
"""A run, a `ToolStream` or a chat or another context manager that gives UI events, or just an iterable of them."""

OnDisconnect: TypeAlias = Literal["stop", "detach"]
"""What a reader that has gone means for what it read."""


class Reader(Protocol):
    """Who reads."""

    async def begin(self) -> None:
        """Be told that the events are about to come."""

    async def take(self, event: UIEvent) -> None:
        """Take the next."""

    async def finish(self) -> None:
        """Be told that there are no more; not told to a reader that has left."""


class Reading:
    """One reading of a run, a stream or an iterable, for one connection.

    `after` is the `seq` of the last event that a reader of a run has seen. `on_disconnect` is `"stop"` or `"detach"`:
    by default a run is detached from and anything else is stopped. Raises ValueError where it cannot be done.
    """

    def __init__(self, readable: Readable, *, after: int = 0, on_disconnect: OnDisconnect | None = None) -> None:
        self._run = readable if isinstance(readable, Run) else None
        if on_disconnect not in (None, "stop", "detach"):
            raise ValueError(f"on_disconnect is 'stop' or 'detach', not {on_disconnect!r}")
        if self._run is None:
            if not (hasattr(readable, "__aenter__") or hasattr(readable, "__aiter__")):
                raise TypeError(f"{type(readable)!r} is neither a run nor a stream, nor does it give events")
            if on_disconnect == "detach":
                raise ValueError("only a run goes on without its readers: start the stream with Runs.start()")
            if after:
                raise ValueError("only a run can be read from a position")
        self._readable: Readable | None = readable
        self._after = after
        self._stops = on_disconnect == "stop"
        self._left = False
        self._stopped = False
        self._begun = False
        self._whole: anyio.CancelScope | None = None  # made late: an endpoint may run in a thread, without a loop
        self._inner: anyio.CancelScope | None = None
        self._events: AsyncIterable[UIEvent] | None = None

    @property
    def left(self) -> bool:
        """Whether the reader has gone."""
        return self._left

    @property
    def decidable(self) -> Decidable | None:
        """What takes decisions about the calls of what is read, if that is something which asks for them."""
        read = self._run or self._events
        return read if isinstance(read, Decidable) else None

    def leave(self) -> None:
        """Say that the reader has gone. May be called from any task, and more than once."""
        self._left = True
        self._cut()

    def _cut(self) -> None:
        scope = self._inner or self._whole
        if scope is not None:
            scope.cancel()

    async def stop(self) -> None:
        """End what is read, for all of its readers; the rest of it is still read."""
        if self._run is not None:
            await self._run.stop()
        elif isinstance(self._events, ToolStream):
            await self._events.aclose()
        elif not self._stopped:
            self._stopped = True
            self._cut()

    async def run(self, reader: Reader) -> None:
        """Open, read to the end, and close. Raises what the readable raises."""
        if not self._left and not self._stopped:
            await self._open_and_read(reader)
        if self._stopped and not self._left and self._inner is None:  # before there was anything to read
            await reader.begin()
            await self._finish(reader, None)

    async def _open_and_read(self, reader: Reader) -> None:
        self._begun = True
        with anyio.CancelScope(shield=True) as self._whole:
            async with self._open() as events:
                self._events = events
                try:
                    await self._read(events, reader)
                finally:
                    self._whole.deadline = anyio.current_time() + _CLOSING
        if self._whole.deadline <= anyio.current_time() and self._whole.cancelled_caught:
            log.warning("stream_not_closed", error="it takes too long")

    async def _read(self, events: AsyncIterable[UIEvent], reader: Reader) -> None:
        fault: Exception | None = None
        event: UIEvent | None = None
        with anyio.CancelScope() as self._inner:
            await reader.begin()
            take = reader.take
            try:
                async for event in events:
                    await take(event)
            except Exception as error:
                fault = error
        await self._finish(reader, event)
        if fault is not None:
            raise fault

    async def _finish(self, reader: Reader, last: UIEvent | None) -> None:
        """Tell the reader that `last` was the last; first, where that says nothing of a stop, that there was one."""
        if not self._left:
            with anyio.CancelScope(shield=True) as self._inner:
                if self._stopped and type(last) is not Done:
                    await reader.take(Done("cancelled", None, None, [], seq=last.seq + 1 if last is not None else 1))
                await reader.finish()

    async def close(self) -> None:
        """Do what is left to do behind `run`, or instead of it."""
        stops = self._run is not None and self._left and self._stops
        if stops or (self._run is None and not self._begun):
            with anyio.CancelScope(shield=True), anyio.move_on_after(_CLOSING):
                if self._run is not None:
                    await self._run.stop()
                elif self._readable is not None and hasattr(self._readable, "aclose"):
                    await self._readable.aclose()
        # What was cancelled beside us keeps us until the garbage is collected, but not what was read.
        self._readable = self._events = None

    def _open(self) -> AbstractAsyncContextManager[AsyncIterable[UIEvent]]:
        readable = self._readable
        assert readable is not None
        if isinstance(readable, Run):
            return readable.attach(self._after)
        return readable if isinstance(readable, AbstractAsyncContextManager) else _closing(readable)


@asynccontextmanager
async def _closing(events: AsyncIterable[UIEvent]) -> AsyncIterator[AsyncIterable[UIEvent]]:
    """Give `events`, and close them in the end if they can be closed."""
    try:
        yield events
    finally:
        if hasattr(events, "aclose"):
            await events.aclose()
