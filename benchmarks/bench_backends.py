"""Whole backends, from a provider's socket to a client's: what each costs beside a bare pass-through of the bytes.

    python -m benchmarks.bench_backends                # paced and unpaced, and how late
    python -m benchmarks.bench_backends --carries      # how many streams one core carries
    python -m benchmarks.bench_backends --idle 500     # what an open stream holds in which nothing happens
    python -m benchmarks.bench_backends --profile      # where what a frame costs goes, counted

The server has a process of its own, whose processor time counts; this one is the provider and the clients. All rows ask
the same provider, in turns: bare is `benchmarks.backends.served.bare`. Every client checks that each delta came, once
and in order. Rows for which something is not installed (Redis, openai, pydantic-ai) are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.backends import profiling
from benchmarks.backends.wire_load import Pace, Provider, Seen, ask, open_all
from tests.support.redis_server import RedisServer

PAUSE = 0.02  # seconds between two deltas of a paced stream
LATE = 20.0  # milliseconds of delay, at the 99th percentile, at which a core carries no more


@dataclass(frozen=True)
class Row:
    """A way of writing a backend."""

    name: str
    page: str
    path: str
    ends: bytes
    """What the end of the body holds."""
    target: float | None = None
    readers: int = 1
    recommended: bool = False
    """Whether it is served with the options that users are recommended."""

    @property
    def shared(self) -> bool:
        """Whether it needs Redis, which has a server do something all the time."""
        return self.page == "redis_run"


ROWS = [
    Row("bare pass-through", "bare", "/bare", b"[DONE]"),
    Row("bare, uvloop and httptools", "bare", "/bare", b"[DONE]", recommended=True),
    Row("bare, 20 readers of one answer", "bare_broadcast", "/bare_broadcast", b"[DONE]", readers=20),
    Row("loop by hand over httpx-sse", "by_hand", "/by_hand", b"[DONE]"),
    Row("streamtools, native", "native", "/native", b"event: done", 1.0),
    Row("streamtools, ai_sdk", "ai_sdk", "/ai_sdk", b"[DONE]", 1.0),
    Row("streamtools, ag_ui", "ag_ui", "/ag_ui", b"RUN_FINISHED", 1.0),
    Row("streamtools, ag_ui, uvloop and httptools", "ag_ui", "/ag_ui", b"RUN_FINISHED", recommended=True),
    Row("a run, one reader", "run", "/run", b"event: done", 1.2),
    Row("a run, 20 readers", "run", "/run", b"event: done", 3.0, readers=20),
    Row("gateway", "gateway", "/gateway/v1/chat/completions", b"[DONE]", 1.6),
    Row("a run on Redis", "redis_run", "/redis_run", b"event: done", 2.5),
    Row("loop by hand over the openai SDK", "openai", "/openai", b"[DONE]"),
    Row("pydantic-ai, AG-UI", "pydantic_ai_ag_ui", "/pydantic_ai_ag_ui", b"RUN_FINISHED"),
    Row("pydantic-ai, Vercel", "pydantic_ai_vercel", "/pydantic_ai_vercel", b"[DONE]"),
]


@dataclass
class Figures:
    """What has been measured of a row."""

    spent: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of the server's processor for a delta of the provider's, by how the streams were paced."""
    late: list[int] = field(default_factory=list)
    carries: int | None = None
    idle: float | None = None
    """Bytes that an open stream holds."""


class Backend:
    """A server in a process of its own."""

    def __init__(self, provider: str, redis: str, loop: str, http: str) -> None:
        command = [sys.executable, "-m", "benchmarks.backends.served", provider, redis, loop, http]
        root = Path(__file__).resolve().parents[1]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    async def number(self, path: str) -> float:
        """Return a number that it says."""
        return float(await ask(self.port, path))

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.communicate()


