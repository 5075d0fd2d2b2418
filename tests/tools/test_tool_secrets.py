"""The exception text of a tool does not leave the process, and is only logged."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from streamtools import RunnerOptions, ToolCall, ToolOutcome, ToolStream
from streamtools.events import ProviderCompleted
from streamtools.recording import ExchangeHead
from streamtools.recording.files import RecordingWriter
from streamtools.recording.redaction import describe_request
from streamtools.tools import Tool
from streamtools.tools.context import ToolContext
from tests.support.stories import Script, texts

pytestmark = pytest.mark.anyio

SECRET = "hunter2-s3cret"
STOP = ProviderCompleted(finish_reason="stop")


class Leaky(Exception):
    """An exception that shows its secret however it is asked."""

    def __init__(self) -> None:
        super().__init__(SECRET)
        self.add_note(SECRET)

    def __repr__(self) -> str:
        return SECRET


def fail() -> None:
    """Raise, because of something that is secret too."""
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise Leaky from error


async def in_coroutine() -> None:
    fail()


def in_thread() -> None:
    fail()


async def in_async_generator() -> AsyncIterator[int]:
    yield 1
    fail()


def in_generator() -> Iterator[int]:
    yield 1
    fail()


async def in_task_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(in_coroutine)
        tasks.start_soon(in_coroutine)


async def as_timeout() -> None:
    raise TimeoutError(SECRET)


async def as_cancellation() -> None:
    raise asyncio.CancelledError(SECRET)


async def when_stopped() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        fail()


async def as_progress(context: ToolContext) -> None:
    await context.progress(object())


async def in_its_result() -> Any:
    class Result:
        def __iter__(self) -> Iterator[Any]:
            fail()
            return iter(())

    return Result()


TOOLS: list[Callable[..., Any]] = [
    in_coroutine,
    in_thread,
    in_async_generator,
    in_generator,
    in_task_group,
    as_timeout,
    as_cancellation,
    when_stopped,
    as_progress,
    in_its_result,
]


async def leak(call: ToolCall, outcome: ToolOutcome) -> None:
    fail()


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
async def test_exceptions_stay_inside(
    tool: Callable[..., Awaitable[Any]], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """No event, history, result or recording contains their text. Only the log does."""
    caplog.set_level(logging.DEBUG)
    source = Script([*texts(f'###:{{"name":"{tool.__name__}"}}'), STOP])
    made = Tool(tool, timeout=0.05 if tool is when_stopped else 60)
    async with ToolStream(source, tools=[made], runner=RunnerOptions(on_result=leak)) as stream:
        sent = [event.to_json() async for event in stream]
    result = stream.result
    body = json.dumps({"messages": result.messages()}).encode()
    request = describe_request("POST", "http://localhost/", [("content-type", "application/json")], body)
    recording = io.BytesIO()
    RecordingWriter(recording, ExchangeHead(source="openai", request=request))
    assert result.outcomes[0].error is not None
    shown, complained = capfd.readouterr()
    assert "tool_call_failed" in caplog.text
    everything = [*sent, json.dumps(result.messages()), repr(result), recording.getvalue().decode()]
    assert [] == [each for each in [*everything, shown, complained] if SECRET in each]
