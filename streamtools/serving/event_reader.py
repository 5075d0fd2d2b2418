"""Reads the events of a run, a stream or an iterable for one connection.

One task opens the run or stream, passes its events to an `EventSink`, and closes it. The next event is read only after
the sink has sent the previous event. So a slow client also slows down reading from the provider.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import anyio
from msgspec.structs import replace

from streamtools.errors import Code, RunNotFound, check_word, has_methods
from streamtools.events import BATCH_BYTES, DELTAS, Done, Error, Start, UIEvent, weigh
from streamtools.serving.journal import Attachment
from streamtools.serving.response_writer import ResponseWriter
from streamtools.serving.run import FAILED, Run
from streamtools.stream.reading import Driver, Startable, check_startable, close
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools.approvals import Decidable

_CLOSE_TIMEOUT_S = 30.0  # longer than the time that a `ToolStream` allows its source for closing

Readable: TypeAlias = "Run | AbstractAsyncContextManager[AsyncIterable[UIEvent]] | AsyncIterable[UIEvent]"
"""A run, a `ToolStream`, a chat, another context manager that returns UI events, or an async iterable of them."""

OnDisconnect: TypeAlias = Literal["stop", "detach"]
"""What happens after the client has left: `"stop"` ends the run or the stream, `"detach"` lets a run continue."""


class EventSink:
    """Sends the events of an `EventReader` to one client."""

    begun = False
    """Whether a part of the response was sent. After an exception, `finish` is then called to end the response."""

    async def start(self, events: AsyncIterable[UIEvent] | None) -> None:
        """Send the start of the response. `events` is None if the reader was stopped before it opened the stream."""

    async def send(self, events: Sequence[UIEvent], /) -> None:
        """Send the next events. `events` is never empty."""

    async def finish(self) -> None:
        """Send the end of the response, after the last event."""


class PacedSink(EventSink):
    """Passes events to `sink`. Deltas wait for the next slot of the `writer`, unless another event follows first."""

    def __init__(self, sink: EventSink, writer: ResponseWriter, mark: Callable[[Exception], None]) -> None:
        self._sink = sink
        self._mark = mark
        self._writer = writer
        self._waiting: list[UIEvent] = []
        self._size = 0  # the size of `_waiting`, in bytes
        self._events: Attachment | ToolStream | None = None
        self._has_deltas = False
        self._lock = anyio.Lock(fast_acquire=True)

    async def start(self, events: AsyncIterable[UIEvent] | None) -> None:
        self._events = events if isinstance(events, Attachment | ToolStream) else None
        await self._sink.start(events)

    def _read_rate(self) -> float | None:
        """Return how often the provider's response is read per second. Before the first delta, reads do not wait."""
        if self._events is None:
            return None
        if not self._has_deltas:
            self._has_deltas = True
            self._events._pace.set_rate(id(self._events), self._writer.max_rate)
        return self._events._pace.rate if self._events._pace.has_waited else None

    async def send(self, events: Sequence[UIEvent], /) -> None:
        self._waiting += events
        self._size += sum(map(weigh, events))
        if self._size > BATCH_BYTES or not all(isinstance(event, DELTAS) for event in events):
            await self._flush()
        elif (rate := self._read_rate()) is not None and rate <= (self._writer.max_rate or 0.0):
            await self._flush()  # the read from the provider has already waited for its slot
        else:
            await self._writer.send_in_slot(self._flush)

    async def finish(self) -> None:
        try:
            await self._flush()
        finally:
            await self._sink.finish()

    async def _flush(self) -> None:
        async with self._lock:
            events, self._waiting, self._size = self._waiting, [], 0
            try:
                if events:
                    await self._sink.send(events)
            except Exception as error:  # in the task that sends in slots, `EventReader.read` does not get it
                self._mark(error)
                raise


