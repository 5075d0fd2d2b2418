"""Scenarios of several requests: an httpx client with a transport in memory, and the follow-up loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anyio
import anyio.lowlevel
import httpx

from streamtools.conversation import OpenAIChat
from tests.support.options import grouped
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
    """Answers the requests in order."""

    def __init__(self, rack: Rack, *answers: list[bytes]) -> None:
        self._rack = rack
        self._answers = list(answers)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._rack.hit("request")
        await anyio.lowlevel.checkpoint()
        self._rack.hit("request")
        wire = Wire(self._rack, *self._answers.pop(0))
        return httpx.Response(200, headers=wire.headers, stream=_Body(wire))


async def _talk(rack: Rack, *answers: list[bytes], tools: str, **options: Any) -> None:
    async with httpx.AsyncClient(transport=_Transport(rack, *answers)) as client:
        model = OpenAIChat("m", base_url="http://provider/", api_key="", retries=0, client=client)
        options = {"run_id": "r", "new_id": new_ids(), **options}
        async with rack.chat(model, QUESTION, tools=Tools(rack)[tools], **grouped(**options)) as events:
            await rack.read(events)


async def conversation(rack: Rack) -> None:
    """Three steps with tools in two of them, and a review of the follow-up messages."""

    async def review(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rack.hit("review")
        await anyio.lowlevel.checkpoint()
        rack.hit("review")
        return messages

    answers = [native("think", "quick"), native("steps", text="And "), said("So.")]
    await _talk(rack, *answers, tools="think quick steps", review=review)


async def emulated(rack: Rack) -> None:
    """A model without calls: two decisions, and its answer."""
    decisions = [said(json.dumps({"tools": tools})) for tools in ([{"tool": "think", "arguments": {}}], [])]
    with patch("streamtools.conversation.emulation.time", SimpleNamespace(time_ns=lambda: 1)):  # a part of the ids
        await _talk(rack, *decisions, said("So."), tools="think", emulation="force")


_CLOSED = {"close-lone-cancel": "fails"}
"""httpx closes a response at its end, so the read raises the exception of the closing."""

CHATS = [
    Scenario("conversation", conversation, effects=_CLOSED, is_inside=True),
    Scenario("emulated", emulated, effects=_CLOSED, is_inside=True),
]
