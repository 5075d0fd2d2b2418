"""Runs that two processes share on Redis, each with its own connections."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import pytest
import redis

from streamtools import ToolStream
from streamtools.errors import RunNotFound, TooManyRuns
from streamtools.events import ProviderCompleted, UIEvent
from streamtools.runs import RedisStore, Runs
from streamtools.serving.event_log import MemoryReader
from streamtools.tools.redis_client import open_client
from tests.serving.test_runs import held, read
from tests.support.log_laws import MemoryLog, assert_log_laws
from tests.support.redis_server import RedisServer, redis_log
from tests.support.stories import Script, texts

pytestmark = [pytest.mark.asyncio_only, pytest.mark.servers]


STOP = ProviderCompleted(finish_reason="stop")


@asynccontextmanager
async def two(server: RedisServer, prefix: str, lease: float = 5.0, **options: Any) -> AsyncIterator[tuple[Runs, Runs]]:
    """Two processes."""
    made = [Runs(RedisStore(server.url, prefix=prefix, lease=lease), **options) for _ in range(2)]
    async with made[0], made[1]:
        yield made[0], made[1]


async def test_a_log_on_redis_keeps_the_laws(server: RedisServer, prefix: str) -> None:
    numbers = itertools.count()

    await assert_log_laws(lambda: redis_log(server.url, f"{prefix}{next(numbers)}"))


async def test_a_broken_law_of_logs_is_named(server: RedisServer) -> None:
    """The error names the broken law."""

    class Faulty(MemoryLog):
        def __init__(self, drops: int = 0, shifts: int = 0) -> None:
            super().__init__()
            self.drops, self.shifts = drops, shifts

        async def append(self, key: str, event: UIEvent, /) -> int:
            return event.seq if event.seq == self.drops else await super().append(key, event)

        def read(self, key: str, /, after: int = 0) -> MemoryReader:
            return super().read(key, after and max(0, after - self.shifts))

    for fault in ({"drops": 7}, {"shifts": 1}):
        with pytest.raises(AssertionError, match="the law 'order' does not hold"):
            await assert_log_laws(lambda fault=fault: nullcontext(Faulty(**fault)))  # type: ignore[misc]


async def test_the_runs_of_an_owner_are_limited(server: RedisServer, prefix: str) -> None:
    """The limit holds for all processes together, and nothing remains of a refused run."""
    async with two(server, prefix, max_per_owner=2) as (here, there):
        first = await here.start(held("a"), owner="ann")
        await there.start(held("a"), owner="ann")
        for runs in (here, there):
            with pytest.raises(TooManyRuns, match="reached max_per_owner=2") as refused:
                await runs.start(held("a"), owner="ann", conversation="c")
            assert "too_many_runs_of_owner" == refused.value.code
        assert await here.latest("c", owner="ann") is None
        await here.start(held("a"), owner="eve")
        await first.stop()
        again = await there.start(held("a"), owner="ann")
        assert {each.id for each in await here.list("ann")} >= {first.id, again.id}
        assert again.id == (await here.list("ann", limit=1))[0].id
        with pytest.raises(ValueError, match="already has a run"):
            await here.start(ToolStream(Script([STOP]), run_id=again.id), owner="ann")


async def test_ended_runs_expire(server: RedisServer, prefix: str) -> None:
    """After its time, nothing remains of an ended run."""
    async with Runs(RedisStore(server.url, prefix=prefix, keep=2.0, lease=1.0), max_kept=0) as runs:
        run = await runs.start(ToolStream(Script([*texts("a"), STOP])), owner="ann", conversation="c")
        await run.wait()
        found = await runs.find(run.id, owner="ann")
        assert found.ended
        async with open_client(server.url) as client:
            with anyio.fail_after(20):  # Redis's clock is its own
                while [key for key in await client.execute("KEYS", f"{prefix}*") if b":process:" not in key]:
                    pass
        assert [] == await runs.list("ann")
        with pytest.raises(RunNotFound):
            await runs.find(run.id, owner="ann")
        with pytest.raises(RunNotFound):
            await read(found.attach())
        assert await runs.latest("c", owner="ann") is None


async def test_a_command_may_outlive_its_client(server: RedisServer, prefix: str) -> None:
    """Its connection is closed after the command."""
    async with open_client(server.url) as other, anyio.create_task_group() as group:
        with anyio.fail_after(20):
            async with open_client(server.url) as client:
                group.start_soon(client.execute, "BLPOP", prefix, 0)
                while b"cmd=blpop" not in await other.execute("CLIENT", "LIST"):
                    pass
            await other.execute("RPUSH", prefix, "a")
            while b"cmd=blpop" in await other.execute("CLIENT", "LIST"):
                pass


async def test_a_run_that_is_read_elsewhere_is_not_abandoned(server: RedisServer, prefix: str) -> None:
    """It stops when no process reads it."""
    async with two(server, prefix, lease=0.3, stop_when_abandoned=0.1) as (here, there):
        run = await here.start(held("a"), owner="ann")
        found = await there.find(run.id, owner="ann")
        async with found.attach() as events:
            for _ in range(3):
                await anext(events)
            with anyio.move_on_after(1.0):
                await anext(events)
            assert not run.ended
        with anyio.fail_after(10):
            assert "cancelled" == (await found.wait()).reason


async def test_invalid_servers_are_refused_on_entry(server: RedisServer, prefix: str) -> None:
    """A cluster is refused on entry, wrong values and a client that is not async earlier."""
    with (
        RedisServer("--cluster-enabled", "yes") as cluster,
        pytest.raises(ValueError, match="Redis Cluster is not supported"),
    ):
        async with Runs(RedisStore(cluster.url)):
            pass
    with pytest.raises(TypeError, match=r"or a redis\.asyncio\.Redis, got redis\.client\.Redis\."):
        RedisStore(redis.Redis())
    for wrong in ({"lease": 0}, {"keep": "a"}, {"max_events": True}, {"prefix": "a{b}"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RedisStore(server.url, **wrong)
