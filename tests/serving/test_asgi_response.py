"""A response of events, driven by hand on both event loops: its messages, and the end of its stream."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from streamtools import ToolStream, outputs, sources
from streamtools.errors import RunNotFound
from streamtools.events import Done, ProviderCompleted, Start, Text, UIEvent
from streamtools.outputs import asgi
from streamtools.runs import Runs
from streamtools.serving import event_reader
from streamtools.serving.event_response import EventStreamResponse, event_stream_response
from streamtools.stream.reading import Driver
from tests.support.serving import Exchange, read_frames
from tests.support.stories import Script
from tests.support.stories import batches as texts

STOP = ProviderCompleted(finish_reason="stop")
HELLO: list[UIEvent] = [Start("r", seq=1), Text("Hello", seq=2), Done("finished", "stop", None, [], seq=3)]


def stream(*items: Any, hold: bool = False) -> tuple[ToolStream, Script]:
    """Return a stream and its source."""
    source = Script(*items, hold=hold)
    return ToolStream(source, run_id="r"), source


async def listed(events: list[UIEvent]) -> AsyncIterator[UIEvent]:
    """Yield the events."""
    for event in events:
        yield event


@asynccontextmanager
async def answering(
    response: EventStreamResponse, exchange: Exchange, raised: list[Exception] | None = None
) -> AsyncIterator[anyio.Event]:
    """Run a response during the block, and wait for its end after the event is set."""
    over = anyio.Event()

    async def answer() -> None:
        try:
            await response(exchange.scope, exchange.receive, exchange.send)
        except Exception as error:
            if raised is None:
                raise
            raised.append(error)
        over.set()

    async with anyio.create_task_group() as group:
        group.start_soon(answer)
        with anyio.fail_after(20):
            yield over
            await over.wait()


async def answer(response: EventStreamResponse, exchange: Exchange) -> None:
    """Run a response to its end."""
    async with answering(response, exchange):
        pass


async def test_events_of_one_read_are_one_message() -> None:
    """Headers, each read of the source, and the end are one message each."""
    events, source = stream(*texts("Hello", " there"), [STOP])
    exchange = Exchange()
    await answer(event_stream_response(events, headers={"X-Own": "1"}), exchange)

    *frames, last = exchange.chunks
    told = [read_frames(frame) for frame in frames]
    assert (200, b"") == (exchange.status, last)
    assert ["start", "step-start", "text", "text", "step-end", "done"] == [each["type"] for all in told for each in all]
    assert len(frames) < 6
    assert exchange.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "x-own": "1",
    }
    assert 1 == source.closed


class Server(Exchange):
    """Reports the disconnect of the client after the end of the body, as uvicorn and Hypercorn do."""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await super().send(message)
        if self.ended:
            self.gone.set()


async def test_a_response_leaves_no_garbage() -> None:
    """Reference counting frees all of its objects."""
    response = event_stream_response(stream(*texts("Hello"), [STOP])[0])
    reader = weakref.ref(response._reader)
    gc.collect()
    gc.disable()
    try:
        await answer(response, Server())
        del response
        assert reader() is None
    finally:
        gc.enable()


class Louder(ToolStream):
    """Changes the text of each event."""

    async def __anext__(self) -> UIEvent:
        event = await super().__anext__()
        return replace(event, text=event.text.upper()) if isinstance(event, Text) else event


async def test_events_of_a_subclass_are_sent() -> None:
    """No event bypasses the `__anext__` of a subclass, neither in a response nor in a run."""
    exchange = Exchange()
    await answer(event_stream_response(Louder(Script(*texts("Hello", " there"), [STOP]))), exchange)
    async with Runs() as runs:
        run = await runs.start(Louder(Script(*texts("Hello", " there"), [STOP])), owner="u")
        async with run.attach() as attachment:
            seen = [event.text async for event in attachment if isinstance(event, Text)]

    frames = [frame for chunk in exchange.chunks for frame in read_frames(chunk)]
    assert ["HELLO", " THERE"] == [each["text"] for each in frames if each["type"] == "text"] == seen


@pytest.mark.parametrize("format", outputs.FORMATS)
async def test_each_format(format: str) -> None:
    """A format is a name, a function or an encoder. Without an event, the response sends its headers and a comment."""

    async def silent() -> AsyncIterator[UIEvent]:
        await anyio.wait_all_tasks_blocked()
        for event in HELLO:
            yield event

    encoder = outputs.make_encoder(format)
    for each in (format, outputs.FORMATS[format], outputs.make_encoder(format)):
        exchange = Exchange()
        await answer(event_stream_response(silent(), format=each), exchange)
        assert exchange.ended
        assert {"content-type": encoder.content_type, **encoder.headers} == exchange.headers
        assert b"Hello" in b"".join(exchange.chunks)
        assert encoder.keep_alive == exchange.chunks[0]


async def test_given_headers_replace_others() -> None:
    """Names are compared without case."""
    response = event_stream_response(listed(HELLO), headers={"Cache-Control": "no-store"})

    assert ["no-store"] == response.headers.getlist("cache-control")


@pytest.mark.parametrize(
    ("format", "as_run"), [("native", False), ("ai_sdk", False), ("ag_ui", False), ("native", True)]
)
async def test_the_first_text_is_sent_without_delay(format: str, as_run: bool, anyio_backend_name: str) -> None:
    """From the provider's delta to the message, the event loop turns once for each task involved."""
    came, turn, turns = anyio.Event(), 0, list[int]()

    async def say() -> AsyncIterator[str]:
        await came.wait()
        turns.append(turn)
        yield "Hello"

    async def turn_round() -> None:
        nonlocal turn
        while True:
            turn += 1
            await anyio.lowlevel.checkpoint()

    class Noting(Exchange):
        async def send(self, message: MutableMapping[str, Any]) -> None:
            if b"Hello" in message.get("body", b""):
                turns.append(turn)
            await super().send(message)

    exchange = Noting()
    async with Runs() as runs, anyio.create_task_group() as group:
        told: Any = ToolStream(sources.text(say()))
        told = await runs.start(told, owner="ann") if as_run else told
        async with answering(event_stream_response(told, format=format), exchange):
            await anyio.wait_all_tasks_blocked()
            group.start_soon(turn_round)
            came.set()
        group.cancel_scope.cancel()
    unsure = anyio_backend_name == "trio"  # runs the tasks of one turn in any order
    assert abs(turns[1] - turns[0] - 1) <= unsure


