"""The FastAPI backend of a React page with the AI SDK's `useChat`.

    npm install && npm run build
    uvicorn server:app        # and http://127.0.0.1:8000/

The page posts its messages to `/api/chat`. The answer is in the UI message stream of the AI SDK.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

from streamtools import chat, outputs, tool
from streamtools.conversation import Chat, OpenAIChat
from streamtools.history import read_messages
from streamtools.outputs import asgi

HERE = Path(__file__).parent

app = FastAPI()
model = OpenAIChat(
    os.environ.get("MODEL", "default"),
    base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1"),
    native_tool_calls=False,
)


@tool
async def get_weather(city: str) -> dict[str, Any]:
    """Tell the weather in a city."""
    return {"city": city, "degrees": 18}


class Posted(BaseModel):
    """The request body of `useChat`: all messages of the conversation, in parts."""

    id: str
    messages: list[dict[str, Any]]


def ask(body: bytes) -> Chat:
    """Return the chat for a request body. Results of client tools are accepted, system messages are rejected."""
    return chat(model, read_messages(Posted.model_validate_json(body).messages, client=True), tools=[get_weather])


@app.post("/api/chat")
async def answer(request: Request) -> Response:
    """Answer in the format of AI SDK 7, with calls as parts `tool-NAME` instead of `dynamic-tool`."""
    encoder = outputs.ai_sdk(7, dynamic=False)
    return asgi.event_stream_response(await asgi.read_body(request, ask), format=encoder)


@app.get("/")
async def page() -> FileResponse:
    """Return the page."""
    return FileResponse(HERE / "index.html")


app.mount("/built", StaticFiles(directory=os.environ.get("BUILT", HERE / "built"), check_dir=False))
