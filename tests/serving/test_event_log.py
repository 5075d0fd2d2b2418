"""The event log in memory: which events it keeps, and how readers read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools.errors import Code
from streamtools.events import BATCH_BYTES, Done, Progress, Raw, Text, UIEvent, Warning, weigh
from streamtools.runs import MemoryEventLog, Runs, log_key
from tests.serving.test_runs import held
from tests.serving.test_runs import read as read_run
from tests.support.log_laws import EventLog, MemoryLog, assert_log_laws
from tests.support.stories import story


async def write(log: EventLog, key: str, first: int, last: int, *, done: bool = False) -> list[UIEvent]:
    """Append texts with these seqs, and `done` if requested, and return them."""
    events: list[UIEvent] = [Text(f"{seq} ", seq=seq) for seq in range(first, last + 1)]
    if done:
        events.append(Done("finished", None, None, [], seq=last + 1))
    for event in events:
        assert event.seq == await log.append(key, event)
    return events


async def read(events: AsyncIterator[UIEvent]) -> list[UIEvent]:
    """Return all events to the end."""
    return [event async for event in events]


def ids(events: Sequence[UIEvent]) -> list[int | str]:
    """Return the seqs of events, and the codes of warnings."""
    return [f"{event.code} {event.seq}" if isinstance(event, Warning) else event.seq for event in events]


async def test_the_log_keeps_the_laws() -> None:
    await assert_log_laws(lambda: nullcontext(MemoryLog()))


async def test_an_event_without_a_seq() -> None:
    """It is refused and not kept."""
    log = MemoryLog()
    with pytest.raises(ValueError, match="from 1"):
        await log.append("a", Text("x"))

    assert 0 == len(log)


async def test_several_events_wake_a_reader_once() -> None:
    """Several appended events wake it once."""
    log, wakes = MemoryLog(), list[int]()
    await write(log, "a", 1, 1)
    reader = log.read("a")

    async def follow() -> None:
        async for _ in reader:
            taken = 1
            while reader.take() is not None:
                taken += 1
            wakes.append(taken)

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        await write(log, "a", 2, 1001)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()

    assert [1, 1000] == wakes


@pytest.mark.parametrize(("most", "kept"), [(1, 1), (2, 2), (7, 7), (8, 7), (64, 56)])
async def test_the_last_events_are_kept(most: int, kept: int) -> None:
    """As many as allowed, or an eighth fewer. Older positions get one warning."""
    log = MemoryLog(max_events=most)
    events = await write(log, "a", 1, most + 1)
    dropped = most + 1 - kept

    for after in range(most + 1):
        reader = log.read("a", after)
        expected: list[int | str] = [event.seq for event in events[max(after, dropped) :]]
        if after < dropped:
            expected.insert(0, f"resync {dropped}")
        assert expected == ids([await anext(reader) for _ in expected])
        assert reader.take() is None


@pytest.mark.parametrize(("events", "most", "kept"), [(50_000, 1170, 9), (5, 1170, 5), (50_000, 99, 1), (50_000, 1, 1)])
async def test_the_last_bytes_are_kept(events: int, most: int, kept: int) -> None:
    """As many events as fit, or an eighth less, but at least the last."""
    log = MemoryLog(max_events=events, max_bytes=most)
    for seq in range(100, 130):
        event = Progress("c", "", seq=seq)
        assert 117 == weigh(event)
        await log.append("a", event)

    reader = log.read("a")
    assert [f"resync {129 - kept}", *range(130 - kept, 130)] == ids([await anext(reader) for _ in range(kept + 1)])
    assert reader.take() is None


async def test_sizes_are_those_in_memory() -> None:
    """One byte for an ASCII character, four in a text with an emoji."""
    log = MemoryLog(max_bytes=40_000)
    for seq in range(1, 400):
        await log.append("a", Text("\U0001f600" * 100, seq=seq))

    reader = log.read("a")
    assert Code.RESYNC is getattr(await anext(reader), "code", None)
    kept = [*reader.take_ready(), *reader.take_ready()]
    assert 32 <= len(kept) <= 40_000 // 464 + 33
    assert 399 == kept[-1].seq


@pytest.mark.parametrize("most", [None, 2**24])
@pytest.mark.parametrize(("length", "taken"), [(100, 64), (16_000, 16), (BATCH_BYTES, 1), (2**20, 1)])
async def test_the_size_of_batches_is_limited(length: int, taken: int, most: int | None) -> None:
    """It takes at most 64 events, and at most 256 KiB or one event."""
    log = MemoryLog(max_bytes=most)
    for seq in range(1, 200 if length < BATCH_BYTES else 13):
        await log.append("a", Text("x" * length, seq=seq))

    reader = log.read("a")
    reader.take()
    assert [*range(2, 2 + taken)] == ids(reader.take_ready())
    rest = 0
    while more := reader.take_ready():
        assert sum(map(weigh, more[1:])) <= BATCH_BYTES
        rest += len(more)
    assert seq == 1 + taken + rest


async def test_an_event_of_unknown_size() -> None:
    """It is kept, and counts as four kilobytes."""
    log = MemoryLog(max_bytes=10_000)
    for seq in range(100, 110):
        await log.append("a", Raw(object(), seq=seq))

    reader = log.read("a")
    assert ["resync 107", 108, 109] == ids([await anext(reader) for _ in range(3)])
    assert reader.take() is None


async def test_a_log_that_starts_during_a_run() -> None:
    """Earlier events count as dropped."""
    log = MemoryLog()
    await write(log, "a", 4, 5, done=True)

    assert ["resync 3", 4, 5, 6] == ids(await read(log.read("a")))
    assert [4, 5, 6] == ids(await read(log.read("a", 3)))


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_log_keys_are_unique(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Also if their names contain separators."""
    assert (one == other) == (log_key(*one) == log_key(*other))


