"""Leaving a run: the tools stop, the source is closed, each call has an end, and no task remains."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog.testing

from streamtools import ToolStream
from streamtools.errors import ClosedError, Code
from streamtools.events import ProviderCompleted, UIEvent
from streamtools.stream import event_buffer, reading
from tests.stream.test_stream import read
from tests.support.options import grouped
from tests.support.stories import Script, WaitingTool, story, texts

WAIT = '###:{"name":"wait"}'
NOW = '###:{"name":"now"}'
STOP = ProviderCompleted(finish_reason="stop")


async def now() -> str:
    return "now"


def opened(source: Any, *tools: Callable[..., Any], **options: Any) -> ToolStream:
    """A stream whose calls are c1, c2 and so on."""
    new_id = map("c{}".format, itertools.count(1)).__next__
    return ToolStream(source, tools=tools, run_id="r", **grouped(new_id=new_id, **options))


def ending(events: list[UIEvent]) -> list[str]:
    """Return the events of executions and of the end."""
    return [line for line in story(events) if line.startswith(("exec", "error", "step 1 ends", "done"))]


CANCELLED = ["error c1 tool_cancelled", "step 1 ends: stop", "done cancelled: stop (None)"]


async def test_each_call_of_a_left_stream_has_one_end() -> None:
    """Calls that have ended, are running, or have not started. Each has one outcome, in call order."""
    tool, source = WaitingTool(), Script([*texts(WAIT, "\n", NOW, "\n", WAIT, "\n", NOW), STOP])
    async with opened(source, tool.wait, now, concurrency=2) as events:
        taken: list[UIEvent] = []
        while len([line for line in ending(taken) if line.startswith("executing")]) < 3:
            taken.append(await anext(events))
    await read(events, taken)

    told = ending(taken)
    assert sorted(told[:-2]) == [
        *("error c1 tool_cancelled", "error c3 tool_cancelled", "error c4 tool_cancelled", "executed c2: now"),
        *("executing c1", "executing c2", "executing c3"),
    ]
    assert told[-2:] == CANCELLED[-2:]
    cancelled = Code.TOOL_CANCELLED
    assert [cancelled, None, cancelled, cancelled] == [outcome.error for outcome in events.result.outcomes]


async def test_leaving_with_a_full_buffer_loses_no_event() -> None:
    """The events can be read up to `done`, without a gap."""
    batches = [texts(*"abcdefgh") for _ in range(event_buffer.MAX_EVENTS // 4)]
    async with opened(Script(*batches, hold=True)) as events:
        await anyio.wait_all_tasks_blocked()
    taken: list[UIEvent] = []
    await read(events, taken)
    assert [event.seq for event in taken] == list(range(1, len(taken) + 1))
    assert event_buffer.MAX_EVENTS < len(taken) < 2 * event_buffer.MAX_EVENTS
    assert "done cancelled: None (None)" == story(taken)[-1]


async def test_aclose_from_another_task_ends_the_run() -> None:
    """The block itself continues."""
    tool, source = WaitingTool(), Script([*texts(WAIT), STOP])
    closed = False

    async def close() -> None:
        nonlocal closed
        await tool.running.wait()
        await events.aclose()
        assert (tool.stopped, source.closed) == (1, 1)
        await events.aclose()
        closed = True

    taken: list[UIEvent] = []
    async with anyio.create_task_group() as group, opened(source, tool.wait) as events:
        group.start_soon(close)
        await read(events, taken)
        await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        assert closed
    assert ["executing c1", *CANCELLED] == ending(taken)
    await events.aclose()


async def test_a_tool_that_closes_its_stream_is_cancelled() -> None:

    async def wait() -> None:
        await events.aclose()

    async with opened(Script([*texts(WAIT), STOP]), wait) as events:
        taken: list[UIEvent] = []
        await read(events, taken)
    assert ["executing c1", *CANCELLED] == ending(taken)


async def test_a_stream_closed_before_its_block_has_no_events() -> None:
    """The source is closed."""
    source = Script([STOP])
    events = opened(source)
    await events.aclose()
    assert (source.read, source.closed) == (0, 1)
    assert [event async for event in events] == []
    with pytest.raises(ClosedError):
        await events.__aenter__()


async def test_a_slow_source_is_closed_during_cancellation() -> None:

    class Slow(Script):
        async def aclose(self) -> None:
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            await super().aclose()

    source = Slow(hold=True)
    with anyio.CancelScope() as scope:
        async with opened(source):
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert source.closed == 1


async def refuse_to_close() -> None:
    raise OSError("secret")


@pytest.mark.parametrize("close", [refuse_to_close, anyio.sleep_forever])
async def test_a_failure_to_close_the_source_is_only_logged(close: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log names only the type of the error. Closing has a time limit."""
    source = Script([STOP])
    monkeypatch.setattr(source, "aclose", close)
    if close is not refuse_to_close:
        monkeypatch.setattr(reading, "CLOSE_TIMEOUT", 0.0)
    with structlog.testing.capture_logs() as logs:
        async with opened(source) as events:
            told = story([event async for event in events])
    assert told[-1] == "done finished: stop (None)"
    assert ["source_not_closed"] == [entry["event"] for entry in logs]
    assert close is not refuse_to_close or logs[0]["error"] == "OSError"


async def test_an_exception_that_is_no_failure_ends_the_program() -> None:
    """A tool raises a BaseException that is no `Exception`."""

    class Interrupt(BaseException):
        pass

    async def wait() -> None:
        raise Interrupt

    source = Script([*texts(WAIT), STOP])

    async def run() -> None:
        async with opened(source, wait) as events:
            await read(events, [])

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.group_contains(Interrupt)
    assert source.closed == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stream_left_in_another_task_raises_advice(backend: str) -> None:
    """On trio, it would wait forever."""
    source = Script(texts("a"), hold=True)

    async def generate() -> AsyncGenerator[UIEvent, None]:
        async with opened(source) as events:
            async for event in events:
                yield event

    async def run() -> None:
        generator, has_read = generate(), anyio.Event()

        async def read() -> None:
            await anext(generator)
            has_read.set()
            await anyio.sleep_forever()

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(read)
                await has_read.wait()
                await generator.aclose()

    with pytest.raises(BaseException) as raised:  # noqa: PT011  # a group, to which the loop adds its own errors
        anyio.run(run, backend=backend)
    told = "".join(traceback.format_exception(raised.value))
    assert "ClosedError: a stream must be left in the task that entered it" in told
    assert "aclosing" in told
    assert "TimeoutError" not in told
    assert 1 == source.closed
