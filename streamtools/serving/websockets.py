"""One websocket, of Starlette, FastAPI or Litestar: sends frames one at a time, and notices when the client has gone.

Whatever a framework raises when it cannot send or receive, it means that the client has gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from starlette.websockets import WebSocketState

from streamtools.events import UIEvent
from streamtools.outputs.encoder import HIDDEN, read_exclude
from streamtools.serving.client_frames import Mailbox
from streamtools.serving.connection import OnDisconnect, Outlet, Readable, Reading, attend
from streamtools.serving.shutdown import RETRY_AFTER, Shutdown

_GOODBYE = 5.0  # seconds that the close frame may take to get out

NORMAL, GOING_AWAY, UNWANTED, FAULT = 1000, 1001, 1008, 1011
"""Close codes: the end, the server's end, a fault of the client, a fault of the server."""


class AnyWebSocket(Protocol):
    """What the websockets of the frameworks have in common."""

    def accept(self) -> Awaitable[None]: ...
    def receive(self) -> Awaitable[Any]: ...
    def send(self, message: Any, /) -> Awaitable[None]: ...


class Socket:
    """A websocket that is accepted when it is used; `send_timeout` is in seconds, None for never."""

    def __init__(self, websocket: AnyWebSocket, *, send_timeout: float | None) -> None:
        self._websocket = websocket
        self._outlet = Outlet(websocket.send, keep_alive=None, send_timeout=send_timeout)
        self.gone = False

    @property
    def _is_new(self) -> bool:
        socket: Any = self._websocket
        state = getattr(socket, "application_state", None) or getattr(socket, "connection_state", None)
        return state in (WebSocketState.CONNECTING, "init")

    async def accept(self) -> None:
        if self._is_new:
            await self._websocket.accept()

    async def refuse(self) -> None:
        """Turn away a client for whom nothing is begun any more: with 503, where it is not too late for that."""
        scope: Any = getattr(self._websocket, "scope", {})
        if self._is_new and "websocket.http.response" in (scope.get("extensions") or ()):
            headers = [(b"retry-after", str(RETRY_AFTER).encode()), (b"content-length", b"0")]
            with suppress(Exception):
                await self._websocket.send({"type": "websocket.http.response.start", "status": 503, "headers": headers})
                await self._websocket.send({"type": "websocket.http.response.body", "body": b""})
            self.gone = True
        await self.close(GOING_AWAY)

    async def receive(self) -> tuple[str | None] | None:
        """Return the text of the next frame, in a tuple, (None,) for one of bytes, or None if the client has gone."""
        with suppress(Exception):
            message = await self._websocket.receive()
            if message["type"] == "websocket.receive":
                return (message.get("text"),)
        self.gone = True
        return None

    async def send_text(self, text: str) -> None:
        """Send one frame; to a client that has gone, nothing."""
        if not self.gone:
            try:
                await self._outlet.put({"type": "websocket.send", "text": text})
            except Exception:
                self.gone = True

    async def send_object(self, value: Mapping[str, Any]) -> None:
        """Send one frame that is no event."""
        await self.send_text(msgspec.json.encode(value).decode())

    async def watch(self) -> None:
        """Return when a frame takes too long, and the client counts as gone."""
        await self._outlet.watch(anyio.lowlevel.checkpoint)  # nothing is sent in silence: servers ping by themselves
        self.gone = True

    async def close(self, code: int, reason: str = "") -> None:
        """Close the websocket, unless the client has gone."""
        if not self.gone:
            self.gone = True
            with anyio.move_on_after(_GOODBYE, shield=True):
                try:
                    await self._outlet.put({"type": "websocket.close", "code": code, "reason": reason})
                except Exception:
                    await anyio.lowlevel.checkpoint()


class SocketReading(Reading):
    """A reading whose events go over a websocket, one a frame, but for those of the types in `exclude`.

    The `mailbox`, if there is one, is kept informed of the calls that are at work.
    """

    def __init__(
        self, socket: Socket, exclude: Collection[str], readable: Readable, mailbox: Mailbox | None = None, **more: Any
    ) -> None:
        super().__init__(readable, **more)
        self._socket = socket
        self._exclude = exclude
        self._mailbox = mailbox

    async def take(self, event: UIEvent, /) -> None:
        self.last = event
        if self._mailbox is not None:
            self._mailbox.follow(event)
        if event.type not in self._exclude:
            await self._socket.send_text(event.to_json())
        if self._socket.gone:
            self.leave()
            await anyio.lowlevel.checkpoint()


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
    """Send the events of a run or a stream, each as one text frame, and close the websocket behind the last.

    `exclude` names types of events that are not sent, by default `follow-up`, which holds what the model gets. The
    other parameters are those of `event_stream_response`; the websocket is accepted if it is not yet, and what its
    client says is not listened to. Returns when it is closed, or the client has gone. The close code is 1000 at the
    end, 1001 when `shutdown` has begun, and 1011 if the stream raises, which is then raised. A stream that would be
    begun behind that is closed, and a client that has not been accepted gets 503 where the server can send it.
    """
    excluded = read_exclude(exclude)
    socket = Socket(websocket, send_timeout=send_timeout)
    reading = SocketReading(socket, excluded, run_or_stream, after=after, on_disconnect=on_disconnect)

    async def listen(group: TaskGroup) -> None:
        while await socket.receive() is not None:
            pass

    try:
        if shutdown is not None and shutdown.begun and not reading.has_begun:
            await socket.refuse()
            return
        await socket.accept()
        fault = await attend(
            reading.read, listen=listen, watch=socket.watch, leave=reading.leave, shutdown=shutdown, stop=reading.stop
        )
    finally:
        await reading.close()
    ending = shutdown is not None and shutdown.begun
    await socket.close(FAULT if fault is not None else GOING_AWAY if ending else NORMAL)
    if fault is not None:
        raise fault
