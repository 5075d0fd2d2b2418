"""S14: the text of an exception reaches no front end, no model and no recording, in no format. Only the log has it."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import anyio
import httpx
import pytest

from streamtools import chat, outputs, sources
from streamtools.conversation import OpenAIChat, ScriptedModel
from streamtools.events import UIEvent
from streamtools.outputs import Encoder
from streamtools.recording import ExchangeHead
from streamtools.recording.files import RecordingWriter
from streamtools.recording.redaction import describe_request
from streamtools.tools import Tool, ToolContext
from tests.support.approvals import calls
from tests.support.options import grouped

SECRET = "hunter2-s3cret"
ENCODERS: list[Callable[[], Encoder]] = [
    lambda: outputs.native(exclude=()),
    lambda: outputs.native(framing="ndjson", exclude=()),
    outputs.ai_sdk,
    outputs.ag_ui,
    outputs.openai,
    outputs.text,
]


class Leaky(Exception):
    """An exception that shows its secret in each representation."""

    def __init__(self) -> None:
        super().__init__(SECRET)
        self.add_note(SECRET)

    __str__ = __repr__ = lambda self: SECRET


def fail(*_: Any, **__: Any) -> Any:
    raise Leaky


async def afail(*_: Any, **__: Any) -> Any:
    raise Leaky


def tool() -> str:
    """Raise, because of an exception that is secret too."""
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise Leaky from error


async def coroutine() -> None:
    tool()


async def generator() -> AsyncIterator[int]:
    yield 1
    tool()


async def task_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(coroutine)
        tasks.start_soon(coroutine)


async def timeout() -> None:
    raise TimeoutError(SECRET)


async def cancellation() -> None:
    raise asyncio.CancelledError(SECRET)


async def stopped() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        tool()


async def progress(context: ToolContext) -> None:
    """Report progress that cannot be serialized."""
    await context.progress({SECRET: Leaky()})


async def result() -> Any:
    class Result:
        def __iter__(self) -> Iterator[Any]:
            tool()
            return iter(())

    return Result()


TOOLS: list[Callable[..., Any]] = [tool, coroutine, generator, task_group, timeout]
TOOLS += [cancellation, stopped, progress, result]


def failing(function: Callable[..., Any]) -> tuple[ScriptedModel, dict[str, Any]]:
    """Return a model that calls this tool, and the options of its chat. The hook fails too."""
    made = Tool(function, timeout=0.05 if function is stopped else 60)
    return calling(function.__name__), {"tools": [made], "on_tool_result": afail}


def calling(name: str) -> ScriptedModel:
    return ScriptedModel([calls((name, {})), "Well."])


async def broken() -> AsyncIterator[bytes]:
    yield b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    raise Leaky


class Broken(ScriptedModel):
    """A response whose network fails in the middle."""

    def stream(self, ask: Any) -> Any:
        class Opened:
            async def __aenter__(self) -> Any:
                return sources.openai(broken())

            async def __aexit__(self, *_: object) -> None:
                pass

        return Opened()


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(SECRET, request=request)


def unreachable() -> OpenAIChat:
    client = httpx.AsyncClient(transport=httpx.MockTransport(refused))
    return OpenAIChat("m", base_url=f"http://ann:{SECRET}@x/?key={SECRET}", api_key=SECRET, client=client, retries=0)


PLACES: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    **{function.__name__: partial(failing, function) for function in TOOLS},
    "a predicate": lambda: (calling("tool"), {"tools": [Tool(tool, requires_approval=afail)]}),
    "a hook that does not wait": lambda: (calling("tool"), {"tools": [tool], "on_tool_result": fail}),
    "a review": lambda: (calling("tool"), {"tools": [tool], "review": afail}),
    "a stream": lambda: (Broken([]), {}),
    "a connection": lambda: (unreachable(), {}),
}


@pytest.mark.parametrize("place", PLACES)
async def test_no_encoder_writes_the_text_of_an_exception(
    place: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is not in an event, in the result, in the messages for the model, or in a recording of them."""
    model, options = PLACES[place]()
    told: list[UIEvent] = []
    stream = chat(model, [{"role": "user", "content": "Hi"}], **grouped(**options))
    try:
        async with stream as events:
            async for event in events:
                told.append(event)
    except Leaky:
        assert place == "a review", "what the application's own code raises is raised to the application"
    messages = json.dumps(stream.messages())
    written = [event.to_json() for event in told] + [repr(told), messages, repr(stream.result)]
    for make in ENCODERS:
        encoder = make()
        written.append((b"".join(map(encoder.encode, told)) + encoder.close()).decode())
    request = describe_request("POST", "http://x/", [("content-type", "application/json")], messages.encode())
    recording = io.BytesIO()
    RecordingWriter(recording, ExchangeHead(source="openai", request=request))

    assert "done" == told[-1].type
    assert [] == [each for each in [*written, *capfd.readouterr(), recording.getvalue().decode()] if SECRET in each]
    assert [] == [each for each in written if "Traceback" in each or ".py" in each]
    assert place not in [function.__name__ for function in TOOLS] or "tool_call_failed" in caplog.text
