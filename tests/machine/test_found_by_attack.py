"""Faults that reviews have found, each with the smallest stream that shows it."""

from __future__ import annotations

import anyio
import pytest

from streamtools import ParserOptions, ToolStream, sources
from streamtools.errors import Code
from streamtools.events import Done, Error, UIEvent
from streamtools.limits import Limits
from tests.support.chat_chunks import DONE, chunk


def frame(text: str, reason: str | None = None) -> bytes:
    return chunk({"content": text}, reason)


async def collect(stream: ToolStream) -> list[UIEvent]:
    """Return all events of a stream."""
    async with stream as events:
        return [event async for event in events]


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
        DONE,
    ]
    events = await collect(
        ToolStream(sources.openai(wire, limits=limits), tools=[remove], parser=ParserOptions(limits=limits))
    )

    assert ["whole"] == ran
    assert [Code.TRUNCATED] == [event.code for event in events if isinstance(event, Error)]


class Pings:
    """A source that never waits and yields no events."""

    def __aiter__(self) -> Pings:
        return self

    async def __anext__(self) -> bytes:
        return b": ping\n\n"


async def test_a_source_that_never_waits_can_be_left() -> None:
    """Other tasks run, so that a cancellation arrives."""
    with anyio.move_on_after(0.01) as scope:
        await collect(ToolStream(sources.openai(Pings())))

    assert scope.cancelled_caught


@pytest.mark.parametrize("raised", [BaseExceptionGroup("two", [GeneratorExit(), ValueError()]), GeneratorExit()])
async def test_an_exception_of_a_tool_ends_only_the_tool(raised: BaseException) -> None:
    """Also exceptions in groups."""

    async def bad() -> None:
        raise raised

    events = await collect(ToolStream(sources.text(['###:{"name":"bad"}']), tools=[bad]))

    assert [Code.TOOL_FAILED] == [event.code for event in events if isinstance(event, Error)]
    assert isinstance(events[-1], Done)
    assert "finished" == events[-1].reason
