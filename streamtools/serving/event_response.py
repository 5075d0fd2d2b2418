"""Sends UI events as the body of an HTTP response, with any ASGI server and any middleware.

The response sends its headers and first bytes before the first event. It notices when the client disconnects. Events
that are available together are sent in one message.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import anyio
import anyio.lowlevel
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from streamtools.errors import Checked, check_methods, check_number
from streamtools.events import UIEvent, explain_attribute
from streamtools.logs import Logger
from streamtools.outputs import Encoder, Format, check_can_replace_steps, make_encoder
from streamtools.outputs.sse import encode
from streamtools.serving.event_reader import EventReader, EventSink, OnDisconnect, Readable
from streamtools.serving.journal import Attachment
from streamtools.serving.requests import unavailable
from streamtools.serving.response_writer import DISCONNECT_ERRORS, ResponseWriter, check_seconds, wait_for_disconnect
from streamtools.serving.shutdown import Shutdown

_log = Logger(__name__)
_MAX_HEADER_DELAY_S = 0.05  # the headers wait at most this long until the stream is open
_SEQ = re.compile(r"[0-9]{1,15}", re.ASCII)  # up to 15 digits: JavaScript represents these integers exactly


class AnyRequest(Protocol):
    """A request or a websocket of any framework."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def query_params(self) -> Any: ...


def last_event_id(request: AnyRequest | Mapping[str, Any]) -> int:
    """Return the `seq` of the last event that a client has seen, or 0 if it has seen none.

    Reads the header `Last-Event-ID`, which a browser's `EventSource` sends when it reconnects. Without this header, it
    reads the query parameter `after`. Returns 0 for a value that is not a number, so that the client receives all
    events again and misses none, and logs a warning. `request` is a request or a websocket of Starlette, FastAPI or
    Litestar, or an ASGI scope.
    """
    # Starlette's requests are also mappings, so an isinstance check cannot tell them from a scope.
    connection: Any = request if hasattr(request, "query_params") else HTTPConnection(dict(request))
    seq = connection.headers.get("last-event-id") or connection.query_params.get("after") or ""
    is_seq = _SEQ.fullmatch(seq)
    if seq and not is_seq:
        _log.warning("position_ignored", advice="`Last-Event-ID` and `after` must be the `seq` of an event")
    return int(seq) if is_seq else 0


class EventStreamResponse(Checked, Response):
    """A Starlette response (an ASGI application) that sends the events of a run or a stream.

    - `run_or_stream` is a `Run`, a `ToolStream`, a chat, `replay(...)`, another context manager that returns UI events,
      or an asynchronous iterable of UI events. The response enters and leaves context managers.
    - `format` is the name of a format (`"native"`, `"ai_sdk"`, `"ag_ui"`, `"openai"`, `"text"`, …), an encoder, or a
      function that makes one.
    - `after`: of a run, only the events with a higher `seq` are sent. The default is the `last_event_id` of the
      request. A format that cannot be resumed always starts with the first event.
    - `on_disconnect`: when the client leaves, a stream is stopped. A run is only stopped with `"stop"`, even
      if other clients still read it. `Runs(stop_when_abandoned=…)` stops a run that no client reads.
    - `keep_alive`: after that many seconds without data, a comment is sent if the format has comments (None: never).
    - `send_timeout`: a client that accepts no data for that many seconds is treated as disconnected (None: no limit).
    - `max_rate`: at most that many messages per second contain only text, reasoning or arguments (None: no limit).
      Deltas that arrive in between are joined. Other events are not delayed, and are sent with the waiting deltas.
    - `headers` are added to the headers of the format, and replace headers with the same name.
    - `shutdown`: when it begins, the response may finish during the drain, and is stopped after it. If it has begun
      before a stream starts, the stream is closed, and the response is 503 with `Retry-After`.
    - `background` runs after the response, unless the stream raised an exception.

    Raises ValueError for values that are not allowed, and TypeError for an object without events. Exceptions of the
    stream are raised to the server: immediately if no data was sent, otherwise after the end of the body.
    """

    def __init__(
        self,
        run_or_stream: Readable,
        *,
        format: Format = "native",
        after: int | None = None,
        on_disconnect: OnDisconnect | None = None,
        keep_alive: float | None = 15.0,
        send_timeout: float | None = 60.0,
        max_rate: float | None = None,
        headers: Mapping[str, str] | None = None,
        shutdown: Shutdown | None = None,
        background: BackgroundTask | None = None,
    ) -> None:
        check_number("after", after, 0, whole=True, optional=True)
        encoder = make_encoder(format)
        check_can_replace_steps(encoder, run_or_stream)
        check_seconds("keep_alive", keep_alive)
        check_seconds("send_timeout", send_timeout)
        check_number("max_rate", max_rate, optional=True)
        check_methods("headers", headers, 'a dict, such as {"X-Run": run.id}', "items", optional=True)
        self._encoder = encoder
        self._reads_position = after is None and encoder.resumable
        if after is None or not encoder.resumable:
            after = 0
        self._reader = EventReader(run_or_stream, after=after, on_disconnect=on_disconnect)
        self._keep_alive = keep_alive if encoder.keep_alive else None
        self._send_timeout = send_timeout
        self._max_rate = max_rate
        self._shutdown = shutdown
        self.status_code = 200
        self.background = background
        given = {name.lower(): value for name, value in (headers or {}).items()}
        self.init_headers({"content-type": encoder.content_type, **encoder.headers, **given})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reader = self._reader
        if self._shutdown is not None and self._shutdown.begun and reader.run is None:
            await reader.close()
            await unavailable()(scope, receive, send)
            return
        if self._reads_position and reader.run is not None:
            reader.after = last_event_id(scope)
        elif reader.run is None and last_event_id(scope):
            _log.warning("stream_started_again", advice="start a run: a client that reconnects asks a stream again")
        head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        if scope["method"] == "HEAD":  # frameworks also call a GET endpoint for HEAD
            await reader.close()
            with suppress(*DISCONNECT_ERRORS):
                await send(head)
                await send(_body_message(b"", more=False))
            return
        writer = ResponseWriter(
            send, keep_alive=self._keep_alive, send_timeout=self._send_timeout, max_rate=self._max_rate
        )
        body = _EventBody(writer, self._encoder, head)
        listen = partial(wait_for_disconnect, body.send_head_in_time, receive)
        error = await reader.deliver(
            writer, body, listen=listen, heartbeat=body.send_keep_alive, shutdown=self._shutdown
        )
        if error is not None:
            explain_attribute(error)
            if body.begun or not isinstance(error, HTTPException):  # which the application answers
                _log.error("response_failed", error)
            raise error
        if self.background is not None:
            await self.background()


