"""Connections that break and return: each reader gets the missing events once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ToolStream, coalesce, replay
from streamtools.errors import Code
from streamtools.events import Done, ProviderCompleted, UIEvent, Warning
from streamtools.recording import shipped
from streamtools.runs import MemoryEventLog, Run, Runs
from tests.serving.test_runs import read
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.stories import Script, texts

QUICK = ("cut-call", "no-call", "two-tools")
EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in sorted(shipped())]
"""The recordings, most of them for the deep tests."""


def get_weather(city: str) -> dict[str, str]:
    """Return the weather."""
    return {"message": f"Rain in {city}"}


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


TOOLS: list[Callable[..., Any]] = [get_weather, add]
STOP = ProviderCompleted(finish_reason="stop")


async def resume(run: Run, drops: Sequence[int]) -> list[UIEvent]:
    """Read a run over a connection that breaks after so many events, then so many more."""
    taken: list[UIEvent] = []
    for drop in drops:
        async with run.attach(taken[-1].seq if taken else 0) as events:
            for _ in range(drop):
                event = await anext(events, None)
                if event is None:
                    return taken
                taken.append(event)
    return await read(run.attach(taken[-1].seq if taken else 0), taken)


@pytest.mark.parametrize("name", EACH)
@OTHER_LOOP_DEEP
async def test_dropped_after_each_event(name: str) -> None:
    """The run has the events of its stream. The two parts are the whole, during the run and after its end."""
    async with Runs() as runs:
        first = await runs.start(replay(shipped()[name], tools=TOOLS), owner="ann")
        whole = await read(first.attach())
        assert coalesce(await replay(shipped()[name], tools=TOOLS)) == coalesce(whole)
        stride = 1 + len(whole) // 40
        for k in range(len(whole) + 1):
            assert whole == await resume(first, [k])
            if k % stride == 0:
                run = await runs.start(replay(shipped()[name], tools=TOOLS), owner="ann")
                live = await resume(run, [k])
                assert coalesce(whole) == coalesce(live)
                assert [event.seq for event in whole] == [event.seq for event in live]
        assert whole == await resume(first, [1] * (len(whole) + 1))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(
    pieces=st.lists(st.lists(st.text("ab #:\n", min_size=1), min_size=1), min_size=1, max_size=8),
    drops=st.lists(st.lists(st.integers(0, 9), max_size=6), min_size=1, max_size=3),
)
def test_several_readers_resume(backend: str, pieces: list[list[str]], drops: list[list[int]]) -> None:
    """All of them have the same events in the end."""

    async def run_it() -> None:
        taken: list[list[UIEvent]] = [[] for _ in drops]
        gates = [anyio.Event() for _ in pieces]
        batches = [each for piece, gate in zip(pieces, gates, strict=True) for each in (gate, texts(*piece))]

        async def follow(place: int) -> None:
            taken[place] += await resume(run, drops[place])

        async with Runs() as runs:
            run = await runs.start(ToolStream(Script(*batches, [STOP])), owner="ann")
            async with anyio.create_task_group() as group:
                for place in range(len(drops)):
                    group.start_soon(follow, place)
                for gate in gates:
                    for _ in drops:
                        await anyio.lowlevel.checkpoint()
                    gate.set()
            whole = await read(run.attach())
        assert all(whole == each for each in taken)
        assert list(range(1, len(whole) + 1)) == [event.seq for event in whole]
        assert isinstance(whole[-1], Done)

    anyio.run(run_it, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(most=st.integers(1, 20), count=st.integers(1, 40), after=st.integers(-2, 50))
def test_any_position_of_a_short_log(backend: str, most: int, count: int, after: int) -> None:
    """Dropped events are replaced by one warning, which has the seq of the last one. The rest has no gap."""

    async def run_it() -> None:
        async with Runs(MemoryEventLog(max_events=most)) as runs:
            run = await runs.start(ToolStream(Script([*texts(*"x" * count), STOP])), owner="ann")
            await run.wait()
            last = count + 4
            dropped = (await read(run.attach(-1)))[0].seq
            assert dropped - max(last - most, 0) in range(most // 8 + 1)
            events = await read(run.attach(after))
            if dropped <= after <= last:
                assert list(range(after + 1, last + 1)) == [event.seq for event in events]
            else:
                warning = events.pop(0)
                assert isinstance(warning, Warning)
                assert (Code.RESYNC, dropped) == (warning.code, warning.seq)
                assert list(range(dropped + 1, last + 1)) == [event.seq for event in events]

    anyio.run(run_it, backend=backend)
