"""Worker processes that are killed in the middle of an answer. Readers of other processes get one whole answer."""

from __future__ import annotations

import json
import multiprocessing
import socket
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from streamtools.conversation.failover_rules import CONTINUE_PROMPT
from streamtools.events import read_ui_event
from streamtools.outputs import validate
from tests.serving.crash_worker import Setting, serve
from tests.support.redis_server import RedisServer
from tests.support.serving import Served

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only, pytest.mark.servers]

FIRST, LAST = "I will pay Ann, as you have asked me to. ", "It is done: Ann has got the money that you wanted to send."
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["pytest.__main__", "tests.serving.crash_worker"])


def piece(delta: dict[str, Any], reason: str | None = None) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': reason}]})}\n\n"


class Site:
    """The provider and the tools. The first request that comes to a place in `held` gets no further.

    `held` maps the place to an event, which is set then. `tool` is the tool that the model calls first, if any.
    """

    def __init__(self, tool: str | None, *held: str) -> None:
        self.tool = tool
        self.held = {place: anyio.Event() for place in held}
        self.calls = Counter[str]()
        """The executions by call id."""
        self.over = anyio.Event()
        self.recovering: list[str] = []
        """The workers that have taken the run over."""

    async def _hold(self, place: str) -> None:
        if place in self.held and not self.held[place].is_set():
            self.held[place].set()
            await self.over.wait()

    async def answer(self, request: Request) -> Response:
        """Answer as a model does that continues its text: exactly, or with its last words repeated."""
        body = await request.json()
        messages, shown, skipped = body["messages"], "", 0
        if body.get("continue_final_message"):
            shown = messages.pop()["content"]
            skipped = len(shown)
        elif messages[-1]["content"] == CONTINUE_PROMPT:
            shown = messages[-2]["content"]
            del messages[-2:]
            skipped = shown.rfind(" ", 0, -20) + 1
        is_first = self.tool is not None and all(message["role"] != "assistant" for message in messages)
        text = FIRST if is_first else LAST
        assert text.startswith(shown)
        return StreamingResponse(self._stream(text[skipped:], is_first, body["model"]), media_type="text/event-stream")

    async def _stream(self, text: str, is_first: bool, model: str) -> AsyncIterator[str]:
        if model == "idle":
            await self.over.wait()
        await self._hold("call answer" if is_first else "last answer")
        for at in range(0, len(text), 5):
            yield piece({"content": text[at : at + 5]})
            if at == 30 and not is_first:
                await self._hold("text")
        if is_first:
            for at, part in enumerate(('{"a', '": 1}')):
                function = {"arguments": part} | ({} if at else {"name": self.tool})
                yield piece({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})
                await self._hold(f"call {at}")
        yield piece({}, "tool_calls" if is_first else "stop") + "data: [DONE]\n\n"

    async def run_tool(self, request: Request) -> Response:
        self.calls[request.path_params["call"]] += 1
        await self._hold("tool")
        return Response("paid")

    async def notice(self, request: Request) -> Response:
        self.recovering.append(request.path_params["worker"])
        await self._hold("recovery")
        return Response()

    @property
    def app(self) -> Starlette:
        routes: list[tuple[str, Callable[..., Any]]] = [
            ("/v1/chat/completions", self.answer),
            ("/tools/{call}", self.run_tool),
            ("/recovering/{worker}", self.notice),
        ]
        return Starlette(routes=[Route(path, method, methods=["POST"]) for path, method in routes])


class Workers:
    """The worker processes of a test, by name."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.processes: dict[str, ForkServerProcess] = {}
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()
        await self._stack.aclose()

    async def start(self, name: str, *, is_full: bool = False) -> httpx.AsyncClient:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            process = FORK.Process(target=serve, args=(listening, self.setting, name, is_full), daemon=True)
            process.start()
        self.processes[name] = process
        client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=60)
        return await self._stack.enter_async_context(client)

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].join()


class Reader:
    """The events that a reader has got over its connections."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.events: list[dict[str, Any]] = []
        self.seen = defaultdict[str, anyio.Event](anyio.Event)
        """For each type and each code of an event: set when the reader has got such an event."""

    async def read(self, *clients: httpx.AsyncClient) -> None:
        """Read from each worker in turn, after the last event, until the connection breaks."""
        for client in clients:
            with suppress(httpx.TransportError):
                await self._read(client)

    async def _read(self, client: httpx.AsyncClient) -> None:
        headers = {"Last-Event-ID": str(self.events[-1]["seq"])} if self.events else {}
        async with client.stream("GET", f"/{self.run}", headers=headers) as response:
            assert response.is_success
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    self.events.append(event)
                    for name in (event["type"], event.get("code")):
                        self.seen[name].set()

    def check(self, text: str) -> None:
        """Check that the reader has got one whole answer."""
        assert [event["seq"] for event in self.events] == list(range(1, len(self.events) + 1))
        validate([read_ui_event(json.dumps(event).encode()) for event in self.events])
        assert text == "".join(event["text"] for event in self.events if event["type"] == "text")
        assert ("done", "finished") == (self.events[-1]["type"], self.events[-1]["reason"])


