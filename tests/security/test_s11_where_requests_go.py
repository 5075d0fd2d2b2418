"""S11: a key reaches only the host that it belongs to. A server on this machine records all requests."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from streamtools import chat
from streamtools.conversation import GeminiChat, OpenAIChat
from streamtools.events import Error
from tests.support.cases import cases
from tests.support.loopback import Loopback

pytestmark = pytest.mark.trio_deep

KEY = "sk-test-0123456789abcdef"


async def ask(model: Any) -> list[Error]:
    """Return the errors of one request."""
    async with chat(model, [{"role": "user", "content": "Hi"}]) as events:
        return [event async for event in events if isinstance(event, Error)]


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/", "//127.0.0.2:1/", "file:///etc/passwd", "\x01"])
async def test_a_redirect_is_refused(target: str) -> None:
    """The HTTP client would follow it."""
    async with Loopback(status=307, headers={"Location": target}) as one:
        async with httpx.AsyncClient(follow_redirects=True) as client:
            (error,) = await ask(OpenAIChat("m", base_url=one.url, api_key=KEY, client=client, retries=0))

        assert 1 == len(one.requests)
        assert "redirect" in error.message or "could not be reached" in error.message


INJECTED = ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"]


@pytest.mark.parametrize("where", ["headers", "key", "url", "model"])
async def test_nothing_is_injected_into_a_request(where: str) -> None:
    """A line end in a header, a key or a URL is refused or escaped: one request is sent, or none."""
    with cases() as case:
        for value in INJECTED:
            with case(repr(value)):
                async with Loopback([b"hi"]) as one:
                    of: dict[str, dict[str, Any]] = {
                        "headers": {"headers": {"X-Own": value}},
                        "key": {"api_key": value},
                    }
                    options = of.get(where, {})
                    try:
                        url = f"{one.url}{value}" if where == "url" else one.url
                        errors = await ask(
                            GeminiChat(value if where == "model" else "m", base_url=url, retries=0, **options)
                        )
                    except ValueError:
                        errors = []

                    assert len(one.requests) < 2
                    for request in one.requests:
                        lines = request.partition(b"\r\n\r\n")[0].lower().splitlines()[1:]
                        assert not [line for line in lines if line.startswith((b"x-evil", b"get"))]
                    assert all(value not in error.message for error in errors)
