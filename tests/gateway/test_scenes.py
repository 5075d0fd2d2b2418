"""Over the transport and the gateway, each scene has the result of the rewrite."""

from __future__ import annotations

import pytest

from tests.gateway.scenes import main, see
from tests.support.gateway import CLIENTS
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.scenes import SCENES

pytestmark = [pytest.mark.anyio]


@pytest.mark.parametrize("way", ["transport", "gateway"])
@OTHER_LOOP_DEEP
async def test_each_scene_in_each_format_streamed_and_not(way: str) -> None:
    for name, scene in SCENES.items():
        for client in CLIENTS:
            for streamed in (True, False):
                assert await see(way, client, scene, streamed=streamed) == scene.seen, (name, client, streamed)


@pytest.mark.deep
async def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the rewrite, the upstream makes no call at all."""
    await main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(SCENES) == len(rows)
    assert all(row.count(" 6 of 6 ") == 2 for row in rows)
    assert all(" 0 calls" in row.split("|")[2] for row in rows)
