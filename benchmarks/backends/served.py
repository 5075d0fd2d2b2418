"""The server of `bench_backends`: one application, with a path for each way of writing a backend.

    python -m benchmarks.backends.served PROVIDER REDIS LOOP HTTP CLIENT PROXY

All paths request the same provider with one client, of httpx or httpx-aiohttp. A row whose packages are not installed
has no path. `/rows` lists the available rows.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import resource
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import uvicorn
from httpx_sse import aconnect_sse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from benchmarks.backends.counting import Counts
from benchmarks.served import Server
from streamtools import StreamMachine, ToolStream, sources
from streamtools.gateway import app as gateway
from streamtools.outputs import make_encoder
from streamtools.outputs.asgi import event_stream_response
from streamtools.runs import RedisStore, Run, Runs
from streamtools.sources.read_pace import slot_end

EVENT_STREAM = "text/event-stream"
client = httpx.AsyncClient(trust_env=False, timeout=600, limits=httpx.Limits(max_connections=None))
url = ""


async def bare(request: Request) -> Response:
    """Pass the provider's bytes through. This is the reference of every row."""
    body = await request.body()

    async def pieces() -> AsyncIterator[bytes]:
        async with client.stream("POST", url, content=body) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    return StreamingResponse(pieces(), media_type=EVENT_STREAM)


class Broadcast:
    """The bytes of one answer, for several readers."""

    def __init__(self, body: bytes) -> None:
        self._chunks: list[bytes] = []
        self._news = asyncio.Event()
        self._task = asyncio.ensure_future(self._read(body))
        self._task.add_done_callback(self._wake)

    async def _read(self, body: bytes) -> None:
        async with client.stream("POST", url, content=body) as response:
            async for chunk in response.aiter_bytes():
                self._chunks.append(chunk)
                self._wake()

    def _wake(self, *_: object) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def pieces(self, rate: float | None) -> AsyncIterator[bytes]:
        """Yield the stored bytes, then new bytes, `rate` times a second."""
        had = 0
        while had < len(self._chunks) or not self._task.done():
            if had < len(self._chunks):
                data = b"".join(self._chunks[had:])
                had = len(self._chunks)
                yield data
                if rate is not None:
                    await asyncio.sleep(slot_end(monotonic(), 1 / rate) - monotonic())
            else:
                await self._news.wait()


broadcasts: dict[str, Broadcast] = {}


async def bare_broadcast(request: Request) -> Response:
    """Pass the bytes of one answer to all requests with the same `?run=`: the minimum cost of readers of a run."""
    body, asked = await request.body(), request.query_params["run"]
    if asked not in broadcasts:
        broadcasts[asked] = Broadcast(body)
    return StreamingResponse(broadcasts[asked].pieces(rate_of(request)), media_type=EVENT_STREAM)


async def by_hand(request: Request) -> Response:
    """A loop over httpx-sse: no calls, no errors, no keep-alive."""
    body = await request.json()

    async def pieces() -> AsyncIterator[str]:
        async with aconnect_sse(client, "POST", url, json=body) as source:
            async for frame in source.aiter_sse():
                if frame.data == "[DONE]":
                    break
                text = frame.json()["choices"][0]["delta"].get("content")
                if text:
                    yield f"data: {json.dumps({'type': 'text', 'text': text})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(pieces(), media_type=EVENT_STREAM)


async def one_task(request: Request) -> Response:
    """The engine in the task of the response: no tools, no keep-alive, no reader that notices a lost client."""
    body = await request.json()

    async def pieces() -> AsyncIterator[bytes]:
        machine, encoder = StreamMachine(), make_encoder("ai_sdk")
        async with client.stream("POST", url, json=body) as response:
            async for batch in sources.openai(response):
                if data := b"".join(encoder.encode(event) for each in batch for event in machine.feed(each)):
                    yield data
        yield b"".join(map(encoder.encode, machine.close())) + encoder.close()

    return StreamingResponse(pieces(), media_type=EVENT_STREAM)


