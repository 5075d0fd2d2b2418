"""Records the debugger as a moving picture, an animated WebP, for the docs.

    python -m tests.browser.moving_picture docs/debugger.webp

Chromium encodes each frame as a picture of its own; here they are put into one file, as the container of WebP has it.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 970, 560
RECORDING, FIRST, EVERY = "tilde-call", 8, 2  # the step it begins at, and how many are taken at once
SHOWN, LAST = 500, 3000  # milliseconds of a frame, and of the last


def animation(pictures: Iterable[tuple[bytes, int]], width: int, height: int) -> bytes:
    """Return WebP pictures, each with the milliseconds for which it stands, as one that moves, again and again."""
    flags = (2).to_bytes(4, "little")  # it is an animation
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    chunks = [_chunk(b"VP8X", flags + size), _chunk(b"ANIM", bytes(6))]
    for picture, shown in pictures:
        frame = (
            bytes(6) + size + shown.to_bytes(3, "little") + b"\2"
        )  # in the place of the one before, without blending
        chunks.append(_chunk(b"ANMF", frame + _picture(picture)))
    return _chunk(b"RIFF", b"WEBP" + b"".join(chunks))


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + len(data).to_bytes(4, "little") + data + bytes(len(data) % 2)


def _picture(webp: bytes) -> bytes:
    """Return the chunk with the picture itself."""
    at = 12
    while (name := webp[at : at + 4]) not in (b"VP8 ", b"VP8L"):
        assert name, "no picture in it"
        size = int.from_bytes(webp[at + 4 : at + 8], "little")
        at += 8 + size + size % 2
    size = int.from_bytes(webp[at + 4 : at + 8], "little")
    return webp[at : at + 8 + size + size % 2]


def take(page: Any, session: Any, url: str, quality: int) -> list[tuple[bytes, int]]:
    """Go through the steps of a recording, and return a picture of each."""
    pictures = []
    page.goto(f"{url}/debugger?of={RECORDING}&step={FIRST}")
    page.locator("#shown .answer").wait_for()
    steps = int(page.locator("#step").get_attribute("max"))
    for step in range(FIRST, steps + 1, EVERY):
        page.evaluate(f"go({step})")
        options = {"format": "webp", "quality": quality}
        taken = base64.b64decode(session.send("Page.captureScreenshot", options)["data"])
        pictures.append((taken, LAST if step + EVERY > steps else SHOWN))
    return pictures


def main(path: Path, quality: int = 20) -> None:
    """Write the picture."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "streamtools", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process, sync_playwright() as playwright:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().partition(": ")[2].partition("/ ")[0]
            chromium = os.environ.get("STREAMTOOLS_CHROMIUM", "/usr/bin/chromium")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
            session = page.context.new_cdp_session(page)
            path.write_bytes(animation(take(page, session, url, quality), WIDTH, HEIGHT))
            browser.close()
        finally:
            process.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
