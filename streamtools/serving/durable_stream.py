"""A run as a durable stream: its log read by offsets, whole, by long polls or as server-sent events. Reading only.

The protocol is that of Durable Streams (its PROTOCOL.md, and the suite of its servers). A stream is a run, in its JSON
mode: a message is an event. An offset is the `seq` of the last event before it, with leading zeros, since clients may
compare offsets as text. `done` closes a stream.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import anyio
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streamtools.errors import RunNotFound
from streamtools.events import Done, UIEvent, Warning
from streamtools.outputs.encoder import EVENT_STREAM, EVENT_STREAM_HEADERS, HIDDEN, KEEP_ALIVE, NativeEncoder
from streamtools.serving.connection import seconds
from streamtools.serving.event_response import EventStreamResponse
from streamtools.serving.run import Run
from streamtools.serving.shutdown import Shutdown

_OFFSET = re.compile(r"[0-9]{16}", re.ASCII)
_CURSOR = re.compile(r"[0-9]{1,15}", re.ASCII)
_LINE_END = re.compile(rb"\r\n|\r|\n")
_CHUNK = 1024 * 1024  # bytes of messages in one answer, and one message more
_INTERVAL = 20  # seconds in which live reads have the same cursor, counted from the date in the protocol,
_SINCE = 1_728_432_000  # the ninth of October 2024
_SAFE = {"x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-origin"}


class DurableStreamResponse(Response):
    """A Starlette response, and so an ASGI application, that answers a request of a client of Durable Streams.

    `run` is what `Runs.find` has found for its owner; that an endpoint asks there who may read it is all there is of
    permissions. GET reads from `offset`, with `live=long-poll` or `live=sse` beyond the end; HEAD tells the end.
    Everything else, writing above all, is 405 with `Allow`. Readers do not get the types of events that `exclude` names
    (see `NativeEncoder`). A long poll waits for `long_poll` seconds. `keep_alive`, `send_timeout` and `shutdown` are
    those of `EventStreamResponse`, for server-sent events.

    An offset that is kept no more, or never was, is 410, and one that is none 400; a run that is kept no more is 404.
    Raises ValueError for values that are not allowed.
    """

    content_type = "application/json"

    def __init__(
        self,
        run: Run,
        *,
        exclude: Collection[str] = HIDDEN,
        long_poll: float = 20.0,
        keep_alive: float | None = 15.0,
        send_timeout: float | None = 60.0,
        shutdown: Shutdown | None = None,
    ) -> None:
        self._run = run
        self._encoder = NativeEncoder(framing="ndjson", exclude=exclude)
        self._long_poll = seconds("long_poll", long_poll)
        self._live: dict[str, Any] = {"keep_alive": keep_alive, "send_timeout": send_timeout, "shutdown": shutdown}
        self._shutdown = shutdown
        self.status_code = 200
        self.background = None
        self.init_headers()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except RunNotFound:
            answer = self._say(404, "nothing is kept of this run")
        if answer is not None:
            await answer(scope, receive, send)

    def write(self, event: UIEvent) -> bytes:
        """Return an event as a message, `b""` for one that readers do not get."""
        return self._encoder.encode(event).rstrip(b"\n")

    def join(self, messages: list[bytes]) -> bytes:
        """Return messages as a body, or the data of a server-sent event."""
        return b"[%b]" % b",".join(messages)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the answer; None where the client has gone."""
        if scope["method"] not in ("GET", "HEAD"):
            return self._say(405, "streams are read here, and not written", {"allow": "GET, HEAD"})
        tail, is_closed = end = await self._run.tail()
        if scope["method"] == "HEAD":
            return self._found(None, tail, end, {"cache-control": "no-store"})
        asked = QueryParams(scope["query_string"])
        offsets, live = asked.getlist("offset"), asked.get("live")
        if len(offsets) > 1 or live not in (None, "long-poll", "sse") or (live is not None and not offsets):
            return self._say(400, "a stream is read from one offset, and live by long-poll or sse")
        offset = offsets[0] if offsets else "-1"
        if offset not in ("-1", "now") and not _OFFSET.fullmatch(offset):
            return self._say(400, "this is no offset: see Stream-Next-Offset")
        after = tail if offset == "now" else 0 if offset == "-1" else int(offset)
        if after > tail:
            return self._say(410, "the stream has not come to this offset")
        cursor = _next_cursor(asked.get("cursor", ""))
        if live == "sse":
            return EventStreamResponse(
                self._run,
                format=_Frames(self, after, tail, is_closed, cursor),
                after=after,
                headers=_SAFE,
                **self._live,
            )
        headers = {"cache-control": "no-store" if offset == "now" else "private, no-cache"}
        messages: list[bytes] = []
        position = after
        if after < tail:
            messages, position = await self._read(after, tail)
            if position < 0:
                return self._say(410, "the events behind this offset are kept no more")
        elif live and not is_closed:
            came = await self._wait(after, receive)
            if came is None:
                return None
            if came:
                end = await self._run.tail()
                messages, position = await self._read(after, end[0])
        if live:
            headers["stream-cursor"] = cursor
            if position == after:
                return self._found(None, position, end, headers, 204)
        if offset != "now":
            headers["etag"] = tag = f'"{self._run.id}:{after}:{position}"'
            if tag in Headers(scope=scope).get("if-none-match", ""):
                return self._found(None, position, end, headers, 304)
        return self._found(messages, position, end, headers)

    async def _read(self, after: int, tail: int) -> tuple[list[bytes], int]:
        """Return what is there behind `after`, up to a bound, and behind which event that ends; -1: it is lost."""
        messages: list[bytes] = []
        size, position = 0, after
        async with self._run.attach(after) as events:
            async for event in events:
                if after and position == after and isinstance(event, Warning) and event.code == "resync":
                    return [], -1
                position = event.seq
                if message := self.write(event):
                    messages.append(message)
                    size += len(message)
                if position >= tail or size >= _CHUNK:
                    break
        return messages, position

    async def _wait(self, after: int, receive: Receive) -> bool | None:
        """Wait for an event behind `after`; return whether one has come in time, or None if the client has gone."""
        came: bool | None = False

        async def wait() -> None:
            nonlocal came
            with suppress(RunNotFound):
                async with self._run.attach(after) as events:
                    came = await anext(events, None) is not None
            group.cancel_scope.cancel()

        async def listen() -> None:
            nonlocal came
            while (await receive())["type"] != "http.disconnect":
                pass
            came = None
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.cancel_scope.deadline = anyio.current_time() + self._long_poll
            group.start_soon(wait)
            group.start_soon(listen)
            if self._shutdown is not None:
                await self._shutdown.wait_over()
                group.cancel_scope.cancel()
        return came

    def _found(
        self, messages: list[bytes] | None, at: int, end: tuple[int, bool], headers: dict[str, str], status: int = 200
    ) -> Response:
        fields = {**_SAFE, **headers, "stream-next-offset": _write_offset(at)}
        if at >= end[0]:
            fields["stream-up-to-date"] = "true"
            if end[1]:
                fields["stream-closed"] = "true"
        if status == 200:
            fields["content-type"] = self.content_type
        response = Response(None if messages is None else self.join(messages), status, fields)
        if messages is None and status == 200:
            del response.headers["content-length"]  # which is that of a body
        return response

    def _say(self, status: int, what: str, headers: Mapping[str, str] | None = None) -> Response:
        return Response(what, status, {**_SAFE, "cache-control": "no-store", **(headers or {})}, "text/plain")


