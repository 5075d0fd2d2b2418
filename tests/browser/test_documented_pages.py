"""The pages of the documentation: approvals in two tabs, an answer that continues during a reload, and others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import watch
from tests.browser.looking import expect
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.talks import calls, says
from tests.whole.test_server_programs import BLOCKS, END, PAY, TEXT, serving

pytestmark = [pytest.mark.browser, pytest.mark.anyio]

PAGES = {block.notes["page"]: block.text for block in BLOCKS if "page" in block.notes}
ICON = '<!doctype html><link rel="icon" href="data:,">'


@pytest.mark.parametrize(("button", "outcome"), [("Approve", "paid 5 to Ann"), ("Deny", "was denied")])
async def test_an_approval_is_shown_in_two_tabs(chromium: Any, button: str, outcome: str) -> None:
    """The second tab and a reloaded tab show the question of the first."""
    context = await chromium.new_context()
    answers, page = (Loopback([PAY, END]), Loopback([TEXT, END])), ICON + PAGES["approval"]
    async with serving("approval", *answers, user="ann", page=page) as (server, _):
        first, second = await context.new_page(), await context.new_page()
        faults = [watch(page) for page in (first, second)]
        await first.goto(f"{server.url}/")
        await first.locator("#ask").click()
        await expect(first.get_by_role("button", name="Approve")).to_be_visible()
        await first.reload()
        await second.goto(first.url)
        for page in (first, second):
            await expect(page.locator("p")).to_contain_text('pay {"to":"Ann","amount":5}')
        await second.get_by_role("button", name=button).click()
        for page in (first, second):
            await expect(page.locator("#log")).to_contain_text(outcome)
            await expect(page.locator("#log")).to_contain_text("It is warm.")
            await expect(page.locator("p")).to_have_count(0)
    assert [[], []] == faults
    await context.close()


async def test_a_reloaded_page_continues_its_answer(chromium: Any) -> None:
    """It shows the answer from its start, can stop it, and forgets it afterwards."""
    context = await chromium.new_context()
    async with serving("runs", Loopback([TEXT], hold=True), user="ann", page=ICON + PAGES["runs"]) as (server, _):
        page = await context.new_page()
        faults = watch(page)
        await page.goto(f"{server.url}/")
        await page.locator("#question").fill("Hello?")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("#log")).to_have_text("It is warm.")
        await page.reload()
        await expect(page.locator("#log")).to_have_text("It is warm.")
        await page.locator("#halt").click()
        await page.wait_for_function("sessionStorage.run === undefined")
    assert [] == faults
    await context.close()


OWN = f"""{ICON}<pre id="log"></pre><script type="module">
const body = JSON.stringify({{ messages: [{{ role: "user", content: "Weather?" }}] }});
const response = await fetch("/chat", {{ method: "POST", headers: {{ "content-type": "application/json" }}, body }});
for (const line of (await response.text()).split("\\n").filter((line) => line.startsWith("data: "))) {{
  const message = JSON.parse(line.slice(6));
  log.append(message.token ?? (message.done ? "|" : message.tool));
}}
</script>"""
"""A page with a protocol of its own."""


async def test_a_page_with_its_own_protocol(chromium: Any) -> None:
    """It reads what it read before."""
    model = Provider(calls(("get_weather", {"city": "Paris"}), text="Let me see. "), says("It is ", "mild."))
    page = await chromium.new_page()
    async with serving("custom", model=model, page=OWN) as (server, _):
        faults = watch(page)
        await page.goto(f"{server.url}/")
        await expect(page.locator("#log")).to_have_text("Let me see. get_weatherIt is mild.|")
    assert [] == faults
    await page.close()


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
    assert [] == faults
    await page.close()
