"""One reader of one run: its position, which is the `seq` of the event that it read last, and the right to leave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.lowlevel

from streamtools.events import Done, UIEvent
from streamtools.runs.journal import Journal
from streamtools.runs.log import MemoryReader

_STRETCH = 256  # events that were there already, until others get their turn
_CLOSING = 10.0  # seconds that a log may take to end a reading


class Attachment:
    """An asynchronous iterator of the events of a run, and a context manager that detaches from it at its end.

    It ends behind `done`. Nothing of what it does touches the run: not `break`, nor an exception, nor a reader that is
    too slow, nor one that is forgotten. A read that is cancelled has taken nothing. `position` is the `seq` of the
    last event that was read, behind which another attachment may go on. What the log raises comes out of it, and so
    does `RunNotFound` where the events are kept no more.
    """

    def __init__(self, journal: Journal, after: int, on_leave: Callable[[Attachment], None]) -> None:
        if not isinstance(after, int):
            raise TypeError(f"after is the seq of an event, and not {after!r}")
        self.position = after
        self._journal = journal
        self._on_leave = on_leave
        self._scopes: set[anyio.CancelScope] = set()  # in each of them, somebody waits
        self._events: AsyncIterator[UIEvent] | None = None
        # Instead, if the log is in memory: nothing has to be closed or begun anew.
        self._memory: MemoryReader | None = None
        self._taken = 0
        self._has_left = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.detach()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        self._taken += 1
        if not self._taken % _STRETCH:
            await anyio.lowlevel.checkpoint()
        memory = self._memory
        event = None if memory is None else memory.take()
        if event is None:
            event = await (self._wait() if memory is None else self._wait_in(memory))
        if type(event) is Done:
            await self._close()
            self._leave()
        self.position = event.seq
        return event

    async def detach(self) -> None:
        """Read no more, and leave the run alone. Those who wait in this attachment come to its end."""
        self._leave()
        if not self._scopes:
            await self._close()
        for scope in self._scopes:  # those who are cancelled in there close what they read
            scope.cancel()

    aclose = detach

    def __del__(self) -> None:
        if not getattr(self, "_has_left", True):
            self._leave()

    def _leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            if self._memory is not None:
                self._memory.close()
                self._memory = None
            self._on_leave(self)

    async def _wait_in(self, memory: MemoryReader) -> UIEvent:
        try:
            return await anext(memory)
        except StopAsyncIteration:
            self._leave()
            raise

    async def _wait(self) -> UIEvent:
        """Return the next event. Whoever is cancelled in here goes on with a new reading from the same position."""
        journal = self._journal
        while not self._has_left:
            if rest := journal.rest(self.position):
                return rest[0]
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                journal.waiting.add(scope)
                try:
                    if journal.begun.is_set():
                        return await self._read()
                    await journal.begun.wait()
                finally:
                    self._scopes.discard(scope)
                    journal.waiting.discard(scope)
        raise StopAsyncIteration

    async def _read(self) -> UIEvent:
        if self._events is None:
            self._events = self._journal.log.read(self._journal.key, self.position)
            if self._journal.is_sure and isinstance(self._events, MemoryReader):
                self._memory, self._events = self._events, None
                return await self._wait_in(self._memory)
        try:
            return await anext(self._events)
        except StopAsyncIteration:  # the run was forgotten before its `done`, or has none behind this position
            await self._close()
            self._leave()
            raise
        except (Exception, anyio.get_cancelled_exc_class()):
            await self._close()
            raise

    async def _close(self) -> None:
        events, self._events = self._events, None
        close: Callable[[], Any] | None = getattr(events, "aclose", None)
        if close is not None:
            with anyio.move_on_after(_CLOSING, shield=True):
                await close()
