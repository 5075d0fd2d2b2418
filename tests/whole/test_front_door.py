"""The first screen of the README: its program responds with a script and with a model, its output is correct, its
figures are current, and it stays short.
"""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from streamtools.sources import ADAPTERS
from tests.support.provider import Provider
from tests.support.readme import ROOT, read_blocks, running
from tests.support.serving import Served, read_frames
from tests.support.talks import calls, says

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = read_blocks(TEXT)
ASKED = [{"role": "user", "content": "Weather in Paris?"}]


async def ask(monkeypatch: pytest.MonkeyPatch, url: str | None = None) -> list[Any]:
    """Return the response of the README's program to a client. With `url`, the program calls that server."""
    (program,) = [block.text for block in BLOCKS if block.notes.get("app") == "readme"]
    program = program.replace("delay=0.5", "delay=0")
    if url:
        program = program.replace("# model = ", "model = ").replace("http://127.0.0.1:8080/v1", url)
    with running(program) as names:
        async with Served(names["app"]) as server, httpx.AsyncClient(trust_env=False) as client:
            assert 400 == (await client.post(f"{server.url}/chat", content="{")).status_code
            response = await client.post(f"{server.url}/chat", json={"messages": ASKED})
    return read_frames(response.content)


@pytest.mark.asyncio_only
async def test_the_program_plays_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a model, it prints the lines of the README in order. `…` marks omitted text."""
    events = await ask(monkeypatch)
    (shown,) = [block.text for block in BLOCKS if block.notes.get("shows") == "readme"]

    written = iter(json.dumps(event, ensure_ascii=False, separators=(",", ":")) for event in events)
    for line in shown.splitlines():
        pattern = re.compile(re.escape(line).replace("…", ".*"))
        assert any(pattern.fullmatch(event) for event in written), line
    assert "~~~" not in "".join(event["text"] for event in events if event["type"] == "text")


@pytest.mark.asyncio_only
async def test_the_program_calls_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tool runs on a call of that model."""
    async with Provider(calls(("get_weather", {"city": "Paris"})), says("18 °C.")) as provider:
        events = await ask(monkeypatch, provider.url)

    assert ["18 °C in Paris"] == [event["message"] for event in events if event["type"] == "executed"]
    assert "finished" == events[-1]["reason"]
    assert 2 == len(provider.requests)


def test_the_readme_is_short() -> None:
    """It has at most 160 lines."""
    assert 160 >= len(TEXT.splitlines())


def test_its_figures_are_current() -> None:
    assert f"| {len(ADAPTERS)} wire formats: " in TEXT
