"""An answer that outlives its page and its connection to a worker: FastAPI and Redis.

    redis-server --appendonly yes
    uvicorn resume_over_redis:app --workers 2        # and http://127.0.0.1:8000/

Reload the page in the middle of an answer: it continues where it was, from any worker.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from fastapi import Cookie, FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import UUID4

from streamtools import chat, tool
from streamtools.conversation import Chat, OpenAIChat
from streamtools.history import read_messages
from streamtools.outputs import asgi
from streamtools.runs import RedisStore, Runs

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">
<title>Chat</title>
<button id="ask">Tell me a long story about Paris</button> <button id="halt">Stop</button>
<p id="answer" style="white-space: pre-wrap" aria-live="polite"></p>
<script type="module">
  document.cookie.includes("visitor=") || (document.cookie = `visitor=${crypto.randomUUID()}; samesite=lax`);
  const follow = () => {
    answer.textContent = "";
    const source = new EventSource(`/chat/${sessionStorage.run}`); // reconnects with Last-Event-ID
    source.addEventListener("step-start", ({ data }) => JSON.parse(data).step > 1 && answer.append("\\n\\n"));
    source.addEventListener("text", ({ data }) => (answer.textContent += JSON.parse(data).text));
    source.addEventListener("done", () => source.close());
    source.onerror = async ({ data }) => {
      if (data) return answer.append(JSON.parse(data).message); // an event of the answer
      if (source.readyState !== EventSource.CLOSED) return; // it reconnects
      if ((await fetch(source.url)).status !== 404) return setTimeout(follow, 1000); // such as 503
      sessionStorage.removeItem("run");
      answer.append("The answer is no longer available.");
    };
  };
  ask.onclick = async () => {
    const messages = [{ role: "user", content: ask.textContent }];
    const response = await fetch("/chat", { method: "POST", body: JSON.stringify({ messages }) });
    sessionStorage.run = (await response.json()).run;
    follow();
  };
  halt.onclick = () => fetch(`/chat/${sessionStorage.run}`, { method: "DELETE" });
  if (sessionStorage.run) follow();
</script>
</html>
"""

model = OpenAIChat(
    os.environ.get("MODEL", "default"),
    base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1"),
    native_tool_calls=False,
)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Share the runs over Redis. Let running answers finish when the worker shuts down."""
    store = RedisStore(os.environ.get("REDIS_URL", "redis://localhost:6379"))
    async with (
        asgi.shutdown_signal(drain=20) as app.state.shutdown,
        Runs(store, shutdown=app.state.shutdown) as app.state.runs,
    ):
        yield


app = FastAPI(lifespan=lifespan, exception_handlers=asgi.exception_handlers)
Visitor = Annotated[UUID4, Cookie()]  # in your application, the user of the session: only the owner finds a run


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Tell the weather in a city."""
    return {"message": f"18 °C in {city}"}


def ask(body: bytes) -> Chat:
    """Return the chat for a request body."""
    return chat(model, read_messages(msgspec.json.decode(body)["messages"], client=True), tools=[get_weather])


@app.get("/")
async def page() -> HTMLResponse:
    """Return the page."""
    return HTMLResponse(PAGE)


@app.post("/chat", status_code=202)
async def begin(request: Request, visitor: Visitor) -> dict[str, Any]:
    """Start an answer, which continues without a reader."""
    run = await app.state.runs.start(await asgi.read_body(request, ask), owner=str(visitor))
    return {"run": run.id}


@app.get("/chat/{run_id}")
async def read(run_id: str, visitor: Visitor) -> Response:
    """Send the events of an answer after the one in the header `Last-Event-ID`."""
    run = await app.state.runs.find(run_id, owner=str(visitor))
    return asgi.event_stream_response(run, shutdown=app.state.shutdown)


@app.delete("/chat/{run_id}", status_code=204)
async def stop(run_id: str, visitor: Visitor) -> None:
    """Stop an answer."""
    await (await app.state.runs.find(run_id, owner=str(visitor))).stop()
