"""From end to end: a provider on the loopback interface, a real client, the stream, the tools, and what comes out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from httpx_sse import aconnect_sse

from streamtools import ParserOptions, ToolStream, coalesce, replay, sources
from streamtools.errors import Code
from streamtools.events import (
    Done,
    Error,
    Executed,
    Executing,
    Raw,
    Start,
    Text,
    UIEvent,
    Warning,
)
from streamtools.recording import read_recording, shipped
from tests.support.cases import together
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
    """Return a Latitude run of several provider turns, each of which repeats its whole text in the end."""
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
    """Give a response whose body is still to come."""
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
    """Return the coalesced events of what a server sends."""
    async with (
        Loopback(script, **server) as loopback,
        opened(loopback) as response,
        ToolStream(make(response), tools=tools) as events,
    ):
        return coalesce([event async for event in events])


# The three uses.


async def test_wrapping_a_providers_stream() -> None:
    """A backend wraps the response of its client, shows what comes, and continues the history."""
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
async def test_a_chain_of_latitude() -> None:
    """Two turns, a call in the first; its end repeats the text, and the call is seen and run once."""
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


async def test_text_is_told_while_it_comes() -> None:
    """Nothing waits for what the provider has not sent yet."""
    gate = anyio.Event()
    first, *rest = chat("Hello ##", "# World")
    async with (
        Loopback([first, gate, *rest]) as server,
        opened(server) as response,
        ToolStream(sources.openai(response)) as events,
    ):
        while True:
            event = await anext(events)
            if isinstance(event, Text):
                assert "Hello " == event.text
                break
        gate.set()
        assert "text '### World'" in story([each async for each in events])


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
async def test_no_stream(status: int, declared: str, body: bytes, told: int | None, message: str) -> None:
    """What is no stream is one error, and a run that has failed."""
    start, error, done = await collect([body], status=status, declared=declared)
    assert isinstance(start, Start)
    assert Error(Code.UPSTREAM_ERROR, message, status=told) == error
    assert Done("failed", None, None, []) == done


async def test_an_error_in_the_middle() -> None:
    """It is told once, with the provider's words, and the call before it does not run."""
    script = [*chat(CALL, finish=None, done=False), frame({"error": {"message": "overloaded", "code": 529}})]
    told = await collect([*script, b"data: [DONE]\n\n"])
    assert [event.message for event in told if isinstance(event, Error)] == ["overloaded"]
    assert not any(isinstance(event, Executing) for event in told)
    assert story(told)[-1] == "done failed: None (None), pending call_2"


async def test_a_connection_that_breaks_in_the_middle_of_a_call() -> None:
    """The call is truncated, the run interrupted and failed, and nothing has been executed."""
    told = await collect(chat("a\n", CALL[:-9], finish=None, done=False), drop=True)
    assert story(told) == [
        "start",
        "step 1",
        "text 'a\\n'",
        "thinking call_2",
        "call_2 is add",
        "error call_2 truncated",
        "not thinking call_2",
        "error stream_interrupted",
        "step 1 ends: None",
        "done failed: None (None)",
    ]


async def test_an_end_without_a_terminator() -> None:
    """A proxy that hangs up politely in the middle has not finished the answer."""
    told = story(await collect(chat("a\n", CALL, finish=None, done=False)))
    assert ["error stream_interrupted", "step 1 ends: None", "done failed: None (None), pending call_2"] == told[-3:]


async def test_what_nobody_understands() -> None:
    """Frames of any kind pass, or are warned of, and the answer is the same."""
    odd = [frame("{odd", None), frame({"choices": [{"index": 1, "delta": {"content": "other"}}]}), frame([1])]
    events = await collect([*odd, *chat("a")])
    assert [type(event) for event in events[1:4]] == [Warning, Raw, Raw]
    assert story(events)[4:6] == ["step 1", "text 'a'"]


async def test_leaving_closes_the_connection() -> None:
    """The provider sees it at once, although the client's own block is still open."""
    async with Loopback(chat("a", finish=None, done=False), hold=True) as server, opened(server) as response:
        async with ToolStream(sources.openai(response), tools=TOOLS) as events:
            async for event in events:
                if isinstance(event, Text):
                    break
            assert not server.disconnected.is_set()
        with anyio.fail_after(10):
            await server.disconnected.wait()
        assert response.is_closed


async def test_leaving_while_a_tool_runs_closes_the_connection() -> None:
    """The tool stops too, and the run says so."""
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


async def test_stopping_after_a_call_closes_the_connection() -> None:
    """What the model would go on to invent is not even received."""
    script = chat(CALL, "\n", "The result is", finish=None, done=False)
    async with Loopback(script, hold=True) as server, opened(server) as response:
        async with ToolStream(sources.openai(response), tools=TOOLS, parser=ParserOptions(after_call="stop")) as events:
            told = story([event async for event in events])
        with anyio.fail_after(10):
            await server.disconnected.wait()
    assert told[-1] == "done finished: stopped_after_call (None)"


# The recordings, over a real connection.


@together("name", shipped())
async def test_a_recording_over_a_connection(name: str) -> None:
    """What a server sends as it was recorded is what a replay plays."""
    path = shipped()[name]
    recording = read_recording(path)
    told = await collect([chunk.data for chunk in recording.chunks])
    assert coalesce(await replay(path, tools=TOOLS)) == told
