"""The moving picture of the docs: it can be recorded anew, and is small enough to be shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.anyio]

DOCS = Path(__file__).parents[2] / "docs" / "debugger.webp"


async def test_it_is_recorded(chromium: Any, tmp_path: Path) -> None:
    """Chromium shows what it wrote, and what stands in the docs; each has a frame for each moment."""
    made = tmp_path / "made.webp"
    with anyio.fail_after(300):
        await anyio.run_process([sys.executable, "-m", "tests.browser.moving_picture", str(made)])
    page = await chromium.new_page()
    for path in (made, DOCS):
        assert path.stat().st_size < 600_000
        assert path.read_bytes().count(b"ANMF") > 15
        await page.goto(path.as_uri())
        assert 970 == await page.evaluate("document.images[0].naturalWidth")
    await page.close()
