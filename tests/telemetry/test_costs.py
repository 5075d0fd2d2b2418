"""The cost of telemetry, in calls: none if it is off, and no additional one for each delta if it is on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import CodeType

import anyio

import streamtools
from benchmarks.count_calls import Count
from streamtools import ToolStream, sources
from tests.support.chat_chunks import DONE, chunk
from tests.support.collected import collecting

STAGE = str(Path(streamtools.__file__).parent / "stream" / "report_stage.py")
SEAM = str(Path(streamtools.__file__).parent / "observing.py")
TELEMETRY = str(Path(streamtools.__file__).parent / "telemetry")


def calls(deltas: int) -> Counter[CodeType]:
    """Return how often each function of the package is called for a stream of `deltas` network chunks."""
    chunks = [*(chunk({"content": "word "}) for _ in range(deltas)), chunk(finish="stop"), DONE]

    async def read() -> Counter[CodeType]:
        with Count() as count:
            await ToolStream(sources.openai(chunks))
        return Counter(count.calls)

    return anyio.run(read)


def test_a_delta_costs_three_more_calls() -> None:
    """Between 100 and 200 deltas, the number of calls of all other functions is the same with telemetry."""
    calls(10)  # what is made once
    short, long = calls(100), calls(200)
    assert [] == [code for code in long if code.co_filename.startswith(TELEMETRY)]
    off = long - short
    assert [] == [code for code in off if code.co_filename == SEAM]
    with collecting():
        calls(10)
        short, long = calls(100), calls(200)
    on = long - short
    more = on - off
    assert [100] * len(more) == list(more.values())
    assert {STAGE} == {code.co_filename for code in more}
    assert len(more) <= 3
    assert Counter() == off - on
    assert sum(off.values()) > 100


def test_without_instrumentation_opentelemetry_is_not_imported() -> None:
    code = """
import json, sys, anyio
from streamtools import ToolStream, chat, sources
from streamtools.runs import Runs

async def main():
    async with ToolStream(sources.text(["Hi"])) as events:
        async for event in events: pass

anyio.run(main)
print(json.dumps([name for name in sys.modules if name.startswith(("opentelemetry", "streamtools.telemetry"))]))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert [] == json.loads(ran.stdout)
