"""Runs that processes share on Redis: two of them, each with its own connections, on a server of Debian's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from streamtools import ToolStream, chat
from streamtools.conversation import ScriptedModel
from streamtools.errors import Code, DecisionRefused, OwnerUnreachable, RunNotFound, TooManyRuns
from streamtools.events import Done, Error, ProviderCompleted, Text
from streamtools.outputs import validate
from streamtools.runs import RedisStore, Run, Runs
from tests.serving.test_runs import held, read
from tests.support.approvals import ANN, QUESTION, Bank, calls
from tests.support.redis_server import RedisServer
from tests.support.stories import Script, story, texts

pytestmark = pytest.mark.anyio

STOP = ProviderCompleted(finish_reason="stop")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """One server for all of these tests; each has keys of its own."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """What the keys of a test begin with."""
    return str(request.node.name)


@asynccontextmanager
async def two(server: RedisServer, prefix: str, lease: float = 5.0, **options: Any) -> AsyncIterator[tuple[Runs, Runs]]:
    """Two processes."""
    made = [Runs(RedisStore(server.url, prefix=prefix, lease=lease), **options) for _ in range(2)]
    async with made[0], made[1]:
        yield made[0], made[1]


async def test_a_run_is_found_and_read_elsewhere(server: RedisServer, prefix: str) -> None:
    """With the same events, live and afterwards, and with the same result."""
    gate = anyio.Event()
    async with two(server, prefix) as (here, there):
        stream = ToolStream(Script(texts("a", "b"), gate, [*texts("c"), STOP]))
        run = await here.start(stream, owner="ann", conversation="c1", note={"title": "Hello"})
        found = await there.find(run.id, owner="ann")
        assert isinstance(found, Run)
        assert ("c1", {"title": "Hello"}, False) == (found.conversation, found.note, found.ended)
        with pytest.raises(RunNotFound):
            await there.find(run.id, owner="eve")
        taken = []
        async with found.attach() as events:
            async for event in events:
                taken.append(event)
                if event == Text("b", seq=event.seq):
                    gate.set()
        validate(taken)
        assert taken == await read(run.attach())
        assert taken[3:] == await read(found.attach(3))
        assert [] == await read(found.attach(taken[-1].seq))
        result = await found.wait()
        mine = await run.wait()
        assert ("abc", "finished", mine) == (result.text, result.reason, result)
        assert mine.messages() == result.messages()
        assert found.ended
        assert found.result == result
        latest = await there.latest("c1", owner="ann")
        assert latest is not None
        assert (run.id, True) == (latest.id, latest.ended)
        assert [run.id] == [each.id for each in await there.list("ann")]
        assert [] == await there.list("eve")
        assert await there.latest("c2", owner="ann") is None


async def test_a_run_is_stopped_elsewhere(server: RedisServer, prefix: str) -> None:
    """All readers see its end; a second stop changes nothing."""
    async with two(server, prefix) as (here, there):
        run = await here.start(held("a"), owner="ann")
        found = await there.find(run.id, owner="ann")
        async with found.attach() as events:
            assert "start" == (await anext(events)).type
            await found.stop()
            await found.stop()
            rest = await read(events)
        assert isinstance(rest[-1], Done)
        assert "cancelled" == rest[-1].reason
        assert run.ended
        assert found.ended
        assert "cancelled" == found.result.reason


async def test_calls_are_decided_about_elsewhere(server: RedisServer, prefix: str) -> None:
    """What is asked is told, a decision counts when it returns, and one that does not fit is refused."""
    bank = Bank()
    async with two(server, prefix) as (here, there):
        asked = calls(("pay", ANN), ("sign", {"text": "Dear Ann"}))
        stream = chat(ScriptedModel([asked, "Done."]), [QUESTION], tools=bank.tools, ask="now")
        run = await there.find((await here.start(stream, owner="ann")).id, owner="ann")
        with anyio.fail_after(20):
            async for event in run.attach():
                questions = await run.questions()
                if len(questions) == 2:
                    assert [("pay", True), ("sign", False)] == [(each.call.name, each.approval) for each in questions]
                    with pytest.raises(DecisionRefused, match="its arguments differ"):
                        await run.approve("n0", digest="another")
                    await run.approve("n0", digest=questions[0].digest)
                    with pytest.raises(DecisionRefused, match="has been decided already"):
                        await run.deny("n0")
                    await run.answer("n1", {"page": 1})
                    break
                assert event.type != "done"
            result = await run.wait()
        assert [("Ann", 5)] == bank.paid
        assert ["paid 5 to Ann", {"page": 1}] == [each.result for each in result.outcomes]
        with pytest.raises(DecisionRefused, match="the run has ended"):
            await run.approve("n0")
        assert [] == await run.questions()
