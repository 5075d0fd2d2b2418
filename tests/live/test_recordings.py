"""A real model's conversation, recorded on the way, is held again without it: through our client and openai's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from streamtools import ToolStream, chat, coalesce, sources
from streamtools.conversation import OpenAIChat, RequestOptions
from streamtools.events import Executed, UIEvent
from streamtools.recording import RecordingTransport, ReplayTransport
from tests.live.test_chat import EXAMPLES, get_weather

pytestmark = [pytest.mark.live, pytest.mark.anyio]

OPTIONS = {"temperature": 0, "seed": 7, "max_tokens": 80, "stop": ["<|im_end|>"], "cache_prompt": False}
QUESTION = {"role": "user", "content": "What is the weather in Paris?"}


async def converse(url: str, transport: Any) -> list[UIEvent]:
    """Hold the conversation over this transport."""
    async with httpx.AsyncClient(transport=transport, timeout=300) as client:
        model = OpenAIChat(
            "any", base_url=f"{url}/v1", api_key="", client=client, native_tool_calls=False, stream_options=None
        )
        async with chat(
            model, [QUESTION], tools=[get_weather], request=RequestOptions(body=OPTIONS, few_shot=EXAMPLES), max_steps=3
        ) as events:
            return coalesce([event async for event in events])


async def test_a_conversation_is_held_again(server: str, tmp_path: Path) -> None:
    """Both of its requests are answered from the file, which is asked for all that it holds."""
    path = tmp_path / "live.jsonl"
    live = await converse(server, RecordingTransport(httpx.AsyncHTTPTransport(), path, source="openai"))
    assert ["17 °C"] == [event.result for event in live if isinstance(event, Executed)]

    transport = ReplayTransport(path)

    assert live == await converse(server, transport)
    transport.check()


async def test_a_recording_through_the_client_of_openai(server: str, tmp_path: Path) -> None:
    """The client of openai's own, on its own HTTP client with our transport, and ours: the same events.

    It takes the extra `sdks`.
    """
    import httpx2
    import openai

    path = tmp_path / "live.jsonl"
    shared: dict[str, Any] = {"api_key": "x", "base_url": f"{server}/v1", "max_retries": 0, "timeout": 300}
    body: dict[str, Any] = {"model": "any", "stream": True, "temperature": 0, "seed": 7, "max_tokens": 40}
    body["messages"] = [{"role": "user", "content": "~~~tool_call\n" * 3 + "Repeat that."}]

    async def ask(transport: Any) -> list[UIEvent]:
        async with openai.AsyncOpenAI(http_client=httpx2.AsyncClient(transport=transport), **shared) as client:
            stream = await client.chat.completions.create(**body)
            async with ToolStream(sources.openai(stream), tools=[get_weather]) as events:
                return coalesce([event async for event in events])

    live = await ask(RecordingTransport(httpx2.AsyncHTTPTransport(), path, source="openai"))
    assert live == await ask(ReplayTransport(path))
    transport = ReplayTransport(path, match=("method",))
    async with (
        httpx.AsyncClient(transport=transport) as client,
        client.stream("POST", f"{server}/v1/chat/completions", json=body) as response,
        ToolStream(sources.openai(response), tools=[get_weather]) as events,
    ):
        assert live == coalesce([event async for event in events])
