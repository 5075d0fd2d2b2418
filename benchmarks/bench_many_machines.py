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
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
import anyio.lowlevel

from streamtools import ToolStream, chat, sources
from streamtools.conversation import Ask, Chat, ScriptedModel
from streamtools.errors import RunNotFound
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.runs import LostRun, RedisStore, Run, Runs
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


async def find_soon(runs: Runs, name: str) -> Run:
    """Return the run, as soon as another process has started it."""
    while True:
        with suppress(RunNotFound):
            return await runs.find(name, owner="ann")
        await anyio.sleep(0.01)


def late_runs(url: str, count: int, name: str) -> list[float]:
    """Return the delay of each event of a run in another process, in milliseconds."""

    async def read() -> list[float]:
        late = []
        async with Runs(RedisStore(url, prefix="late")) as runs:
            run = await find_soon(runs, name)
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


class Halting:
    """A model that says `words` words, and then nothing."""

    name, prefill, native_tool_calls = "halting", None, True

    def __init__(self, words: int) -> None:
        self._words = words
        self.options: dict[str, Any] = {}

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return an empty body."""
        return {}

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        """Yield the source of the answer."""
        yield sources.events(self._say())

    async def _say(self) -> AsyncIterator[SourceEvent]:
        for number in range(self._words):
            await anyio.lowlevel.checkpoint()
            yield TextDelta(f"word {number} ")
        await anyio.sleep_forever()


def gap(url: str, words: int, lease: float, number: signal.Signals) -> float:
    """Return the seconds for which a reader gets no text after the process of its run has received a signal."""
    question, name = [{"role": "user", "content": "Go on."}], f"gap-{words}-{number}-{time.monotonic_ns()}"

    def store(recover: Callable[[LostRun], Chat]) -> RedisStore:
        return RedisStore(url, prefix=name, lease=lease, recover=recover)

    async def drive() -> None:
        async with Runs(store(lambda lost: chat(Halting(0), question, continue_from=lost))) as runs:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                await runs.start(chat(Halting(words), question, run_id=name), owner="ann")
                await anext(aiter(signals))

    async def read() -> float:
        def recover(lost: LostRun) -> Chat:
            return chat(ScriptedModel(["And so on."]), question, continue_from=lost)

        texts, sent = 0, 0.0
        async with Runs(store(recover)) as runs:
            run = await find_soon(runs, name)
            async for event in run.attach():
                texts += event.type == "text"
                if texts == words and not sent:
                    sent = time.monotonic()
                    os.kill(pid, number)
                elif texts > words:
                    return time.monotonic() - sent
        raise RuntimeError("The run was not continued.")

    if not (pid := os.fork()):
        anyio.run(drive)
        os._exit(0)
    try:
        return anyio.run(read)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def traffic(url: str, runs_count: int, events: int) -> tuple[float, float, float]:
    """Return commands, bytes to the server, and microseconds of the server, for each written event."""

    async def figures() -> tuple[int, int, int]:
        from redis.asyncio import Redis

        async with Redis.from_url(url) as client:
            commands, stats = await client.info("commandstats"), await client.info("stats")
        each = [commands.get(f"cmdstat_{name}", {"calls": 0, "usec": 0}) for name in ("eval", "evalsha")]
        return sum(e["calls"] for e in each), stats["total_net_input_bytes"], sum(e["usec"] for e in each)

    before = anyio.run(figures)
    anyio.run(many, RedisStore(url, prefix="traffic"), runs_count, events)
    spent = [b - a for a, b in zip(before, anyio.run(figures), strict=True)]
    commands, size, micros = (number / (runs_count * events) for number in spent)
    return commands, size, micros


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
        commands, size, micros = traffic(server.url, count, events)
        print(f"{'append':12} {commands:.3f} scripts, {size:.0f} bytes, {micros:.1f} µs of Redis for each event")
        few, most, lease = 10, 100 if smoke else 10_000, 1.0
        cases = {"kill -9": (few, signal.SIGKILL), "SIGTERM": (few, signal.SIGTERM), "long log": (most, signal.SIGTERM)}
        for name, (words, number) in cases.items():
            gaps = sorted(gap(server.url, words, lease, number) for _ in range(1 if smoke else 5))
            print(
                f"{name:12} gap median {median(gaps):.2f} s, longest {gaps[-1]:.2f} s ({words} words, lease {lease} s)"
            )
        print(f"{'idle':12} {anyio.run(idle, server.url, 50 if smoke else 10_000):.1f} kB a run")


if __name__ == "__main__":
    main()
