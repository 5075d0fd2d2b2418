"""Measures whole backends, from the provider's socket to the client's, relative to a bare pass-through of the bytes.

    python -m benchmarks.bench_backends                # paced and unpaced, and how late
    python -m benchmarks.bench_backends --first 100    # the time from a request to its first text
    python -m benchmarks.bench_backends --carries      # how many streams one core carries, and the delays below that
    python -m benchmarks.bench_backends --many 8000    # whether many streams cost more than a hundred, at the same rate
    python -m benchmarks.bench_backends --stalled 60   # the cost of a client that stops reading
    python -m benchmarks.bench_backends --peers ENVIRONMENT/bin/python …      # rows of peers, from other environments
    python -m benchmarks.bench_backends --idle 500     # the memory of an open, silent stream
    python -m benchmarks.bench_backends --profile      # the counted work of a frame, by library and function

Each server runs in a separate process, whose processor time is measured. This process is the provider and the clients.
All rows request the same provider, in turns. The reference is `benchmarks.backends.served.bare`. Every client checks
that each delta arrives once and in order. A row is left out if its program (Redis, Node, nginx) or its Python packages
(the extra `fast`, openai, openai-agents, langchain, pydantic-ai, litellm[proxy]) are installed neither in this
environment nor in those of `--peers`. The npm packages are installed in `.cache/backends-node`.
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
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.backends import profiling
from benchmarks.backends.rows import FAST, FEW, LOADS, PAUSE, ROWS, Bench, Carried, Many, Row, Stalled, at
from benchmarks.backends.wire_load import Pace, Provider
from tests.support.redis_server import RedisServer


@dataclass
class Figures:
    """The measurements of a row."""

    spent: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of the server's processor for a delta of the provider's, by how the streams were paced."""
    late: dict[str, list[int]] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)
    """Microseconds from each request to its first text."""
    carries: Carried | None = None
    idle: float | None = None
    """Bytes that an open stream holds."""
    many: list[Many] = field(default_factory=list)
    """Of few streams, and of many."""
    stalled: Stalled | None = None


