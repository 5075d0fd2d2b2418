"""What pushes events: a stream that is stopped while its provider is silent ends, and has pushed all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from streamtools import Guards, ToolStream, sources
from streamtools.events import Done, Text, UIEvent

pytestmark = pytest.mark.anyio


async def _speak(silent: anyio.Event) -> AsyncIterator[str]:
    yield "one "
    yield "two"
    silent.set()
    await anyio.sleep_forever()


async def _pushed_until(stop: Callable[[ToolStream], Awaitable[object]], **options: Any) -> tuple[str, Done]:
    """Return what was pushed of a stream that is stopped while its provider is silent, and the end that was read."""
    silent = anyio.Event()
    pushed, read = list[UIEvent](), list[UIEvent]()

    async def push(events: Sequence[UIEvent]) -> None:
        await anyio.lowlevel.checkpoint()
        pushed.extend(events)

    with anyio.fail_after(10):
        async with ToolStream(sources.text(_speak(silent)), **options) as stream:

            async def read_all() -> None:
                async for event in stream:
                    read.append(event)

            assert stream.push_to(push)
            async with anyio.create_task_group() as group:
                group.start_soon(read_all)
                await silent.wait()
                await anyio.wait_all_tasks_blocked()
                await stop(stream)
    done = read[-1]
    assert isinstance(done, Done)
    return "".join(event.text for event in [*read, *pushed] if isinstance(event, Text)), done


async def test_a_stream_that_is_closed_while_its_provider_is_silent_ends() -> None:
    text, done = await _pushed_until(ToolStream.aclose)
    assert (text, done.reason) == ("one two", "cancelled")


async def test_a_stream_that_reaches_its_time_limit_while_its_provider_is_silent_ends() -> None:
    async def wait(stream: ToolStream) -> None: ...

    text, done = await _pushed_until(wait, guards=Guards(seconds=0.05))
    assert (text, done.reason, done.finish_reason) == ("one two", "stopped", "time_limit")


async def test_a_stream_whose_task_is_cancelled_while_its_provider_is_silent_ends() -> None:
    """The cancellation reaches whoever reads, and so the leaving of the stream."""
    silent, closed = anyio.Event(), list[bool]()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:

            async def read_all() -> None:
                try:
                    async with ToolStream(sources.text(_speak(silent))) as stream:
                        stream.push_to(lambda events: anyio.lowlevel.checkpoint())
                        async for _ in stream:
                            pass
                finally:
                    closed.append(stream.result.reason == "cancelled")

            group.start_soon(read_all)
            await silent.wait()
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert closed == [True]
