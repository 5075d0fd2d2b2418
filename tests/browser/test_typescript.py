"""`@streamtools/client` in a browser, as npm packs it, in front of the program of docs that is for it."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from starlette.staticfiles import StaticFiles

from tests.browser.conftest import watch
from tests.clients.typescript_package import pack, unpack
from tests.clients.typescript_scenes import SCENES
from tests.support.readme import ROOT
from tests.whole.test_server_programs import serving

pytestmark = [pytest.mark.browser, pytest.mark.anyio]

_IMPORTS = '{"imports": {"@streamtools/client": "/node_modules/@streamtools/client/dist/index.js"}}'
_PLAY = """async ([how, scene]) => {
    const [lib, { makeScenes }] = await Promise.all([import("@streamtools/client"), import("/typescript_scenes.mjs")]);
    return makeScenes(lib, how, location.origin)(scene);
}"""


@pytest.fixture(scope="module")
def folder() -> Path:
    """A folder in which it is installed, with the scenes and a page."""
    folder = ROOT / ".cache" / "typescript-page"
    folder.mkdir(parents=True, exist_ok=True)
    page = f'<!doctype html><link rel="icon" href="data:,"><script type="importmap">{_IMPORTS}</script>'
    (folder / "index.html").write_text(page, encoding="utf-8")
    return unpack(pack(), folder)


async def test_all_scenes(chromium: Any, folder: Path) -> None:
    """By HTTP and over a websocket; what the server refuses is all that the console complains of."""
    for (scene, (answers, check)), how in product(SCENES.items(), ("http", "socket")):
        async with serving("client", *answers(), user="ann") as (server, _):
            vars(sys.modules["app"])["app"].mount("/", StaticFiles(directory=folder, html=True))
            context = await chromium.new_context()
            page = await context.new_page()
            faults = watch(page)
            await page.goto(server.url)
            check(await page.evaluate(_PLAY, [how, scene]), how)
            refused = [each for each in faults if "status of 404" in each or "status of 409" in each]
            assert refused == faults, (scene, how)
            assert len(refused) == (how == "http" and scene in ("twice", "gone")), (scene, how)
            await context.close()
