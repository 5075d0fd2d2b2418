"""Hostile model output is shown as text on the page and loads nothing from elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import Browsing
from tests.browser.looking import ask, ended, expect
from tests.support.answering import calling, saying

pytestmark = pytest.mark.browser

SCRIPTS = [
    "<script>window.harmed = 1</script>",
    "<img src=x onerror='window.harmed = 1'>",
    '<img src="http://evil.example/x.png">',
    "<svg onload=window.harmed=1><a xlink:href='javascript:window.harmed=1'>x</a></svg>",
    "<iframe srcdoc='<script>parent.harmed = 1</script>'></iframe>",
    "<style>@import url(http://evil.example/x.css); body { display: none }</style>",
    "<form action=http://evil.example/><button>Go</button></form>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=window.harmed=1&gt;'>",
    "[a](javascript:window.harmed=1) [b](JaVaScRiPt:window.harmed=1) [c](data:text/html,<script>1</script>)",
    "[d](vbscript:x) [e](file:///etc/passwd) [f](&#106;avascript:window.harmed=1) <javascript:window.harmed=1>",
    "![picture](http://evil.example/picture.png) ![x](//evil.example/y.png) ![z](javascript:window.harmed=1)",
    '[q](http://good.example/" onmouseover="window.harmed=1) ![q" onerror="window.harmed=1](x)',
    "[r]: javascript:window.harmed=1\n\n[r] and [s][r]",
    "<details open ontoggle=window.harmed=1>x</details><input autofocus onfocus=window.harmed=1>",
    "![svg](data:image/svg+xml;base64,PHN2Zz4=) ![odd](data:text/html,<script>1</script>)",
    "![gif](data:image/gif;base64,R0lGODlhAQABAAAAACw=)",
    "``` <img src=x onerror=window.harmed=1>\n<script>window.harmed=1</script>\n```",
]
ALLOWED = {
    *("A", "BLOCKQUOTE", "BR", "CODE", "DEL", "DIV", "EM", "H1", "H2", "H3", "H4", "H5", "H6", "HR", "LI", "OL", "P"),
    *("PRE", "STRONG", "TABLE", "TBODY", "TD", "TH", "THEAD", "TR", "UL", "BUTTON", "SPAN"),
}


async def look(page: Any) -> dict[str, Any]:
    """Return the shown content of an answer."""
    found: dict[str, Any] = await page.evaluate(
        """() => {
            const all = [...document.querySelectorAll(".prose, .prose *")];
            return {
                harmed: window.harmed ?? null,
                names: [...new Set(all.map((each) => each.nodeName))],
                handlers: all.flatMap((each) => each.getAttributeNames()).filter((it) => /^on|^srcset|^style/.test(it)),
                images: all.filter((each) => each.hasAttribute("src")).map((each) => each.getAttribute("src")),
                links: all.filter((each) => each.hasAttribute("href")).map((each) => each.getAttribute("href")),
                bare: all.filter((each) => each.nodeName === "A" && each.hasAttribute("href")
                    && (each.rel !== "noopener noreferrer" || each.target !== "_blank")).length,
            };
        }"""
    )
    return found


@pytest.mark.parametrize("cut", [False, True])
async def test_model_output_runs_and_loads_nothing(browsing: Browsing, cut: bool) -> None:
    """Scripts, handlers, frames, styles, unusual links and images arrive in one piece and by the character."""
    text = "\n\n".join(SCRIPTS)
    page = await browsing.open(saying(*([*text] if cut else [text])))
    await ask(page, "<img src=x onerror=window.harmed=1>")
    await ended(page)
    await page.locator(".prose a").first.hover()
    found = await look(page)

    assert None is found["harmed"]
    assert set() == {*found["names"]} - ALLOWED
    assert ([], 0) == (found["handlers"], found["bare"])
    assert [] == found["images"]
    assert all(link.startswith(("http://", "https://")) for link in found["links"])
    await expect(page.locator(".prose")).to_contain_text("<script>window.harmed = 1</script>")
    await expect(page.locator(".prose a", has_text="picture (image)")).to_have_attribute(
        "href", "http://evil.example/picture.png"
    )
    await expect(page.locator(".question")).to_have_text("<img src=x onerror=window.harmed=1>")


async def test_calls_and_results_are_text(browsing: Browsing) -> None:
    """This includes names, arguments and output of tools."""
    bad = "<img src=x onerror=window.harmed=1>"
    calls = calling("look_up", city=bad) + "\n" + calling(bad, a=bad) + '\n~~~tool_call\n{"name": ' + bad + "\n~~~\n"
    page = await browsing.open(saying(calls), saying("Well."))
    await ask(page, "Hi")
    await ended(page)
    for summary in await page.locator(".card summary").all():
        await summary.click()
    await page.get_by_role("button", name="Events").click()

    await expect(page.locator(".card")).to_have_count(3)
    await expect(page.locator(".card").nth(1)).to_contain_text(bad)
    assert 0 == await page.locator("img").count()
    assert None is await page.evaluate("window.harmed ?? null")


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "*" * 200_000,
        "[" * 200_000,
        "> " * 50_000,
        "| a " * 100_000,
        "`" * 99_999,
        "a\n" * 50_000,
        "- " * 40_000,
    ],
    ids=["letters", "stars", "brackets", "quotes", "cells", "ticks", "lines", "items"],
)
async def test_a_very_long_line_is_harmless(browsing: Browsing, text: str) -> None:
    """The page shows a part, and the rest on request. It stays responsive."""
    page = await browsing.open(
        saying(*(text[at : at + 20_000] for at in range(0, len(text), 20_000))), saying("Short.")
    )
    await ask(page, "Hi")
    await ended(page)
    while await page.locator(".more").count():
        await page.locator(".more").click()
    shown = await page.evaluate("document.querySelector('.prose').textContent")

    if text[0] not in "-a>|":  # Markdown would change these
        assert text == shown
    await ask(page, "Again")
    await ended(page, 2)
    await expect(page.locator(".answer").nth(1).locator(".prose")).to_have_text("Short.")


@pytest.mark.parametrize(
    "text",
    ["> " * 8000, "1. " * 5000, "|a" * 2000 + "|\n" + "|-" * 2000 + "|\n" + "|\n" * 4000],
    ids=["quotes", "numbers", "table"],
)
async def test_markdown_that_expands_is_shown_as_text(browsing: Browsing, text: str) -> None:
    """Nesting deeper than the stack, and a table that expands to eight million cells."""
    page = await browsing.open(saying(*(text[at : at + 4000] for at in range(0, len(text), 4000))), saying("Short."))
    await ask(page, "Hi")
    await ended(page)

    await expect(page.locator(".prose")).to_contain_text(text[:50].strip())
    assert 1000 > await page.locator(".prose *").count()
    await ask(page, "Again")
    await ended(page, 2)
    await expect(page.locator(".answer").nth(1).locator(".prose")).to_have_text("Short.")


async def test_approvals_show_every_digit_of_numbers(browsing: Browsing) -> None:
    """JavaScript would round these numbers. The question, the card and the event show them as written."""
    page = await browsing.open(saying(calling("pay", to="Ann", amount=12345678901234567891)), saying("Paid."))
    await ask(page, "Pay.")
    card = page.locator(".card")
    await expect(card.locator(".asked")).to_contain_text('"amount": 12345678901234567891')
    await card.get_by_role("button", name="Approve").click()
    await ended(page)

    await expect(card.locator(".brief")).to_contain_text("amount: 12345678901234567891")
    await page.get_by_role("button", name="Events").click()
    event = page.locator("#events details[data-type=approval-requested]")
    await event.locator("summary").click()
    await expect(event.locator("pre")).to_contain_text('"amount": 12345678901234567891')
