"""Sends frames over a websocket of Starlette, FastAPI or Litestar, and notices when the client leaves.

If the framework raises any exception from `send` or `receive`, the client is treated as disconnected.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from starlette.websockets import WebSocketState

from streamtools.events import UIEvent
from streamtools.outputs.sse import HIDDEN, read_exclude
from streamtools.serving.event_reader import EventReader, OnDisconnect, Readable
from streamtools.serving.response_writer import ResponseWriter
from streamtools.serving.shutdown import RETRY_AFTER, Shutdown

_CLOSE_TIMEOUT_S = 5.0

NORMAL, GOING_AWAY, POLICY_VIOLATION, INTERNAL_ERROR = 1000, 1001, 1008, 1011
"""Close codes: all events were sent, the server shuts down, the client sent an invalid message, the server failed."""


class AnyWebSocket(Protocol):
    """The methods that the websocket objects of all supported frameworks have."""

    def accept(self) -> Awaitable[None]: ...
    def receive(self) -> Awaitable[Any]: ...
    def send(self, message: Any, /) -> Awaitable[None]: ...


class Socket:
    """Wraps a framework's websocket. All frames are sent through `writer`."""

    def __init__(self, websocket: AnyWebSocket, *, send_timeout: float | None) -> None:
        # There is no keep-alive, because servers send pings.
        self.writer = ResponseWriter(
            websocket.send, keep_alive=None, send_timeout=send_timeout, disconnect_errors=(Exception,)
        )
        self._websocket = websocket
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether this object has closed the websocket, or the client has left."""
        return self._closed or self.writer.client_left

    async def accept(self) -> None:
        """Accept the websocket, unless the application has already accepted it."""
        if self._is_new:
            await self._websocket.accept()

    async def refuse(self) -> None:
        """Refuse the client during a shutdown.

        Sends the status 503 if the websocket is not accepted yet and the server supports HTTP responses to websockets.
        Otherwise, closes the websocket.
        """
        scope: Any = getattr(self._websocket, "scope", {})
        if self._is_new and "websocket.http.response" in (scope.get("extensions") or ()):
            headers = [(b"retry-after", str(RETRY_AFTER).encode()), (b"content-length", b"0")]
            with suppress(Exception):
                await self._websocket.send({"type": "websocket.http.response.start", "status": 503, "headers": headers})
                await self._websocket.send({"type": "websocket.http.response.body", "body": b""})
            self._closed = True
        await self.close(GOING_AWAY)

    async def receive(self) -> tuple[str | None] | None:
        """Return the next frame as `(text,)`. Returns `(None,)` for a binary frame, and None if the client has left."""
        with suppress(Exception):
            message = await self._websocket.receive()
            if message["type"] == "websocket.receive":
                return (message.get("text"),)
        self._closed = True
        return None

    async def send_text(self, text: str) -> None:
        """Send one text frame, unless the websocket is closed."""
        if not self.closed:
            await self.writer.send({"type": "websocket.send", "text": text})

    async def send_object(self, value: Mapping[str, Any]) -> None:
        """Send a JSON object that is not an event as one text frame."""
        await self.send_text(msgspec.json.encode(value).decode())

    async def close(self, code: int, reason: str = "") -> None:
        """Close the websocket, unless it is already closed."""
        if not self.closed:
            self._closed = True
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await self.writer.send({"type": "websocket.close", "code": code, "reason": reason})

    @property
    def _is_new(self) -> bool:
        socket: Any = self._websocket
        state = getattr(socket, "application_state", None) or getattr(socket, "connection_state", None)
        return state in (WebSocketState.CONNECTING, "init")


class SocketSink:
    """Sends each event as one text frame, except the event types in `exclude`. Implements `EventSink`."""

    begun = False  # a websocket has no body that must be ended after an exception

    def __init__(self, socket: Socket, exclude: Collection[str]) -> None:
        self._socket = socket
        self._exclude = exclude

    async def start(self, events: AsyncIterable[UIEvent] | None) -> None:
        pass

    async def send(self, events: Sequence[UIEvent], /) -> None:
        for event in events:
            if event.type not in self._exclude:
                await self._socket.send_text(event.to_json())

    async def finish(self) -> None:
        pass


async def send_events(
    websocket: AnyWebSocket,
    run_or_stream: Readable,
    *,
    after: int = 0,
    exclude: Collection[str] = HIDDEN,
    on_disconnect: OnDisconnect | None = None,
    send_timeout: float | None = 60.0,
    shutdown: Shutdown | None = None,
) -> None:
    """Send the events of a run or a stream, each as one text frame, then close the websocket.

    `exclude` names event types that are not sent. The default is `follow-up`, whose events contain messages for the
    model. The other parameters have the same meaning as in `event_stream_response`. Accepts the websocket if the
    application has not accepted it. Frames of the client are ignored. Returns when the websocket is closed or the
    client has left.

    The close code is 1000 after the last event, and 1001 if `shutdown` has begun. If the stream raises an exception,
    the code is 1011, and the exception is raised. If a stream would start after `shutdown` has begun, the stream is
    closed. The client then receives the status 503 if the websocket is not accepted yet and the server supports it.
    """
    excluded = read_exclude(exclude)
    socket = Socket(websocket, send_timeout=send_timeout)
    reader = EventReader(run_or_stream, after=after, on_disconnect=on_disconnect)

    async def listen(group: TaskGroup) -> None:
        while await socket.receive() is not None:
            pass

    try:
        if shutdown is not None and shutdown.begun and not reader.is_run:
            await socket.refuse()
            return
        await socket.accept()
        error = await socket.writer.deliver(
            partial(reader.read, SocketSink(socket, excluded)),
            listen=listen,
            on_disconnect=reader.leave,
            shutdown=shutdown,
            on_shutdown=reader.stop,
        )
    finally:
        await reader.close()
    is_ending = shutdown is not None and shutdown.begun
    await socket.close(INTERNAL_ERROR if error is not None else GOING_AWAY if is_ending else NORMAL)
    if error is not None:
        raise error
