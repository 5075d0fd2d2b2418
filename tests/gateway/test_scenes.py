"""Over the transport and the gateway, each scene has the result of the rewrite."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from streamtools.gateway import Rewrite, ToolCallTransport
from streamtools.gateway.service import app
from tests.support.gateway import CLIENTS, Collected, collect
from tests.support.loopback import Loopback
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.scenes import SCENES, Scene, normal

pytestmark = [pytest.mark.anyio]

PATHS = {"openai": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}


def loopback(scene: Scene, *, streamed: bool) -> Loopback:
    """Return the upstream of a scene, whose pieces are not frames."""
    body = scene.answered(streamed=streamed)
    pieces = [body[at : at + 97] for at in range(0, len(body), 97)]
    return Loopback(pieces, declared="text/event-stream" if streamed else "application/json")


@asynccontextmanager
async def way_to(upstream: str, way: str, scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that calls the upstream through the transport or the gateway."""
    rewrite = Rewrite(**scene.options)
    if way == "gateway":
        application = app(f"{upstream}v1", rewrite=rewrite)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://localhost") as client:
            yield client
        return
    async with httpx.AsyncClient(
        transport=ToolCallTransport(rewrite=rewrite), base_url=upstream, trust_env=False
    ) as client:
        yield client


async def see(way: str, client: str, scene: Scene, *, streamed: bool) -> Collected:
    """Return the answer of a scene as its client collects it."""
    async with loopback(scene, streamed=streamed) as upstream, way_to(upstream.url, way, scene) as http:
        response = await http.post(PATHS[client], json=scene.asked(client, streamed=streamed))
    return normal(collect(client, response.content), streamed=streamed)


@pytest.mark.parametrize("way", ["transport", "gateway"])
@OTHER_LOOP_DEEP
async def test_each_scene_in_each_format_streamed_and_not(way: str) -> None:
    for name, scene in SCENES.items():
        for client in CLIENTS:
            for streamed in (True, False):
                assert await see(way, client, scene, streamed=streamed) == scene.seen, (name, client, streamed)
