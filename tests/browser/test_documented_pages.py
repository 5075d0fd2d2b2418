"""The pages of the documentation: approvals in two tabs, and an answer that continues during a reload."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streamtools.tools import SQLiteLedger
from tests.browser.conftest import watch
from tests.browser.looking import expect
from tests.support.loopback import Loopback
from tests.support.redis_server import RedisServer
from tests.whole.test_server_programs import BLOCKS, END, PAY, TEXT, serving

pytestmark = [pytest.mark.browser, pytest.mark.anyio]

PAGES = {block.notes["page"]: block.text for block in BLOCKS if "page" in block.notes}
ICON = '<!doctype html><link rel="icon" href="data:,">'
RUNS = f"""{ICON}<button id="stopButton"></button><pre id="log"></pre><script>
const show = (event) => log.append(event.type === "step-start" ? "" : (event.text ?? event.message));
{PAGES["runs"]}</script>"""


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.servers)])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The place where runs wait."""
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.sqlite"))
    if request.param == "sqlite":
        yield
    else:
        with RedisServer() as server:
            monkeypatch.setenv("REDIS_URL", server.url)
            yield


@asynccontextmanager
async def approving(context: Any, *answers: Loopback) -> AsyncIterator[str]:
    """Serve the program of approvals with its page. Yields the address of the page."""
    async with serving("approval", *answers, user="ann") as (server, _):

        async def answer(route: Any) -> None:
            await route.fulfill(content_type="text/html", body=ICON + PAGES["approval"])

        await context.route(f"{server.url}/", answer)
        yield f"{server.url}/"


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("button", "outcome"), [("Approve", "paid 5 to Ann"), ("Deny", "was denied")])
async def test_a_double_click_after_a_restart_in_another_tab(chromium: Any, button: str, outcome: str) -> None:
    """It starts one run and makes one payment. The first tab reads the same run with the same decision."""
    context = await chromium.new_context()
    faults: list[list[str]] = []
    async with approving(context, Loopback([PAY, END])) as address:
        page = await context.new_page()
        faults.append(watch(page))
        await page.goto(address)
        await page.locator("#ask").click()
        await expect(page.locator("p")).to_contain_text('pay {"to":"Ann","amount":5}')
        await page.reload()
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        run = page.url.partition("#")[2]
    async with approving(context, Loopback([TEXT, END])) as address:  # a second answer of the model would be an error
        tabs = [await context.new_page() for _ in range(2)]
        for page in tabs:
            faults.append(watch(page))
            await page.goto(f"{address}#{run}")
            await expect(page.locator("p")).to_contain_text('pay {"to":"Ann","amount":5}')
        await tabs[0].get_by_role("button", name=button).dblclick()
        await expect(tabs[0].locator("#log")).to_contain_text("It is warm.")
        await tabs[1].get_by_role("button", name=button).click()
        for page in tabs:
            await expect(page.locator("#log")).to_contain_text(outcome)
            await expect(page.locator("#log")).to_contain_text("It is warm.")
            await expect(page.locator("p")).to_have_count(0)
        assert tabs[0].url == tabs[1].url
        assert run not in tabs[0].url
        assert 1 == (await tabs[0].locator("#log").inner_text()).count("It is warm.")
    entries = await SQLiteLedger(os.environ["CALLS"]).entries()
    assert [button == "Approve"] == [entry.outcome is not None and entry.outcome.error is None for entry in entries]
    assert [[], [], []] == faults
    await context.close()


async def test_a_reloaded_page_continues_its_answer(chromium: Any) -> None:
    """It shows the answer from its start, can stop it, and forgets it afterwards."""
    context = await chromium.new_context()
    async with serving("runs", Loopback([TEXT], hold=True), user="ann") as (server, _):

        async def answer(route: Any) -> None:
            await route.fulfill(content_type="text/html", body=RUNS)

        await context.route(f"{server.url}/", answer)
        page = await context.new_page()
        faults = watch(page)
        await page.goto(f"{server.url}/")
        await page.evaluate("""ask([{ role: "user", content: "Hello?" }])""")
        await expect(page.locator("#log")).to_have_text("It is warm.")
        await page.reload()
        await expect(page.locator("#log")).to_have_text("It is warm.")
        await page.locator("#stopButton").click()
        await page.wait_for_function("""sessionStorage.getItem("run") === null""")
    assert [] == faults
    await context.close()
