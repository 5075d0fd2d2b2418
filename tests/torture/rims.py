"""Scenarios of ASGI: a response and websockets, with a server and a client that may fail at any point."""

from __future__ import annotations

import json
from typing import Any

import anyio
import anyio.lowlevel

from streamtools import sources
from streamtools.events import ProviderCompleted, TextDelta
from streamtools.outputs.asgi import Shutdown, event_stream_response, send_events, serve_websocket
from streamtools.runs import Runs
from streamtools.tools import Tool
from tests.torture.held import start_run
from tests.torture.rack import Rack
from tests.torture.streams import Scenario
from tests.torture.tools import Tools, called, native, new_ids
from tests.torture.wires import OwnSource, Wire


class _Client:
    """The client of a request or a websocket, and its server."""

    def __init__(self, rack: Rack, *frames: dict[str, Any]) -> None:
        self._rack = rack
        self._frames = [json.dumps(frame) for frame in frames]
        self._news = anyio.Event()
        self._gone = False
        rack.actions["leave"] = self.leave
        self.leaves_after = ""  # a part of the frame after which it leaves

    def leave(self) -> None:
        self._gone = True
        self._news.set()

    def say(self, frame: dict[str, Any]) -> None:
        self._frames.append(json.dumps(frame))
        self._news.set()

    async def request(self) -> dict[str, Any]:
        """Implement `receive` of a request."""
        if self._frames:
            self._frames.clear()
            return {"type": "http.request", "body": b"", "more_body": False}
        while not self._gone:
            await self._news.wait()
        return {"type": "http.disconnect"}

    async def receive(self) -> dict[str, Any]:
        """Implement `receive` of a websocket."""
        while not self._frames and not self._gone:
            await self._news.wait()
            self._news = anyio.Event()
        if self._gone:
            return {"type": "websocket.disconnect", "code": 1001}
        return {"type": "websocket.receive", "text": self._frames.pop(0)}

    async def accept(self) -> None:
        """Do nothing: the websocket is already accepted."""

    async def send(self, message: Any) -> None:
        """Record a message."""
        try:
            self._rack.hit("send")
            self._rack.sent.append(message)
            await anyio.lowlevel.checkpoint()
            self._rack.hit("send")
        except OSError:
            if message["type"].startswith("websocket"):  # its server then also reports the disconnect
                self.leave()
            raise
        text = message.get("text", "")
        if '"approval-requested"' in text:
            self.say({"call_id": json.loads(text)["call"]["id"], "decision": "approve"})
        if self.leaves_after and self.leaves_after in text:
            self.leave()


def _stream(rack: Rack) -> Any:
    """Return a stream with a source of the application, which may raise any exception."""
    end = ProviderCompleted(finish_reason="stop")
    source = OwnSource(rack, [TextDelta("a")], [TextDelta(called("think"))], [TextDelta("b"), end])
    tools = Tools(rack)["think"]
    return rack.stream(source, tools=tools, new_id=new_ids(), run_id="r", dialects=["hash_marker"])


def _shutdown(rack: Rack) -> Shutdown:
    shutdown = Shutdown()
    rack.actions["end"] = shutdown.begin
    return shutdown


SCOPE = {
    "type": "http",
    "method": "POST",
    "headers": [],
    "query_string": b"",
    "asgi": {"version": "3.0", "spec_version": "2.4"},
}


async def respond(rack: Rack) -> None:
    """A stream as the body of a response."""
    client = _Client(rack, {})
    response = event_stream_response(_stream(rack), shutdown=_shutdown(rack))
    await response(SCOPE, client.request, client.send)


async def respond_with_run(rack: Rack) -> None:
    """A run as the body of a response. It continues without its client."""
    async with Runs() as runs:
        run = await start_run(rack, runs)
        client = _Client(rack, {})
        await event_stream_response(run, shutdown=_shutdown(rack))(SCOPE, client.request, client.send)
        await run.wait()


async def one_way(rack: Rack) -> None:
    """A stream over a websocket."""
    await send_events(_Client(rack), _stream(rack), shutdown=_shutdown(rack))


async def both_ways(rack: Rack) -> None:
    """A conversation over a websocket, with a call that the client approves."""
    client = _Client(rack, {})
    client.leaves_after = '"done"'
    rack.leaves_first = True
    rack.actions["frame"] = lambda: client.say({"cancel": True})

    async def handler(message: Any, session: Any) -> Any:
        rack.hit("handler")
        await anyio.lowlevel.checkpoint()
        rack.hit("handler")
        tools = Tools(rack)
        guarded = Tool(tools.think, requires_approval=True)
        wire = Wire(rack, *native("think", "steps"))
        given = [guarded, *tools["steps"]]
        return rack.stream(sources.openai(wire), tools=given, new_id=new_ids(), run_id="r", ask="now")

    await serve_websocket(client, handler, shutdown=_shutdown(rack))


DETACHED = {"leave": "none", "send-fails": "none", "leave-cut-1": "none", "leave-cut-4": "none"}

RIMS = [
    Scenario("response", respond),
    Scenario("response-of-run", respond_with_run, effects=DETACHED),
    Scenario("one-way", one_way),
    Scenario("both-ways", both_ways),
]
