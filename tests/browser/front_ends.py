"""Pages of real front ends, each in front of the program of docs/front-end.md that is for it, and a model to ask.

What the pages have from npm stands in `pages/package.json`, what the documentation tells their authors to write comes
from its blocks, and esbuild makes one script of it. The script comes from the test, everything else from the program.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio.lowlevel

from streamtools.tools import MemoryLedger
from tests.browser.conftest import watch
from tests.browser.looking import expect
from tests.clients.programs import install, run_node
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.whole.test_front_end_page import BLOCKS, serving

Kind = Literal["ai_sdk", "ag_ui"]

_PAGES = Path(__file__).parent / "pages"
_FOLDER = _PAGES.parents[2] / ".cache" / "pages"


def bundle() -> Path:
    """Return the folder with a script for each kind of page."""
    install(_PAGES / "package.json", _FOLDER)
    for page in _PAGES.glob("*.js"):
        shutil.copy(page, _FOLDER)
    for block in BLOCKS:
        if "page" in block.notes:
            name = block.notes["page"].replace("-", "_")
            (_FOLDER / f"documented_{name}.js").write_text(block.text, encoding="utf-8")
    build = ("--bundle", "--outdir=built", "--log-level=warning", '--define:process.env.NODE_ENV="production"')
    run_node(_FOLDER, "node_modules/esbuild/bin/esbuild", "ai_sdk.js", "ag_ui.js", *build)
    return _FOLDER / "built"


class FrontEnd:
    """What a user does on a page, and what is seen there and behind it."""

    def __init__(self, page: Any, model: Provider) -> None:
        self.page = page
        self.model = model
        self.faults = watch(page)

    async def ask(self, question: str) -> None:
        """Write a question, and send it."""
        await self.page.locator("#question").fill(question)
        await self.page.locator("#question").press("Enter")

    async def click(self, button: str) -> None:
        """Click the one button of that name."""
        await self.page.get_by_role("button", name=button).click()

    async def ended(self, *answer: str, status: str = "ready") -> None:
        """Wait until nothing goes on any more, and the last message says this."""
        for text in answer:
            await expect(self.page.locator(".message p").last).to_contain_text(text)
        await expect(self.page.locator("body")).to_have_attribute("data-status", status)

    async def asked(self) -> None:
        """Wait until a call waits for approval."""
        await expect(self.page.get_by_role("button", name="Approve")).to_be_visible()
        await self.ended()

    async def answers(self) -> list[str]:
        """Return the texts of all answers."""
        return [await each.inner_text() for each in await self.page.locator(".message[data-role=assistant] p").all()]

    async def idle(self) -> None:
        """Wait until the server answers nobody any more."""
        while vars(sys.modules["app"])["app"].state.runs.running:
            await anyio.lowlevel.checkpoint()

    async def calls(self) -> list[tuple[str, str]]:
        """Return the states and the words of all calls."""
        shown = await self.page.locator(".call").all()
        return [(await each.get_attribute("data-state"), await each.locator("code").inner_text()) for each in shown]

    async def reload(self) -> None:
        """Load the page anew."""
        await self.page.reload()
        await self.ended()

    async def change(self, change: str) -> None:
        """Run JavaScript on what the page has `kept`, and load the page anew."""
        script = "const kept = JSON.parse(localStorage.c1); %s; localStorage.c1 = JSON.stringify(kept)"
        await self.page.evaluate(f"(() => {{ {script % change} }})()")
        await self.reload()

    async def ran(self) -> list[tuple[str, Any]]:
        """Return the calls that were run, or were answered by the page, with their arguments."""
        ledger: MemoryLedger = vars(sys.modules["app"])["ledger"]
        entries = await ledger.entries()
        return [
            (each.call.name, each.call.arguments) for each in entries if each.outcome and each.outcome.error is None
        ]


@asynccontextmanager
async def opened(chromium: Any, scripts: Path, kind: Kind, *answers: Loopback) -> AsyncIterator[FrontEnd]:
    """Serve a program whose model gives these answers, and open its page."""
    context = await chromium.new_context()
    try:
        model = Provider(*answers)
        async with serving(kind.replace("_", "-"), model=model) as (server, _):
            script = (scripts / f"{kind}.js").read_text(encoding="utf-8")

            async def send(route: Any) -> None:
                body = "<!doctype html><body></body><script src=/page.js></script>"
                is_script = route.request.url.endswith(".js")
                await route.fulfill(
                    body=script if is_script else body,
                    content_type="text/javascript" if is_script else "text/html; charset=utf-8",
                )

            for path in ("/", "/page.js"):
                await context.route(server.url + path, send)
            await context.add_cookies([{"name": "session", "value": "ann", "url": server.url}])
            front = FrontEnd(await context.new_page(), model)
            await front.page.goto(server.url)
            await front.ended()
            yield front
    finally:
        await context.close()
