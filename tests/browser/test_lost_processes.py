"""Answers whose process is killed, on pages that read them through another process or reconnect to one."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import Process

from tests.browser.front_ends import Kind
from tests.browser.looking import expect
from tests.browser.test_documented_pages import PAGES, store  # noqa: F401
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.readme import ROOT, read_blocks
from tests.support.redis_server import RedisServer
from tests.support.talks import says
from tests.whole.test_server_programs import ADDRESS, END, PAY, PROGRAMS

pytestmark = [pytest.mark.browser, pytest.mark.servers]

BLOCKS = read_blocks((ROOT / "docs" / "many-machines.md").read_text("utf-8"))
LEASE = 2.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Server:
    """A process that listens on a port. It can be started again after it was killed."""

    def __init__(self, folder: Path, *command: str | Path, port: int, environment: Mapping[str, str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._port, self._command, self._folder, self._environment = port, command, folder, environment
        self._process: Process | None = None

    async def start(self) -> None:
        """Start the process, and wait until it listens."""
        environment = os.environ | dict(self._environment)
        with (self._folder / "log").open("ab") as log:
            self._process = await anyio.open_process(
                self._command, cwd=self._folder, env=environment, stdin=None, stdout=log, stderr=log
            )
        with anyio.fail_after(30):
            while True:
                assert self._process.returncode is None, (self._folder / "log").read_text()
                with suppress(OSError):
                    await (await anyio.connect_tcp("127.0.0.1", self._port)).aclose()
                    return
                await anyio.sleep(0.02)

    async def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def started(*servers: Server) -> AsyncIterator[None]:
    try:
        for server in servers:
            await server.start()
        yield
    finally:
        for server in servers:
            await server.kill()


def workers(folder: Path, program: str, **environment: str) -> list[Server]:
    """Return two processes with a program, which respond with their numbers."""
    (folder / "app.py").write_text(program, encoding="utf-8")
    found = []
    for number in ("0", "1"):
        port = free_port()
        uvicorn = (sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--header", f"x-worker:{number}")
        found.append(Server(folder, *uvicorn, port=port, environment=environment))
    return found


def balancer(folder: Path, page: str, behind: list[Server]) -> Server:
    """Return nginx with the configuration of the documentation, and a page."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    (configuration,) = [block.text for block in BLOCKS if block.language == "nginx"]
    port = free_port()
    for old, new in {
        "app1:8000": behind[0].url.removeprefix("http://"),
        "app2:8000": behind[1].url.removeprefix("http://"),
        "listen 80;": f"listen 127.0.0.1:{port};",
        "/usr/share/nginx/html": str(folder),
    }.items():
        assert old in configuration
        configuration = configuration.replace(old, new)
    paths = "".join(f"{name}_temp_path {folder};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = f"daemon off; master_process off; pid {folder}/pid; events {{}}\n"
    main += f"http {{ access_log off;\n{paths}{configuration} }}"
    (folder / "main.conf").write_text(main, encoding="utf-8")
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "nginx is not installed"
    return Server(folder, program, "-e", "stderr", "-c", folder / "main.conf", port=port, environment={})


@asynccontextmanager
async def opened(chromium: Any, folder: Path, name: str, *answers: Loopback) -> AsyncIterator[tuple[Server, Any]]:
    """Run a documented program in a process, and open its page."""
    (folder / "page.html").write_text('<link rel="icon" href="data:,">' + PAGES[name], encoding="utf-8")
    async with Provider(*answers) as model:
        program = PROGRAMS[name].replace(ADDRESS, model.url)
        program = program.replace('"calls.sqlite")', f'"calls.sqlite"), lease={LEASE}')
        program = program.replace("recover=recover)", f"recover=recover, lease={LEASE})")
        server, _ = workers(folder, program, CALLS=str(folder / "calls.sqlite"))
        async with started(server):
            page = await chromium.new_page()
            await page.goto(server.url)
            yield server, page
            await page.close()


async def test_a_page_forgets_a_lost_answer(chromium: Any, tmp_path: Path) -> None:
    """Its process is killed. A new process is busy at first, and does not know the answer."""
    async with opened(chromium, tmp_path, "runs", says("It is ", anyio.Event())) as (server, page):
        await page.locator("#question").fill("How warm is it in Paris?")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("#log")).to_have_text("It is ")
        await server.kill()
        await expect(page.locator("#state")).to_have_text("Reconnecting…")
        await page.route("**/chat/*", lambda route: route.fulfill(status=503), times=2)
        await server.start()
        await expect(page.locator("#state")).to_have_text("The answer is no longer available.")
        await page.wait_for_function("localStorage.run === undefined")


@pytest.mark.usefixtures("store")
async def test_an_approved_run_continues_after_a_crash(chromium: Any, tmp_path: Path) -> None:
    """Its process is killed during the answer. The page shows the rest (Redis), or clears it and shows the next one."""
    never, goes_on = anyio.Event(), anyio.Event()
    answers = Loopback([PAY, END]), says("It was ", "paid to ", never), says(goes_on, "Ann.")
    kept = "It was paid to " if "REDIS_URL" in os.environ else ""
    async with opened(chromium, tmp_path, "approval", *answers) as (server, page):
        await page.locator("#ask").click()
        await page.get_by_role("button", name="Approve").click()
        await expect(page.locator("#log")).to_have_text('"paid 5 to Ann" It was paid to ')
        await server.kill()
        await expect(page.locator("#state")).to_have_text("Reconnecting…")
        await server.start()
        await page.reload()
        await expect(page.locator("#state")).to_have_text("Answering…")
        goes_on.set()
        await expect(page.locator("#log")).to_have_text(f'"paid 5 to Ann" {kept}Ann.')