async def test_a_log_forgets_a_run() -> None:
    """Its readers reach the end of its events."""
    log, taken = MemoryLog(), list[UIEvent]()
    await write(log, "a", 1, 3)

    async def follow() -> None:
        taken.extend(await read(log.read("a")))

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        log.forget("a")
    log.forget("a")
    assert [1, 2, 3] == ids(taken)
    assert 0 == len(log)
    await write(log, "a", 1, 1, done=True)
    assert 1 == len(log)
    log.forget("a")
    assert 0 == len(log)


async def test_a_closed_reader_ends() -> None:
    """It ends, also for tasks that wait in it; other readers continue."""
    log, ends = MemoryLog(), list[str]()
    await write(log, "a", 1, 1)
    one, other = log.read("a", 1), log.read("a", 1)

    async def follow(name: str, reader: AsyncIterator[UIEvent]) -> None:
        ends.append(f"{name} {ids(await read(reader))}")

    async with anyio.create_task_group() as group:
        group.start_soon(follow, "one", one)
        group.start_soon(follow, "other", other)
        await anyio.wait_all_tasks_blocked()
        await one.aclose()
        await anyio.wait_all_tasks_blocked()
        assert ["one []"] == ends
        await write(log, "a", 2, 2, done=True)
    assert ["one []", "other [2, 3]"] == ends
    late = log.read("a")
    await late.aclose()
    assert [] == await read(late)


@pytest.mark.parametrize("bounds", [{"max_events": 0}, {"max_bytes": 0}])
def test_invalid_limits(bounds: dict[str, Any]) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f"{next(iter(bounds))} must be .*got {next(iter(bounds.values()))}"):
        MemoryLog(**bounds)


async def test_a_log_that_forgets_a_running_run() -> None:
    """Readers reach an end without `done`."""
    async with Runs() as runs, anyio.create_task_group() as group:
        taken = list[UIEvent]()
        run = await runs.start(held("a"), owner="ann")
        group.start_soon(read_run, run.attach(), taken)
        await anyio.wait_all_tasks_blocked()
        assert isinstance(runs.log, MemoryEventLog)
        runs.log.forget(log_key("ann", run.id))
        await anyio.wait_all_tasks_blocked()
        assert "text 'a'" == story(taken)[-1]
        await run.stop()
        assert "cancelled" == (await run.wait()).reason
