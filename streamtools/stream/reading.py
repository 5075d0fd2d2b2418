"""Enters, reads, leaves and closes the streams of a run or of a connection.

In `streamtools.serving`, each run and each connection uses a `Driver` for its `ToolStream` or other context manager of
events. A `Driver` enters, reads and leaves a stream in one task, even if another task stops it. The other task cancels
a scope around entering or reading. The driver then leaves the stream as after a `break`: the source is closed within a
time limit.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import CoroutineType, GeneratorType
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import anyio
import anyio.lowlevel

from streamtools.errors import check_methods, described, has_methods, place_of
from streamtools.events import UI_EVENTS, SourceEvent, UIEvent
from streamtools.logs import Logger, loggable
from streamtools.tools.cancellation import is_failure, is_stray

log = Logger(__name__)

_Returned = TypeVar("_Returned")

YIELD_EVERY = 256
"""Number of items after which a loop over an iterable lets other tasks run, because the iterable may never wait."""
CLOSE_TIMEOUT = 10.0
"""The default time limit of `close`, in seconds."""


async def awaited(returned: Awaitable[_Returned] | _Returned) -> _Returned:
    """Return the result of a function that may be asynchronous, and that returns a stream or None.

    Raises RuntimeError if the function awaited a task that was cancelled, because a `CancelledError` would cancel the
    task group of the caller.
    """
    # A stream, such as a chat, is also awaitable, but must not be awaited here.
    if returned is None or isinstance(returned, AbstractAsyncContextManager):
        return returned
    try:
        return await cast("Awaitable[_Returned]", returned)
    except BaseException as error:
        if is_stray(error):
            raise RuntimeError("the function awaited a task that was cancelled") from error
        raise


class EventSource(Protocol):
    """An asynchronous iterator of batches of source events. `aclose` stops it."""

    def __aiter__(self) -> AsyncIterator[Sequence[SourceEvent]]: ...
    async def __anext__(self) -> Sequence[SourceEvent]: ...
    async def aclose(self) -> None: ...


async def close(
    closable: object, *, seconds: float | None = None, log_event: str = "stream_not_closed", **fields: str
) -> None:
    """Call `aclose` of an object, if it has this method.

    The call is shielded from cancellation. It is cancelled after `seconds`; None means `CLOSE_TIMEOUT`. A failure is
    logged as the event `log_event` with `fields`. Cancellation and exits of the process are raised.
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
            log.warning(log_event, **fields, **loggable(error))
    if scope.cancelled_caught:
        log.warning(log_event, **fields, error="it took too long")


Startable: TypeAlias = AbstractAsyncContextManager[AsyncIterable[UIEvent]]
"""An asynchronous context manager that returns an iterator of events.

It is a `ToolStream`, a chat, a replay, or the result of a function with `@asynccontextmanager` that yields one of them.
"""


def check_startable(stream: object) -> None:
    """Raise TypeError if `stream` is not an asynchronous context manager."""
    if isinstance(body := getattr(stream, "gen", None), CoroutineType | GeneratorType):
        body.close()
        raise TypeError("a function with `@asynccontextmanager` must be `async def`, and must `yield` the stream")
    if not has_methods(stream, "__aenter__", "__aexit__"):
        advice = "; return it (without `await`) from your function, or yield it with `@asynccontextmanager`"
        if stream is None:
            advice = "; the function that makes it needs a `return`"
        elif isinstance(stream, Awaitable):  # the description says what to write
            advice = ""
        raise TypeError(f"the stream must be a run or a stream, such as chat(…), got {described(stream)}{advice}")


async def check_event(event: object, events: Any) -> None:
    """Raise TypeError if `event`, an item of the iterator `events`, is not a UI event. Close the iterator first.

    If a function yields a stream but lacks `@asynccontextmanager`, closing its iterator leaves the stream.
    """
    if not isinstance(event, UI_EVENTS):
        if has_methods(events, "aclose"):
            await events.aclose()
        advice = "a function that yields a stream needs `@asynccontextmanager`"
        raise TypeError(f"{place_of(events)}: a stream must yield UI events, got {described(event)}; {advice}")