@asynccontextmanager
async def answer(body: Any) -> AsyncIterator[ToolStream]:
    """Request the provider as the documentation does."""
    async with client.stream("POST", url, json=body) as response, ToolStream(sources.openai(response)) as events:
        yield events


def rate_of(request: Request) -> float | None:
    """Return the `max_rate` that a request names in its query, or None."""
    rate = request.query_params.get("max_rate")
    return None if rate is None else float(rate)


def written_as(format: Any) -> Any:
    """Return an endpoint that answers in one format of streamtools."""

    async def respond(request: Request) -> Response:
        return event_stream_response(answer(await request.json()), format=format, max_rate=rate_of(request))

    return respond


def as_run(name: str) -> Any:
    """Return an endpoint that answers with a run. Requests with the same `?run=` read the same run."""
    begun: dict[str, asyncio.Task[Run]] = {}

    async def respond(request: Request) -> Response:
        runs: Runs = getattr(request.app.state, name)
        asked = request.query_params.get("run")
        body = await request.json()
        if asked is None:
            return event_stream_response(await runs.start(answer(body), owner="benchmark"), max_rate=rate_of(request))
        if asked not in begun:
            begun[asked] = asyncio.ensure_future(runs.start(answer(body), owner="benchmark"))
        return event_stream_response(await begun[asked], max_rate=rate_of(request))

    return respond


def written_by_hand(read: Callable[[Any], AsyncIterator[str]]) -> Any:
    """Return an endpoint that answers with the texts that `read` yields for the body of a request."""

    async def respond(request: Request) -> Response:
        body = await request.json()

        async def pieces() -> AsyncIterator[str]:
            async for text in read(body):
                if text:
                    yield f"data: {json.dumps({'type': 'text', 'text': text})}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(pieces(), media_type=EVENT_STREAM)

    return respond


async def start_shared(request: Request) -> Response:
    """Start a run for readers in other processes, and return its id."""
    return Response((await request.app.state.shared.start(answer({}), owner="benchmark")).id)


async def read_shared(request: Request) -> Response:
    """Send the events of a run of another process."""
    return event_stream_response(await request.app.state.shared.find(request.query_params["run"], owner="benchmark"))


def peers() -> dict[str, Any]:
    """Return the endpoints of installed peer libraries."""
    found: dict[str, Any] = {}
    base = url.removesuffix("/chat/completions")
    if importlib.util.find_spec("openai"):
        import openai

        sdk = openai.AsyncOpenAI(base_url=base, api_key="k")

        async def from_openai(body: Any) -> AsyncIterator[str]:
            async for chunk in await sdk.chat.completions.create(**body):
                yield chunk.choices[0].delta.content or ""

        found["openai"] = written_by_hand(from_openai)
    if importlib.util.find_spec("langchain_openai"):
        from langchain.agents import create_agent
        from langchain_openai import ChatOpenAI

        graph = create_agent(ChatOpenAI(model="m", base_url=base, api_key="k"), tools=[])

        async def from_langchain(body: Any) -> AsyncIterator[str]:
            async for chunk, _ in graph.astream({"messages": body["messages"]}, stream_mode="messages"):
                yield chunk.text

        found["langchain"] = written_by_hand(from_langchain)
    if importlib.util.find_spec("agents"):
        from agents import Agent as OpenAIAgent
        from agents import OpenAIChatCompletionsModel, Runner, set_tracing_disabled

        set_tracing_disabled(True)  # or it sends its traces to OpenAI
        chat_model = OpenAIChatCompletionsModel("m", openai.AsyncOpenAI(base_url=base, api_key="k"))
        openai_agent = OpenAIAgent("agent", model=chat_model)

        async def from_openai_agents(body: Any) -> AsyncIterator[str]:
            async for event in Runner.run_streamed(openai_agent, body["messages"]).stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    yield event.data.delta

        found["openai_agents"] = written_by_hand(from_openai_agents)
    if importlib.util.find_spec("pydantic_ai") and importlib.util.find_spec("ag_ui"):
        from ag_ui.core import RunAgentInput
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        from pydantic_ai.ui.ag_ui import AGUIAdapter
        from pydantic_ai.ui.vercel_ai import VercelAIAdapter

        agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=base, api_key="k")))
        said = {"id": "1", "role": "user", "content": "Say it."}
        rest: dict[str, Any] = {"state": None, "tools": [], "context": [], "forwardedProps": None}
        asked = RunAgentInput.model_validate({"threadId": "t", "runId": "r", "messages": [said], **rest})
        part = {"type": "text", "text": "Say it."}
        submitted = {"trigger": "submit-message", "id": "1", "messages": [{"id": "1", "role": "user", "parts": [part]}]}

        async def over_ag_ui(request: Request) -> Response:
            await request.json()
            adapter: Any = AGUIAdapter(agent=agent, run_input=asked, accept=EVENT_STREAM)
            return StreamingResponse(adapter.encode_stream(adapter.run_stream()), media_type=EVENT_STREAM)

        async def over_vercel(request: Request) -> Response:
            await request.json()
            wanted = VercelAIAdapter.build_run_input(json.dumps(submitted).encode())
            adapter: Any = VercelAIAdapter(agent=agent, run_input=wanted, accept=EVENT_STREAM)
            return StreamingResponse(adapter.encode_stream(adapter.run_stream()), media_type=EVENT_STREAM)

        found |= {"pydantic_ai_ag_ui": over_ag_ui, "pydantic_ai_vercel": over_vercel}
    return found


