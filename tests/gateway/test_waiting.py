"""Long answers are read in a thread, so that others are answered meanwhile."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx
import pytest

from streamtools.gateway import Rewrite, ToolCallTransport
from streamtools.gateway.service import app
from streamtools.stream.long_work import IN_THREAD
from tests.support.gateway import collect, request, whole
from tests.support.loopback import Loopback
from tests.support.provider import Provider

CALL = '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n~~~'
LONG = "So it is.\n" * (IN_THREAD // 10)
JSON: dict[str, Any] = {"declared": "application/json"}


def client_of(way: str, upstream: str, rewrite: Rewrite) -> httpx.AsyncClient:
    """Return a client of the gateway, or of the transport."""
    if way == "gateway":
        gateway = httpx.ASGITransport(app(f"{upstream}v1", rewrite=rewrite))
        return httpx.AsyncClient(transport=gateway, base_url="http://localhost")
    return httpx.AsyncClient(transport=ToolCallTransport(rewrite=rewrite), base_url=upstream, trust_env=False)


@pytest.mark.parametrize("way", ["gateway", "transport"])
@pytest.mark.parametrize(("asked", "said"), [("Hi", LONG), (LONG, "So.\n")], ids=["a long answer", "a long question"])
async def test_long_answers_do_not_block_others(way: str, asked: str, said: str) -> None:
    """Also short answers to long requests, because such a request may be sent again."""
    reading, answered, order = threading.Event(), threading.Event(), list[str]()

    def name_a_call() -> str:
        reading.set()
        answered.wait(20)
        order.append("read")
        return "call_1"

    question = request("openai", streamed=False, messages=[{"role": "user", "content": asked}])
    upstream = Provider(Loopback([whole(said + CALL)], **JSON), Loopback([b"{}"], **JSON))
    async with (
        upstream,
        client_of(way, upstream.url, Rewrite(new_id=name_a_call)) as http,
        anyio.create_task_group() as group,
    ):

        async def ask() -> None:
            response = await http.post("/v1/chat/completions", json=question)
            order.append(collect("openai", response.content).calls[0][0])

        group.start_soon(ask)
        await anyio.to_thread.run_sync(reading.wait, 20)
        order.append((await http.get("/v1/models")).text)
        answered.set()
    assert order == ["{}", "read", "call_1"]
