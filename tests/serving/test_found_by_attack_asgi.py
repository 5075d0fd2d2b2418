"""What an attack on the rim of ASGI has found: each test is one way in that was open."""

from __future__ import annotations

import pytest

from streamtools.events import Start
from streamtools.outputs.asgi import event_stream_response
from tests.support.serving import Exchange

pytestmark = pytest.mark.anyio


class Stream:
    """Knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Start:
        raise AssertionError("nobody reads for HEAD")

    async def aclose(self) -> None:
        """Take note."""
        self.closed = True


async def test_a_client_that_asked_for_the_head_and_has_gone() -> None:
    """Has gone like any other: nothing is raised, and what was to be read is closed."""
    exchange = Exchange(method="HEAD", refuses=True)
    exchange.gone.set()
    stream = Stream()
    response = event_stream_response(stream)

    await response(exchange.scope, exchange.receive, exchange.send)

    assert ([], True) == (exchange.sent, stream.closed)
