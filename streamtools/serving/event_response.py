"""UI events as the body of an HTTP response, for any ASGI server and any middleware.

The response sends its headers and first bytes at once, listens for a disconnect, and joins events that arrive together.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from starlette.background import BackgroundTask
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from streamtools.errors import RunNotFound
from streamtools.events import UIEvent
from streamtools.outputs import Encoder, Format, check_superseding, make_encoder
from streamtools.serving.event_reader import EventReader, OnDisconnect, Readable
from streamtools.serving.journal import Attachment
from streamtools.serving.requests import unavailable
from streamtools.serving.response_writer import DISCONNECT_ERRORS, ResponseWriter, check_seconds
from streamtools.serving.run import Run
from streamtools.serving.shutdown import Shutdown

_MAX_HEADER_DELAY_S = 0.05  # headers wait so long for the stream to open, and are then sent without it
_SEQ = re.compile(r"[0-9]{1,15}", re.ASCII)  # integers that JavaScript represents exactly


class AnyRequest(Protocol):
    """A request or a websocket of any framework."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def query_params(self) -> Any: ...


def last_event_id(request: AnyRequest | Mapping[str, Any]) -> int:
    """Return the `seq` of the last event that a client has seen, or 0 if it has seen none.

    Reads the header `Last-Event-ID`, which a browser's `EventSource` sends when it reconnects, or else `?after=`. A
    value that is not a number counts as 0: the client receives all events again and misses none. `request` is a request
    or a websocket of Starlette, FastAPI or Litestar, or an ASGI scope.
    """
    # Starlette's requests are mappings too.
    connection: Any = request if hasattr(request, "query_params") else HTTPConnection(dict(request))
    seq = connection.headers.get("last-event-id") or connection.query_params.get("after") or ""
    return int(seq) if _SEQ.fullmatch(seq) else 0