@contextlib.asynccontextmanager
async def benching(chosen: argparse.Namespace) -> AsyncIterator[tuple[Bench, list[Row]]]:
    """Start the servers. Yields them, and the rows that can run."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with RedisServer() if shutil.which("redis-server") else contextlib.nullcontext() as redis:
        provider = Provider()
        await provider.start()
        bench = Bench(provider, "" if redis is None else redis.url, chosen)
        try:
            await bench.find_pages()
            fast = all(map(importlib.util.find_spec, FAST))
            words = chosen.only.split(",")
            rows = [
                row
                for row in ROWS
                if row.page in bench.programs and (fast or not row.fast) and any(word in row.name for word in words)
            ]
            yield bench, rows if ROWS[0] in rows else [ROWS[0], *rows]
        finally:
            bench.close()


def name_of(pause: float) -> str:
    """Return the name of the streams with this pause between deltas."""
    return f"{pause * 1000:g} ms"


async def measure(chosen: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Figures]:
    """Measure the chosen rows in turns, several times."""
    async with benching(chosen) as (bench, rows):
        found = {row.name: Figures() for row in rows}
        kinds = {
            name_of(pause): (chosen.streams, Pace(max(3, round(chosen.seconds / pause)), pause))
            for pause in chosen.pause
        }
        if chosen.unpaced:
            kinds["unpaced"] = (chosen.streams * 5 // 2, Pace(max(3, chosen.unpaced), None))
        for turn in range(chosen.turns):
            for kind, (streams, pace) in kinds.items():
                for row in rows:
                    if not turn:  # warm up: modules and caches are loaded on first use, and Node compiles
                        await bench.measure(row, 2, Pace(5 if chosen.smoke else 500, None))
                    spent, late = await bench.measure(row, max(1, streams // row.readers), pace)
                    figures = found[row.name]
                    figures.spent.setdefault(kind, []).append(spent)
                    figures.late.setdefault(kind, []).extend(late)
            for row in rows:
                if chosen.first and row.readers == 1:
                    found[row.name].first += await bench.first(row, chosen.first)
            say(f"turn {turn + 1} of {chosen.turns}")
        for row in [row for row in rows if row.page == "native"] if chosen.smoke else rows:  # each starts servers
            figures, plain = found[row.name], row.readers == 1 and not row.fast
            if chosen.idle and plain:
                figures.idle = await bench.idle(row, chosen.idle)
                say(f"idle: {row.name}")
            if chosen.carries:
                figures.carries = await bench.carries(row, min(figures.spent[name_of(chosen.pause[0])]), chosen.seconds)
                say(f"carries: {row.name}")
            if chosen.many and plain:
                figures.many = [await bench.many(row, streams) for streams in (min(FEW, chosen.many), chosen.many)]
                say(f"many: {row.name}")
            if chosen.stalled and plain:
                figures.stalled = await bench.stalled(row, chosen.stalled)
                say(f"stalled: {row.name}")
    return found


async def profile(chosen: argparse.Namespace) -> None:
    """Print the cost of a delta in each row, by library and by function."""
    async with benching(chosen) as (bench, rows):
        frames = chosen.frames
        counted = {}
        for row in [row for row in rows if row.program == "python"]:
            await bench.measure(row, 1, Pace(5, None))  # warm up: modules and caches are loaded on first use
            counts = [await bench.count(row, deltas) for deltas in (20, 20 + frames)]
            counted[row.name] = profiling.between(*counts, frames=frames)
        profiling.show(counted)


def print_table(found: dict[str, Figures], kind: str) -> None:
    """Print the measurements of streams with one pace, relative to the bare pass-through."""
    bare = next(iter(found.values()))
    targets = {row.name: row.target for row in ROWS}
    print(f"{kind:42}{'µs/delta':>10}{'× bare':>8}{'range':>14}{'p50 ms':>8}{'p99':>8}{'max':>8}  target")
    for name, row in found.items():
        ratios = [ours / its for ours, its in zip(row.spent[kind], bare.spent[kind], strict=True)]
        line = f"{name:42}{median(row.spent[kind]) * 1e6:>10.0f}{median(ratios):>8.2f}"
        line += f"{f'{min(ratios):.2f}–{max(ratios):.2f}':>14}"
        line += "".join(f"{at(row.late[kind], part):>8.2f}" for part in (0.5, 0.99, 1.0))
        target = targets[name]
        line += "  –" if target is None else f"  ≤ {target:g} {'yes' if median(ratios) <= target else 'NO'}"
        print(line)


def print_loads(found: dict[str, Figures]) -> None:
    """Print the first text, the memory, the load, the cost of many streams, and the cost of a stalled client."""
    bare = next(iter(found.values()))
    for name, row in found.items():
        if row.first:
            print(f"{name:42}first text: p50 {at(row.first, 0.5):.2f} ms, p99 {at(row.first, 0.99):.2f} ms")
    for name, row in found.items():
        if row.idle is not None:
            print(f"{name:42}an idle stream: {row.idle / 1024:.1f} KB")
    for name, row in found.items():
        if row.carries is not None:
            print(f"{name:42}{row.carries.streams:>7} streams", end="")
            for part, (p50, p99) in zip(LOADS, row.carries.loads, strict=True):
                print(f"; at {part:.0%} p50 {p50:.2f} ms, p99 {p99:.2f} ms", end="")
            print()
    for name, row in found.items():
        if row.many:
            few, many = row.many
            kept = few.delta / many.delta / (bare.many[0].delta / bare.many[1].delta)
            print(f"{name:42}delta {few.delta * 1e6:.0f} µs, with many {many.delta * 1e6:.0f} µs", end="")
            print(f" (throughput relative to bare {kept:.2f})", end="")
            print(f"; opening {few.opening * 1e6:.0f} µs, with many {many.opening * 1e6:.0f} µs")
    for name, row in found.items():
        if row.stalled is not None:
            written, held, waits = row.stalled
            print(f"{name:42}stalled: {written // 1024} KB written, {held // 1024} KB held", end="")
            print(f"; the provider {'waits' if waits else 'continues'}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Measure whole backends; see benchmarks/README.md.")
    parser.add_argument("--smoke", action="store_true", help="little of everything: it only shows that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object with all figures")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="only rows whose names hold one of these, by commas"
    )
    parser.add_argument("--loop", default="asyncio", choices=["asyncio", "uvloop"], help="the event loop of all rows")
    parser.add_argument("--http", default="h11", choices=["h11", "httptools"], help="uvicorn's protocol for all rows")
    parser.add_argument(
        "--client", default="httpx", choices=["httpx", "httpx_aiohttp"], help="the HTTP client for the provider"
    )
    parser.add_argument("--streams", type=int, default=20, metavar="N", help="paced streams (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long a paced stream is (default: %(default)s)")
    parser.add_argument(
        "--pause",
        type=float,
        nargs="+",
        default=[PAUSE],
        help=f"seconds between the deltas of a paced stream (default: {PAUSE})",
    )
    parser.add_argument("--unpaced", type=int, default=400, metavar="N", help="deltas of an unpaced stream; 0 is none")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="how often each row has its turn")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="time the first text of N requests a turn")
    parser.add_argument("--carries", action="store_true", help="find how many streams one core carries")
    parser.add_argument(
        "--idle", type=int, default=0, metavar="N", help="open so many streams in which nothing happens"
    )
    parser.add_argument("--many", type=int, default=0, metavar="N", help=f"compare N streams with {FEW}")
    parser.add_argument(
        "--stalled", type=float, default=0.0, metavar="SECONDS", help="have a client stop reading for so long"
    )
    parser.add_argument(
        "--peers", nargs="*", default=[], metavar="PYTHON", help="interpreters that have peers installed"
    )
    parser.add_argument("--frames", type=int, default=100, metavar="N", help="of --profile (default: %(default)s)")
    parser.add_argument(
        "--profile", action="store_true", help="only count the work of a frame, by library and function"
    )
    chosen = parser.parse_args()
    if chosen.profile:
        asyncio.run(profile(chosen))
        return
    if chosen.smoke:
        chosen.streams, chosen.seconds, chosen.unpaced, chosen.turns, chosen.idle = 2, 0.1, 5, 1, 2
        chosen.many, chosen.stalled, chosen.first = 4, 0.2, 1
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
            f"{chosen.client}, {chosen.streams} streams paced and {chosen.streams * 5 // 2} unpaced, "
            f"median of {chosen.turns}"
        )
        for kind in next(iter(found.values())).spent:
            print_table(found, kind)
        print_loads(found)


if __name__ == "__main__":
    main()
