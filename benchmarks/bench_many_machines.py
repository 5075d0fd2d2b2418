"""Measures runs that are shared over Redis: their delay in another process, their number, and their memory.

    python -m benchmarks.bench_many_machines

Beside a run that is read in another process stand the bare commands, `XADD` in one process and a blocking `XREAD` in
the other, by redis-py. Both are paced alike, in turn on the same server. Times are on the wall, since most of them are
spent waiting: they say little on a machine that is busy. Needs Debian's `redis-server`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
import anyio.lowlevel

from streamtools import ToolStream, sources
from streamtools.errors import RunNotFound
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.runs import RedisStore, Runs
from tests.support.redis_server import RedisServer

PAUSE = 0.005  # seconds between two events
BEGIN = 0.5  # and before the first, in which the reader begins to wait
END = ProviderCompleted(finish_reason="stop")


async def paced(count: int) -> AsyncIterator[SourceEvent]:
    """Yield the current time at regular intervals."""
    await anyio.sleep(BEGIN)
    for _ in range(count):
        await anyio.sleep(PAUSE)
        yield TextDelta(f"{time.monotonic_ns()} ")
    yield END


async def silent() -> AsyncIterator[SourceEvent]:
    """Yield one event, then wait."""
    yield TextDelta("a")
    await anyio.sleep_forever()


def beside(work: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
    """Run a function in another process. Returns a function that waits for its result, which is JSON."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        with os.fdopen(writing, "w") as told:
            json.dump(anyio.run(work), told)
        os._exit(0)
    os.close(writing)

    def result() -> Any:
        with os.fdopen(reading) as told:
            found = json.load(told)
        os.waitpid(pid, 0)
        return found

    return result


def late_runs(url: str, count: int, name: str) -> list[float]:
    """Return the delay of each event of a run in another process, in milliseconds."""

    async def read() -> list[float]:
        late = []
        async with Runs(RedisStore(url, prefix="late")) as runs:
            while True:
                try:
                    run = await runs.find(name, owner="ann")
                    break
                except RunNotFound:
                    await anyio.sleep(0.01)
            async for event in run.attach():
                if event.type == "text":
                    late.append((time.monotonic_ns() - int(event.text)) / 1e6)
        return late

    async def write() -> None:
        async with Runs(RedisStore(url, prefix="late")) as runs:
            await (await runs.start(ToolStream(sources.events(paced(count)), run_id=name), owner="ann")).wait()

    result = beside(read)
    anyio.run(write)
    return list(result())


def late_commands(url: str, count: int, name: str) -> list[float]:
    """Return the same delays for bare Redis commands."""

    async def read() -> list[float]:
        from redis.asyncio import Redis

        late, last = list[float](), "0"
        async with Redis.from_url(url, socket_timeout=None) as client:
            while len(late) < count:
                for _, entries in dict(await client.xread({name: last}, block=5000)).items():
                    told = entries[0] if isinstance(entries[0], list) else entries
                    late += [(time.monotonic_ns() - int(fields[b"e"])) / 1e6 for _, fields in told]
                    last = told[-1][0]
        return late

    async def write() -> None:
        from redis.asyncio import Redis

        async with Redis.from_url(url) as client:
            await anyio.sleep(BEGIN)
            for _ in range(count):
                await anyio.sleep(PAUSE)
                await client.xadd(name, {"e": str(time.monotonic_ns())})

    result = beside(read)
    anyio.run(write)
    return list(result())


async def many(log: RedisStore | None, runs_count: int, events: int) -> tuple[float, float]:
    """Return the seconds of the clock and of the processor for this number of concurrent runs."""

    async def speak() -> AsyncIterator[SourceEvent]:
        for number in range(events):
            await anyio.lowlevel.checkpoint()
            yield TextDelta(f"word {number} ")
        yield END

    async with Runs(log, max_running=20_000) as runs:
        begun, spent = time.monotonic(), time.process_time()
        made = [await runs.start(ToolStream(sources.events(speak())), owner="ann") for _ in range(runs_count)]
        for run in made:
            await run.wait()
        return time.monotonic() - begun, time.process_time() - spent


async def idle(url: str, count: int) -> float:
    """Return the memory of a waiting run in kilobytes."""

    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024

    async with Runs(RedisStore(url, prefix="idle"), max_running=20_000) as runs:
        before = resident()
        for _ in range(count):
            await runs.start(ToolStream(sources.events(silent())), owner="ann")
        await anyio.sleep(0.5)
        return (resident() - before) / count


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="little of everything: it only shows that it works")
    smoke = parser.parse_args().smoke
    with RedisServer() as server:
        rows: dict[str, list[float]] = {"runs": [], "XADD, XREAD": []}
        ratios = list[float]()
        for turn in range(2 if smoke else 5):  # in turn, so that what else the machine does is in both
            found = [late(server.url, 10 if smoke else 200, f"turn{turn}") for late in (late_runs, late_commands)]
            ratios.append(median(found[0]) / median(found[1]))
            for row, late in zip(rows.values(), found, strict=True):
                row += late
        for name, late in rows.items():
            late.sort()
            print(f"{name:12} median {median(late):.2f} ms, p99 {late[int(0.99 * len(late))]:.2f} ms")
        print(f"{'ratio':12} {median(ratios):.2f} × of the medians (target 1.5)")
        count, events = (20, 5) if smoke else (500, 40)
        for name, log in (("Redis", RedisStore(server.url, prefix="many")), ("memory", None)):
            wall, spent = anyio.run(many, log, count, events)
            told = count * events
            print(f"{name:12} {told / wall:,.0f} events a second with {count} runs, {1e6 * spent / told:.0f} µs each")
        print(f"{'idle':12} {anyio.run(idle, server.url, 50 if smoke else 10_000):.1f} kB a run")


if __name__ == "__main__":
    main()