@dataclass
class Story:
    """A run of the worker `a`. Two readers read it: one from the worker `b`, the other from `a` and then from `b`."""

    site: Site
    workers: Workers
    a: httpx.AsyncClient
    b: httpx.AsyncClient
    readers: list[Reader]

    async def wait(self, event: str) -> None:
        for reader in self.readers:
            await reader.seen[event].wait()


@asynccontextmanager
async def story(
    server: RedisServer, site: Site, prefix: str, *, is_full: bool = False, **more: Any
) -> AsyncIterator[Story]:
    """Start the run. At the end, both readers must have got the same whole answer."""
    with anyio.fail_after(60):
        async with Served(site.app) as served, Workers(Setting(server.url, served.url, prefix, **more)) as workers:
            a, b = await workers.start("a"), await workers.start("b", is_full=is_full)
            run = (await a.post("/start")).json()
            readers = [Reader(run), Reader(run)]
            async with anyio.create_task_group() as group:
                group.start_soon(readers[0].read, b)
                group.start_soon(readers[1].read, a, b)
                yield Story(site, workers, a, b, readers)
            for reader in readers:
                reader.check(LAST if site.tool is None else FIRST + LAST)
            assert readers[0].events == readers[1].events
            site.over.set()


MOMENTS = {  # the tool, the place where the request is held, and the event that both readers have got by then
    "in text": (None, "text", "text"),
    "while a call is written": ("pay", "call 0", "call-start"),
    "while a tool runs": ("pay", "tool", "executing"),
    "while an idempotent tool runs": ("look", "tool", "executing"),
    "between steps": ("pay", "last answer", "executed"),
    "while an approval waits": ("sign", "", "approval-requested"),
}


@pytest.mark.parametrize(("prefill", "has_ledger"), [("vllm", True), (None, False)], ids=["prefill", "instructed"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_an_answer_survives_its_process(
    server: RedisServer, prefix: str, tmp_path: Path, moment: str, prefill: str | None, has_ledger: bool
) -> None:
    tool, held, event = MOMENTS[moment]
    site = Site(tool, held)
    ledger = str(tmp_path / "ledger") if has_ledger else None
    async with story(server, site, prefix, prefill=prefill, ledger=ledger) as told:
        await told.wait(event)
        if held:
            await site.held[held].wait()
        told.workers.kill("a")
        if tool == "sign":
            await told.wait("owner_lost")
            asked = next(each for each in told.readers[0].events if each["type"] == event)
            approval = {"call_id": asked["call"]["id"], "digest": asked["digest"]}
            assert (await told.b.post(f"/{told.readers[0].run}", json=approval)).is_success
    assert ["b"] == site.recovering
    if tool is not None:
        assert [1 + (tool == "look")] == list(site.calls.values())
        assert told.readers[0].seen["outcome_unknown"].is_set() == (moment == "while a tool runs")


async def test_the_process_that_takes_over_is_killed(server: RedisServer, prefix: str) -> None:
    """The process of the readers runs all along, but has no place for the run."""
    site = Site(None, "text", "recovery")
    async with story(server, site, prefix, is_full=True) as told:
        await told.wait("text")
        await told.workers.start("c")
        await site.held["text"].wait()
        told.workers.kill("a")
        await site.held["recovery"].wait()
        told.workers.kill("c")
        await told.workers.start("d")
    assert ["c", "d"] == site.recovering


async def test_a_deployment(server: RedisServer, prefix: str) -> None:
    """A worker that gets SIGTERM hands its run over, long before the lease expires."""
    site = Site(None, "text")
    async with story(server, site, prefix, lease=120.0) as told:
        await told.wait("text")
        await site.held["text"].wait()
        told.workers.processes["a"].terminate()
    assert ["b"] == site.recovering
