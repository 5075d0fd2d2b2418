"""axe-core finds no accessibility fault on the page, in light and dark, wide and narrow."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import Browsing
from tests.browser.looking import ask, ended, expect
from tests.support.answering import calling, saying

pytestmark = pytest.mark.browser


async def faults(page: Any) -> list[str]:
    """Return the faults that axe-core finds."""
    from axe_playwright_python.async_playwright import Axe

    # Playwright injects the script: the content security policy of the page blocks all others.
    session = await page.context.new_cdp_session(page)
    await session.send("Page.setBypassCSP", {"enabled": True})
    found = (await Axe().run(page)).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_no_fault(browsing: Browsing, scheme: str, width: int) -> None:
    """Checked before the first question, during an approval, after an answer with all elements, and with events."""
    everything = "# One\n\n## Two\n\n> quote\n\n| a | b | |\n|---|---|---|\n| 1 | 2 | 3 |\n\n```py\nx = 1\n```\n\n[link](http://a.example)\n\n"
    page = await browsing.open(
        saying(everything, calling("pay", to="Ann", amount=5), "\n", '~~~tool_call\n{"name": 5\n~~~\n'),
        saying("<think>Hm.</think>Done."),
        saying(calling("pick_date", title="Departure")),
        saying("Wait", hold=True),
        color_scheme=scheme,
        viewport={"width": width, "height": 800},
    )
    found = await faults(page)
    await ask(page, "Hi")
    await expect(page.locator(".card[data-state=asking]")).to_have_count(1)
    found += await faults(page)
    await page.get_by_role("button", name="Approve").click()
    await ended(page)
    for each in await page.locator("#transcript summary").all():
        await each.click()
    await page.get_by_role("button", name="Events").click()
    await page.locator("#events summary").first.click()
    found += await faults(page)
    await ask(page, "Again")
    await expect(page.get_by_role("button", name="Send result")).to_be_visible()
    found += await faults(page)
    await page.get_by_label("Result of the call").fill("today")
    await page.get_by_role("button", name="Send result").click()
    await expect(page.locator(".answer").nth(1)).to_contain_text("Wait")
    await page.locator("#question").fill("And then?")
    await page.locator("#question").press("Enter")
    await expect(page.locator("#queue li")).to_have_count(1)
    found += await faults(page)
    await page.get_by_role("button", name="Remove").click()
    await page.locator("#stop").click()
    await ended(page, 2)
    found += await faults(page)

    assert [] == found
