"""The pages of the documentation: approvals in two tabs, an answer that continues during a reload, and others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamtools.tools import SQLiteLedger
from tests.browser.conftest import watch
from tests.browser.looking import expect
from tests.browser.test_looks import faults as looks
from tests.examples.loading import load
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.redis_server import RedisServer
from tests.support.serving import Served
from tests.support.talks import calls
from tests.whole.test_server_programs import BLOCKS, END, PAY, TEXT, serving

pytestmark = pytest.mark.browser

PAGES = {block.notes["page"]: block.text for block in BLOCKS if "page" in block.notes}
ICON = '<!doctype html><link rel="icon" href="data:,">'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory that contains `page.html`."""
    monkeypatch.chdir(tmp_path)


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


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("button", "outcome"), [("Approve", "paid 5 to Ann"), ("Deny", "was denied")])
async def test_a_double_click_after_a_restart_in_another_tab(chromium: Any, button: str, outcome: str) -> None:
    """It starts one run and makes one payment. The first tab then approves, too, and shows the same answer.

    Before, a click without a connection has no effect, except for a message.
    """
    context = await chromium.new_context()
    faults = list[str]()
    html = ICON + PAGES["approval"]
    async with serving("approval", Loopback([PAY, END]), page=html) as (server, _):
        page = await context.new_page()
        watch(page, faults)
        await page.goto(f"{server.url}/")
        await page.locator("#ask").click()
        await expect(page.locator("p")).to_contain_text('pay {"to":"Ann","amount":5}')
        await page.reload()
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        run = page.url.partition("#")[2]
    # A second request to the model would be an error.
    async with serving("approval", Loopback([TEXT, END]), page=html) as (server, _):
        tabs = [await context.new_page() for _ in range(2)]
        for page in tabs:
            watch(page, faults)
            await page.goto(f"{server.url}/#{run}")
            await expect(page.locator("p")).to_contain_text('pay {"to":"Ann","amount":5}')
        assert [] == faults + await looks(tabs[0])
        await context.set_offline(True)
        await tabs[0].get_by_role("button", name=button).click()
        await expect(tabs[0].locator("#note")).to_have_text("The server does not answer; try again.")
        await context.set_offline(False)
        await tabs[0].get_by_role("button", name=button).dblclick()
        await expect(tabs[0].locator("#log")).to_contain_text("It is warm.")
        await tabs[1].get_by_role("button", name="Approve").click()
        for page in tabs:
            await expect(page.locator("#log")).to_contain_text(outcome)
            await expect(page.locator("#log")).to_contain_text("It is warm.")
            await expect(page.locator("p")).to_have_count(0)
            assert 1 == (await page.locator("#log").inner_text()).count("It is warm.")
        refused = "" if button == "Approve" else "was denied; this decision is ignored"
        await expect(tabs[1].locator("#note")).to_contain_text(refused)
        assert run + "~" == tabs[0].url.partition("#")[2]
        await context.close()  # before the server, which the pages may still ask
    entries = await SQLiteLedger(os.environ["CALLS"]).entries()
    assert [button == "Approve"] == [entry.outcome is not None and entry.outcome.error is None for entry in entries]
    assert not [fault for fault in faults if not fault.startswith("Failed to load resource")]


@pytest.mark.usefixtures("store")
async def test_the_first_of_two_decisions_is_confirmed(chromium: Any) -> None:
    """The page counts them. After a reload it shows the question again, and later the answer."""
    context = await chromium.new_context()
    pays = calls(*(("pay", {"to": to, "amount": 5}) for to in ("Ann", "Bob")), text="I pay both.")
    html = ICON + PAGES["approval"]
    async with serving("approval", pays, Loopback([TEXT, END]), page=html) as (server, _):
        page = await context.new_page()
        faults = watch(page)
        await page.goto(f"{server.url}/")
        await page.locator("#ask").click()
        await page.get_by_role("button", name="Approve").first.click()
        await expect(page.locator("#note")).to_have_text("1 of 2 decided")
        await page.reload()
        await page.get_by_role("button", name="Deny").last.click()
        for words in ("I pay both.", "paid 5 to Ann", "was denied", "It is warm."):
            await expect(page.locator("#log")).to_contain_text(words)
        await context.close()  # before the server, which the page may still ask
    assert [] == faults


