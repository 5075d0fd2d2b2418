"""The protocol of an application (`outputs.custom`), in responses, runs and websockets, on both event loops."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter
from typing import Any

import anyio
import pytest

from streamtools import ToolStream, outputs
from streamtools.events import Done, Error, FollowUp, Start, Text, TextDelta, UIEvent
from streamtools.outputs.asgi import event_stream_response, send_events, serve_websocket
from streamtools.runs import MemoryEventLog, Runs
from streamtools.serving.event_log import log_key
from tests.serving.test_asgi_by_hand import Socket
from tests.support.serving import Exchange, read_frames
from tests.support.stories import Script

PAGE = [{"token": "a"}, {"token": "b"}, {"end": "finished"}]
FAILED = [{"error": "stream_interrupted"}, {"end": "failed"}]


def write(event: UIEvent) -> outputs.Message:
    """Return the message of a page that knows tokens, errors and the end."""
    match event:
        case Text("bug"):
            raise ZeroDivisionError
        case Text(text):
            return {"token": text}
        case Error(code):
            return {"error": code.value}
        case Done(reason):
            return {"end": reason}
    return None


MODULE_LEVEL = outputs.custom(write)
"""An encoder that all responses of an application share."""


@asynccontextmanager
async def stream(*events: UIEvent | Exception) -> AsyncIterator[AsyncIterator[UIEvent]]:
    """A stream of these events. An exception after `done` is raised as the stream is left."""

    async def iterate() -> AsyncIterator[UIEvent]:
        for event in events:
            if isinstance(event, Exception):
                raise event
            yield event
            if isinstance(event, Done):
                return

    yield iterate()
    if isinstance(events[-1], Exception):
        raise events[-1]


async def respond(readable: Any, **options: Any) -> tuple[list[dict[str, Any]], Exception | None]:
    """Return the messages in a response, which must end, and what it has raised."""
    exchange = Exchange()
    raised = None
    with anyio.fail_after(20):
        try:
            await event_stream_response(readable, **{"format": MODULE_LEVEL, **options})(
                exchange.scope, exchange.receive, exchange.send
            )
        except Exception as error:
            raised = error
    assert exchange.ended
    return read_frames(exchange.chunks), raised


@pytest.mark.parametrize(
    ("events", "shown", "raised"),
    [
        ([Text("a", seq=1), Text("b", seq=2), Done("finished", "stop", None, [], seq=3)], PAGE, None),
        ([Text("a", seq=1), FollowUp([], seq=2)], [*PAGE[:1], *FAILED], None),
        ([Text("a", seq=1), KeyError("gone")], [*PAGE[:1], *FAILED], KeyError),
        ([Text("a", seq=1), Text("bug", seq=2), Text("b", seq=3)], [*PAGE[:1], *FAILED], ZeroDivisionError),
        ([Text("bug", seq=1)], FAILED, ZeroDivisionError),
        ([Text("a", seq=1), Done("stopped", None, None, [], seq=2), OSError()], [*PAGE[:1], *FAILED], OSError),
    ],
    ids=["whole", "without its end", "raising", "a bug", "a bug at its first event", "raising after its end"],
)
async def test_each_response_has_its_end(events: list[Any], shown: list[Any], raised: type[Exception] | None) -> None:
    """The function gets `error` and `done` if the stream breaks. One encoder serves many responses."""
    for _ in range(2):
        messages, error = await respond(stream(*events))
        assert (shown, raised) == (messages, error and type(error))


async def test_a_function_that_always_raises(caplog: pytest.LogCaptureFixture) -> None:
    """The body still ends, and the server gets the exception. The log has the line of the function."""

    def fail(event: UIEvent) -> dict[str, Any]:
        raise ZeroDivisionError("no message")

    messages, error = await respond(stream(Text("a")), format=outputs.custom(fail))
    assert ([], ZeroDivisionError) == (messages, type(error))
    assert f"response_failed error='ZeroDivisionError' raised_at='{__file__}:" in caplog.text
    assert "ZeroDivisionError: no message" in caplog.text
    read: Any = attrgetter("text")
    messages, error = await respond(stream(Text("a"), Start("r")), format=outputs.custom(read))
    assert "'Start' object has no attribute 'text'" == str(error), "not that of the `error` event that follows"


async def test_a_cancelled_run_and_its_second_reader() -> None:
    """The stop reaches the function as `done`. A reader that returns gets what follows its last id."""
    source = Script([TextDelta("a")], [TextDelta("b")], hold=True)
    async with Runs() as runs:
        run = await runs.start(ToolStream(source), owner="ann")
        async with anyio.create_task_group() as group:
            exchange = Exchange()
            response = event_stream_response(run, format=MODULE_LEVEL)
            group.start_soon(response, exchange.scope, exchange.receive, exchange.send)
            await exchange.has_sent(2)
            await anyio.wait_all_tasks_blocked()
            await run.stop()
        whole = b"".join(exchange.chunks).decode()
        assert [*PAGE[:2], {"end": "cancelled"}] == read_frames(exchange.chunks)
        ids = [int(line[4:]) for line in whole.splitlines() if line.startswith("id: ")]
        for count, seq in enumerate(ids, 1):
            assert read_frames(exchange.chunks)[count:] == (await respond(run, after=seq))[0]
        stateful = outputs.custom(write, resumable=False)
        assert 3 == len((await respond(run, after=ids[0], format=stateful))[0])


async def test_a_broken_body_of_a_run_does_not_end_the_answer() -> None:
    """A page that can reconnect is not told that the run has failed."""
    async with Runs() as runs, anyio.create_task_group() as group:
        run = await runs.start(ToolStream(Script([TextDelta("a")], hold=True)), owner="ann")
        exchange = Exchange()
        response = event_stream_response(run, format=MODULE_LEVEL)
        group.start_soon(response, exchange.scope, exchange.receive, exchange.send)
        await exchange.has_sent(2)
        await anyio.wait_all_tasks_blocked()
        assert isinstance(runs.log, MemoryEventLog)
        runs.log.forget(log_key("ann", run.id))
        await anyio.wait_all_tasks_blocked()
        assert PAGE[:1] == read_frames(exchange.chunks)
        assert exchange.ended
        await run.stop()


@pytest.mark.parametrize("conversation", [None, "a"])
@pytest.mark.parametrize("both_ways", [True, False])
async def test_frames_of_a_websocket(both_ways: bool, conversation: str | None) -> None:
    """An object is a text frame with its conversation. Text and bytes are sent unchanged."""
    messages = iter([{"n": 1}, "\ud83d text", b"bytes", None, {}])
    events: list[UIEvent] = [Start("r", seq=1), Text("a", seq=2), Text("b", seq=3), FollowUp([], seq=4)]
    readable = stream(*events, Text("c", seq=5), Done("finished", None, None, [], seq=6))
    socket = Socket(json.dumps({} if conversation is None else {"conversation": conversation}))
    encoder = outputs.custom(lambda event: next(messages))

    async def serve() -> None:
        if both_ways:
            await serve_websocket(socket, lambda message, session: readable, format=encoder, max_conversations=1)
        else:
            await send_events(socket, readable, format=encoder)

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    tag = {"conversation": conversation} if conversation and both_ways else {}
    frames = [frame.get("text", frame.get("bytes")) for frame in socket.sent if frame["type"] == "websocket.send"]
    frames[0], frames[3] = json.loads(frames[0]), json.loads(frames[3])
    assert [{**tag, "n": 1}, "\ufffd text", b"bytes", tag] == frames


def test_mistakes_are_named() -> None:
    """They say what the function must be, and what it may return."""
    with pytest.raises(TypeError, match=r"function must be callable as function\(event\), got str"):
        outputs.custom("ai_sdk")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must return a dict, str, bytes or None, but .* returned int"):
        outputs.custom(lambda event: 3).encode(Text("a"))  # type: ignore[arg-type,return-value]
