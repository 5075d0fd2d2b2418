"""A conversation over a websocket, with a button that stops an answer: Litestar.

    litestar --app litestar_websocket:app run        # and http://127.0.0.1:8000/

The page sends `{"text": …}` for a question and `{"cancel": true}` to stop. A stopped run ends with `done` and the
reason `cancelled`, its tools end, and the request to the model is closed.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, MediaType, WebSocket, get, websocket

from streamtools import chat, tool
from streamtools.conversation import Chat, OpenAIChat
from streamtools.history import Message, read_messages
from streamtools.outputs import asgi

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">
<title>Chat</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
  p { white-space: pre-wrap; }
</style>
<main id="log" aria-live="polite"></main>
<form id="form"><input id="text" aria-label="Message" value="What is the weather in Paris?" size="40" required>
<button>Send</button> <button type="button" id="halt" disabled>Stop</button></form>
<script type="module">
  const socket = new WebSocket(`ws${location.protocol.slice(4)}//${location.host}/chat`);
  const show = (text) => Object.assign(log.appendChild(document.createElement("p")), { textContent: text });
  let answer;
  form.onsubmit = (event) => {
    event.preventDefault();
    show("> " + text.value);
    answer = show("");
    socket.send(JSON.stringify({ text: text.value }));
    text.value = "";
    halt.disabled = false;
  };
  halt.onclick = () => socket.send(JSON.stringify({ cancel: true }));
  socket.onclose = () => show("The connection was closed. Reload the page.");
  socket.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    if (event.type === "step-start" && event.step > 1) answer = show("");
    if (event.type === "text") answer.textContent += event.text;
    if (event.type === "executed") answer.textContent += `[${event.call.name}: ${JSON.stringify(event.result)}]\\n`;
    if (event.type === "error") show(typeof event.error === "object" ? event.error.message : event.message);
    if (event.type === "done") {
      halt.disabled = true;
      if (event.reason === "cancelled") answer.textContent += " (stopped)";
    }
  };
</script>
</html>
"""

model = OpenAIChat(
    os.environ.get("MODEL", "default"),
    base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1"),
    native_tool_calls=False,
)


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Tell the weather in a city."""
    return {"message": f"18 °C in {city}"}


@get("/", media_type=MediaType.HTML)
async def page() -> str:
    """Return the page."""
    return PAGE


@websocket("/chat")
async def converse(socket: WebSocket[Any, Any, Any]) -> None:
    """Answer each message with a run. `serve_websocket` reads the messages of the client, also `cancel`."""
    history: list[Message] = []

    @asynccontextmanager
    async def answer(message: dict[str, Any], session: asgi.Session) -> AsyncIterator[Chat]:
        asked = [*history, *read_messages([{"role": "user", "content": message["text"]}], client=True)]
        async with chat(model, asked, tools=[get_weather]) as events:
            yield events
        history[:] = events.history  # includes the shown part of a stopped answer

    await asgi.serve_websocket(socket, answer)


app = Litestar([page, converse])
