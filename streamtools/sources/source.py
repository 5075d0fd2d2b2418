"""A source: a transport and an adapter, as an asynchronous iterator of batches of source events.

A batch holds the events of one network chunk. `Source` is a class, not an asynchronous generator, because a consumer
may be cancelled in mid-read, continue in another task, or stop reading. A generator that was cancelled once has ended,
and its end would look like the end of the stream.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
)
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
    """The source events of one stream, as one list per network chunk. A list may be empty.

    Failures of the transport become events and raise nothing. An object that cannot be read raises `UnreadableSource`.
    A read may be cancelled; the next read continues if the transport allows it.
    """

    def __init__(self, origin: object, adapter: Adapter) -> None:
        self._transport = Transport(origin)
        self._adapter = adapter
        adapter.content_type = self._transport.content_type
        self._read: Callable[[], Awaitable[Any]] | None = None  # None until the head of the response was checked
        self._cut = False  # the last read was cancelled, so that an end that follows is not the stream's own
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
            if self._over:  # it was closed in mid-read
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
        """The format of the provider's messages, the provider's host, and None for the model."""
        return self._adapter.format, self._transport.host, None

    @property
    def url(self) -> str | None:
        """The host and path of the response, if it has them."""
        return self._transport.url

    async def aclose(self) -> None:
        """Stop reading and close the response. May be called at any time, from any task, and repeatedly."""
        self._over = True
        if not self._released:
            await self._transport.aclose()
            self._released = True

    def _end(self, cause: str | None, error: SourceError | None = None) -> list[SourceEvent]:
        """Return the events at the end of the transport.

        `cause` says why the transport broke off, if it did. `error` is the provider's error, if an SDK raised it.
        """
        self._over = True
        return self._adapter.close(cause) if error is None else self._adapter.fail(error)


_SILENCES = {"ReadTimeout", "NothingCame", "TimeoutError", "APITimeoutError"}
"""The exceptions of HTTP clients, of our models, of event loops and of SDKs for a connection that stays silent."""


def _explain_silence(error: Exception, events: list[SourceEvent]) -> list[SourceEvent]:
    """Return the last events of a stream, with a message of its own if `error` means that no more data arrived."""
    if type(error).__name__ not in _SILENCES:
        return events
    extensions = getattr(getattr(error, "_request", None), "extensions", {})  # of httpx: `request` may raise
    seconds = getattr(error, "seconds", None) or extensions.get("timeout", {}).get("read")
    for_ = f"for {seconds:g} s" if isinstance(seconds, int | float) else "for too long"
    text = f"nothing came from the provider {for_}: `timeout`, of the HTTP client or of the model, is how long to wait"
    end = events[-1] if events else None
    if type(end) is SourceError and end.cause == name_of(error):
        events[-1] = msgspec.structs.replace(end, message=text)
    return events
