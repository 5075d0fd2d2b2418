"""Record what an HTTP client of httpx is answered, on the way to whoever asked.

    transport = RecordingTransport(httpx.AsyncHTTPTransport(), "chat.jsonl", source="openai")
    async with httpx.AsyncClient(transport=transport) as client:
        ...

Each read of a response is one chunk. The bytes are decoded here and handed on decoded, so that what is read and what is
recorded are the same, cut in the same places.
"""

from __future__ import annotations

import io
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import BinaryIO

import httpx

from streamtools.recording.format import EndKind, Head, Request
from streamtools.recording.redact import describe_request, describe_response
from streamtools.recording.writing import RecordingWriter, open_anew


class RecordingTransport(httpx.AsyncBaseTransport):
    """Asks `inner`, and writes each exchange into one recording, in the order of the requests.

    `target` is a path, which is written anew, or a file object, which is left open. `source` is the adapter that reads
    the responses. A request that never got a response is an exchange too, and ends as its response would have. One that
    is begun while another goes on is kept in memory until its turn. A file that cannot be written stops the recording
    and no response: `fault` is then the error. `clock` gives seconds.
    """

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        source: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Raises OSError for a path that cannot be opened."""
        self._inner = inner
        self._owned = isinstance(target, str | os.PathLike)
        self._file = open_anew(target) if isinstance(target, str | os.PathLike) else target
        self._source = source
        self._clock = clock
        self._exchanges: deque[_Exchange] = deque()
        self.fault: OSError | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response, decoded, which is recorded while it is read."""
        content = await request.aread()
        asked = describe_request(request.method, str(request.url), request.headers.multi_items(), content)
        exchange = _Exchange(self._source, asked, self._clock, self._write)
        self._exchanges.append(exchange)
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException as error:
            exchange.end(_kind(error), type(error).__name__)
            raise
        response.request = request
        exchange.answered(response)
        headers = response.headers.multi_items()
        if "content-encoding" in response.headers:  # is undone
            headers = [each for each in headers if each[0].lower() not in ("content-encoding", "content-length")]
        return httpx.Response(
            response.status_code, headers=headers, stream=_Body(response, exchange), extensions=response.extensions
        )

    async def aclose(self) -> None:
        """Close `inner`, and the file if it was opened here."""
        try:
            await self._inner.aclose()
        finally:
            if self._owned:
                self._file.close()

    def _write(self) -> None:
        """Write what is new of the first exchange, and go on to the next if it has ended."""
        while self._exchanges:
            exchange = self._exchanges[0]
            try:
                if self.fault is None and (lines := exchange.take()):
                    self._file.write(lines)
                    self._file.flush()
            except OSError as error:
                self.fault = error
            if not exchange.ended:
                return
            self._exchanges.popleft()


class _Exchange:
    """One exchange as the lines of a recording. `write` is called when there are more of them."""

    def __init__(self, source: str, request: Request, clock: Callable[[], float], write: Callable[[], None]) -> None:
        self._source = source
        self._request = request
        self._clock = clock
        self._write = write
        self._sent = clock()
        self._recorded = datetime.now(UTC).isoformat(timespec="seconds")
        self._lines = io.BytesIO()
        self._writer: RecordingWriter | None = None
        self.ended = False

    def answered(self, response: httpx.Response) -> None:
        """Write the head, with that of the response."""
        head = self._head(response)
        self._writer = RecordingWriter(self._lines, head)
        self._write()

    def chunk(self, data: bytes) -> None:
        """Write what one read gave. What an HTTP client still has of a response that was closed is none of it."""
        assert self._writer is not None
        if not self.ended:
            self._writer.chunk(data, self._now())
            self._write()

    def end(self, kind: EndKind, error: str = "") -> None:
        """Write how it ended, once."""
        if not self.ended:
            self.ended = True
            writer = self._writer or RecordingWriter(self._lines, self._head())
            writer.end(kind, self._now(), error)
            self._write()

    def take(self) -> bytes:
        """Return the lines that nobody has taken."""
        lines = self._lines.getvalue()
        self._lines.seek(0)
        self._lines.truncate()
        return lines

    def _head(self, response: httpx.Response | None = None) -> Head:
        answer = None if response is None else describe_response(response.status_code, response.headers.multi_items())
        return Head(source=self._source, recorded=self._recorded, request=self._request, response=answer)

    def _now(self) -> float:
        return max(0.0, (self._clock() - self._sent) * 1000)


class _Body(httpx.AsyncByteStream):
    """The decoded body of `response`. One that is closed before its end is a connection that broke: by our side."""

    def __init__(self, response: httpx.Response, exchange: _Exchange) -> None:
        self._response = response
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._response.aiter_bytes():
                self._exchange.chunk(data)
                yield data
        except Exception as error:
            self._exchange.end(_kind(error), type(error).__name__)
            raise
        self._exchange.end("end")

    async def aclose(self) -> None:
        try:
            await self._response.aclose()
        finally:
            self._exchange.end("reset", "closed by the client")


def _kind(error: BaseException) -> EndKind:
    return "timeout" if isinstance(error, httpx.TimeoutException) else "reset"
