"""End to end: a provider on the loopback interface, a real client, the stream, the tools, and the response."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from httpx_sse import aconnect_sse

from streamtools import ToolStream, coalesce, sources
from streamtools.errors import Code
from streamtools.events import Done, Error, Executed, Executing, Start, Text, UIEvent
from tests.support.loopback import Loopback
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.stories import story

pytestmark = pytest.mark.anyio

CALL = '~~~tool_call\n{"name":"add","arguments":{"a":1,"b":2}}\n~~~'


def add(a: float, b: float) -> dict[str, Any]:
    """Add two numbers."""
    return {"sum": a + b, "message": f"{a} + {b}"}


async def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"Rain in {city}"


TOOLS: list[Callable[..., Any]] = [add, get_weather]


def frame(data: Any, event: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = f"event: {event}\n" if event else ""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"{head}data: {text}\n\n".encode()


def chat(*deltas: str, finish: str | None = "stop", done: bool = True) -> list[bytes]:
    """Return a stream of chat completion chunks."""
    chunks = [frame({"choices": [{"index": 0, "delta": {"content": delta}}]}) for delta in deltas]
    if finish:
        chunks.append(frame({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
        chunks.append(frame({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}}))
    return [*chunks, b"data: [DONE]\n\n"] if done else chunks


def latitude(*turns: Iterable[str]) -> list[bytes]:
    """Return a Latitude run of several turns. Each turn repeats its text at its end."""
    chunks = [frame({"type": "chain-started", "uuid": "u-1", "messages": []}, "latitude-event")]
    for turn in turns:
        deltas = list(turn)
        chunks.append(frame({"type": "provider-started", "uuid": "u-1", "messages": []}, "latitude-event"))
        chunks += [frame({"type": "text-delta", "textDelta": delta}, "provider-event") for delta in deltas]
        usage = {"promptTokens": 3, "completionTokens": 4, "totalTokens": 7}
        response = {"streamType": "text", "text": "".join(deltas), "toolCalls": [], "usage": usage}
        completed = {"type": "provider-completed", "finishReason": "stop", "tokenUsage": usage, "response": response}
        chunks.append(frame(completed | {"uuid": "u-1"}, "latitude-event"))
    return [*chunks, frame({"type": "chain-completed", "uuid": "u-1", "finishReason": "stop"}, "latitude-event")]


@asynccontextmanager
async def opened(server: Loopback) -> AsyncIterator[httpx.Response]:
    """Yield a response whose body is not read yet."""
    client = httpx.AsyncClient(trust_env=False, timeout=10)
    async with client, client.stream("POST", server.url, json={"stream": True}) as response:
        yield response


async def collect(
    script: Iterable[bytes | anyio.Event],
    make: Callable[[object], sources.Source] = sources.openai,
    *,
    tools: Any = TOOLS,
    **server: Any,
) -> list[UIEvent]:
    """Return the coalesced events of the response of a server."""
    async with (
        Loopback(script, **server) as loopback,
        opened(loopback) as response,
        ToolStream(make(response), tools=tools) as events,
    ):
        return coalesce([event async for event in events])


# The three uses.


async def test_a_backend_streams_an_answer_and_continues_the_history() -> None:
    history = [{"role": "user", "content": "What is 1 + 2?"}]
    shown = ""
    async with (
        Loopback(chat("I ", "will add.\n", *CALL, "\nOne moment.")) as server,
        httpx.AsyncClient(trust_env=False) as client,
        aconnect_sse(client, "POST", server.url, json={"messages": history}) as response,
    ):
        async with ToolStream(sources.openai(response), tools=TOOLS) as events:
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


# What providers do.


@OTHER_LOOP_DEEP
async def test_a_call_of_latitude_runs_once() -> None:
    """The end of the chain repeats the text with the call."""
    script = latitude(["I add. ", *CALL.join("\n\n")], ["It is 3."])
    for chunks in (script, [b"".join(script)], [bytes([byte]) for byte in b"".join(script)]):
        assert story(await collect(chunks, sources.latitude)) == [
            "start",
            "step 1",
            "text 'I add. \\n'",
            "thinking call_2",
            "call_2 is add",
            "call call_2",
            "not thinking call_2",
            "text '\\n'",
            "executing call_2",
            "executed call_2: {'sum': 3.0, 'message': '1.0 + 2.0'}",
            "usage 3",
            "step 1 ends: stop",
            "step 2",
            "text 'It is 3.'",
            "usage 3",
            "step 2 ends: stop",
            "done finished: stop (stop), in u-1",
        ]


REFUSED: dict[str, tuple[int, str, bytes, int | None, str]] = {
    "a refusal": (401, "application/json", b'{"error":{"message":"Incorrect API key"}}', 401, "Incorrect API key"),
    "a page": (502, "text/html", b"<html>", 502, "Bad Gateway"),
    "JSON": (
        200,
        "application/json",
        b'{"choices":[{"message":{"content":"Hi"}}]}',
        None,
        "the response is one JSON document and not a stream; was the request sent with `stream: true`?",
    ),
}


@pytest.mark.parametrize(("status", "declared", "body", "told", "message"), REFUSED.values(), ids=REFUSED)
async def test_a_response_that_is_no_stream_is_one_error(
    status: int, declared: str, body: bytes, told: int | None, message: str
) -> None:
    start, error, done = await collect([body], status=status, declared=declared)
    assert isinstance(start, Start)
    assert Error(Code.UPSTREAM_ERROR, message, status=told) == error
    assert Done("failed", None, None, []) == done


async def test_leaving_while_a_tool_runs_closes_the_connection() -> None:
    """The tool stops, and the run reports that."""
    stopped = False

    async def add(a: float, b: float) -> None:
        nonlocal stopped
        try:
            await anyio.sleep_forever()
        finally:
            stopped = True

    async with Loopback(chat(CALL), hold=True) as server, opened(server) as response:
        with anyio.CancelScope() as scope:
            async with ToolStream(sources.openai(response), tools=[add]) as events:
                async for event in events:
                    if isinstance(event, Executing):
                        await anyio.wait_all_tasks_blocked()
                        scope.cancel()
        with anyio.fail_after(10):
            await server.disconnected.wait()
    assert (stopped, events.result.reason) == (True, "cancelled")


# The recordings, over a real connection.


def test_a_text_delta_passes_at_most_seven_files() -> None:
    """From the bytes of the provider to the bytes for the client, in at most 20 calls. No fixture adds calls."""
    program = str(Path(__file__).parents[2] / "benchmarks" / "count_calls.py")
    command = [sys.executable, program, "--calls", "a delta from bytes to bytes"]
    _, row, *calls = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    count, files, _ = map(int, row.split()[-3:])

    assert files <= 7, calls
    assert count <= 20, calls
