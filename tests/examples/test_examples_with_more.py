"""The programs in `examples/` that need a framework, Redis or a browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.streams.text import TextReceiveStream

from tests.browser.conftest import chromium, watch
from tests.browser.looking import expect
from tests.clients.programs import install, run_node
from tests.examples.loading import END, EXAMPLES, call, load, piece, say
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.redis_server import RedisServer
from tests.support.serving import Served
from tests.support.text_model import text_model

__all__ = ["chromium"]  # a fixture


PAGES = Path(__file__).parents[1] / "browser" / "pages" / "package.json"


@pytest.mark.sdk
async def test_django_answers_requests_with_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Provider(call("get_weather", city="Paris"), say("It is mild.")) as model:
        monkeypatch.setenv("MODEL_URL", model.url)
        async with (
            Served(load("django_asgi").application) as server,
            httpx.AsyncClient(base_url=server.url, trust_env=False) as client,
        ):
            asked = {"messages": [{"role": "user", "content": "And in Paris?"}]}
            assert 403 == (await client.post("/chat", json=asked)).status_code
            page = await client.get("/")
            answer = await client.post("/chat", json=asked)
            refused = [await client.post("/chat", content=b"{"), await client.get("/chat"), await client.get("/no")]
    assert "What is the weather in Paris?" in page.text
    assert "HttpOnly" in page.headers["set-cookie"]
    assert "SameSite=Lax" in page.headers["set-cookie"]
    assert "It is mild." == answer.text.strip()
    assert "18 °C in Paris" in json.dumps(model.bodies[-1], ensure_ascii=False)
    assert [400, 405, 404] == [each.status_code for each in refused]


@pytest.mark.sdk
@pytest.mark.filterwarnings("ignore")  # pydantic-ai causes warnings
async def test_an_agent_of_pydantic_ai_runs_a_tool_for_a_call_in_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with text_model() as model:
        monkeypatch.setenv("MODEL_URL", model.url)
        await load("pydantic_ai_agent").main("What is the weather in Bern?")
    assert '[get_weather {"city": "Bern"}]\nBoth are sunny.\n' == capsys.readouterr().out
    assert "7 °C" in json.dumps(model.bodies[-1], ensure_ascii=False)
    assert not any("tools" in body for body in model.bodies)


@asynccontextmanager
async def worker(model: str, redis: str) -> AsyncIterator[str]:
    """Run the example with uvicorn in a process, and yield its address."""
    command = [sys.executable, "-m", "uvicorn", "resume_over_redis:app", "--port", "0"]
    environment = os.environ | {"MODEL_URL": model, "REDIS_URL": redis}
    async with await anyio.open_process(command, cwd=EXAMPLES, env=environment, stdout=None) as process:
        assert process.stderr is not None
        said = ""
        try:
            async for text in TextReceiveStream(process.stderr):
                said += text
                if found := re.search(r"running on (\S+) ", said):
                    yield found[1]
                    break
        finally:
            process.terminate()
        async for text in TextReceiveStream(process.stderr):
            said += text
    assert "Traceback" not in said, said


async def read_until(response: httpx.Response, what: str) -> tuple[list[dict[str, Any]], str]:
    """Return the events up to the event that contains a text, and the id of the last event."""
    events, seen, last = [], "", ""
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            seen = line.removeprefix("id: ")
        if line.startswith("data: "):
            events.append(json.loads(line.removeprefix("data: ")))
            last = seen
            if what in line:
                return events, last
    return events, last


@pytest.mark.servers
async def test_a_page_continues_at_another_worker() -> None:
    """A stop reaches the worker that runs the answer."""
    goes_on = anyio.Event()
    story, endless = Loopback([piece("Once "), goes_on, piece("upon a time."), END]), Loopback([piece("O")], hold=True)
    with RedisServer() as redis, anyio.fail_after(60):
        async with (
            Provider(story, endless) as model,
            worker(model.url, redis.url) as one,
            worker(model.url, redis.url) as other,
        ):
            cookies = {"visitor": "7b0c4d2e-58a1-4d0f-9a5e-6a1f0c3b2d11"}
            async with httpx.AsyncClient(cookies=cookies, trust_env=False) as client:
                asked = {"messages": [{"role": "user", "content": "A story, please."}]}
                run = (await client.post(f"{one}/chat", json=asked)).json()["run"]
                async with client.stream("GET", f"{one}/chat/{run}") as response:
                    before, seen = await read_until(response, "Once ")
                async with client.stream("GET", f"{other}/chat/{run}", headers={"last-event-id": seen}) as response:
                    goes_on.set()
                    after, _ = await read_until(response, '"done"')
                events = before + after
                assert "Once upon a time." == "".join(each["text"] for each in events if each["type"] == "text")
                assert [*range(1, len(events) + 1)] == [each["seq"] for each in events]
                client.cookies["visitor"] = "7b0c4d2e-58a1-4d0f-9a5e-6a1f0c3b2d12"
                assert 404 == (await client.get(f"{other}/chat/{run}")).status_code

                run = (await client.post(f"{one}/chat", json=asked)).json()["run"]
                async with client.stream("GET", f"{other}/chat/{run}") as response:
                    await read_until(response, '"text"')
                assert 204 == (await client.delete(f"{other}/chat/{run}")).status_code
                await endless.disconnected.wait()
                stopped = await client.get(f"{other}/chat/{run}")
                assert '"cancelled"' in stopped.text


def bundle() -> Path:
    """Return the folder with the script that the command of the example builds."""
    folder = PAGES.parents[3] / ".cache" / "pages"
    wanted = json.loads((EXAMPLES / "react_use_chat" / "package.json").read_text(encoding="utf-8"))
    assert wanted["dependencies"].items() <= json.loads(PAGES.read_text(encoding="utf-8"))["dependencies"].items()
    install(PAGES, folder)
    shutil.copy(EXAMPLES / "react_use_chat" / "page.jsx", folder)
    program, *arguments = shlex.split(wanted["scripts"]["build"])
    run_node(folder, f"node_modules/{program}/bin/{program}", *arguments)
    return folder / "built"


@pytest.mark.browser
async def test_the_react_page_shows_a_call_and_its_result(monkeypatch: pytest.MonkeyPatch, chromium: Any) -> None:
    asks = call("get_weather", city="Paris")
    async with Provider(asks, say("It is mild."), say("You are welcome.")) as model:
        monkeypatch.setenv("MODEL_URL", model.url)
        monkeypatch.setenv("BUILT", str(bundle()))
        async with Served(load("react_use_chat/server").app) as server:
            page = await (await chromium.new_context()).new_page()
            faults = watch(page)
            await page.goto(server.url)
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator(".call")).to_have_text("Paris: 18 °C")
            await expect(page.locator(".assistant p").last).to_have_text("It is mild.")
            await expect(page.locator("main")).to_have_attribute("data-status", "ready")
            await page.get_by_label("Message").fill("Thank you.")
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator(".assistant p").last).to_have_text("You are welcome.")
            await page.context.close()
    assert [] == faults
    messages = json.dumps(model.bodies[-1]["messages"])
    assert all(each in messages for each in ("It is mild.", "degrees", "Thank you."))


@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "asks", "answer"),
    [("litestar_websocket", "Send", "#log p:last-child"), ("resume_over_redis", "Tell me", "#answer")],
)
async def test_the_stop_button_stops_an_answer(
    name: str, asks: str, answer: str, monkeypatch: pytest.MonkeyPatch, chromium: Any
) -> None:
    """The next question is answered."""
    endless = Loopback([piece("It is ")], hold=True)
    with RedisServer() as redis:
        monkeypatch.setenv("REDIS_URL", redis.url)
        async with Provider(endless, say("It is mild.")) as model:
            monkeypatch.setenv("MODEL_URL", model.url)
            async with Served(load(name).app) as server:
                page = await (await chromium.new_context()).new_page()
                faults = watch(page)
                await page.goto(server.url)
                await page.get_by_role("button", name=asks).click()
                await expect(page.locator(answer)).to_contain_text("It is")
                await page.get_by_role("button", name="Stop").click()
                with anyio.fail_after(20):
                    await endless.disconnected.wait()
                await expect(page.locator(answer)).to_contain_text("It is")
                if await page.get_by_label("Message").count():
                    await page.get_by_label("Message").fill("Once more.")
                await page.get_by_role("button", name=asks).click()
                await expect(page.locator(answer)).to_have_text("It is mild.")
                await page.context.close()
    assert [] == faults
