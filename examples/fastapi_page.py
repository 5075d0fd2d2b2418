"""A chat page: FastAPI, server-sent events, and a page without any library.

    uvicorn fastapi_page:app        # and http://127.0.0.1:8000/

Without `MODEL_URL`, it plays a recording of a real model at the recorded speed.
"""

from __future__ import annotations

import json
import os
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse

from streamtools import chat, replay, tool
from streamtools.conversation import OpenAIChat
from streamtools.history import read_messages
from streamtools.outputs import asgi
from streamtools.recording import shipped

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Chat</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
  .call { color: #555; } .error { color: #a00; } #log > * { white-space: pre-wrap; }
</style>
<main><div id="log" aria-live="polite"></div>
<form id="form"><input id="text" aria-label="Message" value="What is the weather in Paris?" size="40" required>
<button>Send</button></form></main>
<script type="module">
  const messages = [];
  const show = (kind, text) => {
    const line = document.createElement("div");
    line.className = kind;
    line.textContent = text;
    return log.appendChild(line);
  };
  form.onsubmit = async (event) => {
    event.preventDefault();
    messages.push({ role: "user", content: text.value });
    show("user", "> " + text.value);
    text.value = "";
    const response = await fetch("/chat", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ messages }),
    }).catch(() => null);
    if (!response) return show("error", "The server does not answer; try again.");
    if (!response.ok) return show("error", `The server says ${response.status}.`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", said = "", line = null;
    for (let piece; !(piece = await reader.read()).done; ) {
      const frames = (rest + piece.value).split("\\n\\n");
      rest = frames.pop();
      for (const frame of frames) {
        const data = frame.split("\\n").find((each) => each.startsWith("data: "));
        if (!data) continue;
        const event = JSON.parse(data.slice(6));
        if (event.type === "step-start") {
          line = null;
          if (said) said += "\\n\\n";
        } else if (event.type === "text") {
          line ??= show("text", "");
          line.textContent += event.text;
          said += event.text;
        } else if (event.type === "executed") {
          line = null;
          show("call", `${event.call.name}: ${event.message ?? JSON.stringify(event.result)}`);
        } else if (event.type === "error") {
          line = null;
          show("error", event.message);
        }
      }
    }
    messages.push({ role: "assistant", content: said });
  };
</script>
</html>
"""

app = FastAPI()


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Tell the weather in a city."""
    return {"message": f"18 °C in {city}"}


@app.get("/")
async def page() -> HTMLResponse:
    """Return the page, which may load nothing from other hosts."""
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
    return HTMLResponse(PAGE, headers={"content-security-policy": policy})


def ask(body: bytes) -> Any:
    """Return the chat for a request body, or a recording."""
    if not (url := os.environ.get("MODEL_URL")):
        return replay(shipped()["tilde-call"], tools=[get_weather], speed=1)
    model = OpenAIChat(os.environ.get("MODEL", "default"), base_url=url, native_tool_calls=False)
    return chat(model, read_messages(json.loads(body)["messages"], client=True), tools=[get_weather])


@app.post("/chat")
async def answer(request: Request) -> Response:
    """Answer with the events of the chat. An invalid body gets status 400."""
    return asgi.event_stream_response(await asgi.read_body(request, ask))
