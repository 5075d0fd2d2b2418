"""Websockets with uvicorn and the `websockets` client: one-way events and conversations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import litestar
import pytest
import websockets
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection

from streamtools import ApprovalOptions, ToolStream, replay, tool
from streamtools.errors import UnreadableSource
from streamtools.events import ProviderCompleted, Start, UIEvent, read_ui_event
from streamtools.outputs.asgi import Session, Shutdown, send_events, serve_websocket
from streamtools.recording import shipped
from streamtools.runs import Runs
from tests.support.options import grouped
from tests.support.sample_runs import RUNS
from tests.support.serving import Served
from tests.support.stories import Script
from tests.support.stories import batches as texts

pytestmark = pytest.mark.asyncio_only

STOP = [ProviderCompleted(finish_reason="stop")]


def stream(*items: Any, hold: bool = False, **options: Any) -> tuple[ToolStream, Script]:
    """Return a stream and its source."""
    source = Script(*items, hold=hold)
    return ToolStream(source, run_id="r", **grouped(**options)), source


@asynccontextmanager
async def talking(endpoint: Callable[[WebSocket], Awaitable[None]], **options: Any) -> AsyncIterator[ClientConnection]:
    """Serve an endpoint, and connect to it."""
    page = Starlette(routes=[WebSocketRoute("/", endpoint)])
    async with (
        Served(page) as server,
        websockets.connect(server.websocket_url, proxy=None, compression=None, **options) as client,
    ):
        with anyio.fail_after(20):
            yield client


def conversing(
    handler: Callable[[dict[str, Any], Session], Any], **options: Any
) -> Callable[[WebSocket], Awaitable[None]]:
    """Return an endpoint whose messages go to this handler."""

    async def endpoint(websocket: WebSocket) -> None:
        await serve_websocket(websocket, handler, **options)

    return endpoint


async def say(client: ClientConnection, message: Any) -> None:
    """Send one frame."""
    await client.send(message if isinstance(message, str | bytes) else json.dumps(message))


async def hear(client: ClientConnection, last: str = "done") -> list[dict[str, Any]]:
    """Return the frames up to the first with this type or key."""
    frames: list[dict[str, Any]] = []
    while not frames or last not in (frames[-1].get("type"), *frames[-1]):
        frames.append(json.loads(await client.recv()))
    return frames


def kinds(frames: list[dict[str, Any]]) -> list[str]:
    """Return the types of events."""
    return [frame["type"] for frame in frames]


# Frames of the server.


@pytest.mark.parametrize(
    "options", [{}, {"exclude": ()}, {"exclude": {"follow-up", "usage"}}], ids=["default", "all", "without usage"]
)
@pytest.mark.parametrize("both_ways", [True, False])
async def test_messages_for_the_model_are_not_sent(both_ways: bool, options: dict[str, Any]) -> None:
    """The option `exclude` changes that. The other events keep their seqs. One way, the close code is 1000."""
    run = RUNS["two steps"]

    async def events() -> AsyncIterator[UIEvent]:
        for event in run:
            yield event

    async def endpoint(websocket: WebSocket) -> None:
        if both_ways:
            await serve_websocket(websocket, lambda message, session: events(), **options)
        else:
            await send_events(websocket, events(), **options)

    async with talking(endpoint) as client:
        if both_ways:
            await say(client, {})
        frames = await hear(client)
        if not both_ways:
            await client.wait_closed()
            assert 1000 == client.close_code

    excluded = options.get("exclude", {"follow-up"})
    assert [event for event in run if event.type not in excluded] == [
        read_ui_event(json.dumps(frame)) for frame in frames
    ]


# One way.


async def test_an_accepted_websocket_keeps_its_subprotocol() -> None:

    async def endpoint(websocket: WebSocket) -> None:
        await websocket.accept("events")
        await send_events(websocket, replay(shipped()["tilde-call"]))

    async with talking(endpoint, subprotocols=[websockets.Subprotocol("events")]) as client:
        assert ("events", "done") == (client.subprotocol, (await hear(client))[-1]["type"])


@pytest.mark.parametrize("breaks", [False, True])
async def test_a_client_that_leaves(breaks: bool) -> None:
    """It may leave at any event. Nothing more is sent, and the stream is closed."""
    events, source = stream(*texts(*"a" * 100_000), hold=True)
    over = anyio.Event()

    async def endpoint(websocket: WebSocket) -> None:
        await send_events(websocket, events)
        over.set()

    async with talking(endpoint) as client:
        await hear(client, "text")
        if breaks:
            client.transport.abort()
        else:
            await say(client, "not listened to")
            await client.close()
        await over.wait()
    assert (1, "cancelled") == (source.closed, events.result.reason)
    assert source.read < 100_000


@pytest.mark.parametrize("both_ways", [True, False])
async def test_a_client_that_does_not_read(both_ways: bool) -> None:
    """It counts as gone after `send_timeout`."""
    events, source = stream(*texts(*["a" * 10_000] * 10_000), hold=True)
    over = anyio.Event()

    async def endpoint(websocket: WebSocket) -> None:
        if both_ways:
            await serve_websocket(websocket, lambda message, session: events, send_timeout=0.05)
        else:
            await send_events(websocket, events, send_timeout=0.05)
        over.set()

    async with talking(endpoint, max_queue=1) as client:
        if both_ways:
            await say(client, {})
        await over.wait()
        client.transport.abort()
    assert 1 == source.closed


async def test_a_stream_that_raises() -> None:
    """The close code is 1011, and the server gets the exception."""
    events, _ = stream(*texts("a"), LookupError("gone"))
    raised = list[Exception]()

    async def endpoint(websocket: WebSocket) -> None:
        try:
            await send_events(websocket, events)
        except LookupError as error:
            raised.append(error)

    async with talking(endpoint) as client:
        assert "failed" == (await hear(client))[-1]["reason"]
        await client.wait_closed()
    assert (1011, 1) == (client.close_code, len(raised))


@pytest.mark.parametrize("says_so", [True, False])
async def test_shutdown_of_one_way(says_so: bool) -> None:
    """The client gets `done(cancelled)`, also from a plain iterator, and the close code 1001."""
    shutdown = Shutdown()
    events, source = stream(hold=True)

    async def held() -> AsyncIterator[UIEvent]:
        yield Start("r", seq=1)
        await anyio.sleep_forever()

    async def endpoint(websocket: WebSocket) -> None:
        await send_events(websocket, events if says_so else held(), shutdown=shutdown)

    async with talking(endpoint) as client:
        await hear(client, "start")
        shutdown.begin()
        assert "cancelled" == (await hear(client))[-1]["reason"]
        await client.wait_closed()
    assert (1001, int(says_so)) == (client.close_code, source.closed)
    await events.aclose()


# Both ways.


def answering(*pieces: str, **options: Any) -> Callable[[WebSocket], Awaitable[None]]:
    """Return an endpoint that answers each message with these pieces and the message itself."""

    async def handler(message: dict[str, Any], session: Session) -> ToolStream | None:
        if message.get("quiet"):
            await session.send({"noted": isinstance(session.websocket, WebSocket)})
            return None
        return stream(*texts(*pieces, message["text"]), STOP)[0]

    return conversing(handler, **options)


async def test_messages_are_answered_in_order() -> None:
    """Messages wait during an answer. A handler may return None."""
    async with talking(answering("You said ")) as client:
        for text in ("one", "two"):
            await say(client, {"text": text})
        await say(client, {"quiet": True})
        answers = [await hear(client), await hear(client)]
        assert [{"noted": True}] == await hear(client, "noted")
    for text, frames in zip(("one", "two"), answers, strict=True):
        assert ["start", "step-start", "text", "text", "step-end", "done"] == kinds(frames)
        assert text == frames[3]["text"]


WRONG: list[tuple[str | bytes, str]] = [
    ("nonsense", "not_json"),
    ("{", "not_json"),
    ("[" * 9_000, "not_json"),
    ('{"a": [' + "{}," * 10_000 + "{}]}", "too_large"),
    ('{"a": "\\ud800"}', "not_json"),
    ("[]", "not_an_object"),
    ("7", "not_an_object"),
    (b"\\x00\\x01", "not_text"),
    ('{"text": "' + "a" * 200_000 + '"}', "too_large"),
    ('{"cancel": false}', "wrong_type"),
    ('{"cancel": true, "now": true}', "wrong_type"),
    ('{"resume": "3"}', "wrong_type"),
    ('{"resume": -1}', "wrong_type"),
    ('{"resume": true}', "wrong_type"),
    ('{"resume": 1, "run_id": 3}', "wrong_type"),
    ('{"resume": 1, "run_id": ""}', "wrong_type"),
    ('{"resume": 1}', "wrong_type"),
    ('{"resume": 1, "run_id": "run_x"}', "run_not_found"),
    ('{"decision": 3}', "wrong_type"),
    ('{"decision": "approve"}', "wrong_type"),
    ('{"call_id": "c", "decision": "approve", "reason": "no"}', "wrong_type"),
    ('{"call_id": 3, "decision": "answer", "result": 1}', "wrong_type"),
    ('{"call_id": "c", "decision": "answer", "error": 1}', "wrong_type"),
    ('{"call_id": "c", "decision": "answer", "result": 1, "more": 1}', "wrong_type"),
    ('{"call_id": "c", "decision": "answer", "result": 1}', "not_waiting"),
    ('{"call_id": "c", "decision": 1}', "wrong_type"),
    ('{"call_id": "c", "decision": "perhaps"}', "wrong_type"),
    ('{"call_id": "c", "decision": "deny", "reason": 3}', "wrong_type"),
    ('{"call_id": "c", "decision": "approve", "digest": 3}', "wrong_type"),
    ('{"call_id": "c", "decision": "approve"}', "not_waiting"),
]


async def test_wrong_frames_are_answered() -> None:
    """Each has its code and message, and the connection stays open."""
    async with talking(answering(max_frame=150_000)) as client:
        for frame, code in WRONG:
            await say(client, frame)
            (answer,) = await hear(client, "error")
            assert code == answer["error"]["code"], frame[:50]
            assert answer["error"]["message"]
        await say(client, {"text": "still here"})
        assert "done" == (await hear(client))[-1]["type"]


@pytest.mark.parametrize("frame", ["[]", b"\0", '"' + "a" * 100 + '"'])
async def test_a_client_with_many_invalid_frames_is_disconnected(frame: str | bytes) -> None:
    """The connection is closed after 32 frames."""
    async with talking(answering(max_frame=100)) as client:
        for _ in range(32):
            await say(client, frame)
            await hear(client, "error")
        await client.wait_closed()
        assert 1008 == client.close_code


async def test_too_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages over the limit are dropped with an error."""
    go_on = anyio.Event()
    monkeypatch.setattr("streamtools.serving.websockets._MAX_WAITING", 2)

    def handler(message: dict[str, Any], session: Session) -> ToolStream:
        return stream(go_on, *texts(message["text"]), STOP)[0]

    async with talking(conversing(handler)) as client:
        await say(client, {"text": "0"})
        await hear(client, "start")
        for number in range(1, 5):
            await say(client, {"text": str(number)})
        errors = [*await hear(client, "error"), *await hear(client, "error")]
        assert ["too_many_messages"] * 2 == [each["error"]["code"] for each in errors if "error" in each]
        go_on.set()
        said = [frame["text"] for _ in range(3) for frame in await hear(client) if frame["type"] == "text"]
    assert ["0", "1", "2"] == said


