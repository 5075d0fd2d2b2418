"""Runs on Redis whose owner is cut off, or whose server is killed: one true end, and no event twice."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from streamtools import ToolStream
from streamtools.errors import OwnerUnreachable
from streamtools.events import ProviderCompleted, Text, UIEvent, Warning
from streamtools.outputs import validate
from streamtools.runs import RedisStore, Runs
from streamtools.serving.leased_run import LeasedRun
from streamtools.tools.redis_client import open_client
from tests.serving.test_runs import held, read
from tests.support.cut_client import CutClient
from tests.support.redis_server import RedisServer
from tests.support.stories import Script, story, texts

pytestmark = [pytest.mark.asyncio_only, pytest.mark.servers]


STOP = ProviderCompleted(finish_reason="stop")
LEASE = 0.5


@asynccontextmanager
async def cuttable(server: RedisServer, **options: Any) -> AsyncIterator[tuple[Runs, Runs, CutClient]]:
    """Two processes, the first of which can be cut off."""
    async with open_client(server.url) as client:
        cut = CutClient(client)
        options = {"lease": LEASE, **options}
        async with Runs(RedisStore(server.url, **options)) as there, Runs(RedisStore(cut, **options)) as here:
            yield here, there, cut


async def test_an_unreachable_owner(server: RedisServer, prefix: str) -> None:
    """The caller gets an error within a lease."""
    async with cuttable(server, prefix=prefix, lease=1.0) as (here, there, cut):
        run = await here.start(held("a"), owner="ann")
        found = await there.find(run.id, owner="ann")
        cut.cut()
        with pytest.raises(OwnerUnreachable):
            await found.approve("n0")
        with anyio.fail_after(10):
            await found.stop()
        assert found.result.reason in ("failed", "cancelled")  # cancelled if the stop was stored before the takeover
        cut.restore()


async def test_a_process_takes_over_its_own_lost_run(
    server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pending events of the lost run do not prevent its end."""
    store = RedisStore(server.url, prefix=prefix, lease=LEASE)
    async with Runs(store) as runs, open_client(server.url) as client:
        run = await runs.start(held("a"), owner="ann")
        (process,) = store.processes.values()
        write_soon, (lost,) = process.write_soon, process.leased.values()
        keys, taken = process.server.keys, anyio.Event()

        def write_both(run: LeasedRun) -> None:
            write_soon(run)
            if run is not lost:
                write_soon(lost)
                taken.set()

        monkeypatch.setattr(process, "write_soon", write_both)
        await client.execute("HSET", keys.of_run(lost.key).meta, "token", "2:other")
        with anyio.fail_after(10):
            await run.wait()
            await taken.wait()
            await process.leased[lost.key].finished.wait()
        assert lost.is_fenced
        assert await process.server.read_result(lost.key)


UNREADABLE = ("", "no JSON", "[]", "{}", '{"kind": 1}', '{"kind": "answer", "id": ["a"]}', '{"kind": "stop"}')


async def test_unreadable_messages_are_ignored(server: RedisServer, prefix: str) -> None:
    """They are ignored, and messages after them are read."""
    async with cuttable(server, prefix=prefix) as (here, there, _), open_client(server.url) as client:

        async def write() -> None:
            while True:
                for stream in streams:
                    for message in UNREADABLE:
                        await client.execute("XADD", stream, "*", "m", message, "of", "another version")

        run = await here.start(held("a"), owner="ann")
        found = await there.find(run.id, owner="ann")
        assert [] == await found.questions()
        begin = f"{prefix}:process:".encode()
        streams = [each for each in await client.execute("KEYS", "*:process:*") if each.startswith(begin)]
        assert 2 == len(streams)
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            for _ in range(20):
                assert [] == await found.questions()
            group.cancel_scope.cancel()
        await found.stop()
        assert "cancelled" == found.result.reason


async def test_readers_of_the_driving_process_cost_no_commands(server: RedisServer, prefix: str) -> None:
    """Readers in the same process cost no commands."""
    gates = {each: anyio.Event() for each in "abcdef"}
    source = Script(*(part for each, gate in gates.items() for part in (texts(each), gate)), [STOP])
    async with cuttable(server, prefix=prefix, lease=30.0) as (here, _, sending):
        run = await here.start(ToolStream(source), owner="ann")
        both, asked = [list[UIEvent](), list[UIEvent]()], dict[str, int]()

        async def follow(taken: list[UIEvent]) -> None:
            async for event in run.attach():
                taken.append(event)
                if isinstance(event, Text) and all(each and each[-1].seq == event.seq for each in both):
                    asked[event.text] = len(sending.sent)
                    gates[event.text].set()

        async with anyio.create_task_group() as group:
            for each in both:
                group.start_soon(follow, each)
        validate(both[0])
        assert both[0] == both[1]
        assert [1] * 4 == [asked[later] - asked[before] for before, later in itertools.pairwise("bcdef")]


@pytest.mark.parametrize("lost", [0, 3])
async def test_the_server_is_killed(lost: int, prefix: str) -> None:
    """Readers continue without a gap; the owner writes lost events again."""
    gates = [anyio.Event() for _ in range(2)]
    letters = [texts(each) for each in "abcdef"]
    with RedisServer(fsync="always") as server:
        async with cuttable(server, prefix=prefix, lease=3.0) as (here, there, _):
            source = Script(*letters[:3], gates[0], *letters[3:5], gates[1], [*letters[5], STOP])
            run = await here.start(ToolStream(source), owner="ann")
            found = await there.find(run.id, owner="ann")
            taken = list[UIEvent]()
            late = list[UIEvent]()
            with anyio.fail_after(30):
                async for event in found.attach():
                    taken.append(event)
                    if story([event]) == ["text 'c'"]:
                        size = (server.folder / "appendonlydir" / "appendonly.aof.1.incr.aof").stat().st_size
                        gates[0].set()
                    if story([event]) == ["text 'e'"] and not gates[1].is_set():
                        server.kill()
                        if lost:
                            with (server.folder / "appendonlydir" / "appendonly.aof.1.incr.aof").open("r+b") as file:
                                file.truncate(size)
                        await anyio.to_thread.run_sync(server.start)
                        gates[1].set()
                late = await read(found.attach())
            validate(late)
            assert ["text 'e'", "text 'f'"] == [line for line in story(late) if line.startswith("text")][4:]
            resyncs = [at for at, event in enumerate(taken) if isinstance(event, Warning)]
            assert len(resyncs) <= (1 if lost else 0)
            assert late == taken[resyncs[0] + 1 :] if resyncs else late == taken
            assert "abcdef" == (await run.wait()).text


async def test_a_server_that_lost_the_end_of_a_run(prefix: str) -> None:
    """The owner writes it again, and readers get the same events as before."""
    gate = anyio.Event()
    with RedisServer(fsync="always") as server:
        async with cuttable(server, prefix=prefix, lease=3.0) as (here, there, _):
            file = server.folder / "appendonlydir" / "appendonly.aof.1.incr.aof"
            run = await here.start(ToolStream(Script(texts("a"), gate, [*texts("b"), STOP])), owner="ann")
            taken = list[UIEvent]()
            async for event in run.attach():
                taken.append(event)
                if event.type == "text" and not gate.is_set():
                    size = file.stat().st_size
                    gate.set()
            result = await run.wait()
            server.kill()
            with file.open("r+b") as cut:
                cut.truncate(size)
            await anyio.to_thread.run_sync(server.start)
            with anyio.fail_after(20):
                found = await there.find(run.id, owner="ann")
                assert not found.ended
                assert taken == await read(found.attach())
                assert result == await found.wait()
