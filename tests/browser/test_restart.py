"""The server is killed in the middle of an answer, and started again."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.apps.test_serve_kept import written
from tests.browser.conftest import watch
from tests.browser.looking import ask, ended, expect
from tests.support.answering import saying
from tests.support.command import COMMAND, ENVIRONMENT
from tests.support.provider import Provider

pytestmark = [pytest.mark.browser, pytest.mark.anyio]


def start(port: int, *arguments: str) -> subprocess.Popen[bytes]:
    """Start the command, and return it once it listens."""
    environment = {name: value for name, value in ENVIRONMENT.items() if "proxy" not in name.lower()}
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", str(port), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=environment | {"OPENAI_API_KEY": "k"},
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def test_what_is_kept_in_a_file_is_there_again(chromium: Any, tmp_path: Path) -> None:
    """The page goes on by itself: what was answered stands there, what broke off has an end, and the model is told."""
    port, path = free_port(), tmp_path / "kept.db"
    async with Provider(saying("Before."), saying("As far as th", hold=True), saying("A new one.")) as provider:
        arguments = ("--model", "m", "--url", provider.url, "--keep", str(path))
        process = start(port, *arguments)
        try:
            context = await chromium.new_context()
            page = await context.new_page()
            faults = watch(page)
            await page.goto(f"http://127.0.0.1:{port}/")
            await page.locator("#parameters summary").click()
            await page.get_by_label("Temperature").fill("0.5")
            await page.get_by_label("Most tokens").fill("2000")
            await ask(page, "First?")
            await ended(page)
            assert (0.5, 2000) == (provider.bodies[0]["temperature"], provider.bodies[0]["max_tokens"])
            await ask(page, "Second?")
            await expect(page.locator(".answer .prose").nth(1)).to_have_text("As far as th")
            await written(path, b"As far as th")

            process.kill()
            process.communicate()
            await expect(page.locator("#banner")).to_contain_text("There is no connection to the server")
            process = start(port, *arguments)
            await expect(page.locator(".ending")).to_contain_text("the process that ran this has gone")
            await expect(page.locator("#banner")).to_be_hidden()
            await page.reload()
            await ended(page, 2)
            assert ["Before.", "As far as th"] == await page.locator(".answer .prose").all_inner_texts()
            other = await context.new_page()
            await other.goto(f"http://127.0.0.1:{port}/")
            await ended(other, 2)
            await ask(other, "Third?")
            await ended(other, 3)
            await ended(page, 3)
            said = [each["content"] for each in provider.bodies[-1]["messages"]]
            assert ["First?", "Before.", "Second?", "As far as th", "Third?"] == said
            await context.close()
        finally:
            process.kill()
            process.communicate()
    assert [] == [each for each in faults if "ERR_" not in each]


async def test_the_server_is_killed_and_started_again(chromium: Any) -> None:
    """The page says that there is no connection, then that the answer is lost, keeps what had come, and goes on."""
    port = free_port()
    async with Provider(saying("As far as th", hold=True), saying("A new one.")) as provider:
        arguments = ("--model", "m", "--url", provider.url)
        process = start(port, *arguments)
        try:
            context = await chromium.new_context()
            page = await context.new_page()
            faults = watch(page)
            await page.goto(f"http://127.0.0.1:{port}/")
            await expect(page.locator("#label")).not_to_be_empty()
            await ask(page, "Hi")
            await expect(page.locator(".answer .prose")).to_have_text("As far as th")

            process.kill()
            process.communicate()
            await expect(page.locator("#banner")).to_contain_text("There is no connection to the server")
            process = start(port, *arguments)
            await expect(page.locator(".ending")).to_contain_text("The server was restarted")
            await expect(page.locator("#banner")).to_contain_text("it has forgotten what stands here")
            await expect(page.locator(".answer .prose")).to_have_text("As far as th")

            await ask(page, "Again")
            await ended(page, 2)
            await expect(page.locator(".answer .prose").nth(1)).to_have_text("A new one.")
            await expect(page.locator("#banner")).to_be_hidden()
            assert ["Again"] == [each["content"] for each in provider.bodies[-1]["messages"]]
            await context.close()
        finally:
            process.kill()
            process.communicate()
    assert [] == [each for each in faults if "ERR_" not in each and "404" not in each]
