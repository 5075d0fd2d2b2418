"""The server is killed in the middle of an answer, and started again."""

from __future__ import annotations

import socket
import subprocess
from typing import Any

import pytest

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
            await expect(page.locator("#banner")).to_contain_text("the conversation below is lost")
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
