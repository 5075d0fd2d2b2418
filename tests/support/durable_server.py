"""A server of Durable Streams, for their suite: its readers are ours, and what writes is of the tests alone.

A stream is a run whose stream is a mailbox: what is appended is put in there, goes into the log as any event does, and
is there when the append is answered.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope

from streamtools.events import Done, Raw, Start, UIEvent
from streamtools.outputs.asgi import DurableStreamResponse, EventStreamResponse
from streamtools.runs import Run, Runs

_SAFE = {"x-content-type-options": "nosniff", "cross-origin-resource-policy": "cross-origin"}


class Stored:
    """A stream: its run, and the way into it."""

    def __init__(self, content_type: str, run: Run, send: MemoryObjectSendStream[UIEvent]) -> None:
        self.content_type = content_type
        self.run = run
        self._send = send

    async def append(self, messages: list[bytes], *, closes: bool) -> None:
        """Return when all is in the log."""
        events: list[UIEvent] = [Raw(base64.b64encode(each).decode()) for each in messages]
        events += [Done("finished", None, None, [])] if closes else []
        async with self.run.attach((await self.run.tail())[0]) as reader:
            for event in events:
                await self._send.send(event)
                while isinstance(await anext(reader), Start):
                    pass


class Bytes(DurableStreamResponse):
    """Reads what was appended: messages of JSON, or bytes, which server-sent events have in base64."""

    def __init__(self, stored: Stored) -> None:
        super().__init__(stored.run, long_poll=2.0)
        self.content_type = stored.content_type
        self._kind = stored.content_type.partition(";")[0].strip().lower()
        self._is_live = False

    def write(self, event: UIEvent) -> bytes:
        return base64.b64decode(event.data) if isinstance(event, Raw) else b""

    def join(self, messages: list[bytes]) -> bytes:
        if self._kind == "application/json":
            return super().join(messages)
        joined = b"".join(messages)
        return base64.b64encode(joined) if self._is_live and not self._kind.startswith("text/") else joined

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        answer = await super()._answer(scope, receive)
        self._is_live = isinstance(answer, EventStreamResponse)
        if isinstance(answer, EventStreamResponse) and not self._kind.startswith(("text/", "application/json")):
            answer.headers["stream-sse-data-encoding"] = "base64"
        return answer


class DurableServer:
    """The application, and its streams by their paths."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._streams: dict[str, Stored] = {}

    async def create(self, request: Request) -> Response:
        path, body = request.url.path, await request.body()
        kind = request.headers.get("content-type", "application/octet-stream")
        closes = request.headers.get("stream-closed", "").lower() == "true"
        stored = self._streams.get(path)
        if stored is not None:
            is_same = _name(stored.content_type) == _name(kind) and (await stored.run.tail())[1] == closes
            return await self._tell(stored, 200 if is_same else 409)
        try:
            messages = _read(kind, body)
        except ValueError:
            return Response("this is no JSON", 400, _SAFE)
        send, receive = anyio.create_memory_object_stream[UIEvent](0)
        run = await self._runs.start(_come(send, receive), owner="ann")
        stored = self._streams[path] = Stored(kind, run, send)
        await stored.append(messages, closes=closes)
        return await self._tell(stored, 201, location=str(request.url))

    async def append(self, request: Request) -> Response:
        stored, body = self._streams.get(request.url.path), await request.body()
        if stored is None:
            return Response("there is no such stream", 404, _SAFE)
        closes = request.headers.get("stream-closed", "").lower() == "true"
        if (await stored.run.tail())[1]:
            return await self._tell(stored, 204 if closes and not body else 409)
        if not body and not closes:
            return Response("there is nothing to append", 400, _SAFE)
        kind = request.headers.get("content-type")
        if body and (kind is None or _name(kind) != _name(stored.content_type)):
            return Response("the stream has another content type", 400 if kind is None else 409, _SAFE)
        try:
            messages = _read(stored.content_type, body)
        except ValueError:
            return Response("this is no JSON", 400, _SAFE)
        if body and not messages:
            return Response("there is nothing to append", 400, _SAFE)
        await stored.append(messages, closes=closes)
        return await self._tell(stored, 204)

    async def delete(self, request: Request) -> Response:
        stored = self._streams.pop(request.url.path, None)
        if stored is None:
            return Response("there is no such stream", 404, _SAFE)
        await stored.run.stop()
        return Response(None, 204, _SAFE)

    async def read(self, request: Request) -> Response:
        stored = self._streams.get(request.url.path)
        return Response("there is no such stream", 404, _SAFE) if stored is None else Bytes(stored)

    async def _tell(self, stored: Stored, status: int, **headers: str) -> Response:
        tail, is_closed = await stored.run.tail()
        told = {"stream-next-offset": f"{tail:016}", "content-type": stored.content_type, **headers, **_SAFE}
        return Response(None, status, {**told, "stream-closed": "true"} if is_closed else told)


@asynccontextmanager
async def _come(
    send: MemoryObjectSendStream[UIEvent], receive: MemoryObjectReceiveStream[UIEvent]
) -> AsyncIterator[AsyncIterator[UIEvent]]:
    async with send, receive:
        yield receive


def _name(kind: str) -> str:
    return kind.partition(";")[0].strip().lower()


def _read(kind: str, body: bytes) -> list[bytes]:
    """Return a body as messages; one of JSON as its elements, if it is an array."""
    if _name(kind) != "application/json" or not body:
        return [body] if body else []
    read = json.loads(body)
    return [json.dumps(each).encode() for each in (read if isinstance(read, list) else [read])]


def durable_app() -> Starlette:
    """The application."""
    runs = Runs()
    server = DurableServer(runs)
    paths = [
        Route("/{path:path}", server.create, methods=["PUT"]),
        Route("/{path:path}", server.append, methods=["POST"]),
        Route("/{path:path}", server.delete, methods=["DELETE"]),
        Route("/{path:path}", server.read, methods=["GET", "HEAD"]),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with runs:
            yield

    cors = Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
    return Starlette(routes=paths, lifespan=lifespan, middleware=[cors])
