"""Record what an HTTP client is answered, on the way to whoever asked.

    transport = RecordingTransport(httpx.AsyncHTTPTransport(), "chat.jsonl")
    async with httpx.AsyncClient(transport=transport) as client:
        ...

The client is any of httpx or httpx2, blocking or not. Each read of a response is one chunk. The bytes are decoded here
and handed on decoded, so that what is read and what is recorded are the same, cut in the same places; but keys that the
response holds are overwritten in the recording, and only there.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from streamtools.recording.captures import DETECT
from streamtools.recording.clients import items_of
from streamtools.recording.credentials import find_credentials
from streamtools.recording.exchange_file import Edit, Entry, ExchangeFile, Target
from streamtools.recording.library import library_of
from streamtools.recording.redact import describe_request, describe_response
from streamtools.recording.scrubbing import Secret

if TYPE_CHECKING:
    _Transport: Any = object  # to a type checker it fits clients of httpx and of httpx2, whichever is there
else:
    _Transport = object


class RecordingTransport(_Transport):  # type: ignore[misc] # see above
    """Asks `inner`, and writes each exchange into one recording, in the order of the requests.

    `target` is a path, which is written anew, or a file object, which is left open. `source` is the adapter that reads
    the responses; without it, it is detected when they are replayed. `redact` are secrets beside keys of known formats
    and the credentials of each request, which are overwritten in any case; `edit` takes each head before it is written
    and returns what is. A request that never got a response is an exchange too, and ends as its response would have. A
    file that cannot be written stops the recording and no response: `fault` is then the error. `clock` gives seconds.
    """

    def __init__(
        self,
        inner: Any,
        target: Target,
        *,
        source: str = DETECT,
        redact: Iterable[Secret] = (),
        edit: Edit | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Raises OSError for a path that cannot be opened, ValueError for a secret that cannot be looked for."""
        self._inner = inner
        self._file = ExchangeFile(target, source=source, redact=redact, edit=edit, clock=clock)

    @property
    def fault(self) -> OSError | None:
        """Why the recording breaks off, if it does."""
        return self._file.fault

    async def handle_async_request(self, request: Any) -> Any:
        """Return the response, decoded, which is recorded while it is read."""
        exchange = self._begin(request, await request.aread())
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException as error:
            exchange.fail(error)
            raise
        return self._recorded(request, response, exchange)

    def handle_request(self, request: Any) -> Any:
        """Return the response to a blocking client, decoded, which is recorded while it is read."""
        exchange = self._begin(request, request.read())
        try:
            response = self._inner.handle_request(request)
        except BaseException as error:
            exchange.fail(error)
            raise
        return self._recorded(request, response, exchange)

    async def aclose(self) -> None:
        """Close `inner`, and the file if it was opened here."""
        try:
            await self._inner.aclose()
        finally:
            self._file.close()

    def close(self) -> None:
        """Close `inner`, if that is blocking, and the file if it was opened here."""
        try:
            self._inner.close()
        finally:
            self._file.close()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        try:
            await self._inner.__aexit__(kind, error, trace)
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        try:
            self._inner.__exit__(kind, error, trace)
        finally:
            self._file.close()

    def _begin(self, request: Any, content: bytes) -> Entry:
        url, headers = str(request.url), items_of(request.headers)
        asked = describe_request(request.method, url, headers, content, redact=self._file.redact)
        return self._file.begin(asked, find_credentials(url, headers, content))

    def _recorded(self, request: Any, response: Any, exchange: Entry) -> Any:
        response.request = request
        headers = items_of(response.headers)
        exchange.answered(describe_response(response.status_code, headers, redact=exchange.secrets))
        if "content-encoding" in response.headers:  # is undone
            headers = [each for each in headers if each[0].lower() not in ("content-encoding", "content-length")]
        library = library_of(request)
        stream = _body_class(library)(response, exchange)
        return library.Response(response.status_code, headers=headers, stream=stream, extensions=response.extensions)


@functools.cache
def _body_class(library: ModuleType) -> type:
    """Return the class of bodies: clients insist on streams of their own library's classes."""
    return type("Body", (_Body, library.AsyncByteStream, library.SyncByteStream), {})


class _Body:
    """The decoded body of `response`. One that is closed before its end was left by the client."""

    def __init__(self, response: Any, exchange: Entry) -> None:
        self._response = response
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._response.aiter_bytes():
                self._exchange.chunk(data)
                yield data
        except Exception as error:
            self._exchange.fail(error)
            raise
        self._exchange.end("end")

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            self._exchange.end("left")

    def __iter__(self) -> Iterator[bytes]:
        try:
            for data in self._response.iter_bytes():
                self._exchange.chunk(data)
                yield data
        except Exception as error:
            self._exchange.fail(error)
            raise
        self._exchange.end("end")

    def close(self) -> None:
        try:
            self._response.close()
        finally:
            self._exchange.end("left")
