"""Over the transport and the gateway, each scene has the result of the rewrite."""

from __future__ import annotations

import pytest

from streamtools.gateway import Rewrite
from tests.gateway.test_service import PATHS
from tests.gateway.test_waiting import client_of
from tests.support.gateway import CLIENTS, Collected, collect
from tests.support.loopback import Loopback
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.scenes import SCENES, Scene, normal

pytestmark = [pytest.mark.anyio]


def loopback(scene: Scene, *, streamed: bool) -> Loopback:
    """Return the upstream of a scene, whose pieces are not frames."""
    body = scene.answered(streamed=streamed)
    pieces = [body[at : at + 97] for at in range(0, len(body), 97)]
    return Loopback(pieces, declared="text/event-stream" if streamed else "application/json")


async def see(way: str, client: str, scene: Scene, *, streamed: bool) -> Collected:
    """Return the answer of a scene as its client collects it."""
    rewrite = Rewrite(**scene.options)
    async with loopback(scene, streamed=streamed) as upstream, client_of(way, upstream.url, rewrite) as http:
        response = await http.post(PATHS[client], json=scene.asked(client, streamed=streamed))
    return normal(collect(client, response.content), streamed=streamed)


@pytest.mark.parametrize("way", ["transport", "gateway"])
@OTHER_LOOP_DEEP
async def test_each_scene_in_each_format_streamed_and_not(way: str) -> None:
    for name, scene in SCENES.items():
        for client in CLIENTS:
            for streamed in (True, False):
                assert await see(way, client, scene, streamed=streamed) == scene.seen, (name, client, streamed)
