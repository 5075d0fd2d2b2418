"""The pictures of the documentation: the page, the debugger, and `replay.png`, in which that goes through a recording.

    python -m tests.browser.pictures        # with the extra `browser` and Chromium

The last is an animated PNG. Each frame but the first holds only the pixels that differ from the one before.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import anyio

from streamtools.apps.cli.recorded_answers import RecordedAnswers
from tests.browser.conftest import Browsing, launched
from tests.browser.looking import ask, ended, expect
from tests.support.answering import Answering, saying
from tests.support.readme import ROOT

DOCS = ROOT / "docs"
RECORDING = "tilde-call"
SIZE = {"width": 1000, "height": 620}
STRIDE, PAUSE, PAUSE_AT_THE_END = 3, 500, 4000  # steps, and milliseconds

ANSWER = """The **binomial coefficient** counts the ways to choose `k` of `n` items. In Python, without a library:

```python
def choose(n: int, k: int) -> int:
    "The number of ways to choose k of n items."
    result = 1
    for i in range(k):
        result = result * (n - i) // (i + 1)
    return result
```

`choose(5, 2)` returns 10.
"""

DIFFERENCE = """async ([before, now]) => {
  const read = async (data) => {
    const image = await createImageBitmap(await (await fetch("data:image/png;base64," + data)).blob());
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    return [canvas, context, context.getImageData(0, 0, image.width, image.height)];
  };
  const [canvas, context, shown] = await read(now);
  const pixels = new Uint32Array(shown.data.buffer);
  if (before) {
    const old = new Uint32Array((await read(before))[2].data.buffer);
    for (let at = 1; at < pixels.length; at++) if (pixels[at] === old[at]) pixels[at] = 0;
    context.putImageData(shown, 0, 0);
  }
  const bytes = new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""


def read_chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and data of each chunk of a PNG."""
    at = 8
    while at < len(png):
        (size,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        at += size + 12


def write_chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def animate(frames: list[tuple[bytes, int]]) -> bytes:
    """Return an animated PNG of frames of one size, each with its time in milliseconds (third edition of PNG, 4.9)."""
    heads = {data for png, _ in frames for name, data in read_chunks(png) if name == b"IHDR"}
    (head,) = heads
    picture = (
        b"\x89PNG\r\n\x1a\n" + write_chunk(b"IHDR", head) + write_chunk(b"acTL", struct.pack(">II", len(frames), 0))
    )
    number = 0
    for index, (png, pause) in enumerate(frames):
        over = 1 if index else 0  # what is transparent shows what was there
        picture += write_chunk(
            b"fcTL", struct.pack(">I", number) + head[:8] + struct.pack(">IIHHBB", 0, 0, pause, 1000, 0, over)
        )
        number += 1
        pixels = zlib.decompress(b"".join(data for name, data in read_chunks(png) if name == b"IDAT"))
        packed = zlib.compress(pixels, 9)  # a browser is in a hurry
        if index:
            picture += write_chunk(b"fdAT", struct.pack(">I", number) + packed)
            number += 1
        else:
            picture += write_chunk(b"IDAT", packed)
    return picture + write_chunk(b"IEND", b"")


async def photograph(chromium: Any) -> None:
    """Write the pictures that stand still."""

    async def shoot(page: Any, name: str) -> None:
        await page.screenshot(path=DOCS / f"{name}.png", animations="disabled", caret="hide")

    desk = {"width": 1280, "height": 800}
    async with AsyncExitStack() as stack:
        browsing = Browsing(chromium, stack)
        page = await browsing.open(answerer=RecordedAnswers(speed=1), viewport=desk)
        await page.get_by_role("button", name="What is the weather in Lima").first.click()
        await ended(page)
        await page.get_by_role("button", name="Events").click()
        await page.locator("#events details").last.scroll_into_view_if_needed()
        await shoot(page, "serve")
        await page.goto(f"{browsing.server.url}/debugger?of={RECORDING}")
        await page.locator("#step").fill("28")
        await expect(page.locator("#where")).to_contain_text("step 28 of")
        await page.locator("#step").blur()
        await shoot(page, "debugger")
    async with AsyncExitStack() as stack:
        phone = {"width": 390, "height": 760}
        Answering.label = "gemma-3-270m"
        page = await Browsing(chromium, stack).open(saying(ANSWER), viewport=phone, color_scheme="dark")
        await ask(page, "How many ways are there to choose 2 of 5?")
        await ended(page)
        await shoot(page, "serve-phone")


async def film(chromium: Any, recording: str) -> list[tuple[bytes, int]]:
    """Return what the debugger shows of a recording: its last step, which stands where nothing moves, and the way."""
    async with AsyncExitStack() as stack:
        browsing = Browsing(chromium, stack)
        page = await browsing.open(answerer=RecordedAnswers(speed=0), viewport=SIZE)
        await page.goto(f"{browsing.server.url}/debugger?of={recording}")
        await expect(page.locator("#shown .card .name")).to_have_text("get_weather")
        last = int(await page.locator("#step").get_attribute("max"))
        table = await (await chromium.new_context()).new_page()
        frames, before = [], ""
        for step in [last, *range(0, last, STRIDE)]:
            await page.locator("#step").fill(str(step))
            await expect(page.locator("#where")).to_contain_text(f"step {step} of")
            now = base64.b64encode(await page.screenshot(animations="disabled", caret="hide")).decode()
            frame = base64.b64decode(await table.evaluate(DIFFERENCE, [before, now]))
            frames.append((frame, PAUSE if step < last else PAUSE_AT_THE_END))
            before = now
        return frames


async def main() -> None:
    """Write them all."""
    async with launched() as chromium:
        await photograph(chromium)
        (DOCS / "replay.png").write_bytes(animate(await film(chromium, RECORDING)))


if __name__ == "__main__":
    anyio.run(main)