class _Frames:
    """Writes server-sent events: a message, and behind it where the reader is."""

    content_type = EVENT_STREAM
    headers = EVENT_STREAM_HEADERS
    resumable = True

    def __init__(self, stream: DurableStreamResponse, after: int, tail: int, is_closed: bool, cursor: str) -> None:
        self._stream = stream
        self._position = after
        self._tail = tail
        self._is_closed = is_closed
        self._cursor = cursor
        self._has_read = False

    @property
    def keep_alive(self) -> bytes:
        """Where the reader is, if it has come to the end: then it need not have read anything to know."""
        return self._control() if self._position >= self._tail and not self._is_closed else KEEP_ALIVE

    def encode(self, event: UIEvent) -> bytes:
        """Return a message, and where the reader is behind it."""
        self._position = event.seq
        self._has_read = True
        self._is_closed = isinstance(event, Done)
        message = self._stream.write(event)
        if not message:
            return self._control() if self._is_closed else b""
        lines = _LINE_END.split(self._stream.join([message]))
        return b"event: data\n%b\n%b" % (b"".join(b"data:%b\n" % line for line in lines), self._control())

    def close(self) -> bytes:
        """Return that the stream is closed, where it was before anything was read."""
        return self._control() if self._is_closed and not self._has_read else b""

    def _control(self) -> bytes:
        """Return where the reader is. What comes live comes at the end."""
        control = f'"streamNextOffset":"{_write_offset(self._position)}"'
        if self._is_closed and self._position >= self._tail:
            control += ',"upToDate":true,"streamClosed":true'
        else:
            control += f',"streamCursor":"{self._cursor}"' + ',"upToDate":true' * (self._position >= self._tail)
        return b"event: control\ndata:{%b}\n\n" % control.encode()


def _write_offset(position: int) -> str:
    return f"{position:016}"


def _next_cursor(asked: str) -> str:
    """Return the number of the interval; a reader that has had it already gets a later one, lest a cache circles."""
    now = int(time.time() - _SINCE) // _INTERVAL
    known = int(asked) if _CURSOR.fullmatch(asked) else -1
    return str(now if known < now else known + random.randint(1, 180))  # noqa: S311 - up to an hour, says the protocol


durable_stream_response = DurableStreamResponse
"""Makes the response, as an endpoint says it: `return durable_stream_response(run)`."""
