"""Runs: driven without readers, read by several, stopped by others, found by their owners alone."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import pytest

from streamtools import ToolStream
from streamtools.errors import ClosedError
from streamtools.events import Done, ProviderCompleted, Start, StepStart, Text, UIEvent
from streamtools.outputs import validate
from streamtools.runs import Run, Runs
from tests.support.stories import Script, WaitingTool, story, texts

WAIT = '###:{"name":"wait"}'
STOP = ProviderCompleted(finish_reason="stop")


def held(*deltas: str) -> ToolStream:
    """A stream with these texts that does not end."""
    return ToolStream(Script(*(texts(each) for each in deltas), hold=True))


async def read(events: AsyncIterator[UIEvent], taken: list[UIEvent] | None = None) -> list[UIEvent]:
    """Return all events to the end, also in `taken`. Checks their order."""
    taken = [] if taken is None else taken
    async for event in events:
        taken.append(event)
    is_whole = [event.seq for event in taken] == list(range(1, len(taken) + 1))
    if is_whole and {Start, StepStart, Done} <= {type(event) for event in taken}:
        validate(taken)
    return taken


async def test_a_run_without_readers_finishes() -> None:
    """Later readers get all of its events."""
    looked = anyio.Event()
    async with Runs() as runs:
        run = await runs.start(ToolStream(Script(looked, [*texts("a", "b"), STOP]), run_id="r"), owner="ann")
        assert ("r", "ann", False, None) == (run.id, run.owner, run.ended, run.result.reason)
        looked.set()
        result = await run.wait()
        assert run.ended
        assert ("ab", "finished", result) == (result.text, result.reason, run.result)
        told = ["start", "step 1", "text 'a'", "text 'b'", "step 1 ends: stop", "done finished: stop (None)"]
        for _ in range(2):
            assert told == story(await read(run.attach()))
        assert run is await runs.find("r", owner="ann")
        assert "<Run r ended>" == repr(run)
        assert 0 == runs.running


async def test_a_stream_that_is_started_twice_goes_on() -> None:
    """The second `start` raises, and does not close the stream that the first run reads."""
    gate = anyio.Event()
    stream = ToolStream(Script(texts("a"), gate, [*texts("b"), STOP]))
    async with Runs() as runs:
        run = await runs.start(stream, owner="ann")
        with pytest.raises(ValueError, match=run.id):
            await runs.start(stream, owner="ann")
        gate.set()
        assert ("ab", "finished") == ((await run.wait()).text, run.result.reason)


async def test_a_stream_that_was_entered_is_refused() -> None:
    """The code that entered it can still read it to its end."""
    async with Runs() as runs, ToolStream(Script([*texts("a"), STOP])) as entered:
        with pytest.raises(ClosedError, match="Make a new one"):
            await runs.start(entered, owner="ann")
        assert 0 == runs.running
        assert ("a", "finished") == ((await entered).text, entered.result.reason)


async def test_detach_does_not_stop_the_run() -> None:
    """The run continues to its end, and can be read from the same position."""
    gate = anyio.Event()
    tool_ran = list[str]()

    def note() -> str:
        tool_ran.append("ran")
        return "noted"

    source = Script(texts("a "), gate, [*texts('###:{"name":"note"}'), STOP])
    async with Runs() as runs:
        run = await runs.start(ToolStream(source, tools=[note]), owner="ann")
        async with run.attach() as events:
            first = [await anext(events), await anext(events), await anext(events)]
        assert [] == await read(events)
        assert not run.ended
        gate.set()
        await run.wait()
        rest = await read(run.attach(events.position))

    assert ["ran"] == tool_ran
    assert list(range(1, len(first) + len(rest) + 1)) == [event.seq for event in first + rest]
    assert "done finished: stop (None)" == story(rest)[-1]
    assert 1 == source.closed


async def test_detach_ends_waiting_reads() -> None:
    """A waiting read of that attachment ends; other attachments continue."""
    one_read, other_read = list[UIEvent](), list[UIEvent]()
    async with Runs() as runs, anyio.create_task_group() as group:
        run = await runs.start(held("a"), owner="ann")
        one, other = run.attach(), run.attach()
        ended = anyio.Event()

        async def follow() -> None:
            await read(one, one_read)
            ended.set()

        group.start_soon(follow)
        group.start_soon(read, other, other_read)
        await anyio.wait_all_tasks_blocked()
        await one.detach()
        await ended.wait()
        await one.aclose()
        assert not run.ended
        await run.stop()

    assert ["start", "step 1", "text 'a'"] == story(one_read)
    assert "done cancelled: None (None)" == story(other_read)[-1]


async def test_stop_ends_a_run_for_all_its_readers() -> None:
    """The tool is cancelled, the response is closed when `stop` returns, and all readers get `done`."""
    tool, source = WaitingTool(), Script([*texts("a ", WAIT), STOP], hold=True)
    taken = [list[UIEvent]() for _ in range(3)]
    async with Runs() as runs:
        run = await runs.start(ToolStream(source, tools=[tool.wait]), owner="ann")
        async with anyio.create_task_group() as group:
            for each in taken:
                group.start_soon(read, run.attach(), each)
            await tool.running.wait()
            found = await runs.find(run.id, owner="ann")
            await found.stop()
            assert (1, 1, True) == (tool.stopped, source.closed, run.ended)
        await run.stop()

    assert taken[0] == taken[1] == taken[2]
    assert "done cancelled: stop (None)" == story(taken[0])[-1]
    assert any(line.endswith("tool_cancelled") for line in story(taken[0]))
    assert ("cancelled", "a ") == (run.result.reason, run.result.text)
    assert "cancelled" in run.result.messages()[-1]["content"]


async def test_stop_before_the_start() -> None:
    """The stream is closed, and the run has a start and an end."""
    source = Script(texts("a"), hold=True)
    async with Runs() as runs:
        run = await runs.start(ToolStream(source), owner="ann")
        await run.stop()
        events = await read(run.attach())

    assert 1 == source.closed
    assert ["start", "done cancelled: None (None)"] == [line for line in story(events) if "step" not in line]


async def test_a_long_read_yields_to_other_tasks() -> None:
    """A long read yields to other tasks, and a cancellation takes nothing."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with Runs() as runs:
        run = await runs.start(ToolStream(Script(texts(*"x" * 2000), [STOP])), owner="ann")
        await run.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(count)
            whole = await read(run.attach())
            group.cancel_scope.cancel()
        assert 3 < turns < 20

        taken = list[UIEvent]()
        events = run.attach()
        with anyio.CancelScope() as scope:
            while True:
                taken.append(await anext(events))
                scope.cancel()
        assert 255 == len(taken)
        assert whole == await read(events, taken)


