"""S11: a key reaches only the host that it belongs to.

Two servers on this machine, at two addresses, record all requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream

from streamtools import chat
from streamtools.conversation import GeminiChat, OpenAIChat
from streamtools.events import Error
from tests.support.cases import cases

pytestmark = [pytest.mark.anyio, pytest.mark.trio_deep]

KEY = "sk-test-0123456789abcdef"


class Witness:
    """A server that records each request, and responds with `answer`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        self.heard: list[bytes] = []
        self.url = ""

    async def serve(self, *, task_status: Any) -> None:
        async with await anyio.create_tcp_listener(local_host=self.address) as listener:
            self.url = f"http://{self.address}:{listener.extra(SocketAttribute.local_port)}"
            task_status.started()
            await listener.serve(self._answer)

    async def _answer(self, stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):  # a connection without a request
                self.heard.append(await stream.receive(65_536))
                await stream.send(self.answer)

    def redirects_to(self, url: str, status: int = 307) -> None:
        self.answer = f"HTTP/1.1 {status} Go\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Witness, Witness]]:
    """Run two servers, at two addresses of the loopback network."""
    one, other = Witness("127.0.0.1"), Witness("127.0.0.2")
    async with anyio.create_task_group() as group:
        for server in (one, other):
            await group.start(server.serve)
        yield one, other
        group.cancel_scope.cancel()


async def ask(model: Any) -> list[Error]:
    """Return the errors of one request."""
    async with chat(model, [{"role": "user", "content": "Hi"}]) as events:
        return [event async for event in events if isinstance(event, Error)]


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/", "//127.0.0.2:1/", "file:///etc/passwd", "\x01"])
async def test_a_redirect_is_refused(target: str) -> None:
    """The HTTP client would follow it."""
    async with serving() as (one, _):
        one.redirects_to(target)
        async with httpx.AsyncClient(follow_redirects=True) as client:
            (error,) = await ask(OpenAIChat("m", base_url=one.url, api_key=KEY, client=client, retries=0))

        assert 1 == len(one.heard)
        assert "redirect" in error.message or "could not be reached" in error.message


INJECTED = ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"]


@pytest.mark.parametrize("where", ["headers", "key", "url", "model"])
async def test_nothing_is_injected_into_a_request(where: str) -> None:
    """A line end in a header, a key or a URL is refused or escaped: one request is sent, or none."""
    with cases() as case:
        for value in INJECTED:
            with case(repr(value)):
                async with serving() as (one, _):
                    of: dict[str, dict[str, Any]] = {
                        "headers": {"headers": {"X-Own": value}},
                        "key": {"api_key": value},
                    }
                    options = of.get(where, {})
                    try:
                        url = f"{one.url}/{value}" if where == "url" else one.url
                        errors = await ask(
                            GeminiChat(value if where == "model" else "m", base_url=url, retries=0, **options)
                        )
                    except ValueError:
                        errors = []

                    assert len(one.heard) < 2
                    for request in one.heard:
                        lines = request.partition(b"\r\n\r\n")[0].lower().splitlines()[1:]
                        assert not [line for line in lines if line.startswith((b"x-evil", b"get"))]
                    assert all(value not in error.message for error in errors)
