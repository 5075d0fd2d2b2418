"""Many readers of one run: the bytes that they receive."""

from __future__ import annotations

import anyio

from streamtools import ToolStream, outputs
from streamtools.events import ProviderCompleted, Start, StepStart, Text, TextDelta
from streamtools.outputs.sse import KEEP_ALIVE, NativeEncoder
from streamtools.runs import Runs
from streamtools.serving.event_response import event_stream_response
from tests.support.serving import Exchange
from tests.support.stories import Script

STOP = ProviderCompleted(finish_reason="stop")


async def test_five_hundred_readers_get_the_same_bytes() -> None:
    holds = [anyio.Event() for _ in range(5)]
    source = Script(*(item for number, hold in enumerate(holds) for item in (hold, [TextDelta(f"{number} ")])), [STOP])
    exchanges = [Exchange() for _ in range(500)]
    async with Runs() as runs:
        run = await runs.start(ToolStream(source, run_id="r"), owner="u")
        async with anyio.create_task_group() as group:
            for each in exchanges:
                response = event_stream_response(run)
                group.start_soon(response, each.scope, each.receive, each.send)
            for hold in holds:
                await anyio.wait_all_tasks_blocked()
                hold.set()
            with anyio.fail_after(20):
                await run.wait()
        events = [event async for event in run.attach()]

    assert 5 == len([event for event in events if isinstance(event, Text)])
    whole = b"".join(map(NativeEncoder().encode, events))
    assert {whole} == {b"".join(each.chunks) for each in exchanges}


async def test_readers_at_different_positions() -> None:
    """Each gets the bytes after its position, while others read."""
    hold = anyio.Event()
    source = Script(*([TextDelta(f"{number} ")] for number in range(20)), hold, [TextDelta("end")], [STOP])
    first, *others = [Exchange() for _ in range(23)]
    async with Runs() as runs:
        run = await runs.start(ToolStream(source, run_id="r"), owner="u")
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as group:
            for after, each in enumerate([first, *others]):
                response = event_stream_response(run, after=after)
                group.start_soon(response, each.scope, each.receive, each.send)
            await anyio.wait_all_tasks_blocked()
            hold.set()
        events = [event async for event in run.attach()]

    assert [Start, StepStart] == [type(event) for event in events[:2]]
    frames = [outputs.native().encode(event) for event in events]
    for after, each in enumerate([first, *others]):
        assert b"".join(frames[after:]) == b"".join(each.chunks).removeprefix(KEEP_ALIVE)