@pytest.mark.parametrize("entered", [False, True])
async def test_cancel_before_the_stream_exists(entered: bool) -> None:
    """The client gets `done` even if the handler has not returned a stream yet."""
    asked, go_on = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[ToolStream]:
        asked.set()
        await anyio.sleep_forever()
        yield stream()[0]

    async def handler(message: dict[str, Any], session: Session) -> Any:
        if entered:
            return slow()
        asked.set()
        await go_on.wait()
        return stream(*texts("a"), hold=True)[0]

    async with talking(conversing(handler)) as client:
        await say(client, {})
        await asked.wait()
        await say(client, {"cancel": True})
        await say(client, "[]")
        await hear(client, "error")
        go_on.set()
        assert "cancelled" == (await hear(client))[-1]["reason"]


@pytest.mark.parametrize(
    ("message", "closed", "logged"),
    [
        ({"no": "text"}, 1008, ["KeyError"] * 32),
        ({"opened": True}, 1008, ["TypeError"] * 32),
        ({"text": "a"}, 1011, []),
        ({"ours": True}, 1011, []),
        ({"dict": True}, 1011, []),
    ],
    ids=["in the handler", "as its stream is opened", "after the first event", "an error of the package", "no stream"],
)
async def test_what_a_handler_raises(
    message: dict[str, Any], closed: int, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """An error that the message may cause is an invalid frame. Any other closes with 1011."""
    raised = list[Exception]()

    @asynccontextmanager
    async def open_it(message: dict[str, Any]) -> AsyncIterator[Any]:
        yield stream(*texts(message["opened"] + ""))[0]

    def answer(message: dict[str, Any], session: Session) -> Any:
        if "opened" in message:
            return open_it(message)
        if "ours" in message:
            raise UnreadableSource("answer")
        if "dict" in message:
            return {}
        return stream(*texts(message["text"]), LookupError("gone"))[0]

    async def endpoint(websocket: WebSocket) -> None:
        try:
            await serve_websocket(websocket, answer)
        except Exception as error:
            raised.append(error)

    async with talking(endpoint) as client:
        for _ in logged:
            await say(client, message)
            assert "refused" == (await hear(client, "error"))[-1]["error"]["code"]
        if not logged:
            await say(client, message)
        await client.wait_closed()
    assert (closed, not logged) == (client.close_code, bool(raised))
    assert all("answer" in str(each) for each in raised if isinstance(each, TypeError))  # it names the handler
    told = [vars(each)["streamtools"] for each in caplog.records if each.getMessage().startswith("message_refused ")]
    assert logged == [each["error"] for each in told]
    assert all("test_what_a_handler_raises.<locals>.answer (" in each["handler"] for each in told)
    assert all(each["reason"] == "no key 'text'" for each in told if each["error"] == "KeyError")
    assert not [each for each in caplog.records if logged and each.exc_info]


async def test_shutdown_of_an_idle_conversation() -> None:
    """The close code is 1001."""
    shutdown = Shutdown()
    async with talking(conversing(lambda message, session: None, shutdown=shutdown)) as client:
        await say(client, "[]")
        await hear(client, "error")
        shutdown.begin()
        assert [] == [frame async for frame in client]
    assert 1001 == client.close_code


# Runs.


@asynccontextmanager
async def running(*items: Any, hold: bool = False, **options: Any) -> AsyncIterator[tuple[Served, Script]]:
    """Serve conversations whose answers are runs of the owner in the path."""
    source = Script(*items, hold=hold)
    async with Runs() as runs:

        async def endpoint(websocket: WebSocket) -> None:
            owner = websocket.path_params["owner"]

            async def handler(message: dict[str, Any], session: Session) -> Any:
                return await runs.start(ToolStream(source, **options), owner=owner)

            await serve_websocket(websocket, handler, runs=runs, owner=owner)

        async with Served(Starlette(routes=[WebSocketRoute("/{owner}", endpoint)])) as server:
            with anyio.fail_after(20):
                yield server, source


@asynccontextmanager
async def visiting(server: Served, owner: str = "ann") -> AsyncIterator[ClientConnection]:
    """Connect as an owner."""
    async with websockets.connect(f"{server.websocket_url}/{owner}", proxy=None) as client:
        yield client


@pytest.mark.parametrize("place", range(1, 7))
async def test_a_run_is_resumed_after_any_event(place: int) -> None:
    """Another connection of the owner gets exactly the missing events."""
    go_on = anyio.Event()
    async with running(*texts("a", "b"), go_on, *texts("c"), STOP) as (server, _):
        async with visiting(server) as client:
            await say(client, {})
            if place > 4:
                go_on.set()
            seen = [json.loads(await client.recv()) for _ in range(place)]
            client.transport.abort()
        go_on.set()
        again = {"resume": seen[-1]["seq"], "run_id": seen[0]["run_id"]}
        async with visiting(server, "bob") as client:
            await say(client, again)
            assert "run_not_found" == (await hear(client, "error"))[0]["error"]["code"]
        async with visiting(server) as client:
            await say(client, again)
            rest = await hear(client)
            await say(client, {**again, "resume": 0})
            whole = await hear(client)
    assert whole == seen + rest
    assert ["start", "step-start", "text", "text", "text", "step-end", "done"] == kinds(whole)


async def test_without_runs_no_run_can_be_resumed() -> None:
    async with talking(answering("a")) as client:
        expected = {
            "code": "run_not_found",
            "message": "The server finds no runs, because `serve_websocket` has no `runs`.",
        }
        await say(client, {"resume": 0, "run_id": "r"})
        assert [{"error": expected}] == await hear(client, "error")


async def test_a_websocket_of_litestar() -> None:
    """Frames are received and sent as with Starlette."""

    async def handler(message: dict[str, Any], session: Session) -> ToolStream:
        return stream(*texts(message["text"]), STOP)[0]

    @litestar.websocket("/")
    async def endpoint(socket: litestar.WebSocket[Any, Any, Any]) -> None:
        await serve_websocket(socket, handler)

    async with (
        Served(litestar.Litestar([endpoint])) as server,
        websockets.connect(server.websocket_url, proxy=None) as client,
    ):
        await say(client, {"text": "hello"})
        assert "hello" in [frame.get("text") for frame in await hear(client)]


@pytest.mark.parametrize(
    "options",
    [{"runs": Runs()}, {"exclude": "done"}, {"max_frame": 0}, {"send_timeout": 0}],
    ids=lambda options: "".join(options),
)
async def test_wrong_values(options: dict[str, Any]) -> None:
    """They raise before the connection is accepted."""
    websocket = WebSocket({"type": "websocket"}, None, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"owner|at least 1|positive|got \['done'\]"):
        await serve_websocket(websocket, lambda message, session: None, **options)


async def test_a_client_cancels_a_run() -> None:
    """It ends for all of its readers."""
    async with running(*texts("a"), hold=True) as (server, source), visiting(server) as one, visiting(server) as other:
        await say(one, {})
        start = await hear(one, "text")
        await say(other, {"resume": 0, "run_id": start[0]["run_id"]})
        await hear(other, "text")
        await say(other, {"cancel": True})
        assert ["cancelled"] * 2 == [(await hear(each))[-1]["reason"] for each in (one, other)]
    assert 1 == source.closed


# Several conversations.


@pytest.mark.parametrize("ends_by", ["a close", "a break", "an error", "a shutdown"])
async def test_the_end_of_several_conversations(ends_by: str, caplog: pytest.LogCaptureFixture) -> None:
    """All streams stop, whatever ends the connection. Nothing is logged."""
    sources, over, shutdown, raised = list[Script](), anyio.Event(), Shutdown(), list[Exception]()

    async def endpoint(websocket: WebSocket) -> None:
        def answer(message: dict[str, Any], session: Session) -> ToolStream:
            fault = [LookupError("gone")] if message.get("fail") else []
            events, source = stream(*texts("a"), *fault, hold=not fault)
            sources.append(source)
            return events

        try:
            await serve_websocket(websocket, answer, max_conversations=4, shutdown=shutdown)
        except LookupError as error:
            raised.append(error)
        over.set()

    with caplog.at_level("WARNING"):
        async with talking(endpoint) as client:
            for name in "abc":
                await say(client, {"conversation": name})
                await hear(client, "text")
            await say(client, {"conversation": "a", "cancel": True})
            match ends_by:
                case "a close":
                    await client.close()
                case "a break":
                    client.transport.abort()
                case "an error":
                    await say(client, {"conversation": "d", "fail": True})
                case _:
                    shutdown.begin()
                    frames = [json.loads(frame) async for frame in client]
                    assert {"a", "b", "c"} == {frame["conversation"] for frame in frames if frame["type"] == "done"}
                    assert 1001 == client.close_code
            await over.wait()
    assert {1} == {source.closed for source in sources}
    assert ends_by == "an error" or ([], []) == (raised, caplog.records)
    assert len(raised) == (ends_by == "an error")


async def test_decisions_and_runs_belong_to_a_conversation() -> None:
    """A result counts in the conversation of its call only. A run is resumed in any."""

    @tool(client=True)
    def locate() -> str:
        """Return the position of the user."""
        raise NotImplementedError

    async with Runs() as runs:

        async def answer(message: dict[str, Any], session: Session) -> Any:
            call, approvals = texts('###:{"name":"locate"}'), ApprovalOptions(ask="now")
            return await runs.start(stream(*call, STOP, tools=[locate], approvals=approvals)[0], owner="ann")

        async with talking(conversing(answer, runs=runs, owner="ann", max_conversations=4)) as client:
            await say(client, {"conversation": "a"})
            seen = await hear(client, "executing")
            assert {"a"} == {frame["conversation"] for frame in seen}
            result = {"call_id": seen[-1]["call"]["id"], "decision": "answer", "result": "here"}
            await say(client, {"conversation": "b", **result})
            error = (await hear(client, "error"))[-1]
            assert ("b", "not_waiting") == (error["conversation"], error["error"]["code"])
            await say(client, {"conversation": "a", **result})
            await hear(client)
            await say(client, {"conversation": "b", "resume": 0, "run_id": seen[0]["run_id"]})
            again = await hear(client)
    assert ("b", "here") == (again[0]["conversation"], next(each["result"] for each in again if "result" in each))
