"""Actions of a user on the page, and assertions about its content."""

from __future__ import annotations

from typing import Any

_PATIENCE = 20_000  # milliseconds, on a busy machine


def expect(where: Any) -> Any:
    """Return Playwright's assertions about an element, which wait until they are true."""
    from playwright.async_api import expect

    expect.set_options(timeout=_PATIENCE)

    return expect(where)


async def ask(page: Any, question: str) -> None:
    """Type a question and send it."""
    await page.locator("#question").fill(question)
    await page.locator("#send").click()


async def ended(page: Any, many: int = 1) -> None:
    """Wait until the page shows this many answers and all have ended."""
    await expect(page.locator(".turn")).to_have_count(many)
    await expect(page.locator(".answer[aria-busy]")).to_have_count(0)
    await expect(page.locator("#send")).to_be_enabled()
    await expect(page.locator("#send")).to_be_visible()


async def text_of(page: Any, at: int) -> str:
    """Return the text of one answer, without its cards."""
    return "\n".join(await page.locator(".answer").nth(at).locator(".prose").all_inner_texts())


async def answers(page: Any) -> list[str]:
    """Return the texts of all answers."""
    return [await text_of(page, at) for at in range(await page.locator(".answer").count())]
