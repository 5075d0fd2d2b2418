"""Shared by all connections: reading the events, sending them one at a time, and listening to the client meanwhile.

A connection has one task that listens for the client to leave, and ends the reading with it; one that is slow to take
what is sent slows the reading, since nothing is read while something is being sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from streamtools.errors import check_word
from streamtools.events import Done, UIEvent
from streamtools.serving.run import Run
from streamtools.serving.shutdown import Shutdown
from streamtools.stream.driver import Driver, Startable, close
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools.decisions import Decidable

_CLOSING = 30.0  # seconds that a stream may take to close; a `ToolStream` bounds the closing of its source by itself

Readable: TypeAlias = "Run | AbstractAsyncContextManager[AsyncIterable[UIEvent]] | AsyncIterable[UIEvent]"
"""A run, a `ToolStream` or a chat or another context manager that gives UI events, or just an iterable of them."""

OnDisconnect: TypeAlias = Literal["stop", "detach"]
"""What happens to a run or stream when its client has gone."""


class Reading:
    """One reading of a run, a stream or an iterable, for one connection; a subclass sends the events.

    *Leaving* is for a client that has gone: the stream is closed, or the run goes on without it. *Stopping* ends the
    run or the stream, whose last events, `done` above all, are still read; an iterable without one gets
    `done(cancelled)`. The task is shielded from cancellation of the connection, because a stream that a provider
    charges for has to be closed.

    `after` is the `seq` of the last event that a reader of a run has seen. `on_disconnect` is `"stop"` or `"detach"`:
    by default a run is detached from and anything else is stopped. Raises ValueError where it cannot be done.
    """

    def __init__(self, readable: Readable, *, after: int = 0, on_disconnect: OnDisconnect | None = None) -> None:
        self._run = readable if isinstance(readable, Run) else None
        if on_disconnect is not None:
            check_word("on_disconnect", on_disconnect, ("stop", "detach"))
        if self._run is None:
            if not (hasattr(readable, "__aenter__") or hasattr(readable, "__aiter__")):
                raise TypeError(f"{type(readable)!r} is neither a run nor a stream, nor does it give events")
            if on_disconnect == "detach":
                raise ValueError("only a run goes on without its readers: start the stream with Runs.start()")
            if after:
                raise ValueError("only a run can be read from a position")
        self.left = False
        """Whether the client has gone."""
        self.last: UIEvent | None = None
        """The last event that `take` has been given."""
        self._readable: Readable | None = readable
        self._after = after
        self._stops = on_disconnect == "stop"
        self._stopped = False
        self._driver: Driver | None = None  # made late, because an endpoint may run in a thread without an event loop

    @property
    def has_begun(self) -> bool:
        """Whether it goes on already, as a run does; it may then be read although the server is about to end."""
        return self._run is not None

    @property
    def decidable(self) -> Run | Decidable | None:
        """The run or stream, if it takes decisions about its calls."""
        read = self._run or self._entered
        return read if isinstance(read, Run | Decidable) else None

    @property
    def _entered(self) -> AsyncIterable[UIEvent] | None:
        return self._driver.events if self._driver is not None else None

    def leave(self) -> None:
        """Note that the client has gone. May be called from any task, and more than once."""
        self.left = True
        if self._driver is not None:
            self._driver.cut()

    async def stop(self) -> None:
        """End the run or stream, for all of its readers; its last events are still read."""
        if self._run is not None:
            await self._run.stop()
        elif isinstance(self._entered, ToolStream):
            await self._entered.aclose()
        elif not self._stopped:
            self._stopped = True
            if self._driver is not None:
                self._driver.cut()

    async def read(self) -> None:
        """Open, read to the end, and close. Raises what the readable raises."""
        if not self.left and not self._stopped:
            self._driver = Driver(self._open(), shield=True, closing=_CLOSING)
            await self._driver.drive(self)
        if self._stopped and self._entered is None:  # before there was anything to read
            await self.begin()
            await self.finish()

    async def begin(self) -> None:
        """Send what comes before the events."""

    async def take(self, event: UIEvent, /) -> None:
        """Send the next event, and note it as the `last`."""
        raise NotImplementedError

    async def end(self) -> None:
        """Send what comes behind the events."""

    async def finish(self) -> None:
        """Send the end; before it `done(cancelled)`, if reading was stopped and no `done` has come."""
        if not self.left:
            last = self.last
            if self._stopped and type(last) is not Done:
                await self.take(Done("cancelled", None, None, [], seq=last.seq + 1 if last is not None else 1))
            await self.end()

    async def close(self) -> None:
        """Clean up after `read`, or instead of it."""
        if self._run is None:
            if self._driver is None:
                await close(self._readable, seconds=_CLOSING)
        elif self.left and self._stops:
            with anyio.move_on_after(_CLOSING, shield=True):
                await self._run.stop()
        # A cancelled task refers to us until garbage collection; it must not keep the stream as well.
        self._readable = self._driver = None

    def _open(self) -> Startable:
        readable: Any = self._readable
        if isinstance(readable, Run):
            return readable.attach(self._after)
        if isinstance(readable, AbstractAsyncContextManager):
            return readable
        return aclosing(readable) if hasattr(readable, "aclose") else nullcontext(readable)


async def attend(
    deliver: Callable[[], Awaitable[object]],
    *,
    listen: Callable[[TaskGroup], Awaitable[object]],
    watch: Callable[[], Awaitable[object]],
    leave: Callable[[], object],
    shutdown: Shutdown | None,
    stop: Callable[[], Awaitable[object]],
) -> Exception | None:
    """Deliver to a client until all is delivered, or the client has gone; return what was raised by that.

    `listen` returns when the client has gone, and may start tasks in the group that it is given; `watch` returns when
    the client is to be given up. `leave` is called for both, and when we are cancelled. When `shutdown` has let streams
    go on for as long as it does, `stop` is called, and the delivery comes to its end.
    """
    fault: Exception | None = None

    async def deliver_all() -> None:
        nonlocal fault
        try:
            await deliver()
        except Exception as error:  # and the group is not shown it: it would wrap it
            fault = error
        finally:
            group.cancel_scope.cancel()

    async def look_on() -> None:
        await watch()
        leave()
        group.cancel_scope.cancel()

    async def wait_for_shutdown(shutdown: Shutdown) -> None:
        await shutdown.wait_over()
        await stop()

    async with anyio.create_task_group() as group:
        group.start_soon(deliver_all)
        group.start_soon(look_on)
        if shutdown is not None:
            group.start_soon(wait_for_shutdown, shutdown)
        try:
            await listen(group)
        finally:
            leave()
        group.cancel_scope.cancel()
    return fault


# Sending: one message at a time, with a watch that sends a sign of life when nothing was sent for a while, and gives up
# a client that takes nothing. It never interrupts the reading, so that no event is lost, and it sends nothing while a
# message is on its way.


_ROW = 4
"""Messages that are sent without a checkpoint. A server notices a lost client when the event loop runs, and until then
asyncio logs each message after the fifth that is written to it."""
_APART = 0.002  # seconds between two messages in which it runs, as a rule: the source has waited for the provider
_TRUST = 0.25  # for so many, until there is a checkpoint after all: a source may block it


@dataclass(eq=False, repr=False)
class Outlet:
    """Sends messages through `send`, one after the other, from any task.

    `keep_alive` and `send_timeout` are in seconds; None is never. Raises ValueError for others. `now` and
    `sleep` are the clock.
    """

    send: Callable[[Any], Awaitable[None]]
    keep_alive: float | None
    send_timeout: float | None
    now: Callable[[], float] = monotonic
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep

    def __post_init__(self) -> None:
        self._silence = seconds("keep_alive", self.keep_alive)
        self._patience = seconds("send_timeout", self.send_timeout)
        self._since = self.now()  # when the last sending began
        self._sending = False
        self._row = 0  # messages, one right behind the other, since the last checkpoint
        self._trusted = self._since + _TRUST
        self._free: anyio.Event | None = None  # set when none is on its way; a lock would cost each event more

    async def put(self, message: Any) -> None:
        """Send one message, after any that is on its way. Raises what the server raises.

        In its place may stand a function, which is called when its turn has come; it returns None for no message.
        """
        while self._sending:
            if self._free is None:
                self._free = anyio.Event()
            await self._free.wait()
        if callable(message) and (message := message()) is None:
            return
        now = self.now()
        if now - self._since > _APART and now < self._trusted:
            self._row = 0
        self._since = now
        self._sending = True
        try:
            await self.send(message)
            self._row += 1
            if self._row >= _ROW:
                self._row, self._trusted = 0, now + _TRUST
                await anyio.lowlevel.checkpoint()
        finally:
            self._sending = False
            if self._free is not None:
                self._free.set()
                self._free = None

    async def watch(self, fill: Callable[[], Awaitable[None]]) -> None:
        """Call `fill` whenever nothing was sent for `keep_alive` seconds; return when a message takes too long."""
        look = min(self._silence, self._patience)
        while look < inf:
            now = self.now()
            next_look = self._since + (self._patience if self._sending else self._silence)
            if next_look > now:
                await self.sleep(min(next_look - now, look))
                continue
            if self._sending:
                return
            with anyio.move_on_after(self._patience) as scope:
                await fill()
            if scope.cancelled_caught:
                return
            self._since = now
        await anyio.sleep_forever()


def seconds(name: str, value: float | None) -> float:
    """Return a number of seconds, endless for None. Raises ValueError for one that is not positive."""
    if value is None:
        return inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"{name} is a positive number of seconds or None, not {value!r}")
    return value
