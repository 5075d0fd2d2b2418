"""The page docs/many-machines.md: its program responds, with a test server, and another process finds its run."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from streamtools.runs import LostRun, RedisStore, Runs
from tests.support.gateway import stream
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.readme import ROOT, read_blocks
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.asyncio_only, pytest.mark.servers]

BLOCKS = read_blocks((ROOT / "docs" / "many-machines.md").read_text(encoding="utf-8"))


async def test_the_program_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second store acts as another process."""
    (code,) = [block.text for block in BLOCKS if "app" in block.notes]
    asked = {"messages": [{"role": "user", "content": "Hello?"}]}
    async with Provider(Loopback([stream(["Good ", "day."])])) as model:
        with RedisServer() as server:
            monkeypatch.setenv("REDIS_URL", server.url)
            monkeypatch.setenv("MODEL_URL", f"{model.url}v1")
            page: dict[str, Any] = {}
            exec(compile(code, "many-machines.md", "exec"), page)
            transport = httpx.ASGITransport(page["app"])
            async with (
                page["lifespan"](page["app"]),
                Runs(RedisStore(server.url, recover=page["recover"])) as there,
                httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            ):
                begun = await client.post("/chat", json=asked)
                assert 202 == begun.status_code
                run_id = begun.json()["run"]
                assert "day." in (await client.get(f"/chat/{run_id}")).text
                assert (await client.get("/chat/another")).status_code == 404
                assert (await client.delete(f"/chat/{run_id}")).status_code == 204
                found = await there.find(run_id, owner="ann")
                assert "Good day." == (await found.wait()).text
                lost = LostRun(run_id, "ann", None, found.note, 1, [])
                assert run_id == page["recover"](lost).run_id
