"""What pushes events: how far a push is made at once, and when the reading around it can be cancelled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from streamtools import Guards, ToolStream, sources
from streamtools.events import Done, Text, UIEvent
from streamtools.stream.driver import Pushing, begun

pytestmark = pytest.mark.anyio


async def test_work_that_need_not_wait_is_done_at_once() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("all")

    assert begun(work()) is None
    assert done == ["all"]


async def test_what_is_left_waits_where_it_waited() -> None:
    done: list[str] = []
    first, second = anyio.Event(), anyio.Event()

    async def work() -> None:
        await first.wait()
        done.append("one")
        await second.wait()
        done.append("two")

    async def let_go_on() -> None:
        await anyio.wait_all_tasks_blocked()
        assert done == []
        first.set()
        await anyio.wait_all_tasks_blocked()
        assert done == ["one"]
        second.set()

    async with anyio.create_task_group() as group:
        group.start_soon(let_go_on)
        left = begun(work())  # in the task that awaits it, in the same scopes
        assert left is not None
        await left
    assert done == ["one", "two"]


async def test_what_it_raises_is_raised_at_once_or_behind_the_wait() -> None:
    async def fail(waits: bool) -> None:
        if waits:
            await anyio.lowlevel.checkpoint()
        raise KeyError("k")

    with pytest.raises(KeyError):
        begun(fail(False))
    left = begun(fail(True))
    assert left is not None
    with pytest.raises(KeyError):
        await left


async def test_a_cancellation_reaches_what_is_left() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("up")

    with anyio.CancelScope() as scope:
        left = begun(work())
        assert left is not None
        scope.cancel()
        await left
    assert (scope.cancelled_caught, cleaned) == (True, ["up"])


async def test_the_shield_stays_behind_a_push_until_the_reading_is_let_go() -> None:
    pushing = Pushing(lambda events: None)
    with anyio.CancelScope() as reading:
        await pushing.wait_for(anyio.lowlevel.checkpoint(), reading)
        assert reading.shield
        pushing.let_go()
        assert not reading.shield


async def test_a_push_that_waits_ends_before_the_reading_is_let_go() -> None:
    pushing = Pushing(lambda events: None)
    pushed = anyio.Event()
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as reading:

            async def let_go() -> None:
                pushing.let_go()
                assert reading.shield
                pushed.set()

            group.start_soon(let_go)
            await pushing.wait_for(pushed.wait(), reading)
            pushing.let_go()
            assert not reading.shield


async def test_a_stop_lets_go_of_a_push_that_waits() -> None:
    pushing = Pushing(lambda events: None)
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as reading:

            async def stop() -> None:
                reading.cancel()
                pushing.stop()

            group.start_soon(stop)
            await pushing.wait_for(anyio.sleep_forever(), reading)
    assert reading.cancelled_caught
    assert pushing.push is None


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
