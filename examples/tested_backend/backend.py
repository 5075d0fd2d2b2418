"""A chat backend that can be tested: its HTTP client is a dependency, which tests replace."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import msgspec
from fastapi import Depends, FastAPI, Request, Response

from streamtools import chat, tool
from streamtools.conversation import Chat, OpenAIChat
from streamtools.history import Message, read_messages
from streamtools.outputs import asgi

MODEL_URL = os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1")

app = FastAPI()


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Tell the weather in a city."""
    return {"message": f"18 °C in {city}"}


def make_client() -> httpx.AsyncClient:
    """Return the HTTP client of the model."""
    return httpx.AsyncClient(timeout=60)


@asynccontextmanager
async def converse(client: httpx.AsyncClient, messages: list[Message]) -> AsyncIterator[Chat]:
    """Yield a chat, and close its client afterwards."""
    async with client:
        # None: the recorded model got native definitions, and wrote its calls as text
        model = OpenAIChat("local", base_url=MODEL_URL, api_key="", client=client, native_tool_calls=None)
        async with chat(model, messages, tools=[get_weather]) as events:
            yield events


def read(body: bytes) -> list[Message]:
    """Return the messages that the page posts."""
    return read_messages(msgspec.json.decode(body)["messages"], client=True)


@app.post("/chat")
async def answer(request: Request, client: Annotated[httpx.AsyncClient, Depends(make_client)]) -> Response:
    """Answer with the events of a chat."""
    return asgi.event_stream_response(converse(client, await asgi.read_body(request, read)))