@pytest.mark.parametrize("shuts_down", [False, True])
async def test_a_slow_stream_does_not_delay_the_headers(shuts_down: bool) -> None:
    """Its client may leave while it opens. A shutdown does not wait for it, and the client gets `done(cancelled)`."""
    left, shutdown = anyio.Event(), asgi.Shutdown()

    @asynccontextmanager
    async def slow() -> AsyncIterator[AsyncIterator[UIEvent]]:
        try:
            await anyio.sleep_forever()
        finally:
            left.set()
        yield listed(HELLO)

    exchange = Exchange()
    async with answering(event_stream_response(slow(), shutdown=shutdown), exchange):
        await exchange.has_sent(2)
        if shuts_down:
            shutdown.begin()
        else:
            exchange.gone.set()
    assert (True, shuts_down, b": keep-alive\n\n") == (left.is_set(), exchange.ended, exchange.chunks[0])
    told = [(each["type"], each["reason"], each["seq"]) for each in read_frames(exchange.chunks[1:])]
    assert [("done", "cancelled", 1)] * shuts_down == told


@pytest.mark.parametrize("generated", [False, True])
@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("place", range(2, 7))
async def test_a_client_may_leave_at_any_event(place: int, refuses: bool, generated: bool) -> None:
    """At any point and with any server, the stream is left and its source is closed, also by a generator."""

    async def generate() -> AsyncIterator[UIEvent]:
        async with events:
            async for event in events:
                yield event

    holds = [anyio.Event() for _ in range(6)]
    events, source = stream(*itertools.chain.from_iterable(zip(texts(*"abcdef"), holds, strict=True)), hold=True)
    exchange = Exchange(refuses=refuses, silent=refuses)
    async with answering(event_stream_response(generate() if generated else events), exchange):
        for hold in holds[: max(place - 3, 0)]:
            hold.set()
        await exchange.has_sent(place)
        exchange.gone.set()
        for hold in holds:
            hold.set()
    assert (1, "cancelled", False) == (source.closed, events.result.reason, exchange.ended)


async def test_a_generator_can_clean_up_after_its_reader_has_left() -> None:
    """The clean-up may wait, if the reader has left while it handled an event."""

    async def generate() -> AsyncGenerator[UIEvent]:
        try:
            yield HELLO[0]
        finally:
            await anyio.lowlevel.checkpoint()
            stored.append("a")

    async def take(event: UIEvent) -> None:
        driver.cancel()
        await anyio.sleep_forever()

    stored = list[str]()
    driver = Driver(aclosing(generate()), shield=True)
    await driver.drive(take, begin=anyio.lowlevel.checkpoint)
    assert (["a"], True) == (stored, driver.is_cancelled)


