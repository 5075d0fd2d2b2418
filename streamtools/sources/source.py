"""A source: one thing to read from and one adapter, as an asynchronous iterator of batches.

A batch is what one network chunk brought, so that whoever hands events on pays once for a chunk. It is a class and not
an asynchronous generator, because its consumer may be cancelled in mid-read, come back from another task, or stop
without notice; a generator that was cancelled once is over, and its end would look like the end of the stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from streamtools.errors import UnreadableSource
from streamtools.events import SourceError, SourceEvent
from streamtools.sources.adapter import Adapter
from streamtools.sources.objects import name_of, raised_error
from streamtools.sources.reading import Reading


class Source:
    """The source events of one stream, a list for each network chunk; lists may be empty.

    Nothing that the transport does is raised: it is an event. `UnreadableSource` is raised for what our caller gave us
    and nobody can read. Cancellation passes, and the next read goes on where the transport allows it.
    """

    def __init__(self, origin: object, adapter: Adapter) -> None:
        self._reading = Reading(origin)
        self._adapter = adapter
        self._read: Callable[[], Awaitable[Any]] | None = None  # None until the head of the response has been judged
        self._cut = False  # the last read was cancelled, so that an end which comes next is not the stream's own
        self._over = False
        self._released = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[SourceEvent]:
        if self._over:
            raise StopAsyncIteration
        try:
            if self._read is None:
                refusal = await self._reading.refusal()
                if refusal is not None:
                    self._over = True
                    return [refusal]
                self._read = self._reading.read
                item = await anext(self._reading)
            else:
                item = await self._read()
        except StopAsyncIteration:
            if self._over:
                raise
            return self._end("the read was cancelled" if self._cut else None)
        except Exception as error:
            if self._over:  # it was closed in mid-read
                raise StopAsyncIteration from None
            return self._end(name_of(error), raised_error(error))
        except BaseException:
            self._cut = self._reading.ends_when_cancelled
            raise
        self._cut = False
        try:
            return self._adapter.take(item)
        except UnreadableSource:
            self._over = True
            raise

    async def aclose(self) -> None:
        """Stop reading and close the response; may be called at any time, from any task, and more than once."""
        self._over = True
        if not self._released:
            await self._reading.aclose()
            self._released = True

    def _end(self, cause: str | None, error: SourceError | None = None) -> list[SourceEvent]:
        """Return what the end of the transport brings; `cause` says why it came too early, if it did.

        `error` is what the provider said of it, where an SDK made an exception of that.
        """
        self._over = True
        return self._adapter.close(cause) if error is None else self._adapter.fail(error)
