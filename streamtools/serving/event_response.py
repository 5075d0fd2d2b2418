"""UI events as the body of an HTTP response, under any ASGI server and behind any middleware.

The response listens for the client's leaving by itself, whatever the server promises, from the first moment on; its
headers and first bytes go out at once, and what came at once is one chunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeGuard

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from streamtools.errors import RunNotFound
from streamtools.events import UIEvent
from streamtools.outputs import Encoder, Format, check_superseding, make_encoder
from streamtools.outputs.shared import Sharing
from streamtools.serving.connection import OnDisconnect, Outlet, Readable, Reading, attend, seconds
from streamtools.serving.journal import Attachment
from streamtools.serving.requests import unavailable
from streamtools.serving.run import Run
from streamtools.serving.shutdown import Shutdown
from streamtools.stream.driver import Flag
from streamtools.stream.tool_stream import ToolStream

_PATIENCE = 0.05  # seconds that a stream may take to open until the headers go out without it
_GONE = (OSError, ClientDisconnect)  # how servers since version 2.4 of ASGI tell that the client has gone
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)  # as many digits as a number of JavaScript holds exactly


class AnyRequest(Protocol):
    """A request or a websocket, of whichever framework."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def query_params(self) -> Any: ...


def last_event_id(request: AnyRequest | Mapping[str, Any]) -> int:
    """Return the `seq` of the last event that a client has seen, and 0 if it has seen none, or names no number.

    It is in the header `Last-Event-ID`, which a browser's `EventSource` sends when it comes back, or else in `?after=`.
    What is no number counts as 0: such a client gets all events again, and misses none. `request` is a request or a
    websocket of Starlette, FastAPI or Litestar, or the scope of ASGI.
    """
    # The requests of Starlette are mappings too: of the scope.
    asked: Any = request if hasattr(request, "query_params") else HTTPConnection(dict(request))
    position = asked.headers.get("last-event-id") or asked.query_params.get("after") or ""
    return int(position) if _NUMBER.fullmatch(position) else 0


class EventStreamResponse(Response):
    """A Starlette response, and so an ASGI application, that sends the events of a run or a stream.

    `run_or_stream` is a `Run`, a `ToolStream` or a chat, `replay(...)` or any other context manager that gives UI
    events, or an iterable of them; the response enters and leaves it, so it has not been entered. `format` is
    `"native"`, `"ai_sdk"`, `"ag_ui"`, `"openai"` or `"text"`, an encoder, or what makes one.

    A run is read behind `after`, a `seq`, or behind the last that the `request` says was seen, see `last_event_id`;
    formats that cannot be resumed begin at the start. When the client goes, a stream is stopped, and a run goes on
    unless `on_disconnect` is `"stop"`. In `keep_alive` seconds of silence a comment is sent where the format has one; a
    client that takes nothing for `send_timeout` seconds counts as gone. Both may be None. `headers` are added to those
    of the format, or replace them. When `shutdown` begins, what is read may finish for as long as that lets it, and is
    stopped then; a stream that would be begun later is closed, and the answer is 503 with `Retry-After`.

    Raises ValueError for values that are not allowed, TypeError for what gives no events. What the stream raises is
    raised by the response: as the server's own error if nothing has been sent, or else behind the end of the body.
    """

    def __init__(
        self,
        run_or_stream: Readable,
        *,
        format: Format = "native",
        after: int | None = None,
        request: AnyRequest | None = None,
        on_disconnect: OnDisconnect | None = None,
        keep_alive: float | None = 15.0,
        send_timeout: float | None = 60.0,
        headers: Mapping[str, str] | None = None,
        shutdown: Shutdown | None = None,
        background: BackgroundTask | None = None,
    ) -> None:
        if not (after is None or (isinstance(after, int) and after >= 0)):
            raise ValueError(f"after is the seq of an event, not {after!r}")
        encoder = make_encoder(format)
        check_superseding(encoder, run_or_stream)
        if after is None:
            after = last_event_id(request) if request is not None and isinstance(run_or_stream, Run) else 0
        self._reading = _Body(encoder, run_or_stream, after if encoder.resumable else 0, on_disconnect)
        seconds("keep_alive", keep_alive)
        seconds("send_timeout", send_timeout)
        self._keep_alive = keep_alive if encoder.keep_alive else None
        self._send_timeout = send_timeout
        self._shutdown = shutdown
        self.status_code = 200
        self.background = background
        given = {name.lower(): value for name, value in (headers or {}).items()}
        self.init_headers({"content-type": encoder.content_type, **encoder.headers, **given})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reading = self._reading
        if self._shutdown is not None and self._shutdown.begun and not reading.has_begun:
            await reading.close()
            await unavailable()(scope, receive, send)
            return
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD":  # which frameworks answer by the function for GET
            await reading.close()
            with suppress(*_GONE):
                await send(head)
                await send({"type": "http.response.body", "body": b""})
            return
        outlet = Outlet(send, keep_alive=self._keep_alive, send_timeout=self._send_timeout)
        reading.head, reading.put = head, outlet.put

        async def listen(group: TaskGroup) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def watch() -> None:
            with anyio.move_on_after(_PATIENCE):
                await reading.opened.wait()
            await reading.send_head()
            await outlet.watch(reading.fill)

        try:
            fault = await attend(
                reading.deliver,
                listen=listen,
                watch=watch,
                leave=reading.leave,
                shutdown=self._shutdown,
                stop=reading.stop,
            )
        finally:
            await reading.close()
        if fault is not None:
            raise fault
        if self.background is not None:
            await self.background()


