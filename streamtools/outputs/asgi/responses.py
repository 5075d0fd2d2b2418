"""UI events as the body of an HTTP response, under any ASGI server and behind any middleware.

The response listens for the client's leaving by itself, whatever the server promises, from the first moment on; its
headers and first bytes go out at once, and each event is a chunk of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from streamtools.errors import RunNotFound
from streamtools.events import UIEvent
from streamtools.outputs import Encoder, Format, make_encoder
from streamtools.outputs.asgi.positions import AnyRequest, last_event_id
from streamtools.outputs.asgi.reading import OnDisconnect, Readable, Reading
from streamtools.outputs.asgi.sending import Outlet, seconds
from streamtools.outputs.asgi.shutdown import Shutdown
from streamtools.runs import Run

_PATIENCE = 0.05  # seconds that a stream may take to open until the headers go out without it
_GONE = (OSError, ClientDisconnect)  # how servers since version 2.4 of ASGI tell that the client has gone
_STRETCH = 64  # events of a stream that never waits, until others get their turn and a leaving its chance


class EventStreamResponse(Response):
    """A Starlette response, and so an ASGI application, that sends events; made by `event_stream_response`."""

    def __init__(
        self,
        readable: Readable,
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
        self._encoder = make_encoder(format)
        if after is None:
            after = last_event_id(request) if request is not None and isinstance(readable, Run) else 0
        self._reading = Reading(readable, after=after if self._encoder.resumable else 0, on_disconnect=on_disconnect)
        seconds("keep_alive", keep_alive)
        seconds("send_timeout", send_timeout)
        self._keep_alive = keep_alive
        self._send_timeout = send_timeout
        self._shutdown = shutdown
        self.status_code = 200
        self.background = background
        told = {name.lower(): value for name, value in (headers or {}).items()}
        self.init_headers({"content-type": self._encoder.content_type, **self._encoder.headers, **told})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":  # which frameworks answer by the function for GET
            await self._reading.close()
            with suppress(*_GONE):
                await send(self._head())
                await send({"type": "http.response.body", "body": b""})
            return
        outlet = Outlet(
            send, keep_alive=self._keep_alive if self._encoder.keep_alive else None, send_timeout=self._send_timeout
        )
        body = _Body(self._encoder, outlet, self._head(), self._reading)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._deliver, body, group)
                group.start_soon(self._look_on, body, outlet, group)
                if self._shutdown is not None:
                    group.start_soon(self._stop, self._shutdown)
                try:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                finally:
                    body.leave()
                group.cancel_scope.cancel()
        finally:
            await self._reading.close()
        if body.fault is not None:
            raise body.fault
        if self.background is not None:
            await self.background()

    def _head(self) -> Message:
        return {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}

    async def _deliver(self, body: _Body, group: TaskGroup) -> None:
        try:
            await self._reading.run(body)
            await body.finish()
        except Exception as error:  # and the group is not shown it: it would wrap it
            # A run that was forgotten between being found and being read is no fault of the server's: the body ends
            # without `done`, and a client that asks again is told that there is none.
            if not (isinstance(error, RunNotFound) and body.begun):
                body.fault = error
            await body.finish_begun()
        finally:
            group.cancel_scope.cancel()

    async def _look_on(self, body: _Body, outlet: Outlet, group: TaskGroup) -> None:
        if not body.opened.is_set():
            with anyio.move_on_after(_PATIENCE):
                await body.opened.wait()
        await body.send_head()
        await outlet.watch(body.fill)
        body.leave()
        group.cancel_scope.cancel()

    async def _stop(self, shutdown: Shutdown) -> None:
        await shutdown.wait()
        await self._reading.stop()


class _Body:
    """The body of one response, and its head; reads for it."""

    def __init__(self, encoder: Encoder, outlet: Outlet, head: Message, reading: Reading) -> None:
        self._encoder = encoder
        self._encode = encoder.encode
        self._put = outlet.put
        self._head: Message | None = head
        self._reading = reading
        self._taken = 0
        self._finished = False
        self.opened = anyio.Event()
        self.fault: Exception | None = None

    @property
    def begun(self) -> bool:
        """Whether something has been sent."""
        return self._head is None

    def leave(self) -> None:
        """Note that the client has gone, if it has not got everything."""
        if not self._finished:
            self._reading.leave()

    async def send_head(self) -> None:
        """Send the headers and the first bytes, once: some servers and middlewares hold back headers without a body."""
        if self._head is not None:
            head, self._head = self._head, None
            await self._send(head)
            await self.fill()

    async def fill(self) -> None:
        """Say that the connection lives."""
        await self._send_body(self._encoder.keep_alive)

    async def begin(self) -> None:
        """See `Reader`."""
        self.opened.set()
        await self.send_head()

    async def take(self, event: UIEvent) -> None:
        """See `Reader`."""
        data = self._encode(event)
        if data:
            try:  # as `_send` does; three calls fewer for each event
                await self._put({"type": "http.response.body", "body": data, "more_body": True})
            except _GONE:
                await self._lose_client()
        self._taken += 1
        if not self._taken % _STRETCH:
            await anyio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """See `Reader`; the second time nothing is left to do."""
        if not self._finished and not self._reading.left:
            await self.send_head()
            data = self._encoder.close()
            if data:
                await self._send_body(data)
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            self._finished = True

    async def finish_begun(self) -> None:
        """Finish a body of which something has been sent, and leave any other to whoever hears of the fault."""
        if self.begun:
            await self.finish()

    async def _send_body(self, data: bytes) -> None:
        if not self._finished:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _send(self, message: Message) -> None:
        try:
            await self._put(message)
        except _GONE:
            await self._lose_client()

    async def _lose_client(self) -> None:
        self._reading.leave()
        await anyio.lowlevel.checkpoint()


def event_stream_response(
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
) -> EventStreamResponse:
    """Return the response that sends the events of a run or a stream, to be returned from an endpoint.

    `run_or_stream` is a `Run`, a `ToolStream` or a chat, `replay(...)` or any other context manager that gives UI
    events, or an iterable of them; the response enters and leaves it, so it has not been entered. `format` is
    `"native"`, `"ai_sdk"`, `"ag_ui"`, `"openai"` or `"text"`, an encoder, or what makes one.

    A run is read behind `after`, a `seq`, or behind the last that the `request` says was seen, see `last_event_id`;
    formats that cannot be resumed begin at the start. When the client goes, a stream is stopped, and a run goes on
    unless `on_disconnect` is `"stop"`. In `keep_alive` seconds of silence a comment is sent where the format has one; a
    client that takes nothing for `send_timeout` seconds counts as gone. Both may be None. `headers` are added to those
    of the format, or replace them. When `shutdown` begins, what is read is stopped.

    Raises ValueError for values that are not allowed, TypeError for what gives no events. What the stream raises is
    raised by the response: as the server's own error if nothing has been sent, or else behind the end of the body.
    """
    return EventStreamResponse(
        run_or_stream,
        format=format,
        after=after,
        request=request,
        on_disconnect=on_disconnect,
        keep_alive=keep_alive,
        send_timeout=send_timeout,
        headers=headers,
        shutdown=shutdown,
        background=background,
    )
