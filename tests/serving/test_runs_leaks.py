"""Runs and their readers leave no resources:

tasks, open files, objects and memory. The tolerances are smaller than one small object for each of a thousand cycles.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import anyio.lowlevel
import pytest

from streamtools import replay
from streamtools.events import Done, Text, UIEvent
from streamtools.recording import shipped
from streamtools.runs import Runs
from tests.serving.test_runs import held, read
from tests.serving.test_runs_faults import giving

pytestmark = pytest.mark.deep

OBJECTS = 200
BLOCKS = 1_000
BYTES = 64_000


class Left(NamedTuple):
    """Resources at one moment."""

    tasks: int
    files: int
    objects: int
    blocks: int
    bytes: int  # 0 where they are not traced, which takes half of the time


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def count() -> Left:
    """Count the resources after a garbage collection."""
    for _ in range(3):
        gc.collect()
    tasks, files = len(anyio.get_running_tasks()), len(list(Path("/dev/fd").iterdir()))
    return Left(tasks, files, len(gc.get_objects()), sys.getallocatedblocks(), tracemalloc.get_traced_memory()[0])


def assert_flat(before: Left, after: Left) -> None:
    """Fail if there are more resources than before."""
    assert (before.tasks, before.files) == (after.tasks, after.files)
    assert after.objects <= before.objects + OBJECTS
    assert after.blocks <= before.blocks + BLOCKS
    assert after.bytes <= before.bytes + BYTES


@pytest.mark.usefixtures("traced")
async def test_a_thousand_readers_come_and_go() -> None:
    """They leave after one event, while they wait, by `break` and by another task."""
    async with Runs() as runs:
        run = await runs.start(held("a", "b"), owner="ann")

        async def come_and_go(number: int) -> None:
            match number % 4:
                case 0:
                    async with run.attach() as events:
                        await anext(events)
                case 1:
                    async for event in run.attach():
                        if isinstance(event, Text):
                            break
                case 2:
                    with anyio.CancelScope() as scope:
                        scope.cancel()
                        await read(run.attach(4))
                case _:
                    async with anyio.create_task_group() as group:
                        events = run.attach(4)
                        group.start_soon(read, events)
                        await anyio.lowlevel.checkpoint()
                        await events.detach()

        for number in range(100):
            await come_and_go(number)
        before = count()
        for number in range(1000):
            await come_and_go(number)
        assert_flat(before, count())
        await run.stop()


@pytest.mark.usefixtures("traced")
async def test_hundreds_of_runs_with_files() -> None:
    """Each opens a recording. Some are read, some are stopped, some are ignored."""
    path = shipped()["no-call"]
    async with Runs(max_kept=10) as runs:

        async def one(number: int) -> None:
            run = await runs.start(replay(path), owner=f"owner {number}")
            if number % 3 == 0:
                await read(run.attach())
            if number % 3 == 1:
                await run.stop()
            await run.wait()

        for number in range(30):
            await one(number)
        before = count()
        for number in range(30, 300):
            await one(number)
        assert_flat(before, count())


async def test_forgotten_runs_cost_nothing() -> None:
    events: list[UIEvent] = [Text("a" * 100), Done("finished", None, None, [])]
    async with Runs(max_kept=10) as runs:
        for number in range(2_000):
            if number == 100:
                before = count()
            run = await runs.start(giving(*events), owner="ann")
            await run.wait()
        assert_flat(before, count())
        assert len(runs._expiring) < 200
