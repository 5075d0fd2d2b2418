"""Fixtures of the browser tests: Chromium, and pages of applications that uvicorn serves.

The default is Debian's `/usr/bin/chromium`. `STREAMTOOLS_CHROMIUM` names another executable.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamtools.apps.web import Answerer, make_app
from tests.browser.looking import expect
from tests.support.answering import ProviderAnswerer
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.serving import Served

if TYPE_CHECKING:
    from tests.browser.front_ends import Kind

_OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop library of uvicorn and Playwright."""
    return "asyncio"


@asynccontextmanager
async def launched() -> AsyncIterator[Any]:
    """A browser."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        path = os.environ.get("STREAMTOOLS_CHROMIUM", "/usr/bin/chromium")
        browser = await playwright.chromium.launch(executable_path=path, args=[*_OPTIONS], headless=True)
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
async def chromium(anyio_backend: str) -> AsyncIterator[Any]:
    """A browser shared by all tests. Each test creates its own contexts."""
    async with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def pages() -> dict[Kind, Path]:
    """The folders with the pages of front ends."""
    from tests.browser.front_ends import bundle  # imports this module

    return bundle()


def watch(page: Any, faults: list[str] | None = None) -> list[str]:
    """Return what a page will complain of."""
    told: list[str] = [] if faults is None else faults
    page.on("console", lambda said: told.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("dialog", lambda dialog: told.append(f"dialog: {dialog.message}"))
    return told


class Browsing:
    """Serves applications, opens their pages, and records the requests and errors of the pages."""

    def __init__(self, chromium: Any, stack: AsyncExitStack) -> None:
        self._chromium = chromium
        self._stack = stack
        self.context: Any = None
        self.server: Served
        self.provider: Provider
        self.requests: list[str] = []
        self.faults: list[str] = []

    async def open(self, *answers: Loopback, answerer: Answerer | None = None, **options: Any) -> Any:
        """Serve an application in which these answers are given, and return a page of it."""
        self.provider = await self._stack.enter_async_context(Provider(*answers))
        app = make_app(answerer or ProviderAnswerer(self.provider))
        self.server = await self._stack.enter_async_context(Served(app, lifespan="on"))
        self.context = await self._chromium.new_context(**options)
        self._stack.push_async_callback(self.context.close)
        self.context.on("request", lambda request: self.requests.append(request.url))
        return await self.tab()

    async def tab(self) -> Any:
        """Return one page more, of the same browser."""
        page = await self.context.new_page()
        watch(page, self.faults)
        await page.goto(self.server.url)
        await expect(page.locator("#label")).not_to_be_empty()
        return page


@pytest.fixture
async def browsing(chromium: Any) -> AsyncIterator[Browsing]:
    """Open pages. The test fails if a page logs an error or requests another server."""
    async with AsyncExitStack() as stack:
        browsing = Browsing(chromium, stack)
        yield browsing
        assert [] == browsing.faults
        assert [] == [url for url in browsing.requests if not url.startswith((browsing.server.url, "data:image/svg"))]
