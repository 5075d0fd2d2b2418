"""Faults that reviews have found, each with the smallest stream that shows it."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator

import anyio
import pytest

from streamtools import Parser, ParserOptions, ToolStream, sources
from streamtools.errors import Code
from streamtools.events import Done, Error, Executed, UIEvent
from streamtools.limits import Limits


def frame(text: str, reason: str | None = None) -> bytes:
    """Return a chat completion chunk."""
    return (
        b"data: " + json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": reason}]}).encode() + b"\n\n"
    )


async def collect(stream: ToolStream) -> list[UIEvent]:
    """Return all events of a stream."""
    async with stream as events:
        return [event async for event in events]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("lost", "limits"),
    [
        pytest.param(
            b'data: {"choices":[{"delta":{"content":"/old"\n\n', Limits(), id="a frame that cannot be decoded"
        ),
        pytest.param(frame("/old" * 100), Limits(frame=200), id="a frame that is too long"),
    ],
)
async def test_a_call_with_a_lost_frame_never_runs(lost: bytes, limits: Limits) -> None:
    """The parts around the lost frame are not joined."""
    ran: list[str] = []

    def remove(path: str) -> None:
        ran.append(path)

    wire = [
        frame('###:{"name":"remove","arguments":{"path":"/srv/data/tmp'),
        lost,
        frame('"}} ###:{"name":"remove","arguments":{"path":"whole"}}', "stop"),
        b"data: [DONE]\n\n",
    ]
    events = await collect(
        ToolStream(sources.openai(wire, limits=limits), tools=[remove], parser=ParserOptions(limits=limits))
    )

    assert ["whole"] == ran
    assert [Code.TRUNCATED] == [event.code for event in events if isinstance(event, Error)]


def test_no_text_is_stored_after_a_limit() -> None:
    """Neither many deltas nor large deltas: at most one delta and a few characters."""
    parser = Parser(limits=Limits(call=1000))
    parser.feed('###:{"name":"x","args":{"a":"' + "y" * 1000)
    tracemalloc.start()
    for index in range(50):
        parser.feed("y" * 99_990 + str(index))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1_000_000


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_a_tool_that_cancels_itself_still_ends(anyio_backend: str) -> None:
    """Each call has its last event, and no number is missing."""

    async def leave() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await anyio.lowlevel.checkpoint()

    text = '###:{"name":"leave"} ###:{"name":"leave"}'
    events = await collect(ToolStream(sources.text([text]), tools=[leave]))

    assert 2 == sum(isinstance(event, Executed | Error) for event in events)
    assert list(range(1, len(events) + 1)) == [event.seq for event in events]


class Pings:
    """A source that never waits and yields no events."""

    def __aiter__(self) -> Pings:
        return self

    async def __anext__(self) -> bytes:
        return b": ping\n\n"


@pytest.mark.anyio
async def test_a_source_that_never_waits_can_be_left() -> None:
    """Other tasks run, so that a cancellation arrives."""
    with anyio.move_on_after(0.01) as scope:
        await collect(ToolStream(sources.openai(Pings())))

    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_the_log_of_a_lost_connection_omits_its_message(caplog: pytest.LogCaptureFixture) -> None:
    """The message may hold an address with a key, or text of a user."""

    async def broken() -> AsyncIterator[str]:
        yield "x"
        raise ValueError("bad chunk: SECRET")

    events = await collect(ToolStream(sources.text(broken())))

    assert "SECRET" not in caplog.text + "".join(event.to_json() for event in events)
    assert "ValueError" in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("raised", [BaseExceptionGroup("two", [GeneratorExit(), ValueError()]), GeneratorExit()])
async def test_an_exception_of_a_tool_ends_only_the_tool(raised: BaseException) -> None:
    """Also exceptions in groups."""

    async def bad() -> None:
        raise raised

    events = await collect(ToolStream(sources.text(['###:{"name":"bad"}']), tools=[bad]))

    assert [Code.TOOL_FAILED] == [event.code for event in events if isinstance(event, Error)]
    assert isinstance(events[-1], Done)
    assert "finished" == events[-1].reason
