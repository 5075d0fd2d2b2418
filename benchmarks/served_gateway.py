"""The server of `bench_gateway`: the gateway, and a bare pass-through of httpx and Starlette.

    python -m benchmarks.served_gateway UPSTREAM

Both ask the same upstream, and stand in one process: `/bare` passes the bytes, whatever is below `/v1` is the gateway.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from benchmarks.served import Server
from streamtools.gateway.service import app


def application(upstream: str) -> Any:
    """Return the application."""
    client = httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_connections=None))

    async def bare(request: Request) -> Response:
        headers = {"content-type": "application/json"}
        asked = client.build_request(
            "POST", f"{upstream}/chat/completions", content=await request.body(), headers=headers
        )
        response = await client.send(asked, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in response.aiter_raw():
                    yield piece
            finally:
                await response.aclose()

        return StreamingResponse(pieces(), response.status_code, media_type=response.headers["content-type"])

    async def time(request: Request) -> Response:
        return Response(str(process_time()))

    return Starlette(
        routes=[
            Route("/bare", bare, methods=["POST"]),
            Route("/time", time),
            Mount("/", app(upstream, max_running=1000)),
        ]
    )


if __name__ == "__main__":
    config = uvicorn.Config(application(sys.argv[1]), host="127.0.0.1", port=0, log_config=None, access_log=False)
    Server(config).run()
