"""The page docs/many-machines.md: its code runs, on a server of the tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamtools import ToolStream
from streamtools.events import ProviderCompleted
from streamtools.runs import Runs
from tests.support.readme import ROOT, read_blocks
from tests.support.redis_server import RedisServer
from tests.support.stories import Script, texts

pytestmark = [pytest.mark.anyio, pytest.mark.servers]

BLOCKS = read_blocks((ROOT / "docs" / "many-machines.md").read_text(encoding="utf-8"))


async def test_the_page() -> None:
    """What an application holds with the lines of the page, another process with the page's store finds."""
    code = "\n".join(block.text for block in BLOCKS if block.language == "python")
    with RedisServer() as server:
        page: dict[str, Any] = {}
        exec(compile(code.replace("redis://localhost:6379", server.url), "many-machines.md", "exec"), page)
        app: Any = SimpleNamespace(state=SimpleNamespace())
        async with page["lifespan"](app), Runs(page["store"]) as there:
            stream = ToolStream(Script([*texts("a"), ProviderCompleted(finish_reason="stop")]))
            note = {"messages": [{"role": "user", "content": "Hello?"}]}
            run = await app.state.runs.start(stream, owner="ann", note=note)
            found = await there.find(run.id, owner="ann")
            assert "a" == (await found.wait()).text
            assert run.id == (await page["begin_anew"](found)).run_id