class Driver:
    """Drives one stream in the task that calls `drive`. Any task may call the other methods.

    With `shield=True`, cancelling the task does not stop the stream; only `cancel` or a deadline does. The shield is
    opened before the stream is entered, because the stream may open cancel scopes and task groups, and scopes must be
    nested. Leaving the stream is cancelled after `leave_timeout` seconds.
    """

    def __init__(self, stream: Startable, *, shield: bool = False, leave_timeout: float = math.inf) -> None:
        self.events: AsyncIterable[UIEvent] | None = None
        """The iterator of events that the stream returned; None before the stream was entered."""
        self.is_exhausted = False
        """True after all events have been read."""
        self.cancel_requested = False
        """True after a call of `cancel`."""
        self.is_cut_off = False
        """True if leaving the stream was cancelled, such as by its time limit."""
        self.stream = stream
        self._leave_timeout = leave_timeout
        self._drive_scope = anyio.CancelScope(shield=shield)
        self._reading_scope = anyio.CancelScope()
        self._take_scope: anyio.CancelScope | None = None
        self.scope = self._drive_scope
        """The cancel scope of the current phase: entering, reading, or `finish`. `cancel` cancels it.

        A caller may set its `deadline`, which ends entering or reading.
        """

    @property
    def is_cancelled(self) -> bool:
        """True if `cancel` was called, or if the deadline has ended entering or reading."""
        scope = self._drive_scope if self.events is None else self._reading_scope
        return self.cancel_requested or scope.cancel_called

    def cancel(self, *, cancel_cleanup: bool = False) -> None:
        """Stop entering or reading, so that the task leaves the stream. With `cancel_cleanup`, also cancel leaving."""
        self.cancel_requested = True
        (self._take_scope or self.scope).cancel()
        if cancel_cleanup:
            self._drive_scope.cancel()

    async def drive(
        self,
        take: Callable[[UIEvent], Awaitable[bool | None]],
        *,
        begin: Callable[[], Awaitable[None]],
        finish: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Enter the stream, read it to its end, and leave it. Raises the exceptions of the stream and of the functions.

        `begin` is called once, after the stream has been entered and before the first event. `take` gets each event,
        and returns True to end the reading. `finish` is called before the stream is left, even if reading has failed,
        but not after an exception of `begin`. `Driver.cancel` also cancels this call. An exception of the events or of
        `take` is raised after `finish`, in place of an exception of `finish`.
        """
        with self._drive_scope:
            async with self.stream as events:
                made_by = place_of(getattr(self.stream, "gen", self.stream))  # the body, with `asynccontextmanager`
                check_methods(f"{made_by}: the stream", events, "an iterator of events (`yield` it)", "__aiter__")
                self.events = events
                self._reading_scope.deadline, self._drive_scope.deadline = self._drive_scope.deadline, math.inf
                self.scope = self._reading_scope
                fault: Exception | None = None
                count = 0
                if isinstance(events, AsyncGenerator):
                    take = partial(self._take_from_generator, take)
                try:
                    with self._reading_scope:
                        await begin()
                        try:
                            async for event in events:
                                if not count:
                                    await check_event(event, events)
                                if await take(event):
                                    break
                                count += 1
                                if not count % YIELD_EVERY:
                                    await anyio.lowlevel.checkpoint()
                            else:
                                self.is_exhausted = True
                        except Exception as error:
                            fault = error
                        finally:
                            if isinstance(events, AsyncGenerator):
                                # It may have open scopes and task groups, such as those of a chat, inside this scope.
                                self._reading_scope.deadline = anyio.current_time() + self._leave_timeout
                                try:
                                    await events.aclose()
                                except Exception as error:
                                    fault = fault or error
                    with anyio.CancelScope(shield=True) as self.scope:
                        if finish is not None:
                            try:
                                await finish()
                            except Exception as error:  # possibly a consequence of the first exception, which is raised
                                fault = fault or error
                    if fault is not None:
                        raise fault
                finally:
                    self._drive_scope.deadline = anyio.current_time() + self._leave_timeout
        self.is_cut_off = self._drive_scope.cancelled_caught and self.events is not None
        if self._drive_scope.cancelled_caught and self._drive_scope.deadline <= anyio.current_time():
            log.warning("stream_not_closed", error="it took too long")

    async def _take_from_generator(self, take: Callable[[UIEvent], Awaitable[bool | None]], event: UIEvent) -> bool:
        """Let `take` handle an event. Meanwhile, `cancel` cancels only `take`, so the generator can still clean up."""
        with anyio.CancelScope() as scope:
            self._take_scope = scope
            try:
                return bool(await take(event)) or scope.cancel_called
            finally:
                self._take_scope = None
        return True
