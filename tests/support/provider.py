"""A provider that sends a different response for each request."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from anyio.abc import SocketStream
from anyio.from_thread import start_blocking_portal

from tests.support.loopback import Loopback


class Provider(Loopback):
    """Serves one `Loopback` after the other at one address. The last one is repeated."""

    def __init__(self, *answers: Loopback) -> None:
        super().__init__()
        self.answers = answers
        self._served = 0

    async def _serve(self, stream: SocketStream) -> None:
        answer = self.answers[min(self._served, len(self.answers) - 1)]
        self._served += 1
        answer.requests = self.requests
        await answer._serve(stream)

    @property
    def heads(self) -> list[dict[str, str]]:
        """The headers of each request, with names in lower case. The key `""` holds the request line."""
        heads = []
        for request in self.requests:
            first, *lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            pairs = (line.partition(":") for line in lines)
            heads.append({"": first} | {name.lower(): value.strip() for name, _, value in pairs})
        return heads

    @property
    def bodies(self) -> list[Any]:
        """The JSON of each request."""
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in self.requests]


@contextlib.contextmanager
def serving(*answers: Loopback) -> Iterator[Provider]:
    """Serve these answers in a thread, one for each request."""
    provider = Provider(*answers)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(provider):
        yield provider
