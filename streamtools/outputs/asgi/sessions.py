"""One message's side of a conversation over a websocket: what its handler and its tools may ask of the client."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any, TypeAlias

from streamtools.events import Error, Executed, Executing, UIEvent
from streamtools.outputs.asgi.reading import Readable, Reading
from streamtools.outputs.asgi.sockets import AnyWebSocket, Socket, SocketReader
from streamtools.runs.mailbox import Mailbox


class Session:
    """One message's side of a websocket, for the handler that answers it and the tools of that answer."""

    def __init__(self, websocket: AnyWebSocket, socket: Socket, mailbox: Mailbox) -> None:
        self.websocket = websocket
        """As the framework made it: headers, user, state."""
        self._socket = socket
        self._mailbox = mailbox

    async def tool_result(self, call_id: str) -> Any:
        """Wait for the client's result of a call, and return it; for tools that run in the browser.

        The client sees the call's `executing` event and answers with `{"tool_result": {"call_id": …, "result": …}}`.
        Raises `ToolError` if it answers with an `error`. How long to wait is the tool's own timeout.
        """
        return await self._mailbox.wait(call_id)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send the client a JSON object of the application's own; events have a `type`, so it better has none."""
        await self._socket.send_object(message)


Handler: TypeAlias = Callable[[dict[str, Any], Session], "Coroutine[Any, Any, Readable | None] | Readable | None"]
"""Gets a message and its session, and returns the run or stream that answers it, or None."""


class SessionReader(SocketReader):
    """Reads for a session, and knows which calls are at work."""

    def __init__(self, socket: Socket, reading: Reading, exclude: Collection[str], mailbox: Mailbox) -> None:
        super().__init__(socket, reading, exclude)
        self._mailbox = mailbox

    async def take(self, event: UIEvent) -> None:
        """See `Reader`."""
        if isinstance(event, Executing):
            self._mailbox.expect(event.call.id)
        elif isinstance(event, Executed | Error):
            call_id = event.call.id if isinstance(event, Executed) else event.call_id
            if call_id is not None:
                self._mailbox.forget(call_id)
        await super().take(event)
