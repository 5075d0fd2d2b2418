"""JavaScript clients with the gateway, unchanged: a text model upstream calls tools like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamtools.gateway.service import app
from tests.clients.programs import run_program
from tests.support.readme import ROOT
from tests.support.serving import Served
from tests.support.text_model import SAYS, text_model

pytestmark = pytest.mark.sdk


@pytest.mark.parametrize("client", ["openai", "ai7"])
async def test_a_client_gets_calls_structured_output_and_errors(folder: Path, client: str) -> None:
    with text_model() as model:
        async with Served(app(model.url)) as server:
            asked = {"url": f"{server.url}/v1"}
            told = await run_program(folder, "gateway.mjs", client, given=asked)
            forced = [
                body for body in model.bodies if "Your answer has to be a call" in str(body["messages"][-1]["content"])
            ]
            refused = {}
            for status in (400, 401, 429, 500):
                model.status = status
                refused[status] = await run_program(folder, "gateway.mjs", client, "loop", "streamed", given=asked)
            model.status, model.breaks = 200, True
            broken = await run_program(folder, "gateway.mjs", client, "streamed", given=asked)

    cities = ["Bern", "Zürich"]
    assert told["loop"] == told["streamed"] == {"said": SAYS, "cities": cities}
    assert (len(forced), told["force"]["cities"], told["forceStreamed"]["cities"]) == (2, cities, cities)
    assert told["form"]["said"] == told["formStreamed"]["said"] == "Bern"
    for status, answers in refused.items():
        for each in answers.values():
            assert (each["status"], "It is too much" in each["message"], each["cities"]) == (status, True, []), each
    assert (broken["streamed"]["cities"], "was lost" in broken["streamed"]["message"]) == ([], True), broken


def test_the_page_names_the_tested_versions() -> None:
    asked = json.loads((Path(__file__).parent / "package.json").read_text())["dependencies"]
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    for name in ("openai", "ai7", "@ai-sdk/openai-compatible"):
        assert f"`{name.rstrip('7')}` {asked[name].rpartition('@')[2]}" in page