class _EventBody(EventSink):
    """Sends the head and the body of one response."""

    def __init__(self, writer: ResponseWriter, encoder: Encoder, head: Message) -> None:
        self.begun = False
        """Whether the head has been sent."""
        self.finished = False
        self._writer = writer
        self._encoder = encoder
        self._head = head
        self._run: Attachment | None = None  # None if the events are not from a run
        self._position = 0  # the highest seq that was sent; only for a run
        self._opened = anyio.Event()

    async def send_head_in_time(self) -> None:
        """Send the head as soon as the stream is open, but at the latest after a short delay."""
        with anyio.move_on_after(_MAX_HEADER_DELAY_S):
            await self._opened.wait()
        await self._send_head(with_comment=True)

    async def send_keep_alive(self) -> None:
        """Send a comment. If the head has not been sent, send the head instead."""
        message = _body_message(self._encoder.keep_alive)
        if not self.begun:
            await self._send_head(with_comment=True)
        elif not self.finished:
            await self._writer.send(message)

    async def start(self, events: AsyncIterable[UIEvent] | None) -> None:
        self._opened.set()
        if isinstance(events, Attachment):
            self._run, self._position = events, events.position

    async def send(self, events: Sequence[UIEvent], /) -> None:
        if self._run is not None and not self._encoder.resumable:
            # The log may have lost sent events and received them again: skip these.
            events = [event for event in events if event.seq > self._position or not self._position]
            self._position = max(self._position, *(event.seq for event in events), 0)
        data = encode(self._encoder, events, joins=self._writer.max_rate is not None)
        if data:
            await self._send_head()
            await self._writer.send(_body_message(data))
        else:
            await anyio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """Send the end of the body. Later calls do nothing."""
        if not self.finished:
            await self._send_head()
            # A client that can resume a run must not be told that the run has failed.
            if data := b"" if self._run is not None and self._encoder.resumable else self._encoder.close():
                await self._writer.send(_body_message(data))
            await self._writer.send(_body_message(b"", more=False))
            self.finished = True

    async def _send_head(self, *, with_comment: bool = False) -> None:
        """Send the head. If no data follows, a comment is needed: some middlewares delay the head until the body."""
        if not self.begun:
            self.begun = True
            await self._writer.send(self._head)
            if with_comment:
                await self._writer.send(_body_message(self._encoder.keep_alive))


def _body_message(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


event_stream_response = EventStreamResponse
"""Another name of `EventStreamResponse`, for use in an endpoint: `return event_stream_response(run)`."""
