"""The ledger in Redis: whose run a call belongs to, which keys expire, and the laws on Valkey."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from conformance.ledger_laws import assert_ledger_laws
from streamtools import RunnerOptions, ToolStream
from streamtools.calls import ToolCall
from streamtools.errors import CallRefused, ClosedError
from streamtools.events import NativeToolCall, ProviderCompleted
from streamtools.runs import RedisStore, Runs
from streamtools.tools import Claim, RedisLedger
from streamtools.tools.ledger import RECOVERABLE_RUN
from streamtools.tools.redis_client import open_client
from tests.support.log_laws import assert_log_laws
from tests.support.patching import with_clock
from tests.support.redis_server import RedisServer, redis_log
from tests.support.stories import Script

pytestmark = [pytest.mark.asyncio_only, pytest.mark.servers]


CALL = ToolCall(id="call_1", name="pay", arguments={"to": "Ann"}, dialect="native")


@pytest.fixture
async def client(redis: RedisServer) -> AsyncIterator[Any]:
    """A client of an empty server."""
    async with open_client(redis.url) as client:
        await client.execute("FLUSHALL")
        yield client


async def test_a_ledger_must_be_entered() -> None:
    with pytest.raises(ClosedError, match="Enter the ledger"):
        await RedisLedger("redis://127.0.0.1:1").begin("run_1", CALL)


def test_a_cluster_is_refused() -> None:

    async def enter() -> None:
        with pytest.raises(ValueError, match="Cluster"):
            async with RedisLedger(cluster.url):
                pass

    with RedisServer("--cluster-enabled", "yes") as cluster:
        anyio.run(enter)


async def test_calls_of_a_run_of_another_process_do_not_start(client: Any) -> None:
    """The ledger reads the token of the run itself."""
    RECOVERABLE_RUN.set(SimpleNamespace(run_id="run_1", epoch=1, meta_key="meta"))
    async with RedisLedger(client) as ledger:
        for token, begins in ("1:here", True), ("2:there", False):
            await client.execute("HSET", "meta", "token", token)
            call = ToolCall(id=token, name="pay", arguments={}, dialect="native")
            if begins:
                assert await ledger.begin("run_1", call, Claim(epoch=1)) is None
            else:
                with pytest.raises(CallRefused, match="taken over"):
                    await ledger.begin("run_1", call, Claim(epoch=1))
        assert await ledger.begin("run_2", CALL, Claim(epoch=1)) is None


async def test_all_keys_of_an_ended_call_expire(client: Any) -> None:
    """Neither the call nor its index entries remain."""
    times = iter((0.0, 0.0, 9.0))
    async with with_clock(RedisLedger(client, keep=5), lambda: next(times)) as ledger:
        await ledger.begin("run_1", CALL, Claim(holder="h", until=0))
        await ledger.hold("run_1", CALL, "h", 0)
        assert await ledger.begin("run_2", CALL) is None
        assert not [key for key in await client.execute("KEYS", "*") if b"run_1" in key]


async def test_many_calls_are_listed(client: Any) -> None:
    async with RedisLedger(client) as ledger:
        for number in range(150):
            call = ToolCall(id=str(number), name="pay", arguments={}, dialect="native")
            await ledger.begin(f"run_{number % 2}", call, Claim(until=0))
        assert 150 == len(await ledger.entries(limit=1000))
        assert 75 == len(await ledger.entries("run_1", limit=1000))


async def test_calls_check_the_token_of_their_run(client: Any, redis: RedisServer) -> None:
    """After a takeover, none of them starts."""
    ran: list[int] = []

    async def step(number: int) -> str:
        ran.append(number)
        (place,) = await client.execute("KEYS", "*:meta")
        await client.execute("HSET", place, "token", "2:there")
        return "done"

    asked: list[Any] = [
        [NativeToolCall("step", {"number": number}, str(number), f"n{number}") for number in range(2)],
        [ProviderCompleted(finish_reason="tool_calls")],
    ]
    async with RedisLedger(redis.url) as ledger, Runs(RedisStore(redis.url)) as runs:
        stream = ToolStream(Script(*asked), tools=[step], runner=RunnerOptions(ledger=ledger, concurrency=1))
        run = await runs.start(stream, owner="ann")
        with anyio.fail_after(10):
            await run._finished.wait()
        assert [0] == ran
        assert ["n0"] == [entry.call.id for entry in await ledger.entries(run.id)]


async def test_laws_on_valkey() -> None:
    """The laws of ledgers and logs also hold on Valkey."""
    numbers = itertools.count()

    with RedisServer(valkey=True) as server:
        await assert_ledger_laws(lambda clock: with_clock(RedisLedger(server.url, prefix=str(next(numbers))), clock))
        await assert_log_laws(lambda: redis_log(server.url, str(next(numbers))))
