"""The scenes over the network: with the upstream asked directly, over the transport, and over the gateway.

    python -m tests.gateway.scenes

prints a table of what a client of chat completions has of each, and of how many of the six ways of asking (three
formats, streamed and not) had what they should.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx

from streamtools.gateway import Rewrite, ToolCallTransport
from streamtools.gateway.service import app
from tests.support.gateway import CLIENTS, Collected, collect
from tests.support.loopback import Loopback
from tests.support.scenes import SCENES, Scene, normal

PATHS = {"openai": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
WAYS = ("directly", "transport", "gateway")


def loopback(scene: Scene, *, streamed: bool) -> Loopback:
    """Return the upstream of a scene, which sends its answer in pieces that are no frames."""
    body = scene.answered(streamed=streamed)
    pieces = [body[at : at + 97] for at in range(0, len(body), 97)]
    return Loopback(pieces, declared="text/event-stream" if streamed else "application/json")


@asynccontextmanager
async def way_to(upstream: str, way: str, scene: Scene) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client that asks the upstream in one of the ways; ASGI needs no server of the gateway's own."""
    rewrite = Rewrite(**scene.options)
    if way == "gateway":
        application = app(f"{upstream}v1", rewrite=rewrite)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://localhost") as client:
            yield client
        return
    transport = ToolCallTransport(rewrite=rewrite) if way == "transport" else None
    async with httpx.AsyncClient(transport=transport, base_url=upstream, trust_env=False) as client:
        yield client


async def see(way: str, client: str, scene: Scene, *, streamed: bool) -> Collected:
    """Return the answer of a scene as its client collects it."""
    async with loopback(scene, streamed=streamed) as upstream, way_to(upstream.url, way, scene) as http:
        response = await http.post(PATHS[client], json=scene.asked(client, streamed=streamed))
    return normal(collect(client, response.content), streamed=streamed)


def describe(seen: Collected) -> str:
    """Describe a collected answer in a few words."""
    if seen.error is not None:
        return "an error"
    leaks = ", markup in the text" if "~~~tool" in seen.text or "<think>" in seen.text else ""
    return f"{len(seen.calls)} calls, {seen.finish}{leaks}"


async def main() -> None:
    """Print the table."""
    print("| scene | directly | transport | right | gateway | right |\n| --- | --- | --- | --- | --- | --- |")
    for name, scene in SCENES.items():
        cells = [describe(await see("directly", "openai", scene, streamed=True))]
        for way in WAYS[1:]:
            told = [
                await see(way, client, scene, streamed=streamed) for client in CLIENTS for streamed in (True, False)
            ]
            cells += [describe(told[0]), f"{told.count(scene.seen)} of {len(told)}"]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    anyio.run(main)