async def test_a_tool_may_stop_its_own_run() -> None:
    """The tool is cancelled with the run."""
    found = list[Run]()

    async def wait() -> None:
        await found[0].stop()

    async with Runs() as runs:
        found.append(await runs.start(ToolStream(Script([*texts(WAIT), STOP]), tools=[wait]), owner="ann"))
        assert "cancelled" == (await found[0].wait()).reason


async def test_a_cancelled_stop_still_stops_the_run() -> None:
    """The run stops nevertheless."""
    async with Runs() as runs:
        run = await runs.start(held("a"), owner="ann")
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await run.stop()
        assert scope.cancelled_caught
        assert "cancelled" == (await run.wait()).reason


async def test_abandoned_runs_are_stopped() -> None:
    """They stop some time after the last reader left, or after the start."""
    tool = WaitingTool()
    async with Runs(stop_when_abandoned=0) as runs:
        lonely = await runs.start(held("a"), owner="ann")
        assert "cancelled" == (await lonely.wait()).reason
        run = await runs.start(ToolStream(Script([*texts(WAIT), STOP]), tools=[tool.wait]), owner="ann")
        one, other = run.attach(), run.attach()
        await tool.running.wait()
        await one.detach()
        await anyio.wait_all_tasks_blocked()
        assert not run.ended
        async with other:
            assert isinstance(await anext(other), Start)
        assert "cancelled" == (await run.wait()).reason
        assert 1 == tool.stopped


async def test_a_collected_reader_has_left() -> None:
    """It counts as left when it is collected, in any thread."""
    async with Runs(stop_when_abandoned=0) as runs:
        run = await runs.start(held("a"), owner="ann")
        async for event in run.attach():
            if isinstance(event, Text):
                break
        gc.collect()
        assert "cancelled" == (await run.wait()).reason

        gate = anyio.Event()
        source = Script(texts("a"), gate, texts("b"), hold=True)
        run = await runs.start(ToolStream(source), owner="ann")
        kept = [run.attach()]
        await anext(kept[0])
        await anyio.to_thread.run_sync(kept.clear)
        gate.set()
        assert "cancelled" == (await run.wait()).reason


async def test_a_reader_that_returns_keeps_its_run() -> None:
    async with Runs(stop_when_abandoned=3600) as runs:
        run = await runs.start(held("a"), owner="ann")
        for after in range(3):
            async with run.attach(after) as events:
                await anext(events)
        await anyio.wait_all_tasks_blocked()
        assert not run.ended