def application(upstream: str, redis: str, proxy: bool) -> Any:
    """Return the application, with LiteLLM's `proxy` if requested."""
    global url
    url = f"{upstream}/chat/completions"
    pages: dict[str, Any] = {
        "bare": bare,
        "bare_broadcast": bare_broadcast,
        "by_hand": by_hand,
        "one_task": one_task,
        "native": written_as("native"),
        "ai_sdk": written_as("ai_sdk"),
        "ag_ui": written_as("ag_ui"),
        "run": as_run("memory"),
        **({"redis_run": as_run("shared"), "redis_read": read_shared} if redis else {}),
        **peers(),
    }
    mounts: dict[str, Any] = {
        "gateway": gateway(upstream, max_running=100_000),
        "gateway_in_slots": gateway(upstream, max_running=100_000, max_rate=30),
    }
    os.environ.setdefault("OPENAI_API_KEY", "k")  # which no provider sees
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"  # or it asks the network for one
    if proxy:
        with suppress(ImportError):  # of litellm, which takes seconds, or of what its proxy needs
            from litellm.proxy import proxy_server

            mounts["litellm"] = proxy_server.app
    counts = Counts()

    async def count(request: Request) -> Response:
        if "end" in request.query_params:
            return JSONResponse(counts.end())
        counts.begin()
        return JSONResponse(None)

    async def rows(request: Request) -> Response:
        return JSONResponse([*pages, *mounts])

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(client)
            if "litellm" in mounts:
                await proxy_server.initialize(model="openai/m", api_base=upstream, drop_params=True)
            app.state.memory = await stack.enter_async_context(Runs(max_running=100_000))
            if redis:
                app.state.shared = await stack.enter_async_context(Runs(RedisStore(redis), max_running=100_000))
            yield

    return Starlette(
        routes=[
            *(Route(f"/{name}", page, methods=["POST"]) for name, page in pages.items()),
            Route("/redis_start", start_shared),
            Route("/count", count),
            Route("/rows", rows),
            *(Mount(f"/{name}", mounted) for name, mounted in mounts.items()),
        ],
        lifespan=lifespan,
    )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    provider, redis, loop, http, asks, proxy = sys.argv[1:]
    if asks == "httpx_aiohttp":
        from httpx_aiohttp import HttpxAiohttpClient

        client = HttpxAiohttpClient(trust_env=False, timeout=600, limits=httpx.Limits(max_connections=100_000))
    config = uvicorn.Config(
        application(provider, redis, bool(proxy)),
        host="127.0.0.1",
        port=0,
        loop=loop,
        http=http,
        ws="none",
        log_config=None,
        access_log=False,
        backlog=4096,
    )
    Server(config).run()
