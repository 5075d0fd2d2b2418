"""Measures what one process and one Redis server carry, and computes how many of them many streams need.

    python -m benchmarks.capacity                # 30 deltas a second in each stream
    python -m benchmarks.capacity --deltas 10    # the same for a lower rate, for example of joined deltas

A first process drives all runs. A second process reads the runs from Redis and sends them to the readers. A load
balancer without sticky sessions has this effect. With `--sticky`, the first process does both. The program itself is
the provider and the readers, which check that each delta arrives in order. A process writes several deltas together if
they are ready at the same time, so the costs of a delta depend on the rate. The figures of the plan are computed from
these costs and the options. Needs Debian's `redis-server`, uvicorn, and the extras `web` and `redis`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from redis import Redis

from benchmarks.backends.servers import PythonServer
from benchmarks.backends.wire_load import Pace, Provider, ask, open_all
from benchmarks.soak import allow_files
from tests.support.redis_server import RedisServer

GB = 1e9
STREAMS = (1_000, 100_000, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The measured costs of a delta, a run and an open stream. Times are seconds of a processor, sizes are bytes."""

    driving: float
    """Time of a delta in the process that reads it from the provider and writes it to Redis."""
    reading: float
    """Time of a delta in the process that reads it from Redis and sends it to one reader."""
    redis: float
    """Time of a delta in Redis."""
    from_provider: float
    redis_traffic: float
    """Bytes of a delta on the network of Redis, in both directions."""
    to_reader: float
    stored_run: float
    """Memory of a run in Redis, without its deltas."""
    stored_delta: float
    stream: float
    """Memory of an open, silent stream in the two processes together."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """The streams that the plan is for, and the size of one process and one Redis server."""

    deltas: float
    """Deltas of each stream in a second."""
    seconds: float
    """The length of an answer."""
    keep: float
    """Seconds for which Redis keeps an ended run."""
    used: float
    """The share of each resource that is used when all streams are open."""
    process_gb: float
    redis_gb: float
    gbit: float
    """The network of a Redis server, in Gbit/s."""


def carried(costs: Costs, load: Load) -> dict[str, float]:
    """Return the number of streams that one process or one Redis server carries, by resource."""
    kept = 1 + load.keep / load.seconds  # runs in Redis for each open stream
    stored = kept * (costs.stored_run + load.deltas * load.seconds * costs.stored_delta)
    one = {
        "process: processor": 1 / (load.deltas * (costs.driving + costs.reading)),
        "process: memory": load.process_gb * GB / costs.stream,
        "Redis: processor": 1 / (load.deltas * costs.redis),
        "Redis: memory": load.redis_gb * GB / stored,
        "Redis: network": load.gbit * GB / 8 / (load.deltas * costs.redis_traffic),
    }
    return {resource: load.used * streams for resource, streams in one.items()}


def plan(costs: Costs, load: Load, streams: int) -> dict[str, float]:
    """Return the number of processes and Redis servers for the open streams, and the traffic in Gbit/s."""
    limits = carried(costs, load)
    gbit = streams * load.deltas * 8 / GB
    return {
        kind: math.ceil(streams / min(most for resource, most in limits.items() if resource.startswith(kind)))
        for kind in ("process", "Redis")
    } | {
        "from the provider": gbit * costs.from_provider,
        "of Redis": gbit * costs.redis_traffic,
        "to the readers": gbit * costs.to_reader,
    }


class Machines:
    """A Redis server and two processes."""

    def __init__(self, provider: Provider, redis: RedisServer, options: Sequence[str], *, sticky: bool) -> None:
        self._provider = provider
        self._sticky = sticky
        self._redis = Redis.from_url(redis.url)
        self._driver, self._reader = (PythonServer(sys.executable, provider.url, redis.url, options) for _ in range(2))

    def close(self) -> None:
        """End the processes. Called while their Redis server still runs."""
        self._driver.kill()
        self._reader.kill()
        self._redis.close()

    def counters(self) -> dict[str, float]:
        """Return what the processes and Redis have used since their start."""
        info: dict[str, Any] = self._redis.info("everything")
        return {
            "driving": self._driver.time(),
            "reading": self._reader.time(),
            "memory": self._driver.memory() + self._reader.memory(),
            "redis": info["used_cpu_user"] + info["used_cpu_sys"],
            "redis_traffic": info["total_net_input_bytes"] + info["total_net_output_bytes"],
            "from_provider": self._provider.written,
        }

    def stored(self) -> float:
        """Return the memory of all keys in Redis."""
        return sum(self._redis.memory_usage(key, samples=0) or 0 for key in self._redis.scan_iter())

    async def stream(self, streams: int, pace: Pace) -> dict[str, float]:
        """Answer and read so many streams. Returns what they used, without their end if they are silent."""
        self._provider.pace = pace
        before = self.counters()
        if self._sticky:
            port, paths = self._driver.port, ["/redis_run"] * streams
        else:
            ids = [(await ask(self._driver.port, "/redis_start")).decode() for _ in range(streams)]
            port, paths = self._reader.port, [f"/redis_read?run={run}" for run in ids]
        opened = await open_all(port, paths, deltas=pace.deltas)
        await asyncio.gather(*(each.whole if pace.silent else each.over for each in opened))
        for each in opened:
            found = each.seen
            assert (found.came, found.wrong) == (pace.deltas, 0), f"{found.came} of {pace.deltas} deltas arrived"
        after = self.counters()
        used = {name: after[name] - before[name] for name in before}
        return used | {"to_reader": sum(each.seen.size for each in opened)}


async def measure(chosen: argparse.Namespace) -> Costs:
    """Measure the costs."""
    streams, idle = chosen.streams, chosen.idle
    many = Pace(max(2, round(chosen.deltas * chosen.answer)), 1 / chosen.deltas)
    provider = Provider()
    await provider.start()
    options = chosen.loop, chosen.http, chosen.client
    with RedisServer() as redis, closing(Machines(provider, redis, options, sticky=chosen.sticky)) as machines:
        await machines.stream(streams, Pace(1, None))  # modules and caches are loaded on first use
        stored = [machines.stored()]
        await machines.stream(streams, Pace(1, None))
        stored.append(machines.stored())
        used = await machines.stream(streams, many)
        stored.append(machines.stored())
        await machines.stream(idle, Pace(1, 0.0, silent=True))
        silent = await machines.stream(idle, Pace(1, 0.0, silent=True))
    per_delta = {name: value / (streams * many.deltas) for name, value in used.items()}
    short_run, long_run = ((after - before) / streams for before, after in pairwise(stored))
    stored_delta = (long_run - short_run) / (many.deltas - 1)
    names = ("driving", "reading", "redis", "from_provider", "redis_traffic", "to_reader")
    return Costs(
        **{name: per_delta[name] for name in names},
        stored_run=short_run - stored_delta,
        stored_delta=stored_delta,
        stream=silent["memory"] / idle,
    )


def show(costs: Costs, load: Load) -> None:
    """Print the costs and the plan as Markdown tables."""
    both = costs.driving + costs.reading
    print("| a delta | processor | network |\n| --- | ---: | ---: |")
    print(f"| the process that drives | {costs.driving * 1e6:.0f} µs | {costs.from_provider:.0f} B from the provider |")
    print(f"| the process that reads | {costs.reading * 1e6:.0f} µs | {costs.to_reader:.0f} B to the reader |")
    print(f"| Redis | {costs.redis * 1e6:.0f} µs | {costs.redis_traffic:.0f} B in both directions |\n")
    print(f"A process carries {1 / both:,.0f} deltas a second, and one Redis server {1 / costs.redis:,.0f}.")
    print(f"An open stream holds {costs.stream / 1e3:.0f} kB in the processes.")
    print(f"A run in Redis holds {costs.stored_run / 1e3:.1f} kB and {costs.stored_delta:.0f} B for each delta.\n")
    limits = carried(costs, load)
    wall = min(limits, key=lambda resource: limits[resource])
    print(f"| one | streams at {load.deltas:g} deltas a second |\n| --- | ---: |")
    for resource, most in sorted(limits.items(), key=lambda each: each[1]):
        print(f"| {resource} | {most:,.0f} |")
    print(f"\nThe first wall is {wall}. {load.used:.0%} of each resource is used.\n")
    found = {streams: plan(costs, load, streams) for streams in STREAMS}
    print("| streams | processes | Redis servers | Gbit/s from the provider | of Redis | to the readers |")
    print(f"|{' ---: |' * 6}")
    for streams, needed in found.items():
        process, redis, *traffic = needed.values()
        print(f"| {streams:,} | {process:,} | {redis:,} | {' | '.join(f'{each:,.2f}' for each in traffic)} |")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Measure one process and one Redis server, and plan for many streams.")
    add = parser.add_argument
    add("--deltas", type=float, default=30.0, help="deltas of a stream in a second (%(default)s)")
    add("--answer", type=float, default=20.0, help="seconds of an answer, also of a measured one (%(default)s)")
    add("--keep", type=float, default=600.0, help="`keep` of the RedisStore, in seconds (%(default)s)")
    add("--used", type=float, default=0.7, help="the share of each resource that may be used (%(default)s)")
    add("--process-gb", type=float, default=2.0, help="memory of a process, in GB (%(default)s)")
    add("--redis-gb", type=float, default=32.0, help="memory of a Redis server, in GB (%(default)s)")
    add("--gbit", type=float, default=10.0, help="network of a Redis server, in Gbit/s (%(default)s)")
    add("--streams", type=int, default=50, help="open streams of the measurement (%(default)s)")
    add("--idle", type=int, default=500, help="silent streams of the measurement (%(default)s)")
    add("--sticky", action="store_true", help="readers are connected to the process that drives their run")
    add("--loop", default="asyncio", choices=["asyncio", "uvloop"], help="the event loop of the processes")
    add("--http", default="h11", choices=["h11", "httptools"], help="uvicorn's protocol")
    add("--client", default="httpx", choices=["httpx", "httpx_aiohttp"], help="the HTTP client for the provider")
    add("--json", action="store_true", help="print one JSON object with all figures")
    add("--smoke", action="store_true", help="measure very little, to test the program")
    chosen = parser.parse_args()
    if chosen.smoke:
        chosen.streams, chosen.answer, chosen.idle = 2, 0.2, 2
    allow_files(chosen.streams + 2 * chosen.idle)
    load = Load(
        deltas=chosen.deltas,
        seconds=chosen.answer,
        keep=chosen.keep,
        used=chosen.used,
        process_gb=chosen.process_gb,
        redis_gb=chosen.redis_gb,
        gbit=chosen.gbit,
    )
    costs = asyncio.run(measure(chosen))
    if chosen.json:
        plans = {streams: plan(costs, load, streams) for streams in STREAMS}
        print(json.dumps({"costs": asdict(costs), "carried": carried(costs, load), "plans": plans}))
    elif chosen.smoke:
        print("capacity: it works; nothing was measured")
    else:
        stack = f"{chosen.loop}, {chosen.http}, {chosen.client}"
        print(f"capacity, {platform.python_implementation()} {platform.python_version()}, {stack}\n")
        show(costs, load)


if __name__ == "__main__":
    main()
