"""The browser's `EventSource` reads a run. It reconnects by itself after the last event that it received."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from streamtools import ToolStream
from streamtools.events import ProviderCompleted
from streamtools.outputs import asgi
from streamtools.runs import Runs
from tests.support.serving import Served
from tests.support.stories import Script, texts

pytestmark = [pytest.mark.browser, pytest.mark.anyio]

STOP = [ProviderCompleted(finish_reason="stop")]
PAGE = """<script>
const seen = [];
const source = new EventSource("/run");
for (const type of ["start", "step-start", "text", "step-end", "done"]) {
  source.addEventListener(type, (event) => {
    seen.push([Number(event.lastEventId), JSON.parse(event.data).seq]);
    if (type === "done") source.close();
  });
}
</script>"""


async def test_an_event_source_continues_after_its_last_event(chromium: Any) -> None:
    """Connections end in the middle of an event. No event is lost or repeated."""
    cut = anyio.Event()
    asked: list[str | None] = []
    async with Runs() as runs:
        run = await runs.start(ToolStream(Script(texts(*"abcdef"), cut, texts("g"), STOP)), owner="ann")

        async def read(request: Request) -> Response:
            asked.append(request.headers.get("last-event-id"))
            response = asgi.event_stream_response(run)
            return response if len(asked) > 2 else Breaking(response, cut)

        async def show(request: Request) -> Response:
            return HTMLResponse(PAGE)

        async with Served(Starlette(routes=[Route("/", show), Route("/run", read)])) as server:
            page = await chromium.new_page()
            await page.goto(server.url)
            await page.wait_for_function("source.readyState === EventSource.CLOSED")
            seen = await page.evaluate("seen")
    assert seen == [[at, at] for at in range(1, len(seen) + 1)]
    assert None is asked[0]
    assert 3 == len(asked) == len(set(asked))


class Breaking(Response):
    """Sends three events of a response and half of the next, then closes the connection."""

    def __init__(self, response: Response, cut: anyio.Event) -> None:
        super().__init__()
        self._response, self._cut = response, cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send."""
        left = 4

        async def send_some(message: Message) -> None:
            nonlocal left
            body = message.get("body", b"")
            retry = b"retry: 1\n\n" if body else b""  # milliseconds
            pieces = body.split(b"\ndata")
            if len(pieces) <= left:
                left -= len(pieces) - 1
                await send({**message, "body": retry + body} if body else message)
                return
            cut = b"\ndata".join([*pieces[:left], b": "])
            await send({"type": "http.response.body", "body": retry + cut, "more_body": False})
            self._cut.set()
            raise OSError("the connection is cut")

        with anyio.move_on_after(20):
            try:
                await self._response(scope, receive, send_some)
            except OSError:
                return
