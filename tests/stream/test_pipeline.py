"""End to end: a provider on the loopback interface, a real client, the stream, the tools, and the continued history."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from httpx_sse import aconnect_sse

from streamtools import ToolStream, sources
from streamtools.events import Executed, Text
from tests.support.chat_chunks import DONE, chunk, sse
from tests.support.loopback import Loopback

CALL = '~~~tool_call\n{"name":"add","arguments":{"a":1,"b":2}}\n~~~'
DELTAS = ["I ", "will add.\n", *CALL, "\nOne moment."]
USAGE = sse({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}})


def add(a: float, b: float) -> dict[str, Any]:
    """Add two numbers."""
    return {"sum": a + b, "message": f"{a} + {b}"}


async def test_a_backend_streams_an_answer_and_continues_the_history() -> None:
    history = [{"role": "user", "content": "What is 1 + 2?"}]
    shown = ""
    async with (
        Loopback([*(chunk({"content": delta}) for delta in DELTAS), chunk(finish="stop"), USAGE, DONE]) as server,
        httpx.AsyncClient(trust_env=False) as client,
        aconnect_sse(client, "POST", server.url, json={"messages": history}) as response,
    ):
        async with ToolStream(sources.openai(response), tools=[add]) as events:
            async for event in events:
                match event:
                    case Text(text):
                        shown += text
                    case Executed(call, result):
                        shown += f"[{call.name}: {result['sum']:g}]"
        history += events.result.messages("openai")

    assert shown == "I will add.\n\nOne moment.[add: 3]"
    assert history[1:] == [
        {"role": "assistant", "content": f"I will add.\n{CALL}\nOne moment."},
        {"role": "user", "content": '~~~tool_result add\n{"sum":3.0,"message":"1.0 + 2.0"}\n~~~'},
    ]
    assert (12, "finished") == (events.result.usage and events.result.usage.total, events.result.reason)


def test_a_text_delta_passes_at_most_seven_files() -> None:
    """From the bytes of the provider to the bytes for the client, in at most 20 calls. No fixture adds calls."""
    program = str(Path(__file__).parents[2] / "benchmarks" / "count_calls.py")
    command = [sys.executable, program, "--calls", "a delta from bytes to bytes"]
    _, row, *calls = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    count, files, _ = map(int, row.split()[-3:])

    assert files <= 7, calls
    assert count <= 20, calls
