"""The browser's `EventSource` reads a run. It reconnects by itself after the last event that it received."""

from __future__ import annotations

from typing import Any

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

pytestmark = pytest.mark.browser

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
    asked: list[str | None] = []
    async with Runs() as runs:
        run = await runs.start(ToolStream(Script(texts(*"abcdefg"), STOP)), owner="ann")

        async def read(request: Request) -> Response:
            asked.append(request.headers.get("last-event-id"))
            response = asgi.event_stream_response(run)
            return response if len(asked) > 2 else Cut(response)

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


class Cut(Response):
    """Sends three events of a response and half of the next."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = list[bytes]()

        async def collect(message: Message) -> None:
            sent.append(message.get("body", b""))

        await self._response(scope, receive, collect)
        pieces = b"".join(sent).split(b"\ndata")[:4]
        self.body = b"retry: 1\n\n" + b"\ndata".join([*pieces, b": "])  # in milliseconds
        self.init_headers({"content-type": "text/event-stream"})
        await super().__call__(scope, receive, send)