async def test_a_stream_that_never_waits() -> None:
    """A disconnect of its client is noticed."""

    async def endless() -> AsyncIterator[UIEvent]:
        for seq in itertools.count(1):
            yield Text("a", seq=seq)

    exchange = Exchange()
    async with answering(event_stream_response(endless()), exchange):
        await exchange.has_sent(100)
        exchange.gone.set()
    assert len(exchange.sent) < 1000


async def test_the_exit_is_shielded_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit of a context manager is shielded from the disconnect, and has a time limit."""
    monkeypatch.setattr(event_reader, "_CLOSE_TIMEOUT_S", 0.01)
    steps: list[str] = []

    @asynccontextmanager
    async def own() -> AsyncIterator[AsyncIterator[UIEvent]]:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.lowlevel.checkpoint)
            try:
                yield held()
            finally:
                await anyio.lowlevel.checkpoint()
                steps.append("closed")
                await anyio.sleep_forever()

    async def held() -> AsyncIterator[UIEvent]:
        yield HELLO[0]
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("left")

    exchange = Exchange()
    async with answering(event_stream_response(own()), exchange):
        await exchange.has_sent(2)
        exchange.gone.set()
    assert ["left", "closed"] == steps


async def test_a_response_that_is_cancelled_before_its_start() -> None:
    """Its stream is closed, entered or not."""
    events, source = stream(*texts("a"))
    exchange = Exchange()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await event_stream_response(events)(exchange.scope, exchange.receive, exchange.send)
    assert 1 == source.closed


@pytest.mark.parametrize("leaves", [False, True])
async def test_head(leaves: bool) -> None:
    """A HEAD request runs nothing. If its client leaves, nothing is raised."""
    events, source = stream(*texts("a"))
    exchange = Exchange(method="HEAD", refuses=leaves)
    if leaves:
        exchange.gone.set()
    await answer(event_stream_response(events), exchange)
    assert (0, 1) == (source.read, source.closed)
    assert [] == exchange.sent if leaves else (200, [b""]) == (exchange.status, exchange.chunks)


async def test_keep_alive_in_silence() -> None:
    """Comments are sent during silence and do not disturb events."""
    go_on = anyio.Event()
    events, _ = stream(*texts("a"), go_on, *texts("b"), [STOP])
    exchange = Exchange()
    async with answering(event_stream_response(events, keep_alive=0.001), exchange):
        await exchange.has_sent(8)
        go_on.set()
    assert ["start", "step-start", "text", "text", "step-end", "done"] == [
        frame["type"] for frame in read_frames(exchange.chunks)
    ]
    assert exchange.chunks.count(b": keep-alive\n\n") >= 4


@pytest.mark.parametrize("options", [{"keep_alive": None}, {"format": partial(outputs.native, framing="ndjson")}])
async def test_no_keep_alive(options: dict[str, Any]) -> None:
    """With None, or a format without comments, none are sent."""
    go_on = anyio.Event()
    events, _ = stream(*texts("a"), go_on, [STOP])
    exchange = Exchange()
    async with answering(event_stream_response(events, **{"keep_alive": 0.001, **options}), exchange):
        await exchange.has_sent(3)
        await anyio.wait_all_tasks_blocked()
        assert b'"a"' in exchange.chunks[-1]
        assert not {b"", b": keep-alive\n\n"} & {*exchange.chunks[1:]}
        go_on.set()
    assert exchange.ended


@pytest.mark.parametrize(("stuck", "items"), [*((at, (*texts("a"), [STOP])) for at in (0, 1, 2, 4)), (3, ())])
async def test_a_client_that_stops_reading(stuck: int, items: tuple[Any, ...]) -> None:
    """At the head, in the middle or at a comment. It counts as gone after `send_timeout`."""
    events, source = stream(*items, hold=not items)
    exchange = Exchange(stuck=stuck, silent=True)
    await answer(event_stream_response(events, keep_alive=None if items else 0.001, send_timeout=0.01), exchange)
    assert (stuck, 1) == (len(exchange.sent), source.closed)


class Held(Exchange):
    """A server that accepts a message with text only when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.held, self.let = anyio.Event(), anyio.Event()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Record a message."""
        if b'"text":"a"' in message.get("body", b""):
            self.held.set()
            await self.let.wait()
        await super().send(message)


@pytest.mark.parametrize("stops", ["the stream", "the client"])
async def test_stop_during_a_message(stops: str) -> None:
    """A stopped run ends after the message in progress. A client that leaves waits for nothing."""
    events, source = stream(*texts("a"), [STOP])
    exchange = Held()
    async with answering(event_stream_response(events), exchange), anyio.create_task_group() as group:
        await exchange.held.wait()
        if stops == "the client":
            exchange.gone.set()
        else:
            group.start_soon(events.aclose)
            await anyio.wait_all_tasks_blocked()
            exchange.let.set()
    told = [frame["type"] for frame in read_frames(exchange.chunks)]
    if stops == "the client":
        assert ["start"] == told
    else:
        assert ["start", "step-start", "text", "step-end", "done"] == told
    assert (1, stops != "the client") == (source.closed, exchange.ended)


async def test_a_server_that_fails_during_a_message() -> None:
    """The response raises the exception of the server, and the source is closed."""

    class Failing(Exchange):
        async def send(self, message: MutableMapping[str, Any]) -> None:
            if b'"text":"a"' in message.get("body", b""):
                raise RuntimeError("the server is broken")
            await super().send(message)

    (events, source), raised = stream(*texts("a"), hold=True), list[Exception]()
    async with answering(event_stream_response(events), Failing(), raised):
        pass
    assert (["the server is broken"], 1) == ([str(each) for each in raised], source.closed)


@pytest.mark.parametrize("error", [LookupError("no such chat"), HTTPException(404)])
async def test_a_stream_that_raises_before_the_first_byte(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The server can answer with an error, because nothing was sent. The log omits an answer of the application."""

    @asynccontextmanager
    async def broken() -> AsyncIterator[AsyncIterator[UIEvent]]:
        if not exchange.sent:
            raise error
        yield listed(HELLO)

    exchange, raised = Exchange(), list[Exception]()
    async with answering(event_stream_response(broken()), exchange, raised):
        pass
    assert ([], [error]) == (exchange.sent, raised)
    assert isinstance(error, LookupError) == ("response_failed" in caplog.text)


