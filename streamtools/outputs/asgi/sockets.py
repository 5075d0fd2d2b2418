"""One websocket, of Starlette, FastAPI or Litestar: what goes out of it one at a time, and what becomes of its client.

Whatever a framework raises when it cannot send or receive, it means that the client has gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import msgspec
from starlette.websockets import WebSocketState

from streamtools.events import UIEvent
from streamtools.outputs.asgi.reading import Reading
from streamtools.outputs.asgi.sending import Outlet

_GOODBYE = 5.0  # seconds that the close frame may take to get out
_STRETCH = 64  # events of a stream that never waits, until others get their turn and a leaving its chance

NORMAL, GOING_AWAY, FAULT = 1000, 1001, 1011
"""Close codes: the end, the server's end, a fault of the server."""


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

    async def accept(self) -> None:
        """Accept the connection, unless somebody has."""
        state = getattr(self._websocket, "application_state", None) or getattr(
            self._websocket, "connection_state", None
        )
        if state in (WebSocketState.CONNECTING, "init"):
            await self._websocket.accept()

    async def receive(self) -> tuple[str | None] | None:
        """Return the text of the next frame, in a tuple, (None,) for one of bytes, or None if the client has gone."""
        try:
            message = await self._websocket.receive()
        except Exception:
            self.gone = True
            return None
        if message["type"] != "websocket.receive":
            self.gone = True
            return None
        return (message.get("text"),)

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
        await self._outlet.watch(_say_nothing)
        self.gone = True

    async def close(self, code: int, reason: str = "") -> None:
        """Say goodbye, if there is somebody to hear it."""
        if not self.gone:
            self.gone = True
            with anyio.move_on_after(_GOODBYE, shield=True):
                try:
                    await self._outlet.put({"type": "websocket.close", "code": code, "reason": reason})
                except Exception:
                    await anyio.lowlevel.checkpoint()


class SocketReader:
    """Reads events for a websocket: each is one frame, but for those of the types in `exclude`."""

    def __init__(self, socket: Socket, reading: Reading, exclude: Collection[str]) -> None:
        self._socket = socket
        self._reading = reading
        self._exclude = exclude

    async def begin(self) -> None:
        """See `Reader`."""

    async def take(self, event: UIEvent) -> None:
        """See `Reader`."""
        if event.type not in self._exclude:
            await self._socket.send_text(event.to_json())
        if self._socket.gone:
            self._reading.leave()
            await anyio.lowlevel.checkpoint()
        elif not event.seq % _STRETCH:
            await anyio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """See `Reader`."""


async def _say_nothing() -> None:
    """Nothing is sent in silence: servers ping by themselves."""