async def test_a_reloaded_page_continues_its_answer(chromium: Any) -> None:
    """It shows the answer from its start, can stop it, and forgets it afterwards."""
    context = await chromium.new_context()
    async with serving("runs", Loopback([TEXT], hold=True), page=ICON + PAGES["runs"]) as (server, _):
        page = await context.new_page()
        faults = watch(page)
        await page.goto(f"{server.url}/")
        await send(page, "Hello?")
        await expect(page.locator("#log")).to_have_text("It is warm.")
        await page.reload()
        await expect(page.locator("#log")).to_have_text("It is warm.")
        await page.locator("#halt").click()
        await page.wait_for_function("localStorage.run === undefined")
        await expect(page.locator("#state")).to_have_text("Stopped.")
        await page.locator("#halt").click()
        assert [] == faults + await looks(page)
    await context.close()


async def failing(status: int, route: Any) -> None:
    """Answer a request of the page with an error, as a server without the run, or with a fault, does."""
    await route.fulfill(status=status, body="Internal Server Error")


async def send(page: Any, text: str) -> None:
    await page.locator("#question").fill(text)
    await page.get_by_role("button", name="Send").click()


async def test_a_complete_page(chromium: Any) -> None:
    """It shows its messages and its question after a restart. It continues a reloaded answer, and stops it."""
    context = await chromium.new_context()
    html = ICON + PAGES["complete"]
    page = await context.new_page()
    faults = watch(page)

    log = page.locator("#log")
    async with serving("complete", calls(("pay", {"to": "Ann", "amount": 5}), text="I pay."), page=html) as (server, _):
        await page.goto(f"{server.url}/")
        await send(page, "Pay Ann 5.")
        await expect(page.get_by_role("button", name="Approve")).to_be_visible()
        assert [] == faults + await looks(page)
        await page.goto("about:blank")  # before the server ends, which the page may still ask
    answers = (Loopback([TEXT, END]), Loopback([TEXT], hold=True))
    async with serving("complete", *answers, page=html) as (server, _):
        await page.goto(f"{server.url}/")
        await expect(log).to_have_text('> Pay Ann 5. I pay.pay {"to":"Ann","amount":5} Approve Deny')
        await send(page, "Hello?")
        await expect(page.locator("#state")).to_have_text("A call waits for a decision.")
        await page.get_by_role("button", name="Approve").evaluate("button => { button.click(); button.click(); }")
        await expect(log).to_have_text("> Pay Ann 5. I pay. ann paid Ann 5 EUR It is warm.")
        await send(page, "More?")
        await expect(log).to_contain_text("> More? It is warm.")
        await page.reload()
        await expect(log).to_contain_text("> More? It is warm.")
        for path, status, told in (
            ("**/runs/*", 404, "The answer was lost; ask again."),
            ("**/conversations/trip", 500, "The server does not answer; try again."),
        ):
            await page.route(path, partial(failing, status))
            await page.reload()
            await expect(page.locator("#state")).to_have_text(told)
            await page.unroute(path)
        await page.reload()
        await expect(log).to_contain_text("> More? It is warm.")
        await page.get_by_role("button", name="Stop").click()
        await page.get_by_role("button", name="Stop").click()
        await page.reload()
        await expect(log).to_contain_text("> Pay Ann 5. I pay. ann paid Ann 5 EUR It is warm. > More? It is warm.")
        await page.get_by_role("link", name="New chat").click()
        await expect(log).to_be_empty()
        await send(page, "Hello?")
        await expect(log).to_have_text("> Hello? It is warm.")
        for chat, said in (("trip", "> More? It is warm."), ("chat-2", "> Hello? It is warm.")):
            await page.get_by_role("link", name=chat).click()
            await expect(log).to_contain_text(said)
        await expect(page.locator("[aria-current=true]")).to_have_text("chat-2")
        assert [] == await looks(page)
        await context.close()  # before the server, which the page may still ask
    assert not [fault for fault in faults if not re.search("40[49]|500", fault)]