async def test_background_tasks() -> None:
    """They run after the response."""
    done = list[str]()
    events, source = stream(*texts("a"), [STOP])

    async def note() -> None:
        done.append(f"closed {source.closed}")

    await answer(event_stream_response(events, background=BackgroundTask(note)), Exchange())
    assert ["closed 1"] == done


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("said", [0, 1, 2])
@pytest.mark.parametrize(
    "make", [outputs.native, outputs.ai_sdk, outputs.ag_ui, partial(outputs.openai, id="x", created=1), outputs.text]
)
async def test_shutdown_ends_plain_iterables(make: Callable[[], outputs.Encoder], said: int, wrapped: bool) -> None:
    """An iterable is closed, also in a context manager, and every format ends with `done(cancelled)`."""
    shutdown, closed = asgi.Shutdown(), anyio.Event()

    async def held() -> AsyncGenerator[UIEvent]:
        for event in HELLO[:said]:
            yield event
        waits.set()
        try:
            await anyio.sleep_forever()
        finally:
            closed.set()

    encoder, exchange, waits = make(), Exchange(), anyio.Event()
    events = [*HELLO[:said], Done("cancelled", None, None, [], seq=said + 1)]
    expected = (b"" if said else encoder.keep_alive) + b"".join(map(encoder.encode, events)) + encoder.close()
    readable = aclosing(held()) if wrapped else held()
    async with answering(event_stream_response(readable, format=make, shutdown=shutdown), exchange):
        await waits.wait()
        shutdown.begin()
    assert (True, True, expected) == (exchange.ended, closed.is_set(), b"".join(exchange.chunks))


# Runs.


@pytest.mark.parametrize(
    ("on_disconnect", "reason"), [(None, "finished"), ("detach", "finished"), ("stop", "cancelled")]
)
async def test_a_run_continues_after_its_client_has_left(on_disconnect: Any, reason: str) -> None:
    """The run continues, unless `on_disconnect` is `stop`."""
    go_on = anyio.Event()
    events, source = stream(*texts("a"), go_on, [STOP])
    async with Runs() as runs:
        run = await runs.start(events, owner="ann")
        exchange = Exchange()
        async with answering(event_stream_response(run, on_disconnect=on_disconnect), exchange):
            await exchange.has_sent(3)
            exchange.gone.set()
        go_on.set()
        result = await run.wait()
    assert (reason, 1) == (result.reason, source.closed)


