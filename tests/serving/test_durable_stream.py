"""A run read as a durable stream, by hand on both event loops; the suite of the protocol is in `tests/clients`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from streamtools.events import Done, Text, UIEvent
from streamtools.outputs.asgi import Shutdown, durable_stream_response
from streamtools.runs import MemoryEventLog, RedisStore, Run, Runs
from tests.support.redis_server import RedisServer
from tests.support.serving import Exchange, read_frames

pytestmark = pytest.mark.anyio


class Answer:
    """A run that says what a test lets it say."""

    def __init__(self) -> None:
        self.say, self._said = anyio.create_memory_object_stream[UIEvent](100)

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[AsyncIterator[UIEvent]]:
        with self._said, self.say:
            yield self._said


async def said(run: Run, answer: Answer, *texts: str, done: bool = False) -> None:
    """Let the run say texts, and wait until they are in the log."""
    tail, _ = await run.tail()
    events: list[UIEvent] = [Text(text) for text in texts]
    if done:
        events.append(Done("finished", None, None, []))
    for event in events:
        await answer.say.send(event)
    while (await run.tail())[0] < tail + len(events) + (not tail):  # `start` comes with the first
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def running(
    *texts: str, done: bool = False, log: MemoryEventLog | None = None
) -> AsyncIterator[tuple[Run, Answer]]:
    """A run that has said these."""
    answer = Answer()
    async with Runs(log) as runs:
        run = await runs.start(answer.stream(), owner="ann")
        await said(run, answer, *texts, done=done)
        yield run, answer


async def ask(run: Run, query: str = "", *, method: str = "GET", **options: Any) -> Exchange:
    """Return an answer, whole."""
    exchange = Exchange(method=method)
    exchange.scope["query_string"] = query.encode()
    exchange.scope["headers"] = [(b"if-none-match", options.pop("known", "").encode())]
    with anyio.fail_after(5):
        await durable_stream_response(run, **options)(exchange.scope, exchange.receive, exchange.send)
    return exchange


def events(exchange: Exchange) -> list[str]:
    """Return the texts, and the types of other events."""
    return [each.get("text") or each["type"] for each in json.loads(exchange.chunks[0])]


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE", "OPTIONS"])
async def test_nobody_writes(method: str) -> None:
    """Whatever a client of the protocol would create, append, close or delete, is refused."""
    async with running("a") as (run, _):
        exchange = await ask(run, method=method)
        assert (405, "GET, HEAD", "nosniff") == (
            exchange.status,
            exchange.headers["allow"],
            exchange.headers["x-content-type-options"],
        )


async def test_catching_up() -> None:
    """Messages are events; an offset is where the next begin, and reading from there misses nothing."""
    async with running("a", "b") as (run, answer):
        first = await ask(run)
        assert (200, "application/json", ["start", "a", "b"]) == (
            first.status,
            first.headers["content-type"],
            events(first),
        )
        offset = first.headers["stream-next-offset"]
        assert ("0000000000000003", "true", None) == (
            offset,
            first.headers["stream-up-to-date"],
            first.headers.get("stream-closed"),
        )
        assert "private, no-cache" == first.headers["cache-control"]
        known = await ask(run, known=first.headers["etag"])
        assert (304, b"") == (known.status, b"".join(known.chunks))
        await said(run, answer, "c", done=True)
        assert 200 == (await ask(run, known=first.headers["etag"])).status
        rest = await ask(run, f"offset={offset}")
        assert (["c", "done"], "true") == (events(rest), rest.headers["stream-closed"])
        head = await ask(run, method="HEAD")
        assert (rest.headers["stream-next-offset"], b"", "no-store") == (
            head.headers["stream-next-offset"],
            head.chunks[0],
            head.headers["cache-control"],
        )
        assert "content-length" not in head.headers
        now = await ask(run, "offset=now")
        assert ([], "no-store") == (events(now), now.headers["cache-control"])


@pytest.mark.parametrize(
    "query",
    ["offset=", "offset=1", "offset=-2", "offset=a,b", "offset=-1&offset=now", "live=sse", "offset=-1&live=yes"],
)
async def test_what_is_no_offset(query: str) -> None:
    """It is said."""
    async with running("a") as (run, _):
        assert 400 == (await ask(run, query)).status


async def test_what_is_kept_no_more() -> None:
    """An offset that was dropped, or that the run has not come to, is gone; from the start, what is kept is read."""
    async with running(*"abcdefghij", log=MemoryEventLog(max_events=4)) as (run, _):
        assert 410 == (await ask(run, "offset=0000000000000002")).status
        assert 410 == (await ask(run, "offset=0000000000000099")).status
        assert ["warning", "g", "h", "i", "j"] == events(await ask(run, "offset=-1"))
        assert ["j"] == events(await ask(run, "offset=0000000000000010"))


async def test_a_run_that_was_forgotten() -> None:
    """It is not found, also if it has been a moment ago."""
    log = MemoryEventLog()
    async with running("a", log=log) as (run, _):
        log.forget(f"ann/{run.id}")
        assert 404 == (await ask(run)).status


async def test_large_answers_come_in_parts() -> None:
    """A part ends behind a mebibyte, and does not say that it is up to date."""
    async with running(*["x" * 700_000] * 3) as (run, _):
        part = await ask(run)
        assert 3 == len(json.loads(part.chunks[0]))
        assert "stream-up-to-date" not in part.headers
        assert 1 == len(events(await ask(run, f"offset={part.headers['stream-next-offset']}")))


async def test_long_polls() -> None:
    """What is there is answered at once, and else what comes; a stream that is closed is not waited for."""
    async with running("a") as (run, answer):
        there = await ask(run, "offset=-1&live=long-poll")
        assert ["start", "a"] == events(there)
        nothing = await ask(run, "offset=now&live=long-poll", long_poll=0.01)
        assert (204, "0000000000000002", "true") == (
            nothing.status,
            nothing.headers["stream-next-offset"],
            nothing.headers["stream-up-to-date"],
        )
        cursor = there.headers["stream-cursor"]
        later = await ask(run, f"offset=now&live=long-poll&cursor={cursor}", long_poll=0.01)
        assert int(cursor) < int(later.headers["stream-cursor"])

        async def poll() -> None:
            assert ["b"] == events(await ask(run, "offset=now&live=long-poll", long_poll=60.0))

        async with anyio.create_task_group() as group:
            group.start_soon(poll)
            while not run._readers:
                await anyio.lowlevel.checkpoint()
            await said(run, answer, "b")
        await said(run, answer, done=True)
        closed = await ask(run, "offset=now&live=long-poll", long_poll=60.0)
        assert (204, "true") == (closed.status, closed.headers["stream-closed"])


async def test_a_poll_ends_with_its_client_and_with_the_server() -> None:
    """Nothing is sent to who has gone; when the server ends, nothing has come."""
    async with running("a") as (run, _):
        exchange = Exchange()
        exchange.scope["query_string"] = b"offset=now&live=long-poll"
        exchange.gone.set()
        with anyio.fail_after(5):
            await durable_stream_response(run)(exchange.scope, exchange.receive, exchange.send)
        assert [] == exchange.sent
        shutdown = Shutdown()
        shutdown.begin()
        assert 204 == (await ask(run, "offset=now&live=long-poll", shutdown=shutdown)).status
        assert not run._readers


async def test_server_sent_events() -> None:
    """Each message is followed by where it ends; the last says that the stream is closed, and the body ends."""
    async with running("a\n\nevent: control", done=True) as (run, _):
        exchange = await ask(run, "offset=-1&live=sse")
        assert ("text/event-stream", "nosniff") == (
            exchange.headers["content-type"],
            exchange.headers["x-content-type-options"],
        )
        frames = b"".join(exchange.chunks).decode().split("\n\n")[1:-1]
        assert ["data", "control"] * 3 == [frame.partition("\n")[0].removeprefix("event: ") for frame in frames]
        told: Any = read_frames("\n".join(frames).replace("data:", "data: ").encode())
        assert ["start", "text", "done"] == [message["type"] for (message,) in told[::2]]
        offsets = [f"{seq:016}" for seq in (1, 2, 3)]
        assert offsets == [control["streamNextOffset"] for control in told[1::2]]
        assert [None, None, True] == [control.get("upToDate") for control in told[1::2]]
        assert [None, None, True] == [control.get("streamClosed") for control in told[1::2]]
        assert ["streamNextOffset", "upToDate", "streamClosed"] == [*told[-1]]
        at_end = b"".join((await ask(run, "offset=now&live=sse")).chunks)
        assert 1 == at_end.count(b"streamClosed")


async def test_who_is_at_the_end_is_told_so_at_once() -> None:
    """Before anything comes."""
    async with running("a") as (run, answer):
        exchange = Exchange()
        exchange.scope["query_string"] = b"offset=now&live=sse"
        async with anyio.create_task_group() as group:
            group.start_soon(durable_stream_response(run), exchange.scope, exchange.receive, exchange.send)
            await exchange.has_sent(2)
            assert b'"upToDate":true' in exchange.chunks[0]
            await said(run, answer, "b")
            await exchange.has_sent(3)
            exchange.gone.set()
        assert b'"text":"b"' in exchange.chunks[1]


@pytest.mark.servers
async def test_a_run_of_another_process() -> None:
    """It is the same stream at whichever process asks for it."""
    answer = Answer()
    with RedisServer() as server:
        async with Runs(RedisStore(server.url)) as here, Runs(RedisStore(server.url)) as there:
            run = await here.start(answer.stream(), owner="ann")
            found = await there.find(run.id, owner="ann")
            await said(run, answer, "a")
            for each in run, found:
                assert ["start", "a"] == events(await ask(each))
                assert 204 == (await ask(each, "offset=now&live=long-poll", long_poll=0.01)).status
            await said(run, answer, "b", done=True)
            for each in run, found:
                rest = await ask(each, "offset=0000000000000002&live=long-poll")
                assert (["b", "done"], "true") == (events(rest), rest.headers["stream-closed"])
                assert b"streamClosed" in b"".join((await ask(each, "offset=-1&live=sse")).chunks)
