"""A worker process for `test_crashes`: an HTTP server whose runs a `RedisStore` shares."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from streamtools import ApprovalOptions, RunnerOptions, ToolContext, chat
from streamtools.conversation import Chat, OpenAIChat
from streamtools.outputs import asgi
from streamtools.outputs.sse import NativeEncoder
from streamtools.runs import LostRun, RedisStore, Runs
from streamtools.tools import SQLiteLedger, Tool

LEASE = 2.0  # seconds, so long that a process on a busy machine renews it in time


class Setting(NamedTuple):
    """What all workers of a test share. `site` is the URL of the test, which is the provider and runs the tools."""

    redis: str
    site: str
    prefix: str
    ledger: str | None = None
    prefill: str | None = "vllm"
    lease: float = LEASE


class Worker:
    """Serves the runs. A worker that `is_full` takes no run over."""

    def __init__(self, setting: Setting, name: str, *, is_full: bool) -> None:
        self.setting, self.name, self.is_full = setting, name, is_full
        self.ledger = None if setting.ledger is None else SQLiteLedger(setting.ledger, lease=LEASE)

    def make(self, lost: LostRun | None = None) -> Chat:
        async def tell(path: str) -> str:
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                return (await client.post(f"{self.setting.site}/{path}")).text

        async def pay(a: int, context: ToolContext) -> str:
            return await tell(f"tools/{context.call_id}")

        setting = self.setting
        return chat(
            OpenAIChat("m", base_url=f"{setting.site}/v1", api_key="none", prefill=setting.prefill),
            [{"role": "user", "content": "Pay Ann."}],
            tools=[Tool(pay), Tool(pay, name="look", idempotent=True), Tool(pay, name="sign", requires_approval=True)],
            approvals=ApprovalOptions(ask="now"),
            runner=RunnerOptions(ledger=self.ledger),
            continue_from=lost,
        )

    async def recover(self, lost: LostRun) -> Chat:
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            await client.post(f"{self.setting.site}/recovering/{self.name}")
        return self.make(lost)

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        redis, _, prefix, _, _, lease = self.setting
        store = RedisStore(redis, prefix=prefix, lease=lease, ledger=self.ledger, recover=self.recover)
        async with (
            asgi.shutdown_signal() as self.shutdown,
            Runs(store, shutdown=self.shutdown, max_running=1) as self.runs,
        ):
            if self.is_full:
                await self.runs.start(
                    chat(
                        OpenAIChat("idle", base_url=f"{self.setting.site}/v1", api_key="none"),
                        [{"role": "user", "content": "Wait."}],
                    ),
                    owner="bob",
                )
            yield

    async def start(self, request: Request) -> Response:
        return JSONResponse((await self.runs.start(self.make(), owner="ann")).id)

    async def read(self, request: Request) -> Response:
        run = await self.runs.find(request.path_params["run"], owner="ann")
        return asgi.event_stream_response(
            run, request=request, shutdown=self.shutdown, format=NativeEncoder(exclude=())
        )

    async def approve(self, request: Request) -> Response:
        run = await self.runs.find(request.path_params["run"], owner="ann")
        await run.approve(**json.loads(await request.body()))
        return Response()

    def serve(self, listening: socket.socket) -> None:
        routes = [
            Route("/start", self.start, methods=["POST"]),
            Route("/{run}", self.read),
            Route("/{run}", self.approve, methods=["POST"]),
        ]
        config: dict[str, Any] = {"log_config": None, "lifespan": "on", "timeout_graceful_shutdown": 10}
        uvicorn.Server(uvicorn.Config(Starlette(routes=routes, lifespan=self.lifespan), **config)).run([listening])


def serve(listening: socket.socket, setting: Setting, name: str, is_full: bool) -> None:
    """Serve on a socket until a signal arrives."""
    Worker(setting, name, is_full=is_full).serve(listening)
