"""Servers and clients for tests of HTTP: uvicorn on the loopback interface, and ASGI without a server.

    async with Served(app) as server:
        async with httpx.AsyncClient() as client, client.stream("GET", server.url) as response:
            ...

Without a server, an application runs on either event loop. A test decides when the client disconnects and when it
accepts messages.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, MutableMapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import anyio
import uvicorn
from anyio.abc import TaskGroup


class _ShortNaps:
    """The module asyncio for uvicorn, with shorter naps, so that uvicorn stops sooner."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay: float) -> None:
        """Sleep for a fiftieth of the time."""
        await asyncio.sleep(delay / 50)


vars(uvicorn.server)["asyncio"] = _ShortNaps()


class _Server(uvicorn.Server):
    """A server that reports its start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = anyio.Event()

    async def startup(self, sockets: Any = None) -> None:
        """Start the server."""
        await super().startup(sockets)
        self.ready.set()


class Served:
    """An application with uvicorn on a free port, in the task group of an `async with` (asyncio only)."""

    def __init__(self, app: Any, **options: Any) -> None:
        options = {"lifespan": "auto", "log_config": None, "timeout_graceful_shutdown": 10, **options}
        self.server = _Server(uvicorn.Config(app, host="127.0.0.1", port=0, **options))
        self._stack = AsyncExitStack()
        self._group: TaskGroup
        self.port = 0

    async def __aenter__(self) -> Self:
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self.server.serve)
        await self.server.ready.wait()
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.should_exit = True
        await self._group.__aexit__(None, None, None)

    @property
    def url(self) -> str:
        """The address of the application."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def websocket_url(self) -> str:
        """The address for websockets."""
        return f"ws://127.0.0.1:{self.port}"


class Exchange:
    """One HTTP request to an ASGI application, by hand: `sent` is what it has sent, `gone` makes the client go.

    `stuck` is the number of messages that the server takes before it takes no more; `refuses` makes it raise once the
    client has gone, as servers since version 2.4 of ASGI do; `silent` is one that says nothing of its client.
    """

    def __init__(
        self, *, method: str = "GET", stuck: int | None = None, refuses: bool = False, silent: bool = False
    ) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4" if refuses else "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": "/",
            "query_string": b"",
            "headers": [],
        }
        self.sent: list[MutableMapping[str, Any]] = []
        self.gone = anyio.Event()
        self._asked = False
        self._stuck = stuck
        self._refuses = refuses
        self._silent = silent
        self._waiting: list[tuple[int, anyio.Event]] = []

    async def receive(self) -> MutableMapping[str, Any]:
        """Return the request, and then the disconnect of the client."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        if self._silent:
            await anyio.sleep_forever()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Accept a message."""
        if self._refuses and self.gone.is_set():
            raise OSError("the client has gone")
        if self._stuck is not None and len(self.sent) >= self._stuck:
            await anyio.sleep_forever()
        self.sent.append(message)
        for many, event in self._waiting:
            if len(self.sent) >= many:
                event.set()

    async def has_sent(self, many: int) -> None:
        """Wait until the application has sent this number of messages."""
        if len(self.sent) < many:
            event = anyio.Event()
            self._waiting.append((many, event))
            await event.wait()

    @property
    def status(self) -> int:
        """The status of the response."""
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def chunks(self) -> list[bytes]:
        """The chunks of the body."""
        return [message["body"] for message in self.sent[1:]]

    @property
    def ended(self) -> bool:
        """True if the body is complete."""
        return self.sent[-1].get("more_body") is False


def read_frames(body: bytes | Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the JSON events in a body of server-sent events."""
    text = (body if isinstance(body, bytes) else b"".join(body)).decode()
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines]