async def test_a_page_behind_a_balancer_shows_the_rest(chromium: Any, tmp_path: Path) -> None:
    """Two processes of the documented program are killed during one answer: first the one that the page does not read.

    Then its connection breaks as well, and it reconnects with `Last-Event-ID`, usually before the lease has expired.
    """
    (program,) = [block.text for block in BLOCKS if block.notes.get("app") == "many"]
    assert "recover=recover)" in program
    program = program.replace("recover=recover)", f"recover=recover, lease={LEASE})")
    never, second, third = anyio.Event(), anyio.Event(), anyio.Event()
    answers = says("It is ", never), says(second, "18 °C ", never), says(third, "in Paris.")
    answered: dict[str, str] = {}
    requests: list[Any] = []
    with RedisServer() as redis:
        async with Provider(*answers) as model:
            behind = workers(tmp_path, program, REDIS_URL=redis.url, MODEL_URL=f"{model.url}v1")
            front = balancer(tmp_path, '<link rel="icon" href="data:,">' + PAGES["runs"], behind)
            async with started(*behind, front):
                page = await chromium.new_page()
                page.on("response", lambda got: answered.update({got.request.method: got.headers.get("x-worker", "")}))
                page.on("request", lambda request: requests.append(request))
                await page.goto(front.url)
                log, state = page.locator("#log"), page.locator("#state")
                await page.locator("#question").fill("How warm is it in Paris?")
                await page.get_by_role("button", name="Send").click()
                await expect(log).to_have_text("It is ")
                driver, reader = (int(answered[method]) for method in ("POST", "GET"))
                assert driver != reader
                steps = (driver, second, "It is 18 °C "), (reader, third, "It is 18 °C in Paris.")
                for killed, goes_on, shown in steps:
                    await expect(state).to_have_text("")
                    await behind[killed].kill()
                    await expect(state).to_have_text("Reconnecting…")
                    if killed == driver:
                        await behind[killed].start()
                    goes_on.set()
                    await expect(log).to_have_text(shown)
                await page.wait_for_function("localStorage.run === undefined")
                await expect(state).to_have_text("")
                headers = [await request.all_headers() for request in requests]
                assert any("last-event-id" in each for each in headers)
                assert 3 == len(model.bodies)
                await page.close()


_MORE = f"""
import os
from starlette.staticfiles import StaticFiles
from streamtools.runs import LostRun, RedisStore

def recover(lost: LostRun):
    asked = [{{"role": "user", "content": lost_question}}]
    return RECOVERED

lost_question = "Does Ann have her money?"
store = RedisStore(os.environ["REDIS_URL"], lease={LEASE}, recover=recover)
app.mount("/", StaticFiles(directory=os.environ["PAGES"]))
"""
_RECOVERED = {
    "ai_sdk": "ask(asked, lost.owner, continue_from=lost)",
    "ag_ui": "chat(model, asked, parser=ParserOptions(call_deltas=True), continue_from=lost)",
}


@pytest.mark.parametrize("kind", ["ai_sdk", "ag_ui"])
async def test_front_ends_show_the_whole_answer(
    chromium: Any, pages: dict[Kind, Path], kind: Kind, tmp_path: Path
) -> None:
    """One page reads through another process when the process of the run is killed. The other page reloads later."""
    never, goes_on = anyio.Event(), anyio.Event()
    program = PROGRAMS[kind.replace("_", "-")] + _MORE.replace("RECOVERED", _RECOVERED[kind])
    assert "Runs(keep=86_400, " in program
    program = program.replace("Runs(keep=86_400, ", "Runs(store, ")
    with RedisServer() as redis:
        async with Provider(says("Ann has ", never), says(goes_on, "her money.")) as model:
            program = program.replace(ADDRESS, model.url)
            behind = workers(tmp_path, program, REDIS_URL=redis.url, PAGES=str(pages[kind]))
            context = await chromium.new_context()
            await context.add_cookies([{"name": "session", "value": "ann", "url": behind[0].url}])
            async with started(*behind):
                driving, reading = await context.new_page(), await context.new_page()
                for page, server in ((driving, behind[0]), (reading, behind[1])):
                    await page.goto(f"{server.url}/{kind}.html")
                await driving.locator("#question").fill("Does Ann have her money?")
                await driving.locator("#question").press("Enter")
                answer = ".message[data-role=assistant] p"
                await expect(driving.locator(answer)).to_have_text("Ann has ")
                kept = await driving.evaluate("localStorage.c1")
                await reading.evaluate("(kept) => { localStorage.c1 = kept }", kept)
                await reading.reload()
                await expect(reading.locator(answer)).to_have_text("Ann has ")
                await behind[0].kill()
                await reading.wait_for_function("notices.some((name) => name.endsWith('reconnecting'))")
                goes_on.set()
                await behind[0].start()
                await driving.reload()
                for page in (driving, reading):
                    await expect(page.locator(answer)).to_have_text("Ann has her money.")
                    await expect(page.locator("body")).to_have_attribute("data-status", "ready")
                await context.close()
