"""`ToolStream`: its events are those of its machine and of the tools, for any way of reading them."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from streamtools import Guards, StreamMachine, ToolRegistry, ToolStream, sources
from streamtools import events as kinds
from streamtools.errors import ClosedError, UnreadableSource
from streamtools.stream import event_buffer
from tests.support.bounds import stored
from tests.support.cases import together
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.options import PLACES, grouped
from tests.support.stories import Script, story, texts

ADD = '###:{"name":"add","arguments":{"a":1,"b":2}}'
WAIT = '###:{"name":"wait"}'
STOP = kinds.ProviderCompleted(finish_reason="stop", raw_finish_reason="stop")
TURN = kinds.ProviderCompleted(finish_reason="tool_calls", ends_run=False)


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def opened(source: Any, **options: Any) -> ToolStream:
    """A stream whose calls are c1, c2 and so on."""
    return ToolStream(source, run_id="r", **grouped(new_id=map("c{}".format, itertools.count(1)).__next__, **options))


async def collect(source: Any, taken: list[kinds.UIEvent] | None = None, **options: Any) -> list[kinds.UIEvent]:
    """Return all events of a run. Add each to `taken` when it arrives."""
    taken = [] if taken is None else taken
    async with opened(source, **options) as events:
        await read(events, taken)
    return taken


async def read(events: ToolStream, taken: list[kinds.UIEvent]) -> None:
    """Add all remaining events to `taken`."""
    async for event in events:
        taken.append(event)


def said(source: list[kinds.SourceEvent], **options: Any) -> list[kinds.UIEvent]:
    """Return the events of a machine."""
    machine = StreamMachine(new_id=map("c{}".format, itertools.count(1)).__next__, run_id="r", **options)
    return [each for event in source for each in machine.feed(event)] + machine.close()


# Events.

RUNS: dict[str, list[kinds.SourceEvent]] = {
    "text": [*texts("a", "##", " b"), STOP],
    "a call": [*texts("a ", *ADD, " b"), kinds.SourceUsage(kinds.Usage(input=3)), STOP],
    "two turns": [*texts(ADD), TURN, *texts(ADD[:9]), TURN, kinds.ChainCompleted("u")],
    "an error": [*texts("a", ADD[:9]), kinds.SourceError("no", status=500), *texts("b"), STOP],
    "no end": texts("a ", ADD),
    "nothing": [],
}


@together("source", RUNS.values(), ids=RUNS)
async def test_a_stream_without_tools_yields_the_events_of_its_machine(source: list[kinds.SourceEvent]) -> None:
    """With the same numbers, in batches or one by one."""
    expected = said(source)
    for script in (Script(source), Script(*([event] for event in source), []), sources.events(source)):
        assert expected == await collect(script)
    assert expected == await collect(Script(tuple(source)), execute="never", tools=[add])
    assert expected == await collect(Script(source), dialects=["hash_marker", "tilde_fence"])


async def test_calls_run_at_the_end_of_their_turn() -> None:
    """Their events precede the end of the step and the next turn. The numbers have no gap."""
    read: list[int] = []

    def wait() -> str:
        read.append(source.read)
        return "waited"

    source = Script(texts("So: " + ADD), texts(WAIT, "."), [TURN], [*texts("3."), STOP])
    events = await collect(source, tools=[add, wait])

    assert story(events) == [
        *("start", "step 1", "text 'So: '", "thinking c1", "c1 is add", "call c1", "not thinking c1"),
        *("thinking c2", "c2 is wait", "call c2", "not thinking c2", "text '.'"),
        *sorted(line for line in story(events) if line.startswith("executing")),
        *[line for line in story(events) if line.startswith("executed")],
        *("step 1 ends: tool_calls", "step 2", "text '3.'", "step 2 ends: stop", "done finished: stop (stop)"),
    ]
    assert {"executed c1: 3.0", "executed c2: waited"} < set(story(events))
    assert read == [3]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def sleep() -> None:
    await anyio.sleep_forever()


async def test_without_tools_calls_are_pending() -> None:
    """With an empty registry, each call is an unknown tool."""
    assert "done finished: stop (stop), pending c1" == story(await collect(Script([*texts(ADD), STOP])))[-1]
    told = story(await collect(Script([*texts(ADD), STOP]), tools=()))
    assert ["executing c1", "error c1 unknown_tool"] == told[-4:-2]
    assert ["error c1 unknown_tool"] == story(await collect(Script([*texts(ADD), STOP]), tools=ToolRegistry()))[-3:-2]


# Eager execution.


async def test_eager_tools_run_while_the_stream_continues() -> None:
    """The stream waits for them at the end of the step."""
    called, gate = anyio.Event(), anyio.Event()

    async def wait() -> str:
        called.set()
        await gate.wait()
        return "waited"

    source = Script(texts(WAIT), called, texts("a ", ADD), [STOP])
    lines: list[str] = []
    async with opened(source, tools=[wait, add], execute="eager", native_tool_calls=False) as events:
        async for event in events:
            lines += story([event])
            if isinstance(event, kinds.Executed) and not gate.is_set():
                await anyio.wait_all_tasks_blocked()  # the whole source has been read, and the step is still open
                assert not [line for line in lines if "ends" in line]
                gate.set()
    assert [line for line in lines if line.startswith(("exec", "text", "step", "done"))] == [
        *("step 1", "executing c1", "text 'a '", "executing c2", "executed c2: 3.0", "executed c1: waited"),
        *("step 1 ends: stop", "done finished: stop (stop)"),
    ]
    assert ["c1", "c2"] == [outcome.call.id for outcome in events.result.outcomes]


# Consumers.

SOURCE = [*texts("a ", *ADD, "\n"), TURN, *texts("b"), STOP]


def gated(*items: kinds.SourceEvent) -> Script:
    """A source whose batches are one event each, with a pause before each of them."""
    return Script(*([item] for item in items))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_read_with_asyncio_wait_for_loses_no_event() -> None:
    """The read runs in another task."""
    taken: list[kinds.UIEvent] = []
    given_up = 0
    async with opened(gated(*SOURCE), tools=[add]) as events:
        while not (taken and isinstance(taken[-1], kinds.Done)):
            try:
                taken.append(await asyncio.wait_for(anext(events), 0.0001))
            except TimeoutError:
                given_up += 1
    assert story(taken) == story(await collect(gated(*SOURCE), tools=[add]))

    gate = anyio.Event()
    async with opened(Script(gate, [STOP])) as events:
        await anext(events)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(events), 0.0001)
        gate.set()
        assert story([event async for event in events])[-1] == "done finished: stop (stop)"


async def test_two_consumers_share_the_events() -> None:
    """Each event is read by one of them, and both end."""
    taken: list[kinds.UIEvent] = []
    ended = 0

    async def share(events: ToolStream) -> None:
        nonlocal ended
        async for event in events:
            taken.append(event)
            await anyio.lowlevel.checkpoint()
        ended += 1

    async with opened(gated(*SOURCE), tools=[add]) as events, anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(share, events)
    assert ended == 2
    assert sorted(event.seq for event in taken) == list(range(1, len(taken) + 1))
    assert sorted(story(taken)) == sorted(story(await collect(gated(*SOURCE), tools=[add])))


LARGE = "a" * 256 * 1024


class Endless(Script):
    """Yields the same text without end."""

    def __init__(self, text: str, makes: Callable[[str], kinds.SourceEvent] = kinds.TextDelta) -> None:
        super().__init__()
        self._event = makes(text)

    async def __anext__(self) -> list[kinds.SourceEvent]:
        """Return one event."""
        await anyio.lowlevel.checkpoint()
        self.read += 1
        return [self._event]


async def test_a_slow_consumer_slows_the_provider() -> None:
    """The buffer is bounded. The source is read again after the consumer has read events."""

    source = Endless("a")
    async with opened(source) as events:
        await anyio.wait_all_tasks_blocked()
        before = source.read
        assert before <= event_buffer.MAX_EVENTS
        for _ in range(event_buffer.MAX_EVENTS // 4):
            await anext(events)
        await anyio.wait_all_tasks_blocked()
        assert before == source.read
        for _ in range(event_buffer.MAX_EVENTS // 2):
            await anext(events)
        await anyio.wait_all_tasks_blocked()
        assert before < source.read <= 2 * event_buffer.MAX_EVENTS


async def test_a_slow_consumer_slows_the_tools() -> None:
    """This also holds for the progress of a tool that never ends. The numbers have no gap."""
    count = 0

    async def wait() -> AsyncIterator[int]:
        nonlocal count
        while True:
            count += 1
            yield count

    source = Script([*texts(WAIT, "\n", WAIT, "\n", ADD), STOP])
    async with opened(source, tools=[wait, add], tool_timeout=600) as events:
        await anyio.wait_all_tasks_blocked()
        assert count <= event_buffer.MAX_EVENTS + 2
        seqs = [(await anext(events)).seq for _ in range(5000)]
        assert count < 5000 + event_buffer.MAX_EVENTS + 2
    assert list(range(1, 5001)) == seqs


@OTHER_LOOP_DEEP
async def test_large_events_slow_the_provider() -> None:
    """The buffer is also bounded in bytes. It has room after half of the events have been read."""
    source, most = Endless(LARGE), event_buffer.MAX_BYTES
    async with opened(source, guards=Guards(size=None)) as events:
        await anyio.wait_all_tasks_blocked()
        before = source.read
        assert most <= sum(map(kinds.weigh, events._buffer._events)) <= most + len(LARGE) + 1000
        buffered = len(events._buffer._events)
        for _ in range(buffered // 2):
            await anext(events)
        await anyio.wait_all_tasks_blocked()
        assert before == source.read
        await anext(events)
        await anyio.wait_all_tasks_blocked()
        assert before < source.read
        assert most <= sum(map(kinds.weigh, events._buffer._events)) <= most + len(LARGE) + 1000
        assert sum(map(kinds.weigh, events._take_ready())) <= max(kinds.BATCH_BYTES, len(LARGE)) + 64
        seqs = [(await anext(events)).seq for _ in range(50)]
        assert list(range(seqs[0], seqs[0] + 50)) == seqs


async def test_a_large_text_reaches_the_size_limit_immediately() -> None:
    """Events are usually collected in batches."""
    source = Endless(LARGE)
    async with opened(source, guards=Guards(size=10 * len(LARGE))) as events:
        last = [event async for event in events][-1]
    assert "stopped" == getattr(last, "reason", None)
    assert 11 == source.read
    assert stored(events.result.text) <= 11 * len(LARGE)


async def test_large_progress_slows_the_tools() -> None:
    """Progress counts in the buffer."""
    told = 0

    async def wait() -> AsyncIterator[str]:
        nonlocal told
        while True:
            told += 1
            yield LARGE

    async with opened(Script([*texts(WAIT), STOP]), tools=[wait], tool_timeout=600) as events:
        await anyio.wait_all_tasks_blocked()
        assert told <= event_buffer.MAX_BYTES // len(LARGE) + 1
        while not isinstance(await anext(events), kinds.Progress):
            pass


@pytest.mark.parametrize("makes", [kinds.TextDelta, kinds.ReasoningDelta])
async def test_the_size_limit_stops_the_run(makes: Callable[[str], kinds.SourceEvent]) -> None:
    """Whether its events are read quickly or not."""

    source = Endless("a" * 1000, makes)
    async with opened(source, guards=Guards(size=1_000_000)) as events:
        told = [event async for event in events]
    done = told[-1]
    assert isinstance(done, kinds.Done)
    assert ("stopped", "size_limit") == (done.reason, done.finish_reason)
    assert 1000 <= source.read <= 1000 + 2 * 256
    assert 1 == source.closed


# Mistakes of callers.


async def test_an_object_that_is_no_source_is_refused() -> None:
    """The message says how to make a source."""
    for wrong in ([STOP], None, "text", b"data: 1\n\n"):
        with pytest.raises(UnreadableSource, match=r"must be a source, got .*: make one with `streamtools\.sources`"):
            opened(wrong)


async def test_a_source_without_lists_of_events_fails_the_run() -> None:
    """The mistake is raised to the consumer after the last event."""

    async def words() -> AsyncIterator[str]:
        yield "text"

    wrong: list[tuple[Any, str]] = [
        (words(), "a source must yield lists of source events, got str: make a source with `streamtools.sources`"),
        (Script([*texts("a"), "b"]), "<class 'str'> is not a source event"),  # type: ignore[list-item]
        (sources.openai(["data: 1\n\n"]), "a stream of bytes"),
    ]
    for source, message in wrong:
        events: list[kinds.UIEvent] = []
        with pytest.raises(UnreadableSource, match=message):
            await collect(source, events)
        assert ["error stream_interrupted", "done failed: None (None)"] == [
            line for line in story(events) if not line.startswith(("start", "step", "text"))
        ]


class Broken(Exception):
    """An exception of a custom source."""


async def test_an_exception_of_the_source_is_raised_once_after_all_events() -> None:
    source = Script(texts("a ", ADD), Broken("down"))
    taken: list[kinds.UIEvent] = []
    async with opened(source, tools=[add]) as events:
        with pytest.raises(Broken, match="down"):
            await read(events, taken)
        assert [event async for event in events] == []
    assert ["error stream_interrupted", "step 1 ends: None", "done failed: None (None), pending c1"] == story(taken)[
        -3:
    ]
    assert source.closed == 1
    assert (events.result.reason, events.result.text) == ("failed", "a ")


async def test_an_exception_of_the_source_is_raised_on_exit() -> None:
    """Unless the block has raised another exception."""

    async def leave(*errors: Exception) -> None:
        async with opened(Script(Broken("down"))):
            await anyio.wait_all_tasks_blocked()
            for error in errors:
                raise error

    with pytest.raises(Broken):
        await leave()
    with pytest.raises(KeyError):
        await leave(KeyError())


async def test_an_exception_of_the_source_cancels_eager_tools() -> None:
    """Each call ends before the run."""

    async def wait() -> None:
        await anyio.sleep_forever()

    source = Script(texts(WAIT), Broken("down"))
    taken: list[kinds.UIEvent] = []
    with pytest.raises(Broken):
        await collect(source, taken, tools=[wait], execute="eager", native_tool_calls=False)
    assert story(taken)[-4:] == [
        *("error stream_interrupted", "error c1 tool_cancelled"),
        *("step 1 ends: None", "done failed: None (None)"),
    ]
    assert [event.seq for event in taken] == list(range(1, len(taken) + 1))


async def test_a_stream_is_entered_once() -> None:
    """Not twice, at the same time or one after the other."""
    run = opened(Script([STOP]))
    async with run:
        with pytest.raises(ClosedError, match="entered only once"):
            await run.__aenter__()
    with pytest.raises(ClosedError, match="entered only once"):
        await run.__aenter__()


async def test_a_stream_is_read_inside_its_block() -> None:
    with pytest.raises(ClosedError, match="enter the stream"):
        await anext(opened(Script()))


async def test_a_stream_without_a_reader_leaves_nothing_behind() -> None:
    """No task, no warning, and no open source."""
    opened(Script([STOP]))
    opened(sources.openai(STREAM))
    for source in (Script(texts("a")), Script(hold=True), Script(texts(WAIT), [STOP])):
        async with opened(source, tools=[sleep]):
            pass
        assert source.closed == 1
    gc.collect()
    await anyio.lowlevel.checkpoint()
    assert [task.name for task in anyio.get_running_tasks() if "_produce" in str(task.name)] == []


STREAM = [b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n', b"data: [DONE]\n\n"]


WRONG: dict[str, dict[str, Any]] = {
    "no tools at a time": {"concurrency": 0},
    "tools without a bound": {"concurrency": None},
    "no time for tools": {"tool_timeout": 0},
    "a time that is a text": {"tool_timeout": "3"},
    "a result of no length": {"result_limit": 0},
    "guards as a dict": {"guards": {"calls": 1}},
    "limits as a dict": {"limits": {"calls": 1}},
    "ids that nobody makes": {"new_id": "c1"},
    "a word for a flag": {"native_tool_calls": "no"},
}


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "a tool that there is not": {"tool_choice": "subtract", "tools": [add]},
    "required without tools": {"tool_choice": "required"},
    "required and eager": {"tool_choice": "required", "tools": [add], "execute": "eager"},
    "what is no choice": {"tool_choice": 5},
    "what is no way to execute": {"execute": "often"},
    "what is no dialect": {"dialects": "morse"},
    "what is no policy": {"after_call": "cheer"},
}


@together("options", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_tool_choice_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        opened(Script(), **options)


@together("options", WRONG.values(), ids=WRONG)
def test_wrong_values_are_refused_before_reading(options: dict[str, Any]) -> None:
    """The message names the parameter."""
    (name,) = options
    with pytest.raises((TypeError, ValueError), match=f"{PLACES.get(name, ('', name))[1]} (is|must be) "):
        ToolStream(Script(), **grouped(**options))