async def test_a_complete_page_over_a_websocket(chromium: Any) -> None:
    """It shows a question after a restart, and reads a reloaded answer. A stop in one chat leaves the other."""
    context = await chromium.new_context()
    html = ICON + PAGES["complete-websocket"]
    page = await context.new_page()
    faults = watch(page)

    log = page.locator("#logs > :not([hidden])")
    paying = calls(("pay", {"to": "Ann", "amount": 5}), text="I pay.")
    async with serving("complete-websocket", paying, paying, page=html) as (server, _):
        await page.goto(f"{server.url}/")
        await send(page, "Pay Ann 5.")
        await expect(log.get_by_role("button", name="Approve")).to_be_visible()
        assert [] == faults + await looks(page)
        await page.locator("#add").click()
        await send(page, "Pay Ann 5.")
        await expect(log.get_by_role("button", name="Approve")).to_be_visible()
        await page.get_by_role("button", name="Stop").click()
        await expect(log).to_have_text("> Pay Ann 5. I pay. (stopped)")
    await expect(page.locator("#state")).to_have_text("Reconnecting…")
    answers = (Loopback([TEXT, END]), Loopback([TEXT], hold=True), Loopback([TEXT], hold=True))
    async with serving("complete-websocket", *answers, page=html) as (server, _):
        faults.clear()  # of a page without a server
        await page.goto(f"{server.url}/")
        await page.get_by_role("button", name="chat 1").click()
        await expect(log).to_have_text('> Pay Ann 5. I pay.pay {"to":"Ann","amount":5} Approve Deny')
        await send(page, "Hello?")
        await expect(page.locator("#state")).to_have_text("A call waits for a decision.")
        await log.get_by_role("button", name="Approve").evaluate("button => { button.click(); button.click(); }")
        await expect(log).to_contain_text("I pay. ann paid Ann 5 EUR It is warm.")
        await page.locator("#add").click()
        await send(page, "More?")
        await expect(log).to_have_text("> More? It is warm.")
        await page.reload()
        await page.get_by_role("button", name="chat 3").click()
        await expect(log).to_have_text("> More? It is warm.")
        await page.get_by_role("button", name="chat 1").click()
        await send(page, "Again.")
        await expect(log).to_contain_text("> Again. It is warm.")
        await page.get_by_role("button", name="chat 3").click()
        await page.get_by_role("button", name="Stop").click()
        await expect(log).to_have_text("> More? It is warm. (stopped)")
        await page.get_by_role("button", name="chat 1").click()
        await expect(log).not_to_contain_text("(stopped)")
        await page.get_by_role("button", name="Stop").click()
        await expect(log).to_contain_text("It is warm. (stopped)")
        assert [] == faults + await looks(page)
    await context.close()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("typed", "Cities Send Oslo: 717710Bergen: 291940 finished"),
        ("client-tool", "Chat Send get_time_zone: Europe/Oslo. It is late there."),
        ("serve", 'Chat Is it warm in Paris?get_weather {"city":"Paris"}18 °C in ParisIt is warm. Send Stop'),
    ],
)
async def test_a_page_of_items_and_one_with_a_tool(chromium: Any, name: str, shown: str) -> None:
    """They replace the items of an invalid answer, also after a reload, and run or show a tool that the model calls."""
    context = await chromium.new_context(timezone_id="Europe/Oslo")
    async with serving(name, page=ICON + PAGES[name]) as (server, _):
        page = await context.new_page()
        faults = watch(page)
        await page.goto(f"{server.url}/")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("main")).to_have_text(shown)
        if name == "typed":
            await page.reload()
            await expect(page.locator("main")).to_have_text(shown)
        assert [] == faults + await looks(page)
        await context.close()  # before the server, which the page may still ask


async def test_an_example_continues_after_a_reload_and_an_approval(chromium: Any) -> None:
    example = load("reloads_and_approvals/app")
    del example.ANSWER[3:]
    page = await chromium.new_page()
    faults = watch(page)
    async with Served(example.app) as server:
        await page.goto(server.url)
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("button", name="Deny").wait_for()
        await page.reload()
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator("#log")).to_have_text('I pay Ann. pay {"to":"Ann","amount":5}paid 5 to AnnThis is a ')
        assert [] == faults + await looks(page)
        await page.close()  # before the server, which the page may still ask


async def test_two_chats_share_a_connection(chromium: Any) -> None:
    """One is stopped while the other is answered, and continues afterwards."""
    model = Provider(Loopback([TEXT], hold=True), Loopback([TEXT, END]), Loopback([TEXT, END]))
    page = await chromium.new_page()
    async with serving("conversations", model=model, page=ICON + PAGES["conversations"]) as (server, _):
        faults = watch(page)
        await page.goto(f"{server.url}/")
        chats = page.locator("section")
        for number in range(2):
            await page.locator("#add").click()
            await chats.nth(number).locator("input").fill("Hello")
            await chats.nth(number).get_by_role("button", name="Send").click()
            await expect(chats.nth(number).locator("pre")).to_contain_text("> Hello It is warm.")
        await chats.first.get_by_role("button", name="Stop").click()
        await expect(chats.first.locator("pre")).to_contain_text("It is warm. (stopped)")
        await chats.first.locator("input").fill("Again")
        await chats.first.get_by_role("button", name="Send").click()
        await expect(chats.first.locator("pre")).to_contain_text("> Again It is warm.")
        assert [] == await looks(page)
    await expect(page.locator("#note")).to_have_text("The connection was closed. Reload the page to start again.")
    await expect(page.locator(":enabled")).to_have_count(0)
    assert [] == faults
    await page.close()
