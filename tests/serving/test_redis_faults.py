"""Runs on Redis whose owner is cut off, or whose server is killed: one end, which is true, and no event twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from streamtools import ToolStream, chat
from streamtools.conversation import ScriptedModel
from streamtools.errors import Code, OwnerUnreachable
from streamtools.events import Done, Error, ProviderCompleted, UIEvent, Warning
from streamtools.outputs import validate
from streamtools.runs import RedisStore, Runs
from streamtools.tools import MemoryLedger
from streamtools.tools.redis_client import open_client
from tests.serving.test_runs import held, read
from tests.support.approvals import ANN, QUESTION, Bank, calls
from tests.support.cut_client import CutClient
from tests.support.redis_server import RedisServer
from tests.support.stories import Script, WaitingTool, story, texts

pytestmark = [pytest.mark.anyio, pytest.mark.servers]

STOP = ProviderCompleted(finish_reason="stop")
LEASE = 0.5


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for those that leave it alone; each has keys of its own."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """What the keys of a test begin with."""
    return str(request.node.name)


@asynccontextmanager
async def cuttable(server: RedisServer, **options: Any) -> AsyncIterator[tuple[Runs, Runs, CutClient]]:
    """Two processes, the first of which can be cut off."""
    async with open_client(server.url) as client:
        cut = CutClient(client)
        options = {"lease": LEASE, **options}
        async with Runs(RedisStore(server.url, **options)) as there, Runs(RedisStore(cut, **options)) as here:
            yield here, there, cut


async def test_an_owner_that_is_cut_off_loses_its_run(server: RedisServer, prefix: str) -> None:
    """Another ends it; when the owner is back, what it still says is written nowhere, and its run ends as well."""
    gate = anyio.Event()
    async with cuttable(server, prefix=prefix) as (here, there, cut):
        run = await here.start(ToolStream(Script(texts("a"), gate, [*texts("b"), STOP])), owner="ann")
        found = await there.find(run.id, owner="ann")
        taken = list[UIEvent]()
        with anyio.fail_after(20):
            async for event in found.attach():
                taken.append(event)
                if event.type == "text":
                    cut.cut()
                    gate.set()
            cut.mend()
            mine = await run.wait()
        validate(taken)
        assert ["start", "step 1", "text 'a'", "error stream_interrupted", "step 1 ends: None"] == story(taken)[:-1]
        assert isinstance(taken[-1], Done)
        assert "failed" == taken[-1].reason
        assert ("a", "failed") == (mine.text, mine.reason)
        assert mine == await found.wait()
        assert taken == await read((await there.find(run.id, owner="ann")).attach())


@pytest.mark.parametrize("known", [False, True])
async def test_a_call_that_may_have_begun_is_unknown(server: RedisServer, prefix: str, known: bool) -> None:
    """One that waits for somebody is pending, and so is, where there is a ledger, one that has not begun there."""
    tool = WaitingTool()
    bank = Bank()
    ledger = MemoryLedger()
    said = calls(("wait", {}), ("pay", ANN))
    async with cuttable(server, prefix=prefix, ledger=ledger if known else None) as (here, there, cut):
        tools = [tool.wait, *bank.tools]
        stream = chat(ScriptedModel([said, "Done."]), [QUESTION], tools=tools, ask="now", ledger=ledger)
        run = await here.start(stream, owner="ann")
        found = await there.find(run.id, owner="ann")
        taken = list[UIEvent]()
        with anyio.fail_after(20):
            async for event in found.attach():
                taken.append(event)
                if {"executing", "approval-requested"} <= {each.type for each in taken}:
                    cut.cut()
        validate(taken)
        errors = [event for event in taken if isinstance(event, Error)]
        assert [Code.OUTCOME_UNKNOWN, Code.STREAM_INTERRUPTED] == [each.code for each in errors]
        assert errors[0].call is not None
        assert "wait" == errors[0].call.name
        assert isinstance(taken[-1], Done)
        assert ["pay"] == [call.name for call in taken[-1].pending]
        if known:  # the owner has not heard of it, and its person says yes
            await run.approve(taken[-1].pending[0].id)
            cut.mend()
        with anyio.fail_after(20):
            cut.mend()
            await run.stop()
    assert [] == bank.paid if known else True


async def test_an_owner_that_cannot_be_reached(server: RedisServer, prefix: str) -> None:
    """Whoever asks it is told so within a lease."""
    async with cuttable(server, prefix=prefix, lease=1.0) as (here, there, cut):
        run = await here.start(held("a"), owner="ann")
        found = await there.find(run.id, owner="ann")
        cut.cut()
        with pytest.raises(OwnerUnreachable):
            await found.approve("n0")
        with anyio.fail_after(10):
            await found.stop()
        assert "failed" == found.result.reason
        cut.mend()


@pytest.mark.parametrize("lost", [0, 3])
async def test_the_server_is_killed(lost: int, prefix: str) -> None:
    """Readers go on when it is back, without a gap; if it comes back without the last events, the owner has them."""
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
                    if story([event]) == ["text 'e'"]:
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
