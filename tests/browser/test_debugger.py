"""The debugger in a browser: its view of each step, and navigation between steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamtools.apps.cli.answerers import RecordedAnswers
from streamtools.recording import ExchangeHead
from streamtools.recording.files import RecordingWriter
from tests.browser.conftest import Browsing
from tests.browser.looking import expect
from tests.browser.test_hostile import SCRIPTS
from tests.support.answering import END, delta

pytestmark = pytest.mark.browser


async def test_keys_slider_and_events_select_a_step(browsing: Browsing) -> None:
    """Each pane shows the state at the selected step."""
    page = await browsing.open(answerer=RecordedAnswers(speed=0), viewport={"width": 1280, "height": 800})
    await page.goto(f"{browsing.server.url}/debugger?of=tilde-call")
    await expect(page.locator("#shown .card .name")).to_have_text("get_weather")
    await page.keyboard.press("Home")
    await expect(page.locator("#where")).to_contain_text("step 0 of 43")
    await expect(page.locator("#shown .prose")).to_have_count(0)
    while "~~~" not in await page.locator("#written .held").all_inner_texts():
        await page.keyboard.press("ArrowRight")
    await expect(page.locator("#held")).to_have_text("3 characters are buffered: a marker may begin here")
    await expect(page.locator("#shown")).to_have_text("I will look up the weather in Paris.")
    assert '"~~~"' in await page.locator("#bytes .now").inner_text()
    await page.locator("#events li[data-type=call-start]").click()
    await expect(page.locator("#held")).to_contain_text("hidden: a call in tilde_fence")
    await expect(page.locator("#events .now .type").first).to_have_text("call-start")
    await expect(page.locator("#events .later .json").first).to_have_text('"{\\"city\\": \\"Paris\\"}"')
    await expect(page.locator("#axis i.call")).to_have_count(2)
    await page.keyboard.press("Home")
    await page.locator("#axis i.call").first.click()
    await expect(page.locator("#held")).to_contain_text("hidden: a call in tilde_fence")
    step = await page.locator("#step").input_value()
    await page.reload()
    await expect(page.locator("#where")).to_contain_text(f"step {step} of")
    await page.locator("#cut").select_option("byte")
    await expect(page.locator("#where")).to_contain_text("step 10951 of 10951")
    await page.locator("#step").fill("4500")
    await expect(page.locator("#waiting")).to_contain_text("without an event yet")
    await page.locator("#of").select_option("quoted-markers")
    await expect(page.locator("#about")).to_contain_text("3 near misses")
    await expect(page.locator("#written .in-near").first).to_have_text("~~~tool_call")


async def test_no_part_of_an_answer_runs(browsing: Browsing, tmp_path: Path) -> None:
    """All panes show it as text, and the page sends no requests."""
    path = tmp_path / "hostile.jsonl"
    with path.open("wb") as file:
        writer = RecordingWriter(file, ExchangeHead(source="openai", title=SCRIPTS[0]))
        for at, script in enumerate(SCRIPTS):
            writer.chunk(delta(f"{script}\n\n"), float(at))
        writer.chunk(END, 99.0)
        writer.end("end", 100.0)
    page = await browsing.open(answerer=RecordedAnswers([str(path)], speed=0))
    await page.goto(f"{browsing.server.url}/debugger")
    await expect(page.locator("#shown .prose")).to_contain_text("window.harmed")
    assert SCRIPTS[1] in await page.locator("#written").inner_text()
    assert await page.evaluate("window.harmed === undefined")
    assert not await page.locator("#panes :is(script, img:not([src^='data:image/gif;']), iframe, form, svg)").count()