class _Body(Reading):
    """The body of one response, and its head."""

    head: Message | None  # until it has been sent
    put: Send

    def __init__(self, encoder: Encoder, readable: Readable, after: int, on_disconnect: OnDisconnect | None) -> None:
        super().__init__(readable, after=after, on_disconnect=on_disconnect)
        self._encoder = encoder
        self._sharing: Sharing | None = None  # of a run, what its readers have in common
        self.opened = Flag()
        self._finished = False
        self._take_ready: Callable[[], Sequence[UIEvent]] | None = None

    async def deliver(self) -> None:
        """Read, and send what is read. Raises what the readable raises, behind the end of a body that has begun."""
        try:
            await self.read()
            await self.end()
        except Exception as error:
            if self.head is None:  # otherwise the server handles the fault
                await self.end()
                # A run that was forgotten between being found and being read is no fault of the server's: the body
                # ends without `done`, and a client that asks again hears that there is none.
                if isinstance(error, RunNotFound):
                    return
            raise

    def leave(self) -> None:
        """Note that the client has gone, if it has not got everything."""
        if not self._finished:
            super().leave()

    async def send_head(self) -> None:
        """Send the headers and the first bytes, once: some servers and middlewares hold back headers without a body."""
        if self.head is not None:
            head, self.head = self.head, None
            await self._send(head)
            await self.fill()

    async def fill(self) -> None:
        await self._send_body(self._encoder.keep_alive)

    async def close(self) -> None:
        await super().close()
        if self._sharing is not None:
            self._sharing.leave()

    async def begin(self) -> None:
        self.opened.set()
        await self.send_head()
        events = self._entered
        if isinstance(events, Attachment):
            self._sharing = Sharing(events.shelf, self._encoder, events.position)
        if isinstance(events, Attachment) or _reads_its_buffer(events):
            self._take_ready = events.take_ready

    async def take(self, event: UIEvent, /) -> None:
        """Send the next event, and those behind it that are there; and of a run in memory what comes, up to `done`."""
        self.last = event
        take_ready, events = self._take_ready, self._entered
        more = () if take_ready is None else take_ready()
        await self._put_data(self._write((event, *more)))
        if more:
            self.last = more[-1]
        if isinstance(events, Attachment):
            while more := await events.read_ready():
                self.last = more[-1]
                await self._put_data(self._write(more))

    def _write(self, events: Sequence[UIEvent]) -> bytes:
        if self._sharing is not None:
            return self._sharing.write(events)
        encode = self._encoder.encode
        return encode(events[0]) if len(events) == 1 else b"".join(map(encode, events))

    async def _put_data(self, data: bytes) -> None:
        if not data:
            await anyio.lowlevel.checkpoint()
        else:
            try:  # as `_send` does; three calls fewer for each event
                await self.put({"type": "http.response.body", "body": data, "more_body": True})
            except _GONE:
                await self._lose_client()

    async def end(self) -> None:
        """Send the end of the body; the second time nothing is left to do."""
        if not self._finished and not self.left:
            await self.send_head()
            data = (self._sharing or self._encoder).close()
            if data:
                await self._send_body(data)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self._finished = True

    async def _send_body(self, data: bytes) -> None:
        if not self._finished:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _send(self, message: Message) -> None:
        try:
            await self.put(message)
        except _GONE:
            await self._lose_client()

    async def _lose_client(self) -> None:
        super().leave()
        await anyio.lowlevel.checkpoint()


def _reads_its_buffer(events: object) -> TypeGuard[ToolStream]:
    """Return whether `take_ready` of a stream skips nothing: a subclass may change events in its own `__anext__`."""
    return isinstance(events, ToolStream) and type(events).__anext__ is ToolStream.__anext__


event_stream_response = EventStreamResponse
"""Makes the response, as an endpoint says it: `return event_stream_response(run)`."""
