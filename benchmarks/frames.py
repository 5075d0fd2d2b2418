"""Measures how smoothly the page of `serve` shows a long answer, relative to a page with bare text nodes.

    python -m benchmarks.frames      # requires the extra `browser` and Debian's `chromium`

Both pages read the same Markdown answer from the same server, in the same Chromium, in turns. The figure is the 95th
percentile of the time between two frames. The best run of each page counts, because slower runs were disturbed by other
programs. The work of scripts, layout and style is compared between the two halves of the answer: it shows whether the
cost of a delta grows with the answer. The growth of the heap after a garbage collection shows whether the page keeps
more than the shown text. With `--smoke`, the answer is short, and only the shown text is checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from streamtools.recording import ExchangeHead
from streamtools.recording.files import RecordingWriter

BLOCK = """## A heading of the {}th part

Some prose with **bold** and `code`, long enough to be broken into lines, and [a link](http://a.example/{}) in it.

- one thing, and *another*
- two things

```python
def part(x: int) -> str:  # number {}
    return "text" * x
```

| a | b |
|---|---|
| 1 | {} |

"""
PIECE, PAUSE = 12, 2.0  # characters of a delta, milliseconds between two

_FRAMES = """() => {
    window.frames_ = [];
    let last = performance.now();
    const tick = (now) => {
        window.frames_.push(now - last);
        last = now;
        window.looking = requestAnimationFrame(tick);
    };
    window.looking = requestAnimationFrame(tick);
}"""
_BARE = """async (question) => {
    const headers = { "content-type": "application/json" };
    const asked = await fetch("/runs", { method: "POST", headers, body: JSON.stringify({ question }) });
    const { run } = await asked.json();
    document.body.replaceChildren();
    const shown = document.body.appendChild(document.createElement("pre"));
    shown.style.whiteSpace = "pre-wrap";
    const reader = (await fetch(`/runs/${run}/events`)).body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const lines = (rest + value).split("\\n");
        rest = lines.pop();
        for (const line of lines) {
            const event = line.startsWith("data: ") ? JSON.parse(line.slice(6)) : {};
            if (event.type === "text") shown.append(event.text);
        }
        window.scrollTo(0, document.body.scrollHeight);
    }
}"""


class Shown(NamedTuple):
    """The 95th percentile of the times between frames, in ms; the renderer's seconds, and those of scripts, layout and
    style in each half; how many bytes the heap of scripts has grown by in the second half, for each character."""

    frame: float
    work: float
    first: float
    second: float
    kept: float


def answer(size: int) -> str:
    """Return an answer of this number of characters."""
    return "".join(BLOCK.format(*[part] * 4) for part in range(size // len(BLOCK) + 1))[:size].rstrip() + "\n"


@contextlib.contextmanager
def served(text: str) -> Iterator[str]:
    """Serve an answer at the pace of a model. Yields the address."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "long.jsonl"
        with path.open("wb") as file:
            writer = RecordingWriter(file, ExchangeHead(source="openai"))
            pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
            for at, piece in enumerate(pieces):
                data = json.dumps({"choices": [{"index": 0, "delta": {"content": piece}}]})
                writer.chunk(f"data: {data}\n\n".encode(), at * PAUSE)
            writer.chunk(
                b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
                len(pieces) * PAUSE,
            )
            writer.end("end", len(pieces) * PAUSE)
        command = [sys.executable, "-m", "streamtools", "serve", str(path), "--port", "0", "--speed", "1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline().partition(": ")[2].partition("/debugger")[0]
            finally:
                process.terminate()


def until(page: Any, holds: str) -> None:
    """Wait until an expression is true. The policy of the page forbids the evaluation that `wait_for_function` uses."""
    while not page.evaluate(f"Boolean({holds})"):
        page.wait_for_timeout(100)


def renderer(session: Any) -> tuple[float, float]:
    """Return the seconds of the renderer, and of scripts, layout and style in it."""
    told = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return told["TaskDuration"], sum(told[f"{part}Duration"] for part in ("Script", "Layout", "RecalcStyle"))


def heap(session: Any) -> float:
    """Return the size of the script heap in bytes."""
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


def show(browser: Any, url: str, text: str, *, bare: bool) -> Shown:
    """Show the answer on one of the pages. Returns its cost."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.set_default_timeout(300_000)
    page.goto(f"{url}/conversation" if bare else url)
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    middle_part = json.dumps(f"{text.count('## A heading') // 2}th part")
    half = f"document.body.textContent.includes({middle_part})"
    said = "document.querySelector('pre').textContent" if bare else "[...turns.values()][0].markdown"
    page.evaluate(_FRAMES)
    begin = renderer(session)
    if bare:
        page.evaluate(f"void ({_BARE})('long.jsonl').then(() => {{ window.over = true; }})")
    else:
        page.locator("#suggestions button").click()
    until(page, half)
    middle, held = renderer(session), heap(session)
    collected = renderer(session)
    shown = len(page.evaluate(said))
    until(page, "window.over" if bare else "document.querySelector('.doings')")
    end = renderer(session)
    grown = heap(session) - held
    frames = sorted(page.evaluate("cancelAnimationFrame(window.looking), window.frames_"))
    assert text == page.evaluate(said), "the page shows another text"
    context.close()
    (work, first), (rest, second) = (
        [after - before for before, after in zip(*each, strict=True)] for each in ((begin, middle), (collected, end))
    )
    return Shown(frames[int(len(frames) * 0.95)], work + rest, first, second, grown / max(1, len(text) - shown))


def main(size: int = 50_000, repeats: int = 3) -> None:
    """Run the command. For a short answer, only check that both pages show it."""
    from playwright.sync_api import sync_playwright

    text = answer(size)
    with served(text) as url, sync_playwright() as playwright:
        chromium = os.environ.get("STREAMTOOLS_CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        runs = [[show(browser, url, text, bare=bare) for bare in (True, False)] for _ in range(repeats)]
        browser.close()
    if repeats == 1:
        print(f"both pages show the answer of {size:,} characters")
        return
    bare, ours = (min(pair[which].frame for pair in runs) for which in (0, 1))
    work = min(pair[1].work / pair[0].work for pair in runs)
    first, second = (min(getattr(pair[1], half) for pair in runs) for half in ("first", "second"))
    print(f"{size:,} characters: a frame in 95 of 100 is there within {ours:.1f} ms, on a bare page {bare:.1f} ms")
    print(f"relative to the bare page: {ours / bare:.2f} x (target 1.50), and {work:.2f} x the work of the renderer")
    kept, bare_kept = (min(pair[which].kept for pair in runs) for which in (1, 0))
    print(f"scripts, layout, style: first half {first:.2f} s, second half {second:.2f} s, {second / first:.2f} x")
    print(f"the heap grows by {kept:.1f} bytes a character of it, that of the bare page by {bare_kept:.1f}")


if __name__ == "__main__":
    main(*((2_000, 1) if "--smoke" in sys.argv else ()))
