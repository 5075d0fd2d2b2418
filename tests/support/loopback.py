"""A provider on the loopback interface: an HTTP server that sends the same chunks for every request.

Each piece of a script is sent as one chunk of a chunked response. The server waits for an `anyio.Event` among them, so
that a test decides when the next chunk is sent. Disconnects of the client are recorded.

    async with Loopback([b"data: 1\\n\\n", b"data: 2\\n\\n"]) as server:
        async with httpx.AsyncClient() as client, client.stream("POST", server.url) as response:
            ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import SocketAttribute, SocketStream, TaskGroup


class Loopback:
    """Serves `script` on a free port of the loopback interface, while its `async with` block runs.

    With `hold`, the server keeps the connection open after the script and sends nothing. With `drop`, it closes the
    connection without the last chunk. `declared=None` sends no content type.
    """

    def __init__(
        self,
        script: Iterable[bytes | anyio.Event] = (),
        *,
        status: int = 200,
        declared: str | None = "text/event-stream",
        headers: Mapping[str, str] | None = None,
        hold: bool = False,
        drop: bool = False,
    ) -> None:
        self._script = list(script)
        self._head = f"HTTP/1.1 {status} Status\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        if declared is not None:
            self._head += f"Content-Type: {declared}\r\n"
        self._head += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items()) + "\r\n"
        self._hold = hold
        self._drop = drop
        self._group: TaskGroup
        self.url = ""
        self.requests: list[bytes] = []
        """The bytes of each request."""
        self.disconnected = anyio.Event()
        """Set when a client has closed its end of the connection."""

    async def __aenter__(self) -> Self:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        self.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/"
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(listener.serve, self._serve)
        self._listener = listener
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.cancel_scope.cancel()
        try:
            await self._group.__aexit__(None, None, None)  # do not wrap an exception of the test in a group
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()

    async def _serve(self, stream: SocketStream) -> None:
        async with stream:
            try:
                self.requests.append(await _request(stream))
                await stream.send(self._head.encode())
                for piece in self._script:
                    if isinstance(piece, bytes):
                        await stream.send(b"%x\r\n%s\r\n" % (len(piece), piece))
                    else:
                        await piece.wait()
                if self._drop:
                    return
                if not self._hold:
                    await stream.send(b"0\r\n\r\n")
                await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.disconnected.set()


async def _request(stream: SocketStream) -> bytes:
    """Read one request, with its body if it has a length."""
    request = await stream.receive()
    while b"\r\n\r\n" not in request:
        request += await stream.receive()
    head, _, body = request.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0]):
        body += await stream.receive()
    return head + b"\r\n\r\n" + body
