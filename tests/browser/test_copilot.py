"""CopilotKit's own chat in front of the program of docs/front-end.md for AG-UI: what a user does there, and sees.

The client of AG-UI in it is of before 1.0. Its script comes from the program's server, because it is of 17 MB.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.staticfiles import StaticFiles

from tests.browser.conftest import watch
from tests.browser.looking import expect
from tests.clients.programs import install, run_node
from tests.support.answering import END, delta, saying
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.readme import ROOT
from tests.support.talks import calls, refuses, says
from tests.whole.test_front_end_page import serving

pytestmark = [pytest.mark.browser, pytest.mark.anyio]

_PAGE = Path(__file__).parent / "copilot"
_HTML = (
    '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
    '<div id="root"></div><script src="/copilot.js"></script>'
)


@pytest.fixture(scope="module")
def built() -> Path:
    """The folder with the page."""
    folder = ROOT / ".cache" / "copilot"
    install(_PAGE / "package.json", folder)
    shutil.copy(_PAGE / "copilot.js", folder)
    build = ("--bundle", "--minify", "--outdir=built", "--log-level=error", "--loader:.css=empty")
    production = '--define:process.env.NODE_ENV="production"'
    run_node(folder, "node_modules/esbuild/bin/esbuild", "copilot.js", *build, production)
    (folder / "built" / "index.html").write_text(_HTML, encoding="utf-8")
    return folder / "built"


@asynccontextmanager
async def opened(chromium: Any, built: Path, *answers: Loopback) -> AsyncIterator[tuple[Any, Provider, list[str]]]:
    """Serve the program, whose model gives these answers; give its page, the model, and what the page complains of."""
    context = await chromium.new_context()
    try:
        model = Provider(*answers)
        async with serving("ag-ui", model=model, within=60) as (server, _):
            vars(sys.modules["app"])["app"].mount("/", StaticFiles(directory=built, html=True))
            await context.add_cookies([{"name": "session", "value": "ann", "url": server.url}])
            page = await context.new_page()
            faults = watch(page)
            await page.goto(server.url)
            yield page, model, faults
    finally:
        await context.close()


async def ask(page: Any, question: str) -> None:
    """Write a question into CopilotKit's box, and send it."""
    await page.locator("textarea").fill(question)
    await page.locator("textarea").press("Enter")


async def test_calls_of_every_kind(chromium: Any, built: Path) -> None:
    """A tool of the server and one of the page, a malformed call, an approval and a denial, in four turns."""
    answers = [
        calls(("get_weather", {"city": "Paris"}), ("pick_date", {"title": "Departure"}), text="Let me see."),
        says("It is 18 °C, and you leave in March."),
        calls(("get_weather", '{"city": "Os')),
        says("Oslo I could not look up."),
        calls(("pay", {"to": "Ann", "amount": 50})),
        says("Ann has her money."),
        calls(("pay", {"to": "Bob", "amount": 70})),
        says("Bob gets nothing."),
    ]
    async with opened(chromium, built, *answers) as (page, model, faults):
        await ask(page, "How warm is it in Paris, and when do I leave?")
        await page.get_by_role("button", name="Pick").click()
        await expect(page.get_by_text("you leave in March.")).to_be_visible()
        await ask(page, "And in Oslo?")
        await expect(page.get_by_text("could not look up.")).to_be_visible()
        await ask(page, "Pay Ann 50.")
        await page.get_by_role("button", name="Approve").click()
        await expect(page.get_by_text("Ann has her money.")).to_be_visible()
        await ask(page, "Pay Bob 70.")
        await page.get_by_role("button", name="Deny").click()
        await expect(page.get_by_text("Bob gets nothing.")).to_be_visible()
        await expect(page.locator(".own")).to_have_text("Departure → 2027-03-01")
        shown = await page.locator(".call code").all_inner_texts()
        ids = await page.evaluate("agent.messages.map(({ id }) => id)")
    assert [] == faults
    assert len(ids) == len({*ids}), "a run that goes on has the id of the one before"
    paris, oslo, ann, bob = shown
    assert 'get_weather {"city":"Paris"} → {"message":"18 °C in Paris"}' == paris
    assert "the arguments break off" in oslo
    assert 'pay {"to":"Ann","amount":50} → paid 50 to Ann' == ann
    assert "was denied: too much" in bob
    told = [each["content"] for each in model.bodies[-1]["messages"] if each["role"] == "tool"]
    assert ['{"message":"18 °C in Paris"}', "2027-03-01"] == told[:2]
    assert ["paid 50 to Ann", "the call of tool 'pay' was denied: too much"] == told[-2:]
    assert len(told) == 5


async def test_reasoning_a_stop_and_an_error(chromium: Any, built: Path) -> None:
    """The provider is left at once; the next question is answered, with what was said before."""
    thought = Loopback([delta("So be it.").replace(b'"content"', b'"reasoning_content"'), delta("Hello."), END])
    held = saying("As far as th", hold=True)
    async with opened(chromium, built, thought, held, refuses(404, "no such model"), says("On.")) as (
        page,
        model,
        faults,
    ):
        await ask(page, "Hi")
        await expect(page.get_by_text("Hello.")).to_be_visible()
        await page.get_by_text("Thought for").click()
        await expect(page.get_by_text("So be it.")).to_be_visible()
        await ask(page, "More?")
        await expect(page.get_by_text("As far as th")).to_be_visible()
        await page.get_by_test_id("copilot-send-button").click()
        with anyio.fail_after(20):
            await held.disconnected.wait()
        await ask(page, "And now?")
        await expect(page.get_by_text("And now?")).to_be_visible()
        while not faults:
            await page.evaluate("new Promise(requestAnimationFrame)")
        await ask(page, "Again?")
        await expect(page.get_by_text("On.", exact=True)).to_be_visible()
    (fault,) = faults
    assert "no such model" in fault
    said = [each["content"] for each in model.bodies[-1]["messages"]]
    assert ["Hi", "Hello.", "More?", "As far as th", "And now?", "Again?"] == said