class EventReader:
    """Reads a run, a stream or an iterable once, for one connection.

    `leave` records that the client has left before the end of the response. A stream is then closed. A run is stopped
    only if `on_disconnect` is `"stop"`. `stop` ends the run or the stream, and the last events are still sent. If an
    iterable is stopped before `done`, the last event is `done(cancelled)`. While a stream is open, `read` is shielded
    from cancellation of the connection, so that it can close the stream. The provider charges for an open stream.

    `after` applies to runs: it is the `seq` of the last event that the client has received. The default of
    `on_disconnect` is `"detach"` for a run and `"stop"` for a stream. Invalid values raise ValueError or TypeError.
    """

    def __init__(self, readable: Readable, *, after: int = 0, on_disconnect: OnDisconnect | None = None) -> None:
        self.run = readable if isinstance(readable, Run) else None
        """The run, which has already started. None for a stream, which `read` starts.

        During a shutdown, the events of runs are still sent, and no stream is started.
        """
        check_word("on_disconnect", on_disconnect, ("stop", "detach", None))
        if self.run is None:
            if not has_methods(readable, "__aiter__"):
                check_startable(readable)
            if on_disconnect == "detach":
                raise ValueError("on_disconnect='detach' needs a run. Start the stream with Runs.start().")
            if after:
                raise ValueError("`after` needs a run. A stream is read from its first event.")
        self.left = False
        """Whether the client left before the end of the response."""
        self.last: UIEvent | None = None
        """The last event that was passed to the sink; None before the first."""
        self._has_code = False
        """Whether the stream is a context manager of the application, with code after its `yield`."""
        self._withheld: Done | None = None  # `done`, until this code has run
        self._readable: Readable | None = readable
        self.after = after
        """Of a run, `read` delivers only the events with a higher `seq`."""
        self._stops_run = on_disconnect == "stop"
        self._stopped = self._finished = False
        self._sink: EventSink
        self._take_ready: Callable[[], Sequence[UIEvent]] | None = None
        self._driver: Driver | None = None  # `read` makes it: `__init__` may run without an event loop

    @property
    def decidable(self) -> Decidable | None:
        """The run or the stream, if it accepts decisions about its calls; otherwise None."""
        source = self.run or self._events
        return source if isinstance(source, Decidable) else None

    @property
    def _events(self) -> AsyncIterable[UIEvent] | None:
        return self._driver.events if self._driver is not None else None

    def leave(self) -> None:
        """Record that the client has left, and stop reading. May be called from any task, and more than once."""
        if not self._finished:
            self.left = True
            if self._driver is not None:
                self._driver.cancel()

    async def stop(self) -> None:
        """End the run or the stream for all of its readers. `read` still sends the last events."""
        if self.run is not None:
            await self.run.stop()
        elif isinstance(self._events, ToolStream):
            await self._events.aclose()
        elif not self._stopped:
            self._stopped = True
            if self._driver is not None:
                self._driver.cancel()

    async def shut_down(self) -> None:
        """End the response, because the server shuts down. A run is only stopped if it cannot continue elsewhere.

        A run that waits for decisions still waits for them.
        """
        if self.run is None:
            await self.stop()
        elif not self.run._outlives_process:
            self.run._cancel()
            await self.run._finished.wait()
        elif self._driver is not None:
            self._driver.cancel()

    async def deliver(self, writer: ResponseWriter, sink: EventSink, **options: Any) -> Exception | None:
        """Send all events to the client of `writer`, then `close`. Returns the exception that `read` raised, or None.

        `options` are those of `ResponseWriter.deliver`.
        """
        options |= {"on_disconnect": self.leave, "on_shutdown": self.shut_down}
        try:
            return await writer.deliver(partial(self.read, sink, writer), **options)
        finally:
            await self.close()

    async def read(self, sink: EventSink, writer: ResponseWriter | None = None) -> None:
        """Open the run or the stream, pass all of its events to `sink`, and close it. Raises the stream's exceptions.

        If the sink has begun a response, the response is finished before an exception is raised. The response also ends
        if the run was deleted meanwhile. It then has no `done`, so the client reconnects. If the sink sends through a
        `ResponseWriter`, pass this as `writer`. Its `max_rate` limits how often deltas are sent.
        """
        self._sink = PacedSink(sink, writer, self._mark) if writer is not None and writer.max_rate is not None else sink
        try:
            if not self.left and not self._stopped:
                self._driver = Driver(self._open(), shield=True, leave_timeout=_CLOSE_TIMEOUT_S)
                await self._driver.drive(self._take, begin=self._begin, finish=self._finish_early)
                if self._withheld is not None:
                    if self._driver.is_cut_off and self._withheld.reason != "cancelled":
                        raise TimeoutError("the code of the context manager took too long")
                    await self._finish()
            if self._stopped and self._events is None:
                await self._begin()
                await self._finish()
        except Exception as error:
            self._mark(error)
            if (done := self._withheld) is not None and not self.left:
                if done.reason != "failed":  # otherwise, an error has already reported the failure
                    await self._sink.send([Error(Code.STREAM_INTERRUPTED, FAILED, seq=done.seq)])
                    done = replace(done, reason="failed", seq=done.seq + 1)
                await self._sink.send([done])
            if sink.begun and not self.left:
                await self._finish_sink()
            if not (sink.begun and isinstance(error, RunNotFound)):
                raise

    def _mark(self, error: Exception) -> None:
        """Let a log of `error` replace the values of the vault."""
        if (vault := self.run._vault if self.run else getattr(self._events, "vault", None)) is not None:
            error.__dict__["_hide"] = partial(vault.replace, from_model=True)

    async def _begin(self) -> None:
        """Start the sink."""
        events = self._events
        is_manager = isinstance(self._readable, AbstractAsyncContextManager)
        self._has_code = is_manager and events is not None and events is not self._readable
        # `_take_ready` bypasses `__anext__`. A subclass of ToolStream may override `__anext__` to change events.
        if isinstance(events, Attachment) or getattr(type(events), "__anext__", None) is ToolStream.__anext__:
            self._take_ready = cast("Attachment | ToolStream", events)._take_ready
        await self._sink.start(events)

    async def _take(self, event: UIEvent, /) -> None:
        """Pass the event, and the next events that are available, to the sink."""
        events = [event, *(self._take_ready() if self._take_ready is not None else ())]
        if self._has_code and type(events[-1]) is Done:
            self._withheld = cast("Done", events.pop())
        if events:
            self.last = events[-1]
            await self._sink.send(events)

    async def _finish_early(self) -> None:
        """Finish the sink before the stream is closed, unless `done` waits for the code of the application."""
        if self._has_code and self._withheld is None and self._stopped and type(self.last) is not Done:
            self._withheld = self._cancelled()
        if self._withheld is None:
            await self._finish()

    def _cancelled(self) -> Done:
        return Done("cancelled", None, None, [], seq=self.last.seq + 1 if self.last else 1)

    async def _finish(self) -> None:
        """Finish the sink. If the reader was stopped before `done`, first send `done(cancelled)`.

        A stream of this package that was never opened has a run id, so its `start` is sent, too.
        """
        if not self.left:
            if (done := self._withheld) is not None:
                self._has_code, self._withheld = False, None
                await self._take(done)
            elif self._stopped and type(self.last) is not Done:
                if self.last is None and isinstance(self._readable, ToolStream):
                    await self._take(Start(self._readable.run_id, seq=1))
                await self._take(self._cancelled())
            await self._finish_sink()

    async def _finish_sink(self) -> None:
        await self._sink.finish()
        self._finished = True

    async def close(self) -> None:
        """Close a stream that was never read. Stop a run whose client has left, if `on_disconnect` is `"stop"`."""
        if self.run is None:
            if self._driver is None:
                await close(self._readable, seconds=_CLOSE_TIMEOUT_S)
        elif self.left and self._stops_run:
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await self.run.stop()
        # A cancelled task keeps a reference to this reader until garbage collection. Let the stream be freed earlier.
        self._readable = self._driver = self._take_ready = None

    def _open(self) -> Startable:
        readable: Any = self._readable
        if isinstance(readable, Run):
            return readable.attach(self.after)
        if isinstance(readable, AbstractAsyncContextManager):
            return readable
        return aclosing(readable) if hasattr(readable, "aclose") else nullcontext(readable)