@pytest.mark.parametrize("format", ["native", "ai_sdk", "openai"])
async def test_a_run_that_is_forgotten_before_it_is_read(format: Any) -> None:
    """The body ends without `done`, and a new request gets 404. The server logs no error."""
    events, _ = stream(*texts("a"), [STOP])
    async with Runs(keep=0) as runs:
        run = await runs.start(events, owner="ann")
        response = event_stream_response(run, format=format)
        await run.wait()
        with pytest.raises(RunNotFound):
            await runs.find(run.id, owner="ann")
        exchange = Exchange()
        await answer(response, exchange)
    assert (200, True) == (exchange.sent[0]["status"], exchange.ended)
    assert outputs.make_encoder(format).close() == b"".join(exchange.chunks).replace(b": keep-alive\n\n", b"")


# Requests.


def connection(headers: Mapping[str, str], query: str = "") -> HTTPConnection:
    """Return a request."""
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": pairs, "query_string": query.encode()})


@pytest.mark.parametrize(
    ("headers", "query", "expected"),
    [
        ({}, "", 0),
        ({"Last-Event-ID": "7"}, "", 7),
        ({}, "after=8", 8),
        ({"Last-Event-ID": "9"}, "after=8", 9),
        ({"Last-Event-ID": ""}, "after=8", 8),
        ({"Last-Event-ID": "seven"}, "", 0),
        ({"Last-Event-ID": "-7"}, "", 0),
        ({"Last-Event-ID": "7.5"}, "", 0),
        ({"Last-Event-ID": " 7"}, "", 0),
        ({"Last-Event-ID": "²"}, "", 0),
        ({"Last-Event-ID": "9" * 5000}, "", 0),
        ({}, "after=%D9%A3", 0),
        ({}, "after=1&after=2", 2),
    ],
)
def test_positions(headers: dict[str, str], query: str, expected: int, caplog: pytest.LogCaptureFixture) -> None:
    """The header precedes the query. A value that is not a number counts as 0, with a warning."""
    request = connection(headers, query)

    assert (expected, expected) == (asgi.last_event_id(request), asgi.last_event_id(request.scope))
    assert 2 * (not expected and bool(query or headers)) == caplog.text.count("position_ignored")


async def test_a_position_applies_to_runs_only() -> None:
    """It is read from the scope. For a stream, the number belongs to an earlier run and is ignored."""
    events, _ = stream(*texts("a"), [STOP])
    async with Runs() as runs:
        run = await runs.start(events, owner="ann")
        await run.wait()
        for each, options, first in [(run, {}, 4), (run, {"after": 0}, 1), (listed(HELLO), {}, 1)]:
            exchange = Exchange()
            exchange.scope["headers"] = [(b"last-event-id", b"3")]
            await answer(event_stream_response(each, **options), exchange)  # type: ignore[arg-type]
            assert first == read_frames(exchange.chunks)[0]["seq"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"format": "morse"}, "format must be one of"),
        ({"after": -1}, "after must be an integer of at least 0 or None"),
        ({"after": "3"}, "after must be an integer of at least 0 or None"),
        ({"after": 3}, "`after` needs a run"),
        ({"on_disconnect": "detach"}, "on_disconnect='detach' needs a run"),
        ({"on_disconnect": "wave"}, "on_disconnect must be one of"),
        ({"on_disconnect": ""}, "on_disconnect must be one of"),
        ({"keep_alive": 0}, "keep_alive must be a positive number"),
        ({"keep_alive": True}, "keep_alive must be a positive number"),
        ({"send_timeout": math.nan}, "send_timeout must be a positive number"),
    ],
)
def test_wrong_values(options: dict[str, Any], words: str) -> None:
    """They raise when the response is made, so that the endpoint can answer."""
    with pytest.raises(ValueError, match=words):
        event_stream_response(listed(HELLO), **options)


def test_an_object_without_events_is_refused() -> None:
    """It raises TypeError."""
    with pytest.raises(TypeError, match="the stream must be a run or a stream"):
        event_stream_response(["no", "events"])  # type: ignore[arg-type]


def test_a_response_is_made_in_any_thread() -> None:
    """Synchronous endpoints run without an event loop."""
    events, _ = stream(*texts("a"))

    assert 200 == event_stream_response(events).status_code
