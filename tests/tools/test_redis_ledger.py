"""Calls written down in Redis: what a server says of its disks, and whose the run is meanwhile.

Debian's server is older than 7.2, and does not know WAITAOF: what it would answer is told by a client of the tests, and
a Valkey answers for itself.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from streamtools import RunnerOptions, ToolStream
from streamtools.calls import ToolCall
from streamtools.errors import CallRefused, ClosedError
from streamtools.events import NativeToolCall, ProviderCompleted
from streamtools.runs import RedisStore, Runs
from streamtools.testing import assert_ledger_laws, assert_log_laws
from streamtools.tools import Claim, RedisLedger
from streamtools.tools.at_most_once import DRIVEN_RUN
from streamtools.tools.redis_client import RedisConnection, open_client
from tests.support.redis_server import RedisServer
from tests.support.stories import Script

pytestmark = [pytest.mark.anyio, pytest.mark.servers]


@pytest.fixture
def anyio_backend() -> str:
    """redis-py runs on asyncio only."""
    return "asyncio"


CALL = ToolCall(id="call_1", name="pay", arguments={"to": "Ann"}, dialect="native")


class Scripted:
    """A client of a real server, that itself says what is on which disks: `synced`, here and on replicas."""

    def __init__(self, client: Any, *, synced: tuple[int, int] = (1, 2), knows: bool = True, cluster: int = 0) -> None:
        self._client = client
        self.synced = synced
        self._knows = knows
        self._cluster = cluster
        self.asked: list[list[Any]] = []  # of each connection

    async def execute(self, *args: Any) -> Any:
        match args[0]:
            case "WAITAOF":
                return [*self.synced]
            case "COMMAND":
                return [[b"waitaof"] if self._knows else None]
            case "INFO":
                return b"cluster_enabled:%d" % self._cluster
        return await self._client.execute(*args)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[RedisConnection]:
        self.asked.append([])

        async def execute(*args: Any) -> Any:
            self.asked[-1].append(args[0] if args[0] == "EVAL" else args)
            return await self.execute(*args)

        yield SimpleNamespace(execute=execute)


@pytest.fixture
async def client(redis: RedisServer) -> AsyncIterator[Any]:
    """A client of an empty server."""
    async with open_client(redis.url) as client:
        await client.execute("FLUSHALL")
        yield client


async def test_a_call_begins_when_it_is_on_enough_disks(client: Any) -> None:
    """It is asked on the connection that has written it; otherwise the call is not run, and nothing is left of it."""
    scripted = Scripted(client)
    async with RedisLedger(scripted, durable=2, patience=0.5) as ledger:
        assert await ledger.begin("run_1", CALL, Claim(holder="h")) is None
        assert [["EVAL", ("WAITAOF", 1, 2, 500)]] == scripted.asked
        second = ToolCall(id="call_2", name="pay", arguments={}, dialect="native")
        for too_few in (0, 2), (1, 1):
            scripted.synced = too_few
            with pytest.raises(CallRefused, match="not on the disks of the server and 2 replicas"):
                await ledger.begin("run_1", second, Claim(holder="h"))
            with pytest.raises(CallRefused, match="not on enough disks"):
                await ledger.fence("run_2", 1)
        assert [CALL] == [entry.call for entry in await ledger.entries()]


async def test_what_is_refused_when_it_opens(client: Any) -> None:
    """A server that cannot say what is on its disk, and a cluster."""
    with pytest.raises(ValueError, match=r"from 7\.2 on"):
        async with RedisLedger(Scripted(client, knows=False), durable=0):
            pass
    with pytest.raises(ValueError, match="Cluster"):
        async with RedisLedger(Scripted(client, cluster=1)):
            pass
    with pytest.raises(ClosedError, match="entered"):
        await RedisLedger("redis://127.0.0.1:1").begin("run_1", CALL)


async def test_a_run_that_is_another_process_s(client: Any) -> None:
    """Its calls do not begin here, though nobody has told the ledger: it looks at the token of the run itself."""
    DRIVEN_RUN.set(SimpleNamespace(run_id="run_1", epoch=1, place="meta"))
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


async def test_nothing_is_left_of_what_is_pruned(client: Any) -> None:
    """Neither a call nor a list that holds it."""
    async with RedisLedger(client) as ledger:
        for number in range(150):
            call = ToolCall(id=str(number), name="pay", arguments={}, dialect="native")
            await ledger.begin(f"run_{number % 2}", call, Claim(until=0))
        assert 150 == len(await ledger.entries(limit=1000))
        assert 75 == len(await ledger.entries("run_1", limit=1000))
        assert 150 == await ledger.prune(0)
        assert [] == await client.execute("KEYS", "*")


async def test_a_run_that_a_store_drives(client: Any, redis: RedisServer) -> None:
    """Its calls look at its own token: what another process takes over in the middle begins no more of them."""
    ran: list[int] = []

    async def step(number: int) -> str:
        ran.append(number)
        (place,) = await client.execute("KEYS", "*:meta")
        await client.execute("HSET", place, "token", "2:there")
        return "done"

    asked: list[Any] = [
        [NativeToolCall(str(number), "step", {"number": number}, f"n{number}") for number in range(2)],
        [ProviderCompleted(finish_reason="tool_calls")],
    ]
    async with RedisLedger(redis.url) as ledger, Runs(RedisStore(redis.url)) as runs:
        stream = ToolStream(Script(*asked), tools=[step], runner=RunnerOptions(ledger=ledger, concurrency=1))
        run = await runs.start(stream, owner="ann")
        with anyio.fail_after(10):
            await run.wait()
        assert [0] == ran
        assert ["n0"] == [entry.call.id for entry in await ledger.entries(run.id)]


# On a Valkey, which knows WAITAOF.


async def test_a_call_that_has_begun_outlives_the_server() -> None:
    """Though that writes its file once a second only; and without a file it is refused when the ledger opens."""
    with RedisServer(valkey=True, fsync="everysec") as server:
        async with RedisLedger(server.url, durable=0) as ledger:
            assert await ledger.begin("run_1", CALL, Claim(holder="h")) is None
        server.kill()
        await anyio.to_thread.run_sync(server.start)
        async with RedisLedger(server.url, durable=0) as ledger:
            assert [CALL] == [entry.call for entry in await ledger.entries("run_1")]
    with RedisServer(valkey=True) as server, pytest.raises(Exception, match="appendonly is disabled"):
        async with RedisLedger(server.url, durable=0):
            pass


async def test_a_call_begins_when_a_replica_has_it() -> None:
    """Where the replica is not there, or says nothing, the tool does not run, and nothing is left of its call."""
    paid: list[str] = []

    async def pay(to: str) -> str:
        paid.append(to)
        return "paid"

    async def run(number: int) -> list[str]:
        called = NativeToolCall("0", "pay", {"to": str(number)}, f"n{number}")
        stream = ToolStream(
            Script([called, ProviderCompleted(finish_reason="tool_calls")]),
            tools=[pay],
            runner=RunnerOptions(ledger=ledger),
            run_id="r",
        )
        async with stream as events:
            return [event.type async for event in events]

    with RedisServer(valkey=True, fsync="everysec") as server:
        async with RedisLedger(server.url, durable=1, patience=0.1) as ledger:
            assert "error" in await run(0)
            at = ("--replicaof", "127.0.0.1", str(server.port), "--repl-diskless-sync-delay", "0")
            with RedisServer(*at, valkey=True, fsync="always") as replica:
                ledger._patience = 30.0
                assert "executed" in await run(1)
                ledger._patience = 0.1
                replica.signal(signal.SIGSTOP)
                assert "error" in await run(2)
                replica.signal(signal.SIGCONT)
            assert ["n1"] == [entry.call.id for entry in await ledger.entries()]
            assert ["1"] == paid


async def test_laws_on_valkey() -> None:
    """They are the same there, for ledgers and for logs."""
    numbers = itertools.count()

    @asynccontextmanager
    async def make_log() -> AsyncIterator[RedisStore]:
        store = RedisStore(server.url, prefix=str(next(numbers)))
        async with Runs(store):
            yield store

    with RedisServer(valkey=True) as server:
        await assert_ledger_laws(lambda clock: RedisLedger(server.url, prefix=str(next(numbers)), clock=clock))
        await assert_log_laws(make_log)