class EventStreamResponse(Response):
    """A Starlette response, and so an ASGI application, that sends the events of a run or a stream.

    `run_or_stream` is a `Run`, a `ToolStream`, a chat, `replay(...)`, another context manager that gives UI events, or
    an iterable of them. The response enters and leaves it. `format` is the name of a format (`"native"`, `"ai_sdk"`,
    `"ag_ui"`, `"openai"`, `"text"`, …), an encoder, or a function that makes an encoder.

    A run is read after the event `after`, or after the event that the `request` names (see `last_event_id`). Formats
    that cannot be resumed start with the first event. When the client leaves, a stream is stopped, and a run continues
    unless `on_disconnect` is `"stop"`. After `keep_alive` seconds of silence a comment is sent if the format has one.
    A client that accepts nothing for `send_timeout` seconds counts as gone. Both may be None. `headers` are added to
    the headers of the format, or replace them. When `shutdown` begins, the response may finish within its drain, and is
    stopped then. A stream that would start later is closed, and the response is 503 with `Retry-After`.

    Raises ValueError for values that are not allowed and TypeError for an object without events. The response raises
    what the stream raises: before the first byte as the server's own error, otherwise after the end of the body.
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
            raise ValueError(f"`after` must be the seq of an event, got {after!r}.")
        encoder = make_encoder(format)
        check_superseding(encoder, run_or_stream)
        check_seconds("keep_alive", keep_alive)
        check_seconds("send_timeout", send_timeout)
        if after is None:
            after = last_event_id(request) if request is not None and isinstance(run_or_stream, Run) else 0
        self._encoder = encoder
        self._reader = EventReader(run_or_stream, after=after if encoder.resumable else 0, on_disconnect=on_disconnect)
        self._keep_alive = keep_alive if encoder.keep_alive else None
        self._send_timeout = send_timeout
        self._shutdown = shutdown
        self.status_code = 200
        self.background = background
        given = {name.lower(): value for name, value in (headers or {}).items()}
        self.init_headers({"content-type": encoder.content_type, **encoder.headers, **given})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = self._reader
        if self._shutdown is not None and self._shutdown.begun and not reader.has_begun:
            await reader.close()
            await unavailable()(scope, receive, send)
            return
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD":  # frameworks call the function for GET
            await reader.close()
            with suppress(*DISCONNECT_ERRORS):
                await send(head)
                await send({"type": "http.response.body", "body": b""})
            return
        writer = ResponseWriter(send, keep_alive=self._keep_alive, send_timeout=self._send_timeout)
        body = _EventBody(writer, self._encoder, head)

        async def listen(group: TaskGroup) -> None:
            group.start_soon(body.send_head_in_time)
            while (await receive())["type"] != "http.disconnect":
                pass

        def leave() -> None:
            if not body.finished:
                reader.leave()

        try:
            error = await writer.deliver(
                lambda: _send_all(reader, body),
                listen=listen,
                heartbeat=body.send_keep_alive,
                on_disconnect=leave,
                shutdown=self._shutdown,
                on_shutdown=reader.stop,
            )
        finally:
            await reader.close()
        if error is not None:
            raise error
        if self.background is not None:
            await self.background()


async def _send_all(reader: EventReader, body: _EventBody) -> None:
    """Send all events, and the end of the body if it has begun. Raises what the run or the stream raises."""
    try:
        await reader.read(body)
    except RunNotFound:  # the run was forgotten after it was found: an end without `done` lets the client ask again
        if not body.begun:
            raise
    except Exception:
        if body.begun and not reader.left:  # otherwise the server sends its error response
            await body.finish()
        raise
    if not reader.left:
        await body.finish()


class _EventBody:
    """The head and the body of one response; an `EventSink`."""

    def __init__(self, writer: ResponseWriter, encoder: Encoder, head: Message) -> None:
        self.begun = False
        """Whether the head has been sent."""
        self.finished = False
        self._writer = writer
        self._encoder = encoder
        self._head = head
        self._run: Attachment | None = None
        self._position = 0  # of the reader of a run
        self._opened = anyio.Event()

    async def send_head_in_time(self) -> None:
        """Send the head when the stream is open, or after a short delay without it."""
        with anyio.move_on_after(_MAX_HEADER_DELAY_S):
            await self._opened.wait()
        await self._send_head()

    async def send_keep_alive(self) -> None:
        """Send a comment, or the head if it has not been sent."""
        if self.begun:
            await self._send_data(self._encoder.keep_alive)
        else:
            await self._send_head()

    async def start(self, events: AsyncIterable[UIEvent] | None) -> None:
        self._opened.set()
        await self._send_head()
        if isinstance(events, Attachment):
            self._run, self._position = events, events.position

    async def send(self, events: Sequence[UIEvent], /) -> None:
        if data := self._encode(events):
            await self._send_data(data)
        else:
            await anyio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """Send the end of the body. Does nothing when it is called again."""
        if not self.finished:
            await self._send_head()
            if data := self._encoder.close():
                await self._send_data(data)
            await self._writer.send({"type": "http.response.body", "body": b"", "more_body": False})
            self.finished = True

    def _encode(self, events: Sequence[UIEvent]) -> bytes:
        if self._run is None:
            return b"".join(map(self._encoder.encode, events))
        if not self._encoder.resumable:  # a log that lost events may repeat some, which such a format cannot replace
            events = [event for event in events if event.seq > self._position or not self._position]
            self._position = max(self._position, *(event.seq for event in events), 0)
        return self._run.shared_frames.encode(self._encoder, events) if events else b""

    async def _send_head(self) -> None:
        if not self.begun:
            self.begun = True
            await self._writer.send(self._head)
            await self._send_data(self._encoder.keep_alive)  # some middlewares delay a head without a body

    async def _send_data(self, data: bytes) -> None:
        if not self.finished:
            await self._writer.send({"type": "http.response.body", "body": data, "more_body": True})


event_stream_response = EventStreamResponse
"""Makes the response in an endpoint: `return event_stream_response(run)`."""
