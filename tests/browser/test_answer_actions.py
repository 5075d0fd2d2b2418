"""Actions on a finished answer: copy it, or request it again."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Browsing
from tests.browser.looking import answers, ask, ended, expect
from tests.support.answering import calling, saying

pytestmark = pytest.mark.browser


async def test_copied_text_is_markdown(browsing: Browsing) -> None:
    """A code block, an answer, and the conversation with its calls can be copied."""
    text = 'Look:\n\n3. three\n\n```python\ndef f():  # one\n    return "two"\n```\n'
    page = await browsing.open(saying(text), saying(calling("look_up", city="Oslo")), saying("**17** °C."))
    await browsing.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await ask(page, "Code?")
    await ended(page)
    await expect(page.locator(".code .head span")).to_have_text("python")
    assert "3" == await page.locator(".answer ol").get_attribute("start")
    assert ["def", "return"] == await page.locator(".hljs-keyword").all_inner_texts()
    assert ["# one"] == await page.locator(".hljs-comment").all_inner_texts()
    assert ['"two"'] == await page.locator(".hljs-string").all_inner_texts()

    async def copied(name: str, at: int = 0) -> str:
        await page.get_by_role("button", name=name, exact=True).nth(at).click()
        await expect(page.get_by_text("Copied", exact=True).first).to_be_visible()
        said: str = await page.evaluate("navigator.clipboard.readText()")
        return said

    assert 'def f():  # one\n    return "two"\n' == await copied("Copy code")
    assert text == await copied("Copy")
    await ask(page, "Oslo?")
    await ended(page, 2)
    whole = await copied("Copy all")
    assert whole.startswith("## Code?\n\nLook:\n\n3. three\n\n```python")
    assert '## Oslo?\n\n> look_up(city: "Oslo")\n\n\n**17** °C.' in whole


async def test_a_second_answer_replaces_the_first(browsing: Browsing) -> None:
    """This also holds after a reload and in a second tab. The model does not receive the first answer."""
    page = await browsing.open(saying("One."), saying("Two."), saying("Three."))
    other = await browsing.tab()
    await ask(page, "Hi")
    await ended(page)
    await page.get_by_role("button", name="Ask again").click()
    await expect(page.locator(".answer")).to_contain_text("Two.")
    await ended(page)
    assert 1 == len(browsing.provider.bodies[1]["messages"])
    await expect(other.locator(".answer")).to_contain_text("Two.")
    await page.reload()
    await ended(page)
    assert ["Two."] == await answers(page)
    await page.locator("#question").press("ArrowUp")
    await expect(page.locator("#question")).to_have_value("Hi")
    await page.locator("#question").fill("Hello")
    await page.locator("#question").press("Enter")
    await expect(page.locator(".answer")).to_contain_text("Three.")
    await ended(page)
    assert ["Hello"] == await page.locator(".question").all_inner_texts()
    assert [{"role": "user", "content": "Hello"}] == browsing.provider.bodies[2]["messages"]
