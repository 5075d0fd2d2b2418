"""Scenarios of runs that outlive their readers."""

from __future__ import annotations

import anyio

from streamtools import sources
from streamtools.runs import Run, Runs
from tests.torture.rack import Rack
from tests.torture.streams import Scenario
from tests.torture.tools import Tools, native, new_ids
from tests.torture.wires import Wire

READER = {"break": "none", "aclose-inside": "none"}  # blows to the reader do not affect the run


async def start_run(rack: Rack, runs: Runs) -> Run:
    """Start a run that blows may stop."""
    wire = Wire(rack, *native("think", "steps", text="a"))
    stream = rack.stream(sources.openai(wire), tools=Tools(rack)["think steps"], new_id=new_ids(), run_id="r")
    run = await runs.start(stream, owner="ann")
    rack.runs.append(run)
    rack.actions |= {"stop": run.stop, "close-runs": runs.aclose}
    return run


async def read_run(rack: Rack) -> None:
    """One reader, which may leave, and a wait for the end of the run."""
    async with Runs() as runs:
        run = await start_run(rack, runs)
        attached = run.attach()
        rack.actions["detach"] = attached.detach
        async with attached as events:
            await rack.read(events)
        await run.wait()


async def two_readers(rack: Rack) -> None:
    """Another reader reads one event, leaves, and continues from its position."""
    async with Runs() as runs:
        run = await start_run(rack, runs)

        async def leave_and_return() -> None:
            first = run.attach()
            async for _ in first:
                break
            async for _ in run.attach(first.position):
                pass

        async with anyio.create_task_group() as group:
            group.start_soon(leave_and_return, name="another reader")
            await run.wait()


async def unread(rack: Rack) -> None:
    """A run without a reader."""
    async with Runs() as runs:
        await (await start_run(rack, runs)).wait()


RUNS = [Scenario("run", read_run, effects=READER), Scenario("two-readers", two_readers), Scenario("unread", unread)]
