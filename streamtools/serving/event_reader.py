"""Reading of the events of a run, a stream or an iterable for one connection.

An `EventReader` opens what it reads, passes the events to an `EventSink`, and closes it, in one task. Nothing is read
while the sink sends, so that a slow client slows the provider.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Literal, Protocol, TypeAlias, cast

import anyio

from streamtools.errors import check_word
from streamtools.events import Done, UIEvent
from streamtools.serving.journal import Attachment
from streamtools.serving.run import Run
from streamtools.stream.driver import Driver, Startable
from streamtools.stream.reading import close
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools.approvals import Decidable

_CLOSE_TIMEOUT_S = 30.0  # a `ToolStream` closes its source within a shorter limit

Readable: TypeAlias = "Run | AbstractAsyncContextManager[AsyncIterable[UIEvent]] | AsyncIterable[UIEvent]"
"""A run, a `ToolStream`, a chat, another context manager that gives UI events, or an iterable of UI events."""

OnDisconnect: TypeAlias = Literal["stop", "detach"]
"""What happens to a run or a stream after its client has left."""


class EventSink(Protocol):
    """Sends the events of an `EventReader` to one client."""

    async def start(self, events: AsyncIterable[UIEvent] | None) -> None:
        """Send what precedes the events. `events` is None if the reader was stopped before it opened anything."""

    async def send(self, events: Sequence[UIEvent], /) -> None:
        """Send the next events: at least one."""

    async def finish(self) -> None:
        """Send what follows the events."""


class EventReader:
    """Reads a run, a stream or an iterable once, for one connection.

    After `leave`, the client has gone: the stream is closed, or the run continues without it. After `stop`, the run or
    the stream ends, and its last events are still sent; an iterable without `done` ends with `done(cancelled)`. The
    task of `read` is shielded from cancellation of the connection, because an open stream costs money.

    `after` is the `seq` of the last event that the reader of a run has seen. `on_disconnect` is `"detach"` for a run
    and `"stop"` for anything else by default. Raises ValueError or TypeError for arguments that do not fit.
    """

    def __init__(self, readable: Readable, *, after: int = 0, on_disconnect: OnDisconnect | None = None) -> None:
        self._run = readable if isinstance(readable, Run) else None
        if on_disconnect is not None:
            check_word("on_disconnect", on_disconnect, ("stop", "detach"))
        if self._run is None:
            if not (hasattr(readable, "__aenter__") or hasattr(readable, "__aiter__")):
                raise TypeError(f"Expected a run, a stream or an async iterable of events, got {type(readable)!r}.")
            if on_disconnect == "detach":
                raise ValueError("on_disconnect='detach' needs a run. Start the stream with Runs.start().")
            if after:
                raise ValueError("`after` needs a run. A stream is read from its first event.")
        self.left = False
        """Whether the client has left before the end."""
        self.last: UIEvent | None = None
        """The last event that was passed to the sink."""
        self._readable: Readable | None = readable
        self._after = after
        self._stops_run = on_disconnect == "stop"
        self._stopped = False
        self._sink: EventSink
        self._take_ready: Callable[[], Sequence[UIEvent]] | None = None
        self._driver: Driver | None = None  # `read` makes it: an endpoint may run in a thread without an event loop

    @property
    def has_begun(self) -> bool:
        """Whether the events exist already: a run may be read during a shutdown, a stream may not be started."""
        return self._run is not None

    @property
    def decidable(self) -> Run | Decidable | None:
        """The run or the stream, if it accepts decisions about its calls."""
        source = self._run or self._events
        return source if isinstance(source, Run | Decidable) else None

    @property
    def _events(self) -> AsyncIterable[UIEvent] | None:
        return self._driver.events if self._driver is not None else None

    def leave(self) -> None:
        """Record that the client has left, and end the reading. May be called from any task, repeatedly."""
        self.left = True
        if self._driver is not None:
            self._driver.cut()

    async def stop(self) -> None:
        """End the run or the stream for all of its readers. `read` still sends the last events."""
        if self._run is not None:
            await self._run.stop()
        elif isinstance(self._events, ToolStream):
            await self._events.aclose()
        elif not self._stopped:
            self._stopped = True
            if self._driver is not None:
                self._driver.cut()

    async def read(self, sink: EventSink) -> None:
        """Open, read to the end, and close. Raises what the run or the stream raises."""
        self._sink = sink
        if not self.left and not self._stopped:
            self._driver = Driver(self._open(), shield=True, closing=_CLOSE_TIMEOUT_S)
            await self._driver.drive(self)
        if self._stopped and self._events is None:
            await self.begin()
            await self.finish()

    async def begin(self) -> None:
        """Start the sink. See `streamtools.stream.driver.Sink`."""
        events = self._events
        # A subclass of ToolStream may change events in its own `__anext__`, which `take_ready` would skip.
        if isinstance(events, Attachment) or getattr(type(events), "__anext__", None) is ToolStream.__anext__:
            self._take_ready = cast("Attachment | ToolStream", events).take_ready
        await self._sink.start(events)

    async def take(self, event: UIEvent, /) -> None:
        """Pass the event to the sink, with the events that are ready. See `streamtools.stream.driver.Sink`."""
        events = (event, *self._take_ready()) if self._take_ready is not None else (event,)
        self.last = events[-1]
        await self._sink.send(events)

    async def finish(self) -> None:
        """Finish the sink, after `done(cancelled)` if reading was stopped before `done`."""
        if not self.left:
            if self._stopped and type(self.last) is not Done:
                await self.take(Done("cancelled", None, None, [], seq=self.last.seq + 1 if self.last else 1))
            await self._sink.finish()

    async def close(self) -> None:
        """Clean up after `read`, or without it."""
        if self._run is None:
            if self._driver is None:
                await close(self._readable, seconds=_CLOSE_TIMEOUT_S)
        elif self.left and self._stops_run:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await self._run.stop()
        # A cancelled task refers to the reader until garbage collection. It must not keep the stream alive too.
        self._readable = self._driver = None

    def _open(self) -> Startable:
        readable: Any = self._readable
        if isinstance(readable, Run):
            return readable.attach(self._after)
        if isinstance(readable, AbstractAsyncContextManager):
            return readable
        return aclosing(readable) if hasattr(readable, "aclose") else nullcontext(readable)
