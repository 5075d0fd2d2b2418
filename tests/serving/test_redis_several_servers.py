"""Runs of many users on several Redis servers, one of which fails or is added."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from streamtools import ToolStream
from streamtools.errors import OwnerUnreachable, RunNotFound, TooManyRuns
from streamtools.events import ProviderCompleted
from streamtools.runs import LostRun, RedisStore, Runs
from streamtools.serving.redis_store import server_of
from tests.chat.test_continued_chat import text_of
from tests.serving.test_recovery import weather_chat
from tests.serving.test_runs import held, read
from tests.support.redis_server import RedisServer
from tests.support.stories import Script, texts

pytestmark = pytest.mark.asyncio_only

STOP = ProviderCompleted(finish_reason="stop")
OWNERS = [f"user {number}" for number in range(1_000)]
NAMES = ["a:1", "b:1", "c:1"]


def test_servers_get_about_the_same_number_of_users() -> None:
    counts = Counter(server_of(owner, NAMES) for owner in OWNERS)
    assert all(250 < counts[name] < 417 for name in NAMES)


@pytest.mark.parametrize("others", [NAMES[:1], NAMES[1:], NAMES])
def test_users_move_only_to_an_added_server(others: list[str]) -> None:
    """If it is removed again, only its users move. The order of the list does not count."""
    moved = [owner for owner in OWNERS if server_of(owner, others) != server_of(owner, ["d:1", *others])]
    assert {"d:1"} == {server_of(owner, ["d:1", *others]) for owner in moved}
    assert 0.5 < len(moved) * (len(others) + 1) / len(OWNERS) < 1.5
    assert all(server_of(owner, others) == server_of(owner, others[::-1]) for owner in OWNERS)


@pytest.mark.parametrize("servers", [[], ["redis://a", object()], (None, None)])
def test_lists_hold_urls(servers: Any) -> None:
    with pytest.raises(TypeError, match="or a list of URLs, got"):
        RedisStore(servers)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[RedisServer, RedisServer]]:
    with RedisServer() as first, RedisServer(fsync="always") as second:
        yield first, second


def owner_on(server: RedisServer, servers: tuple[RedisServer, ...]) -> str:
    names = [each.url.removeprefix("redis://") for each in servers]
    return next(owner for owner in OWNERS if server_of(owner, names) == names[servers.index(server)])


@asynccontextmanager
async def processes(*stores: RedisStore, **options: Any) -> AsyncIterator[list[Runs]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Runs(store, **options)) for store in stores]


@pytest.mark.servers
async def test_a_lost_server_affects_only_its_users(pair: tuple[RedisServer, RedisServer], prefix: str) -> None:
    """Others start, read, list and stop their runs, also in a process that starts meanwhile."""
    first, second = pair
    well, badly = owner_on(first, pair), owner_on(second, pair)
    gate, urls = anyio.Event(), [first.url, second.url]

    def store() -> RedisStore:  # the order of the list, and the password of a user, do not count
        urls.reverse()
        return RedisStore([url.replace("//", "//default:@") for url in urls], prefix=prefix, lease=1.0)

    def source() -> ToolStream:
        return ToolStream(Script(texts("a"), gate, [*texts("b"), STOP]))

    async with processes(store(), store(), max_per_owner=2) as (here, there):
        runs = {owner: await here.start(source(), owner=owner, conversation="c") for owner in (well, badly)}
        found = {owner: await there.find(run.id, owner=owner) for owner, run in runs.items()}
        second.kill()
        try:
            with anyio.fail_after(30):
                async with processes(store()) as (late,):
                    for each in (there, late):
                        with pytest.raises(OwnerUnreachable):
                            await each.start(held("a"), owner=badly)
                        with pytest.raises(RunNotFound):
                            await each.find("run_none", owner=well)
                    new = await there.start(held("a"), owner=well, conversation="c")
                    with pytest.raises(TooManyRuns):
                        await here.start(held("a"), owner=well)
                    latest = await late.latest("c", owner=well)
                    assert latest is not None
                    assert {new.id} == {latest.id, *(each.id for each in await late.list(well, limit=1))}
                    gate.set()
                    events = await read(found[well].attach())
                    assert "finished" == (await found[well].wait()).reason
                    assert events == await read((await late.find(runs[well].id, owner=well)).attach())
                    await latest.stop()
        finally:
            await anyio.to_thread.run_sync(second.start)
        with anyio.fail_after(30):
            assert "ab" == (await runs[badly].wait()).text
            assert [event.type for event in events] == [event.type async for event in found[badly].attach()]
            assert "ab" == (await found[badly].wait()).text


@pytest.mark.servers
async def test_a_run_on_a_former_server_is_continued(pair: tuple[RedisServer, RedisServer], prefix: str) -> None:
    """Its process closes, and a process with a new list of servers takes it over."""
    owner, new = owner_on(pair[1], pair), [pair[0].url, pair[1].url]
    make, is_taken = weather_chat("text", 3), anyio.Event()

    def recover(lost: LostRun) -> Any:
        is_taken.set()
        return make(continue_from=lost)

    def runs(servers: list[str]) -> Runs:
        return Runs(RedisStore(servers, prefix=prefix, recover=recover))

    with anyio.fail_after(30):
        async with runs(new[:1]) as here:
            run = await here.start(make(), owner=owner)
            async with run.attach() as shown:
                while (await anext(shown)).type != "text":
                    pass
        async with runs(new):
            await is_taken.wait()
            async with runs(new[:1]) as reader:
                found = await reader.find(run.id, owner=owner)
                events = await read(found.attach())
                result = await found.wait()
    assert (text_of(events), "finished") == (result.text, result.reason)
    async with make(continue_from=None) as stream:
        assert result.text == text_of([event async for event in stream])
