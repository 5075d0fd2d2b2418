"""Pages of real front ends, each with the documented backend program for it and a scripted model.

A `package.json` lists the npm packages of the pages. The code comes from blocks of the documentation. esbuild bundles
one script for each page.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio.lowlevel
from starlette.staticfiles import StaticFiles

from streamtools.tools import MemoryLedger
from tests.browser.conftest import watch
from tests.browser.looking import expect
from tests.clients.programs import install, run_node
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.readme import ROOT
from tests.whole.test_server_programs import BLOCKS, serving

Kind = Literal["ai_sdk", "ag_ui", "copilot"]

_PAGES = Path(__file__).parent / "pages"
_PROGRAMS: dict[Kind, str] = {"ai_sdk": "ai-sdk", "ag_ui": "ag-ui", "copilot": "ag-ui"}
_HTML = (
    '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
    '<body><div id="root"></div><script src="/{}.js"></script>'
)


def bundle() -> dict[Kind, Path]:
    """Return the folder with the page of each kind."""
    pages, copilot = ROOT / ".cache" / "pages", ROOT / ".cache" / "copilot"  # CopilotKit has an older AG-UI client
    folders: dict[Kind, Path] = {"ai_sdk": pages, "ag_ui": pages, "copilot": copilot}
    build = ("--bundle", "--minify", "--outdir=built", "--log-level=error", "--loader:.css=empty")
    production = '--define:process.env.NODE_ENV="production"'
    for folder, source in ((pages, _PAGES), (copilot, _PAGES.parent / "copilot")):
        install(source / "package.json", folder)
        for page in source.glob("*.js"):
            shutil.copy(page, folder)
        for block in BLOCKS:
            if "page" in block.notes:
                name = block.notes["page"].replace("-", "_")
                (folder / f"documented_{name}.js").write_text(block.text, encoding="utf-8")
    for kind, folder in folders.items():
        run_node(folder, "node_modules/esbuild/bin/esbuild", f"{kind}.js", *build, production)
        (folder / "built" / f"{kind}.html").write_text(_HTML.format(kind), encoding="utf-8")
    return {kind: folder / "built" for kind, folder in folders.items()}


class FrontEnd:
    """Actions of a user on a page, and the visible content and the server's records to check."""

    box = "#question"

    def __init__(self, page: Any, model: Provider) -> None:
        self.page = page
        self.model = model
        self.faults = watch(page)

    async def ask(self, question: str) -> None:
        """Type a question and send it."""
        await self.page.locator(self.box).fill(question)
        await self.page.locator(self.box).press("Enter")

    async def click(self, button: str) -> None:
        """Click the only button with this name."""
        await self.page.get_by_role("button", name=button).click()

    async def sees(self, *texts: str) -> None:
        """Wait until this text is visible."""
        for text in texts:
            await expect(self.page.get_by_text(text).last).to_be_visible()

    async def ended(self, *answer: str, status: str = "ready") -> None:
        """Wait until this text is visible and the answer has ended."""
        await self.sees(*answer)
        await expect(self.page.locator("body")).to_have_attribute("data-status", status)

    async def asked(self) -> None:
        """Wait until a call waits for approval."""
        await expect(self.page.get_by_role("button", name="Approve")).to_be_enabled()

    async def answers(self) -> list[str]:
        """Return the texts of all answers."""
        return [await each.inner_text() for each in await self.page.locator(".message[data-role=assistant] p").all()]

    async def idle(self) -> None:
        """Wait until the server has no open response."""
        while vars(sys.modules["app"])["app"].state.runs.running:
            await anyio.lowlevel.checkpoint()

    async def calls(self) -> list[tuple[str, str]]:
        """Return the states and texts of all calls."""
        shown = await self.page.locator(".call").all()
        return [(await each.get_attribute("data-state"), await each.locator("code").inner_text()) for each in shown]

    async def reload(self) -> None:
        """Reload the page."""
        await self.page.reload()
        await self.ended()

    async def change(self, change: str) -> None:
        """Run JavaScript on the `kept` conversation and reload the page, or run it on the `agent` of the page."""
        if "agent" in change:
            await self.page.evaluate(f"{change}, refresh()")
            return
        script = "const kept = JSON.parse(localStorage.c1); %s; localStorage.c1 = JSON.stringify(kept)"
        await self.page.evaluate(f"(() => {{ {script % change} }})()")
        await self.reload()

    async def ran(self) -> list[tuple[str, Any]]:
        """Return the calls that the server ran or the page answered, with their arguments."""
        ledger: MemoryLedger = vars(sys.modules["app"])["ledger"]
        entries = await ledger.entries()
        return [
            (each.call.name, each.call.arguments) for each in entries if each.outcome and each.outcome.error is None
        ]


class Copilot(FrontEnd):
    """CopilotKit, which has its own chat component."""

    box = "textarea"


@asynccontextmanager
async def opened(chromium: Any, pages: dict[Kind, Path], kind: Kind, *answers: Loopback) -> AsyncIterator[FrontEnd]:
    """Serve a program whose model gives these answers. Yields its open page."""
    context = await chromium.new_context()
    try:
        model = Provider(*answers)
        async with serving(_PROGRAMS[kind], model=model, within=60) as (server, _):
            vars(sys.modules["app"])["app"].mount("/", StaticFiles(directory=pages[kind]))
            await context.add_cookies([{"name": "session", "value": "ann", "url": server.url}])
            front = (Copilot if kind == "copilot" else FrontEnd)(await context.new_page(), model)
            await front.page.goto(f"{server.url}/{kind}.html")
            await front.ended()
            yield front
    finally:
        await context.close()