class Bench:
    """The provider, the servers, and what is done with them."""

    def __init__(self, provider: Provider, redis: str, chosen: argparse.Namespace) -> None:
        self.provider = provider
        self._redis = redis
        self._chosen = chosen
        self._servers: dict[tuple[bool, bool], Backend] = {}
        self._runs = 0

    def server(self, row: Row) -> Backend:
        """Return the server for a row."""
        kind = row.recommended, row.shared
        if kind not in self._servers:
            self._servers[kind] = self.begin(row)
        return self._servers[kind]

    def begin(self, row: Row) -> Backend:
        """Start a server for a row."""
        loop, http = ("uvloop", "httptools") if row.recommended else (self._chosen.loop, self._chosen.http)
        return Backend(self.provider.url, self._redis if row.shared else "", loop, http)

    def close(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.close()

    def paths(self, row: Row, streams: int) -> Iterator[str]:
        """Yield what the clients of a row ask for: so many streams of the provider's, each for as many readers."""
        for _ in range(streams):
            self._runs += 1
            for _ in range(row.readers):
                yield f"{row.path}?run={self._runs}" if row.readers > 1 else row.path

    async def measure(self, row: Row, streams: int, pace: Pace) -> tuple[float, list[int]]:
        """Return the seconds that the server took for each delta, and how late each was at a client."""
        server = self.server(row)
        self.provider.pace = pace
        before = await server.number("/time")
        opened = await open_all(server.port, self.paths(row, streams))
        seen = await asyncio.gather(*(each.over for each in opened))
        spent = await server.number("/time") - before
        for each in seen:
            check(row, each, pace.deltas)
        return spent / (streams * pace.deltas), [late for each in seen for late in each.late]

    async def count(self, row: Row, deltas: int) -> profiling.Counted:
        """Return what the server does for one stream of the provider's."""
        server = self.server(row)
        await ask(server.port, "/count")
        await self.measure(row, 1, Pace(deltas, 0.01 * (3 + row.readers)))  # as slow as counting is
        found: profiling.Counted = json.loads(await ask(server.port, "/count?end"))
        return found

    async def idle(self, row: Row, streams: int) -> float:
        """Return the bytes that an open stream holds behind its first deltas; both servers' kinds of cache are warm."""
        server = self.begin(row)
        try:
            self.provider.pace = Pace(3, 0.0, silent=True)
            held = []
            for _ in range(2):
                before = await server.number("/memory")
                opened = await open_all(server.port, self.paths(row, streams))
                await asyncio.gather(*(each.begun for each in opened))
                await asyncio.sleep(0.5)
                held.append((await server.number("/memory") - before) / streams)
            return held[-1]
        finally:
            server.kill()

    async def carries(self, row: Row, spent: float, seconds: float) -> int:
        """Return with how many streams a delta in a hundred is later than allowed, or the processor is used up."""
        streams, most = max(2, round(0.4 * PAUSE / spent)), 0
        while True:
            _, late = await self.measure(row, streams, Pace(round(seconds / PAUSE), PAUSE))
            if at(late, 0.99) > LATE:
                if most or streams <= 2:
                    return most
                streams = round(streams * 0.6)
                continue
            most = streams
            streams = max(streams + 1, round(streams * 1.15))


def check(row: Row, seen: Seen, deltas: int) -> None:
    """Raise AssertionError unless every delta came, once and in order, and the end of the body behind them."""
    assert (seen.came, seen.wrong) == (deltas, 0), f"{row.name}: {seen.came} of {deltas} deltas, {seen.tail[-300:]!r}"
    assert row.ends in seen.tail, f"{row.name}: no {row.ends!r} at the end: {seen.tail[-300:]!r}"


def at(late: list[int], part: float) -> float:
    """Return by how many milliseconds so many of the deltas are late, at most."""
    return sorted(late)[min(len(late) - 1, int(part * len(late)))] / 1000


@contextlib.asynccontextmanager
async def benching(chosen: argparse.Namespace) -> AsyncIterator[tuple[Bench, list[Row]]]:
    """Start what is needed; give also the rows for which everything is there."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with RedisServer() if shutil.which("redis-server") else contextlib.nullcontext() as redis:
        provider = Provider()
        await provider.start()
        bench = Bench(provider, "" if redis is None else redis.url, chosen)
        try:
            there = json.loads(await ask(bench.server(ROWS[0]).port, "/rows"))
            fast = all(map(importlib.util.find_spec, ("uvloop", "httptools")))
            words = chosen.only.split(",")
            rows = [
                row
                for row in ROWS
                if (row.page in there or (row.shared and redis is not None))
                and (fast or not row.recommended)
                and any(word in row.name for word in words)
            ]
            yield bench, rows if ROWS[0] in rows else [ROWS[0], *rows]
        finally:
            bench.close()


async def measure(chosen: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Figures]:
    """Measure what was chosen, all rows in turn, and again."""
    async with benching(chosen) as (bench, rows):
        found = {row.name: Figures() for row in rows}
        kinds = {
            "paced": (chosen.streams, Pace(max(3, round(chosen.seconds / PAUSE)), PAUSE)),
            "unpaced": (chosen.streams * 5 // 2, Pace(max(3, chosen.unpaced), None)),
        }
        for turn in range(chosen.turns):
            for kind, (streams, pace) in kinds.items():
                for row in rows:
                    if kind == "unpaced" and not chosen.unpaced:
                        continue
                    if not turn:  # what is loaded, or filled, when it is used first
                        await bench.measure(row, 2, Pace(5, None))
                    spent, late = await bench.measure(row, max(1, streams // row.readers), pace)
                    figures = found[row.name]
                    figures.spent.setdefault(kind, []).append(spent)
                    if kind == "paced":
                        figures.late += late
            say(f"turn {turn + 1} of {chosen.turns}")
        for row in rows[:1] if chosen.smoke else rows:
            if chosen.idle and row.readers == 1 and not row.recommended:
                found[row.name].idle = await bench.idle(row, chosen.idle)
                say(f"idle: {row.name}")
            if chosen.carries:
                spent = min(found[row.name].spent["paced"])
                found[row.name].carries = await bench.carries(row, spent, chosen.seconds)
                say(f"carries: {row.name}")
    return found


async def profile(chosen: argparse.Namespace) -> None:
    """Print what a delta costs in each row, by library, and of ours by function."""
    async with benching(chosen) as (bench, rows):
        frames = chosen.frames
        counted = {}
        for row in rows:
            await bench.measure(row, 1, Pace(5, None))  # what is loaded, or filled, when it is used first
            counts = [await bench.count(row, deltas) for deltas in (20, 20 + frames)]
            counted[row.name] = profiling.between(*counts, frames=frames)
        profiling.show(counted)


def print_table(found: dict[str, Figures], chosen: argparse.Namespace) -> None:
    """Print what was measured, beside bare."""
    bare = next(iter(found.values()))
    targets = {row.name: row.target for row in ROWS}
    print(
        f"{'':42}{'paced µs':>10}{'× bare':>8}{'range':>12}{'unpaced':>9}{'× bare':>8}{'p50 ms':>8}{'p99':>7}", end=""
    )
    print(f"{'streams':>9}{'idle KB':>9}  target")
    for name, row in found.items():
        ratios = [ours / its for ours, its in zip(row.spent["paced"], bare.spent["paced"], strict=True)]
        line = f"{name:42}{median(row.spent['paced']) * 1e6:>10.0f}{median(ratios):>8.2f}"
        line += f"{min(ratios):>7.2f}–{max(ratios):.2f}"
        if unpaced := row.spent.get("unpaced"):
            beside = [ours / its for ours, its in zip(unpaced, bare.spent["unpaced"], strict=True)]
            line += f"{median(unpaced) * 1e6:>9.0f}{median(beside):>8.2f}"
        else:
            line += f"{'–':>9}{'–':>8}"
        line += f"{at(row.late, 0.5):>8.2f}{at(row.late, 0.99):>7.2f}"
        line += f"{row.carries if row.carries is not None else '–':>9}"
        line += f"{'–' if row.idle is None else format(row.idle / 1024, '.1f'):>9}"
        target = targets[name]
        line += "  –" if target is None else f"  ≤ {target:g} {'yes' if median(ratios) <= target else 'NO'}"
        print(line)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="Measure whole backends; see benchmarks/README.md.")
    parser.add_argument("--smoke", action="store_true", help="little of everything: it only shows that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object with all figures")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="only rows whose names hold one of these, by commas"
    )
    parser.add_argument("--loop", default="asyncio", choices=["asyncio", "uvloop"], help="the event loop of all rows")
    parser.add_argument("--http", default="h11", choices=["h11", "httptools"], help="uvicorn's protocol for all rows")
    parser.add_argument("--streams", type=int, default=20, metavar="N", help="paced streams (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a paced stream is (default: %(default)s)")
    parser.add_argument("--unpaced", type=int, default=400, metavar="N", help="deltas of an unpaced stream; 0 is none")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="how often each row has its turn")
    parser.add_argument("--carries", action="store_true", help="find how many streams one core carries")
    parser.add_argument(
        "--idle", type=int, default=0, metavar="N", help="open so many streams in which nothing happens"
    )
    parser.add_argument("--frames", type=int, default=100, metavar="N", help="of --profile (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="count where what a frame costs goes, and nothing else")
    chosen = parser.parse_args()
    if chosen.profile:
        asyncio.run(profile(chosen))
        return
    if chosen.smoke:
        chosen.streams, chosen.seconds, chosen.unpaced, chosen.turns, chosen.idle = 2, 0.1, 5, 1, 2
    begun = time.monotonic()

    def say(what: str) -> None:
        if not (chosen.smoke or chosen.json):
            print(f"{time.monotonic() - begun:4.0f} s: {what}", file=sys.stderr)

    found = asyncio.run(measure(chosen, say))
    if chosen.json:
        print(json.dumps({name: asdict(row) for name, row in found.items()}))
    elif chosen.smoke:
        print(f"backends: {len(found)} rows work; nothing was measured")
    else:
        print(
            f"backends, {platform.python_implementation()} {platform.python_version()}, {chosen.loop}, {chosen.http}, "
            f"{chosen.streams} streams paced and {chosen.streams * 5 // 2} unpaced, median of {chosen.turns}"
        )
        print_table(found, chosen)


if __name__ == "__main__":
    main()
