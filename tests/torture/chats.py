"""Scenarios of several requests: a client of httpx, whose transport is in memory, and the follow-up loop above it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import httpx
from anyio.abc import SocketStream

from streamtools import ParserOptions, RunnerOptions, replay
from streamtools.conversation import Emulation, OpenAIChat
from streamtools.recording import shipped
from tests.support.loopback import Loopback
from tests.support.options import grouped
from tests.support.provider import Provider
from tests.torture.rack import Rack
from tests.torture.streams import Scenario
from tests.torture.tools import Tools, native, new_ids, said
from tests.torture.wires import Wire

QUESTION = [{"role": "user", "content": "Well?"}]


class _Body(httpx.AsyncByteStream):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._wire.aiter_bytes():
            yield chunk

    async def aclose(self) -> None:
        await self._wire.aclose()


class _Transport(httpx.AsyncBaseTransport):
    """Answers each request with the next of these answers."""

    def __init__(self, rack: Rack, *answers: list[bytes]) -> None:
        self._rack = rack
        self._answers = list(answers)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._rack.hit("request")
        await anyio.lowlevel.checkpoint()
        self._rack.hit("request")
        wire = Wire(self._rack, *self._answers.pop(0))
        return httpx.Response(200, headers=wire.headers, stream=_Body(wire))


class _Server(Provider):
    """Takes it lightly if a client goes before it has asked."""

    async def _serve(self, stream: SocketStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await super()._serve(stream)


async def _talk(rack: Rack, *answers: list[bytes], tools: str, **options: Any) -> None:
    async with httpx.AsyncClient(transport=_Transport(rack, *answers)) as client:
        model = OpenAIChat("m", base_url="http://provider/", api_key="", retries=0, client=client)
        options = {"run_id": "r", "new_id": new_ids(), **options}
        async with rack.chat(model, QUESTION, tools=Tools(rack)[tools], **grouped(**options)) as events:
            await rack.read(events)


async def conversation(rack: Rack) -> None:
    """Three steps, with tools in two of them, and a review of what is sent back."""

    async def review(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rack.hit("review")
        await anyio.lowlevel.checkpoint()
        rack.hit("review")
        return messages

    answers = [native("think", "quick"), native("steps", text="And "), said("So.")]
    await _talk(rack, *answers, tools="think quick steps", review=review)


async def emulated(rack: Rack) -> None:
    """A model that makes no calls: it is asked whether it wants any, and then for its answer."""
    wanted = json.dumps({"tools": [{"tool": "think", "arguments": {}}]})
    nothing = json.dumps({"tools": []})
    await _talk(
        rack, said(wanted), said(nothing), said("So."), tools="think", emulation=Emulation(mode="force", now=lambda: 1)
    )


async def loopback(rack: Rack) -> None:
    """A real server and a real client."""
    answers = [Loopback(native("think")), Loopback(said("So."))]
    async with _Server(*answers) as server, httpx.AsyncClient(verify=False) as client:  # no certificates are loaded
        model = OpenAIChat("m", base_url=server.url, api_key="", retries=0, client=client)
        async with rack.chat(
            model, QUESTION, tools=Tools(rack)["think"], run_id="r", parser=ParserOptions(new_id=new_ids())
        ) as events:
            await rack.read(events)


async def replayed(rack: Rack) -> None:
    """A recording, out of a file."""
    played = replay(shipped()["no-call"], runner=RunnerOptions(on_result=rack.tell), run_id="r", cut=400)
    async with played as events:
        await rack.read(rack.adopt(events))


_CLOSED = {"close-lone-cancel": "fails"}
"""httpx closes a response as soon as it has been read, so that a read raises what its closing does."""

_NOT_OURS = (
    "Async generator 'httpx._content.ByteStream.__aiter__'",  # the body of a request that is cut short, on trio
    "_sock_accept",  # asyncio's, of a server that is cancelled while a client comes
    "unclosed <socket.socket",  # the same
)

CHATS = [
    Scenario("conversation", conversation, effects=_CLOSED, is_inside=True),
    Scenario("emulated", emulated, effects=_CLOSED, is_inside=True),
    # To cancel all would leave the server's sockets open.
    Scenario("loopback", loopback, quiet=_NOT_OURS, without=("cancel-all",), effects=_CLOSED, is_inside=True),
    Scenario("replayed", replayed),
]
