"""A provider on this machine, which gives the answers that are in recordings.

It speaks as much HTTP/1.1 as an honest client needs: one request a connection, a chunked response. A request with the
very body that stands in a recording gets the recorded response, chunk by chunk, with its timing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup
from anyio.streams.buffered import BufferedByteReceiveStream

from streamtools.cli.complaints import Refused
from streamtools.recording import Recording, ReplayBytes, Response

PATH = "/v1/chat/completions"
"""Where it is asked; anything else is not found."""

_GONE = (anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError)
"""The client has left, or is none that speaks HTTP."""

_HEAD = 64 * 1024  # bytes of a request's head
_BODY = 1024 * 1024  # bytes of a request's body


class Provider:
    """Serves recordings on a free port of the loopback interface, as long as the `async with` block lasts.

    `speed` is that of `ReplayBytes`. Recordings without a request are never asked for.
    """

    def __init__(self, recordings: Iterable[Recording], *, speed: float) -> None:
        asked = ((each, each.head.request) for each in recordings)
        self._answers = {_key(request.body): each for each, request in asked if request is not None}
        self._speed = speed
        self._tasks: TaskGroup | None = None
        self.url = ""
        """Where it listens, known inside the block."""

    async def __aenter__(self) -> Self:
        try:
            self._listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        except OSError as error:
            raise Refused(f"no server can be started on 127.0.0.1: {error.strerror or error}", status=1) from error
        port = self._listener.extra(SocketAttribute.local_port)  # noqa: S610 - it is no query of Django
        self.url = f"http://127.0.0.1:{port}{PATH}"
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._listener.serve, self._serve)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)  # the group is not shown the error: it would wrap it
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()

    async def _serve(self, connection: SocketStream) -> None:
        async with connection:
            with contextlib.suppress(*_GONE):
                await self._answer(connection)

    async def _answer(self, connection: SocketStream) -> None:
        request = BufferedByteReceiveStream(connection)
        head = await request.receive_until(b"\r\n\r\n", _HEAD)
        start, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = headers.get("content-length", "0")
        if not (size.isdecimal() and int(size) <= _BODY):
            await _refuse(connection, HTTPStatus.BAD_REQUEST)
            return
        body = await request.receive_exactly(int(size))
        recording = self._find(body) if start.startswith(f"POST {PATH} ") else None
        if recording is None:
            await _refuse(connection, HTTPStatus.NOT_FOUND)
            return
        await _send_recording(connection, ReplayBytes(recording, speed=self._speed))

    def _find(self, body: bytes) -> Recording | None:
        try:
            return self._answers.get(_key(json.loads(body)))
        except (ValueError, RecursionError):
            return None


async def _send_recording(connection: SocketStream, chunks: ReplayBytes) -> None:
    """Send the response as it was; where it was cut off, this one is too."""
    recorded = chunks.recording.head.response or Response(status=200, headers={"content-type": "text/event-stream"})
    await _send_head(connection, recorded.status, {**recorded.headers, "transfer-encoding": "chunked"})
    try:
        async for data in chunks:
            if data:  # an empty chunk would be the last one
                await connection.send(b"%x\r\n%b\r\n" % (len(data), data))
    except (ConnectionResetError, TimeoutError):
        return
    await connection.send(b"0\r\n\r\n")


async def _refuse(connection: SocketStream, status: HTTPStatus) -> None:
    body = json.dumps({"error": {"message": f"{status.phrase}: nobody has recorded an answer to this request"}})
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    await _send_head(connection, status, headers)
    await connection.send(body.encode())


async def _send_head(connection: SocketStream, status: int, headers: dict[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} ", "connection: close", *(f"{name}: {value}" for name, value in headers.items())]
    await connection.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))


def _key(body: Any) -> str:
    return json.dumps(body, sort_keys=True)
