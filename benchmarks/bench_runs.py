"""Measures the cost of a run: each event is appended to a log and read from there.

    python benchmarks/bench_runs.py

The reference of a run with one reader is the same `ToolStream`, read by the task that entered it. The reference of a
log with many readers is code without a log: an anyio memory stream for each reader, and a loop that sends to all.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
import anyio.lowlevel

from benchmarks import texts, wires
from benchmarks.bench_pipeline import Bare, Chunks, in_loop
from benchmarks.measure import Case, Comparison, main
from streamtools import ToolStream, sources
from streamtools.events import Done, Text, UIEvent
from streamtools.runs import MemoryEventLog, Runs


class Arriving(Bare):
    """A response whose chunks arrive one by one, with a turn of the event loop before each."""

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        return aiter(Chunks(self._chunks, arriving=True))


async def read_stream(response: Bare, keep: list[UIEvent] | None = None) -> None:
    """Read a stream."""
    async with ToolStream(sources.openai(response)) as events:
        async for event in events:
            if keep is not None:
                keep.append(event)


async def read_run(response: Bare, keep: list[UIEvent] | None = None, *, readers: int = 1) -> None:
    """Read a run of the same stream."""

    async def follow(keep: list[UIEvent] | None) -> None:
        async with run.attach() as events:
            async for event in events:
                if keep is not None:
                    keep.append(event)

    async with Runs() as runs:
        run = await runs.start(ToolStream(sources.openai(response)), owner="ann")
        async with anyio.create_task_group() as group:
            for _ in range(readers):
                group.start_soon(follow, keep)
        await run.wait()


def told(count: int) -> list[UIEvent]:
    """Return this number of events of a run."""
    return [*(Text("word", seq=seq) for seq in range(1, count)), Done("finished", None, None, [], seq=count)]


async def append_all(events: list[UIEvent], keep: list[UIEvent] | None = None) -> None:
    """Add events to a log."""
    log = MemoryEventLog(max_events=1000)
    for event in events:
        log.add("a", event)
    if keep is not None:
        keep += [event async for event in log.read("a", events[-2].seq)]


async def collect_all(events: list[UIEvent], keep: list[UIEvent] | None = None) -> None:
    """Append events to a list, in a coroutine."""
    kept: list[UIEvent] = []

    async def append(event: UIEvent) -> int:
        kept.append(event)
        return event.seq

    for event in events:
        await append(event)
    if keep is not None:
        keep += kept[-1:]


async def read_log(events: list[UIEvent], readers: int, batch: int, keep: list[UIEvent] | None = None) -> None:
    """Send events to readers through a log, in batches."""
    log = MemoryEventLog()

    async def follow() -> None:
        async for event in log.read("a"):
            if keep is not None:
                keep.append(event)

    async with anyio.create_task_group() as group:
        log.add("a", events[0])
        for _ in range(readers):
            group.start_soon(follow)
        for place, event in enumerate(events[1:]):
            log.add("a", event)
            if place % batch == 0:
                await anyio.lowlevel.checkpoint()


async def read_memory_streams(
    events: list[UIEvent], readers: int, batch: int, keep: list[UIEvent] | None = None
) -> None:
    """Send events to readers through one memory stream each, in batches."""
    streams = [anyio.create_memory_object_stream[UIEvent](1024) for _ in range(readers)]

    async def follow(stream: AsyncIterator[UIEvent]) -> None:
        async for event in stream:
            if keep is not None:
                keep.append(event)

    async with anyio.create_task_group() as group:
        for _, receive in streams:
            group.start_soon(follow, receive)
        for place, event in enumerate(events):
            for send, _ in streams:
                await send.send(event)
            if place % batch == 0:
                await anyio.lowlevel.checkpoint()
        for send, _ in streams:
            send.close()
    for _, receive in streams:
        receive.close()


def check_runs(text: str, response: Bare, readers: int) -> None:
    """Raise AssertionError unless the readers of a run get all events of the stream."""
    plain: list[UIEvent] = []
    run: list[UIEvent] = []
    anyio.run(read_stream, response, plain)
    anyio.run(partial(read_run, readers=readers), response, run)
    assert len(run) == readers * len(plain), (len(run), len(plain))
    assert readers * len(text) == sum(len(event.text) for event in run if isinstance(event, Text))


def check_log(events: list[UIEvent], readers: int, batch: int) -> None:
    """Raise AssertionError unless each reader gets each event, in both ways."""
    for work in (read_log, read_memory_streams):
        taken: list[UIEvent] = []
        anyio.run(work, events, readers, batch, taken)
        assert len(taken) == readers * len(events), (work, len(taken))


def check_appended(events: list[UIEvent]) -> None:
    """Raise AssertionError unless the last appended event is stored."""
    taken: list[UIEvent] = []
    anyio.run(append_all, events, taken)
    anyio.run(collect_all, events, taken)
    assert taken == [events[-1], events[-1]], taken


def cases(smoke: bool) -> Iterator[Case]:
    """Yield all rows."""
    text = texts.prose(1_000 if smoke else 20_000, seed=8)
    frames = wires.openai(texts.cut(text))
    for count, made, words in ((1, Arriving, "arriving"), (16, Arriving, "arriving"), (16, Bare, "all there")):
        response = made(wires.chunks(frames, count))
        for readers in (1, 10):
            yield Comparison(
                "a run beside its ToolStream",
                f"{count} frame{'s' * (count > 1)} a chunk, {words}, {readers} reader{'s' * (readers > 1)}",
                len(frames),
                in_loop(partial(read_run, response, readers=readers)),
                in_loop(partial(read_stream, response)),
                partial(check_runs, text, response, readers),
                unit="× stream",
            )
    events = told(200 if smoke else 20_000)
    yield Comparison(
        "the log beside a list",
        "append",
        len(events),
        in_loop(partial(append_all, events)),
        in_loop(partial(collect_all, events)),
        partial(check_appended, events),
        unit="× list",
    )
    events = told(200 if smoke else 2_000)
    for readers, batch in ((1, 1), (100, 1), (100, 16)):
        yield Comparison(
            "the log beside memory streams, an event to a reader",
            f"{readers} reader{'s' * (readers > 1)}, {batch} event{'s' * (batch > 1)} at a time",
            len(events) * readers,
            in_loop(partial(read_log, events, readers, batch)),
            in_loop(partial(read_memory_streams, events, readers, batch)),
            partial(check_log, events, readers, batch),
            unit="× streams",
            target=1.0,
        )


if __name__ == "__main__":
    main("runs", cases)
