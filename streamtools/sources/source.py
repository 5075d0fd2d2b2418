"""Combines a transport and an adapter into a `Source`, an asynchronous iterator of batches of source events.

A batch holds the events of one network chunk. `Source` is a class and not an asynchronous generator, because a read may
be cancelled, and another task may continue to read. A cancelled generator has ended for good, which would look like the
end of the stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

import msgspec

from streamtools.errors import UnreadableSource
from streamtools.events import SourceError, SourceEvent
from streamtools.logs import Logger
from streamtools.sources.adapter import Adapter
from streamtools.sources.provider_terms import name_of, raised_error
from streamtools.sources.transport import Transport

log = Logger(__name__)


class Source:
    """Yields the source events of one stream, as one list per network chunk. A list may be empty.

    Failures of the transport become error events. An object that cannot be read raises `UnreadableSource`. After a
    cancelled read, the next read continues if the transport supports this.
    """

    def __init__(self, origin: object, adapter: Adapter) -> None:
        self._transport = Transport(origin)
        self._adapter = adapter
        adapter.content_type = self._transport.content_type
        self._read: Callable[[], Awaitable[Any]] | None = None  # None until the response is checked
        self._cut = False  # the last read was cancelled, which may have ended the transport
        self._over = False
        self._released = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[SourceEvent]:
        if self._over:
            raise StopAsyncIteration
        try:
            if (read := self._read) is None:
                refusal = await self._transport.refusal(documents=self._adapter.reads_documents)
                if refusal is not None:
                    self._over = True
                    return [refusal]
                self._read = self._transport.read
                item = await anext(self._transport)
            else:
                item = await read()
        except StopAsyncIteration:
            if self._over:
                raise
            return self._end("the read was cancelled" if self._cut else None)
        except Exception as error:
            if self._over:  # `aclose` was called during the read
                raise StopAsyncIteration from None
            return _explain_silence(error, self._end(name_of(error), raised_error(error)))
        except BaseException:
            self._cut = self._transport.ends_when_cancelled
            raise
        self._cut = False
        try:
            return self._adapter.feed(item) if type(item) is bytes else self._adapter.take(item)
        except UnreadableSource:
            self._over = True
            raise

    @property
    def origin(self) -> tuple[str | None, str | None, str | None]:
        """The provider's message format, its host, and its model. The model of a bare source is unknown and None."""
        return self._adapter.format, self._transport.host, None

    @property
    def url(self) -> str | None:
        """The host and path of the response's URL, or None."""
        return self._transport.url

    async def aclose(self) -> None:
        """Stop reading and close the response. May be called at any time, from any task, and repeatedly."""
        self._over = True
        if not self._released:
            await self._transport.aclose()
            self._released = True

    def _end(self, cause: str | None, error: SourceError | None = None) -> list[SourceEvent]:
        """Return the events at the end of the transport.

        `cause` says why the transport broke off. It is None if the transport ended normally. `error` is the provider's
        error, if its SDK raised an exception.
        """
        self._over = True
        return self._adapter.close(cause) if error is None else self._adapter.fail(error)


_SILENCES = {"ReadTimeout", "NothingCame", "TimeoutError", "APITimeoutError"}
"""The names of exceptions for a connection without data: of HTTP clients, streamtools, event loops and SDKs."""


def _explain_silence(error: Exception, events: list[SourceEvent]) -> list[SourceEvent]:
    """Return the last events of a stream. If `error` is a read timeout, the error event gets a message about it."""
    if type(error).__name__ not in _SILENCES:
        return events
    extensions = getattr(getattr(error, "_request", None), "extensions", {})  # httpx; its `request` property may raise
    seconds = getattr(error, "seconds", None) or extensions.get("timeout", {}).get("read")
    for_ = f"for {seconds:g} s" if isinstance(seconds, int | float) else "for too long"
    text = f"nothing came from the provider {for_}: `timeout`, of the HTTP client or of the model, is how long to wait"
    end = events[-1] if events else None
    if type(end) is SourceError and end.cause == name_of(error):
        events[-1] = msgspec.structs.replace(end, message=text)
    return events
