"""A soak: many concurrent streams, for a time or a number of streams, and a report."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import anyio

from benchmarks.soaking.consumers import Consumer
from benchmarks.soaking.errands import registry
from benchmarks.soaking.followers import follow_run
from benchmarks.soaking.house import SOURCES, House
from benchmarks.soaking.memory import give_back, held, in_use
from benchmarks.soaking.plans import make_plan
from benchmarks.soaking.served import serving
from benchmarks.soaking.tally import Tally
from benchmarks.soaking.watch import Sample, ours, take_sample, watched
from streamtools import RunnerOptions, ToolStream
from streamtools.parsing.markers import Markers

OnSample: TypeAlias = Callable[[Sample, House], None]

_ROOT = Path(__file__).resolve().parents[2]
_BROWSERS = 7  # of so many readers, one is a browser
_FIRST = 400  # streams that are read before any is measured
_MORE = 1.2
_FULL = 1.02  # times the streams that are wanted are enough
_TICK = 0.1  # seconds
_CHUNKS = 25  # of a stream, about
_FIRST_OF_BROWSERS = 500_000_000  # seeds


@dataclass(frozen=True)
class Settings:
    """What is wanted: `count` streams in all, or as many as there are in `minutes`. Times are in seconds.

    `pace` is that of a stream between two chunks, `idle` how much silence a client takes for a fault, `every` the time
    between two samples. A share of the streams are `browsers`.
    """

    streams: int
    minutes: float = 0.0
    count: int | None = None
    seed: int = 1
    pace: float = 1.7
    idle: float = 15.0
    every: float = 5.0

    @property
    def slots(self) -> int:
        """How many streams run concurrently, including slots between two streams.

        An eighth of them are added for that.
        """
        return math.ceil(self.streams * _MORE)

    @property
    def browsers(self) -> int:
        """How many streams browsers read."""
        return self.slots // _BROWSERS

    @property
    def life(self) -> float:
        """The approximate duration of a stream."""
        return self.pace * _CHUNKS


@dataclass
class Report:
    """What has come of it: of the streams that were read here, of those of the browsers, and what the provider did.

    `used` are the bytes in use before the first stream and after the last, `held` those in memory at the end, and
    `given_back` those once what is free has been given back.
    """

    here: Tally
    browsers: dict[str, Any]
    sent: Counter[str]
    logged: Counter[str]
    until: float
    """When the last stream began."""
    samples: list[Sample] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    """What there is more of in the end than there was before, by type."""
    held: int = 0
    given_back: int = 0
    used: tuple[int, int] = (0, 0)


class Outside:
    """The second process."""

    def __init__(self, pace: float) -> None:
        self._command = [sys.executable, "-m", "benchmarks.soaking.outside", str(pace)]
        self._process: Process

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # with which it ends
        await self._process.wait()

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    async def hear(self) -> dict[str, Any]:
        """Return its next message."""
        assert self._process.stdout is not None
        told: dict[str, Any] = json.loads(await self._process.stdout.readline())
        return told

    def tell(self, order: dict[str, Any]) -> None:
        """Send a message."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")


async def soak(settings: Settings, on_sample: OnSample | None = None) -> Report:
    """Run a soak and return its report. `on_sample` is called with each sample."""
    with watched(Tally()):
        await _warm_up()
    gc.collect()
    before, used = ours(), in_use()
    async with Outside(settings.pace) as world:
        report = await _soak(settings, world, on_sample)
        report.left = await _what_is_left(before)
        report.held, report.used = held(), (used, in_use())
        give_back()
        report.given_back = held()
    return report


async def _soak(settings: Settings, world: Outside, on_sample: OnSample | None) -> Report:
    port = (await world.hear())["port"]
    count = settings.count
    by_browsers = None if count is None else count // _BROWSERS
    first = settings.seed * 1_000_000_000
    house = House(
        f"http://127.0.0.1:{port}",
        settings.slots,
        idle=settings.idle,
        life=settings.life,
        seed=first,
        count=None if count is None or by_browsers is None else count - by_browsers,
    )
    samples: list[Sample] = []

    async def watch() -> None:
        while True:
            lag, due = 0.0, time.monotonic() + settings.every
            while (before := time.monotonic()) < due:
                await asyncio.sleep(_TICK)
                lag = max(lag, time.monotonic() - before - _TICK)
            samples.append(take_sample(world.pid, house.open, lag))
            if on_sample is not None:
                on_sample(samples[-1], house)

    with watched(house.tally) as logged:
        async with house, serving(house) as app, anyio.create_task_group() as group:
            order = {
                "port": app,
                "browsers": settings.browsers,
                "seed": first + _FIRST_OF_BROWSERS,
                "count": by_browsers,
                "ramp": settings.life,
            }
            world.tell(order)
            group.start_soon(watch)
            async with anyio.create_task_group() as slots:
                many = settings.slots - settings.browsers
                for place in range(many):
                    slots.start_soon(_use_slot, house, settings, settings.life * place / many)
                if count is None:
                    await asyncio.sleep(settings.minutes * 60)
                    house.stop()
                    world.tell({})
                until = time.monotonic()
            if count is not None:
                world.tell({})
            told = await world.hear()
            group.cancel_scope.cancel()
    return Report(house.tally, told["tally"], Counter(told["sent"]), logged, until, samples)


async def _warm_up() -> None:
    """Read streams of all kinds, so that lazily created objects exist."""
    for seed in range(_FIRST):
        plan = make_plan(seed)
        source = SOURCES[plan.format](plan.chunks())
        async with ToolStream(source, tools=registry, runner=RunnerOptions(execute="never")) as events:
            async for _ in events:
                pass
    for markers in [thing for thing in gc.get_objects() if isinstance(thing, Markers)]:
        for begun in markers._beginnings:  # each group is made once, at the first text that is cut there
            markers.find(begun, 0, False)


async def _what_is_left(before: Counter[str]) -> dict[str, int]:
    """Return the growth of object counts, after abandoned threads have ended."""
    for _ in range(20):
        gc.collect()
        more = ours() - before
        if not more:
            break
        await asyncio.sleep(0.1)
    return dict(more)


async def _use_slot(house: House, settings: Settings, wait: float) -> None:
    """Run one stream after another."""
    await asyncio.sleep(wait)
    rng = random.Random(wait)
    while True:
        if house.open >= _FULL * settings.streams:
            await asyncio.sleep(rng.random() * settings.pace)
            continue
        seed = house.next_seed()
        if seed is None:
            return
        plan = make_plan(seed)
        try:
            if random.Random(seed + 5).random() < 0.3:
                await follow_run(house, plan)
            else:
                await Consumer(house, plan).consume()
        except Exception as error:
            house.tally.blame(f"{seed}, {plan.format}, {plan.ending}", error)
