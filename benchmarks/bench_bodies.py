"""Measures how long the event loop is blocked while the largest request body is read and answered.

    python benchmarks/bench_bodies.py

Each row is a family of bodies of 4 MiB or of 100,000 values, the limits of `read_body`. The body is posted to an
application that reads it as documented and immediately calls a model. Meanwhile, another task of the same event loop
runs as often as it can. The figure is the longest time between two turns of this task, in milliseconds, the best of all
repetitions. It is the processor time of all threads of the process, so other programs do not affect it.

The table also shows the longest gap in elapsed time, and the longest garbage collection. A collection stops all
threads, and takes longer the more objects a history has. `read_body` postpones collections until most of these objects
are freed. Two pauses remain: the collection of the messages themselves, and each single C call that reads or frees
objects, because it does not release the interpreter.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
import anyio.lowlevel
import httpx
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.measure import Case, Result, Work, main
from streamtools import chat
from streamtools.conversation import Chat, OpenAIChat
from streamtools.json_values import count_values
from streamtools.outputs import asgi
from streamtools.serving.requests import MAX_BODY, MAX_VALUES

LONGEST = 50.0  # milliseconds
END = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def _pair(first: dict[str, Any], second: dict[str, Any], at: int) -> dict[str, Any]:
    return second if at % 2 else first


def _turns(at: int) -> dict[str, Any]:
    return _pair({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, at)


def _calls(at: int) -> dict[str, Any]:
    name = f"c{at // 2}"
    call = {"id": name, "type": "function", "function": {"name": "f", "arguments": '{"a": [1, {}]}'}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    return _pair(asks, {"role": "tool", "tool_call_id": name, "content": "r"}, at)


def _many_calls(at: int) -> dict[str, Any]:
    if at % 1001:
        return {"role": "tool", "tool_call_id": f"c{at - 1}", "content": "r"}
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{n}", **call} for n in range(at, at + 1000)]}


def _items(at: int) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": f"c{at // 2}", "name": "f", "arguments": "{}"}
    return _pair(call, {"type": "function_call_output", "call_id": f"c{at // 2}", "output": "r"}, at)


def _blocks(at: int) -> dict[str, Any]:
    used = {"type": "tool_use", "id": f"c{at // 2}", "name": "f", "input": {"a": [1]}}
    result = {"type": "tool_result", "tool_use_id": f"c{at // 2}", "content": [{"type": "text", "text": "r"}]}
    return _pair({"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}, at)


def _arguments(at: int) -> dict[str, Any]:
    arguments = json.dumps({"a": [[]] * 45_000})
    call = {"id": f"c{at // 2}", "type": "function", "function": {"name": "f", "arguments": arguments}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    return _pair(asks, {"role": "tool", "tool_call_id": f"c{at // 2}", "content": "r"}, at)


FAMILIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "one text": lambda at: {"role": "user", "content": "é" * 20_000},
    "texts of escapes": lambda at: {"role": "user", "content": '"\\\n' * 5_000},
    "short turns": _turns,
    "parts": lambda at: {"role": "user", "content": [{"type": "text", "text": "x"}] * 1_000},
    "empty parts": lambda at: {"role": "user", "content": [{}] * 10_000},
    "calls and results": _calls,
    "a turn of many calls": _many_calls,
    "items of Responses": _items,
    "arguments of many values": _arguments,
    "blocks of Anthropic": _blocks,
}


def write(family: Callable[[int], dict[str, Any]], most: int) -> bytes:
    """Return a body of this family, with at most this number of bytes and the maximum number of values."""
    messages: list[bytes] = []
    size = values = 100
    for at in range(most):
        message = json.dumps(family(at)).encode()
        size += len(message) + 1
        values += count_values(message) + 1
        if (size > most or values > MAX_VALUES) and messages:
            break
        messages.append(message)
    if len(messages) % 2 and len(messages) > 1 and b"tool" in messages[-1]:
        del messages[-1]  # a call without its result
    return b'{"messages":[' + b",".join(messages) + b"]}"


def _provider(request: httpx.Request) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=END)


async def longest_gap(body: bytes) -> tuple[float, float, str]:
    """Return the longest gap between two turns of a task while a body is answered, and the status of the answer.

    The gap is given in seconds of processor time and of the clock.
    """
    transport = httpx.MockTransport(_provider)
    async with httpx.AsyncClient(transport=transport) as upstream:
        model = OpenAIChat("m", base_url="http://model/v1", api_key="", client=upstream)

        def ask(given: bytes) -> Chat:
            return chat(model, msgspec.json.decode(given)["messages"])

        async def answer(request: Request) -> Response:
            return asgi.event_stream_response(await asgi.read_body(request, ask))

        app = Starlette(routes=[Route("/", answer, methods=["POST"])])
        worst, waited, over = 0.0, 0.0, False

        async def look_on() -> None:
            nonlocal worst, waited
            processor, clock = process_time(), perf_counter()
            while not over:
                await anyio.lowlevel.checkpoint()
                spent, now = process_time(), perf_counter()
                worst, waited = max(worst, spent - processor), max(waited, now - clock)
                processor, clock = spent, now

        transport_to_app = httpx.ASGITransport(app)
        async with (
            httpx.AsyncClient(transport=transport_to_app, base_url="http://x") as client,
            anyio.create_task_group() as group,
        ):
            group.start_soon(look_on)
            response = await client.post("/", content=body)
            over = True
    return worst, waited, response.text


@dataclass(frozen=True)
class Gap:
    """The longest gap while one body is answered."""

    section: str
    name: str
    body: bytes

    @property
    def subject(self) -> Work:
        return self._gap

    def check(self) -> None:
        told = anyio.run(longest_gap, self.body)[2]
        assert '"reason":"finished"' in told, told[-200:]

    def measure(self, repeats: int) -> Result:
        collections: list[float] = []
        begun = 0.0

        def note(phase: str, info: Any) -> None:
            nonlocal begun
            if phase == "start":
                begun = process_time()
            else:
                collections.append(process_time() - begun)

        gc.callbacks.append(note)
        gaps = []
        for _ in range(min(repeats, 3)):
            gc.collect()
            collections.clear()
            worst, waited, _told = anyio.run(longest_gap, self.body)
            gaps.append((worst, waited, max(collections, default=0.0)))
        gc.callbacks.remove(note)
        worst, waited, collecting = min(gaps)
        details = {"MiB": len(self.body) / 2**20, "clock ms": waited * 1e3, "gc ms": collecting * 1e3}
        return Result(self.section, self.name, worst * 1e3, "ms", LONGEST, details)

    def _gap(self) -> float:
        return anyio.run(longest_gap, self.body)[0]


def cases(small: bool) -> Iterator[Case]:
    """Yield all rows."""
    most = 100_000 if small else MAX_BODY
    for name, family in FAMILIES.items():
        yield Gap("the longest gap of the loop", name, write(family, most))


if __name__ == "__main__":
    main("bodies of requests", cases)
